//! Tables whose places are used again, under names that are not.

use std::sync::atomic::{AtomicU32, Ordering};

/// The name of a value: its place, and how many values that place has held. A name outlives its value without harm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// Returns it as one word.
    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the name that a word is, which may be that of nothing.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Makes names, a limited number at a time. The place that was released last is used first: it is in the cache.
#[derive(Debug)]
pub(crate) struct KeySource {
    /// By place: the generation of its last name.
    generations: Vec<u32>,
    free: Vec<u32>,
    limit: usize,
    /// Where the generations of a place begin.
    start: u32,
}

/// How far apart the generations of two sources begin: no small multiple of it comes near another (the golden ratio).
const STRIDE: u32 = 0x9e37_79b9;

impl KeySource {
    /// At most `limit` names at a time.
    pub(crate) fn new(limit: usize) -> Self {
        assert!(u32::try_from(limit).is_ok(), "an index has 32 bits");
        Self { generations: Vec::new(), free: Vec::new(), limit, start: 0 }
    }

    /// Names that are none of another such source of this process. They have no bits left to say whose they are: the
    /// generations begin far apart instead, and meet after hundreds of millions of values at one place.
    pub(crate) fn of_its_own(limit: usize) -> Self {
        static SOURCES: AtomicU32 = AtomicU32::new(0);
        Self::numbered(SOURCES.fetch_add(1, Ordering::Relaxed), limit)
    }

    /// Names that are none of such a source with another number.
    pub(crate) fn numbered(source: u32, limit: usize) -> Self {
        Self { start: source.wrapping_mul(STRIDE), ..Self::new(limit) }
    }

    /// Names for another table in place of this one, which has made none: at most `limit` at a time.
    pub(crate) fn handed_on(&self, limit: usize) -> Self {
        Self { start: self.start, ..Self::new(limit) }
    }

    /// Makes a name; `None` where too many are in use.
    #[inline]
    pub(crate) fn mint(&mut self) -> Option<Key> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.generations.len() == self.limit => return None,
            None => {
                self.generations.push(self.start);
                self.generations.len() as u32 - 1
            }
        };
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        Some(Key { index, generation: *generation })
    }

    /// A name is in use no longer. Its place is used again, under another name.
    #[inline]
    pub(crate) fn release(&mut self, key: Key) {
        debug_assert_eq!(self.generations[key.index as usize], key.generation, "a name is released once");
        self.free.push(key.index);
    }
}

#[derive(Debug)]
struct NamedValue<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by names that somebody else makes.
#[derive(Debug)]
pub(crate) struct NamedValues<T> {
    slots: Vec<NamedValue<T>>,
    len: usize,
}

impl<T> Default for NamedValues<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

impl<T> NamedValues<T> {
    /// Puts a value under a name whose place is empty. It is made there once that is known, and not copied: a copy of what was
    /// written just before waits for all stores before it, those to a port's ring among them.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: Key, make: impl FnOnce() -> T) {
        let index = key.index as usize;
        if self.slots.len() <= index {
            self.make_room(index + 1);
        }
        let slot = &mut self.slots[index];
        assert!(slot.value.is_none(), "a place holds one value");
        slot.generation = key.generation;
        self.len += 1;
        slot.value = Some(make());
    }

    #[cold]
    fn make_room(&mut self, places: usize) {
        self.slots.resize_with(places, || NamedValue { generation: 0, value: None });
    }

    /// How many values there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_mut()
    }

    /// Takes a value out.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        self.len -= 1;
        Some(value)
    }

    /// Empties the place of a value, which is not dropped: all that it owned was taken out of it.
    #[inline]
    pub(crate) fn forget(&mut self, key: Key) {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation);
        if let Some(value) = slot.and_then(|slot| slot.value.take()) {
            std::mem::forget(value);
            self.len -= 1;
        }
    }

    /// All values with their names, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let live = self.slots.iter().zip(0..);
        live.filter_map(|(slot, index)| Some((Key { index, generation: slot.generation }, slot.value.as_ref()?)))
    }
}

/// A table that makes its names itself.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    names: KeySource,
    table: NamedValues<T>,
}

impl<T> Slab<T> {
    /// An empty table under these names.
    pub(crate) fn new(names: KeySource) -> Self {
        Self { names, table: NamedValues::default() }
    }

    /// How many values there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Names a value; `None` where there are too many.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Option<Key> {
        let key = self.names.mint()?;
        self.table.insert(key, || value);
        Some(key)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.table.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.table.get_mut(key)
    }

    /// All values with their names, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.table.iter()
    }

    /// Ends a name, and hands out what it was for.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.table.remove(key)?;
        self.names.release(key);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_dies_with_its_value_and_its_place_lives_on() {
        let mut slab = Slab::new(KeySource::new(2));
        let (first, second) = (slab.insert('a').expect("room"), slab.insert('b').expect("room"));
        assert!(slab.insert('c').is_none(), "two it holds");
        assert_eq!(slab.remove(first), Some('a'));
        let third = slab.insert('c').expect("room again");
        assert_eq!(third.index, first.index);
        assert_eq!(slab.get(first), None, "the name of an earlier value");
        assert_eq!(slab.remove(first), None, "the name of an earlier value");
        assert_eq!((slab.get(second), slab.get(third)), (Some(&'b'), Some(&'c')));
        assert_eq!(slab.get(Key { index: 2, generation: 1 }), None);
    }

    #[test]
    fn the_names_of_one_table_are_none_of_anothers() {
        let mut slabs: Vec<_> = (0..100).map(|_| Slab::new(KeySource::of_its_own(1))).collect();
        let names: Vec<_> = slabs.iter_mut().map(|slab| slab.insert('a').expect("room")).collect();
        for (which, &name) in names.iter().enumerate() {
            assert!(slabs.iter().enumerate().all(|(other, slab)| slab.get(name).is_some() == (which == other)));
            let far = |other: &Key| other.generation.abs_diff(name.generation) > 1 << 20;
            assert!(names.iter().filter(|&&other| other != name).all(far));
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map_whose_names_are_never_used_again(steps in prop::collection::vec((0..3u8, any::<usize>()), 0..200)) {
            let mut slab = Slab::new(KeySource::new(8));
            let (mut model, mut names) = (HashMap::new(), Vec::new());
            for (number, (step, choice)) in steps.into_iter().enumerate() {
                if step > 0 {
                    let key = slab.insert(number);
                    prop_assert_eq!(key.is_some(), model.len() < 8);
                    if let Some(key) = key {
                        prop_assert!(!names.contains(&key));
                        names.push(key);
                        model.insert(key, number);
                    }
                } else if !names.is_empty() {
                    let key = names[choice % names.len()];
                    prop_assert_eq!(slab.remove(key), model.remove(&key));
                }
                for key in &names {
                    prop_assert_eq!(slab.get(*key), model.get(key));
                    prop_assert_eq!(slab.get_mut(*key).copied(), model.get(key).copied());
                }
                let all: HashMap<_, _> = slab.iter().map(|(key, value)| (key, *value)).collect();
                prop_assert_eq!(&all, &model);
                prop_assert_eq!(slab.table.len(), model.len());
            }
        }
    }
}
