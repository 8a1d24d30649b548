//! What this end offers to peers, and which of it is registered for them.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use roci_driver::link::Link;
use roci_driver::{Access, Buffer, Engine, MemoryRegion, PdId, RegionError, Rkey, UserMemory};

use super::firehose::{Bucket, Limits, PinError, Region, Span};
use crate::core::Core;
use crate::core::segment::{OfferTerms, OfferedMemory, RemoteAccess};

/// What is registered is whole pages, at least.
const PAGE: usize = 4096;

/// What this end offers. Each offer has addresses of its own, in buckets of its own, which are never used again: so a bucket belongs to
/// one offer, and a key to what was taken back opens nothing.
#[derive(Default)]
pub(super) struct Offers {
    /// By their first address.
    offered: BTreeMap<u64, UserMemory>,
    /// The buckets that are registered.
    regions: HashMap<Bucket, MemoryRegion>,
}

impl Offers {
    /// Offers memory, on these terms, at the `next` address that no offer of any endpoint has had. Its addresses lie in their pages as the memory does in its own, so that no two buckets share one.
    pub(super) fn insert(&mut self, memory: UserMemory, limits: &Limits, next: &mut u64) -> OfferedMemory {
        let grain = limits.grain().bytes();
        // No key opens address 0.
        let first = (*next).max(grain);
        assert!(first.is_multiple_of(grain), "an offer begins in a bucket of its own");
        let (base, len) = (first + (memory.addr() % PAGE) as u64, memory.len());
        *next = (base + (len as u64).max(1)).next_multiple_of(grain);
        self.offered.insert(base, memory.shared());
        let firehoses = u16::try_from(limits.firehoses()).unwrap_or(u16::MAX).max(1);
        OfferedMemory { base, len, terms: OfferTerms { bucket_bits: grain.trailing_zeros() as u8, firehoses } }
    }

    /// Returns the buckets of an offer, if it is one.
    pub(super) fn buckets_of(&self, offer: OfferedMemory, limits: &Limits) -> Option<Region> {
        let len = self.offered.get(&offer.base)?.len() as u64;
        limits.grain().cover(Span { va: offer.base, len: len.max(1) }).ok()
    }

    /// Takes an offer back, of which no bucket is registered.
    pub(super) fn remove(&mut self, offer: OfferedMemory) -> Option<UserMemory> {
        self.offered.remove(&offer.base)
    }

    /// Registers a bucket.
    pub(super) fn pin<L: Link>(
        &mut self,
        core: &mut Core<L>,
        limits: &Limits,
        bucket: Bucket,
    ) -> Result<Rkey, PinError> {
        let grain = limits.grain().bytes();
        let begin = bucket.0.checked_mul(grain).ok_or(PinError::NotOffered)?;
        let end = begin.checked_add(grain).ok_or(PinError::NotOffered)?;
        let (&base, memory) = self.offered.range(..end).next_back().ok_or(PinError::NotOffered)?;
        let va = begin.max(base);
        let (first, last) = ((va - base) as usize, memory.len().min((end - base) as usize));
        if first >= last {
            return Err(PinError::NotOffered);
        }
        let part = memory.part(first..last).ok_or(PinError::NotOffered)?;
        let buffer = core.engine.adopt(part).map_err(|_| PinError::NoMemory)?;
        let region = open_to_peers(&mut core.engine, core.pd, buffer, va, RemoteAccess::ReadWrite)
            .map_err(|_| PinError::NoKey)?;
        let earlier = self.regions.insert(bucket, region);
        assert!(earlier.is_none(), "{bucket:?} is registered already");
        Ok(region.rkey())
    }

    /// Ends the registration of every bucket.
    pub(super) fn unpin_all<L: Link>(&mut self, core: &mut Core<L>) {
        for (_, region) in self.regions.drain() {
            drop(core.engine.deregister(region));
        }
    }

    /// Ends the registration of a bucket, unless that ended with its offer.
    pub(super) fn unpin<L: Link>(&mut self, core: &mut Core<L>, bucket: Bucket) {
        if let Some(region) = self.regions.remove(&bucket) {
            drop(core.engine.deregister(region));
        }
    }
}

/// Opens memory to peers, with addresses from `base` on. What the application itself may access meanwhile is open to atomics only where
/// its numbers are aligned, and a source to reads alone, whatever the access.
pub(crate) fn open_to_peers<L: Link>(
    engine: &mut Engine<L>,
    pd: PdId,
    buffer: Buffer,
    base: u64,
    access: RemoteAccess,
) -> Result<MemoryRegion, roci_driver::Refused<Buffer, RegionError>> {
    let reads = Access::REMOTE_READ;
    let is_read_only = access == RemoteAccess::ReadOnly || buffer.check_filled().is_err();
    let writes = if is_read_only { reads } else { reads.and(Access::REMOTE_WRITE) };
    let all = if is_read_only { reads } else { writes.and(Access::REMOTE_ATOMIC) };
    match engine.register_at(pd, buffer, all, base) {
        Err(roci_driver::Refused { why: RegionError::Misaligned, given: buffer }) => {
            engine.register_at(pd, buffer, writes, base)
        }
        other => other,
    }
}
