//! Memory: buffers, regions that peers may reach, windows onto them.

use std::ops::Range;
use std::sync::Arc;

use roci_protocol::rc::SendOp;
use roci_protocol::{Access, Rkey};

use super::devices::Devices;
use super::{Engine, PostError};
use crate::Refused;
use crate::handles::QueuePair;
use crate::link::Link;
use crate::mem::{
    AdoptError, Arena, ArenaError, Asker, Buffer, KeyTable, MonitorError, PdId, RegionError, RegistrationConfig,
    RegistrationInfo, RegistrationStats, Registrations, UserMemory,
};
use crate::wr::SendWr;

/// A memory region that peers may reach; it owns its buffer until it is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    rkey: Rkey,
    len: usize,
    base: u64,
}

impl MemoryRegion {
    /// The key for the peer.
    pub const fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The address of the first one, for the peer.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Whether it holds nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A memory window, type 2 (IBTA 10.6.7.2): opens a part of a region to one peer under a key of its own, and is shut
/// by this side or by that peer in no more than the time of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryWindow {
    rkey: Rkey,
    serial: u64,
}

impl MemoryWindow {
    /// The key for the peer: valid from the completion of the bind until the window is invalidated.
    pub const fn rkey(&self) -> Rkey {
        self.rkey
    }
}

/// What a memory window opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowView {
    /// The region, which allows [`Access::WINDOW_BIND`].
    pub region: MemoryRegion,
    /// Where the view begins; addresses through the window are those of the region.
    pub va: u64,
    /// How long it is.
    pub len: u64,
    /// What the peer may do through it.
    pub access: Access,
}

/// The memory of an engine: the arena and the application's own, the domains that they are opened in, and the keys to them.
pub(super) struct EngineMemory {
    pub(super) keys: KeyTable,
    pub(super) arena: Arc<Arena>,
    pub(super) registrations: Registrations,
    next_pd: u32,
}

impl EngineMemory {
    pub(super) fn new(keys: KeyTable, arena: Arc<Arena>) -> Result<Self, ArenaError> {
        Ok(Self { keys, arena, registrations: Registrations::new()?, next_pd: 0 })
    }

    fn alloc_pd(&mut self) -> PdId {
        self.next_pd += 1;
        PdId(self.next_pd)
    }
}

impl<L: Link> Engine<L> {
    /// A new protection domain.
    pub fn alloc_pd(&mut self) -> PdId {
        self.memory.alloc_pd()
    }

