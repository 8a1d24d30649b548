//! Packet buffers: one pool for the ports of one call, and so mostly for one thread; and one for each queue of a port that several
//! threads share, whose frames go from one to the other.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::JUMBO_FRAME;
use super::eal::{Eal, ThreadMark, describe, last_errno};
use super::error::PortError;
use super::limits::{AHEAD, RingSize, SEGMENTS, TX_QUEUE};
use super::queues::HANDOVER;
use crate::link::BURST;

const CACHE_LINE: usize = 64;
/// Bytes of a packet buffer for the packet, and with all that belongs to it. They are more than a memif descriptor has:
/// where they are not, memif since DPDK 23.03 gives each segment of a frame a descriptor of its own, in a fast path that
/// never resets the mark of "continued in the next one"; and what arrives in several is not taken.
const ROOM: usize = JUMBO_FRAME + CACHE_LINE + dpdk_sys::RTE_PKTMBUF_HEADROOM;
const BUFFER: usize = ROOM + 512;
/// Bytes that a pool takes beside its buffers: a cache for every thread that DPDK could have.
const OVERHEAD: usize = 4 << 20;

/// What a thread's cache of packet buffers may hold: half as much again as its size.
const fn cached(ring: RingSize) -> u32 {
    ring.cache() * 3 / 2
}

/// Packet buffers of a call with so many ports. Each port has those of both its rings (each segment of a frame takes a
/// descriptor), of one burst, of the transmit queue, whose frames may be of several segments, and those for its next frames.
/// Beside these there is what a batch holds, and two caches: that of the thread that opened the ports, and that of the one that
/// started DPDK, which the ports may move to.
const fn buffers_of(ports: usize, ring: RingSize) -> u32 {
    let of_port = 2 * ring.descriptors() as u32 + (BURST + SEGMENTS as usize * TX_QUEUE + AHEAD) as u32;
    2 * cached(ring) + BURST as u32 + of_port * ports as u32
}

/// Memory that the pool of a call with so many ports takes.
pub(super) const fn bytes_of(ports: usize, ring: RingSize) -> usize {
    buffers_of(ports, ring) as usize * BUFFER + OVERHEAD
}

/// Packet buffers of one queue of a port with so many. All engines on it may have a full ring of frames that came in here;
/// and each of the others may hold a batch, and what DPDK keeps for its thread before it gives buffers back.
const fn buffers_of_queue(queues: u16) -> u32 {
    const ELSEWHERE: u32 = BURST as u32 + cached(RingSize::DEVICE);
    buffers_of(1, RingSize::DEVICE) + HANDOVER as u32 * queues as u32 + ELSEWHERE * (queues as u32 - 1)
}

/// Memory that the pools of a port with so many queues take.
pub(super) const fn bytes_of_queues(queues: u16) -> usize {
    (buffers_of_queue(queues) as usize * BUFFER + OVERHEAD) * queues as usize
}

/// A pool that lives as long as its ports, or for ever where frames outlive those.
/// It is freed only where no thread can be returning a buffer. The one thread that uses it knows that: all buffers are
/// there, and it returns none just now. Where a second thread has used the pool, because a port was kept or a link has moved,
/// that is unknown: the pool is kept for a call with as many ports.
pub(super) struct MbufPool {
    mempool: NonNull<dpdk_sys::rte_mempool>,
    buffers: u32,
    /// Ports that it is for, and what their rings hold at most.
    places: usize,
    ring: RingSize,
    /// Places that no port has.
    free: AtomicUsize,
    home: ThreadMark,
    /// All buffers were there when the last link went.
    was_whole: AtomicBool,
    is_shared: AtomicBool,
}

// SAFETY: the pool is made for several producers and several consumers (no flag says otherwise), so any thread may take
// buffers from it and return them; who may free it is decided in `drop`.
unsafe impl Send for MbufPool {}
// SAFETY: as above.
unsafe impl Sync for MbufPool {}

/// Ports that a pool is for, and what their rings hold.
type PoolUse = (usize, RingSize);

/// Ports that there are pools for, used or not. DPDK has memory for about [`PORTS_MAX`](super::limits::PORTS_MAX) of them: the
/// pools of ports with several queues are not counted.
static PLACES: AtomicUsize = AtomicUsize::new(0);

/// Returns how many ports there are pools for.
pub(super) fn places() -> usize {
    PLACES.load(Ordering::Acquire)
}

/// Pools that several threads have used, and no port uses now: DPDK's address of each, and what it is for.
static SPARE: Mutex<Vec<(usize, PoolUse)>> = Mutex::new(Vec::new());

impl MbufPool {
    /// A pool for so many ports that several threads have used, and no port uses now.
    pub(super) fn reuse(ports: usize, ring: RingSize) -> Option<Arc<Self>> {
        take_spare((ports, ring)).map(|spare| Self::around(spare, (ports, ring), true))
    }

    /// A new pool for so many ports, under a name made of a number that no other pool has.
    pub(super) fn create(eal: Eal, number: usize, ports: usize, ring: RingSize) -> Result<Arc<Self>, PortError> {
        let mempool = create(eal, number, buffers_of(ports, ring), ring)?;
        PLACES.fetch_add(ports, Ordering::AcqRel);
        Ok(Self::around(mempool, (ports, ring), false))
    }

    fn around(mempool: NonNull<dpdk_sys::rte_mempool>, (ports, ring): PoolUse, is_shared: bool) -> Arc<Self> {
        Arc::new(Self {
            mempool,
            buffers: buffers_of(ports, ring),
            places: ports,
            ring,
            free: AtomicUsize::new(ports),
            home: ThreadMark::current(),
            was_whole: AtomicBool::new(false),
            is_shared: AtomicBool::new(is_shared),
        })
    }

