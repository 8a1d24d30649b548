//! Bins: for each label that something waits under, a list of what waits, in the order in which it came.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::Label;
use super::entries::{Entries, List};

/// A bin is there as long as it holds something, or peers could fill the table with tags that they use once. The table
/// keeps its room, so a bin that comes back costs no allocation. It is never iterated: its order means nothing.
#[derive(Default, Debug)]
pub(super) struct Bins(HashMap<Label, List>);

impl Bins {
    /// What came first under this label.
    pub(super) fn head(&self, label: &Label) -> Option<u32> {
        // Nothing is hashed where nothing waits.
        if self.0.is_empty() { None } else { self.0.get(label)?.head() }
    }

    pub(super) fn append<T>(&mut self, entries: &mut Entries<T>, label: Label, index: u32) {
        entries.append(self.0.entry(label).or_default(), index);
    }

    pub(super) fn detach<T>(&mut self, entries: &mut Entries<T>, label: Label, index: u32) {
        if let Entry::Occupied(mut bin) = self.0.entry(label) {
            entries.detach(bin.get_mut(), index);
            if bin.get().is_empty() {
                bin.remove();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
