//! Payloads: memory of the application's that may be fetched without a copy, and the cache of their registrations.
//!
//! A registration cache of an MPI library keeps pages pinned behind the application's back, and has to watch that
//! they are not unmapped meanwhile. Buffers here have one owner, so it is simpler: the application gives a buffer to
//! the worker and keeps a handle. The first put by zero-copy registers it; after that it stays registered, until it
//! is released or until another one takes its place. Writing to it does not end the registration.
//!
//! The price is that of every such cache: a peer that has the key may read the payload as long as it is
//! registered, also what is written to it later. An application that minds releases it after each put.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, MemoryRegion, WrongKind};

use super::error::StreamError;
use super::stats::StreamStats;
use crate::core::Core;
use crate::core::transfer::TRANSFER_LIMIT;

/// Payloads of one worker.
const LIMIT: usize = 1 << 16;
/// The longest payload: one READ fetches it, whatever the size of packets.
pub(super) const MOST_PAYLOAD: u64 = TRANSFER_LIMIT as u64;

/// A payload of a worker's streams. Its memory belongs to the worker until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPayload {
    index: u32,
    generation: u32,
}

enum Memory {
    None,
    Unregistered(Buffer),
    Registered { region: MemoryRegion, used: u64 },
}

struct PayloadEntry {
    generation: u32,
    memory: Memory,
    len: usize,
    /// Puts that are not over.
    puts: u32,
    /// It is a source: it can be put, and not written.
    is_read_only: bool,
}

/// Where a payload's bytes are.
pub(super) enum Bytes<'a> {
    /// In a buffer.
    Buffer(&'a Buffer),
    /// In a region.
    Region(MemoryRegion),
}

/// All payloads, of which at most `limit` are registered.
pub(super) struct Payloads {
    entries: Vec<PayloadEntry>,
    free: Vec<u32>,
    registered: usize,
    limit: usize,
    /// Counts the uses: the least value was used longest ago.
    clock: u64,
}

