//! Moves under way: requests to peers that were not answered yet.

use super::bucket::{Bucket, Region};
use super::operations::OperationId;
use crate::Rank;

/// A move's name, here and on the wire. An old name is known as such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MoveId(pub(super) u64);

/// A request that firehoses lead to new buckets, in place of old ones.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) peer: Rank,
    pub(super) new: Vec<Region>,
    pub(super) old: Vec<Bucket>,
    /// Operations that wait for it; those that have failed meanwhile are not taken out.
    pub(super) waiters: Vec<OperationId>,
}

struct Slot {
    generation: u32,
    open: Option<Move>,
}

/// All of them. There are no more than firehoses: each move has one of its own.
#[derive(Default)]
pub(super) struct Moves {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Moves {
    pub(super) fn open(&mut self, peer: Rank) -> MoveId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, open: None });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.open = Some(Move { peer, new: Vec::new(), old: Vec::new(), waiters: Vec::new() });
        MoveId(u64::from(place.generation) << 32 | u64::from(slot))
    }

    pub(super) fn get(&self, id: MoveId) -> Option<&Move> {
        self.slots.get(id.slot()).filter(|slot| slot.generation == id.generation())?.open.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: MoveId) -> Option<&mut Move> {
        self.slots.get_mut(id.slot()).filter(|slot| slot.generation == id.generation())?.open.as_mut()
    }

    pub(super) fn close(&mut self, id: MoveId) -> Option<Move> {
        let slot = self.slots.get_mut(id.slot()).filter(|slot| slot.generation == id.generation())?;
        let closed = slot.open.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot() as u32);
        Some(closed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MoveId, &Move)> {
        self.slots.iter().enumerate().filter_map(|(slot, Slot { generation, open })| {
            Some((MoveId(u64::from(*generation) << 32 | slot as u64), open.as_ref()?))
        })
    }
}

impl MoveId {
    const fn slot(self) -> usize {
        self.0 as u32 as usize
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
