//! The window of sending: which PSNs are in flight, and how many may be.

use crate::rc::recovery::SPAN;
use crate::rc::{Config, Dialect};
use crate::{Nanos, Psn};

/// In a long message an acknowledgement is asked for every so many packets, a power of two; more often where the
/// window is small.
const ACK_EVERY: u32 = 32;
/// In any case after so long: half of the shortest timeout, so that a sender that is slowed down hears before it comes.
const ACK_EVERY_NS: Nanos = 125_000;
/// Acknowledgements that a window is worth, so that they move it on smoothly.
const ACKS_PER_WINDOW: u32 = 4;

/// The packets that were sent and are not acknowledged: `una` never passes `sent`.
#[derive(Clone, Copy, Debug)]
pub(in crate::rc) struct SendWindow {
    una: Psn,
    sent: Psn,
    /// Packets that may be in flight, whatever congestion control allows; with selective repeat none that could not be kept
    /// or reported.
    most: u32,
    /// When an acknowledgement was asked for last.
    asked_at: Nanos,
}

impl SendWindow {
    pub(super) fn new(config: &Config) -> Self {
        assert!(config.window > 0 && config.window < 1 << 23, "IBTA allows 2^23 packets in flight");
        let most = if config.dialect == Dialect::Rocinante { config.window.min(SPAN) } else { config.window };
        Self { una: config.sq_psn, sent: config.sq_psn, most, asked_at: 0 }
    }

    /// The oldest PSN not acknowledged.
    #[inline]
    pub(in crate::rc) const fn una(&self) -> Psn {
        self.una
    }

    /// The first PSN never sent.
    #[inline]
    pub(in crate::rc) const fn sent(&self) -> Psn {
        self.sent
    }

    /// Whether `psn` was sent and is not acknowledged.
    #[inline]
    pub(in crate::rc) fn contains(&self, psn: Psn) -> bool {
        psn.before(self.sent) && !psn.before(self.una)
    }

    /// Whether everything that was sent is acknowledged.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.una == self.sent
    }

    /// How many PSNs lie between the oldest that is not acknowledged and `psn`.
    #[inline]
    pub(super) fn distance_to(&self, psn: Psn) -> u32 {
        psn.since(self.una) as u32
    }

    /// Packets that may be in flight, where congestion control allows so many.
    #[inline]
    pub(super) fn size(&self, allowed: u32) -> u32 {
        self.most.min(allowed)
    }

    /// Moves on to `una`, the oldest packet that is not acknowledged now.
    #[inline]
    pub(super) fn acknowledge(&mut self, una: Psn) {
        assert!(!una.before(self.una), "what was acknowledged stays acknowledged");
        debug_assert!(!self.sent.before(una), "what was never sent is not acknowledged");
        self.una = una;
    }

    /// Everything before `end` has been sent.
    #[inline]
    pub(super) fn send_to(&mut self, end: Psn) {
        debug_assert!(!end.before(self.sent), "what was sent stays sent");
        self.sent = end;
    }

    /// Begins anew at `psn`, with nothing in flight.
    pub(super) fn empty_at(&mut self, psn: Psn) {
        self.una = psn;
        self.sent = psn;
    }

    /// An acknowledgement is asked for.
    #[inline]
    pub(super) fn ask(&mut self, now: Nanos) {
        self.asked_at = now;
    }

    /// Whether a sender that may have `size` packets in flight should ask for an acknowledgement of `psn`, though it waits for none:
    /// before it has to wait, and now and then.
    #[inline]
    pub(super) fn wants_news(&self, psn: Psn, size: u32, now: Nanos) -> bool {
        let is_filling = (self.distance_to(psn) + 1) * ACKS_PER_WINDOW >= size;
        is_filling || now.saturating_sub(self.asked_at) >= ACK_EVERY_NS
    }

    /// Whether an acknowledgement of `psn` is due in the middle of a message, in a window of `size` packets.
    pub(super) fn asks_at(&self, psn: Psn, size: u32, now: Nanos) -> bool {
        let is_full = self.distance_to(psn) + 1 >= size;
        let is_periodic = (psn.get() + 1).trailing_zeros() >= ack_interval(size);
        let is_late = now.saturating_sub(self.asked_at) >= ACK_EVERY_NS;
        is_periodic || is_full || is_late
    }
}

/// The power of two of packets after which an acknowledgement is asked for.
#[inline]
fn ack_interval(window: u32) -> u32 {
    (window / ACKS_PER_WINDOW).clamp(1, ACK_EVERY).ilog2()
}
