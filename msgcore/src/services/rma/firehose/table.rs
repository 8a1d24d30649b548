//! A table of buckets, some of which are not in use: those stand in a queue, the least recently used first.
//!
//! Both ends keep their buckets in one: at the target, memory that may be unpinned; at the initiator, firehoses that may
//! be moved. The queue is a list through the slots, so that a bucket that is used again leaves it in constant time.

use hashbrown::HashMap;

use super::bucket::Bucket;

/// No slot: the end of the queue.
const NONE: u32 = u32::MAX;

struct TableSlot<T> {
    bucket: Bucket,
    entry: T,
    /// Neighbours in the queue, if it stands there.
    previous: u32,
    next: u32,
    is_victim: bool,
}

pub(super) struct Table<T> {
    index: HashMap<u64, u32>,
    slots: Vec<TableSlot<T>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    victims: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let (slots, free) = (Vec::new(), Vec::new());
        Self { index: HashMap::new(), slots, free, oldest: NONE, newest: NONE, victims: 0 }
    }
}

impl<T> Table<T> {
    /// How many buckets it has.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many of them stand in the queue.
    pub(super) fn victims(&self) -> usize {
        self.victims
    }

    #[inline]
    pub(super) fn find(&self, bucket: Bucket) -> Option<u32> {
        self.index.get(&bucket.0).copied()
    }

    #[inline]
    pub(super) fn bucket(&self, slot: u32) -> Bucket {
        self.slots[slot as usize].bucket
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &T {
        &self.slots[slot as usize].entry
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize].entry
    }

    #[inline]
    pub(super) fn is_victim(&self, slot: u32) -> bool {
        self.slots[slot as usize].is_victim
    }

    /// Adds a bucket, which it must not have yet.
    pub(super) fn insert(&mut self, bucket: Bucket, entry: T) -> u32 {
        let new = TableSlot { bucket, entry, previous: NONE, next: NONE, is_victim: false };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                self.slots.len() as u32 - 1
            }
        };
        let earlier = self.index.insert(bucket.0, slot);
        assert!(earlier.is_none(), "{bucket:?} is in the table already");
        slot
    }

    /// Removes a bucket, from the queue as well.
    pub(super) fn remove(&mut self, slot: u32) {
        if self.is_victim(slot) {
            self.revive(slot);
        }
        let gone = self.index.remove(&self.bucket(slot).0);
        assert_eq!(gone, Some(slot), "the bucket of slot {slot} is not in the table");
        self.free.push(slot);
    }

    /// The bucket is not in use any more: it goes to the end of the queue.
    pub(super) fn retire(&mut self, slot: u32) {
        let newest = self.newest;
        let place = &mut self.slots[slot as usize];
        assert!(!place.is_victim, "{:?} is a victim already", place.bucket);
        (place.is_victim, place.previous, place.next) = (true, newest, NONE);
        *self.next_of(newest) = slot;
        self.newest = slot;
        self.victims += 1;
    }

    /// Somebody uses the bucket again: it leaves the queue.
    pub(super) fn revive(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        assert!(place.is_victim, "{:?} is no victim", place.bucket);
        place.is_victim = false;
        let (previous, next) = (place.previous, place.next);
        *self.next_of(previous) = next;
        *self.previous_of(next) = previous;
        self.victims -= 1;
    }

    /// The bucket that was not used for longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Every slot in use, by its bucket: an order that is the same in each run.
    pub(super) fn sorted(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.index.values().copied().collect();
        slots.sort_unstable_by_key(|&slot| self.bucket(slot));
        slots
    }

    /// The queue, from the oldest on.
    pub(super) fn queue(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.oldest(), |&slot| {
            let next = self.slots[slot as usize].next;
            (next != NONE).then_some(next)
        })
    }

    fn next_of(&mut self, slot: u32) -> &mut u32 {
        if slot == NONE { &mut self.oldest } else { &mut self.slots[slot as usize].next }
    }

    fn previous_of(&mut self, slot: u32) -> &mut u32 {
        if slot == NONE { &mut self.newest } else { &mut self.slots[slot as usize].previous }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set, and a queue that is searched.
        #[test]
        fn it_behaves_like_a_set_and_a_queue(steps in prop::collection::vec((0..4_u8, 0..8_u64), 1..200)) {
            let mut table = Table::<u64>::default();
            let (mut set, mut queue) = (BTreeSet::new(), VecDeque::new());
            for (what, number) in steps {
                let found = table.find(Bucket(number));
                prop_assert_eq!(found.is_some(), set.contains(&number));
                match (what, found) {
                    (0, None) => {
                        table.insert(Bucket(number), number);
                        set.insert(number);
                    }
                    (1, Some(slot)) => {
                        table.remove(slot);
                        set.remove(&number);
                        queue.retain(|&other| other != number);
                    }
                    (2, Some(slot)) if !table.is_victim(slot) => {
                        table.retire(slot);
                        queue.push_back(number);
                    }
                    (3, Some(slot)) if table.is_victim(slot) => {
                        table.revive(slot);
                        queue.retain(|&other| other != number);
                    }
                    _ => {}
                }
                let oldest = table.oldest().map(|slot| *table.get(slot));
                prop_assert_eq!(oldest, queue.front().copied());
                let in_order: Vec<u64> = table.queue().map(|slot| table.bucket(slot).0).collect();
                prop_assert_eq!(in_order, queue.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!((table.len(), table.victims()), (set.len(), queue.len()));
                let sorted: Vec<u64> = table.sorted().into_iter().map(|slot| table.bucket(slot).0).collect();
                prop_assert_eq!(sorted, set.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
