//! Acknowledgements of messages without AckReq: they wait for others, and for some time.

use roci_protocol::Nanos;

use crate::handles::QueuePair;
use crate::qp::ConnectedQp;

/// How long they wait: far below the shortest timeout of a sender (250 us), and longer than a busy sender goes without asking (50 us).
const WAIT_NS: Nanos = 64_000;

/// The queue pairs that owe one, each of them once.
#[derive(Default)]
pub(super) struct DeferredAcks {
    qps: Vec<QueuePair>,
    /// When the first of them was added.
    since: Nanos,
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

    /// Takes all of them, once they have waited long enough; [`DeferredAcks::keep`] wants the list back.
    #[inline]
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Vec<QueuePair>> {
        let is_due = !self.qps.is_empty() && now.saturating_sub(self.since) >= WAIT_NS;
        is_due.then(|| std::mem::take(&mut self.qps))
    }

    /// Keeps the memory of a list that is done with.
    pub(super) fn keep(&mut self, qps: Vec<QueuePair>) {
        debug_assert!(qps.is_empty() && self.qps.is_empty(), "all were looked at, and none was added");
        self.qps = qps;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = QueuePair> {
        self.qps.iter().copied()
    }
}
