//! A list of buffers that is used like one: sent as one message, or filled by one (verbs' scatter/gather list).

use std::fmt;
use std::ops::Range;

use arrayvec::ArrayVec;
use thiserror::Error;

use super::Buffer;
use crate::Refused;

/// Pieces of a list at most.
pub const MAX_PIECES: usize = 16;

/// Why a list was not made.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// There are too many pieces.
    #[error("a list has at most {MAX_PIECES} pieces, and not {0}")]
    TooMany(usize),
    /// All pieces together are longer than memory can be.
    #[error("the pieces are longer than an address space")]
    TooLong,
    /// A piece is a list itself.
    #[error("a piece of a list cannot be a list")]
    Nested,
}

/// The pieces, whose lengths never change.
pub(in crate::mem) struct Pieces(Box<[Buffer]>);

impl Pieces {
    /// Returns the pieces, and how long they are together.
    fn new(pieces: Vec<Buffer>) -> Result<(Self, usize), Refused<Vec<Buffer>, ListError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if pieces.len() > MAX_PIECES {
            return refuse(ListError::TooMany(pieces.len()), pieces);
        }
        if pieces.iter().any(Buffer::is_list) {
            return refuse(ListError::Nested, pieces);
        }
        let total = pieces.iter().try_fold(0_usize, |total, piece| total.checked_add(piece.len()));
        match total.filter(|&total| isize::try_from(total).is_ok()) {
            Some(total) => Ok((Self(pieces.into()), total)),
            None => refuse(ListError::TooLong, pieces),
        }
    }

    /// Returns what of each piece a part of the list is, with where that begins in the part.
    fn parts(&self, part: Range<usize>) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
        let mut begin = 0;
        let lens = self.0.iter().map(Buffer::len).enumerate();
        lens.filter_map(move |(index, len)| {
            let piece = begin..begin + len;
            begin = piece.end;
            let its = part.start.max(piece.start)..part.end.min(piece.end);
            let is_there = its.start < its.end;
            is_there.then(|| (index, its.start - part.start, its.start - piece.start..its.end - piece.start))
        })
    }

    /// Copies `bytes` into the list, from `offset` on, where there is room for them.
    pub(super) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        let parts: ArrayVec<_, MAX_PIECES> = self.parts(offset..offset + bytes.len()).collect();
        for (index, at, its) in parts {
            self.0[index].copy_in(its.start, &bytes[at..at + its.len()]);
        }
    }

    /// Copies bytes out of the list, from `offset` on, where there are so many.
    pub(super) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (index, at, its) in self.parts(offset..offset + into.len()) {
            self.0[index].copy_out(its.start, &mut into[at..at + its.len()]);
        }
    }

    /// Returns the piece that has all of a part, and where in it that is.
    pub(super) fn whole(&self, part: Range<usize>) -> Option<(usize, Range<usize>)> {
        let len = part.len();
        self.parts(part).next().filter(|(_, _, its)| its.len() == len).map(|(index, _, its)| (index, its))
    }

    pub(super) fn piece(&self, index: usize) -> &Buffer {
        &self.0[index]
    }

    pub(super) fn piece_mut(&mut self, index: usize) -> &mut Buffer {
        &mut self.0[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.0.iter()
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Buffer {
    /// A list of at most [`MAX_PIECES`] buffers of any kinds, which every call takes like one that is as long as all of them: it
    /// is sent as one message, or a message is received into it. It has no view, since it lies in no one place, and cannot be cut.
    ///
    /// # Errors
    /// There are too many pieces, or one is a list. They come back.
    pub fn list(pieces: Vec<Self>) -> Result<Self, Refused<Vec<Buffer>, ListError>> {
        let (pieces, len) = Pieces::new(pieces)?;
        Ok(Self::of_list(pieces, len))
    }

    /// Returns the pieces of a list; a buffer that is none is its only piece.
    pub fn into_pieces(self) -> Vec<Self> {
        match self.into_list() {
            Ok(Pieces(pieces)) => pieces.into_vec(),
            Err(one) => vec![one],
        }
    }

    /// Whether it is a list of pieces.
    #[inline]
    pub fn is_list(&self) -> bool {
        self.descriptor.owner.is_list()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::tests::{panics, pattern};
    use super::*;
    use crate::mem::{Arena, MemoryKind, WrongKind};

    fn arena() -> Arc<Arena> {
        Arena::new(1 << 16).expect("memory")
    }

    fn filled(arena: &Arc<Arena>, bytes: &[u8]) -> Buffer {
        let mut buffer = arena.buffer(bytes.len()).expect("room");
        buffer.copy_from_slice(bytes);
        buffer
    }

    #[test]
    fn a_list_is_as_long_as_its_pieces_and_gives_them_back() {
        let arena = arena();
        let bytes = pattern(300);
        let free = arena.free_bytes();
        let list = |cuts: [usize; 2]| {
            let pieces = [&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..]];
            Buffer::list(pieces.map(|piece| filled(&arena, piece)).into()).expect("three")
        };
        let mut buffer = list([100, 101]);
        assert_eq!((buffer.len(), buffer.capacity(), buffer.kind()), (300, 300, MemoryKind::List));
        assert!(buffer.is_list() && buffer.is_users() && !buffer.can_be_cut());
        assert!(panics(|| assert_eq!(buffer[0], 0)) && panics(|| buffer[0] = 1));
        assert!(panics(|| drop(buffer.split_off(64))) && panics(|| drop(buffer.join(filled(&arena, &[1])))));
        let mut out = [0; 300];
        buffer.copy_out(0, &mut out);
        assert_eq!(out[..], bytes);
        assert_eq!(buffer, list([0, 300]), "however it is cut");
        assert!(buffer != filled(&arena, &bytes[1..]) && buffer == filled(&arena, &bytes));
        let lens: Vec<_> = buffer.into_pieces().iter().map(Buffer::len).collect();
        assert_eq!(lens, [100, 1, 199]);
        assert_eq!(filled(&arena, &bytes).into_pieces().len(), 1);
        let empty = Buffer::list(Vec::new()).expect("none");
        assert!(empty.is_empty() && empty.into_pieces().is_empty());
        assert_eq!(arena.free_bytes(), free, "all of it has gone back");
    }

    #[test]
    fn a_list_may_be_used_as_all_of_its_pieces_may() {
        let arena = arena();
        let source = || Buffer::of_user((&[1_u8; 8][..]).into(), 1, None);
        let ours = || filled(&arena, &[2; 8]);
        let check = |pieces: Vec<Buffer>| {
            let list = Buffer::list(pieces).expect("few");
            (list.check_sent(), list.check_filled())
        };
        assert_eq!(check(vec![ours(), ours()]), (Ok(()), Ok(())));
        assert_eq!(check(vec![ours(), source()]), (Ok(()), Err(WrongKind::Source)));
    }

    #[test]
    fn what_is_no_list_comes_back() {
        let arena = arena();
        let many = Buffer::list((0..=MAX_PIECES).map(|_| filled(&arena, &[1])).collect()).expect_err("too many");
        assert_eq!((many.why, many.given.len()), (ListError::TooMany(17), 17));
        let nested = Buffer::list(vec![Buffer::list(many.given.into_iter().take(16).collect()).expect("sixteen")]);
        assert_eq!(nested.map_err(|refused| (refused.why, refused.given.len())).err(), Some((ListError::Nested, 1)));
    }

    #[test]
    fn a_number_is_changed_in_the_piece_that_has_it() {
        let arena = arena();
        let mut list = Buffer::list(vec![filled(&arena, &[0; 12]), filled(&arena, &[0; 20])]).expect("two");
        assert_eq!(
            (list.update(4, |_| 7_u64), list.update(12, |_| 8_u64), list.update(24, |_| 9_u64)),
            (Some(0), Some(0), Some(0))
        );
        assert_eq!(
            (list.update(5, |_| 1_u64), list.update(25, |_| 1_u64)),
            (None, None),
            "it lies across, or ends behind"
        );
        assert_eq!((list.update(4, |_| 0), list.update(12, |_| 0)), (Some(7_u64), Some(8_u64)));
    }

    proptest! {
        /// Copies into and out of any part of a list of any pieces, after a front was skipped, are those of one buffer.
        #[test]
        fn a_list_is_read_and_written_like_one_buffer(
            lens in proptest::collection::vec(0_usize..70, 0..MAX_PIECES),
            skipped in any::<prop::sample::Index>(),
            copies in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..90, any::<u8>()), 1..20),
        ) {
            let arena = arena();
            let total: usize = lens.iter().sum();
            let mut model = vec![0; total];
            let mut list = Buffer::list(lens.iter().map(|&len| filled(&arena, &vec![0; len])).collect()).expect("few");
            let front = skipped.index(total + 1);
            list.skip_front(front);
            for (at, len, byte) in copies {
                let at = at.index(list.len() + 1);
                let len = len.min(list.len() - at);
                let bytes: Vec<_> = (0..len).map(|which| byte.wrapping_add(which as u8)).collect();
                list.copy_in(at, &bytes);
                model[front + at..][..len].copy_from_slice(&bytes);
                if let Some((piece, range)) = list.contiguous(at, len) {
                    prop_assert_eq!(&piece[range], &bytes[..]);
                }
                let mut out = vec![0; list.len()];
                list.copy_out(0, &mut out);
                prop_assert_eq!(&out, &model[front..]);
            }
        }
    }
}
