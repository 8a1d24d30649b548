//! Operations: what the application has acquired or pinned, or waits for.

use super::bucket::{Region, Span};
use crate::Rank;

/// Memory that an operation holds, until it is released: it stays pinned meanwhile, whatever others need.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the memory is held until it is released"]
pub struct Hold(pub(super) OperationId);

/// An operation, as the engine names it. An old name is known as such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OperationId {
    slot: u32,
    generation: u32,
}

/// Whose memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    Peer(Rank),
    Here,
}

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It stands in line, and holds nothing.
    InLine,
    /// It holds its place in every table, and waits for the answers to so many moves.
    Moving(u32),
    /// The application has it.
    Granted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) place: Place,
    pub(super) span: Span,
    pub(super) region: Region,
    pub(super) context: u64,
    pub(super) phase: Phase,
}

struct Slot {
    generation: u32,
    operation: Option<Operation>,
}

/// All operations.
#[derive(Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Operations {
    /// The most there may be.
    pub(super) const LIMIT: usize = 1 << 16;

    /// Begins one; `None` at the limit.
    pub(super) fn insert(&mut self, operation: Operation) -> Option<OperationId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < Self::LIMIT => {
                self.slots.push(Slot { generation: 0, operation: None });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let place = &mut self.slots[slot as usize];
        place.operation = Some(operation);
        Some(OperationId { slot, generation: place.generation })
    }

    pub(super) fn get(&self, id: OperationId) -> Option<&Operation> {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.operation.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: OperationId) -> Option<&mut Operation> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.operation.as_mut()
    }

    pub(super) fn remove(&mut self, id: OperationId) -> Option<Operation> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        let operation = slot.operation.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(operation)
    }

    /// All of them, in an order that is the same in each run.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OperationId, &Operation)> {
        self.slots.iter().enumerate().filter_map(|(slot, Slot { generation, operation })| {
            Some((OperationId { slot: slot as u32, generation: *generation }, operation.as_ref()?))
        })
    }
}
