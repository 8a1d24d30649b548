//! Segments: memory that peers reach by one-sided operations, and the keys that they need for it.

use roci_driver::{MemoryRegion, Rkey};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::refused::CallError;
use crate::Source;

/// Memory of this end that peers may read, write and change by atomics, until it is withdrawn. It is a name: copies of it are the
/// same segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment(pub(crate) MemoryRegion);

/// The key to a segment of a peer's: who has it may reach the segment, and nothing else of the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentKey {
    rkey: Rkey,
    base: u64,
    len: u64,
}

/// An address in a segment of a peer's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteAddress {
    segment: SegmentKey,
    offset: u64,
}

/// A number of 8 bytes in a segment of this end's that a peer, or any, is to change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedNumber {
    pub(crate) source: Source,
    pub(crate) segment: Segment,
    pub(crate) offset: usize,
    /// What it was.
    pub(crate) was: u64,
}

/// The layout of a key on its way to peers.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SegmentView {
    base: U64,
    len: U64,
    rkey: U32,
}

impl Segment {
    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key that peers need to reach it, as long as the segment is exposed.
    pub fn key(&self) -> SegmentKey {
        SegmentKey { rkey: self.0.rkey(), base: self.0.base(), len: self.0.len() as u64 }
    }
}

impl SegmentKey {
    /// Bytes of a key.
    pub const LEN: usize = size_of::<SegmentView>();

    /// Returns the key as bytes, to be carried to peers.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let Self { rkey, base, len } = self;
        zerocopy::transmute!(SegmentView { base: base.into(), len: len.into(), rkey: rkey.0.into() })
    }

    /// Reads a key; `None` where the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let view = SegmentView::read_from_bytes(bytes).ok()?;
        let (rkey, base, len) = (Rkey(view.rkey.get()), view.base.get(), view.len.get());
        base.checked_add(len)?;
        Some(Self { rkey, base, len })
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address at this offset from its beginning.
    pub fn at(self, offset: usize) -> RemoteAddress {
        RemoteAddress { segment: self, offset: offset as u64 }
    }
}

impl RemoteAddress {
    /// Returns the address so many bytes further on.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset.saturating_add(bytes as u64), ..self }
    }

    /// Returns the key and the address of a number of so many bytes.
    ///
    /// # Errors
    /// It reaches beyond the segment, or its address is no multiple of its length.
    pub(crate) fn resolve_number(self, len: usize) -> Result<(Rkey, u64), CallError> {
        let (rkey, va) = self.resolve(len)?;
        if va.is_multiple_of(len as u64) {
            Ok((rkey, va))
        } else {
            Err(CallError::Misaligned { offset: self.offset, len })
        }
    }

    /// Returns the key and the address of so many bytes.
    ///
    /// # Errors
    /// They reach beyond the segment.
    #[inline]
    pub(crate) fn resolve(self, len: usize) -> Result<(Rkey, u64), CallError> {
        let Self { segment: SegmentKey { rkey, base, len: all }, offset } = self;
        match offset.checked_add(len as u64) {
            Some(end) if end <= all => Ok((rkey, base + offset)),
            _ => Err(CallError::BeyondSegment { offset, len, segment: all }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_other_bytes_are_none() {
        let segment = SegmentKey { rkey: Rkey(0xdead_beef), base: 1 << 40, len: 4096 };
        let bytes = segment.to_bytes();
        assert_eq!(SegmentKey::from_bytes(&bytes), Some(segment));
        assert_eq!(SegmentKey::from_bytes(&bytes[1..]), None);
        let beyond = SegmentKey { base: u64::MAX, len: 1, ..segment }.to_bytes();
        assert_eq!(SegmentKey::from_bytes(&beyond), None);
    }

    #[test]
    fn an_address_ends_with_its_segment() {
        let segment = SegmentKey { rkey: Rkey(7), base: 100, len: 10 };
        assert_eq!(segment.at(4).resolve(6).ok(), Some((Rkey(7), 104)));
        assert_eq!(segment.at(10).resolve(0).ok(), Some((Rkey(7), 110)));
        for (offset, len) in [(4, 7), (11, 0), (usize::MAX, 2), (0, usize::MAX)] {
            assert!(matches!(segment.at(offset).resolve(len), Err(CallError::BeyondSegment { .. })), "{offset} {len}");
        }
        assert!(segment.at(5).plus(usize::MAX).resolve(0).is_err());
    }
}
