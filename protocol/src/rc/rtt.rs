//! The retransmission timeout (RTO): SRTT and RTTVAR from acknowledgements (RFC 6298). `Retries::timeout` doubles it after each
//! timeout, caps it, and uses IBTA's coded timeout with a verbs peer.

use crate::{Nanos, Psn};

/// No timeout is shorter: a peer that shares its processor with others answers late.
const MIN_TIMEOUT_NS: Nanos = 250_000;

/// An estimate of the round trip time; one packet is timed at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    smoothed: Option<Nanos>,
    variation: Nanos,
    timed: Option<(Psn, Nanos)>,
    /// How long the peer says that it waited with the acknowledgement that is looked at.
    peer_delay: Nanos,
    /// The newest round trip, until somebody counts it; else 0.
    uncounted: Nanos,
}

impl Rtt {
    /// A packet that asks for an acknowledgement is sent for the first time.
    #[inline]
    pub(super) fn sent(&mut self, psn: Psn, now: Nanos) {
        if self.timed.is_none() {
            self.timed = Some((psn, now));
        }
    }

    /// Something was sent again: the next answer may be to either copy (Karn's rule).
    pub(super) fn disturbed(&mut self) {
        self.timed = None;
    }

    /// The peer says that it waited so long with the acknowledgement that is looked at.
    pub(super) fn hear_peer_delay(&mut self, delay: Nanos) {
        self.peer_delay = delay;
    }

    /// What the peer waited with another answer is no part of the next one's round trip.
    #[inline]
    pub(super) fn forget_peer_delay(&mut self) {
        self.peer_delay = 0;
    }

    /// Everything before `end` was acknowledged; returns the round trip, if the timed packet is among it. What the peer waited
    /// before it answered is not the path's.
    #[inline]
    pub(super) fn acknowledged(&mut self, end: Psn, now: Nanos) -> Option<Nanos> {
        let (_, at) = self.timed.filter(|(psn, _)| psn.before(end))?;
        self.timed = None;
        let sample = now.saturating_sub(at);
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(sample), sample / 2),
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((7 * smoothed + sample) / 8);
            }
        }
        let path = sample.saturating_sub(std::mem::take(&mut self.peer_delay));
        self.uncounted = path.max(1);
        Some(path)
    }

    /// The round trip that was measured since the last call, if one was; of several the newest.
    #[inline]
    pub(super) fn take_uncounted(&mut self) -> Option<Nanos> {
        let newest = std::mem::take(&mut self.uncounted);
        (newest > 0).then_some(newest)
    }

    /// How long an answer may take; `None` where no round trip was seen yet.
    pub(super) fn base_rto(&self) -> Option<Nanos> {
        self.smoothed.map(|smoothed| (smoothed + 4 * self.variation).max(MIN_TIMEOUT_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_samples() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.base_rto(), None);
        rtt.sent(Psn::new(1), 0);
        rtt.sent(Psn::new(2), 500);
        assert_eq!(rtt.acknowledged(Psn::new(1), 900), None, "the timed packet is not among it");
        assert_eq!(
            (rtt.acknowledged(Psn::new(3), 1_000_000), rtt.take_uncounted()),
            (Some(1_000_000), Some(1_000_000))
        );
        assert_eq!(rtt.take_uncounted(), None, "it is counted once");
        assert_eq!(rtt.base_rto(), Some(3_000_000));
        for round in 0..100 {
            rtt.sent(Psn::new(10 + round), 0);
            rtt.acknowledged(Psn::new(11 + round), 10_000);
        }
        assert_eq!(rtt.base_rto(), Some(MIN_TIMEOUT_NS));
    }

    #[test]
    fn a_repetition_spoils_the_sample() {
        let mut rtt = Rtt::default();
        rtt.sent(Psn::new(1), 0);
        rtt.disturbed();
        assert_eq!(rtt.acknowledged(Psn::new(2), 10), None);
    }
}
