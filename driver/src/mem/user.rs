//! Memory of the application's own.

use std::ops::Range;
use std::ptr::NonNull;

use thiserror::Error;

/// What others may do with the application's memory while a buffer is made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// Nothing: it is the buffer's alone.
    Exclusive = 1,
    /// They may read it, and it may be a part of any number of other sources. The buffer is for sending, and for regions that
    /// peers may read: nothing is written through it.
    Source = 3,
    /// They may read and write it, as peers may at the same time. The buffer is for receiving, for the answers of READs and
    /// atomics, and for regions of all rights. It has no view, since there is no reference to such memory: see
    /// [`Buffer::copy_in`](super::Buffer::copy_in) and [`Buffer::copy_out`](super::Buffer::copy_out).
    Target = 5,
    /// It is not known for all of them: the buffer is a list, whose pieces have kinds of their own. It has no view either. See
    /// [`Buffer::list`](super::Buffer::list).
    List = 7,
}

/// A buffer is not of the kind that a call needs.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
pub enum WrongKind {
    /// Something would be written to a source.
    #[error("nothing may be written to a source: receive into a target, or into a buffer of the arena")]
    Source,
    /// The bytes would be borrowed, and are a target's or a list's.
    #[error(
        "a target or a list cannot be borrowed: this call needs a buffer of the arena, or memory that nothing else accesses"
    )]
    NoView,
    /// The bytes of a target would be sent.
    #[error("a target is for what arrives: send from a source, or from a buffer of the arena")]
    Target,
}

/// Bytes that the application allocated by whatever means: its heap, a mapping, its stack.
///
/// An engine makes a [`Buffer`](super::Buffer) of it, which every call takes like one of the arena's, where its kind allows it;
/// see [`Engine::adopt`](crate::Engine::adopt).
#[derive(Debug)]
pub struct UserMemory {
    start: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
}

// SAFETY: it is an address, a length and a promise of its maker about who else accesses the bytes, which is about all threads.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// The `len` bytes from `start` on, which nothing else accesses.
    ///
    /// # Safety
    /// Until this value, its parts ([`UserMemory::shared`]), and every [`Buffer`](super::Buffer) made of them with all its pieces, are
    /// dropped:
    /// - the bytes are one allocation's, initialised, mapped, readable and writable, and `len` is at most `isize::MAX`;
    /// - nothing else reads or writes them: no thread, no reference, no other `UserMemory`.
    ///
    /// Buffers may be dropped late, by an engine that still sends. Memory that is unmapped meanwhile is read from and
    /// written to all the same, and so may be whatever lies there next. It is never taken for registered again, and
    /// `unmapped_in_use` of [`RegistrationStats`](super::RegistrationStats) counts it. The exceptions, of which the kernel
    /// does not tell, or a moment too late, are listed under [Memory](crate#memory).
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, kind: MemoryKind::Exclusive }
    }

    /// The `len` bytes from `start` on, to send from.
    ///
    /// # Safety
    /// Until this value, its parts ([`UserMemory::shared`]), and every [`Buffer`](super::Buffer) made of them with all its pieces, are
    /// dropped:
    /// - the bytes are one allocation's, initialised, mapped and readable, and `len` is at most `isize::MAX`;
    /// - nothing writes them. Whatever likes may read them.
    ///
    /// What [`UserMemory::new`] says about memory that is unmapped holds here, too.
    pub const unsafe fn source(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, kind: MemoryKind::Source }
    }

    /// The `len` bytes from `start` on, to receive into, or to open to peers. They need not be initialised: peers that may read
    /// them see what is there.
    ///
    /// # Safety
    /// Until this value, its parts ([`UserMemory::shared`]), and every [`Buffer`](super::Buffer) made of them with all its pieces, are
    /// dropped:
    /// - the bytes are one allocation's, mapped, readable and writable, and `len` is at most `isize::MAX`;
    /// - no Rust reference to any of them is used, unless it is to atomics.
    ///
    /// Others may read and write them meanwhile, as with memory that is shared with another process. They then see any mix of
    /// bytes, and what comes of their own is as uncertain, except for aligned numbers of 8 bytes that all sides access by atomic
    /// instructions.
    /// What [`UserMemory::new`] says about memory that is unmapped holds here, too.
    pub const unsafe fn target(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, kind: MemoryKind::Target }
    }

    /// The same memory, whose parts may be used by themselves: what is exclusive becomes a target. See [`UserMemory::part`].
    #[must_use]
    pub fn shared(self) -> Self {
        match self.kind {
            MemoryKind::Source => self,
            _ => Self { kind: MemoryKind::Target, ..self },
        }
    }

    /// A part of a source or of a target, to be used like any other: there may be several of the same bytes. None of exclusive
    /// memory, which nothing else may access, and none beyond the end.
    ///
    /// What its maker has promised holds until all parts, and the buffers made of them, are dropped, too.
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let is_within = range.start <= range.end && range.end <= self.len;
        if !is_within || self.kind == MemoryKind::Exclusive {
            return None;
        }
        // SAFETY: it lies within the memory, or at its end.
        let start = unsafe { self.start.add(range.start) };
        Some(Self { start, len: range.len(), kind: self.kind })
    }

    /// Its address.
    pub fn addr(&self) -> usize {
        self.start.addr().get()
    }

    /// What others may do with it.
    pub const fn kind(&self) -> MemoryKind {
        self.kind
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
        Self { len: bytes.len(), start: NonNull::from(bytes).cast(), kind: MemoryKind::Exclusive }
    }
}

/// What is shared for ever is never written: this needs no promise either.
impl From<&'static [u8]> for UserMemory {
    fn from(bytes: &'static [u8]) -> Self {
        Self { len: bytes.len(), start: NonNull::from(bytes).cast(), kind: MemoryKind::Source }
    }
}
