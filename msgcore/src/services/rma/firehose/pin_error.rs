//! Why memory cannot be pinned.

use thiserror::Error;

/// Why a bucket could not be pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u16)]
#[non_exhaustive]
pub enum PinError {
    /// The key table is full.
    #[error("no key is free: lower firehose_m or ndreg_entries, or raise firehose_bucket")]
    NoKey = 1,
    /// The memory is not there, or the system pins no more of it.
    #[error("the memory cannot be pinned: raise the limit of locked memory, or lower firehose_m")]
    NoMemory = 2,
    /// It is not offered, or not any more.
    #[error("the memory is not offered, or not any more")]
    NotOffered = 3,
}

impl PinError {
    /// Every reason.
    pub(super) const ALL: [Self; 3] = [Self::NoKey, Self::NoMemory, Self::NotOffered];
}