    /// Memory for messages. A forked child gets none: huge pages of a pool are shared between it and its parent, who knows
    /// alone which parts are free.
    pub fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
        if self.is_forked() {
            return Err(ArenaError::Forked);
        }
        self.memory.arena.buffer(len)
    }

    /// The arena, for buffers that outlive a borrow of the engine. It does not know of forks: a forked child must neither
    /// cut buffers from it nor write to those that it has.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.memory.arena
    }

    /// Makes a buffer of the application's own memory, which every call takes like one of the arena's. It is registered,
    /// where the links need that, by a registration that outlives it: the next time costs next to nothing. Memory that
    /// cannot be registered is copied by the CPU; [`Engine::registration_stats`] counts it.
    pub fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, AdoptError> {
        self.memory.registrations.adopt(memory)
    }

    /// How memory is registered from here on, with the devices of all ports that there are. All registrations end, also
    /// those in use: what is on its way is copied.
    pub fn configure_registration(&mut self, config: RegistrationConfig) -> Result<(), MonitorError> {
        let ports: Vec<_> = self.ports.iter().filter_map(|port| port.link.zero_copy_ranges()).collect();
        self.memory.registrations.configure(config, Devices::of(ports))
    }

    /// The counters of the application's memory.
    pub fn registration_stats(&self) -> RegistrationStats {
        self.memory.registrations.stats()
    }

    /// Who watches the application's memory, and why not.
    pub fn registration_info(&self) -> RegistrationInfo {
        self.memory.registrations.info()
    }

    /// Whether a key is left to register memory with.
    #[inline]
    pub fn can_register(&self) -> bool {
        self.memory.keys.has_room()
    }

    /// Lets peers of queue pairs in `pd` reach `buffer`, whose addresses start at 0. In a forked child, which has no peers,
    /// the buffer comes back.
    pub fn register(
        &mut self,
        pd: PdId,
        buffer: Buffer,
        access: Access,
    ) -> Result<MemoryRegion, Refused<Buffer, RegionError>> {
        self.register_at(pd, buffer, access, 0)
    }

    /// The same, with addresses that start at `base`: where the memory lies, for instance, as verbs has it.
    pub fn register_at(
        &mut self,
        pd: PdId,
        buffer: Buffer,
        access: Access,
        base: u64,
    ) -> Result<MemoryRegion, Refused<Buffer, RegionError>> {
        if self.is_forked() {
            return Err(Refused::new(RegionError::Forked, buffer));
        }
        let len = buffer.len();
        Ok(MemoryRegion { rkey: self.memory.keys.insert(pd, buffer, access, base)?, len, base })
    }

    /// Ends a region: its key is dead from here on, and the memory comes back. `None` where it ended before, and in a
    /// forked child, whose parent goes on to use it.
    pub fn deregister(&mut self, region: MemoryRegion) -> Option<Buffer> {
        if self.is_forked() {
            return None;
        }
        self.memory.keys.remove(region.rkey)
    }

    /// Copies out of a region that peers may be writing, from `offset` on. `None` where it does not fit.
    pub fn read_region(&self, pd: PdId, region: MemoryRegion, offset: usize, into: &mut [u8]) -> Option<()> {
        let (us, va) = (Asker { pd, qpn: None }, region.base.checked_add(offset as u64)?);
        let found = self.memory.keys.find(us, region.rkey, va, into.len() as u64, Access::LOCAL);
        let (buffer, range) = found.ok()?;
        buffer.copy_out(range.start, into);
        Some(())
    }

    /// Copies out of a region that peers may be writing, from `offset` on, into a part of a buffer. `None` where it does not
    /// fit.
    pub fn copy_region(
        &self,
        pd: PdId,
        region: MemoryRegion,
        offset: usize,
        (into, part): (&mut Buffer, Range<usize>),
    ) -> Option<()> {
        let (us, va) = (Asker { pd, qpn: None }, region.base.checked_add(offset as u64)?);
        let found = self.memory.keys.find(us, region.rkey, va, part.len() as u64, Access::LOCAL);
        let (buffer, range) = found.ok()?;
        into.copy_from(part.start, buffer, range);
        Some(())
    }

    /// Copies into a region that peers may be reading. `None` where it does not fit or is read only, and in a forked child,
    /// whose parent may be reading it, too.
    pub fn write_region(&mut self, pd: PdId, region: MemoryRegion, offset: usize, from: &[u8]) -> Option<()> {
        if self.is_forked() {
            return None;
        }
        let (us, va) = (Asker { pd, qpn: None }, region.base.checked_add(offset as u64)?);
        let found = self.memory.keys.find_mut(us, region.rkey, va, from.len() as u64, Access::LOCAL);
        let (buffer, range) = found.ok()?;
        buffer.copy_in(range.start, from);
        Some(())
    }

    /// A memory window that opens nothing yet. `None` where all keys are in use.
    pub fn alloc_window(&mut self, pd: PdId) -> Option<MemoryWindow> {
        self.memory.keys.insert_window(pd).map(|(rkey, serial)| MemoryWindow { rkey, serial })
    }

    /// Ends a memory window for good. `false` where it ended before.
    pub fn dealloc_window(&mut self, window: MemoryWindow) -> bool {
        self.memory.keys.remove_window(window.rkey, window.serial)
    }

    /// Posts a request that opens `view` to the peer of `qp` once all earlier requests are done; `window` takes its
    /// new key at once. A view that is not allowed completes with [`crate::WcStatus::MwBindErr`].
    pub fn bind_window(
        &mut self,
        qp: QueuePair,
        wr_id: u64,
        window: &mut MemoryWindow,
        view: WindowView,
    ) -> Result<(), Refused<(), PostError>> {
        if !self.memory.keys.is_window(window.rkey, window.serial) {
            return Err(Refused::new(PostError::NoWindow, ()));
        }
        let WindowView { region, va, len, access } = view;
        let key = self.memory.keys.next_key(window.rkey);
        let bind = SendOp::BindWindow { window: key, region: region.rkey, va, len, access };
        self.post_local(qp, wr_id, bind)?;
        window.rkey = key;
        Ok(())
    }

    /// Posts a request that shuts a window once all earlier requests are done.
    pub fn invalidate_window(
        &mut self,
        qp: QueuePair,
        wr_id: u64,
        window: MemoryWindow,
    ) -> Result<(), Refused<(), PostError>> {
        self.post_local(qp, wr_id, SendOp::LocalInvalidate { rkey: window.rkey })
    }

    fn post_local(&mut self, qp: QueuePair, wr_id: u64, op: SendOp) -> Result<(), Refused<(), PostError>> {
        let nothing = self.buffer(0).map_err(|error| {
            let is_forked = matches!(error, ArenaError::Forked);
            Refused::new(if is_forked { PostError::Forked } else { PostError::NoMemory }, ())
        })?;
        self.post_send(qp, SendWr::new(wr_id, op, nothing)).map_err(|refused| Refused::new(refused.why, ()))
    }
}
