//! Segments and offers: memory that peers reach by one-sided operations, and the keys that they need for it.

use std::ops::RangeInclusive;

use roci_driver::{MemoryRegion, Rkey};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::refused::CallError;
use crate::Source;

/// Memory of this end that peers may read, write and change by atomics, until it is withdrawn. It is a name: copies of it are the
/// same segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment(pub(crate) MemoryRegion);

/// What peers may do with memory that is exposed to them under a key of its owner's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteAccess {
    /// They may read it.
    ReadOnly,
    /// They may read it, and write it where it is no source.
    ReadWrite,
}

/// Memory that this end offers to peers, until it is taken back: what they use of it is registered, and nothing else. It is a name, as
/// a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfferedMemory {
    pub(crate) base: u64,
    pub(crate) len: usize,
    pub(crate) terms: OfferTerms,
}

/// How peers come by the keys to memory that is offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OfferTerms {
    /// Bytes of a bucket, which has a key of its own, are two to the power of this.
    pub(crate) bucket_bits: u8,
    /// Buckets of this end that a peer may hold keys to at a time.
    pub(crate) firehoses: u16,
}

/// The key to memory of a peer's, a segment or an offer: who has it may reach that memory, and nothing else of the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentKey {
    state: MemoryState,
    base: u64,
    len: u64,
}

/// How peers reach memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum MemoryState {
    Registered(Rkey),
    Offered(OfferTerms),
    /// Registered under a key that its owner has chosen, which stands where the base does otherwise: addresses are the owner's.
    Requested,
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
    firehoses: U16,
    bucket_bits: u8,
    /// 1 where the owner has chosen the key, which stands where the base does otherwise; else 0.
    is_requested: u8,
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
        SegmentKey { state: MemoryState::Registered(self.0.rkey()), base: self.0.base(), len: self.0.len() as u64 }
    }
}

impl OfferedMemory {
    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the key that peers need to reach it, as long as it is offered.
    pub fn key(&self) -> SegmentKey {
        SegmentKey { state: MemoryState::Offered(self.terms), base: self.base, len: self.len as u64 }
    }
}

impl From<Segment> for SegmentKey {
    fn from(segment: Segment) -> Self {
        segment.key()
    }
}

impl From<OfferedMemory> for SegmentKey {
    fn from(offer: OfferedMemory) -> Self {
        offer.key()
    }
}

impl OfferTerms {
    /// The sizes of buckets that there are: a page and more.
    const BITS: RangeInclusive<u8> = 12..=30;

    /// Those of memory that is registered.
    const NONE: Self = Self { bucket_bits: 0, firehoses: 0 };
}

impl MemoryState {
    fn of(view: &SegmentView) -> Option<Self> {
        if view.is_requested > 0 {
            let is_bare = (view.is_requested, view.rkey.get(), view.len.get()) == (1, 0, u64::MAX);
            return (is_bare && (view.firehoses.get(), view.bucket_bits) == (0, 0)).then_some(Self::Requested);
        }
        let terms = OfferTerms { bucket_bits: view.bucket_bits, firehoses: view.firehoses.get() };
        let is_offer = terms.firehoses > 0 && OfferTerms::BITS.contains(&terms.bucket_bits);
        match view.rkey.get() {
            rkey if terms == OfferTerms::NONE => Some(Self::Registered(Rkey(rkey))),
            0 if is_offer => Some(Self::Offered(terms)),
            _ => None,
        }
    }

    fn parts(self) -> (Rkey, OfferTerms) {
        match self {
            Self::Registered(rkey) => (rkey, OfferTerms::NONE),
            Self::Offered(terms) => (Rkey(0), terms),
            Self::Requested => (Rkey(0), OfferTerms::NONE),
        }
    }
}

impl SegmentKey {
    /// Bytes of a key.
    pub const LEN: usize = size_of::<SegmentView>();

