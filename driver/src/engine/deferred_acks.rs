//! Acknowledgements of messages without AckReq: they wait for others, and for some time.

use roci_protocol::Nanos;

use crate::handles::QueuePair;
use crate::qp::ConnectedQp;

/// How long they wait: far below the shortest timeout of a sender (250 us), and longer than a busy sender goes without asking (50 us).
const WAIT_NS: Nanos = 64_000;
/// Polls in a row that bring nothing after which no company is to be expected: more than pass between two messages of a ping-pong.
const IDLE_POLLS: u32 = 64;

/// The queue pairs that owe one, each of them once.
#[derive(Default)]
pub(super) struct DeferredAcks {
    qps: Vec<QueuePair>,
    /// When the first of them was added.
    since: Nanos,
    /// Polls in a row that have brought nothing.
    idle: u32,
}

impl DeferredAcks {
    /// Notes that a queue pair owes one.
    #[inline]
    pub(super) fn defer(&mut self, slot: &mut ConnectedQp, now: Nanos) {
        if !slot.attendance.defer() {
            return;
        }
        if self.qps.is_empty() {
            self.since = now;
        }
        self.qps.push(slot.qp);
    }

    /// Whether they have waited long enough.
    #[inline]
    pub(super) fn are_due(&self, now: Nanos) -> bool {
        !self.qps.is_empty() && now.saturating_sub(self.since) >= WAIT_NS
    }

    /// Counts a poll that has received so many frames. Returns whether any wait, and no company is to be expected: the application
    /// may be about to compute, and to poll no more.
    #[inline]
    pub(super) fn are_alone(&mut self, frames: usize) -> bool {
        self.idle = if frames > 0 { 0 } else { self.idle.saturating_add(1) };
        self.idle >= IDLE_POLLS && !self.qps.is_empty()
    }

    /// Takes all of them; [`DeferredAcks::keep`] wants the list back.
    #[inline]
    pub(super) fn take(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.qps)
    }

    /// Keeps the memory of a list that is done with.
    pub(super) fn keep(&mut self, qps: Vec<QueuePair>) {
        debug_assert!(qps.is_empty() && self.qps.is_empty(), "all were looked at, and none was added");
        self.qps = qps;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.qps.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = QueuePair> {
        self.qps.iter().copied()
    }
}
