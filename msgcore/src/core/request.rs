//! The names of operations.

use super::completion::{Done, OpError};
use super::slab::Key;

/// An operation under way. It must be waited for: see [`crate::Worker::wait`] and [`crate::Worker::test`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "an operation ends only for who waits for it"]
pub struct Request(pub(crate) Key);

/// An operation that is over, and how.
pub(crate) type OperationEnded = (Request, Result<Done, OpError>);

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
    /// The mark of pieces: the index of no request comes near it. The bit above it is that of streams, where work requests have
    /// names.
    const PIECE: u32 = 1 << 30;
    /// How many pieces may be under way. Each has at least 64 bytes of memory.
    pub(crate) const PIECES: usize = Self::PIECE as usize;
    /// Stands among names of what has ended for a message that a multi-receive has taken.
    pub(crate) const PART: Self = Self(Key { index: u32::MAX, generation: 0 });

    /// The name of a piece: of a message that a multi-receive has taken, and that is under way.
    pub(crate) fn of_piece(key: Key) -> Self {
        Self(Key { index: key.index | Self::PIECE, ..key })
    }

    /// Which piece it is the name of, if it is that of one.
    pub(crate) fn piece(self) -> Option<Key> {
        let Key { index, generation } = self.0;
        let is_piece = index & !(Self::PIECE - 1) == Self::PIECE;
        is_piece.then_some(Key { index: index & !Self::PIECE, generation })
    }

    /// The name under which a peer will speak of it.
    #[inline]
    pub(crate) fn to_wire(self) -> u64 {
        self.0.to_word()
    }

    #[inline]
    pub(crate) fn from_wire(id: u64) -> Self {
        Self(Key::from_word(id))
    }
}
