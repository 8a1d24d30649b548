//! All requests of a worker: each is under way, or over and not asked for yet.

mod pieces;
mod slot;

use std::collections::VecDeque;
use std::mem;

use roci_protocol::msg::Label;

use slot::RequestSlot;

use super::completion_list::{CompletionList, ReportTo};
use super::matching::Encounter;
use super::operation::TagOperation;
use crate::core::completion::{Completion, Done, OpError};
use crate::core::peer::PeerId;
use crate::core::request::Request;
use crate::core::slab::{KeySource, NamedValues, Slab};

/// A message that a multi-receive has taken.
#[derive(Debug)]
struct MultiPiece {
    /// Which.
    of: Request,
    operation: TagOperation,
}

/// All requests of a worker.
pub(crate) struct Requests {
    slots: NamedValues<RequestSlot>,
    /// Makes their names; none where the application's side does, on another thread.
    names: Option<KeySource>,
    buffered_bytes: usize,
    /// Those that have ended, in that order; `None` where the application asks for each by name.
    ended: Option<VecDeque<Request>>,
    completions: CompletionList,
    /// Messages that multi-receives have taken, and that are under way, under names of their own.
    pieces: Slab<MultiPiece>,
    /// Those that have ended, where the application is on another thread: [`Request::PART`] stands for each in `ended`.
    parts: VecDeque<(Request, Result<Done, OpError>)>,
}

/// Requests that a worker may have under way.
pub(crate) const LIMIT: usize = 1 << 20;

impl Default for Requests {
    fn default() -> Self {
        Self::of(KeySource::of_its_own(LIMIT))
    }
}

impl Requests {
    /// Requests whose names are the same in each run, and none of those with another number.
    pub(crate) fn numbered(source: u32) -> Self {
        Self::of(KeySource::numbered(source, LIMIT))
    }

    fn of(names: KeySource) -> Self {
        Self {
            slots: NamedValues::default(),
            pieces: Slab::new(names.handed_on(Request::PIECES)),
            parts: VecDeque::new(),
            names: Some(names),
            buffered_bytes: 0,
            ended: None,
            completions: CompletionList::default(),
        }
    }

    /// The names that the application's side makes in place of this one: see [`Requests::serve_another_thread`].
    pub(crate) fn names_for_another_thread(&self, limit: usize) -> KeySource {
        assert!(self.slots.len() == 0, "no request has been named yet");
        self.names.as_ref().expect("this side still makes the names").handed_on(limit)
    }

    /// From here on requests have names that the application's side makes, and [`Requests::next_ended`] says what ends.
    pub(crate) fn serve_another_thread(&mut self) {
        assert!(self.slots.len() == 0, "no request has been named yet");
        self.names = None;
        self.ended.get_or_insert_default();
    }

    /// Makes a name for a request; `None` where too many are under way.
    #[inline]
    pub(crate) fn mint(&mut self) -> Option<Request> {
        self.names.as_mut().expect("this side makes the names").mint().map(Request)
    }

    /// Takes a name back that came to nothing.
    pub(crate) fn release(&mut self, request: Request) {
        if let Some(names) = &mut self.names {
            names.release(request.0);
        }
    }

    /// Whether none is under way, or over and not asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// A request of this name begins, as the operation that `make` returns.
    #[inline]
    pub(crate) fn open(&mut self, request: Request, make: impl FnOnce() -> TagOperation) {
        self.slots.insert(request.0, || RequestSlot::new(make(), false));
    }

    /// An eager send of this name begins, and is over, with the end that `done` makes: its vbuf has left, and the peer can still be
    /// asked to give it back.
    #[inline]
    pub(crate) fn open_left(&mut self, request: Request, done: impl FnOnce() -> Done) {
        self.slots.insert(request.0, || RequestSlot::new(TagOperation::Ended(Ok(done())), true));
        if let Some(ended) = &mut self.ended {
            ended.push_back(request);
        }
    }

    /// An eager send whose end was reported, with this outcome, is to be taken back: it is as if it had not been reported.
    pub(crate) fn reopen_eager(&mut self, request: Request, done: Done) {
        self.slots.insert(request.0, || RequestSlot::new(TagOperation::Ended(Ok(done)), true));
    }

    /// A request comes to nothing, as if it had not begun; its name stays.
    pub(crate) fn forget(&mut self, request: Request) {
        self.slots.remove(request.0);
    }

    fn remove(&mut self, request: Request) -> Option<RequestSlot> {
        let slot = self.slots.remove(request.0)?;
        self.release(request);
        Some(slot)
    }

