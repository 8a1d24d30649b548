//! The receive queues of a rank, in the notation of Open MPI's openib BTL: entries separated by `:`, their fields by
//! `,`, and the buffers of each larger than those of the one before.
//!
//! - `P,size,num[,low[,win[,rsv]]]` is a queue per peer, with flow control by credits.
//! - `S,size,num[,low[,maxsends[,init[,limit]]]]` is a shared receive queue for all peers together.
//!
//! An optional field that is left out, or empty, takes its default; those are openib's, as its help texts give them.
//! What is shown again has every field.
//!
//! ```
//! use roci_msgcore::receive_queues::ReceiveQueues;
//!
//! let queues: ReceiveQueues = "P,512,64:S,8KiB,1024".parse()?;
//! assert_eq!(queues.to_string(), "P,512,64,32,16,7:S,8KiB,1024,512,128,256,48");
//! assert_eq!(queues.for_len(4096), Some(1));
//! # Ok::<(), roci_msgcore::receive_queues::ReceiveQueuesError>(())
//! ```

mod error;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use arrayvec::ArrayVec;
use roci_protocol::msg;

pub use error::{Entry, ReceiveQueuesError};

use crate::units::show_size;

/// Receive queues that a rank may have.
pub const MAX_QUEUES: usize = 8;

/// Credits that the queues of one peer may have together, where there are several: messages of one queue overtake those
/// of another, and as many as there are credits may have to wait for their turn.
pub(crate) const MAX_CREDITS_TOGETHER: u32 = 4096;

/// Who uses a queue, and how many buffers it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// One queue for each peer; a message costs its sender a credit.
    PerPeer {
        /// Buffers posted for each peer, which is also the number of its credits.
        num: u32,
        /// Buffers are posted again when so few are left. Default: half of `num`.
        low: u32,
        /// Credits owed before they are returned in a message of their own. Default: half of `low`, at least 1.
        window: u32,
        /// Buffers beyond `num`, for messages that cost no credit. Default: as many returns as twice `num` credits
        /// can make, `(2 * num - 1) / window`.
        reserve: u32,
    },
    /// One queue for all peers together.
    Shared {
        /// Buffers that the queue grows to.
        num: u32,
        /// The queue is refilled when so few are left. Default: half of `num`.
        low: u32,
        /// Messages that one peer may have outstanding on the queue. Default: a quarter of `low`, at least 1.
        max_sends: u32,
        /// Buffers posted at the start. Default: a quarter of `num`, at least 1, so that a quiet rank stays small.
        init: u32,
        /// Fewer buffers than this are a shortage: the queue is refilled at once, and may grow. 0 watches for none.
        /// Default: three sixteenths of `init`, at least 1.
        limit: u32,
    },
}

/// One receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveQueue {
    /// Who uses it, and how many buffers it has.
    pub kind: Kind,
    /// Bytes of a buffer.
    pub size: usize,
}

/// All receive queues of a rank: at least one, by ascending size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveQueues(ArrayVec<ReceiveQueue, MAX_QUEUES>);

/// One credit for an eager message and one for an announcement.
const LEAST_SHARED_CREDITS: u32 = 2;

impl Kind {
    /// Matched messages that a peer may have under way to it.
    pub(crate) const fn credits(&self) -> u32 {
        match *self {
            Self::PerPeer { num, .. } => num,
            Self::Shared { max_sends, .. } => max_sends,
        }
    }

    /// The same with as many credits as keep everything moving: one each for an eager message, an announcement, and where
    /// those cost one a control message.
    #[must_use]
    pub(crate) fn with_least_credits(self) -> Self {
        match self {
            Self::PerPeer { num, low, window, reserve } => Self::PerPeer { num: num.max(3), low, window, reserve },
            Self::Shared { num, low, max_sends, init, limit } => {
                Self::Shared { num, low, max_sends: max_sends.max(LEAST_SHARED_CREDITS), init, limit }
            }
        }
    }

    /// The same, as it is granted to the peer.
    pub(crate) fn granted(&self) -> u16 {
        self.credits().min(u16::MAX.into()) as u16
    }

