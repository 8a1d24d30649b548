//! Unexpected messages by class: where many wait, a pattern with a wildcard finds the oldest that it takes by one look.
//!
//! An index is made when a class first needs it, from all messages that wait, and kept until none do. A message that has been
//! taken stays in the indexes, and is passed over when it comes to the front of its bin; where more have been taken than wait,
//! the indexes are given up, and made anew if they are needed. So all of it costs a constant for each message and class, as long as
//! no more classes are used in turn than have an index, and memory follows the messages that wait. Beyond that a look costs what
//! a walk does.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::MatchLabel;
use super::classes::MatchClass;

/// Where a message waits: how many its slot has held, and the slot.
type Waiting = (u32, u32);

/// An index for each class that has needed one.
#[derive(Default, Debug)]
pub(super) struct ClassIndexes {
    indexes: Vec<ClassIndex>,
    /// Messages taken since the first of them was made.
    removed: usize,
}

/// The messages by their keys in one class, the oldest first.
#[derive(Debug)]
struct ClassIndex {
    class: MatchClass,
    bins: HashMap<MatchLabel, VecDeque<Waiting>>,
}

/// Messages that may be taken before the indexes are given up, beside as many as wait.
const SLACK: usize = if cfg!(test) { 4 } else { 1024 };
/// Classes with an index; the one that was used longest ago goes where there are more.
const LIMIT: usize = if cfg!(test) { 3 } else { 16 };

impl ClassIndexes {
    /// Whether there is an index.
    #[inline]
    pub(super) fn are_some(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// A message waits from now on.
    #[cold]
    pub(super) fn enter(&mut self, label: &MatchLabel, generation: u32, index: u32) {
        for its in &mut self.indexes {
            its.enter(label, (generation, index));
        }
    }

    /// A message waits no longer, and `left` still do.
    #[cold]
    pub(super) fn note_removed(&mut self, left: usize) {
        self.removed += 1;
        if left == 0 || self.removed > left + SLACK {
            self.indexes.clear();
            self.removed = 0;
        }
    }

    /// Returns the slot of the oldest message under a key of a class. `waiting` are all messages, the oldest first, and
    /// `is_there` says whether one still waits.
    pub(super) fn find<I: Iterator<Item = (MatchLabel, u32, u32)>>(
        &mut self,
        class: MatchClass,
        key: &MatchLabel,
        waiting: impl FnOnce() -> I,
        is_there: impl Fn(u32, u32) -> bool,
    ) -> Option<u32> {
        let at = self.indexes.iter().position(|its| its.class == class);
        match at {
            // The last is the one that was used last.
            Some(at) if at + 1 < self.indexes.len() => self.indexes[at..].rotate_left(1),
            Some(_) => {}
            None => self.make(class, waiting()),
        }
        let bins = &mut self.indexes.last_mut()?.bins;
        let bin = bins.get_mut(key)?;
        while let Some(&(generation, index)) = bin.front() {
            if is_there(generation, index) {
                return Some(index);
            }
            bin.pop_front();
        }
        bins.remove(key);
        None
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.indexes.len()
    }

    #[cfg(test)]
    pub(super) fn messages(&self) -> usize {
        self.indexes.iter().flat_map(|its| its.bins.values()).map(VecDeque::len).sum()
    }

    #[cold]
    fn make(&mut self, class: MatchClass, waiting: impl Iterator<Item = (MatchLabel, u32, u32)>) {
        let mut made = ClassIndex { class, bins: HashMap::new() };
        waiting.for_each(|(label, generation, index)| made.enter(&label, (generation, index)));
        if self.indexes.len() == LIMIT {
            self.indexes.remove(0);
        }
        assert!(self.indexes.iter().all(|its| its.class != class), "a class has one index");
        self.indexes.push(made);
    }
}

impl ClassIndex {
    fn enter(&mut self, label: &MatchLabel, waiting: Waiting) {
        self.bins.entry(self.class.key(label)).or_default().push_back(waiting);
    }
}
