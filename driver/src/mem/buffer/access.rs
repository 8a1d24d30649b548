//! Access to a buffer's bytes, as their kind allows it.

use std::ops::{Deref, DerefMut, Range};

use super::Buffer;
use crate::mem::{MemoryKind, Number, WrongKind, raw};

impl Buffer {
    /// What others may do with the bytes meanwhile.
    pub fn kind(&self) -> MemoryKind {
        self.descriptor.owner.kind()
    }

    /// Whether something may arrive in it.
    #[inline]
    pub fn check_filled(&self) -> Result<(), WrongKind> {
        self.check(MemoryKind::Source, WrongKind::Source)
    }

    /// Whether it may be sent.
    #[inline]
    pub fn check_sent(&self) -> Result<(), WrongKind> {
        self.check(MemoryKind::Target, WrongKind::Target)
    }

    /// Whether neither it nor a piece of it is of the wrong kind.
    #[inline]
    pub(super) fn check(&self, wrong: MemoryKind, why: WrongKind) -> Result<(), WrongKind> {
        if self.descriptor.owner.is_exclusive() { Ok(()) } else { self.check_shared(wrong, why) }
    }

    #[cold]
    fn check_shared(&self, wrong: MemoryKind, why: WrongKind) -> Result<(), WrongKind> {
        match self.descriptor.owner.as_pieces() {
            Some(pieces) => pieces.iter().try_for_each(|piece| piece.check(wrong, why)),
            None if self.kind() == wrong => Err(why),
            None => Ok(()),
        }
    }

    /// Whether it may be borrowed to be written.
    #[inline]
    pub fn check_borrowed(&self) -> Result<(), WrongKind> {
        match self.kind() {
            MemoryKind::Exclusive => Ok(()),
            MemoryKind::Source => Err(WrongKind::Source),
            MemoryKind::Target | MemoryKind::List => Err(WrongKind::NoView),
        }
    }

    /// Whether it is a slice of its bytes: they lie in one place, and no other writes them.
    #[inline]
    pub(crate) fn has_view(&self) -> bool {
        self.descriptor.owner.has_view()
    }

    /// Returns the buffer with a view that has a part of this one, and where in it that is; `None` where there is no such.
    #[inline]
    pub(crate) fn contiguous(&self, offset: usize, len: usize) -> Option<(&Self, Range<usize>)> {
        if self.has_view() { Some((self, offset..offset + len)) } else { self.contiguous_piece(offset, len) }
    }

    #[cold]
    fn contiguous_piece(&self, offset: usize, len: usize) -> Option<(&Self, Range<usize>)> {
        self.assert_within(offset, len);
        let pieces = self.descriptor.owner.as_pieces()?;
        let from = self.descriptor.start as usize + offset;
        let (index, range) = pieces.whole(from..from + len)?;
        let piece = pieces.piece(index);
        piece.has_view().then_some((piece, range))
    }

    /// How many bytes the view has.
    #[inline]
    pub fn len(&self) -> usize {
        self.descriptor.len
    }