impl Payloads {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), registered: 0, limit, clock: 0 }
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    pub(super) fn adopt(&mut self, buffer: Buffer) -> Result<StreamPayload, StreamError> {
        buffer.check_sent()?;
        let len = buffer.len();
        if len as u64 > MOST_PAYLOAD {
            return Err(StreamError::PayloadTooLong(len));
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() == LIMIT => return Err(StreamError::TooManyPayloads(LIMIT)),
            None => {
                self.entries.push(PayloadEntry {
                    generation: 0,
                    memory: Memory::None,
                    len: 0,
                    puts: 0,
                    is_read_only: false,
                });
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.is_read_only = buffer.check_filled().is_err();
        (entry.memory, entry.len) = (Memory::Unregistered(buffer), len);
        Ok(StreamPayload { index, generation: entry.generation })
    }

    pub(super) fn len(&self, payload: StreamPayload) -> Result<usize, StreamError> {
        self.get(payload).map(|entry| entry.len)
    }

    pub(super) fn bytes(&self, payload: StreamPayload) -> Result<Bytes<'_>, StreamError> {
        match &self.get(payload)?.memory {
            Memory::None => Err(StreamError::NoPayload),
            Memory::Unregistered(buffer) => Ok(Bytes::Buffer(buffer)),
            Memory::Registered { region, .. } => Ok(Bytes::Region(*region)),
        }
    }

    /// A put begins: the memory must not change until it is over.
    pub(super) fn begin_put(&mut self, payload: StreamPayload) -> Result<(), StreamError> {
        self.get_mut(payload)?.puts += 1;
        Ok(())
    }

    /// A put is over.
    pub(super) fn end_put(&mut self, payload: StreamPayload) {
        if let Ok(entry) = self.get_mut(payload) {
            entry.puts -= 1;
        }
    }

    /// The payload's region, which it may have to be given first; `None` where all registrations are in use by puts.
    pub(super) fn register<L: Link>(
        &mut self,
        payload: StreamPayload,
        core: &mut Core<L>,
        stats: &mut StreamStats,
    ) -> Result<Option<MemoryRegion>, StreamError> {
        self.clock += 1;
        let clock = self.clock;
        if let Memory::Registered { region, used } = &mut self.get_mut(payload)?.memory {
            *used = clock;
            stats.cache_hits += 1;
            return Ok(Some(*region));
        }
        if self.registered >= self.limit && !self.evict(core, stats) {
            return Ok(None);
        }
        let entry = self.get_mut(payload)?;
        let Memory::Unregistered(buffer) = std::mem::replace(&mut entry.memory, Memory::None) else {
            return Err(StreamError::NoPayload);
        };
        match core.engine.register(core.pd, buffer, Access::REMOTE_READ) {
            Ok(region) => {
                entry.memory = Memory::Registered { region, used: clock };
                self.registered += 1;
                stats.cache_misses += 1;
                Ok(Some(region))
            }
            Err(refused) => {
                entry.memory = Memory::Unregistered(refused.given);
                Err(StreamError::NoKey)
            }
        }
    }

    /// Takes the registration from the payload that was not used for longest; `false` where all are in use.
    fn evict<L: Link>(&mut self, core: &mut Core<L>, stats: &mut StreamStats) -> bool {
        let used = |(index, entry): (usize, &PayloadEntry)| match entry.memory {
            Memory::Registered { used, .. } if entry.puts == 0 => Some((used, index)),
            _ => None,
        };
        let Some((_, index)) = self.entries.iter().enumerate().filter_map(used).min() else { return false };
        stats.cache_evictions += 1;
        self.deregister(index, core);
        true
    }

    /// Ends a payload's registration, if it has one that no put needs, so that no peer's key reads it any more.
    pub(super) fn revoke<L: Link>(&mut self, payload: StreamPayload, core: &mut Core<L>) {
        if self.get(payload).is_ok_and(|entry| entry.puts == 0) {
            self.deregister(payload.index as usize, core);
        }
    }

    fn deregister<L: Link>(&mut self, index: usize, core: &mut Core<L>) {
        let entry = &mut self.entries[index];
        if let Memory::Registered { region, .. } = entry.memory {
            entry.memory = core.engine.deregister(region).map_or(Memory::None, Memory::Unregistered);
            self.registered -= 1;
        }
    }

    /// Writes to a payload that is not being put.
    pub(super) fn write<L: Link>(
        &mut self,
        payload: StreamPayload,
        offset: usize,
        bytes: &[u8],
        core: &mut Core<L>,
    ) -> Result<(), StreamError> {
        let entry = self.get_mut(payload)?;
        if entry.puts > 0 {
            return Err(StreamError::PayloadInUse);
        }
        if entry.is_read_only {
            return Err(WrongKind::Source.into());
        }
        let outside = StreamError::PayloadRange { offset, len: bytes.len(), room: entry.len };
        offset.checked_add(bytes.len()).filter(|&end| end <= entry.len).ok_or(outside.clone())?;
        match &mut entry.memory {
            Memory::None => Err(StreamError::NoPayload),
            Memory::Unregistered(buffer) => {
                buffer.copy_in(offset, bytes);
                Ok(())
            }
            Memory::Registered { region, .. } => {
                core.engine.write_region(core.pd, *region, offset, bytes).ok_or(outside)
            }
        }
    }

    /// Gives the memory back; the handle is dead from here on.
    pub(super) fn release<L: Link>(
        &mut self,
        payload: StreamPayload,
        core: &mut Core<L>,
    ) -> Result<Buffer, StreamError> {
        if self.get(payload)?.puts > 0 {
            return Err(StreamError::PayloadInUse);
        }
        self.revoke(payload, core);
        let memory = std::mem::replace(&mut self.get_mut(payload)?.memory, Memory::None);
        let Memory::Unregistered(buffer) = memory else { return Err(StreamError::NoPayload) };
        self.free.push(payload.index);
        Ok(buffer)
    }

    fn get(&self, payload: StreamPayload) -> Result<&PayloadEntry, StreamError> {
        let entry = self.entries.get(payload.index as usize).filter(|entry| entry.is(payload));
        entry.ok_or(StreamError::NoPayload)
    }

    fn get_mut(&mut self, payload: StreamPayload) -> Result<&mut PayloadEntry, StreamError> {
        let entry = self.entries.get_mut(payload.index as usize).filter(|entry| entry.is(payload));
        entry.ok_or(StreamError::NoPayload)
    }
}

impl PayloadEntry {
    fn is(&self, payload: StreamPayload) -> bool {
        self.generation == payload.generation && !matches!(self.memory, Memory::None)
    }
}
