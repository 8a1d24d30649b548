//! How operations end: what comes back, or a named error.

use roci_driver::{Buffer, WcStatus};
use roci_protocol::msg::Label;
use thiserror::Error;

use super::breach::Breach;
use super::no_connection::NoConnection;
use super::peer_id::PeerId;
use crate::{Context, Tag};

/// What a probe says of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Who sent it.
    pub source: PeerId,
    /// Its tag.
    pub tag: Tag,
    /// Its length in bytes.
    pub len: usize,
    /// The data that its sender has sent with it.
    pub data: Option<u64>,
}

/// A successful end.
#[derive(Debug)]
pub struct Done {
    /// The memory, handed back; of a receive, its first `len` bytes are the message.
    pub buffer: Buffer,
    /// The message's length.
    pub len: usize,
    /// Who sent the message; of a send, who it went to. Of a receive that was cancelled, this end.
    pub peer: PeerId,
    /// The message's tag; of a receive that was cancelled, 0.
    pub tag: Tag,
    /// The data that went with the message ([`SendOptions::with_data`](crate::SendOptions::with_data)).
    pub data: Option<u64>,
    /// The operation was cancelled before anything was received (`MPI_Test_cancelled`).
    pub is_cancelled: bool,
}

impl Done {
    /// An operation that did what it was for.
    pub(crate) fn new(buffer: Buffer, len: usize, peer: PeerId, label: Label) -> Self {
        Self { buffer, len, peer, tag: Tag::new(label.tag), data: label.data, is_cancelled: false }
    }

    pub(crate) fn cancelled(self) -> Self {
        Self { len: 0, data: None, is_cancelled: true, ..self }
    }
}

/// An outcome in the completion queue (libfabric's `fi_cq_tagged_entry`, verbs' `ibv_wc`).
#[derive(Debug)]
pub struct Completion {
    /// What the application has named the operation by: libfabric's context, verbs' work request identifier.
    pub context: u64,
    /// How it has ended.
    pub outcome: Result<Done, OpError>,
    /// No other completion of this operation follows: its buffer is handed back (libfabric's `FI_MULTI_RECV`). Only what a
    /// multi-receive has taken is not the last: see [`Worker::recv_multi`](crate::Worker::recv_multi).
    pub is_last: bool,
}

/// A multi-receive that no message can come for any more.
#[derive(Error)]
#[error("a multi-receive has ended: {why}")]
pub struct MultiReceiveFailed {
    /// Why.
    #[source]
    pub why: OpError,
    /// What is left of its buffer. A clone of the error has none.
    pub rest: Option<Buffer>,
}

impl Clone for MultiReceiveFailed {
    fn clone(&self) -> Self {
        Self { why: self.why.clone(), rest: None }
    }
}

/// It is the same error, whichever of the two has the buffer.
impl PartialEq for MultiReceiveFailed {
    fn eq(&self, other: &Self) -> bool {
        self.why == other.why
    }
}

impl Eq for MultiReceiveFailed {}

/// A message that was longer than the buffer of its receive (`MPI_ERR_TRUNCATE`).
#[derive(Error)]
#[error(
    "a message of {} bytes with tag {} from {} does not fit a receive of {room} bytes",
    .envelope.len, .envelope.tag.get(), .envelope.source
)]
pub struct Truncated {
    /// What the message said of itself.
    pub envelope: Envelope,
    /// The context that it was sent in.
    pub context: Context,
    /// Bytes of the receive's buffer; of a multi-receive, those that are left.
    pub room: usize,
    /// That buffer, as it was. A clone of the error has none, and a multi-receive keeps it.
    pub buffer: Option<Buffer>,
}

impl Clone for Truncated {
    fn clone(&self) -> Self {
        Self { buffer: None, ..*self }
    }
}

/// It is the same error, whichever of the two has the buffer.
impl PartialEq for Truncated {
    fn eq(&self, other: &Self) -> bool {
        (self.envelope, self.context, self.room) == (other.envelope, other.context, other.room)
    }
}

impl Eq for Truncated {}

