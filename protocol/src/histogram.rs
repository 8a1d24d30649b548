//! How often values of each magnitude came.

/// Buckets: the last one also has all values beyond it.
const BUCKETS: usize = 40;

/// Counts of values by magnitude: bucket `i` has those of at most 2^`i` that no bucket before it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub const fn note(&mut self, value: u64) {
        let bucket = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        self.0[if bucket < BUCKETS { bucket } else { BUCKETS - 1 }] += 1;
    }

    /// Returns the buckets that have values: the most that a value in it may be, and how many it has.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| (1 << bucket, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_under_the_power_of_two_that_holds_it() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 1024, 1025, u64::MAX] {
            histogram.note(value);
        }
        let buckets: Vec<_> = histogram.iter().collect();
        assert_eq!(buckets, [(1, 2), (2, 1), (4, 2), (8, 1), (1024, 1), (2048, 1), (1 << 39, 1)]);
    }
}
