//! Calls that are not accepted hand back what they were given.

use roci_driver::{AdoptError, ArenaError, RegionError, WrongKind};
use thiserror::Error;

use super::completion::OpError;
use super::peer_id::PeerId;
use crate::Rank;

/// Why a call was not accepted.
#[derive(Error)]
#[non_exhaustive]
pub enum CallError {
    /// No such rank.
    #[error("rank {rank} is not in this job of {size}")]
    NoRank {
        /// What was given.
        rank: Rank,
        /// How many there are.
        size: usize,
    },
    /// No such peer, or it was removed.
    #[error("there is no {0}")]
    NoPeer(PeerId),
    /// The message is longer than 2^31 bytes.
    #[error("a message of {0} bytes is longer than 2 GiB: send it in pieces")]
    TooLong(usize),
    /// The message is longer than what may be injected.
    #[error("a message of {len} bytes is longer than the {limit} that may be injected: send it")]
    TooLongToInject {
        /// Its length.
        len: usize,
        /// The longest that may be.
        limit: usize,
    },
    /// Too many operations wait already.
    #[error("{0} operations wait already: wait for some of them first")]
    TooMany(usize),
    /// Too much waits in buffered sends.
    #[error("buffered sends hold {held} bytes already, and {asked} more exceed ROCI_BUFFERED_LIMIT")]
    BufferFull {
        /// What the call asked for.
        asked: usize,
        /// What waits.
        held: usize,
    },
    /// A one-sided operation reaches beyond the segment.
    #[error("{len} bytes from {offset} on reach beyond a segment of {segment}")]
    BeyondSegment {
        /// Where it begins.
        offset: u64,
        /// Its length.
        len: usize,
        /// The segment's length.
        segment: u64,
    },
    /// A number does not begin at a multiple of its length.
    #[error("a number of {len} bytes does not begin at {offset}: its offset is a multiple of its length")]
    Misaligned {
        /// Where it was to begin.
        offset: u64,
        /// Its length.
        len: usize,
    },
    /// The ranks of a job have not made the same calls.
    #[error("the ranks have not made the same collective calls in the same order")]
    Collective,
    /// A put or get is longer than one transfer carries.
    #[error("{len} bytes are more than the {limit} that one put or get moves: cut it")]
    TooLongToTransfer {
        /// Its length.
        len: usize,
        /// The longest that may be.
        limit: usize,
    },
    /// An active message has too many arguments.
    #[error("{0} arguments are more than an active message has")]
    Arguments(usize),
    /// The segment was withdrawn before, or is another worker's; or it is read only.
    #[error("no such segment, or it is read only")]
    NoSegment,
    /// All keys are in use.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The configuration leaves no memory or no keys for what is offered.
    #[error("{0}")]
    CannotOffer(String),
    /// A key's name is empty, too long, or has a blank; or what was published under it is no key.
    #[error("{0:?} is no name of a key")]
    BadName(String),
    /// There is no launcher to leave a key with.
    #[error("a worker without a job has no launcher to leave keys with")]
    NoLauncher,
    /// A long active message was to write to memory that is offered, or under a key that the peer has chosen.
    #[error(
        "a long active message writes to memory that is exposed under a key of the worker's, and not to what is offered"
    )]
    OnlyOffered,
    /// An active message is longer than one vbuf holds.
    #[error(
        "an active message of {len} bytes is longer than the {limit} that it may have: write it, and send a long one"
    )]
    TooLongForActive {
        /// Its length.
        len: usize,
        /// The longest that may be.
        limit: usize,
    },
    /// Another handler has this name, or a name that looks the same on the wire.
    #[error("the handler {0:?} has the name of another one, or one that looks the same on the wire")]
    HandlerTaken(String),
    /// Another segment is exposed under the key.
    #[error("another segment is exposed under the key {0:#x}: withdraw it first, or choose another key")]
    KeyTaken(u64),
    /// The message was received before, or is another worker's.
    #[error("no such message")]
    NoMessage,
    /// The buffer's view begins behind its room, or it is a list.
    #[error("a list, or a buffer with a skipped front, cannot be cut into messages")]
    CannotBeCut,
    /// The buffer is not of the kind that the call needs.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// The arena is full.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// Memory of the application's cannot be used.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// The peer is gone.
    #[error(transparent)]
    Peer(#[from] OpError),
    /// The worker is the parent's.
    #[error(
        "this process was forked from the worker's, whose connections stay with that one: open a worker of its own"
    )]
    Forked,
}

/// A call that was not accepted, with what it was given. A function whose error is a [`CallError`] writes `?`.
pub type Refused<T> = roci_driver::Refused<T, CallError>;

impl<T> From<Refused<T>> for CallError {
    fn from(refused: Refused<T>) -> Self {
        refused.why
    }
}
