//! Why work requests are refused, and the check of what their buffers are for.

use roci_protocol::rc::{RcPostError, SendOp};
use thiserror::Error;

use crate::mem::WrongKind;
use crate::wr::SendWr;

/// Why a work request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The handle's queue pair was destroyed.
    #[error("no such queue pair")]
    NoQueuePair,
    /// The handle's shared receive queue is full.
    #[error("the shared receive queue is full")]
    SharedQueueFull,
    /// The handle's memory window was ended.
    #[error("no such memory window")]
    NoWindow,
    /// No memory is left in the arena for the work request.
    #[error("the arena is full")]
    NoMemory,
    /// The buffer is not of the kind that the request needs.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// A datagram is longer than a packet.
    #[error("a datagram holds at most {0} bytes")]
    DatagramTooLong(usize),
    /// The handle's address was destroyed.
    #[error("no such address handle")]
    NoAddressHandle,
    /// The completion queue has no place for another end: poll it.
    #[error("the completion queue is full: poll it first")]
    CompletionQueueFull,
    /// The engine is the parent's: see [`Engine::is_forked`](crate::Engine::is_forked).
    #[error("this process was forked from the engine's: open an engine of its own")]
    Forked,
    /// The queue pair refused.
    #[error(transparent)]
    QueuePair(#[from] RcPostError),
}

/// Whether a request may use its buffer, which is the application's own, as it does.
#[cold]
pub(super) fn check_kind(request: &SendWr) -> Result<(), WrongKind> {
    match request.0.op {
        SendOp::Read { .. } | SendOp::Atomic { .. } => request.0.buffer.check_filled(),
        _ => request.0.buffer.check_sent(),
    }
}
