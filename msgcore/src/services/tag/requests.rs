//! All requests of a worker: each is under way, or over and not asked for yet.

use std::collections::VecDeque;

use super::operation::Operation;
use super::request::Request;
use crate::core::completion::{Done, OpError};
use crate::core::peer::PeerId;
use crate::core::slab::Slab;

struct Slot {
    operation: Operation,
    /// Of an eager send: it has left, and could be taken back.
    has_left: bool,
    /// The peer was asked to give it back.
    is_cancelling: bool,
    /// Nobody waits for it: it is forgotten when it ends, and these bytes of it with it.
    detached: Option<usize>,
}

/// All requests of a worker.
pub(crate) struct Requests {
    slots: Slab<Slot>,
    detached_bytes: usize,
    /// Those that have ended, in that order; `None` where nobody asks for them so.
    ended: Option<VecDeque<Request>>,
}

/// Requests that a worker may have under way.
pub(crate) const LIMIT: usize = 1 << 20;

impl Default for Requests {
    fn default() -> Self {
        Self::of(Slab::with_names_of_its_own(LIMIT))
    }
}

impl Requests {
    /// The requests of a rank whose peers, all of them, are in this process: its names are the same in each run.
    pub(crate) fn of_rank(rank: PeerId) -> Self {
        Self::of(Slab::with_names_of(rank as u32, LIMIT))
    }

    const fn of(slots: Slab<Slot>) -> Self {
        Self { slots, detached_bytes: 0, ended: None }
    }

    /// A new request; `None` where too many are under way.
    #[inline]
    pub(crate) fn open(&mut self, operation: Operation) -> Option<Request> {
        let slot = Slot { operation, has_left: false, is_cancelling: false, detached: None };
        self.slots.insert(slot).map(Request)
    }

    /// Whether there is no room for another one.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Takes back a request that came to nothing: nobody has its name yet.
    pub(crate) fn cancel_opening(&mut self, request: Request) {
        self.slots.remove(request.0);
    }

    #[inline]
    pub(crate) fn get(&self, request: Request) -> Option<&Operation> {
        self.slots.get(request.0).map(|slot| &slot.operation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, request: Request) -> Option<&mut Operation> {
        self.slots.get_mut(request.0).map(|slot| &mut slot.operation)
    }

    /// Replaces what is under way and returns what was.
    #[inline]
    pub(crate) fn replace(&mut self, request: Request, operation: Operation) -> Option<Operation> {
        self.get_mut(request).map(|slot| std::mem::replace(slot, operation))
    }

    /// Ends a request.
    #[inline]
    pub(crate) fn end(&mut self, request: Request, outcome: Result<Done, OpError>) -> Option<Operation> {
        let before = self.replace(request, Operation::Ended(outcome));
        self.settle(request);
        before
    }

    /// Nobody will wait for this request of so many bytes: it is forgotten when it ends.
    pub(crate) fn detach(&mut self, request: Request, bytes: usize) {
        if let Some(slot) = self.slots.get_mut(request.0) {
            slot.detached = Some(bytes);
            self.detached_bytes += bytes;
        }
        self.settle(request);
    }

    /// Somebody wants to know how it ends after all; `false` where it is being taken back.
    pub(crate) fn hold(&mut self, request: Request) -> bool {
        let Some(slot) = self.slots.get_mut(request.0) else { return false };
        self.detached_bytes -= slot.detached.take().unwrap_or(0);
        !slot.is_cancelling
    }

    /// Bytes in requests that nobody waits for.
    pub(crate) fn detached_bytes(&self) -> usize {
        self.detached_bytes
    }

    /// Sees to a request that may have ended: it is forgotten where nobody waits for it, and told where somebody watches.
    #[inline]
    pub(crate) fn settle(&mut self, request: Request) {
        let Some(slot) = self.slots.get_mut(request.0) else { return };
        if !matches!(slot.operation, Operation::Ended(_)) {
            return;
        }
        if let Some(bytes) = slot.detached {
            self.detached_bytes -= bytes;
            self.slots.remove(request.0);
        } else if let Some(ended) = &mut self.ended {
            ended.push_back(request);
        }
    }

    /// From here on [`Requests::next_ended`] names what ends.
    pub(crate) fn watch(&mut self) {
        self.ended.get_or_insert_default();
    }

    /// The next request that has ended since [`Requests::watch`]. It may have been closed meanwhile, be under way
    /// again because it is being cancelled, or be named twice.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<Request> {
        self.ended.as_mut()?.pop_front()
    }