    /// Returns the key as bytes, to be carried to peers.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let Self { state, base, len } = self;
        let (rkey, OfferTerms { bucket_bits, firehoses }) = state.parts();
        let is_requested = u8::from(state == MemoryState::Requested);
        zerocopy::transmute!(SegmentView {
            base: base.into(),
            len: len.into(),
            rkey: rkey.0.into(),
            firehoses: firehoses.into(),
            bucket_bits,
            is_requested,
        })
    }

    /// Reads a key; `None` where the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let view = SegmentView::read_from_bytes(bytes).ok()?;
        let state = MemoryState::of(&view)?;
        let (base, len) = (view.base.get(), view.len.get());
        let is_whole = state == MemoryState::Requested || base.checked_add(len).is_some();
        is_whole.then_some(Self { state, base, len })
    }

    /// Returns the key to memory that a peer has exposed under a number of its choice
    /// ([`OneSided::expose_as`](crate::one_sided::OneSided::expose_as)). Its addresses are those that the peer has given the memory,
    /// and only the peer knows how long it is.
    pub fn requested(key: u64) -> Self {
        Self { state: MemoryState::Requested, base: key, len: u64::MAX }
    }

    /// Returns its length in bytes; [`u64::MAX`] where that is not known.
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

    /// Returns how its key is come by, where the memory is offered; none where the key is known.
    #[inline]
    pub(crate) fn offered(self) -> Option<OfferTerms> {
        match self.segment.state {
            MemoryState::Registered(_) | MemoryState::Requested => None,
            MemoryState::Offered(terms) => Some(terms),
        }
    }

    /// Returns the key that the memory's owner has chosen, if it has.
    #[inline]
    pub(crate) fn requested(self) -> Option<u64> {
        (self.segment.state == MemoryState::Requested).then_some(self.segment.base)
    }

    /// Whether the key that RDMA takes is known.
    #[inline]
    pub(crate) fn has_rkey(self) -> bool {
        matches!(self.segment.state, MemoryState::Registered(_))
    }

    /// Returns the key, if it is known ([`RemoteAddress::has_rkey`]), and the address of so many bytes.
    ///
    /// # Errors
    /// They reach beyond the segment.
    #[inline]
    pub(crate) fn resolve(self, len: usize) -> Result<(Rkey, u64), CallError> {
        let Self { segment: SegmentKey { state, base, len: all }, offset } = self;
        let base = if state == MemoryState::Requested { 0 } else { base };
        match offset.checked_add(len as u64) {
            Some(end) if end <= all => Ok((state.parts().0, base + offset)),
            _ => Err(CallError::BeyondSegment { offset, len, segment: all }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_other_bytes_are_none() {
        let segment = SegmentKey { state: MemoryState::Registered(Rkey(0xdead_beef)), base: 1 << 40, len: 4096 };
        let terms = OfferTerms { bucket_bits: 16, firehoses: u16::MAX };
        let offer = SegmentKey { state: MemoryState::Offered(terms), ..segment };
        assert_eq!(SegmentKey::from_bytes(&offer.to_bytes()), Some(offer));
        for wrong in [
            OfferTerms { bucket_bits: 11, ..terms },
            OfferTerms { bucket_bits: 31, ..terms },
            OfferTerms { firehoses: 0, ..terms },
        ] {
            let wrong = SegmentKey { state: MemoryState::Offered(wrong), ..offer };
            assert_eq!(SegmentKey::from_bytes(&wrong.to_bytes()), None);
        }
        for key in [0, 1, u64::MAX] {
            let requested = SegmentKey::requested(key);
            assert_eq!(SegmentKey::from_bytes(&requested.to_bytes()), Some(requested));
            for (at, byte) in [(8, 0), (16, 1), (20, 1), (22, 1), (23, 2)] {
                let mut wrong = requested.to_bytes();
                wrong[at] = byte;
                assert_eq!(SegmentKey::from_bytes(&wrong), None, "{at}");
            }
        }
        let mut with_a_key = offer.to_bytes();
        with_a_key[16] = 1;
        assert_eq!(SegmentKey::from_bytes(&with_a_key), None, "it has none");
        let bytes = segment.to_bytes();
        assert_eq!(SegmentKey::from_bytes(&bytes), Some(segment));
        assert_eq!(SegmentKey::from_bytes(&bytes[1..]), None);
        let beyond = SegmentKey { base: u64::MAX, len: 1, ..segment }.to_bytes();
        assert_eq!(SegmentKey::from_bytes(&beyond), None);
    }

    #[test]
    fn an_address_ends_with_its_segment() {
        let segment = SegmentKey { state: MemoryState::Registered(Rkey(7)), base: 100, len: 10 };
        assert_eq!(segment.at(4).resolve(6).ok(), Some((Rkey(7), 104)));
        assert_eq!(segment.at(10).resolve(0).ok(), Some((Rkey(7), 110)));
        for (offset, len) in [(4, 7), (11, 0), (usize::MAX, 2), (0, usize::MAX)] {
            assert!(matches!(segment.at(offset).resolve(len), Err(CallError::BeyondSegment { .. })), "{offset} {len}");
        }
        assert!(segment.at(5).plus(usize::MAX).resolve(0).is_err());
    }
}