    #[inline]
    pub(crate) fn get(&self, request: Request) -> Option<&TagOperation> {
        match self.slots.get(request.0) {
            Some(slot) => Some(&slot.operation),
            None => self.piece(request),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, request: Request) -> Option<&mut TagOperation> {
        match self.slots.get_mut(request.0) {
            Some(slot) => Some(&mut slot.operation),
            None => piece_mut(&mut self.pieces, request),
        }
    }

    /// Gives a message to a receive that waits with room which is long enough for it; every other declines.
    #[inline]
    pub(crate) fn receive_whole(
        &mut self,
        request: Request,
        (from, label): (PeerId, Label),
        payload: &[u8],
    ) -> Encounter {
        let len = payload.len();
        let Some(slot) = self.slots.get_mut(request.0) else { return Encounter::Declined };
        let TagOperation::Waiting { buffer, .. } = &mut slot.operation else {
            return self.receive_part(request, (from, label), payload);
        };
        let Some(mut buffer) = buffer.take_if(|buffer| buffer.len() >= len) else { return Encounter::Declined };
        buffer.copy_in(0, payload);
        slot.operation = TagOperation::Ended(Ok(Done::new(buffer, len, from, label)));
        if slot.report != ReportTo::ByName || self.ended.is_some() {
            self.settle(request);
        }
        Encounter::Over
    }

    /// Replaces what is under way and returns what was.
    #[inline]
    pub(crate) fn replace(&mut self, request: Request, operation: TagOperation) -> Option<TagOperation> {
        self.get_mut(request).map(|slot| mem::replace(slot, operation))
    }

    /// Ends a request.
    #[inline]
    pub(crate) fn end(&mut self, request: Request, outcome: Result<Done, OpError>) {
        if let Some(operation) = self.get_mut(request) {
            *operation = TagOperation::Ended(outcome);
        }
        self.settle(request);
    }

    /// The application will not ask for this request's outcome: it is forgotten when it ends.
    pub(crate) fn detach(&mut self, request: Request) {
        if let Some(slot) = self.slots.get_mut(request.0) {
            self.completions.note_taken(slot.report);
            slot.report = ReportTo::Nowhere;
        }
        self.settle(request);
    }

    /// The outcome of this request goes into the completion queue, with `context`; `false` where there is none of this name.
    pub(crate) fn queue_completion(&mut self, request: Request, context: u64) -> bool {
        let Some(slot) = self.slots.get_mut(request.0) else { return false };
        let before = mem::replace(&mut slot.report, ReportTo::Queue);
        self.completions.note_queued(request, context, before);
        if !before.is_queue() {
            self.settle(request);
        }
        let slots = &self.slots;
        self.completions.compact(|request| slots.get(request.0).is_some_and(|slot| slot.report.is_queue()));
        true
    }

    /// Takes the next completion, with the name of what has ended.
    #[inline]
    pub(crate) fn next_completion(&mut self) -> Option<(Request, Completion)> {
        while let Some(request) = self.completions.pop() {
            if request == Request::PART {
                return self.completions.take_part().map(|completion| (request, completion));
            }
            let context = self.completions.context_of(request);
            if self.is_queued(request)
                && let Some(outcome) = self.close(request)
            {
                return Some((request, Completion { context, outcome, is_last: true }));
            }
        }
        None
    }

    /// Whether its outcome goes into the completion queue.
    pub(crate) fn is_queued(&self, request: Request) -> bool {
        self.slots.get(request.0).is_some_and(|slot| slot.report.is_queue())
    }

    /// How many requests have outcomes that go into the completion queue, and were not taken.
    pub(crate) fn completions_open(&self) -> usize {
        self.completions.open()
    }

    /// Its outcome is asked for after all; `false` where it is being taken back.
    pub(crate) fn hold(&mut self, request: Request) -> bool {
        let Some(slot) = self.slots.get_mut(request.0) else { return false };
        self.completions.note_taken(slot.report);
        slot.report = ReportTo::ByName;
        !slot.is_cancelling
    }

    /// A send is buffered: until it ends so many bytes are.
    pub(crate) fn note_buffered(&mut self, request: Request, bytes: usize) {
        let Some(slot) = self.slots.get_mut(request.0) else { return };
        if !matches!(slot.operation, TagOperation::Ended(_)) {
            slot.buffered = bytes;
            self.buffered_bytes += bytes;
        }
    }

    /// Bytes of buffered sends that have not ended.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Sees to a request that may have ended: it is forgotten where it is detached, and reported where the application is on
    /// another thread.
    #[inline]
    pub(crate) fn settle(&mut self, request: Request) {
        let Some(slot) = self.slots.get_mut(request.0) else { return self.settle_piece(request) };
        if !matches!(slot.operation, TagOperation::Ended(_)) {
            return;
        }
        self.buffered_bytes -= mem::take(&mut slot.buffered);
        match slot.report {
            ReportTo::Nowhere => drop(self.remove(request)),
            ReportTo::Queue => self.completions.push(request),
            ReportTo::ByName => {
                if let Some(ended) = &mut self.ended {
                    ended.push_back(request);
                }
            }
        }
    }

    /// The next request that has ended. It may have been closed meanwhile, be under way
    /// again because it is being cancelled, or be named twice; [`Request::PART`] stands for a message that [`Requests::next_part`]
    /// takes.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| !ended.is_empty())
    }

