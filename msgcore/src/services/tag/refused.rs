//! Calls that are not accepted hand back what they were given.

use thiserror::Error;

use crate::worker::CallError;

/// A call that was not accepted, with what it was given.
///
/// Who does not need that back writes `?`, in a function whose error is a [`CallError`] or any box.
#[derive(Debug, Error)]
#[error("{why}")]
pub struct Refused<T> {
    /// Why.
    pub why: CallError,
    /// What the call was given.
    pub given: T,
}

impl<T> Refused<T> {
    pub(crate) fn new(why: impl Into<CallError>, given: T) -> Self {
        Self { why: why.into(), given }
    }
}

impl<T> From<Refused<T>> for CallError {
    fn from(refused: Refused<T>) -> Self {
        refused.why
    }
}
