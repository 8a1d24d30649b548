//! One mapping, cut into buffers.
//!
//! A [`Buffer`] owns its bytes alone: it moves into a work request and returns in the completion, so neither the
//! compiler nor a peer can reach it twice. The mapping is reserved whole and filled by the kernel page by page as
//! it is touched.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use memmap2::{MmapOptions, MmapRaw};
use thiserror::Error;

/// Small buffers start on a cache line ...
const LINE: usize = 64;
/// ... and buffers of at least a page on a page.
const PAGE: usize = 4096;

/// Why there is no memory.
#[derive(Debug, Error)]
pub enum ArenaError {
    /// The kernel gave none.
    #[error("cannot map {bytes} bytes for the arena: {source}")]
    Map {
        /// What was asked for.
        bytes: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// No free range is long enough.
    #[error("the arena has no {asked} bytes in one piece ({free} of {size} are free): raise ROCI_ARENA_SIZE")]
    Exhausted {
        /// What was asked for.
        asked: usize,
        /// Free bytes, in any number of pieces.
        free: usize,
        /// The arena's size.
        size: usize,
    },
}

/// A mapping that buffers are cut from. Single-threaded: buffers hold it by `Rc`.
pub struct Arena {
    map: MmapRaw,
    /// Free ranges, offset to length; no two of them touch.
    free: RefCell<BTreeMap<usize, usize>>,
}

impl Arena {
    /// Maps `bytes`, rounded up to a page.
    pub fn new(bytes: usize) -> Result<Rc<Self>, ArenaError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let map = map.map_err(|source| ArenaError::Map { bytes, source })?;
        let free = RefCell::new(BTreeMap::from([(0, bytes)]));
        Ok(Rc::new(Self { map: map.into(), free }))
    }

    /// Cuts a buffer of `len` bytes; their content is whatever was there before.
    pub fn buffer(self: &Rc<Self>, len: usize) -> Result<Buffer, ArenaError> {
        if len > self.map.len() {
            return Err(self.exhausted(len));
        }
        let align = if len < PAGE { LINE } else { PAGE };
        // No overflow: the mapping is far from the end of the address space.
        let room = len.max(1).next_multiple_of(align);
        let offset = self.take(room, align).ok_or_else(|| self.exhausted(len))?;
        Ok(Buffer { arena: self.clone(), offset, room, len })
    }

    /// Free bytes, in any number of pieces.
    pub fn free_bytes(&self) -> usize {
        self.free.borrow().values().sum()
    }

    fn exhausted(&self, asked: usize) -> ArenaError {
        ArenaError::Exhausted { asked, free: self.free_bytes(), size: self.map.len() }
    }

    /// First fit: low addresses stay in use, so that the arena touches few pages.
    fn take(&self, room: usize, align: usize) -> Option<usize> {
        let mut free = self.free.borrow_mut();
        let fits = |(&start, &len): (&usize, &usize)| {
            let at = start.next_multiple_of(align);
            (at + room <= start + len).then_some((start, len, at))
        };
        let (start, len, at) = free.iter().find_map(fits)?;
        free.remove(&start);
        if at > start {
            free.insert(start, at - start);
        }
        if at + room < start + len {
            free.insert(at + room, start + len - at - room);
        }
        Some(at)
    }

    fn give_back(&self, mut start: usize, mut len: usize) {
        let mut free = self.free.borrow_mut();
        if let Some(after) = free.remove(&(start + len)) {
            len += after;
        }
        if let Some((&before, &before_len)) = free.range(..start).next_back() {
            assert!(before + before_len <= start, "a buffer was freed twice");
            if before + before_len == start {
                start = before;
                len += before_len;
            }
        }
        free.insert(start, len);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} of {} bytes free)", self.free_bytes(), self.map.len())
    }
}

/// Bytes of an arena that belong to nobody else; they return when it is dropped.
pub struct Buffer {
    arena: Rc<Arena>,
    offset: usize,
    room: usize,
    len: usize,
}

impl Buffer {
    /// Shortens or lengthens the view within the room that was allocated.
    ///
    /// # Panics
    /// When `len` exceeds [`Buffer::capacity`].
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.room, "a buffer of {} bytes cannot be set to {len}", self.room);
        self.len = len;
    }

    /// The room behind the view.
    pub fn capacity(&self) -> usize {
        self.room
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `offset..offset + len` lies in the mapping, which `arena` keeps alive; its bytes are initialised
        // (the kernel zeroes fresh pages); `take` gave this range to this buffer alone, and every access goes
        // through it, so the borrow of `self` covers the bytes.
        unsafe { std::slice::from_raw_parts(self.arena.map.as_ptr().add(self.offset), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes the slice exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.arena.map.as_mut_ptr().add(self.offset), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.arena.give_back(self.offset, self.room);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_return_whole() {
        let arena = Arena::new(1 << 16).expect("memory");
        let mut buffers: Vec<_> = [1, 64, 65, 4096, 5000, 0].map(|len| arena.buffer(len).expect("room")).into();
        for (mark, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(mark as u8);
        }
        for (mark, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| byte == mark as u8));
        }
        while buffers.len() > 1 {
            buffers.swap_remove(buffers.len() / 2);
        }
        buffers.clear();
        assert_eq!(*arena.free.borrow(), BTreeMap::from([(0, 1 << 16)]));
    }

    #[test]
    fn exhaustion_is_an_error_that_names_the_knob() {
        let arena = Arena::new(PAGE).expect("memory");
        let kept = arena.buffer(100).expect("room");
        let error = arena.buffer(PAGE).expect_err("there is no room").to_string();
        assert!(error.contains("ROCI_ARENA_SIZE"), "{error}");
        drop(kept);
        assert!(arena.buffer(PAGE).is_ok());
        for absurd in [usize::MAX, usize::MAX - PAGE + 1, usize::MAX / 2] {
            assert!(arena.buffer(absurd).is_err(), "{absurd}");
        }
    }
}
