//! The key table: which memory a peer may reach, and by which number.
//!
//! A key carries a slot's index and 18 random bits. A stale or a guessed key differs in some bit, and is refused before
//! anything is touched: a guess of a key that is in use is right once in 262,144 times. Slots are used again in the order in
//! which they came free, so that a key that was ended means nothing for as long as can be.

use std::collections::VecDeque;
use std::ops::Range;

use rand::Rng;
use rand::rngs::StdRng;
use roci_protocol::rc::Denied;
use roci_protocol::{Access, Qpn, Rkey};
use thiserror::Error;

use super::{Buffer, MemoryKind};
use crate::Refused;

const INDEX_BITS: u32 = 14;
const RANDOM_BITS: u32 = 32 - INDEX_BITS;
/// Regions at once.
const LIMIT: usize = 1 << INDEX_BITS;
/// Free slots that rest before one is used again.
const RESTING: usize = 512;

/// Whether these rights are to change memory.
fn changes_memory(access: Access) -> bool {
    [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC].into_iter().any(|right| access.allows(right))
}

/// Whether what peers call an aligned number is one in memory, where the application may access it at the same time. A list has
/// numbers that lie in two pieces anyway: atomics on those are denied one by one.
fn has_aligned_numbers(buffer: &Buffer, base: u64) -> bool {
    buffer.kind() != MemoryKind::Target || (buffer.as_ptr().addr() as u64).wrapping_sub(base).is_multiple_of(8)
}

/// A protection domain: regions and queue pairs of different domains do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PdId(pub(crate) u32);

/// Why a region was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegionError {
    /// All keys are in use.
    #[error("all {LIMIT} keys are in use")]
    NoKey,
    /// Peers would write to memory that is read only.
    #[error("a source is read only: peers may have no right to write to it")]
    ReadOnly,
    /// Peers would have atomics on a target whose numbers are aligned for them, and not in memory.
    #[error("atomics on a target need addresses that are multiples of 8 where those of its memory are")]
    Misaligned,
    /// Its last address would be beyond 64 bits.
    #[error("the region does not end within 64 bits of address")]
    TooHigh,
    /// The engine is the parent's.
    #[error("this process was forked from the engine's: open an engine of its own")]
    Forked,
}

/// Who asks for memory: a queue pair and its protection domain. The local process asks as no queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    pub(crate) pd: PdId,
    pub(crate) qpn: Option<Qpn>,
}

/// All registered regions and memory windows; it owns the regions' memory until they are removed.
#[derive(Debug)]
pub(crate) struct KeyTable {
    slots: Vec<KeySlot>,
    free: VecDeque<u32>,
    dice: StdRng,
    /// Windows made so far.
    serial: u64,
}

/// A slot of the key table, and the key that is valid for it.
#[derive(Debug)]
struct KeySlot {
    key: Rkey,
    entry: KeyEntry,
}

/// What a key refers to.
#[derive(Debug)]
enum KeyEntry {
    Free,
    Region(KeyedRegion),
    /// A memory window with its serial number, and what it opens while it is bound.
    Window(PdId, u64, Option<Binding>),
}

/// A memory region with its rights.
#[derive(Debug)]
struct KeyedRegion {
    pd: PdId,
    access: Access,
    buffer: Buffer,
    /// The address of its first byte.
    base: u64,
}

/// What a window opens: a part of a region, to the peer of one queue pair (IBTA 10.6.7.2.2, type 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    pub(crate) qpn: Qpn,
    pub(crate) region: Rkey,
    pub(crate) va: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
}

