//! The names of operations.

use crate::core::completion::OpError;
use crate::core::slab::Key;

/// An operation under way. It must be waited for: see [`crate::Worker::wait`] and [`crate::Worker::test`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "an operation ends only for who waits for it"]
pub struct Request(pub(crate) Key);

/// Returns the first of these requests that `test` finds over, and its outcome.
///
/// # Errors
/// There is none to look at.
pub(crate) fn first_over<T>(
    requests: &[Request],
    mut test: impl FnMut(Request) -> Option<T>,
) -> Result<Option<(usize, T)>, OpError> {
    if requests.is_empty() {
        return Err(OpError::NoRequest);
    }
    let over = requests.iter().enumerate().find_map(|(index, &request)| Some((index, test(request)?)));
    Ok(over)
}

impl Request {
    /// The name under which a peer will speak of it.
    #[inline]
    pub(crate) fn to_wire(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    #[inline]
    pub(crate) fn from_wire(id: u64) -> Self {
        Self(Key { index: id as u32, generation: (id >> 32) as u32 })
    }
}
