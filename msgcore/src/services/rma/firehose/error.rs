//! What can go wrong, by name.

use thiserror::Error;

use super::bucket::{BadSpan, Bucket};
use super::operations::Hold;
use super::pin_error::PinError;
use super::wire::BadFirehoseMessage;
use crate::Rank;

/// Why an acquire was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AcquireError {
    /// There is no such rank.
    #[error("rank {rank} is none of this job of {size}")]
    NoPeer {
        /// What was given.
        rank: Rank,
        /// How many ranks there are.
        size: usize,
    },
    /// Firehoses lead to other ranks.
    #[error("rank {0} is this one")]
    Oneself(Rank),
    /// It has failed, or left.
    #[error("rank {0} is gone")]
    PeerGone(Rank),
    /// The bytes make no sense.
    #[error(transparent)]
    Span(#[from] BadSpan),
    /// The peer does not offer this memory.
    #[error("{count} buckets from {first} on lie outside the segment of rank {rank}")]
    OutsideSegment {
        /// Whose.
        rank: Rank,
        /// The first bucket.
        first: u64,
        /// How many.
        count: u64,
    },
    /// It would wait for ever.
    #[error("{buckets} buckets at once, and there are never more than {most}: split the transfer")]
    TooLarge {
        /// How many the transfer touches.
        buckets: u64,
        /// How many one may touch.
        most: u64,
    },
    /// The limit of what may be under way.
    #[error("{0} transfers hold memory or wait for it: release some of them first")]
    TooMany(usize),
}

/// Why an operation that waited will never have its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failed {
    /// The peer has failed, or left.
    #[error("rank {0} is gone")]
    PeerGone(Rank),
    /// The peer could not pin its memory.
    #[error("rank {rank} refused to pin its memory: {reason}")]
    Refused {
        /// Which.
        rank: Rank,
        /// What it said.
        reason: PinError,
    },
}

/// The handle belongs to no operation of this engine; it comes back.
#[derive(PartialEq, Eq, Debug, Error)]
#[error("no such operation here: release it where it was granted")]
pub struct UnknownHold(pub Hold);

/// What a peer did that no peer does. Nothing has come of it; the connection should be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FirehoseBreach {
    /// Its rank is none, or this one's.
    #[error("a message from rank {0}, which is no peer")]
    NoPeer(Rank),
    /// It was given up.
    #[error("a message from rank {0}, which is gone")]
    Gone(Rank),
    /// The bytes are no message.
    #[error(transparent)]
    Message(#[from] BadFirehoseMessage),
    /// It asks for more firehoses than one request may.
    #[error("it asks for {buckets} firehoses at once, and may ask for {most}")]
    TooManyAtOnce {
        /// How many.
        buckets: u64,
        /// How many it may.
        most: u64,
    },
    /// It would hold more firehoses than are its share.
    #[error("it would hold {buckets} firehoses, and its share is {most}")]
    MoreThanItsShare {
        /// How many.
        buckets: u64,
        /// Its share.
        most: u64,
    },
    /// It wants memory that is not offered.
    #[error("it asks for {0:?}, which lies outside this rank's segment")]
    OutsideSegment(Bucket),
    /// It has the firehose already, or asks for it twice.
    #[error("it asks for {0:?}, to which it holds a firehose already")]
    HeldAlready(Bucket),
    /// It gives back what it does not have, or gives it back twice.
    #[error("it gives back {0:?}, to which it holds no firehose")]
    NotHeld(Bucket),
    /// It answers what was not asked.
    #[error("it answers move {0:#x}, which is none to it under way")]
    UnknownMove(u64),
    /// It answers with too many keys or too few.
    #[error("it answers with {got} keys, and {wanted} buckets were asked for")]
    Keys {
        /// How many.
        got: usize,
        /// How many are right.
        wanted: u64,
    },
}
