//! What this end offers to peers, and which of it is registered for them.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use roci_driver::link::Link;
use roci_driver::{Access, Buffer, Engine, MemoryRegion, PdId, RegionError, RegionRefused, Rkey, UserMemory};

use super::firehose::{Bucket, Limits, PinError};
use crate::core::Core;
use crate::core::segment::{OfferTerms, OfferedMemory};

/// What this end offers. Each offer has addresses of its own, which begin with a bucket and are never used again: so a bucket belongs to
/// one offer, and a key to what was taken back opens nothing.
#[derive(Default)]
pub(super) struct Offers {
    /// By their first address.
    offered: BTreeMap<u64, UserMemory>,
    /// The buckets that are registered.
    regions: HashMap<Bucket, MemoryRegion>,
    /// Where the next one begins.
    next: u64,
}

impl Offers {
    /// Offers memory, on these terms.
    pub(super) fn insert(&mut self, memory: UserMemory, limits: &Limits) -> OfferedMemory {
        let grain = limits.grain().bytes();
        // No key opens address 0.
        let (base, len) = (self.next.max(grain), memory.len());
        assert!(base.is_multiple_of(grain), "an offer begins with a bucket");
        self.next = base + (len as u64).next_multiple_of(grain).max(grain);
        self.offered.insert(base, memory.shared());
        let firehoses = u16::try_from(limits.firehoses()).unwrap_or(u16::MAX).max(1);
        OfferedMemory { base, len, terms: OfferTerms { bucket_bits: grain.trailing_zeros() as u8, firehoses } }
    }

    /// Takes an offer back, and closes all of it that is registered.
    pub(super) fn remove<L: Link>(
        &mut self,
        engine: &mut Engine<L>,
        limits: &Limits,
        offer: OfferedMemory,
    ) -> Option<UserMemory> {
        let memory = self.offered.remove(&offer.base)?;
        let (first, grain) = (offer.base, limits.grain().bytes());
        for at in (first..first + memory.len() as u64).step_by(grain as usize) {
            if let Some(region) = self.regions.remove(&limits.grain().bucket_of(at)) {
                drop(engine.deregister(region));
            }
        }
        Some(memory)
    }

    /// Registers a bucket.
    pub(super) fn pin<L: Link>(
        &mut self,
        core: &mut Core<L>,
        limits: &Limits,
        bucket: Bucket,
    ) -> Result<Rkey, PinError> {
        let grain = limits.grain().bytes();
        let va = bucket.0.checked_mul(grain).ok_or(PinError::NotOffered)?;
        let (base, memory) = self.offered.range(..=va).next_back().ok_or(PinError::NotOffered)?;
        let first = usize::try_from(va - base).map_err(|_| PinError::NotOffered)?;
        let last = memory.len().min(first.saturating_add(grain as usize));
        let part = memory.part(first..last).filter(|part| !part.is_empty()).ok_or(PinError::NotOffered)?;
        let buffer = core.engine.adopt(part).map_err(|_| PinError::NoMemory)?;
        let region = open_to_peers(&mut core.engine, core.pd, buffer, va).map_err(|_| PinError::NoKey)?;
        let earlier = self.regions.insert(bucket, region);
        assert!(earlier.is_none(), "{bucket:?} is registered already");
        Ok(region.rkey())
    }

    /// Ends the registration of a bucket, unless that ended with its offer.
    pub(super) fn unpin<L: Link>(&mut self, core: &mut Core<L>, bucket: Bucket) {
        if let Some(region) = self.regions.remove(&bucket) {
            drop(core.engine.deregister(region));
        }
    }
}

/// Opens memory to peers, with addresses from `base` on. What the application itself may access meanwhile is open to atomics only where
/// its numbers are aligned, and a source to reads alone.
pub(crate) fn open_to_peers<L: Link>(
    engine: &mut Engine<L>,
    pd: PdId,
    buffer: Buffer,
    base: u64,
) -> Result<MemoryRegion, RegionRefused> {
    let reads = Access::REMOTE_READ;
    let is_read_only = buffer.check_filled().is_err();
    let writes = if is_read_only { reads } else { reads.and(Access::REMOTE_WRITE) };
    let all = if is_read_only { reads } else { writes.and(Access::REMOTE_ATOMIC) };
    match engine.register_at(pd, buffer, all, base) {
        Err(RegionRefused { why: RegionError::Misaligned, buffer }) => engine.register_at(pd, buffer, writes, base),
        other => other,
    }
}
