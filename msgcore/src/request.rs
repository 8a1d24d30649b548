//! Requests: operations under way, and how they ended.

use std::collections::VecDeque;

use roci_driver::{Buffer, WcStatus};
use roci_protocol::msg::Label;
use thiserror::Error;

use crate::matching::Posted;
use crate::rendezvous::{Asked, Fetching, Filling, Opened, PipeIn, PipeOut};
use crate::{Rank, Tag, rendezvous};

/// An operation under way. It must be waited for: see [`crate::Worker::wait`] and [`crate::Worker::test`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "an operation ends only for who waits for it"]
pub struct Request {
    index: u32,
    generation: u32,
}

impl Request {
    /// The name under which a peer will speak of it.
    #[inline]
    pub(crate) fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Its place among the requests: no other that is under way has it.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }

    #[inline]
    pub(crate) fn from_wire(id: u64) -> Self {
        Self { index: id as u32, generation: (id >> 32) as u32 }
    }
}

/// A successful end.
#[derive(Debug)]
pub struct Done {
    /// The memory, handed back; of a receive, its first `len` bytes are the message.
    pub buffer: Buffer,
    /// The message's length.
    pub len: usize,
    /// Who sent the message; of a send, who it went to. Of a receive that was cancelled, this rank.
    pub peer: Rank,
    /// The message's tag; of a receive that was cancelled, 0.
    pub tag: Tag,
    /// The operation was cancelled before anything was received (`MPI_Test_cancelled`).
    pub is_cancelled: bool,
}

impl Done {
    /// An operation that did what it was for.
    pub(crate) fn new(buffer: Buffer, len: usize, peer: Rank, label: Label) -> Self {
        Self { buffer, len, peer, tag: Tag::new(label.tag), is_cancelled: false }
    }

    pub(crate) fn cancelled(self) -> Self {
        Self { len: 0, is_cancelled: true, ..self }
    }
}

/// A failed end. The buffer went back to the arena.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OpError {
    /// The peer is gone, or its connection is.
    #[error("rank {rank} is gone: {status} ({})", .status.verbs_name())]
    PeerGone {
        /// Which peer.
        rank: Rank,
        /// What the connection said.
        status: WcStatus,
    },
    /// The peer could not be connected.
    #[error("rank {rank} cannot be connected: {why}")]
    NotConnected {
        /// Which peer.
        rank: Rank,
        /// Why.
        why: String,
    },
    /// The peer does not keep to the protocol, and its connection was ended.
    #[error("rank {rank} broke the protocol: {what}")]
    PeerProtocol {
        /// Which peer.
        rank: Rank,
        /// What it did.
        what: String,
    },
    /// The message was longer than the receive's buffer, which was left alone.
    #[error("a message of {sent} bytes from rank {rank} does not fit a receive of {room} bytes")]
    Truncated {
        /// Who sent it.
        rank: Rank,
        /// Its length.
        sent: u64,
        /// The buffer's.
        room: usize,
    },
    /// There is no memory for a message that was to be lent.
    #[error("no memory for a message of {len} bytes from rank {rank}: raise ROCI_ARENA_SIZE")]
    NoMemory {
        /// Who sent it.
        rank: Rank,
        /// Its length.
        len: u64,
    },
    /// Nobody is left who could send.
    #[error("no peer is left that could send this message")]
    NobodyLeft,
    /// The launcher says that the job is over, or is gone itself.
    #[error("the job is over: {0}")]
    Job(String),
    /// The thread of a dedicated worker did not accept the operation.
    #[error("the operation was refused: {0}")]
    Refused(String),
    /// The thread of a dedicated worker has ended.
    #[error("the worker's thread is gone: {0}")]
    EngineGone(String),
    /// The request was waited for before, or never made by this worker.
    #[error("no such request")]
    NoRequest,
}

/// What is under way.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A send in its endpoint's queue, which has the payload.
    Queued { to: Rank },
    /// A synchronous eager send that has left and is not matched yet.
    Unmatched { to: Rank, done: Done },
    /// An eager send that is over, but for the question whether it can be taken back.
    Withdrawing { to: Rank, done: Done },
    /// A rendezvous that waits for a grant.
    Asked(Asked),
    /// RGET: the payload waits to be fetched.
    Exposed(rendezvous::Exposed),
    /// RPUT and PIPELINE: the payload is being written.
    Writing(Box<PipeOut>),
    /// A receive without a message; without a buffer where the message is to be lent.
    Waiting { buffer: Option<Buffer>, posted: Option<Posted> },
    /// An eager series or R3: a receive whose message comes in parts.
    Filling(Filling),
    /// RGET: a receive whose message is being fetched.
    Fetching(Fetching),
    /// RPUT: a receive whose buffer is open to the sender.
    Opened(Opened),
    /// PIPELINE: a receive whose message is being written piece by piece.
    Piped(Box<PipeIn>),
    /// Over.
    Ended(Result<Done, OpError>),
}

