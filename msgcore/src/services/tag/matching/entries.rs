//! Entries in slots that are used again, and doubly linked lists through them (an intrusive list by index).
//!
//! An entry stands in two lists at once, so that it leaves both in constant time: that of all entries, in the order
//! in which they came, and one that its owner chooses. Who never asks for the order of all does without the first
//! ([`Unordered`]).

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// Which of an entry's two lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chain {
    All = 0,
    Own = 1,
}

/// An entry's neighbours in one list.
#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

/// A place for an entry. A free one links to the next free one.
#[derive(Debug)]
struct Slot<T> {
    /// How many entries it has held: a handle to an earlier one is recognised.
    generation: u32,
    links: [Links; 2],
    value: Option<T>,
}

/// All entries, in the order in which they came where `IS_ORDERED`.
#[derive(Debug)]
pub(crate) struct Entries<T, const IS_ORDERED: bool = true> {
    slots: Vec<Slot<T>>,
    free: u32,
    all: List,
    len: usize,
}

/// Entries without an order among all of them.
pub(crate) type Unordered<T> = Entries<T, false>;

impl Links {
    const UNLINKED: Self = Self { previous: NONE, next: NONE };
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl List {
    /// The entry that came first.
    pub(crate) fn head(self) -> Option<u32> {
        some(self.head)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.head == NONE
    }
}

impl<T, const IS_ORDERED: bool> Default for Entries<T, IS_ORDERED> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, all: List::default(), len: 0 }
    }
}

impl<T, const IS_ORDERED: bool> Entries<T, IS_ORDERED> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry behind all others, and to no other list yet.
    pub(crate) fn push(&mut self, value: T) -> u32 {
        let index = self.free_slot();
        // Its links are written when it enters a list.
        self.slots[index as usize].value = Some(value);
        self.len += 1;
        if IS_ORDERED {
            let mut all = self.all;
            self.link(&mut all, Chain::All, index);
            self.all = all;
        }
        index
    }

    /// Removes an entry, which its owner has taken out of the other list.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.value.take()?;
        if IS_ORDERED {
            let mut all = self.all;
            self.unlink(&mut all, Chain::All, index);
            self.all = all;
        }
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.links[Chain::All as usize].next = self.free;
        self.free = index;
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// What a handle to the entry in this slot must say to be current.
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slots[index as usize].generation
    }

    /// Appends an entry to a list of its owner's.
    pub(crate) fn append(&mut self, list: &mut List, index: u32) {
        self.link(list, Chain::Own, index);
    }

    /// Takes an entry out of the list that it was appended to.
    pub(crate) fn detach(&mut self, list: &mut List, index: u32) {
        self.unlink(list, Chain::Own, index);
    }

    /// All entries, in no order.
    pub(crate) fn occupied(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.value.as_ref()?)))
    }

    /// The entries of an owner's list, the first to come first.
    pub(crate) fn iter_list(&self, list: List) -> impl Iterator<Item = (u32, &T)> {
        self.walk(list.head, |slot| slot.links[Chain::Own as usize].next)
    }

    fn walk(&self, from: u32, step: impl Fn(&Slot<T>) -> u32) -> impl Iterator<Item = (u32, &T)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let (index, slot) = (at, self.slots.get(at as usize)?);
            at = step(slot);
            Some((index, slot.value.as_ref()?))
        })
    }

    fn free_slot(&mut self) -> u32 {
        match some(self.free) {
            Some(index) => {
                self.free = self.slots[index as usize].links[Chain::All as usize].next;
                index
            }
            None => {
                assert!(self.slots.len() < NONE as usize, "the caller bounds their number");
                if self.slots.is_empty() {
                    // Many a peer has one message wait, for its connection, and never another.
                    self.slots.reserve_exact(1);
                }
                self.slots.push(Slot { generation: 0, links: [Links::UNLINKED; 2], value: None });
                self.slots.len() as u32 - 1
            }
        }
    }

    fn link(&mut self, list: &mut List, chain: Chain, index: u32) {
        self.slots[index as usize].links[chain as usize] = Links { previous: list.tail, next: NONE };
        match some(list.tail) {
            Some(tail) => self.slots[tail as usize].links[chain as usize].next = index,
            None => list.head = index,
        }
        list.tail = index;
    }

    fn unlink(&mut self, list: &mut List, chain: Chain, index: u32) {
        let Links { previous, next } = self.slots[index as usize].links[chain as usize];
        match some(previous) {
            Some(previous) => self.slots[previous as usize].links[chain as usize].next = next,
            None => list.head = next,
        }
        match some(next) {
            Some(next) => self.slots[next as usize].links[chain as usize].previous = previous,
            None => list.tail = previous,
        }
    }

    /// Slots, in use or free.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}

impl<T> Entries<T> {
    /// All entries, the first to come first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.walk(self.all.head, |slot| slot.links[Chain::All as usize].next)
    }

    /// The first entry to come, or the first after the one in this slot.
    pub(crate) fn next(&self, after: Option<u32>) -> Option<u32> {
        some(after.map_or(self.all.head, |index| self.slots[index as usize].links[Chain::All as usize].next))
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}
