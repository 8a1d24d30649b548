//! Operations under way: what is known of each, by how far it has come.

use std::collections::VecDeque;

use roci_driver::{Buffer, MemoryRegion};
use roci_protocol::msg::{Label, RendezvousProtocol};

use super::matching::Posted;
use super::multi::MultiReceive;
use crate::core::completion::{Done, OpError};
use crate::core::peer::PeerId;

/// What is under way.
#[derive(Debug)]
pub(crate) enum TagOperation {
    /// A send in its peer's queue, which has the payload, at this place.
    Outgoing { to: PeerId, at: u32 },
    /// A send that leaves, or whose payload leaves in fragments.
    Queued { to: PeerId },
    /// A synchronous eager send that has left and is not matched yet.
    Unmatched { to: PeerId, done: Done },
    /// An eager send that is over, but for the question whether it can be taken back.
    Withdrawing { to: PeerId, done: Done },
    /// A rendezvous that waits for a clear-to-send.
    Asked(Asked),
    /// RGET: the payload waits to be fetched.
    Exposed(Exposed),
    /// RPUT and PIPELINE: the payload is being written.
    Writing(Box<PipeOut>),
    /// A receive without a message; without a buffer where the message is received in place.
    Waiting { buffer: Option<Buffer>, posted: Option<Posted> },
    /// A multi-receive. The messages that it has taken are operations of their own.
    Multi(Box<MultiReceive>),
    /// An eager series or R3: a receive whose message comes in parts.
    Filling(Filling),
    /// RGET: a receive whose message is being fetched.
    Fetching(Fetching),
    /// RPUT: a receive whose buffer is open to the sender.
    Opened(Opened),
    /// PIPELINE: a receive whose message is being written piece by piece.
    Piped(Box<PipeIn>),
    /// Another service's, which says how it ends.
    Elsewhere { peer: PeerId },
    /// Over.
    Ended(Result<Done, OpError>),
}

impl TagOperation {
    /// The peer whose end would be this operation's.
    pub(crate) fn depends_on(&self) -> Option<PeerId> {
        match self {
            Self::Outgoing { to, .. }
            | Self::Queued { to }
            | Self::Unmatched { to, .. }
            | Self::Withdrawing { to, .. } => Some(*to),
            Self::Asked(Asked { to, .. }) | Self::Exposed(Exposed { to, .. }) => Some(*to),
            Self::Writing(out) => Some(out.to),
            Self::Filling(Filling { from, .. }) | Self::Fetching(Fetching { from, .. }) => Some(*from),
            Self::Opened(Opened { from, .. }) => Some(*from),
            Self::Piped(pipe) => Some(pipe.from),
            Self::Elsewhere { peer } => Some(*peer),
            Self::Waiting { .. } | Self::Multi(_) | Self::Ended(_) => None,
        }
    }

    /// Returns the place of a receive that waits.
    pub(crate) fn posted(&self) -> Option<Posted> {
        match self {
            Self::Waiting { posted, .. } => *posted,
            Self::Multi(multi) => multi.posted,
            _ => None,
        }
    }

    /// A send that a peer has a part in still.
    pub(crate) fn is_send(&self) -> bool {
        use TagOperation::{Asked, Exposed, Outgoing, Queued, Unmatched, Withdrawing, Writing};
        matches!(
            self,
            Outgoing { .. }
                | Queued { .. }
                | Unmatched { .. }
                | Withdrawing { .. }
                | Asked(_)
                | Exposed(_)
                | Writing(_)
        )
    }

    /// A message to oneself that no receive has met.
    pub(crate) fn is_local(&self, oneself: PeerId) -> bool {
        matches!(self, Self::Unmatched { to, .. } if *to == oneself)
    }
}

/// Sender: a rendezvous that waits for a clear-to-send.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) to: PeerId,
    pub(crate) label: Label,
    pub(crate) payload: Buffer,
    pub(crate) protocol: RendezvousProtocol,
}

/// Sender: the payload waits to be fetched.
#[derive(Debug)]
pub(crate) struct Exposed {
    pub(crate) to: PeerId,
    pub(crate) label: Label,
    pub(crate) region: MemoryRegion,
}

/// Receiver: the payload is being fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetching {
    pub(crate) from: PeerId,
    pub(crate) label: Label,
    pub(crate) id: u64,
    /// The receive's buffer is so long; the READ fills a part of it.
    pub(crate) room: usize,
}

/// Receiver: a receive whose message comes in parts.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) from: PeerId,
    pub(crate) label: Label,
    pub(crate) buffer: Buffer,
    pub(crate) len: usize,
    pub(crate) arrived: usize,
}

/// Receiver: the buffer is open to the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) from: PeerId,
    pub(crate) label: Label,
    pub(crate) region: MemoryRegion,
    pub(crate) len: usize,
}

/// Sender: pieces of a payload.
#[derive(Debug)]
pub(crate) struct PipeOut {
    pub(crate) to: PeerId,
    pub(super) label: Label,
    /// What has been written, in one piece again.
    pub(super) written: Option<Buffer>,
    /// Pieces being written.
    pub(super) in_flight: usize,
    /// What has not been granted yet.
    pub(super) rest: Option<Buffer>,
}

/// Receiver: a message that comes in pieces.
#[derive(Debug)]
pub(crate) struct PipeIn {
    pub(crate) from: PeerId,
    pub(super) label: Label,
    /// The sender's name for the operation.
    pub(super) id: u64,
    pub(super) len: usize,
    pub(super) granted: usize,
    pub(super) arrived: usize,
    pub(super) target: PipeTarget,
}

/// Where the pieces of a message go.
#[derive(Debug)]
pub(super) enum PipeTarget {
    /// Straight to the application's buffer.
    Direct(MemoryRegion),
    /// To staging memory, in this order, and from there to the buffer.
    Staged { buffer: Buffer, slots: VecDeque<usize> },
}