impl Operation {
    /// The peer whose end would be this operation's.
    pub(crate) fn depends_on(&self) -> Option<Rank> {
        match self {
            Self::Queued { to } | Self::Unmatched { to, .. } | Self::Withdrawing { to, .. } => Some(*to),
            Self::Asked(Asked { to, .. }) | Self::Exposed(rendezvous::Exposed { to, .. }) => Some(*to),
            Self::Writing(out) => Some(out.to),
            Self::Filling(Filling { from, .. }) | Self::Fetching(Fetching { from, .. }) => Some(*from),
            Self::Opened(Opened { from, .. }) => Some(*from),
            Self::Piped(pipe) => Some(pipe.from),
            Self::Waiting { .. } | Self::Ended(_) => None,
        }
    }

    /// A send that a peer has a part in still.
    fn is_send(&self) -> bool {
        use Operation::{Asked, Exposed, Queued, Unmatched, Withdrawing, Writing};
        matches!(self, Queued { .. } | Unmatched { .. } | Withdrawing { .. } | Asked(_) | Exposed(_) | Writing(_))
    }

    /// A message to oneself that nobody has received.
    fn is_local(&self, oneself: Rank) -> bool {
        matches!(self, Self::Unmatched { to, .. } if *to == oneself)
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    operation: Option<Operation>,
    /// Of an eager send: it has left, and could be taken back.
    has_left: bool,
    /// The peer was asked to give it back.
    is_cancelling: bool,
    /// Nobody waits for it: it is forgotten when it ends, and these bytes of it with it.
    detached: Option<usize>,
}

/// All requests of a worker.
#[derive(Default)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    detached_bytes: usize,
    /// Those that have ended, in that order; `None` where nobody asks for them so.
    ended: Option<VecDeque<Request>>,
}

/// Requests that a worker may have under way.
pub(crate) const LIMIT: usize = 1 << 20;

impl Requests {
    /// A new request; `None` where too many are under way.
    #[inline]
    pub(crate) fn open(&mut self, operation: Operation) -> Option<Request> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() == LIMIT => return None,
            None => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { generation, operation: Some(operation), ..Slot::default() };
        Some(Request { index, generation })
    }

    /// Takes back a request that came to nothing: nobody has its name yet.
    pub(crate) fn cancel_opening(&mut self, request: Request) {
        if let Some(slot) = self.slot_mut(request)
            && slot.operation.take().is_some()
        {
            self.free.push(request.index);
        }
    }

    #[inline]
    pub(crate) fn get(&self, request: Request) -> Option<&Operation> {
        self.slot(request)?.operation.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, request: Request) -> Option<&mut Operation> {
        self.slot_mut(request)?.operation.as_mut()
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
        if let Some(slot) = self.slot_mut(request) {
            slot.detached = Some(bytes);
            self.detached_bytes += bytes;
        }
        self.settle(request);
    }

    /// Bytes in requests that nobody waits for.
    pub(crate) fn detached_bytes(&self) -> usize {
        self.detached_bytes
    }

    /// Sees to a request that may have ended: it is forgotten where nobody waits for it, and told where somebody watches.
    #[inline]
    pub(crate) fn settle(&mut self, request: Request) {
        let Some(slot) = self.slot_mut(request) else { return };
        if !matches!(slot.operation, Some(Operation::Ended(_))) {
            return;
        }
        if let Some(bytes) = slot.detached {
            slot.detached = None;
            slot.operation = None;
            self.detached_bytes -= bytes;
            self.free.push(request.index);
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
        if let Some(slot) = self.slot_mut(request) {
            slot.has_left = true;
            slot.operation = Some(Operation::Ended(Ok(done)));
        }
        self.settle(request);
    }

    /// Whether a message of this send has left, and could be taken back.
    pub(crate) fn has_left(&self, request: Request) -> bool {
        self.slot(request).is_some_and(|slot| slot.has_left)
    }

    /// The peer is asked to give it back; `false` where it was asked before.
    pub(crate) fn start_cancelling(&mut self, request: Request) -> bool {
        let slot = self.slot_mut(request);
        slot.is_some_and(|slot| !std::mem::replace(&mut slot.is_cancelling, true))
    }

    /// The peer has answered; `false` where it was not asked.
    pub(crate) fn stop_cancelling(&mut self, request: Request) -> bool {
        let slot = self.slot_mut(request);
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
        let slot = &mut self.slots[request.index as usize];
        let Some(Operation::Ended(outcome)) = slot.operation.take() else { return None };
        self.free.push(request.index);
        Some(outcome)
    }

    /// The requests that cannot go on without `rank`.
    pub(crate) fn depending_on(&self, rank: Rank) -> Vec<Request> {
        self.select(|operation| operation.depends_on() == Some(rank))
    }

    /// The sends to peers that have not ended.
    pub(crate) fn sends(&self, oneself: Rank) -> Vec<Request> {
        self.select(|operation| operation.is_send() && !operation.is_local(oneself))
    }

    fn select(&self, is_it: impl Fn(&Operation) -> bool) -> Vec<Request> {
        let live = self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let chosen = is_it(slot.operation.as_ref()?);
            chosen.then_some(Request { index, generation: slot.generation })
        });
        live.collect()
    }

    fn slot(&self, request: Request) -> Option<&Slot> {
        self.slots.get(request.index as usize).filter(|slot| slot.generation == request.generation)
    }

    fn slot_mut(&mut self, request: Request) -> Option<&mut Slot> {
        self.slots.get_mut(request.index as usize).filter(|slot| slot.generation == request.generation)
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
