//! What the state machine asks of the world, and the work requests that it is given.

use super::WcStatus;
use crate::wire::Headers;
use crate::{Access, Rkey};

/// The world of one call: memory, link and completion queue.
pub trait Env {
    /// The token of a piece of local memory; it moves in with a work request and out with its completion.
    type Buffer;

    /// Sends one packet. The payload is named, not given: the link gathers it.
    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, Self::Buffer>) -> Result<(), TxError>;

    /// Copies `bytes` to `offset` of a local buffer, where they fit: the machine has checked.
    fn place(&mut self, buffer: &mut Self::Buffer, offset: usize, bytes: &[u8]);

    /// Whether the peer may do `access` on `len` bytes at `va` of the region under `rkey`.
    fn authorize(&self, rkey: Rkey, va: u64, len: u64, access: Access) -> Result<(), Denied>;

    /// Writes for the peer. The region may have gone since [`Env::authorize`]: checks again.
    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied>;

    /// A work request is done; its buffer returns. Called for unsignaled ones too.
    fn complete(&mut self, completion: Completion<Self::Buffer>);
}

/// The region under a key does not allow an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied;

/// Where a packet's payload comes from.
#[derive(Debug)]
pub enum Payload<'a, B> {
    /// No payload.
    None,
    /// `len` bytes at `offset` of a local buffer.
    Local {
        /// The buffer.
        buffer: &'a B,
        /// Where the payload starts.
        offset: usize,
        /// How long it is.
        len: usize,
    },
    /// Memory that the peer reads.
    Remote {
        /// The region's key, to be checked again.
        rkey: Rkey,
        /// Where the payload starts.
        va: u64,
        /// How long it is.
        len: usize,
    },
}

/// Why a packet was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxError {
    /// The link is full; nothing was sent, and the machine tries again when it is pumped.
    Busy,
    /// The region that the peer reads has gone.
    Denied,
}

/// An address at the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address within the region.
    pub va: u64,
    /// The region's key.
    pub rkey: Rkey,
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Delivers the buffer to a posted receive.
    Send {
        /// Immediate data for the receiver's completion.
        imm: Option<u32>,
    },
    /// Writes the buffer to the peer's memory.
    Write {
        /// Where.
        remote: Remote,
        /// With immediate data the peer also consumes a receive and is told.
        imm: Option<u32>,
    },
    /// Fills the buffer from the peer's memory.
    Read {
        /// From where.
        remote: Remote,
    },
}

/// A work request for the send queue.
#[derive(Debug, PartialEq, Eq)]
pub struct SendRequest<B> {
    /// The caller's name for it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// The memory to send from or to read into.
    pub buffer: B,
    /// How many of its bytes take part.
    pub len: u32,
    /// Whether success is reported (errors always are).
    pub signaled: bool,
    /// Whether the receiver's completion raises an event.
    pub solicited: bool,
    /// Wait for all earlier READs before starting (IBTA 10.8.3.3).
    pub fence: bool,
}

/// A work request for the receive queue.
#[derive(Debug, PartialEq, Eq)]
pub struct RecvRequest<B> {
    /// The caller's name for it.
    pub wr_id: u64,
    /// The memory that a message is placed in.
    pub buffer: B,
    /// How many bytes it holds.
    pub len: u32,
}

/// Which operation completed (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A SEND of ours.
    Send,
    /// An RDMA WRITE of ours.
    Write,
    /// An RDMA READ of ours.
    Read,
    /// A message arrived in a receive.
    Recv,
    /// The peer wrote with immediate data; `len` counts the bytes that it wrote.
    RecvRdmaWithImm,
}

/// The end of a work request.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<B> {
    /// The caller's name.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub operation: Operation,
    /// Bytes received, read or sent; meaningful on success.
    pub len: u32,
    /// Immediate data from the peer.
    pub imm: Option<u32>,
    /// Whether the poster wants to hear of success.
    pub signaled: bool,
    /// The memory, handed back.
    pub buffer: B,
}

impl SendOp {
    /// The operation that its completion names.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Send { .. } => Operation::Send,
            Self::Write { .. } => Operation::Write,
            Self::Read { .. } => Operation::Read,
        }
    }
}
