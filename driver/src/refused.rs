//! A call that was not accepted gives back what it was given.

use std::fmt;

/// A call that was not accepted, with what it was given and the caller would lose otherwise: a work request, a buffer.
///
/// A caller that does not need that back writes `?`, in a function whose error is a box.
pub struct Refused<T, E> {
    /// Why.
    pub why: E,
    /// What the call was given.
    pub given: T,
}

impl<T, E> Refused<T, E> {
    /// Refuses a call that was given this.
    pub fn new(why: impl Into<E>, given: T) -> Self {
        Self { why: why.into(), given }
    }
}

impl<T, E: fmt::Display> fmt::Display for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

/// The sentence: a `main` that returns an error prints its `Debug` form.
impl<T, E: fmt::Display> fmt::Debug for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T, E: fmt::Display> std::error::Error for Refused<T, E> {}
