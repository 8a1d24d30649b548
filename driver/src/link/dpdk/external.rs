//! Memory that DPDK did not allocate and a port may send from.
//!
//! Drivers that copy need to know nothing of it. A device that reads memory itself must know it ([`DmaMap`]), and must not
//! forget it before the last frame that needs it is gone: frames count as its users, as DPDK has it
//! (`rte_mbuf_ext_shared_info`).
//!
//! [`DmaMap`]: super::dma_map::DmaMap

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device::External;
use super::shared_map::SharedMap;
use crate::lasting::Lasting;
use crate::link::ZeroCopyError;

/// Memory that frames of one port are sent from. Dropping it gives up the port's part; the rest goes with the last frame.
#[derive(Debug)]
pub(super) struct Attached(NonNull<ExternalRegion>);

// SAFETY: the region is never changed but for its count, which DPDK changes in one step; whichever thread drops the last user
// frees it.
unsafe impl Send for Attached {}

/// What all frames with external buffers of a region share.
struct ExternalRegion {
    /// How many frames, and the port itself, use it: read and written by DPDK, and by this file through DPDK.
    shared: dpdk_sys::rte_mbuf_ext_shared_info,
    map: SharedMap,
    /// Held, not used: goes after the map. `None` where the device keeps the pages itself.
    #[expect(dead_code, reason = "see above")]
    memory: Option<Arc<dyn Lasting>>,
}

impl Attached {
    pub(super) fn new(port: u16, external: External, memory: Arc<dyn Lasting>) -> Result<Self, ZeroCopyError> {
        // SAFETY: the region holds the memory, and drops it after the map.
        let map = unsafe { SharedMap::of(port, external, memory.as_ref()) }?;
        Ok(Self::of(map, Some(memory)))
    }

    /// A range of whole pages that may be unmapped at any time: the device must have its own hold of them.
    pub(super) fn of_range(port: u16, name: u64, range: Range<usize>) -> Result<Self, ZeroCopyError> {
        Ok(Self::of(SharedMap::of_range(port, name, range)?, None))
    }

    fn of(map: SharedMap, memory: Option<Arc<dyn Lasting>>) -> Self {
        let shared =
            dpdk_sys::rte_mbuf_ext_shared_info { free_cb: Some(free), fcb_opaque: std::ptr::null_mut(), refcnt: 1 };
        let region = NonNull::from(Box::leak(Box::new(ExternalRegion { shared, map, memory })));
        // SAFETY: the region is fresh and ours.
        unsafe { (*region.as_ptr()).shared.fcb_opaque = region.as_ptr().cast() };
        Self(region)
    }

    /// The device's address of a payload in this memory; `None` where it must be copied.
    #[inline]
    pub(super) fn address_of(&self, payload: &[u8]) -> Option<u64> {
        // SAFETY: the region lives at least as long as this value, and its map is never changed.
        unsafe { &(*self.0.as_ptr()).map }.address_of(payload.as_ptr() as usize, payload.len())
    }

    /// What a segment for a device must not cross.
    #[inline]
    pub(super) fn page(&self) -> u64 {
        // SAFETY: as in `address_of`.
        unsafe { &(*self.0.as_ptr()).map }.page()
    }

    /// What a frame with such a payload counts its use by.
    #[inline]
    pub(super) fn shared(&self) -> *mut dpdk_sys::rte_mbuf_ext_shared_info {
        // SAFETY: the region lives; no reference is made.
        unsafe { &raw mut (*self.0.as_ptr()).shared }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the region lives, because this value is one of its users, and stops being one here; the last user
        // frees it.
        unsafe {
            if dpdk_sys::roci_ext_refcnt_update(self.shared(), -1) == 0 {
                drop(Box::from_raw(self.0.as_ptr()));
            }
        }
    }
}

/// DPDK has freed the last frame, and the port is gone.
unsafe extern "C" fn free(_payload: *mut c_void, region: *mut c_void) {
    // SAFETY: `region` is what `Attached::new` leaked; its count is 0, so it has no other user, and nothing else frees
    // it.
    drop(unsafe { Box::from_raw(region.cast::<ExternalRegion>()) });
}