    /// Ends an eager send: its vbuf has left, and the peer can still be asked to give it back.
    #[inline]
    pub(crate) fn end_eager(&mut self, request: Request, done: Done) {
        if let Some(slot) = self.slots.get_mut(request.0) {
            slot.has_left = true;
            slot.operation = Operation::Ended(Ok(done));
        }
        self.settle(request);
    }

    /// Whether a message of this send has left, and could be taken back.
    pub(crate) fn has_left(&self, request: Request) -> bool {
        self.slots.get(request.0).is_some_and(|slot| slot.has_left)
    }

    /// The peer is asked to give it back; `false` where it was asked before.
    pub(crate) fn start_cancelling(&mut self, request: Request) -> bool {
        let slot = self.slots.get_mut(request.0);
        slot.is_some_and(|slot| !std::mem::replace(&mut slot.is_cancelling, true))
    }

    /// The peer has answered; `false` where it was not asked.
    pub(crate) fn stop_cancelling(&mut self, request: Request) -> bool {
        let slot = self.slots.get_mut(request.0);
        slot.is_some_and(|slot| std::mem::take(&mut slot.is_cancelling))
    }

    /// Takes the outcome of a request that is over; `None` while it is not.
    #[inline]
    pub(crate) fn close(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        match self.get(request) {
            None => return Some(Err(OpError::NoRequest)),
            Some(Operation::Ended(_)) => {}
            Some(_) => return None,
        }
        match self.slots.remove(request.0)?.operation {
            Operation::Ended(outcome) => Some(outcome),
            _ => unreachable!("it was just over"),
        }
    }

    /// The requests that cannot go on without `rank`.
    pub(crate) fn depending_on(&self, rank: PeerId) -> Vec<Request> {
        self.select(|operation| operation.depends_on() == Some(rank))
    }

    /// The sends to peers that have not ended.
    pub(crate) fn sends(&self, oneself: PeerId) -> Vec<Request> {
        self.select(|operation| operation.is_send() && !operation.is_local(oneself))
    }

    /// Those that have not ended.
    pub(crate) fn under_way(&self) -> Vec<Request> {
        self.select(|operation| !matches!(operation, Operation::Ended(_)))
    }

    /// The peers that requests cannot go on without, some of them more than once.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.slots.iter().filter_map(|(_, slot)| slot.operation.depends_on())
    }

    fn select(&self, is_it: impl Fn(&Operation) -> bool) -> Vec<Request> {
        self.slots.iter().filter(|(_, slot)| is_it(&slot.operation)).map(|(key, _)| Request(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_once_and_its_name_dies_with_it() {
        let mut requests = Requests::default();
        let first = requests.open(Operation::Queued { to: 3 }).expect("room");
        assert_eq!(Request::from_wire(first.to_wire()), first);
        assert!(requests.close(first).is_none());
        assert_eq!(requests.depending_on(3), [first]);
        requests.end(first, Err(OpError::NobodyLeft));
        assert_eq!(requests.close(first).expect("over").expect_err("failed"), OpError::NobodyLeft);
        let second = requests.open(Operation::Queued { to: 3 }).expect("room");
        assert_ne!(first, second);
        assert_eq!(requests.close(first).expect("dead").expect_err("dead"), OpError::NoRequest);
    }

    #[test]
    fn who_watches_is_told_every_end_in_order_but_of_what_is_detached() {
        let mut requests = Requests::default();
        let mut open = || requests.open(Operation::Queued { to: 3 }).expect("room");
        let (unwatched, first, second, detached) = (open(), open(), open(), open());
        requests.end(unwatched, Err(OpError::NobodyLeft));
        requests.watch();
        requests.detach(detached, 7);
        for request in [second, detached, first] {
            requests.end(request, Err(OpError::NobodyLeft));
        }
        let told: Vec<_> = std::iter::from_fn(|| requests.next_ended()).collect();
        assert_eq!(told, [second, first]);
        assert_eq!(requests.detached_bytes(), 0);
    }

    #[test]
    fn a_cancelled_request_is_asked_for_once() {
        let mut requests = Requests::default();
        let request = requests.open(Operation::Queued { to: 3 }).expect("room");
        assert!(!requests.stop_cancelling(request));
        assert!(requests.start_cancelling(request));
        assert!(!requests.start_cancelling(request));
        assert!(requests.stop_cancelling(request));
    }
}
