//! Who is looked at next: queue pairs that are listed for the end of a poll, and those whose time comes.

use std::collections::VecDeque;

use roci_protocol::Nanos;

use super::deferred_acks::DeferredAcks;
use super::doorbell::Doorbell;
use super::port_turns::PortTurns;
use super::wheel::{Wheel, WheelEntry};
use crate::handles::QueuePair;
use crate::qp::ConnectedQp;

/// Polls that brought frames, of whomever, after which no acknowledgement waits any longer.
const ACK_PATIENCE: u32 = 8;
/// Ticks without a poll after which the next one comes late: a tenth of a millisecond, of which a look at everything is a hundredth.
const LATE: u64 = 32;

/// When queue pairs are looked at. One is listed at most once, and its slot says that it is.
pub(super) struct Schedule {
    wheel: Wheel,
    /// Whose time has just come; kept for its memory.
    due: Vec<WheelEntry>,
    /// Queue pairs that owe an answer, that the link held up, or whose turn was over; the next one comes first.
    listed: VecDeque<QueuePair>,
    /// One of them wants more than an acknowledgement that may wait.
    is_urgent: bool,
    /// Polls since acknowledgements of any size were sent.
    busy_polls: u32,
    /// A poll has come late, and this has not been asked for since.
    is_late: bool,
    /// Messages of one packet go past the queue.
    pub(super) has_fast_path: bool,
    /// Sends that the device was not notified of.
    pub(super) doorbell: Doorbell,
    /// Queue pairs that owe an acknowledgement that can wait.
    pub(super) deferred: DeferredAcks,
    /// Which ports a poll looks at.
    pub(super) port_turns: PortTurns,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self {
            wheel: Wheel::new(),
            due: Vec::new(),
            listed: VecDeque::new(),
            is_urgent: false,
            busy_polls: 0,
            is_late: false,
            has_fast_path: true,
            doorbell: Doorbell::default(),
            deferred: DeferredAcks::default(),
            port_turns: PortTurns::default(),
        }
    }

    /// Looks at `qp` at `at`, or at the next tick where that has passed.
    #[inline]
    pub(super) fn wake(&mut self, qp: QueuePair, at: Nanos) {
        self.wheel.arm(qp.0, at);
    }

    /// Whether a tick has passed since the last look.
    #[inline]
    pub(super) const fn has_ticked(&self, now: Nanos) -> bool {
        self.wheel.has_ticked(now)
    }

    /// A tick has passed since the last look. Who polls seldom cannot leave to one of the next polls what those who poll often do.
    pub(super) fn note_tick(&mut self, now: Nanos) {
        if self.wheel.ticks_until(now) >= LATE {
            self.is_late = true;
            self.port_turns.look_at_all();
        }
    }

    /// Whether a poll has come late since this was last asked.
    #[inline]
    pub(super) fn take_late(&mut self) -> bool {
        let is_late = self.is_late;
        if is_late {
            self.is_late = false;
        }
        is_late
    }

    /// Takes everything whose time has come; [`Schedule::keep`] wants the list back. None where nothing is due, as it mostly is.
    #[inline]
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Vec<WheelEntry>> {
        if self.wheel.skip_to(now) {
            return None;
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, &mut due);
        Some(due)
    }

    /// Keeps the memory of a list that is done with.
    #[inline]
    pub(super) fn keep(&mut self, due: Vec<WheelEntry>) {
        debug_assert!(due.is_empty(), "all whose time has come were looked at");
        self.due = due;
    }

    /// Counts a poll that has received so many frames. Returns whether acknowledgements may wait for company.
    #[inline]
    pub(super) fn polled(&mut self, frames: usize) -> bool {
        let busy_polls = self.busy_polls + 1;
        let may_wait = frames > 0 && busy_polls < ACK_PATIENCE;
        self.busy_polls = if may_wait { busy_polls } else { 0 };
        may_wait
    }

    /// Whether a listed queue pair is to be looked after in this poll.
    #[inline]
    pub(super) fn is_due(&self, may_wait: bool) -> bool {
        !self.listed.is_empty() && (self.is_urgent || !may_wait)
    }

    /// Notes that a queue pair must be looked after at the end of a poll.
    #[inline]
    pub(super) fn list(&mut self, slot: &mut ConnectedQp) {
        if slot.attendance.list() {
            self.listed.push_back(slot.qp);
        }
    }

    /// Notes whether what is listed cannot wait.
    #[inline]
    pub(super) fn urge(&mut self, is_urgent: bool) {
        self.is_urgent |= is_urgent;
    }

    /// Begins to look after all that are listed: nothing is known to be urgent.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.is_urgent = false;
    }

    /// The listed queue pair at this place.
    #[inline]
    pub(super) fn at(&self, index: usize) -> Option<QueuePair> {
        self.listed.get(index).copied()
    }

    /// Takes the queue pair at this place out; the last one takes its place.
    #[inline]
    pub(super) fn remove(&mut self, index: usize) {
        self.listed.swap_remove_back(index);
    }

    pub(super) fn len(&self) -> usize {
        self.listed.len()
    }

    /// Takes the next one out, whose turn it is.
    pub(super) fn take_next(&mut self) -> Option<QueuePair> {
        self.listed.pop_front()
    }

    /// Puts back one whose turn is over.
    pub(super) fn put_back(&mut self, qp: QueuePair) {
        self.listed.push_back(qp);
    }

    /// Begins with the queue pair at this place the next time.
    pub(super) fn continue_at(&mut self, index: usize) {
        self.listed.rotate_left(index);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = QueuePair> {
        self.listed.iter().copied()
    }
}