    /// Returns the next one that has ended.
    pub(crate) fn next_ended(&mut self) -> Option<Request> {
        self.ended.as_mut()?.pop_front()
    }

    /// Ends an eager send: its vbuf has left, and the peer can still be asked to give it back.
    #[inline]
    pub(crate) fn end_eager(&mut self, request: Request, done: Done) {
        if let Some(slot) = self.slots.get_mut(request.0) {
            slot.has_left = true;
            slot.operation = TagOperation::Ended(Ok(done));
        }
        self.settle(request);
    }

    /// Whether a message of this send has left, and could be taken back.
    pub(crate) fn has_left(&self, request: Request) -> bool {
        self.slots.get(request.0).is_some_and(|slot| slot.has_left)
    }

    /// The same, for the last time: it is asked for once.
    pub(crate) fn take_left(&mut self, request: Request) -> bool {
        self.slots.get_mut(request.0).is_some_and(|slot| mem::take(&mut slot.has_left))
    }

    /// The peer is asked to give it back; `false` where it was asked before.
    pub(crate) fn start_cancelling(&mut self, request: Request) -> bool {
        let slot = self.slots.get_mut(request.0);
        slot.is_some_and(|slot| !mem::replace(&mut slot.is_cancelling, true))
    }

    /// The peer has answered; `false` where it was not asked.
    pub(crate) fn stop_cancelling(&mut self, request: Request) -> bool {
        let slot = self.slots.get_mut(request.0);
        slot.is_some_and(|slot| mem::take(&mut slot.is_cancelling))
    }

    /// Takes the outcome of a request that is over; `None` while it is not.
    #[inline]
    pub(crate) fn close(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        self.is_over(request).then(|| self.close_over(request))
    }

    /// Whether a request has an outcome that can be taken, which one that there is not has, too.
    #[inline]
    pub(crate) fn is_over(&self, request: Request) -> bool {
        self.slots.get(request.0).is_none_or(|slot| matches!(slot.operation, TagOperation::Ended(_)))
    }

    /// Takes the outcome of a request that [is over](Requests::is_over).
    #[inline]
    pub(crate) fn close_over(&mut self, request: Request) -> Result<Done, OpError> {
        let Some(slot) = self.slots.get_mut(request.0) else { return Err(OpError::NoRequest) };
        let TagOperation::Ended(outcome) = &mut slot.operation else {
            unreachable!("the caller has seen that it is over")
        };
        self.completions.note_taken(slot.report);
        if let Some(names) = &mut self.names {
            names.release(request.0);
        }
        let outcome = mem::replace(outcome, Err(OpError::NoRequest));
        self.slots.forget(request.0);
        outcome
    }

    /// The requests that cannot go on without `rank`.
    pub(crate) fn depending_on(&self, rank: PeerId) -> Vec<Request> {
        self.select(|operation| operation.depends_on() == Some(rank))
    }

    /// The sends to peers that have not ended.
    pub(crate) fn sends(&self, oneself: PeerId) -> Vec<Request> {
        self.select(|operation| operation.is_send() && !operation.is_local(oneself))
    }

    /// Whether a message of at most so many bytes waits at a peer for its receive, and its send is over for the application, as far as
    /// is known: an application on another thread does not say so.
    pub(crate) fn has_unfetched(&self, peer: PeerId, limit: usize) -> bool {
        let is_it = |slot: &RequestSlot| match &slot.operation {
            TagOperation::Asked(asked) => asked.to == peer && asked.payload.len() <= limit,
            _ => false,
        };
        let is_apart = self.names.is_none();
        self.slots.iter().any(|(_, slot)| (is_apart || slot.report == ReportTo::Nowhere) && is_it(slot))
    }

    /// How many of other services have not ended.
    pub(crate) fn elsewhere(&self) -> usize {
        self.select(|operation| matches!(operation, TagOperation::Elsewhere { .. })).len()
    }

    /// Those that have not ended.
    pub(crate) fn under_way(&self) -> Vec<Request> {
        self.select(|operation| !matches!(operation, TagOperation::Ended(_)))
    }

