//! Acknowledgements of messages without AckReq: they wait for others, and for some time.

use roci_protocol::Nanos;

use crate::handles::QueuePair;
use crate::qp::ConnectedQp;

/// How long they wait: below the shortest timeout of a sender (250 us), and longer than a busy sender goes without asking (125 us).
const WAIT_NS: Nanos = 160_000;
/// Polls in a row that bring nothing after which no company is to be expected: more than pass between two messages of a ping-pong.
const IDLE_POLLS: u32 = 64;

/// An acknowledgement is due at `now` that has been owed since then, or before.
#[inline]
pub(super) const fn due_since(now: Nanos) -> Nanos {
    now.saturating_sub(WAIT_NS)
}

/// The queue pairs that owe one, each of them once.
#[derive(Default)]
pub(super) struct DeferredAcks {
    qps: Vec<QueuePair>,
    /// None of them waits for longer than since then.
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

    /// Whether one may have waited long enough.
    #[inline]
    pub(super) fn are_due(&self, now: Nanos) -> bool {
        !self.qps.is_empty() && self.since <= due_since(now)
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

    /// Keeps those that are not due, of which none has been owed since before `since`; and the memory of the list.
    pub(super) fn keep(&mut self, qps: Vec<QueuePair>, since: Nanos) {
        debug_assert!(self.qps.is_empty(), "all were looked at, and none was added");
        (self.qps, self.since) = (qps, since);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.qps.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = QueuePair> {
        self.qps.iter().copied()
    }
}
