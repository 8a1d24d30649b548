//! When a requester has something to do if nothing happens before.

use crate::Nanos;

/// Two times that a requester waits for. A third one, that of an RNR NAK, goes before the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendTimers {
    /// An acknowledgement is overdue then.
    ack: Option<Nanos>,
    /// Pacing holds a packet back until then.
    paced_until: Option<Nanos>,
}

impl SendTimers {
    /// Returns which comes first, where the peer is not ready until `rnr_until`.
    pub(super) fn first(&self, rnr_until: Option<Nanos>) -> Option<Nanos> {
        match (rnr_until.or(self.ack), self.paced_until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Waits for an acknowledgement until `at`, or for none.
    #[inline]
    pub(super) fn set_ack(&mut self, at: Option<Nanos>) {
        self.ack = at;
    }

    /// Whether an acknowledgement is waited for.
    #[inline]
    pub(super) const fn awaits_ack(&self) -> bool {
        self.ack.is_some()
    }

    /// Whether an acknowledgement is overdue.
    pub(super) fn is_overdue(&self, now: Nanos) -> bool {
        self.ack.is_some_and(|at| at <= now)
    }

    /// Holds a packet back until `at`.
    #[inline]
    pub(super) fn pace(&mut self, at: Nanos) {
        self.paced_until = Some(at);
    }

    /// Whether pacing holds a packet back.
    #[inline]
    pub(super) const fn is_paced(&self) -> bool {
        self.paced_until.is_some()
    }

    /// Holds nothing back any more.
    #[inline]
    pub(super) fn release(&mut self) {
        self.paced_until = None;
    }

    /// Waits for nothing.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
