//! READs, WRITEs and atomics of services, and those that wait. They go by RDMA where both ends have it ([`super::rdma`]); what RDMA
//! does not do, and all of them where an end has none, goes by messages that the peer acts upon ([`super::by_message`]).

use std::collections::VecDeque;

use roci_driver::{AtomicOperation, Buffer, Rkey};
use roci_protocol::msg::{AtomicOp, AtomicWidth, Message};

/// Bytes of READs and WRITEs under way to one peer: with the smallest packets half of what a send queue can number.
pub(crate) const TRANSFER_LIMIT: usize = 1 << 30;

/// The READs, WRITEs and atomics to and from one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerTransfers {
    /// Those to be posted; they cost no credit where they go by RDMA.
    pub(super) waiting: VecDeque<WaitingTransfer>,
    /// Bytes of those posted and not complete.
    in_flight: usize,
    /// Those that went by message, and that the peer has not answered.
    pub(super) replies_due: usize,
    /// The next one waits for all before it.
    is_fence_due: bool,
    /// There was a fence.
    was_fenced: bool,
    /// Operations that are not all transfers yet: on memory that the peer offers, and those with a signal that waits for its put.
    partial: usize,
    /// What the peer has asked for by message.
    pub(super) served: VecDeque<ServedGet>,
    /// Bytes of copies that are being written to the peer because it has asked for them.
    served_bytes: usize,
}

/// Bytes of copies for one peer, unless a single one is longer.
const SERVED_BYTES: usize = 1 << 20;

/// A READ, WRITE or atomic to be posted.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Its service's name for the operation: the work request's identifier.
    pub(crate) operation: u64,
    pub(crate) buffer: Buffer,
    pub(crate) rkey: Rkey,
    pub(crate) va: u64,
    pub(crate) direction: Direction,
    /// The peer is to act upon a message, even where there is RDMA: a get is written or sent by the peer then.
    pub(crate) by_message: bool,
}

/// Which way a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From the peer.
    Read,
    /// To the peer, which gets this message behind it.
    Write { then: Option<Message> },
    /// A number of the peer's changes, and what it was comes back.
    Atomic { op: AtomicOp, width: AtomicWidth },
}

impl Direction {
    /// A WRITE with nothing behind it.
    pub(crate) const WRITE: Self = Self::Write { then: None };

    /// Returns how many bytes it moves of a buffer.
    #[inline]
    pub(crate) fn len_of(self, buffer: &Buffer) -> usize {
        match self {
            Self::Atomic { width, .. } => width.len(),
            Self::Read | Self::Write { .. } => buffer.len(),
        }
    }
}

impl Transfer {
    /// Whether it does not go by RDMA even where there is any.
    #[inline]
    pub(super) fn needs_message(&self) -> bool {
        let has_rdma = match self.direction {
            Direction::Read | Direction::Write { .. } => true,
            Direction::Atomic { op, width } => width == AtomicWidth::U64 && rdma_atomic(op).is_some(),
        };
        self.by_message || !has_rdma
    }
}

/// Returns the atomic of RDMA that does the same, if there is one.
pub(super) fn rdma_atomic(op: AtomicOp) -> Option<AtomicOperation> {
    match op {
        AtomicOp::Add(add) => Some(AtomicOperation::FetchAdd { add }),
        AtomicOp::CompareSwap { compare, swap } => Some(AtomicOperation::CompareSwap { compare, swap }),
        _ => None,
    }
}

/// A transfer that waits to be posted.
#[derive(Debug)]
pub(super) struct WaitingTransfer {
    pub(super) transfer: Transfer,
    /// It waits for all before it.
    pub(super) is_fenced: bool,
    /// Bytes of it that have left in messages.
    pub(super) sent: usize,
}

/// What a peer has asked for by message, and how much of it has left.
#[derive(Debug)]
pub(super) struct ServedGet {
    /// The key to the peer's memory, where that is open.
    pub(super) into: Option<Rkey>,
    pub(super) rkey: Rkey,
    pub(super) va: u64,
    pub(super) len: usize,
    pub(super) sent: usize,
    pub(super) reply: u64,
}

impl PeerTransfers {
    /// Queues a transfer.
    pub(crate) fn push(&mut self, transfer: Transfer) {
        let is_fenced = std::mem::take(&mut self.is_fence_due);
        self.waiting.push_back(WaitingTransfer { transfer, is_fenced, sent: 0 });
    }

    /// The next transfer begins when those before it have been done.
    pub(crate) fn fence(&mut self) {
        self.is_fence_due = true;
        self.was_fenced = true;
    }

    /// Whether a message may overtake all transfers: no fence could ever have been meant to keep it back.
    pub(crate) fn may_be_overtaken(&self) -> bool {
        !self.was_fenced
    }

    /// An operation begins that will be more transfers than there are.
    pub(crate) fn begin_partial(&mut self) {
        self.partial += 1;
    }

    /// An operation has ended, or is all transfers now.
    pub(crate) fn end_partial(&mut self) {
        assert!(self.partial > 0, "an operation ends once");
        self.partial -= 1;
    }

    /// Returns how many operations will be more transfers than there are.
    pub(crate) fn partial(&self) -> usize {
        self.partial
    }

    /// Whether a transfer that begins now overtakes nothing, and waits for nothing.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && !self.is_fence_due
    }

    /// Whether nothing waits to be posted, or to be sent because the peer has asked for it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.served.is_empty()
    }

    /// Whether all of this end's own have left, and those by message are answered.
    pub(crate) fn has_left(&self) -> bool {
        self.waiting.is_empty() && !self.awaits_replies()
    }

    /// Whether the peer owes answers.
    pub(crate) fn awaits_replies(&self) -> bool {
        self.replies_due > 0
    }

    /// Whether so many bytes more may be under way.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.in_flight == 0 || self.in_flight + len <= TRANSFER_LIMIT
    }

    /// A READ or WRITE begins.
    pub(crate) fn begin(&mut self, len: usize) {
        self.in_flight += len;
    }

    /// A READ or WRITE has ended.
    pub(crate) fn end(&mut self, len: usize) {
        assert!(len <= self.in_flight, "a transfer ends once");
        self.in_flight -= len;
    }

    /// Whether a copy of so many bytes may be made for the peer.
    pub(super) fn may_serve(&self, len: usize) -> bool {
        self.served_bytes == 0 || self.served_bytes + len <= SERVED_BYTES
    }

    /// A copy is written to the peer.
    pub(super) fn begin_served(&mut self, len: usize) {
        self.served_bytes += len;
    }

    /// A copy was written to the peer.
    pub(crate) fn end_served(&mut self, len: usize) {
        self.end(len);
        self.served_bytes -= len;
    }

    /// Returns how many transfers wait, how many the peer has not answered, and what it waits for.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.waiting.len(), self.replies_due, self.served.len())
    }

    /// Takes the next transfer, which may come back.
    pub(super) fn take_waiting(&mut self) -> Option<WaitingTransfer> {
        self.waiting.pop_front()
    }

    /// A transfer of which a part has left is the next one again.
    pub(super) fn put_back(&mut self, transfer: WaitingTransfer) {
        self.waiting.push_front(transfer);
    }

    /// Takes the next transfer to be posted.
    pub(super) fn take_next(&mut self) -> Option<Transfer> {
        self.waiting.pop_front().map(|next| next.transfer)
    }
}