    /// Whether so many more ports with such rings may use it.
    pub(super) fn has_room(&self, ports: usize, ring: RingSize) -> bool {
        ring <= self.ring && self.free.load(Ordering::Acquire) >= ports
    }

    fn is_whole(&self) -> bool {
        // SAFETY: the pool exists.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.mempool.as_ptr()) == self.buffers }
    }
}

/// A port's share of a pool.
pub(super) struct PoolShare(Arc<MbufPool>);

impl PoolShare {
    /// A place for a port of the calling thread, in a pool that has room.
    pub(super) fn take(pool: &Arc<MbufPool>) -> Self {
        let before = pool.free.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "the pool has room");
        Self(pool.clone())
    }

    /// What DPDK calls the pool.
    pub(super) fn as_non_null(&self) -> NonNull<dpdk_sys::rte_mempool> {
        self.0.mempool
    }

    /// The pool.
    pub(super) const fn pool(&self) -> &Arc<MbufPool> {
        &self.0
    }

    /// A link on this thread uses it, whose port was kept.
    pub(super) fn revive(&self) {
        self.0.was_whole.store(false, Ordering::Release);
        self.note_thread();
    }

    /// A link that uses it has moved to this thread.
    pub(super) fn note_thread(&self) {
        if ThreadMark::current() != self.0.home {
            self.0.is_shared.store(true, Ordering::Release);
        }
    }

    /// A link on this thread has used it, and has gone.
    pub(super) fn settle(&self) {
        self.note_thread();
        self.0.was_whole.store(self.0.is_whole(), Ordering::Release);
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for MbufPool {
    /// The ports are closed and have returned their buffers. A frame that somebody keeps returns to the pool later, which
    /// then stays.
    fn drop(&mut self) {
        if *self.is_shared.get_mut() {
            return spare().push((self.mempool.as_ptr() as usize, (self.places, self.ring)));
        }
        let is_home = ThreadMark::current() == self.home;
        if if is_home { self.is_whole() } else { *self.was_whole.get_mut() } {
            // SAFETY: the pool exists, and no port uses it any more. A buffer of it is in the pool or belongs to an `Mbuf`,
            // which is not `Send`, and only the home thread ever had one. All are in the pool: as this thread sees, or as
            // the home thread saw when its last link went, after which no link gave out another.
            unsafe { dpdk_sys::rte_mempool_free(self.mempool.as_ptr()) };
            PLACES.fetch_sub(self.places, Ordering::AcqRel);
        }
    }
}

fn take_spare(wanted: PoolUse) -> Option<NonNull<dpdk_sys::rte_mempool>> {
    let mut spare = spare();
    let at = spare.iter().position(|&(_, of)| of == wanted)?;
    NonNull::new(spare.swap_remove(at).0 as *mut dpdk_sys::rte_mempool)
}

fn spare() -> MutexGuard<'static, Vec<(usize, PoolUse)>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool that stays for the rest of the process, for one port after the other: its buffers may be anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LastingPool {
    pool: NonNull<dpdk_sys::rte_mempool>,
    buffers: u32,
}

// SAFETY: the pool is never freed, and made for several producers and several consumers (no flag says otherwise), so any
// thread may take buffers from it and return them.
unsafe impl Send for LastingPool {}
// SAFETY: as above.
unsafe impl Sync for LastingPool {}

impl LastingPool {
    /// A pool for one queue of a port with so many: one of those that are to spare, or a new one.
    pub(super) fn provide(eal: Eal, spare: &mut Vec<Self>, number: usize, queues: u16) -> Result<Self, PortError> {
        let buffers = buffers_of_queue(queues);
        if let Some(at) = spare.iter().position(|pool| pool.buffers == buffers) {
            return Ok(spare.swap_remove(at));
        }
        Ok(Self { pool: create(eal, number, buffers, RingSize::DEVICE)?, buffers })
    }

    /// What DPDK calls it.
    pub(super) const fn as_non_null(self) -> NonNull<dpdk_sys::rte_mempool> {
        self.pool
    }
}

/// A pool of so many buffers under a name made of `number`, which no other pool has.
fn create(eal: Eal, number: usize, buffers: u32, ring: RingSize) -> Result<NonNull<dpdk_sys::rte_mempool>, PortError> {
    let failed = |cause| {
        let device = "packet buffers".to_owned();
        PortError::Call { device, call: "rte_pktmbuf_pool_create", cause }
    };
    let name = CString::new(format!("roci{number}")).map_err(|error| failed(error.to_string()))?;
    // SAFETY: DPDK runs; the name is NUL-terminated and copied; -1 is "any NUMA node".
    let pool = unsafe { dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), buffers, ring.cache(), 0, ROOM as u16, -1) };
    let pool = NonNull::new(pool).ok_or_else(|| {
        let errno = last_errno();
        if eal.is_out_of_memory(errno) {
            PortError::NoMemory
        } else if errno == rustix::io::Errno::NOMEM.raw_os_error() {
            PortError::NoHugePages((buffers as usize * BUFFER + OVERHEAD).div_ceil(1 << 20))
        } else {
            failed(describe(errno))
        }
    })?;
    // SAFETY: the pool is fresh: all buffers are in it, and no other thread knows it.
    unsafe { dpdk_sys::roci_pktmbuf_pool_touch(pool.as_ptr()) };
    Ok(pool)
}
