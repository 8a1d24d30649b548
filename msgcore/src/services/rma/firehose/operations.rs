//! Operations: what the application has acquired, or waits for.

use super::bucket::{Region, Span};
use crate::core::peer_id::PeerId;
use crate::core::slab::Key;

/// An operation, as the engine names it.
pub(super) type OperationId = Key;

/// The most moves that one peer may leave unanswered; what would need another one waits.
pub(super) const MOST_MOVES: usize = 1024;

/// The most operations there may be.
pub(super) const MOST_OPERATIONS: usize = 1 << 16;

/// Memory that an operation holds, until it is released: it stays pinned meanwhile, whatever others need.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the memory is held until it is released"]
pub struct Hold(pub(super) OperationId);

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It stands in line, and holds nothing.
    InLine,
    /// It holds its place in every table, and waits for the answers to so many moves.
    Moving(u32),
    /// The application has it.
    Granted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FirehoseOperation {
    pub(super) peer: PeerId,
    pub(super) span: Span,
    pub(super) region: Region,
    pub(super) context: u64,
    pub(super) phase: Phase,
}
