//! What can go wrong with a stream, by name.

use roci_driver::{ArenaError, WrongKind};
use thiserror::Error;

use super::config::{BadStreamConfig, StreamConfig};
use crate::core::completion::OpError;
use crate::core::peer_id::PeerId;

/// Why a call on a stream failed.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] BadStreamConfig),
    /// The configuration cannot change: a stream or a payload uses it.
    #[error("streams are open, or payloads adopted: configure streams before the first of them")]
    ConfigInUse,
    /// There is no memory for the stream's rings.
    #[error("no memory for the stream's rings: {0}")]
    NoMemory(String),
    /// All keys are in use.
    #[error("no key is free for the stream's memory")]
    NoKey,
    /// No such peer; a rank has no stream to itself.
    #[error("{0} is no peer of this end")]
    NoPeer(PeerId),
    /// The peer has failed.
    #[error(transparent)]
    Peer(#[from] OpError),
    /// One of the two ends cannot do RDMA, which streams are made of.
    #[error("no stream with {0}: one of the two cannot do RDMA (ROCI_RDMA)")]
    NoRdma(PeerId),
    /// The peer's streams are configured in another way.
    #[error("{peer} configures its streams in another way: {theirs:?}, and here they are {ours:?}")]
    OtherConfig {
        /// Which.
        peer: PeerId,
        /// Its configuration.
        theirs: Box<StreamConfig>,
        /// This end's.
        ours: Box<StreamConfig>,
    },
    /// A payload is being put to this peer: nothing else can be until its put has answered with its length.
    #[error("a payload is being put to {0}: repeat its put until it answers with its length")]
    PutPending(PeerId),
    /// A payload is being read into a buffer that was given to an earlier call.
    #[error("a payload is being read from {0}: repeat get_into without a buffer until it answers")]
    GetPending(PeerId),
    /// There is no buffer to get into, and no earlier one is in use.
    #[error("get_into was given no buffer, and has none of {0}'s")]
    NoBuffer(PeerId),
    /// The buffer is not of the kind that the call needs.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// The handle's payload was released.
    #[error("no such payload")]
    NoPayload,
    /// The payload is being put to a peer, which may be reading it.
    #[error("the payload is being put to a peer")]
    PayloadInUse,
    /// The range does not lie in the payload.
    #[error("bytes {offset}..{offset}+{len} do not lie in a payload of {room} bytes")]
    PayloadRange {
        /// Where it was to begin.
        offset: usize,
        /// How long it was to be.
        len: usize,
        /// The payload's length.
        room: usize,
    },
    /// The payload is longer than one READ.
    #[error("a payload of {0} bytes is longer than 1 GiB")]
    PayloadTooLong(usize),
    /// Too many payloads were adopted and not released.
    #[error("{0} payloads are adopted already: release some of them first")]
    TooManyPayloads(usize),
    /// This process was forked from the one that opened the worker.
    #[error("this process was forked from the worker's, whose connections stay with that one")]
    Forked,
}

impl From<ArenaError> for StreamError {
    fn from(error: ArenaError) -> Self {
        Self::NoMemory(error.to_string())
    }
}
