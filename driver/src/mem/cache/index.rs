//! The regions of the cache: by address, none overlapping another, and by when they were used.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::CachedRegion;

/// A registered region in the index.
#[derive(Debug)]
struct IndexEntry {
    region: Arc<CachedRegion>,
    /// When it was last used ...
    used: u64,
    /// ... and under which time it stands in `by_use`, which a hit does not touch: not a later one.
    queued: u64,
}

/// Every look-up is by an index, which a region keeps as long as it is in.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<Option<IndexEntry>>,
    vacant: Vec<u32>,
    by_start: BTreeMap<usize, u32>,
    by_use: BTreeMap<u64, u32>,
    /// Uses so far: a clock.
    clock: u64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Takes a region in that overlaps no other, and was just used.
    pub(super) fn insert(&mut self, region: Arc<CachedRegion>) -> u32 {
        self.clock += 1;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let before = self.by_start.insert(region.range.start, index);
        assert!(before.is_none(), "two regions begin at {:#x}", region.range.start);
        self.by_use.insert(self.clock, index);
        self.entries[index as usize] = Some(IndexEntry { region, used: self.clock, queued: self.clock });
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Arc<CachedRegion> {
        let entry = self.entries[index as usize].take().expect("the index is of a region that is in");
        self.by_start.remove(&entry.region.range.start);
        self.by_use.remove(&entry.queued);
        self.vacant.push(index);
        entry.region
    }

    /// The region, which is now used.
    #[inline]
    pub(super) fn use_of(&mut self, index: u32) -> &Arc<CachedRegion> {
        self.clock += 1;
        let entry = self.entries[index as usize].as_mut().expect("the index is of a region that is in");
        entry.used = self.clock;
        &entry.region
    }

    pub(super) fn get(&self, index: u32) -> &Arc<CachedRegion> {
        &self.entries[index as usize].as_ref().expect("the index is of a region that is in").region
    }

    /// The region that holds all of `range`.
    pub(super) fn holding(&self, range: &Range<usize>) -> Option<u32> {
        let (_, &index) = self.by_start.range(..=range.start).next_back()?;
        (range.end <= self.get(index).range.end).then_some(index)
    }

    /// The regions that have a part of `range`, by address.
    pub(super) fn overlapping(&self, range: &Range<usize>) -> Vec<u32> {
        let before = self.by_start.range(..range.start).next_back().into_iter();
        let all = before.chain(self.by_start.range(range.clone())).map(|(_, &index)| index);
        all.filter(|&index| range.start < self.get(index).range.end).collect()
    }

    /// The regions that end where `range` begins, or begin where it ends.
    pub(super) fn touching(&self, range: &Range<usize>) -> Vec<u32> {
        let before = self.by_start.range(..range.start).next_back().map(|(_, &index)| index);
        let before = before.filter(|&index| self.get(index).range.end == range.start);
        before.into_iter().chain(self.by_start.get(&range.end).copied()).collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.by_start.values().copied()
    }

    /// Whether the cache is the only owner of the region. All writes of the other owners are then over, and visible.
    pub(super) fn is_idle(&mut self, index: u32) -> bool {
        self.entries[index as usize].as_mut().is_some_and(|entry| Arc::get_mut(&mut entry.region).is_some())
    }

    /// The idle region that was not used for longest.
    pub(super) fn oldest_idle(&mut self) -> Option<u32> {
        let mut from = 0;
        while let Some((&queued, &index)) = self.by_use.range(from..).next() {
            let entry = self.entries[index as usize].as_mut().expect("what is queued is in");
            if entry.used != queued {
                // Used since it was queued: its turn comes later.
                entry.queued = entry.used;
                self.by_use.remove(&queued);
                self.by_use.insert(entry.used, index);
            } else if self.is_idle(index) {
                return Some(index);
            } else {
                from = queued + 1;
            }
        }
        None
    }
}
