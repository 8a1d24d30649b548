//! Why receive queues were refused: which entry, what is wrong, and what would be right.

use std::fmt;

use thiserror::Error;

use super::MAX_QUEUES;
use crate::units::show_size;

/// An entry as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its place, from 1.
    pub number: usize,
    /// Its text.
    pub text: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} '{}'", self.number, self.text)
    }
}

/// Why receive queues were refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReceiveQueuesError {
    /// There is no entry.
    #[error(
        "no receive queue is given: give 1..{MAX_QUEUES} entries such as P,8KiB,64 or S,8KiB,1024, separated by ':'"
    )]
    Empty,
    /// There are too many entries.
    #[error("{0} is the first of too many: give 1..{MAX_QUEUES} entries")]
    TooManyEntries(Entry),
    /// The first field is not a kind that is known.
    #[error("{entry}: '{kind}' is no kind of queue: use P (per peer) or S (shared)")]
    UnknownKind {
        /// Which entry.
        entry: Entry,
        /// What was given.
        kind: String,
    },
    /// An XRC queue.
    #[error("{0}: XRC queues are not spoken: use S")]
    Xrc(Entry),
    /// A field that has no default is missing, or empty.
    #[error("{entry}: {field} is missing: the form is {form}")]
    MissingField {
        /// Which entry.
        entry: Entry,
        /// Which field.
        field: &'static str,
        /// The fields of this kind.
        form: &'static str,
    },
    /// There are more fields than the kind has.
    #[error("{entry}: {given} fields are too many: the form is {form}")]
    TooManyFields {
        /// Which entry.
        entry: Entry,
        /// How many were given.
        given: usize,
        /// The fields of this kind.
        form: &'static str,
    },
    /// The size cannot be read.
    #[error("{entry}: size '{value}' is not a size: give one such as 4096, 8KiB, 1MiB")]
    NotASize {
        /// Which entry.
        entry: Entry,
        /// What was given.
        value: String,
    },
    /// The size is out of range.
    #[error("{entry}: size {} lies outside {}..{}", show_size(.size), show_size(.least), show_size(.most))]
    SizeRange {
        /// Which entry.
        entry: Entry,
        /// What was given.
        size: usize,
        /// The smallest that is taken.
        least: usize,
        /// The largest.
        most: usize,
    },
    /// A count cannot be read.
    #[error("{entry}: {field} '{value}' is not a number: give a whole number below 2^32")]
    NotANumber {
        /// Which entry.
        entry: Entry,
        /// Which field.
        field: &'static str,
        /// What was given.
        value: String,
    },
    /// A count is out of the range that its field always has.
    #[error("{entry}: {field} {value} lies outside {least}..{most}")]
    Range {
        /// Which entry.
        entry: Entry,
        /// Which field.
        field: &'static str,
        /// What was given.
        value: u32,
        /// The smallest that is taken.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// Several queues have more credits together than messages may wait for their turn.
    #[error("the queues have {credits} credits together (num of P, maxsends of S): several may have {most}")]
    TooManyCredits {
        /// How many they have.
        credits: u64,
        /// How many they may have.
        most: u32,
    },
    /// The watermark is not below the number of buffers.
    #[error("{entry}: low {low} is not below num {num}, so buffers would always be too few: give 0..{}", .num - 1)]
    LowNotBelowNum {
        /// Which entry.
        entry: Entry,
        /// The watermark.
        low: u32,
        /// The number of buffers.
        num: u32,
    },
    /// No credit has to be owed before a return.
    #[error("{entry}: win is 0, so credits would be returned without end: give 1..{most}")]
    WindowZero {
        /// Which entry.
        entry: Entry,
        /// The largest window with which credits flow.
        most: u32,
    },
    /// More credits have to be owed before a return than there are.
    #[error("{entry}: win {window} is more than the {num} credits there are: give 1..{most}")]
    WindowAboveNum {
        /// Which entry.
        entry: Entry,
        /// The window.
        window: u32,
        /// The number of credits.
        num: u32,
        /// The largest window with which credits flow.
        most: u32,
    },
    /// The sender has spent its last credit before a return is due.
    #[error("{entry}: credits cannot flow: with win {window} a peer spends its last before any return: give 1..{most}")]
    CreditsCannotFlow {
        /// Which entry.
        entry: Entry,
        /// The window.
        window: u32,
        /// The largest window with which credits flow.
        most: u32,
    },
    /// There is no buffer for messages that cost no credit.
    #[error("{entry}: rsv is 0, so a message that returns credits would find no buffer: give 2..{most}")]
    ReserveZero {
        /// Which entry.
        entry: Entry,
        /// The largest that is taken.
        most: u32,
    },
    /// One peer may send more than the queue holds.
    #[error("{entry}: maxsends {max_sends} is not within 1..{num}, the buffers of the queue")]
    MaxSends {
        /// Which entry.
        entry: Entry,
        /// Messages that a peer may have outstanding.
        max_sends: u32,
        /// The number of buffers.
        num: u32,
    },
    /// The queue starts with nothing, or with more than it holds.
    #[error("{entry}: init {init} is not within 1..{num}, the buffers of the queue")]
    Init {
        /// Which entry.
        entry: Entry,
        /// Buffers posted at the start.
        init: u32,
        /// The number of buffers.
        num: u32,
    },
    /// A full queue would be a shortage.
    #[error("{entry}: limit {limit} is more than num {num}, so a full queue would be a shortage: give 0..{num}")]
    Limit {
        /// Which entry.
        entry: Entry,
        /// The least number of buffers that is no shortage.
        limit: u32,
        /// The number of buffers.
        num: u32,
    },
    /// Sizes do not ascend.
    #[error("{latter} must have larger buffers than {former}: give sizes in ascending order")]
    NotAscending {
        /// The first of the two.
        former: Entry,
        /// The one behind it.
        latter: Entry,
    },
}
