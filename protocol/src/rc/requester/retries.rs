//! What a silent peer is given: retries, and timeouts that become longer.

use crate::rc::Config;
use crate::{Nanos, Psn};

/// The retries of a requester, as its peer answers or stays silent. It probes only after a timeout.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rc) struct Retries {
    spent: u32,
    /// Timeouts since a packet of the peer arrived.
    backoff: u32,
    /// After a timeout: only the oldest packet goes out until the peer answers.
    probing: bool,
}

impl Retries {
    #[inline]
    pub(in crate::rc) const fn is_probing(&self) -> bool {
        self.probing
    }

    /// An answer of the peer arrived, with progress or without: a probe did its work.
    #[inline]
    pub(in crate::rc) fn on_answer(&mut self) {
        self.probing = false;
    }

    /// Makes everything whole again: the peer made progress, or an RNR NAK says that it is there.
    #[inline]
    pub(in crate::rc) fn restore(&mut self) {
        self.spent = 0;
        self.backoff = 0;
        self.probing = false;
    }

    /// Spends one retry; `false` where none is left.
    pub(in crate::rc) fn spend(&mut self, config: &Config) -> bool {
        self.spent += 1;
        self.spent <= config.retry_limit
    }

    /// A timeout has passed: the peer is probed, and the next timeout is longer.
    pub(super) fn on_silence(&mut self) {
        self.backoff += 1;
        self.probing = true;
    }

    /// Whether a timeout has passed since a packet of the peer arrived.
    #[inline]
    pub(super) const fn is_silent(&self) -> bool {
        self.backoff > 0
    }

    /// The timeout that follows `first` after the silence so far, where `una` is the oldest packet not acknowledged.
    pub(super) fn timeout(&self, first: Nanos, una: Psn, config: &Config) -> Nanos {
        let doubled = first.saturating_mul(1 << self.backoff.min(20));
        let timeout = doubled.min(config.ack_timeout_max_ns.max(config.ack_timeout_ns));
        if self.backoff == 0 { timeout } else { timeout + self.jitter(timeout, una) }
    }

    /// Up to a quarter more, by chance (IBTA 9.7.6.1.3 allows up to four times the time): timeouts of one length fall into
    /// step with whatever else is periodic, such as a path that fails now and then.
    fn jitter(&self, timeout: Nanos, una: Psn) -> Nanos {
        const GOLDEN: u32 = 0x9e37_79b9;
        let dice = (una.get() ^ self.spent << 24 ^ self.backoff << 16).wrapping_mul(GOLDEN) >> 24;
        (timeout >> 10) * Nanos::from(dice)
    }

    /// Asserts what holds between any two calls.
    pub(in crate::rc) fn check(&self) {
        assert!(!self.probing || self.is_silent(), "a peer is probed that was not silent");
    }
}
