//! Buckets: memory in pieces of one size, which are pinned and unpinned whole.

use thiserror::Error;

/// A bucket's number: its first address divided by the size of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bucket(pub u64);

/// Bytes from `va` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first address.
    pub va: u64,
    /// How many bytes.
    pub len: u64,
}

/// Buckets in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    first: Bucket,
    count: u64,
}

/// Why bytes lie in no buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadSpan {
    /// There are none.
    #[error("no bytes at {0:#x}: a transfer of nothing needs no memory")]
    Empty(u64),
    /// They go beyond the last address.
    #[error("{len} bytes at {va:#x} go beyond the last address")]
    Wraps {
        /// The first address.
        va: u64,
        /// How many bytes.
        len: u64,
    },
}

/// The size of a bucket, a power of two, so that no code divides by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grain(u32);

impl Region {
    /// Buckets in a row; `None` if their numbers do not fit.
    pub fn new(first: Bucket, count: u64) -> Option<Self> {
        first.0.checked_add(count).map(|_| Self { first, count })
    }

    /// The first.
    pub const fn first(self) -> Bucket {
        self.first
    }

    /// How many.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// Each of them, rising.
    pub fn buckets(self) -> impl ExactSizeIterator<Item = Bucket> + use<> {
        BucketsOf { next: self.first.0, end: self.first.0 + self.count }
    }

    /// Whether all of `other` lies in it.
    pub fn contains(self, other: Self) -> bool {
        other.first >= self.first && other.first.0 + other.count <= self.first.0 + self.count
    }

    /// Takes a bucket that follows the last one.
    fn extend(&mut self, bucket: Bucket) -> bool {
        let follows = self.first.0 + self.count == bucket.0;
        self.count += u64::from(follows);
        follows
    }
}

/// What [`Region::buckets`] walks along; a range of numbers knows its length only as `usize`.
struct BucketsOf {
    next: u64,
    end: u64,
}

impl Iterator for BucketsOf {
    type Item = Bucket;

    fn next(&mut self) -> Option<Bucket> {
        let bucket = (self.next < self.end).then_some(Bucket(self.next))?;
        self.next += 1;
        Some(bucket)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for BucketsOf {}

/// Puts buckets that follow one another together, as they come.
pub(super) fn coalesce(buckets: impl IntoIterator<Item = Bucket>) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for bucket in buckets {
        if !regions.last_mut().is_some_and(|last| last.extend(bucket)) {
            regions.push(Region { first: bucket, count: 1 });
        }
    }
    regions
}

impl Grain {
    /// A page.
    pub(super) const PAGE: Self = Self(12);

    /// A grain of so many bytes; `None` if that is no power of two.
    pub fn new(bytes: u64) -> Option<Self> {
        bytes.is_power_of_two().then(|| Self(bytes.trailing_zeros()))
    }

    /// Bytes of a bucket.
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// The buckets that a span touches.
    pub fn cover(self, span: Span) -> Result<Region, BadSpan> {
        let Span { va, len } = span;
        let last = len.checked_sub(1).ok_or(BadSpan::Empty(va))?;
        let last = va.checked_add(last).ok_or(BadSpan::Wraps { va, len })? >> self.0;
        let first = va >> self.0;
        Region::new(Bucket(first), last - first + 1).ok_or(BadSpan::Wraps { va, len })
    }

    /// The bucket that an address lies in.
    pub const fn bucket_of(self, va: u64) -> Bucket {
        Bucket(va >> self.0)
    }

    /// The part of a span that lies in one of its buckets.
    pub(super) fn part(self, span: Span, bucket: Bucket) -> Span {
        let start = bucket.0 << self.0;
        let va = span.va.max(start);
        let last = (span.va + (span.len - 1)).min(start | (self.bytes() - 1));
        Span { va, len: last - va + 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_grain_is_a_power_of_two() {
        assert_eq!(Grain::new(4096).map(Grain::bytes), Some(4096));
        assert_eq!([0, 3, 4097].map(Grain::new), [None; 3]);
    }

    #[test]
    fn spans_that_are_none_are_refused_by_name() {
        let grain = Grain::new(4096).expect("a power of two");
        assert_eq!(grain.cover(Span { va: 5, len: 0 }), Err(BadSpan::Empty(5)));
        assert_eq!(grain.cover(Span { va: 5, len: u64::MAX }), Err(BadSpan::Wraps { va: 5, len: u64::MAX }));
        let last = grain.cover(Span { va: u64::MAX, len: 1 }).expect("the last byte");
        assert_eq!((last.first.0, last.count), (u64::MAX >> 12, 1));
    }

    #[test]
    fn neighbours_become_one_region() {
        let regions = coalesce([3, 4, 5, 9, 8, 10].map(Bucket));
        let counts: Vec<_> = regions.iter().map(|region| (region.first.0, region.count)).collect();
        assert_eq!(counts, [(3, 3), (9, 1), (8, 1), (10, 1)]);
    }

    proptest! {
        #[test]
        fn the_parts_of_a_span_are_the_span(va in 0..1_u64 << 40, len in 1..100_000_u64, shift in 8..20_u32) {
            let grain = Grain::new(1 << shift).expect("a power of two");
            let span = Span { va, len };
            let mut at = va;
            for bucket in grain.cover(span).expect("a span").buckets() {
                let part = grain.part(span, bucket);
                prop_assert_eq!((part.va, part.va >> shift), (at, bucket.0));
                prop_assert!(part.len > 0 && (part.va + part.len - 1) >> shift == bucket.0);
                at += part.len;
            }
            prop_assert_eq!(at, va + len);
        }
    }
}
