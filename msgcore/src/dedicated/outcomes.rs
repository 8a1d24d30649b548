//! The operations of the application's side: their names, which are made here, and their outcomes, which wait here to be
//! asked for.

use std::mem;

use roci_driver::Buffer;

use super::facts::LIMIT;
use super::rings::OperationEnd;
use crate::core::completion::Completion;
use crate::core::slab::{KeySource, Slab};
use crate::services::tag::completion_list::{CompletionList, ReportTo};
use crate::{Done, OpError, Request};

/// All operations that have a name.
pub(super) struct Outcomes {
    slots: Slab<OutcomeSlot>,
    buffered_bytes: usize,
    /// Eager sends that had left before the engine was asked to take them back, each with its end: it is asked again.
    again: Vec<(Request, Done)>,
    completions: CompletionList,
    /// An operation that is asked for by name has ended since the application was last answered whether one has.
    has_named_end: bool,
}

#[derive(Default)]
struct OutcomeSlot {
    outcome: Option<Result<Done, OpError>>,
    /// Of an eager send: it has left, and the engine can still be asked to take it back.
    has_left: bool,
    /// The engine was asked to take it back.
    is_cancelling: bool,
    report: ReportTo,
    /// Bytes of a buffered send that has not ended.
    buffered: usize,
}

/// What is to be done about an operation that is to be taken back.
pub(super) enum TakeBack {
    /// It is too late.
    Late,
    /// The engine is asked.
    Ask,
    /// The engine is asked, and gets the end of the send back, which it has reported.
    AskAgain(Done),
}

impl Default for Outcomes {
    fn default() -> Self {
        Self::named(KeySource::of_its_own(LIMIT))
    }
}

impl Outcomes {
    /// Operations with these names.
    pub(super) fn named(names: KeySource) -> Self {
        Self {
            slots: Slab::new(names),
            buffered_bytes: 0,
            again: Vec::new(),
            completions: CompletionList::default(),
            has_named_end: false,
        }
    }

    /// Names a new operation; `None` where there are too many.
    #[inline]
    pub(super) fn open(&mut self) -> Option<Request> {
        self.slots.insert(OutcomeSlot::default()).map(Request)
    }

    /// A send is buffered: until it ends so many bytes are. Right after it was opened: it has not ended yet.
    pub(super) fn note_buffered(&mut self, request: Request, bytes: usize) {
        if let Some(slot) = self.slots.get_mut(request.0) {
            slot.buffered = bytes;
            self.buffered_bytes += bytes;
        }
    }

    /// How many operations have names: their outcome is to come, or to be taken.
    #[inline]
    pub(super) fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of buffered sends that have not ended.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// The application will not ask for this one's outcome. Returns its memory where it has ended.
    pub(super) fn detach(&mut self, request: Request) -> Option<Buffer> {
        let slot = self.slots.get_mut(request.0)?;
        self.completions.note_taken(slot.report);
        slot.report = ReportTo::Nowhere;
        slot.outcome.as_ref()?;
        self.take(request)?.ok().map(|done| done.buffer)
    }

    /// The outcome of this one goes into the completion queue, with `context`; `false` where there is none of this name.
    pub(super) fn queue_completion(&mut self, request: Request, context: u64) -> bool {
        let Some(slot) = self.slots.get_mut(request.0) else { return false };
        let before = mem::replace(&mut slot.report, ReportTo::Queue);
        self.completions.note_queued(request, context, before);
        if !before.is_queue() && slot.outcome.is_some() {
            self.completions.push(request);
        }
        let slots = &self.slots;
        self.completions.compact(|request| slots.get(request.0).is_some_and(|slot| slot.report.is_queue()));
        true
    }