    /// Whether the view has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.descriptor.len == 0
    }

    /// Where the view begins. A list begins nowhere.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.view_at()
    }

    /// Copies `bytes` into the view, from `offset` on: by atomic stores where others may access it meanwhile.
    ///
    /// # Panics
    /// When they do not fit, or nothing may be written to it.
    #[inline]
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        if self.descriptor.owner.is_exclusive() {
            // SAFETY: it is exclusive.
            let view = unsafe { self.view_mut() };
            view[offset..offset + bytes.len()].copy_from_slice(bytes);
        } else {
            self.copy_in_shared(offset, bytes);
        }
    }

    #[cold]
    fn copy_in_shared(&mut self, offset: usize, bytes: &[u8]) {
        if self.has_view() {
            refuse_view("nothing is written to a source");
        }
        self.assert_within(offset, bytes.len());
        let from = self.descriptor.start as usize + offset;
        if let Some(pieces) = self.descriptor.owner.pieces_mut() {
            return pieces.copy_in(from, bytes);
        }
        // SAFETY: they lie in the view, which is mapped and writable: `UserMemory::target` demands that. No reference covers any
        // of it, so `bytes` do not.
        unsafe { raw::store(self.view_at().add(offset), bytes) };
    }

    /// Copies bytes out of the view, from `offset` on: by atomic loads where others may access it meanwhile.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        if self.has_view() {
            // SAFETY: it has a view.
            let view = unsafe { self.view() };
            into.copy_from_slice(&view[offset..offset + into.len()]);
        } else {
            self.copy_out_without_view(offset, into);
        }
    }

    #[cold]
    fn copy_out_without_view(&self, offset: usize, into: &mut [u8]) {
        self.assert_within(offset, into.len());
        if let Some(pieces) = self.descriptor.owner.as_pieces() {
            return pieces.copy_out(self.descriptor.start as usize + offset, into);
        }
        // SAFETY: they lie in the view, which is mapped and readable; no reference covers any of it.
        unsafe { raw::load(self.view_at().add(offset), into) };
    }

    /// Copies a part of the view of `other` into this one, from `offset` on.
    ///
    /// # Panics
    /// Where [`Buffer::copy_in`] or [`Buffer::copy_out`] would.
    pub fn copy_from(&mut self, offset: usize, other: &Self, part: Range<usize>) {
        const STEP: usize = 512;
        if other.has_view() {
            return self.copy_in(offset, &other[part]);
        }
        let mut bytes = [0; STEP];
        for (at, from) in (offset..).step_by(STEP).zip(part.clone().step_by(STEP)) {
            let bytes = &mut bytes[..(part.end - from).min(STEP)];
            other.copy_out(from, bytes);
            self.copy_in(at, bytes);
        }
    }

    /// Where a part of the view begins, for the kernel to write; `None` of a list.
    ///
    /// # Panics
    /// When the part is none of the view's, or nothing may be written to it.
    pub(in crate::mem) fn part_mut(&mut self, part: Range<usize>) -> Option<*mut u8> {
        self.assert_within(part.start, part.len());
        assert!(self.kind() != MemoryKind::Source, "nothing is written to a source");
        (!self.is_list()).then(|| self.view_at().wrapping_add(part.start))
    }

    /// Replaces the number at `offset` of the view, in this host's byte order, by what `change` makes of it. Returns
    /// what it was; `None` where they are not in the view or lie in two pieces, or where others may access them and they are not
    /// aligned. For those, where they use atomic instructions, it is one step.
    pub(crate) fn update<N: Number>(&mut self, offset: usize, change: impl Fn(N) -> N) -> Option<N> {
        let end = offset.checked_add(size_of::<N>()).filter(|&end| end <= self.descriptor.len)?;
        if self.has_view() {
            let before = N::from_bytes(N::Bytes::try_from(&self[offset..end]).ok()?);
            self[offset..end].copy_from_slice(change(before).to_bytes().as_ref());
            return Some(before);
        }
        let start = self.descriptor.start as usize;
        if let Some(pieces) = self.descriptor.owner.pieces_mut() {
            let (index, range) = pieces.whole(start + offset..start + end)?;
            return pieces.piece_mut(index).update(range.start, change);
        }
        // SAFETY: the number lies in the view, which is mapped, readable and writable.
        unsafe { N::update(self.view_at().add(offset), change) }
    }

    /// The bytes.
    ///
    /// # Safety
    /// It has a view.
    #[inline]
    unsafe fn view(&self) -> &[u8] {
        debug_assert!(self.has_view());
        // SAFETY: `start..start + len` lies in the room. An arena's room lies in its mapping, which `owner` keeps alive,
        // and whose bytes are initialised (the kernel zeroes fresh pages). A room of the application's with a view is
        // initialised and stays mapped as long as the buffer lives: `UserMemory::new` and `UserMemory::source` demand that, and
        // that nothing writes to it meanwhile but, where it is no source, this buffer. Else the room belongs to this buffer
        // alone: `take` gave it out once, or the application adopted it once, `split_off` hands a part to one other
        // buffer and keeps none of it, and `join` takes a part over from a buffer that ends. Every access goes through
        // its buffer, so the borrow of `self` covers the bytes. The previous owner of a range of the arena, perhaps on
        // another thread, was done with it when it went back: the lock of the free ranges orders that before `take`. A
        // piece crosses threads only with its buffer.
        unsafe { std::slice::from_raw_parts(self.view_at(), self.descriptor.len) }
    }

    /// The bytes, to be written.
    ///
    /// # Safety
    /// It is exclusive.
    #[inline]
    unsafe fn view_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.descriptor.owner.is_exclusive());
        // SAFETY: as in `view`; the exclusive borrow of `self` makes the slice exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.view_at(), self.descriptor.len) }
    }

    #[inline]
    fn view_at(&self) -> *mut u8 {
        // Of a list it is no address of anything.
        self.descriptor.room_at.as_ptr().wrapping_add(self.descriptor.start as usize)
    }

    #[cold]
    fn assert_within(&self, offset: usize, len: usize) {
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.descriptor.len);
        assert!(is_within, "{len} bytes at {offset} are not in a buffer of {}", self.descriptor.len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if !self.has_view() {
            refuse_view("a target or a list has no view: copy in and out");
        }
        // SAFETY: it has a view.
        unsafe { self.view() }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if !self.descriptor.owner.is_exclusive() {
            refuse_view("nothing is written to a source, and a target or a list has no view: copy in and out");
        }
        // SAFETY: it is exclusive.
        unsafe { self.view_mut() }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_view(why: &str) -> ! {
    panic!("{why}")
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::super::tests::{panics, pattern};
    use super::*;
    use crate::mem::UserMemory;

    #[test]
    fn a_source_is_read_any_number_of_times_and_never_written() {
        let bytes: &'static [u8] = pattern(256).leak();
        let [mut whole, mut part] = [bytes, &bytes[64..]].map(|bytes| Buffer::of_user(bytes.into(), 1, None));
        assert_eq!((whole.kind(), &*whole, &part[..]), (MemoryKind::Source, bytes, &bytes[64..]));
        let rest = whole.split_off(128);
        assert!(
            rest.check_sent().is_ok() && rest.check_filled() == Err(WrongKind::Source) && *rest == *part.split_off(64)
        );
        let mut out = [0; 8];
        rest.copy_out(120, &mut out);
        assert_eq!(out, bytes[248..]);
        assert!(panics(|| whole[0] = 1) && panics(|| whole.copy_in(0, &[1])));
        assert!(panics(|| assert!(whole.update(0, |number: u64| number).is_none())));
        assert_eq!(*bytes, *pattern(256));
    }

    #[test]
    fn a_target_is_copied_in_and_out_and_has_no_view() {
        let mut words = [0_u64; 32];
        let base = NonNull::from(&mut words).cast::<u8>();
        let memory = |at: usize, len| {
            // SAFETY: it is within `words`.
            let start = unsafe { base.add(at) };
            // SAFETY: the test accesses `words` no other way while there are buffers, which it outlives.
            Buffer::of_user(unsafe { UserMemory::target(start, len) }, 1, None)
        };
        let [mut whole, other] = [(0, 256), (3, 100)].map(|(at, len)| memory(at, len));
        assert_eq!((whole.kind(), whole.len(), other.is_empty()), (MemoryKind::Target, 256, false));
        whole.copy_in(0, &pattern(256));
        let mut out = [0; 100];
        other.copy_out(0, &mut out);
        assert_eq!(out, pattern(256)[3..103]);
        let mut copy = Buffer::of_user(vec![0; 2_000].leak().into(), 2, None);
        copy.copy_from(7, &whole, 9..256);
        assert_eq!((&copy[..7], &copy[7..254], &copy[254..]), (&[0; 7][..], &pattern(256)[9..], &[0; 1_746][..]));
        let mut rest = whole.split_off(64);
        assert!(rest.check_filled().is_ok() && rest.check_sent() == Err(WrongKind::Target));
        rest.skip_front(8);
        rest.copy_in(0, &7_u64.to_ne_bytes());
        assert_eq!((rest.update(0, |number| number + 1), rest.update(1, |_| 0_u64)), (Some(7_u64), None));
        assert_eq!(
            (rest.update(184, |_| 0_u64), rest.update(177, |_| 0_u64), rest.update(usize::MAX, |_| 0_u32)),
            (None, None, None)
        );
        // Numbers of 4 bytes may be where those of 8 are not.
        rest.copy_in(4, &9_u32.to_ne_bytes());
        assert_eq!((rest.update(4, |number| number + 1), rest.update(4, |_| 0_u64)), (Some(9_u32), None));
        assert_eq!((rest.update(180, |_| 0_u32).is_some(), rest.update(181, |_| 0_u32)), (true, None));
        assert!(panics(|| rest.copy_in(180, &[0; 5])) && panics(|| rest.copy_out(usize::MAX, &mut [0])));
        assert!(panics(|| assert_eq!(rest[0], 0)) && panics(|| rest[0] = 1));
        drop((whole, rest, other));
        assert_eq!(words[9], 8 | 10 << 32);
    }
}
