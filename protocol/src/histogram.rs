//! How often values of each magnitude came, and their sum.

/// Buckets: one for each place that the highest bit of a value can have, so that none needs a look at a limit.
const BUCKETS: usize = u64::BITS as usize + 1;

/// Counts of values by magnitude: bucket `i` has those of at most 2^`i` that no bucket before it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram {
    sum: u64,
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { sum: 0, counts: [0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub const fn note(&mut self, value: u64) {
        let bucket = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        self.counts[bucket] += 1;
        self.sum = self.sum.wrapping_add(value);
    }

    /// Returns the buckets that have values: the most that a value in it may be, and how many it has.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let most = |bucket: usize| 1_u64.checked_shl(bucket as u32).unwrap_or(u64::MAX);
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(move |(bucket, count)| (most(bucket), *count))
    }

    /// Returns the sum of all values; beyond 2^64 it begins again at 0.
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_under_the_power_of_two_that_holds_it() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 1024, 1025, 1 << 63, u64::MAX] {
            histogram.note(value);
        }
        let buckets: Vec<_> = histogram.iter().collect();
        assert_eq!(buckets, [(1, 2), (2, 1), (4, 2), (8, 1), (1024, 1), (2048, 1), (1 << 63, 1), (u64::MAX, 1)]);
    }

    #[test]
    fn the_sum_is_that_of_the_values_and_not_of_their_buckets() {
        let mut histogram = Histogram::default();
        for value in [3, 5, 1025] {
            histogram.note(value);
        }
        assert_eq!(histogram.sum(), 1033);
    }
}