    /// The peers that requests cannot go on without, some of them more than once.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        let own = self.slots.iter().map(|(_, slot)| &slot.operation);
        own.chain(self.pieces.iter().map(|(_, piece)| &piece.operation)).filter_map(TagOperation::depends_on)
    }

    fn select(&self, is_it: impl Fn(&TagOperation) -> bool) -> Vec<Request> {
        let own = self.slots.iter().map(|(key, slot)| (Request(key), &slot.operation));
        let pieces = self.pieces.iter().map(|(key, piece)| (Request::of_piece(key), &piece.operation));
        own.chain(pieces).filter(|(_, operation)| is_it(operation)).map(|(request, _)| request).collect()
    }
}

/// Returns what is under way of a piece, if it is the name of one.
#[cold]
fn piece_mut(pieces: &mut Slab<MultiPiece>, request: Request) -> Option<&mut TagOperation> {
    pieces.get_mut(request.piece()?).map(|piece| &mut piece.operation)
}

#[cfg(test)]
mod tests {
    use super::super::completion_list::SLACK;
    use super::*;

    fn open(requests: &mut Requests) -> Request {
        let request = requests.mint().expect("room");
        requests.open(request, || TagOperation::Queued { to: 3.into() });
        request
    }

    #[test]
    fn a_request_ends_once_and_its_name_dies_with_it() {
        let mut requests = Requests::default();
        let first = open(&mut requests);
        assert_eq!(Request::from_wire(first.to_wire()), first);
        assert!(requests.close(first).is_none());
        assert_eq!(requests.depending_on(3.into()), [first]);
        requests.end(first, Err(OpError::NobodyLeft));
        assert_eq!(requests.close(first).expect("over").expect_err("failed"), OpError::NobodyLeft);
        let second = open(&mut requests);
        assert_ne!(first, second);
        assert_eq!(requests.close(first).expect("dead").expect_err("dead"), OpError::NoRequest);
    }

    #[test]
    fn another_thread_gets_every_end_in_order_but_of_what_is_detached() {
        let (mut requests, mut names) = (Requests::default(), KeySource::new(9));
        requests.serve_another_thread();
        let mut open = |requests: &mut Requests| {
            let request = Request(names.mint().expect("room"));
            requests.open(request, || TagOperation::Queued { to: 3.into() });
            request
        };
        let (first, second, detached) = (open(&mut requests), open(&mut requests), open(&mut requests));
        requests.detach(detached);
        for request in [second, detached, first] {
            requests.end(request, Err(OpError::NobodyLeft));
        }
        let ended: Vec<_> = std::iter::from_fn(|| requests.next_ended()).collect();
        assert_eq!(ended, [second, first]);
        assert!(requests.close(first).is_some() && requests.close(second).is_some());
        assert!(requests.is_empty());
    }

    #[test]
    fn buffered_bytes_count_until_their_send_ends_detached_or_not() {
        let mut requests = Requests::default();
        let (kept, detached) = (open(&mut requests), open(&mut requests));
        requests.note_buffered(kept, 100);
        requests.note_buffered(detached, 10);
        requests.detach(detached);
        assert_eq!(requests.buffered_bytes(), 110);
        requests.end(detached, Err(OpError::NobodyLeft));
        assert_eq!(requests.buffered_bytes(), 100);
        requests.end(kept, Err(OpError::NobodyLeft));
        assert_eq!(requests.buffered_bytes(), 0);
        requests.note_buffered(kept, 7);
        assert_eq!(requests.buffered_bytes(), 0, "it has ended");
        assert!(requests.close(kept).is_some() && requests.is_empty());
    }

    /// An application names every operation for the queue, and then waits for each by name: nothing piles up.
    #[test]
    fn what_is_taken_by_name_leaves_no_completion_behind() {
        let mut requests = Requests::default();
        let held = open(&mut requests);
        assert!(requests.queue_completion(held, 1));
        for _ in 0..10_000 {
            let request = open(&mut requests);
            assert!(requests.queue_completion(request, 2));
            requests.end(request, Err(OpError::NobodyLeft));
            assert!(requests.queue_completion(request, 3), "another name");
            assert!(requests.close(request).is_some());
            assert!(requests.completions.len() <= 2 * 2 + SLACK + 1);
        }
        assert_eq!(requests.completions_open(), 1);
        requests.end(held, Err(OpError::NobodyLeft));
        assert_eq!(requests.next_completion().expect("it has ended").1.context, 1);
        assert!(requests.next_completion().is_none() && requests.is_empty());
        assert_eq!(requests.completions.len(), 0);
    }

    #[test]
    fn a_cancelled_request_is_asked_for_once() {
        let mut requests = Requests::default();
        let request = open(&mut requests);
        assert!(!requests.stop_cancelling(request));
        assert!(requests.start_cancelling(request));
        assert!(!requests.start_cancelling(request));
        assert!(requests.stop_cancelling(request));
    }
}
