//! What the state machine asks of the world, and the work requests that it is given.

use super::{Dialect, Held, WcStatus};
use crate::wire::{HeaderWords, Headers, Packet};
use crate::{Access, Mtu, Rkey};

/// The world of one call: memory, link and completion queue.
pub trait Env {
    /// The token of a piece of local memory; it moves in with a work request and out with its completion.
    type Buffer;

    /// Sends one packet. The payload is named, not given: the link gathers it.
    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, Self::Buffer>) -> Result<(), TxError>;

    /// [`Env::transmit`] for headers that are words.
    #[inline]
    fn transmit_words(&mut self, headers: &HeaderWords, payload: Payload<'_, Self::Buffer>) -> Result<(), TxError> {
        self.transmit(&headers.to_headers(), payload)
    }

    /// Copies `bytes` to `offset` of a local buffer, where they fit: the machine has checked.
    fn place(&mut self, buffer: &mut Self::Buffer, offset: usize, bytes: &[u8]);

    /// Offers the message of a SEND, which is in one packet, for the receive that the caller named `wr_id`. Where it is taken,
    /// the receive stays posted, and does not complete.
    #[inline]
    fn offer(&mut self, wr_id: u64, message: &[u8]) -> bool {
        let _ = (wr_id, message);
        false
    }

    /// Whether the peer may do `access` on `len` bytes at `va` of the region under `rkey`.
    fn authorize(&self, rkey: Rkey, va: u64, len: u64, access: Access) -> Result<(), Denied>;

    /// Writes for the peer. The region may have gone since [`Env::authorize`]: checks again.
    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied>;

    /// Executes `operation` on the 8 bytes at `va`, which is a multiple of 8, and returns what they held.
    /// Nothing else may see or change them meanwhile. Operands are numbers of this host's byte order.
    fn atomic(&mut self, rkey: Rkey, va: u64, operation: AtomicOperation) -> Result<u64, Denied>;

    /// Ends the memory window under `rkey` for the peer (IBTA 10.6.5): denied unless it is one that this queue
    /// pair bound, and then nothing has changed.
    fn invalidate(&mut self, rkey: Rkey) -> Result<(), Denied>;

    /// Executes a work request that never reaches the wire: [`SendOp::BindWindow`], [`SendOp::LocalInvalidate`].
    fn execute_local(&mut self, operation: SendOp) -> Result<(), Denied>;

    /// Takes a receive from the shared queue of a queue pair that has one.
    fn take_shared_receive(&mut self) -> Option<RecvRequest<Self::Buffer>> {
        None
    }

    /// Gives back a receive that [`Env::take_shared_receive`] gave: it is the next one again.
    fn return_shared_receive(&mut self, receive: RecvRequest<Self::Buffer>) {
        self.complete(receive.flushed());
    }

    /// Keeps the packet that the machine was just given as `held`, to be given to it again once its PSN is the next one.
    /// `false` where there is no room.
    fn hold(&mut self, _held: Held) -> bool {
        false
    }

    /// Whether the packet that is kept as `held` says what `packet` says.
    fn holds_same(&self, _held: Held, _packet: &Packet<'_>) -> bool {
        true
    }

    /// The packet that is kept as `held` is not wanted any more.
    fn release(&mut self, _held: Held) {}

    /// Offers the memory of the SEND or WRITE of this name, which has ended well. Where it is taken, the request does not complete;
    /// else it comes back.
    #[inline]
    fn take_back(&mut self, wr_id: u64, operation: Operation, memory: Self::Buffer) -> Option<Self::Buffer> {
        let _ = (wr_id, operation);
        Some(memory)
    }

    /// A work request is done; its buffer returns. Called for unsignaled ones too.
    fn complete(&mut self, completion: RcCompletion<Self::Buffer>);
}

/// The region under a key does not allow an access.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the region under the key does not allow this access")]
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
    /// Bytes of the machine's own: the body of a notification, or a map of what has arrived.
    Bytes(&'a [u8]),
}

/// What an atomic operation does with the value that it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOperation {
    /// Replaces it by `swap` where it equals `compare`.
    CompareSwap {
        /// What it is compared with.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Adds to it, modulo 2^64.
    FetchAdd {
        /// What is added.
        add: u64,
    },
}

