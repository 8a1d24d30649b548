//! Requests: operations under way, and how they ended.

use roci_driver::{Buffer, MemoryRegion, WcStatus};
use thiserror::Error;

use crate::{Rank, Tag};

/// An operation under way. It must be waited for: see [`crate::Worker::wait`] and [`crate::Worker::test`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "an operation ends only for who waits for it"]
pub struct Request {
    index: u32,
    generation: u32,
}

impl Request {
    /// The name under which a peer will speak of it.
    pub(crate) fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_wire(id: u64) -> Self {
        Self { index: id as u32, generation: (id >> 32) as u32 }
    }

    #[cfg(test)]
    pub(crate) fn for_test(index: u32) -> Self {
        Self { index, generation: 1 }
    }
}

/// A successful end.
#[derive(Debug)]
pub struct Done {
    /// The memory, handed back; of a receive, its first `len` bytes are the message.
    pub buffer: Buffer,
    /// The message's length.
    pub len: usize,
    /// Who sent the message; of a send, who it went to.
    pub peer: Rank,
    /// The message's tag.
    pub tag: Tag,
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
    /// Nobody is left who could send.
    #[error("no peer is left that could send this message")]
    NobodyLeft,
    /// The launcher says that the job is over, or is gone itself.
    #[error("the job is over: {0}")]
    Job(String),
    /// The request was waited for before, or never made by this worker.
    #[error("no such request")]
    NoRequest,
}

/// What is under way.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A send in its endpoint's queue.
    Queued { to: Rank },
    /// A rendezvous that the receiver has not fetched yet.
    Exposed { to: Rank, tag: Tag, region: MemoryRegion },
    /// A receive without a message.
    Waiting { buffer: Buffer },
    /// A receive whose message is being fetched.
    Fetching { from: Rank, tag: Tag, len: usize, id: u64 },
    /// Over.
    Ended(Result<Done, OpError>),
}

impl Operation {
    /// The peer whose end would be this operation's.
    fn depends_on(&self) -> Option<Rank> {
        match *self {
            Self::Queued { to } | Self::Exposed { to, .. } => Some(to),
            Self::Fetching { from, .. } => Some(from),
            Self::Waiting { .. } | Self::Ended(_) => None,
        }
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    operation: Option<Operation>,
}

/// All requests of a worker.
#[derive(Default)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Requests that a worker may have under way.
const LIMIT: usize = 1 << 20;

impl Requests {
    /// A new request; `None` where too many are under way.
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
        slot.generation = slot.generation.wrapping_add(1);
        slot.operation = Some(operation);
        Some(Request { index, generation: slot.generation })
    }

    pub(crate) fn get(&self, request: Request) -> Option<&Operation> {
        let slot = self.slots.get(request.index as usize).filter(|slot| slot.generation == request.generation)?;
        slot.operation.as_ref()
    }

    fn get_mut(&mut self, request: Request) -> Option<&mut Operation> {
        let slot = self.slots.get_mut(request.index as usize).filter(|slot| slot.generation == request.generation)?;
        slot.operation.as_mut()
    }

    /// Replaces what is under way and returns what was.
    pub(crate) fn replace(&mut self, request: Request, operation: Operation) -> Option<Operation> {
        self.get_mut(request).map(|slot| std::mem::replace(slot, operation))
    }

    /// Ends a request.
    pub(crate) fn end(&mut self, request: Request, outcome: Result<Done, OpError>) -> Option<Operation> {
        self.replace(request, Operation::Ended(outcome))
    }

    /// Takes the outcome of a request that is over; `None` while it is not.
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
        let live = self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let depends = slot.operation.as_ref()?.depends_on() == Some(rank);
            depends.then_some(Request { index, generation: slot.generation })
        });
        live.collect()
    }

    /// Whether a send has not ended.
    pub(crate) fn has_sends(&self) -> bool {
        let is_send = |op: &Operation| matches!(op, Operation::Queued { .. } | Operation::Exposed { .. });
        self.slots.iter().any(|slot| slot.operation.as_ref().is_some_and(is_send))
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
}
