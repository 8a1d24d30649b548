//! The regions that were used last, by a hash of the address: where a hit takes one look.

use std::ops::Range;

/// Lines, a power of two: 256 of them are 8 KiB.
const LINES: usize = 256;
const PAGE_BITS: u32 = 12;
/// No board ever says this: it counts from 2, and says 0 in a forked child, where a line that has forgotten its region
/// must not be found either.
const NEVER: u64 = u64::MAX;

/// The range of a region that was used recently.
#[derive(Clone, Debug)]
struct RecentRange {
    range: Range<usize>,
    /// The board's epoch when the region was found good: as long as the board says the same, it still is.
    epoch: u64,
    index: u32,
}

#[derive(Debug)]
pub(super) struct Recent {
    lines: Box<[RecentRange; LINES]>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { lines: Box::new(std::array::from_fn(|_| RecentRange { range: 0..0, epoch: NEVER, index: 0 })) }
    }

    /// The index of a region that holds `range`, and was good at `epoch`.
    #[inline]
    pub(super) fn find(&self, range: &Range<usize>, epoch: u64) -> Option<u32> {
        let line = &self.lines[line_of(range.start)];
        let holds = line.range.start <= range.start && range.end <= line.range.end;
        (line.epoch == epoch && holds).then_some(line.index)
    }

    /// The region `index`, of `region`, was found good at `epoch`, by somebody who looked for `start`.
    pub(super) fn remember(&mut self, start: usize, region: &Range<usize>, epoch: u64, index: u32) {
        self.lines[line_of(start)] = RecentRange { range: region.clone(), epoch, index };
    }

    /// The region `index` is no more.
    pub(super) fn forget(&mut self, index: u32) {
        self.lines.iter_mut().filter(|line| line.index == index).for_each(|line| line.epoch = NEVER);
    }
}

/// Fibonacci hashing of the page's number.
#[inline]
const fn line_of(start: usize) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    ((start as u64 >> PAGE_BITS).wrapping_mul(GOLDEN) >> (u64::BITS - LINES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::super::super::board::FORKED;
    use super::*;

    #[test]
    fn a_line_serves_what_lies_in_its_region_until_the_epoch_moves() {
        let mut recent = Recent::new();
        recent.remember(0x5010, &(0x4000..0x9000), 2, 7);
        assert_eq!(recent.find(&(0x5ff0..0x9000), 2), Some(7));
        assert_eq!(recent.find(&(0x5ff0..0x9001), 2), None);
        assert_eq!(recent.find(&(0x5ff0..0x9000), 4), None);
        recent.forget(6);
        assert_eq!(recent.find(&(0x5000..0x5000), 2), Some(7));
        recent.forget(7);
        assert_eq!(recent.find(&(0x5000..0x5001), 2), None);
        assert_eq!(recent.find(&(0x5000..0x5001), FORKED), None);
        assert_eq!(Recent::new().find(&(0..0), FORKED), None);
    }

    #[test]
    fn neighbouring_pages_have_lines_of_their_own() {
        let lines: std::collections::BTreeSet<_> = (0..64).map(|page| line_of(page << PAGE_BITS)).collect();
        assert!(lines.len() > 60, "{}", lines.len());
    }
}
