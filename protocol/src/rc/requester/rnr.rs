//! The wait for a peer that was not ready to receive (IBTA 9.7.5.2.8: RNR NAK).

use crate::rc::Config;
use crate::{Nanos, Psn};

/// What the last RNR NAK asked for, and how many retries that has cost.
#[derive(Clone, Copy, Debug)]
pub(in crate::rc) struct RnrWait {
    until: Option<Nanos>,
    /// The packet that the peer was not ready for.
    psn: Psn,
    retries: u32,
}

impl RnrWait {
    pub(super) const fn new(config: &Config) -> Self {
        Self { until: None, psn: config.sq_psn, retries: 0 }
    }

    /// When the wait is over, if there is one.
    #[inline]
    pub(super) const fn until(&self) -> Option<Nanos> {
        self.until
    }

    /// Whether an RNR NAK's time has not passed.
    #[inline]
    pub(in crate::rc) const fn is_waiting(&self) -> bool {
        self.until.is_some()
    }

    /// Whether `psn` waits until an RNR NAK's time has passed.
    pub(in crate::rc) fn holds_back(&self, psn: Psn) -> bool {
        self.is_waiting() && self.psn == psn
    }

    /// Spends one retry and waits until `until`; `false` where none is left.
    pub(in crate::rc) fn spend(&mut self, psn: Psn, until: Nanos, config: &Config) -> bool {
        self.retries += 1;
        self.psn = psn;
        self.until = Some(until);
        config.rnr_retry_limit.is_none_or(|limit| self.retries <= limit)
    }

    /// Makes the retries whole again: the peer made progress.
    #[inline]
    pub(super) fn restore(&mut self) {
        self.retries = 0;
    }

    /// Ends the wait for a packet before `una`: it is acknowledged.
    #[inline]
    pub(super) fn end_before(&mut self, una: Psn) {
        if self.psn.before(una) {
            self.end();
        }
    }

    /// Ends the wait.
    #[inline]
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// Ends the wait where its time has come, and returns the packet that may leave again.
    pub(super) fn take_expired(&mut self, now: Nanos) -> Option<Psn> {
        self.until.take_if(|until| *until <= now).map(|_| self.psn)
    }
}
