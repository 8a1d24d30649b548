//! Memory of the application's own.

use std::ptr::NonNull;

/// Bytes that the application allocated by whatever means: its heap, a mapping, its stack.
///
/// An engine makes a [`Buffer`](super::Buffer) of it, which every call takes like one of the arena's; see
/// [`Engine::adopt`](crate::Engine::adopt).
#[derive(Debug)]
pub struct UserMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address and a length, and its maker promised that nothing else accesses the bytes: so they may be
// accessed from one thread after the other.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// The `len` bytes from `start` on.
    ///
    /// # Safety
    /// Until this value, and the [`Buffer`](super::Buffer) made of it with all its pieces, are dropped:
    /// - the bytes are one allocation's, initialised, mapped, readable and writable, and `len` is at most `isize::MAX`;
    /// - nothing else reads or writes them: no thread, no reference, no other `UserMemory`.
    ///
    /// Buffers may be dropped late, by an engine that still sends. Memory that is unmapped meanwhile is read from and
    /// written to all the same, and so may be whatever lies there next. It is never taken for registered again, and
    /// `unmapped_in_use` of [`RegistrationStats`](super::RegistrationStats) counts it. The exceptions, of which the kernel
    /// does not tell, or a moment too late, are listed under [Memory](crate#memory).
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// How many bytes there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

/// A `'static` borrow is exclusive for ever: this needs no promise.
impl From<&'static mut [u8]> for UserMemory {
    fn from(bytes: &'static mut [u8]) -> Self {
        Self { len: bytes.len(), start: NonNull::from(bytes).cast() }
    }
}
