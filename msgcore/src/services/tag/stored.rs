//! Messages that have come, and what there is of each: those that wait for a receive, and those that come in parts.

use roci_driver::{Buffer, Rkey};
use roci_protocol::msg::{Mode, RendezvousProtocol};

use super::MAX_MESSAGE;
use super::kept_packets::KeptMessage;
use crate::core::breach::Breach;
use crate::core::request::Request;

/// A payload that waits at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemotePayload {
    pub(crate) protocol: RendezvousProtocol,
    pub(crate) rkey: Rkey,
    /// Where it lies in the sender's address space, for a receiver that may read it there.
    pub(crate) address: Option<u64>,
    pub(crate) len: u64,
    pub(crate) data: Option<u64>,
    /// The sender's name for the operation.
    pub(crate) id: u64,
}

/// What is there of a message that has no receive yet.
#[derive(Debug)]
pub(crate) enum UnexpectedBody {
    /// All of it: in the vbuf of a lane, or a copy where that would waste most of one.
    Whole { id: u64, mode: Mode, lane: Option<usize>, vbuf: Buffer, data: Option<u64> },
    /// All of it, in a vbuf that has others, too.
    Kept { id: u64, mode: Mode, message: KeptMessage, data: Option<u64> },
    /// Parts, which are kept elsewhere while more of them come.
    Series { id: u64, mode: Mode, len: usize, data: Option<u64> },
    /// A message of this rank to itself: a copy, or nothing where the send still has the payload.
    Local { request: Request, len: usize, copy: Option<Buffer>, data: Option<u64> },
    /// Its description: the payload waits at the sender.
    Remote(RemotePayload),
}

/// An eager message whose vbufs have not all come.
#[derive(Debug)]
pub(crate) struct Series {
    pub(super) len: usize,
    pub(super) arrived: usize,
    pub(super) to: SeriesDestination,
}

/// Where a series goes.
#[derive(Debug)]
pub(super) enum SeriesDestination {
    /// Into a receive.
    Receive(Request),
    /// It is stored until a receive asks, in vbufs of this lane.
    Stored { lane: usize, vbufs: Vec<Buffer> },
    /// No receive wants it any more.
    Nowhere,
}

/// What an unexpected message takes beside its vbufs, so that empty ones are bounded too.
pub(super) const OVERHEAD: usize = 128;

impl Series {
    /// Whether all of it has come.
    pub(crate) fn is_complete(&self) -> bool {
        self.arrived == self.len
    }
}

impl UnexpectedBody {
    /// The message's length.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole { vbuf, .. } => vbuf.len(),
            Self::Kept { message, .. } => message.len as usize,
            Self::Series { len, .. } | Self::Local { len, .. } => *len,
            Self::Remote(remote) => remote.len as usize,
        }
    }

    /// Returns the memory that it takes here.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Whole { vbuf, .. } => vbuf.capacity(),
            Self::Series { len, .. } => *len,
            Self::Local { copy, .. } => copy.as_ref().map_or(0, Buffer::len),
            // The vbuf is charged as one.
            Self::Kept { .. } | Self::Remote(_) => 0,
        }
    }

    /// Returns the data that goes with it.
    pub(crate) fn data(&self) -> Option<u64> {
        match self {
            Self::Whole { data, .. }
            | Self::Kept { data, .. }
            | Self::Series { data, .. }
            | Self::Local { data, .. } => *data,
            Self::Remote(remote) => remote.data,
        }
    }

    /// The sender's name for the operation.
    pub(crate) fn id(&self) -> u64 {
        match self {
            Self::Whole { id, .. } | Self::Kept { id, .. } | Self::Series { id, .. } => *id,
            Self::Local { request, .. } => request.to_wire(),
            Self::Remote(remote) => remote.id,
        }
    }
}

/// Returns a length from the wire that a message can have.
pub(super) fn acceptable(len: u64) -> Result<usize, Breach> {
    let fits = |len: &usize| *len <= MAX_MESSAGE;
    usize::try_from(len).ok().filter(fits).ok_or(Breach::TooLong(len))
}
