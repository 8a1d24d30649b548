//! Which payloads leave without a copy: those in memory that the device reads, from some length on.

use std::sync::Arc;

use super::device::External;
use super::external::Attached;
use super::ranges::{PortRanges, Ranges, locked};
use crate::lasting::Lasting;
use crate::link::{ZeroCopyError, ZeroCopyRanges};

/// A payload that a device can read where it lies.
pub(super) struct Found {
    /// Where, for the device ...
    pub(super) address: u64,
    /// ... which takes a segment for each page.
    pub(super) page: u64,
    /// What a frame counts its use of the memory by.
    pub(super) shared: *mut dpdk_sys::rte_mbuf_ext_shared_info,
}

/// The memory of a port that payloads are sent from without a copy.
pub(super) struct ZeroCopy {
    external: External,
    /// Length in bytes from which payloads are sent without a copy; [`usize::MAX`] copies all.
    from: usize,
    /// Dropped after the port is closed; memory that frames share goes with the last frame that needs it.
    attached: Vec<Attached>,
    /// The same for ranges of the application's memory.
    pub(super) ranges: Ranges,
}

impl ZeroCopy {
    pub(super) fn new(external: External) -> Self {
        Self { external, from: usize::MAX, attached: Vec::new(), ranges: Ranges::default() }
    }

    /// Whether the port's driver copies a payload when it takes the frame, and no device reads it later.
    #[inline]
    pub(super) fn is_copied_by_driver(&self) -> bool {
        self.external == External::Copied
    }

    /// Sets the length; `None` copies all.
    pub(super) fn set_from(&mut self, len: Option<usize>) {
        self.from = len.map_or(usize::MAX, |len| len.max(1));
    }

    /// Lets a port read `memory`.
    pub(super) fn attach(&mut self, port: u16, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        if self.from == usize::MAX {
            return Err(ZeroCopyError::Off);
        }
        self.attached.push(Attached::new(port, self.external, memory)?);
        Ok(())
    }

    /// What lets a port read the application's memory, where a device does.
    pub(super) fn ranges_of(&self, port: u16) -> Option<Box<dyn ZeroCopyRanges>> {
        if self.from == usize::MAX || self.external != External::Mapped {
            return None;
        }
        Some(Box::new(PortRanges { port, ranges: self.ranges.clone() }))
    }

    /// Whether a payload is long enough, and in attached memory.
    #[inline]
    pub(super) fn takes(&self, payload: &[u8], range: Option<u64>) -> bool {
        payload.len() >= self.from && self.find(payload, range).is_some()
    }

    /// Returns where the device finds a payload in attached memory.
    #[inline]
    pub(super) fn find(&self, payload: &[u8], range: Option<u64>) -> Option<Found> {
        let find = |region: &Attached| {
            let address = region.address_of(payload)?;
            Some(Found { address, page: region.page(), shared: region.shared() })
        };
        match range {
            None => self.attached.iter().find_map(find),
            Some(name) => locked(&self.ranges).get(&name).and_then(find),
        }
    }
}