/// A failed end. Unless the error has it, the buffer went back to the arena.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpError {
    /// The peer is gone, or its connection is.
    #[error("{peer} is gone: {}", how(*.status))]
    PeerGone {
        /// Which peer.
        peer: PeerId,
        /// What the connection said.
        status: WcStatus,
    },
    /// The peer's process has ended, says the launcher.
    #[error("{peer} is gone: {why}")]
    PeerLeft {
        /// Which peer.
        peer: PeerId,
        /// How.
        why: String,
    },
    /// Another endpoint is where the peer was, whose process has been started again; or the peer has removed this end, and begins anew.
    #[error("{peer} is gone: another endpoint has its address, or it begins anew")]
    PeerReplaced {
        /// Which peer.
        peer: PeerId,
    },
    /// The application has removed the peer.
    #[error("{peer} was removed")]
    PeerRemoved {
        /// Which peer.
        peer: PeerId,
    },
    /// The peer could not be connected.
    #[error("{peer} cannot be connected: {why}")]
    NotConnected {
        /// Which peer.
        peer: PeerId,
        /// Why.
        why: Box<NoConnection>,
    },
    /// The peer has ended the connection, and says why.
    #[error("{peer} has given this end up: {why}")]
    GivenUp {
        /// Which peer.
        peer: PeerId,
        /// Why, in its words.
        why: String,
    },
    /// The peer does not keep to the protocol, and its connection was ended.
    #[error("{peer} broke the protocol: {breach}")]
    PeerProtocol {
        /// Which peer.
        peer: PeerId,
        /// What it did.
        breach: Breach,
    },
    /// The peer's key does not allow a one-sided operation that went by message. Nothing of it was done but parts of a put.
    #[error("{peer} denies a one-sided operation: the key does not allow it, or is not valid any more")]
    Denied {
        /// Which peer.
        peer: PeerId,
    },
    /// The peer offers the memory, and cannot register it: it has no key left, or no memory.
    #[error(
        "{peer} cannot register the memory that it offers: raise its ROCI_FIREHOSE_BUCKET, or lower its ROCI_NDREG_ENTRIES"
    )]
    NotPinned {
        /// Which peer.
        peer: PeerId,
    },
    /// The peer has no handler for an active message that was to be replied to, or no memory for its reply.
    #[error("{peer} does not answer: it has no such handler, or no memory for its reply")]
    Unanswered {
        /// Which peer.
        peer: PeerId,
    },
    /// The message was longer than the receive's buffer, which was left alone and comes back.
    #[error(transparent)]
    Truncated(Box<Truncated>),
    /// A multi-receive has ended before its buffer was used up.
    #[error(transparent)]
    MultiReceive(Box<MultiReceiveFailed>),
    /// There is no memory for a message that was to be received in place.
    #[error("no memory for a message of {len} bytes from {peer}: raise ROCI_ARENA_SIZE")]
    NoMemory {
        /// Who sent it.
        peer: PeerId,
        /// Its length.
        len: u64,
    },
    /// The worker is the parent's.
    #[error("this process was forked from the worker's, where the operation goes on")]
    Forked,
    /// All peers are gone, and a receive from any source was waited for, or was posted before. One that is posted later
    /// stays, as in a job of one rank, for messages of this rank to itself.
    #[error("no peer is left that could send this message")]
    NobodyLeft,
    /// The launcher says that the job is over, or is gone itself.
    #[error("the job is over: {0}")]
    Job(String),
    /// All ranks close, and some of them do not answer.
    #[error("no answer from {} for {seconds} s, and {sends} sends are open: is it stopped, or its link down?", list(.peers))]
    Silent {
        /// Which.
        peers: Vec<PeerId>,
        /// Sends that wait for them.
        sends: usize,
        /// How long nothing has come (ROCI_CONNECT_TIMEOUT_S).
        seconds: u64,
    },
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

/// How a connection has ended. That its requests were flushed says nothing: a receive may be the first that does.
fn how(status: WcStatus) -> String {
    let name = status.verbs_name();
    if status == WcStatus::WrFlushErr {
        format!("its connection has ended ({name})")
    } else {
        format!("{status} ({name})")
    }
}

fn list(peers: &[PeerId]) -> String {
    peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Of operations that were waited for together some have failed. The others are over too, and their memory is here.
#[derive(Error)]
#[error("{} of {} operations failed, the first: {}", self.failed(), .outcomes.len(), self.first())]
pub struct SomeFailed {
    /// How each ended, in the order that they were named in.
    pub outcomes: Vec<Result<Done, OpError>>,
}

impl SomeFailed {
    /// All ends, if all are good.
    pub(crate) fn unless_all_are_good(outcomes: Vec<Result<Done, OpError>>) -> Result<Vec<Done>, Self> {
        if outcomes.iter().any(Result::is_err) {
            return Err(Self { outcomes });
        }
        Ok(outcomes.into_iter().filter_map(Result::ok).collect())
    }

    /// The first error.
    pub fn first(&self) -> &OpError {
        // There is one, unless somebody took it out.
        self.outcomes.iter().find_map(|outcome| outcome.as_ref().err()).unwrap_or(&OpError::NoRequest)
    }

    fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_err()).count()
    }
}

impl From<SomeFailed> for OpError {
    fn from(failed: SomeFailed) -> Self {
        failed.outcomes.into_iter().find_map(Result::err).unwrap_or(Self::NoRequest)
    }
}