impl KeyTable {
    /// An empty table whose keys are as hard to guess as the dice.
    pub(crate) const fn new(dice: StdRng) -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), dice, serial: 0 }
    }

    /// Takes `buffer` in and gives the key to it. Addresses within the region start at `base`.
    pub(crate) fn insert(
        &mut self,
        pd: PdId,
        buffer: Buffer,
        access: Access,
        base: u64,
    ) -> Result<Rkey, Refused<Buffer, RegionError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if buffer.check_filled().is_err() && changes_memory(access) {
            return refuse(RegionError::ReadOnly, buffer);
        }
        if base.checked_add(buffer.len() as u64).is_none() {
            return refuse(RegionError::TooHigh, buffer);
        }
        if access.allows(Access::REMOTE_ATOMIC) && !has_aligned_numbers(&buffer, base) {
            return refuse(RegionError::Misaligned, buffer);
        }
        let Some(index) = self.vacant() else { return refuse(RegionError::NoKey, buffer) };
        Ok(self.occupy(index, KeyEntry::Region(KeyedRegion { pd, access, buffer, base })))
    }

    /// Ends a region's key and hands its memory back; `None` where the key is not valid. Windows bound to it open
    /// nothing from here on.
    pub(crate) fn remove(&mut self, key: Rkey) -> Option<Buffer> {
        let slot = self.slot_mut(key).filter(|slot| matches!(slot.entry, KeyEntry::Region(_)))?;
        let KeyEntry::Region(region) = std::mem::replace(&mut slot.entry, KeyEntry::Free) else { return None };
        self.free.push_back(index_of(key) as u32);
        Some(region.buffer)
    }

    /// A memory window that opens nothing yet, and its serial number; `None` where the table is full.
    pub(crate) fn insert_window(&mut self, pd: PdId) -> Option<(Rkey, u64)> {
        let index = self.vacant()?;
        self.serial += 1;
        Some((self.occupy(index, KeyEntry::Window(pd, self.serial, None)), self.serial))
    }

    /// Whether the window that once had `key` still exists: its key changes, its place and its serial number stay.
    pub(crate) fn is_window(&self, key: Rkey, serial: u64) -> bool {
        let entry = self.slots.get(index_of(key)).map(|slot| &slot.entry);
        matches!(entry, Some(KeyEntry::Window(_, its, _)) if *its == serial)
    }

    /// Ends a window for good; `false` where there is no such.
    pub(crate) fn remove_window(&mut self, key: Rkey, serial: u64) -> bool {
        let exists = self.is_window(key, serial);
        if exists {
            self.slots[index_of(key)].entry = KeyEntry::Free;
            self.free.push_back(index_of(key) as u32);
        }
        exists
    }

    /// Ends what windows open to the peer of a queue pair that is gone.
    pub(crate) fn shut_windows_of(&mut self, qpn: Qpn) {
        if self.serial == 0 {
            return;
        }
        for slot in &mut self.slots {
            if let KeyEntry::Window(.., bound) = &mut slot.entry {
                *bound = bound.filter(|binding| binding.qpn != qpn);
            }
        }
    }

    /// Another key that the window under `key` may be bound with, so that a peer's use of the old binding differs from
    /// one of the new.
    pub(crate) fn next_key(&mut self, key: Rkey) -> Rkey {
        loop {
            let next = self.random_key(key);
            if next != key {
                return next;
            }
        }
    }

    /// Binds an unbound window of `pd`, under the new key `window`.
    pub(crate) fn bind(&mut self, pd: PdId, window: Rkey, binding: Binding) -> Result<(), Denied> {
        let region = self.region(binding.region).ok_or(Denied)?;
        checked_range(region, pd, binding.va, binding.len, Access::WINDOW_BIND)?;
        if region.buffer.check_filled().is_err() && changes_memory(binding.access) {
            return Err(Denied);
        }
        let slot = self.slots.get_mut(index_of(window)).ok_or(Denied)?;
        match &mut slot.entry {
            KeyEntry::Window(owner, _, bound @ None) if *owner == pd => *bound = Some(binding),
            _ => return Err(Denied),
        }
        slot.key = window;
        Ok(())
    }

    /// Ends what a window opens, if `qpn` bound it.
    pub(crate) fn invalidate(&mut self, qpn: Qpn, window: Rkey) -> Result<(), Denied> {
        match self.slot_mut(window).map(|slot| &mut slot.entry) {
            Some(KeyEntry::Window(.., bound)) if bound.is_some_and(|binding| binding.qpn == qpn) => *bound = None,
            _ => return Err(Denied),
        }
        Ok(())
    }

    /// Whether so many bytes under `key` are there, and everything allows `access` to them.
    #[inline]
    pub(crate) fn authorize(&self, who: Asker, key: Rkey, va: u64, len: u64, access: Access) -> Result<(), Denied> {
        self.resolve(who, key, va, len, access).map(|_| ())
    }

    /// The buffer that has the bytes under `key`, and which of its bytes they are, to be read.
    #[inline]
    pub(crate) fn find(
        &self,
        who: Asker,
        key: Rkey,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<(&Buffer, Range<usize>), Denied> {
        let (key, range) = self.resolve(who, key, va, len, access)?;
        self.region(key).map(|region| (&region.buffer, range)).ok_or(Denied)
    }

    /// The same, to be written.
    #[inline]
    pub(crate) fn find_mut(
        &mut self,
        who: Asker,
        key: Rkey,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<(&mut Buffer, Range<usize>), Denied> {
        let (key, range) = self.resolve(who, key, va, len, access)?;
        match self.slots.get_mut(index_of(key)).map(|slot| &mut slot.entry) {
            Some(KeyEntry::Region(region)) if region.buffer.check_filled().is_ok() => Ok((&mut region.buffer, range)),
            _ => Err(Denied),
        }
    }

    /// The region under `key`, or behind the window under it, and the part of it that is meant.
    #[inline]
    fn resolve(
        &self,
        who: Asker,
        key: Rkey,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<(Rkey, Range<usize>), Denied> {
        let slot = self.slots.get(index_of(key)).filter(|slot| slot.key == key).ok_or(Denied)?;
        match &slot.entry {
            KeyEntry::Region(region) => Ok((key, checked_range(region, who.pd, va, len, access)?)),
            KeyEntry::Window(pd, _, Some(binding)) if *pd == who.pd && who.qpn == Some(binding.qpn) => {
                let end = va.checked_add(len).ok_or(Denied)?;
                if !binding.access.allows(access) || va < binding.va || end > binding.va + binding.len {
                    return Err(Denied);
                }
                let region = self.region(binding.region).ok_or(Denied)?;
                Ok((binding.region, checked_range(region, who.pd, va, len, Access::WINDOW_BIND)?))
            }
            _ => Err(Denied),
        }
    }

    fn region(&self, key: Rkey) -> Option<&KeyedRegion> {
        match self.slots.get(index_of(key)).filter(|slot| slot.key == key).map(|slot| &slot.entry) {
            Some(KeyEntry::Region(region)) => Some(region),
            _ => None,
        }
    }

    fn slot_mut(&mut self, key: Rkey) -> Option<&mut KeySlot> {
        self.slots.get_mut(index_of(key)).filter(|slot| slot.key == key)
    }

    /// Whether a key is left.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < LIMIT
    }

    /// A slot that is free: one that was never used, until so many have come free that the oldest has rested for long.
    fn vacant(&mut self) -> Option<u32> {
        if self.free.len() < RESTING && self.slots.len() < LIMIT {
            self.slots.push(KeySlot { key: Rkey(0), entry: KeyEntry::Free });
            return Some(self.slots.len() as u32 - 1);
        }
        self.free.pop_front()
    }

    fn occupy(&mut self, index: u32, entry: KeyEntry) -> Rkey {
        let first = Rkey(index << RANDOM_BITS);
        let before = self.slots[index as usize].key;
        let key = if before.0 == 0 { self.random_key(first) } else { self.next_key(before) };
        let slot = &mut self.slots[index as usize];
        (slot.key, slot.entry) = (key, entry);
        key
    }

    /// Any key of the slot that `key` belongs to.
    fn random_key(&mut self, key: Rkey) -> Rkey {
        const LOW: u32 = (1 << RANDOM_BITS) - 1;
        Rkey(key.0 & !LOW | self.dice.random_range(0..=LOW))
    }
}

const fn index_of(key: Rkey) -> usize {
    (key.0 >> RANDOM_BITS) as usize
}

#[inline]
fn checked_range(region: &KeyedRegion, pd: PdId, va: u64, len: u64, access: Access) -> Result<Range<usize>, Denied> {
    let from = va.checked_sub(region.base).ok_or(Denied)?;
    let to = from.checked_add(len).filter(|&to| to <= region.buffer.len() as u64).ok_or(Denied)?;
    if region.pd != pd || !region.access.allows(access) {
        return Err(Denied);
    }
    Ok(from as usize..to as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::super::Arena;
    use super::*;

    const PD: PdId = PdId(1);
    const QPN: Qpn = Qpn::new(0x4000);
    const US: Asker = Asker { pd: PD, qpn: None };
    const PEER: Asker = Asker { pd: PD, qpn: Some(QPN) };

    fn table_with(access: Access) -> (KeyTable, Rkey) {
        let mut keys = KeyTable::new(StdRng::seed_from_u64(1));
        let buffer = Arena::new(1 << 16).expect("memory").buffer(100).expect("room");
        let key = keys.insert(PD, buffer, access, 0).expect("room");
        (keys, key)
    }

    #[test]
    fn bounds_rights_and_domain_are_checked() {
        let (keys, key) = table_with(Access::REMOTE_READ);
        let ask = |pd, va, len, access| {
            keys.find(Asker { pd, qpn: None }, key, va, len, access).map(|(_, range)| range.len())
        };
        assert_eq!(ask(PD, 0, 100, Access::REMOTE_READ), Ok(100));
        assert_eq!(ask(PD, 100, 0, Access::REMOTE_READ), Ok(0));
        assert_eq!(ask(PD, 1, 100, Access::REMOTE_READ), Err(Denied));
        assert_eq!(ask(PD, u64::MAX, 2, Access::REMOTE_READ), Err(Denied));
        assert_eq!(ask(PD, 0, 1, Access::REMOTE_WRITE), Err(Denied));
        assert_eq!(ask(PdId(2), 0, 1, Access::REMOTE_READ), Err(Denied));
    }

    #[test]
    fn addresses_begin_where_the_owner_says() {
        let mut keys = KeyTable::new(StdRng::seed_from_u64(1));
        let arena = Arena::new(1 << 16).expect("memory");
        let buffer = || arena.buffer(100).expect("room");
        for base in [0, 1, 0x7fff_1234_5678, u64::MAX - 100] {
            let key = keys.insert(PD, buffer(), Access::REMOTE_READ, base).expect("it ends within 64 bits");
            let ask = |va, len| keys.find(US, key, va, len, Access::REMOTE_READ).map(|(_, range)| range);
            assert_eq!((ask(base, 100), ask(base + 99, 1)), (Ok(0..100), Ok(99..100)));
            assert_eq!((ask(base + 100, 0), ask(base + 100, 1)), (Ok(100..100), Err(Denied)));
            assert_eq!(ask(base.wrapping_sub(1), 1), Err(Denied));
        }
        let refused = keys.insert(PD, buffer(), Access::REMOTE_READ, u64::MAX - 99).expect_err("it does not");
        assert_eq!((refused.why, refused.given.len()), (RegionError::TooHigh, 100));
    }

    #[test]
    fn a_source_takes_no_right_to_write() {
        let mut keys = KeyTable::new(StdRng::seed_from_u64(1));
        let source = || Buffer::of_user((&[1_u8; 64][..]).into(), 1, None);
        for access in [Access::REMOTE_WRITE, Access::REMOTE_READ.and(Access::REMOTE_ATOMIC)] {
            assert_eq!(keys.insert(PD, source(), access, 0).expect_err("read only").why, RegionError::ReadOnly);
        }
        let key = keys.insert(PD, source(), Access::REMOTE_READ.and(Access::WINDOW_BIND), 0).expect("room");
        assert!(keys.find(US, key, 0, 64, Access::LOCAL).is_ok());
        assert_eq!(keys.find_mut(US, key, 0, 64, Access::LOCAL).map(|_| ()), Err(Denied));
        let (window, _) = keys.insert_window(PD).expect("room");
        let binding = Binding { qpn: QPN, region: key, va: 0, len: 64, access: Access::REMOTE_WRITE };
        assert_eq!(keys.bind(PD, window, binding), Err(Denied), "nor does a window on it");
        assert_eq!(keys.bind(PD, window, Binding { access: Access::REMOTE_READ, ..binding }), Ok(()));
    }

    #[test]
    fn every_other_key_is_refused() {
        let (keys, key) = table_with(Access::REMOTE_READ);
        for bit in 0..32 {
            let guess = Rkey(key.0 ^ 1 << bit);
            assert_eq!(keys.authorize(US, guess, 0, 1, Access::REMOTE_READ), Err(Denied), "bit {bit}");
        }
    }

    #[test]
    fn a_removed_key_stays_dead_when_its_slot_is_used_again() {
        let (mut keys, stale) = table_with(Access::REMOTE_READ);
        let (mut buffer, mut uses) = (keys.remove(stale), 1);
        for _ in 0..2 * RESTING {
            let fresh = keys.insert(PD, buffer.take().expect("it came back"), Access::REMOTE_READ, 0).expect("room");
            uses += usize::from(index_of(fresh) == index_of(stale));
            assert_ne!(fresh, stale);
            assert!(keys.remove(stale).is_none());
            assert!(keys.authorize(US, fresh, 0, 1, Access::REMOTE_READ).is_ok());
            buffer = keys.remove(fresh);
        }
        assert_eq!(uses, 3);
    }

    #[test]
    fn a_slot_rests_and_its_key_is_a_new_one() {
        let (mut table, key) = table_with(Access::REMOTE_READ);
        let mut buffer = table.remove(key);
        let mut keys = BTreeSet::from([key.0]);
        for _ in 0..3 * RESTING {
            let key =
                table.insert(PdId(1), buffer.take().expect("it came back"), Access::REMOTE_READ, 0).expect("room");
            assert!(keys.insert(key.0), "{key:?} comes again");
            buffer = table.remove(key);
        }
        assert_eq!(table.slots.len(), RESTING);
    }

    #[test]
    fn a_full_table_hands_the_buffer_back() {
        let arena = Arena::new(LINES * 64).expect("memory");
        const LINES: usize = LIMIT + 1;
        let mut keys = KeyTable::new(StdRng::seed_from_u64(1));
        for _ in 0..LIMIT {
            keys.insert(PD, arena.buffer(1).expect("room"), Access::LOCAL, 0).expect("room");
        }
        let refused = keys.insert(PD, arena.buffer(1).expect("room"), Access::LOCAL, 0).expect_err("full");
        assert_eq!((refused.why, refused.given.len()), (RegionError::NoKey, 1));
    }

    /// A region of 100 bytes and a window on bytes 10 to 30 of it, for writing.
    fn table_with_window() -> (KeyTable, Rkey, Rkey) {
        let (mut keys, region) = table_with(Access::REMOTE_READ.and(Access::WINDOW_BIND));
        let (window, _) = keys.insert_window(PD).expect("room");
        let bound = keys.next_key(window);
        let binding = Binding { qpn: QPN, region, va: 10, len: 20, access: Access::REMOTE_WRITE };
        keys.bind(PD, bound, binding).expect("all is right");
        (keys, region, bound)
    }

    #[test]
    fn a_window_opens_its_part_with_its_own_rights_to_its_own_peer() {
        let (keys, _, window) = table_with_window();
        let write = Access::REMOTE_WRITE;
        let ask = |who, va, len, access| keys.find(who, window, va, len, access).map(|(_, range)| range.len());
        assert_eq!(ask(PEER, 10, 20, write), Ok(20));
        assert_eq!(ask(PEER, 9, 2, write), Err(Denied));
        assert_eq!(ask(PEER, 29, 2, write), Err(Denied));
        assert_eq!(ask(PEER, u64::MAX, 2, write), Err(Denied));
        assert_eq!(ask(PEER, 10, 1, Access::REMOTE_READ), Err(Denied));
        assert_eq!(ask(Asker { pd: PD, qpn: Some(Qpn::new(9)) }, 10, 1, write), Err(Denied));
        assert_eq!(ask(Asker { pd: PdId(2), qpn: Some(QPN) }, 10, 1, write), Err(Denied));
        assert_eq!(ask(US, 10, 1, write), Err(Denied));
    }

    #[test]
    fn an_ended_window_opens_nothing_and_can_be_bound_again_under_another_key() {
        let (mut keys, region, window) = table_with_window();
        assert_eq!(keys.invalidate(Qpn::new(9), window), Err(Denied), "it is not that queue pair's");
        assert_eq!(keys.invalidate(QPN, region), Err(Denied), "a region is no window");
        assert_eq!(keys.invalidate(QPN, window), Ok(()));
        assert_eq!(keys.invalidate(QPN, window), Err(Denied), "it opens nothing any more");
        assert_eq!(keys.authorize(PEER, window, 10, 1, Access::REMOTE_WRITE), Err(Denied));
        let fresh = keys.next_key(window);
        let binding = Binding { qpn: QPN, region, va: 0, len: 1, access: Access::REMOTE_WRITE };
        assert_eq!(keys.bind(PD, fresh, binding), Ok(()));
        assert_eq!(keys.authorize(PEER, window, 0, 1, Access::REMOTE_WRITE), Err(Denied));
        assert!(keys.authorize(PEER, fresh, 0, 1, Access::REMOTE_WRITE).is_ok());
        let other = keys.next_key(fresh);
        assert_eq!(keys.bind(PD, other, binding), Err(Denied), "it is bound");
    }

    #[test]
    fn a_window_on_a_region_that_has_gone_opens_nothing() {
        let (mut keys, region, window) = table_with_window();
        keys.remove(region).expect("it is valid");
        assert_eq!(keys.authorize(PEER, window, 10, 1, Access::REMOTE_WRITE), Err(Denied));
        assert!(keys.remove_window(window, 1));
        assert!(!keys.remove_window(window, 1));
    }

    #[test]
    fn the_handle_of_an_ended_window_does_not_name_the_next_one() {
        let mut keys = KeyTable::new(StdRng::seed_from_u64(1));
        let (stale, first) = keys.insert_window(PD).expect("room");
        assert!(keys.remove_window(stale, first));
        let (fresh, second) = loop {
            let (window, serial) = keys.insert_window(PD).expect("room");
            if index_of(window) == index_of(stale) {
                break (window, serial);
            }
            assert!(keys.remove_window(window, serial));
        };
        assert_eq!(index_of(stale), index_of(fresh));
        assert!(!keys.remove_window(stale, first) && !keys.is_window(stale, first));
        assert!(keys.is_window(fresh, second));
    }

    #[test]
    fn a_queue_pair_that_goes_shuts_its_windows() {
        let (mut keys, region, window) = table_with_window();
        keys.shut_windows_of(QPN);
        assert_eq!(keys.authorize(PEER, window, 10, 1, Access::REMOTE_WRITE), Err(Denied));
        let fresh = keys.next_key(window);
        let binding = Binding { qpn: Qpn::new(9), region, va: 0, len: 1, access: Access::REMOTE_WRITE };
        assert_eq!(keys.bind(PD, fresh, binding), Ok(()), "another queue pair may have it now");
    }

    #[test]
    fn only_regions_that_allow_it_take_windows_and_only_within_their_bounds() {
        let (mut keys, region) = table_with(Access::REMOTE_READ);
        let (window, _) = keys.insert_window(PD).expect("room");
        let binding = |va| Binding { qpn: QPN, region, va, len: 20, access: Access::REMOTE_READ };
        assert_eq!(keys.bind(PD, window, binding(0)), Err(Denied));
        let (mut keys, _) = table_with(Access::WINDOW_BIND);
        let (window, _) = keys.insert_window(PD).expect("room");
        assert_eq!(keys.bind(PD, window, binding(81)), Err(Denied));
        assert_eq!(keys.bind(PdId(2), window, binding(0)), Err(Denied));
    }
}
