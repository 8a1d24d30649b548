//! What a simulated world shows that must not be.

use thiserror::Error;

use crate::Rkey;
use crate::rc::{Operation, RcCompletion, WcStatus};

/// What a receive's completion says of its message: operation, immediate data, invalidated window, length, and whether it was
/// solicited.
pub type ReceivedParts = (Operation, Option<u32>, Option<Rkey>, u32, bool);

/// What a simulated world shows that must not be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Deviation {
    /// Nothing was due.
    #[error("a completion too many: {operation:?} {wr_id} with {}", .status.verbs_name())]
    OneTooMany {
        /// What completed.
        operation: Operation,
        /// Its number.
        wr_id: u64,
        /// How it ended.
        status: WcStatus,
    },
    /// A request ended as it must not.
    #[error("wr {wr_id} ended with {}", .status.verbs_name())]
    SendStatus {
        /// Its number.
        wr_id: u64,
        /// How it ended.
        status: WcStatus,
    },
    /// A request completed before another one, or as another operation.
    #[error("wr {wr_id} completed where wr {due} was due")]
    Order {
        /// Its number.
        wr_id: u64,
        /// The one that was due.
        due: u64,
    },
    /// A READ or an atomic fetched something else than there was.
    #[error("wr {0} fetched wrong bytes")]
    Fetched(u64),
    /// A receive ended as it must not.
    #[error("receive {wr_id} ended with {}", .status.verbs_name())]
    ReceiveStatus {
        /// Its number.
        wr_id: u64,
        /// How it ended.
        status: WcStatus,
    },
    /// A receive took something else than was sent.
    #[error("received {got:?} where {due:?} was due")]
    Received {
        /// What it says of the message.
        got: ReceivedParts,
        /// What was sent.
        due: ReceivedParts,
    },
    /// A receive holds other bytes than were sent.
    #[error("receive {0} holds wrong bytes")]
    Bytes(u64),
    /// A WRITE is done, and memory does not show it.
    #[error("wr {wr_id} is done, and node {node}'s memory differs at {at:#x}")]
    Unwritten {
        /// Its number.
        wr_id: u64,
        /// Whose memory it is.
        node: usize,
        /// Where it differs first.
        at: usize,
    },
    /// The words at the end are not what atomics made of them.
    #[error("node {node}'s words are {words:?} and not {due:?}")]
    Words {
        /// Whose they are.
        node: usize,
        /// What they are.
        words: Vec<u64>,
        /// What they must be.
        due: Vec<u64>,
    },
    /// The memory at the end is not what WRITEs made of it.
    #[error("node {node}'s memory differs at {at:#x}")]
    Memory {
        /// Whose it is.
        node: usize,
        /// Where it differs first.
        at: usize,
    },
    /// A node keeps packets that came too early, and has no use for them.
    #[error("of {0} packets that it kept it executed none")]
    KeptInVain(u64),
    /// Nothing happens any more, and work is open.
    #[error("no progress: the connection stalled")]
    Stalled,
}

impl Deviation {
    pub(super) fn one_too_many(done: &RcCompletion<Vec<u8>>) -> Self {
        Self::OneTooMany { operation: done.operation, wr_id: done.wr_id, status: done.status }
    }
}