    /// Takes the next completion.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        while let Some(request) = self.completions.pop() {
            if request == Request::PART {
                return self.completions.take_part();
            }
            let context = self.completions.context_of(request);
            if self.slots.get(request.0).is_some_and(|slot| slot.report.is_queue())
                && let Some(outcome) = self.take(request)
            {
                return Some(Completion { context, outcome, is_last: true });
            }
        }
        None
    }

    /// Whether there is a completion to be taken.
    pub(super) fn is_completion_waiting(&mut self) -> bool {
        while let Some(request) = self.completions.first() {
            if request == Request::PART {
                return true;
            }
            if self.slots.get(request.0).is_some_and(|slot| slot.report.is_queue() && slot.outcome.is_some()) {
                return true;
            }
            // It was taken by name, or is under way again and will be there again.
            self.completions.pop();
        }
        false
    }

    /// Whether an operation that is asked for by name has ended since this was last asked. It may have been taken since.
    pub(super) fn take_named_end(&mut self) -> bool {
        mem::take(&mut self.has_named_end)
    }

    /// How many operations have outcomes that go into the completion queue, and were not taken.
    pub(super) fn completions_open(&self) -> usize {
        self.completions.open()
    }

    /// The engine is gone: what was to go into the completion queue, and will never be reported, ends like this.
    #[cold]
    pub(super) fn end_queued(&mut self, error: &OpError) {
        let is_orphan = |slot: &OutcomeSlot| slot.report.is_queue() && slot.outcome.is_none();
        let orphans: Vec<_> = self.slots.iter().filter(|(_, slot)| is_orphan(slot)).map(|(key, _)| key).collect();
        for key in orphans {
            let ended =
                OperationEnd { request: Request(key), outcome: Err(error.clone()), has_left: false, is_part: false };
            let memory = self.end(ended);
            assert!(memory.is_none(), "an error has no memory");
        }
    }

    /// An operation has ended. Returns its memory where it is detached.
    #[inline]
    pub(super) fn end(&mut self, ended: OperationEnd) -> Option<Buffer> {
        let OperationEnd { request, outcome, has_left, is_part } = ended;
        let slot = self.slots.get_mut(request.0)?;
        if is_part {
            self.completions.push_part(request, outcome);
            return None;
        }
        assert!(slot.outcome.is_none(), "an operation ends once");
        match outcome {
            Ok(done) if slot.is_cancelling && has_left => {
                self.again.push((request, done));
                return None;
            }
            outcome => slot.outcome = Some(outcome),
        }
        slot.has_left = has_left;
        self.buffered_bytes -= slot.buffered;
        slot.buffered = 0;
        match slot.report {
            ReportTo::ByName => {
                self.has_named_end = true;
                None
            }
            ReportTo::Nowhere => self.take(request)?.ok().map(|done| done.buffer),
            ReportTo::Queue => {
                self.completions.push(request);
                None
            }
        }
    }

    /// Returns an eager send that the engine is to be asked for again.
    #[inline]
    pub(super) fn next_again(&mut self) -> Option<(Request, Done)> {
        self.again.pop()
    }

    /// Takes the outcome of one that has ended; `None` while it has not.
    #[inline]
    pub(super) fn take(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        match self.slots.get(request.0) {
            None => return Some(Err(OpError::NoRequest)),
            Some(slot) => slot.outcome.as_ref()?,
        };
        let slot = self.slots.remove(request.0)?;
        self.completions.note_taken(slot.report);
        slot.outcome
    }

    /// An operation is to be taken back.
    pub(super) fn take_back(&mut self, request: Request) -> TakeBack {
        let Some(slot) = self.slots.get_mut(request.0) else { return TakeBack::Late };
        match slot.outcome.take() {
            // Once more does no harm: a receive may have found no memory to be taken back with.
            None => {
                slot.is_cancelling = true;
                TakeBack::Ask
            }
            Some(Ok(done)) if slot.has_left && !slot.is_cancelling => {
                slot.is_cancelling = true;
                TakeBack::AskAgain(done)
            }
            ended => {
                slot.outcome = ended;
                TakeBack::Late
            }
        }
    }

    /// The engine could not be asked: an operation that had ended has its end again.
    pub(super) fn restore(&mut self, request: Request, done: Done) {
        if let Some(slot) = self.slots.get_mut(request.0) {
            slot.outcome = Some(Ok(done));
            if slot.report.is_queue() {
                self.completions.push(request);
            }
        }
    }

    /// Forgets one that the engine will never report.
    pub(super) fn forget(&mut self, request: Request) {
        if let Some(slot) = self.slots.remove(request.0) {
            self.buffered_bytes -= slot.buffered;
            self.completions.note_taken(slot.report);
        }
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Arena;
    use roci_protocol::msg::Label;

    use super::*;

    fn done(len: usize) -> Done {
        let buffer = Arena::new(4096).expect("memory").buffer(len).expect("room");
        Done::new(buffer, len, 1.into(), Label::default())
    }

    fn good(request: Request, len: usize) -> OperationEnd {
        OperationEnd { request, outcome: Ok(done(len)), has_left: false, is_part: false }
    }

    fn bad(request: Request) -> OperationEnd {
        OperationEnd { request, outcome: Err(OpError::NobodyLeft), has_left: false, is_part: false }
    }

    #[test]
    fn an_outcome_is_kept_until_it_is_asked_for_and_given_once() {
        let mut outcomes = Outcomes::default();
        let (first, second) = (outcomes.open().expect("room"), outcomes.open().expect("room"));
        assert!(outcomes.take(first).is_none());
        assert!(outcomes.end(good(second, 5)).is_none());
        assert!(outcomes.end(bad(first)).is_none());
        assert_eq!(outcomes.take(second).expect("over").expect("good").len, 5);
        assert_eq!(outcomes.take(second).expect("given").expect_err("given"), OpError::NoRequest);
        assert_eq!(outcomes.take(first).expect("over").expect_err("failed"), OpError::NobodyLeft);
        let third = outcomes.open().expect("room");
        assert!(third != first && third != second, "a name is not used again");
        assert_eq!(outcomes.take(first).expect("given").expect_err("given"), OpError::NoRequest);
        assert!(outcomes.take(third).is_none());
    }

    #[test]
    fn what_is_detached_leaves_its_memory_and_buffered_bytes_count_until_the_end() {
        let mut outcomes = Outcomes::default();
        let (early, late) = (outcomes.open().expect("room"), outcomes.open().expect("room"));
        outcomes.note_buffered(early, 100);
        assert!(outcomes.detach(early).is_none());
        assert_eq!(outcomes.buffered_bytes(), 100);
        let buffer = outcomes.end(good(early, 7)).expect("it is forgotten");
        assert_eq!((buffer.len(), outcomes.buffered_bytes()), (7, 0));
        assert_eq!(outcomes.take(early).expect("gone").expect_err("gone"), OpError::NoRequest);
        assert!(outcomes.end(good(late, 9)).is_none());
        assert_eq!(outcomes.detach(late).expect("its memory").len(), 9);
        assert_eq!(outcomes.take(late).expect("gone").expect_err("gone"), OpError::NoRequest);
    }

    #[test]
    fn an_eager_send_that_has_left_is_asked_for_again_once() {
        let left = |request| OperationEnd { request, outcome: Ok(done(3)), has_left: true, is_part: false };
        let mut outcomes = Outcomes::default();
        let (before, after) = (outcomes.open().expect("room"), outcomes.open().expect("room"));
        // Its end was known here before it is taken back, and is on its way when it is.
        assert!(outcomes.end(left(before)).is_none());
        assert!(matches!(outcomes.take_back(before), TakeBack::AskAgain(_)));
        assert!(outcomes.take(before).is_none(), "it is under way again");
        assert!(matches!(outcomes.take_back(after), TakeBack::Ask));
        assert!(outcomes.end(left(after)).is_none());
        assert_eq!(outcomes.next_again().expect("it had left").0, after);
        assert!(outcomes.next_again().is_none());
        for request in [before, after] {
            assert!(matches!(outcomes.take_back(request), TakeBack::Ask), "and never with its end again");
            assert!(outcomes.end(good(request, 3)).is_none());
            assert!(matches!(outcomes.take_back(request), TakeBack::Late));
            assert!(outcomes.take(request).expect("over").is_ok());
        }
        assert!(matches!(outcomes.take_back(before), TakeBack::Late));
    }

    #[test]
    fn a_message_of_a_multi_receive_is_a_completion_that_waits() {
        let mut outcomes = Outcomes::default();
        let multi = outcomes.open().expect("room");
        assert!(outcomes.queue_completion(multi, 7));
        assert!(!outcomes.is_completion_waiting());
        assert!(outcomes.end(OperationEnd { is_part: true, ..good(multi, 5) }).is_none());
        assert!(outcomes.is_completion_waiting() && outcomes.is_completion_waiting(), "it is only looked at");
        assert!(outcomes.end(good(multi, 0)).is_none());
        for is_last in [false, true] {
            assert!(outcomes.is_completion_waiting());
            let completion = outcomes.next_completion().expect("it waits");
            assert_eq!((completion.context, completion.is_last), (7, is_last));
        }
        assert!(!outcomes.is_completion_waiting() && outcomes.completions_open() == 0);
    }

    #[test]
    fn there_are_so_many_and_one_that_was_asked_for_makes_room() {
        let mut outcomes = Outcomes::default();
        let all: Vec<_> = (0..LIMIT).map(|_| outcomes.open().expect("room")).collect();
        assert!(outcomes.open().is_none());
        assert!(outcomes.end(bad(all[7])).is_none());
        assert!(outcomes.open().is_none(), "its outcome still waits");
        assert!(outcomes.take(all[7]).is_some());
        outcomes.forget(all[8]);
        outcomes.forget(all[8]);
        assert!(outcomes.open().is_some() && outcomes.open().is_some());
        assert!(outcomes.open().is_none());
    }
}
