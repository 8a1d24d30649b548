//! Packet buffers: one pool for the ports of one call, and so for one thread.

use std::ffi::CString;
use std::ptr::NonNull;

use super::bring_up::{DESCRIPTORS, PortError, SEGMENTS};
use super::device::JUMBO_FRAME;
use super::eal::{Eal, describe, last_errno};
use super::port::TX_QUEUE;
use crate::link::{BURST, HELD_FRAMES};

const CACHE: u32 = 256;
/// Packet buffers beside those of the ports: what the pool's cache, a batch and early frames hold.
const BASE: u32 = 2 * CACHE + (BURST + HELD_FRAMES) as u32;
/// Packet buffers of a port: both its rings full (each segment of a frame takes a descriptor), one burst, and the
/// transmit queue, whose frames may be of several segments.
const PER_PORT: u32 = 2 * DESCRIPTORS as u32 + (BURST + SEGMENTS as usize * TX_QUEUE) as u32;
/// Bytes of a packet buffer for the packet, and with all that belongs to it.
const ROOM: usize = JUMBO_FRAME + dpdk_sys::RTE_PKTMBUF_HEADROOM as usize;
const BUFFER: usize = ROOM + 512;
/// Bytes that a pool takes beside its buffers: a cache for every thread that DPDK could have.
const OVERHEAD: usize = 4 << 20;

/// Packet buffers of a call with so many ports.
const fn buffers_of(ports: usize) -> u32 {
    BASE + PER_PORT * ports as u32
}

/// Memory that the pool of a call with so many ports takes.
pub(super) const fn bytes_of(ports: usize) -> usize {
    buffers_of(ports) as usize * BUFFER + OVERHEAD
}

/// A pool that lives as long as its ports, or for ever where frames outlive those.
pub(super) struct Pool {
    pool: NonNull<dpdk_sys::rte_mempool>,
    buffers: u32,
}

impl Pool {
    /// A pool for so many ports, under a name made of a number that no other pool has.
    pub(super) fn create(eal: Eal, number: usize, ports: usize) -> Result<Self, PortError> {
        let failed = |cause| {
            let device = "packet buffers".to_owned();
            PortError::Call { device, call: "rte_pktmbuf_pool_create", cause }
        };
        let name = CString::new(format!("roci{number}")).map_err(|error| failed(error.to_string()))?;
        let buffers = buffers_of(ports);
        // SAFETY: DPDK runs; the name is NUL-terminated and copied; -1 is "any NUMA node".
        let pool = unsafe { dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), buffers, CACHE, 0, ROOM as u16, -1) };
        let Some(pool) = NonNull::new(pool) else {
            let errno = last_errno();
            return Err(if eal.is_out_of_memory(errno) { PortError::NoMemory } else { failed(describe(errno)) });
        };
        Ok(Self { pool, buffers })
    }

    /// What DPDK calls it.
    pub(super) const fn as_non_null(&self) -> NonNull<dpdk_sys::rte_mempool> {
        self.pool
    }
}

impl Drop for Pool {
    /// The ports are closed and have returned their buffers. A frame that somebody keeps returns to the pool later, which
    /// then stays.
    fn drop(&mut self) {
        // SAFETY: the pool exists, and no port uses it any more. A buffer of it is in the pool or belongs to an `Mbuf`,
        // which is not `Send`: where all are in the pool, nobody can reach it from here on.
        unsafe {
            if dpdk_sys::rte_mempool_avail_count(self.pool.as_ptr()) == self.buffers {
                dpdk_sys::rte_mempool_free(self.pool.as_ptr());
            }
        }
    }
}
