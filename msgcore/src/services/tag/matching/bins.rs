//! Bins: for each label that something waits under, a list of what waits, in the order in which it came.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::MatchLabel;
use super::entries::{Entries, List};

/// A bin is there as long as it holds something, or peers could fill the table with tags that they use once. The table
/// keeps its room, so a bin that comes back costs no allocation. It is never iterated: its order means nothing.
///
/// One bin stands beside the table, so that nothing is hashed where everything waits under a single label, as it does in
/// a conversation of two. It stays that bin's place until the bin is empty; each label has its bin in one of both.
#[derive(Default, Debug)]
pub(super) struct Bins {
    lone: Option<(MatchLabel, List)>,
    table: HashMap<MatchLabel, List>,
}

impl Bins {
    /// What came first under this label.
    #[inline]
    pub(super) fn head(&self, label: &MatchLabel) -> Option<u32> {
        match &self.lone {
            Some((its, list)) if its == label => list.head(),
            _ if self.table.is_empty() => None,
            _ => self.table.get(label)?.head(),
        }
    }

    #[inline(always)]
    pub(super) fn append<T, const IS_ORDERED: bool>(
        &mut self,
        entries: &mut Entries<T, IS_ORDERED>,
        label: MatchLabel,
        index: u32,
    ) {
        match &mut self.lone {
            Some((its, list)) if *its == label => entries.append(list, index),
            lone @ None if self.table.is_empty() => {
                let (_, list) = lone.insert((label, List::default()));
                entries.append(list, index);
            }
            _ => entries.append(self.table.entry(label).or_default(), index),
        }
    }

    #[inline(always)]
    pub(super) fn detach<T, const IS_ORDERED: bool>(
        &mut self,
        entries: &mut Entries<T, IS_ORDERED>,
        label: &MatchLabel,
        index: u32,
    ) {
        match &mut self.lone {
            Some((its, list)) if its == label => {
                entries.detach(list, index);
                if list.is_empty() {
                    self.lone = None;
                }
            }
            _ => self.detach_from_table(entries, label, index),
        }
    }

    fn detach_from_table<T, const IS_ORDERED: bool>(
        &mut self,
        entries: &mut Entries<T, IS_ORDERED>,
        label: &MatchLabel,
        index: u32,
    ) {
        if let Entry::Occupied(mut bin) = self.table.entry(*label) {
            entries.detach(bin.get_mut(), index);
            if bin.get().is_empty() {
                bin.remove();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lone.is_none() && self.table.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len() + usize::from(self.lone.is_some())
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }
}
