//! The key table: which memory a peer may reach, and by which number.
//!
//! A key carries a slot's index, a generation that changes with every use of the slot, and random bits. A stale
//! or a guessed key differs in some bit, and is refused before anything is touched.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_protocol::rc::Denied;
use roci_protocol::{Access, Rkey};

use super::Buffer;

const INDEX_BITS: u32 = 14;
const GENERATION_BITS: u32 = 6;
const RANDOM_BITS: u32 = 32 - INDEX_BITS - GENERATION_BITS;
/// Regions at once.
const LIMIT: usize = 1 << INDEX_BITS;

/// A protection domain: regions and queue pairs of different domains do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PdId(pub(crate) u32);

/// The table is full; the buffer comes back.
#[derive(Debug)]
pub struct RegionFull(pub Buffer);

/// All registered regions; it owns their memory until they are removed.
#[derive(Debug)]
pub(crate) struct KeyTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    dice: StdRng,
}

#[derive(Debug)]
struct Slot {
    key: Rkey,
    generation: u32,
    region: Option<Region>,
}

#[derive(Debug)]
struct Region {
    pd: PdId,
    access: Access,
    buffer: Buffer,
}

impl KeyTable {
    /// An empty table with unpredictable keys.
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), dice: StdRng::from_os_rng() }
    }

    /// Takes `buffer` in and gives the key to it. Addresses within the region start at 0.
    pub(crate) fn insert(&mut self, pd: PdId, buffer: Buffer, access: Access) -> Result<Rkey, RegionFull> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() == LIMIT => return Err(RegionFull(buffer)),
            None => {
                self.slots.push(Slot { key: Rkey(0), generation: 0, region: None });
                self.slots.len() as u32 - 1
            }
        };
        let random = self.dice.random_range(0..1 << RANDOM_BITS);
        let slot = &mut self.slots[index as usize];
        slot.generation = (slot.generation + 1) % (1 << GENERATION_BITS);
        slot.key = Rkey(index << (32 - INDEX_BITS) | slot.generation << RANDOM_BITS | random);
        slot.region = Some(Region { pd, access, buffer });
        Ok(slot.key)
    }

    /// Ends a key and hands its memory back; `None` where the key is not valid.
    pub(crate) fn remove(&mut self, key: Rkey) -> Option<Buffer> {
        let index = index_of(key);
        let slot = self.slots.get_mut(index).filter(|slot| slot.key == key)?;
        let region = slot.region.take()?;
        self.free.push(index as u32);
        Some(region.buffer)
    }

    /// The bytes under `key`, if everything allows it.
    #[inline]
    pub(crate) fn slice(&self, pd: PdId, key: Rkey, va: u64, len: u64, access: Access) -> Result<&[u8], Denied> {
        let region = self.slots.get(index_of(key)).filter(|slot| slot.key == key).and_then(|slot| slot.region.as_ref());
        let region = region.ok_or(Denied)?;
        let range = checked_range(region, pd, va, len, access)?;
        Ok(&region.buffer[range])
    }

    /// The bytes under `key`, to be written.
    #[inline]
    pub(crate) fn slice_mut(
        &mut self,
        pd: PdId,
        key: Rkey,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<&mut [u8], Denied> {
        let slot = self.slots.get_mut(index_of(key)).filter(|slot| slot.key == key);
        let region = slot.and_then(|slot| slot.region.as_mut()).ok_or(Denied)?;
        let range = checked_range(region, pd, va, len, access)?;
        Ok(&mut region.buffer[range])
    }
}

const fn index_of(key: Rkey) -> usize {
    (key.0 >> (32 - INDEX_BITS)) as usize
}

#[inline]
fn checked_range(
    region: &Region,
    pd: PdId,
    va: u64,
    len: u64,
    access: Access,
) -> Result<std::ops::Range<usize>, Denied> {
    let end = va.checked_add(len).filter(|&end| end <= region.buffer.len() as u64).ok_or(Denied)?;
    if region.pd != pd || !region.access.allows(access) {
        return Err(Denied);
    }
    Ok(va as usize..end as usize)
}

#[cfg(test)]
mod tests {
    use super::super::Arena;
    use super::*;

    const PD: PdId = PdId(1);

    fn table_with(access: Access) -> (KeyTable, Rkey) {
        let mut keys = KeyTable::new();
        let buffer = Arena::new(1 << 16).expect("memory").buffer(100).expect("room");
        let key = keys.insert(PD, buffer, access).expect("room");
        (keys, key)
    }

    #[test]
    fn bounds_rights_and_domain_are_checked() {
        let (keys, key) = table_with(Access::REMOTE_READ);
        let ask = |pd, va, len, access| keys.slice(pd, key, va, len, access).map(<[u8]>::len);
        assert_eq!(ask(PD, 0, 100, Access::REMOTE_READ), Ok(100));
        assert_eq!(ask(PD, 100, 0, Access::REMOTE_READ), Ok(0));
        assert_eq!(ask(PD, 1, 100, Access::REMOTE_READ), Err(Denied));
        assert_eq!(ask(PD, u64::MAX, 2, Access::REMOTE_READ), Err(Denied));
        assert_eq!(ask(PD, 0, 1, Access::REMOTE_WRITE), Err(Denied));
        assert_eq!(ask(PdId(2), 0, 1, Access::REMOTE_READ), Err(Denied));
    }

    #[test]
    fn every_other_key_is_refused() {
        let (keys, key) = table_with(Access::REMOTE_READ);
        for bit in 0..32 {
            let guess = Rkey(key.0 ^ 1 << bit);
            assert_eq!(keys.slice(PD, guess, 0, 1, Access::REMOTE_READ), Err(Denied), "bit {bit}");
        }
    }

    #[test]
    fn a_removed_key_stays_dead_when_its_slot_is_used_again() {
        let (mut keys, stale) = table_with(Access::REMOTE_READ);
        for _ in 0..3 {
            let buffer = keys.remove(stale);
            let Some(buffer) = buffer else { break };
            let fresh = keys.insert(PD, buffer, Access::REMOTE_READ).expect("room");
            assert_ne!(fresh, stale);
            assert!(keys.remove(stale).is_none());
            assert!(keys.slice(PD, fresh, 0, 1, Access::REMOTE_READ).is_ok());
        }
        assert_eq!(keys.slots.len(), 1);
    }

    #[test]
    fn a_full_table_hands_the_buffer_back() {
        let arena = Arena::new(LINES * 64).expect("memory");
        const LINES: usize = LIMIT + 1;
        let mut keys = KeyTable::new();
        for _ in 0..LIMIT {
            keys.insert(PD, arena.buffer(1).expect("room"), Access::LOCAL).expect("room");
        }
        let RegionFull(buffer) = keys.insert(PD, arena.buffer(1).expect("room"), Access::LOCAL).expect_err("full");
        assert_eq!(buffer.len(), 1);
    }
}