    /// Receives of each peer's own: as many as it has credits, and the reserve.
    pub(crate) fn own(&self) -> Option<(usize, usize)> {
        match *self {
            Self::PerPeer { num, reserve, .. } => Some((num as usize, reserve as usize)),
            Self::Shared { .. } => None,
        }
    }

    const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

impl ReceiveQueue {
    /// Memory that its buffers take: for each peer, or of a shared queue for all together once it has grown.
    pub const fn bytes(&self) -> usize {
        let buffers = match self.kind {
            Kind::PerPeer { num, reserve, .. } => num as usize + reserve as usize,
            Kind::Shared { num, .. } => num as usize,
        };
        buffers * self.size
    }
}

impl ReceiveQueues {
    /// The same queues with as many credits as keep everything moving.
    #[must_use]
    pub(crate) fn with_least_credits(mut self) -> Self {
        for queue in &mut self.0 {
            queue.kind = queue.kind.with_least_credits();
        }
        self
    }

    /// The same queues with no more credits on those that all peers share than `room` bytes hold, where each of `peers` leaves all
    /// its messages without a receive; two at least. Queues of a peer's own need no such bound: their receives are posted.
    #[must_use]
    pub(crate) fn with_shared_credits_within(mut self, room: usize, peers: usize) -> Self {
        let room_of_each = room / self.0.iter().filter(|queue| queue.kind.is_shared()).count().max(1);
        for queue in &mut self.0 {
            if let Kind::Shared { max_sends, .. } = &mut queue.kind {
                let most = room_of_each / queue.size / peers.max(1);
                *max_sends = (*max_sends).min(most.max(LEAST_SHARED_CREDITS as usize) as u32);
            }
        }
        self
    }

    /// A single queue, which the caller has made as the notation would have it.
    pub(crate) fn one(queue: ReceiveQueue) -> Self {
        Self(std::iter::once(queue).collect())
    }

    /// The queues, by ascending size.
    pub fn iter(&self) -> std::slice::Iter<'_, ReceiveQueue> {
        self.0.iter()
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The queue with this index.
    pub fn get(&self, index: usize) -> Option<&ReceiveQueue> {
        self.0.get(index)
    }

    /// The index of the smallest queue whose buffers hold so many bytes, header included; `None` where none do.
    pub fn for_len(&self, bytes: usize) -> Option<usize> {
        self.iter().position(|queue| bytes <= queue.size)
    }

    /// Bytes of the largest buffers: the longest message that is received, header included.
    pub fn largest(&self) -> usize {
        self.0.last().map_or(0, |queue| queue.size)
    }

    /// Bytes of a message's payload at most: what the largest buffers hold beside the header.
    pub fn max_payload(&self) -> usize {
        self.largest() - msg::LEN
    }

    /// Memory for the buffers of one more peer.
    pub fn bytes_per_connection(&self) -> usize {
        self.iter().filter(|queue| !queue.kind.is_shared()).map(ReceiveQueue::bytes).sum()
    }

    /// Returns the bytes that so many peers may leave without a receive on the queues that they share: all that they have credits
    /// for.
    pub(crate) fn bytes_storable(&self, peers: usize) -> usize {
        let shared = self.iter().filter(|queue| queue.kind.is_shared());
        shared.map(|queue| peers * queue.kind.credits() as usize * queue.size).sum()
    }

    /// Memory for the buffers that all peers share, once the queues have grown.
    pub fn bytes_shared(&self) -> usize {
        self.iter().filter(|queue| queue.kind.is_shared()).map(ReceiveQueue::bytes).sum()
    }
}

impl<'a> IntoIterator for &'a ReceiveQueues {
    type Item = &'a ReceiveQueue;
    type IntoIter = std::slice::Iter<'a, ReceiveQueue>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ReceiveQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, queue) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{queue}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = show_size(&self.size);
        match self.kind {
            Kind::PerPeer { num, low, window, reserve } => write!(f, "P,{size},{num},{low},{window},{reserve}"),
            Kind::Shared { num, low, max_sends, init, limit } => {
                write!(f, "S,{size},{num},{low},{max_sends},{init},{limit}")
            }
        }
    }
}