impl AtomicOperation {
    /// The value that `original` becomes.
    #[inline]
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if original == compare => swap,
            Self::CompareSwap { .. } => original,
            Self::FetchAdd { add } => original.wrapping_add(add),
        }
    }
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
    /// Delivers the buffer to a posted receive and ends a memory window of the peer's.
    SendInvalidate {
        /// The window's key.
        rkey: Rkey,
    },
    /// Writes the buffer to the peer's memory.
    Write {
        /// Where.
        remote: Remote,
        /// With immediate data the peer also consumes a receive and gets a completion.
        imm: Option<u32>,
    },
    /// Fills the buffer from the peer's memory.
    Read {
        /// From where.
        remote: Remote,
    },
    /// Operates on 8 bytes of the peer's memory; the buffer takes the value that they held.
    Atomic {
        /// Where: the address is a multiple of 8.
        remote: Remote,
        /// What to do.
        operation: AtomicOperation,
    },
    /// Makes a memory window of this host valid for a part of a region. No packet is sent, no memory takes part.
    BindWindow {
        /// The key that the window takes.
        window: Rkey,
        /// The region's key.
        region: Rkey,
        /// Where the window begins in the region; its own addresses are the region's.
        va: u64,
        /// How long it is.
        len: u64,
        /// What the peer may do through it.
        access: Access,
    },
    /// Ends a memory window of this host. No packet is sent, no memory takes part.
    LocalInvalidate {
        /// The window's key.
        rkey: Rkey,
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
    /// Wait for all earlier READs and atomics before starting (IBTA 10.8.3.3).
    pub fence: bool,
    /// Ask for an acknowledgement at once (BTH's AckReq). Where none is asked for, a peer of ours acknowledges the message later,
    /// together with others; a verbs peer would not acknowledge it at all, and is always asked.
    pub ack_req: bool,
}

impl<B> SendRequest<B> {
    /// Ends well: its memory returns, alone or in a completion.
    #[inline]
    pub(super) fn succeed<E: Env<Buffer = B>>(self, env: &mut E) {
        if !(self.signaled && matches!(self.op, SendOp::Send { .. } | SendOp::Write { .. })) {
            return env.complete(self.ended(WcStatus::Success));
        }
        if let Some(buffer) = env.take_back(self.wr_id, self.op.operation(), self.buffer) {
            env.complete(Self { buffer, ..self }.ended(WcStatus::Success));
        }
    }

    /// Its end.
    pub(super) fn ended(self, status: WcStatus) -> RcCompletion<B> {
        RcCompletion {
            wr_id: self.wr_id,
            status,
            operation: self.op.operation(),
            len: self.len,
            imm: None,
            invalidated: None,
            solicited: !status.is_success(),
            signaled: self.signaled,
            buffer: self.buffer,
        }
    }
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

impl<B> RecvRequest<B> {
    /// Its end where no message came.
    pub(super) fn flushed(self) -> RcCompletion<B> {
        RcCompletion {
            wr_id: self.wr_id,
            status: WcStatus::WrFlushErr,
            operation: Operation::Recv,
            len: 0,
            imm: None,
            invalidated: None,
            solicited: true,
            signaled: true,
            buffer: self.buffer,
        }
    }
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
    /// A COMPARE_SWAP of ours.
    CompareSwap,
    /// A FETCH_ADD of ours.
    FetchAdd,
    /// A memory window was bound.
    BindWindow,
    /// A memory window was ended.
    LocalInvalidate,
    /// A message arrived in a receive.
    Recv,
    /// The peer wrote with immediate data; `len` counts the bytes that it wrote.
    RecvRdmaWithImm,
}

/// The end of a work request.
#[derive(Debug, PartialEq, Eq)]
pub struct RcCompletion<B> {
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
    /// The memory window that the peer's message ended.
    pub invalidated: Option<Rkey>,
    /// The peer asked for its receiver to be woken (IBTA 9.2.3), or the work request failed.
    pub solicited: bool,
    /// Whether the poster wants to hear of success.
    pub signaled: bool,
    /// The memory, handed back.
    pub buffer: B,
}

impl SendOp {
    /// The operation that its completion names.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Send { .. } | Self::SendInvalidate { .. } => Operation::Send,
            Self::Write { .. } => Operation::Write,
            Self::Read { .. } => Operation::Read,
            Self::Atomic { operation: AtomicOperation::CompareSwap { .. }, .. } => Operation::CompareSwap,
            Self::Atomic { operation: AtomicOperation::FetchAdd { .. }, .. } => Operation::FetchAdd,
            Self::BindWindow { .. } => Operation::BindWindow,
            Self::LocalInvalidate { .. } => Operation::LocalInvalidate,
        }
    }

    /// Whether it is answered by data (READ, atomics), which counts against `max_rd_atomic`.
    #[inline]
    pub(super) const fn is_fetch(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }

    /// Whether it has a message number. Between two ends of ours a READ is sent as any number of requests, so READs and
    /// atomics have none.
    #[inline]
    pub(super) const fn counts_as_message(&self, dialect: Dialect) -> bool {
        match dialect {
            Dialect::Verbs => !self.is_local(),
            Dialect::Rocinante => !self.is_local() && !self.is_fetch(),
        }
    }

    /// Whether it never reaches the wire.
    #[inline]
    pub(super) const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow { .. } | Self::LocalInvalidate { .. })
    }

    /// Whether the peer needs a receive for it (IBTA 9.7.7.2: such messages consume an end-to-end credit).
    #[inline]
    pub(super) const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::SendInvalidate { .. } | Self::Write { imm: Some(_), .. })
    }

    /// How many PSNs it takes.
    pub(super) const fn packets(&self, len: u32, mtu: Mtu) -> u32 {
        match self {
            Self::Atomic { .. } => 1,
            Self::BindWindow { .. } | Self::LocalInvalidate { .. } => 0,
            _ => mtu.packets(len),
        }
    }
}
