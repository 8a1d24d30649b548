//! Why an option does not take a value.

use thiserror::Error;

/// Why an option does not take a value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum BadOptionValue {
    #[error("unknown test '{name}': known are {known}")]
    UnknownTest { name: String, known: String },
    /// The value is not a size; some that are stand behind it.
    #[error("not a size such as {0}")]
    NotASize(&'static str),
    #[error("a size lies between {0} and 64MiB")]
    SizeRange(usize),
    #[error("a count lies between 1 and {0}")]
    CountRange(usize),
    #[error("messages under way are between 1 and {0}")]
    DepthRange(usize),
    #[error("a queue pair's number has 24 bits, such as 17 or 0x11")]
    QueuePairNumber,
    #[error("not of the form A..B")]
    NotARange,
    #[error("not two whole numbers, rising")]
    NotRising,
}
