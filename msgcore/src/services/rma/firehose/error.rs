//! What can go wrong, by name.

use thiserror::Error;

use super::bucket::{BadSpan, Bucket};
use super::pin_error::PinError;
use super::wire::BadFirehoseMessage;
use crate::core::peer_id::PeerId;

/// Why an acquire was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The bytes make no sense.
    #[error(transparent)]
    Span(#[from] BadSpan),
    /// What the peer is said to give is not what it was said to give before.
    #[error("{0} is said to have other buckets, or other firehoses, than before")]
    OtherShare(PeerId),
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
    #[error("{0} is gone")]
    PeerGone(PeerId),
    /// The peer could not pin its memory.
    #[error("{peer} refused to pin its memory: {reason}")]
    Refused {
        /// Which.
        peer: PeerId,
        /// What it said.
        reason: PinError,
    },
}

/// What a peer did that no peer does. Nothing has come of it; the connection should be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FirehoseBreach {
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
