//! A registration.

use std::ops::Range;

use super::super::board::Mark;

/// A registered range of whole pages. Buffers hold it by `Arc`, and so does the cache: while anybody else does, it is in
/// use, and stays registered.
#[derive(Debug)]
pub(crate) struct CachedRegion {
    pub(super) range: Range<usize>,
    /// The registrar's name for it.
    pub(super) token: u64,
    /// Of all registrations of an engine, this is which.
    pub(super) number: u64,
    /// Where the monitor marks what happened to it; `None` where it is not watched, and is used once.
    pub(super) mark: Option<Mark>,
}

impl CachedRegion {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// An unwatched region of no memory.
    #[cfg(test)]
    pub(in crate::mem) fn of_test(number: u64) -> Self {
        Self { range: 0..0, token: 0, number, mark: None }
    }
}
