//! Packet buffers: received ones, and those that are being filled.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use arrayvec::ArrayVec;

use super::limits::AHEAD;

/// A received packet buffer; dropping it returns it to its pool.
pub struct Mbuf(NonNull<dpdk_sys::rte_mbuf>);

impl Mbuf {
    /// # Safety
    /// The buffer is a whole packet, and has no other owner.
    pub(super) const unsafe fn from_raw(frame: NonNull<dpdk_sys::rte_mbuf>) -> Self {
        Self(frame)
    }

    pub(super) fn into_raw(self) -> NonNull<dpdk_sys::rte_mbuf> {
        ManuallyDrop::new(self).0
    }

    /// Bytes of all segments.
    pub(super) fn len(&self) -> usize {
        frame_len(self.0) as usize
    }

    /// Copies the first bytes, of whatever segments, to all of `to`, which is no longer than the packet.
    pub(super) fn read(&self, to: &mut [u8]) {
        let len = to.len().min(self.len());
        // SAFETY: the packet has `len` bytes, and so has `to`, which is no part of it.
        let from = unsafe { dpdk_sys::roci_pktmbuf_read(self.0.as_ptr(), 0, len as u32, to.as_mut_ptr().cast()) };
        // In one segment nothing was copied yet: the bytes are where they were.
        if !from.is_null() && from != to.as_ptr().cast() {
            // SAFETY: the first segment has `len` bytes from there on, which are no part of `to`.
            unsafe { std::ptr::copy_nonoverlapping(from.cast(), to.as_mut_ptr(), len) };
        }
    }
}

impl AsRef<[u8]> for Mbuf {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the buffer came from a receive burst and belongs to this value alone; its first segment's
        // `data_len` bytes at `buf_addr + data_off` were written by the driver, which keeps no access to them.
        unsafe {
            let mbuf = self.0.as_ref();
            let start = mbuf.buf_addr.cast::<u8>().add(mbuf.data_off.into());
            std::slice::from_raw_parts(start, mbuf.data_len.into())
        }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value owns the buffer, and this is its end.
        unsafe { dpdk_sys::roci_pktmbuf_free(self.0.as_ptr()) }
    }
}

/// A fresh packet buffer of `len` bytes, and these. `None` where the pool is empty.
///
/// # Safety
/// The pool is there.
///
/// # Panics
/// Its buffers are shorter.
#[inline]
pub(super) unsafe fn allocate<'a>(
    pool: NonNull<dpdk_sys::rte_mempool>,
    len: usize,
) -> Option<(NonNull<dpdk_sys::rte_mbuf>, &'a mut [u8])> {
    // SAFETY: the caller says that the pool is there; a null result is handled.
    let mbuf = NonNull::new(unsafe { dpdk_sys::roci_pktmbuf_alloc(pool.as_ptr()) })?;
    // SAFETY: the buffer is fresh and ours.
    Some(unsafe { with_length(mbuf, len) })
}

/// Packet buffers that are taken from a pool at once, so that most frames need no call of DPDK for theirs.
pub(super) struct SpareMbufs(ArrayVec<Mbuf, AHEAD>);

impl SpareMbufs {
    pub(super) const fn new() -> Self {
        Self(ArrayVec::new_const())
    }

    /// The same as [`allocate`].
    ///
    /// # Safety
    /// The pool is there, and always the same.
    ///
    /// # Panics
    /// Its buffers are shorter.
    #[inline]
    pub(super) unsafe fn allocate<'a>(
        &mut self,
        pool: NonNull<dpdk_sys::rte_mempool>,
        len: usize,
    ) -> Option<(NonNull<dpdk_sys::rte_mbuf>, &'a mut [u8])> {
        if self.0.is_empty() {
            // SAFETY: the caller says that the pool is there.
            unsafe { self.refill(pool) };
        }
        let mbuf = self.0.pop()?.into_raw();
        // SAFETY: the buffer is fresh and ours.
        Some(unsafe { with_length(mbuf, len) })
    }

    /// Takes as many as there is room for, or one where there are not so many.
    ///
    /// # Safety
    /// The pool is there.
    #[inline(never)]
    unsafe fn refill(&mut self, pool: NonNull<dpdk_sys::rte_mempool>) {
        debug_assert!(self.0.is_empty());
        let mut mbufs = [std::ptr::null_mut(); AHEAD];
        // SAFETY: the pool is there, and `mbufs` has room for so many.
        let status = unsafe { dpdk_sys::roci_pktmbuf_alloc_bulk(pool.as_ptr(), mbufs.as_mut_ptr(), AHEAD as u32) };
        if status != 0 {
            // What a call that fails has written there is still the pool's.
            mbufs = [std::ptr::null_mut(); AHEAD];
            // SAFETY: the pool is there.
            mbufs[0] = unsafe { dpdk_sys::roci_pktmbuf_alloc(pool.as_ptr()) };
        }
        // SAFETY: those that are not null are fresh, and have no other owner.
        self.0.extend(mbufs.into_iter().filter_map(NonNull::new).map(|mbuf| unsafe { Mbuf::from_raw(mbuf) }));
    }

    /// Gives all of them back to the pool.
    pub(super) fn give_back(&mut self) {
        self.0.clear();
    }
}

/// A fresh packet buffer as one of `len` bytes, and these.
///
/// # Safety
/// It has one segment, and no other owner.
///
/// # Panics
/// It is shorter.
#[inline]
unsafe fn with_length<'a>(
    mut mbuf: NonNull<dpdk_sys::rte_mbuf>,
    len: usize,
) -> (NonNull<dpdk_sys::rte_mbuf>, &'a mut [u8]) {
    // SAFETY: the buffer is the caller's.
    let fields = unsafe { mbuf.as_mut() };
    assert!(len <= usize::from(fields.buf_len - fields.data_off), "the pool's buffers hold the longest frame");
    (fields.data_len, fields.pkt_len) = (len as u16, len as u32);
    // SAFETY: it has one segment of `len` bytes, to which no other reference exists. They are plain bytes of a mapping that DPDK
    // zeroed or that earlier packets wrote, so they are initialised.
    (mbuf, unsafe { segment(mbuf, 0) })
}

/// The bytes of a segment of a frame, counted from 0.
///
/// # Safety
/// The frame has such a segment, whose `data_len` bytes are initialised, and nothing else accesses them for `'a`.
#[inline]
pub(super) unsafe fn segment<'a>(frame: NonNull<dpdk_sys::rte_mbuf>, index: usize) -> &'a mut [u8] {
    let mut segment = frame.as_ptr();
    // SAFETY: the caller says that there are so many segments; each lies in `buf_addr` from `data_off` on.
    unsafe {
        for _ in 0..index {
            segment = (*segment).next;
        }
        let start = (*segment).buf_addr.cast::<u8>().add((*segment).data_off.into());
        std::slice::from_raw_parts_mut(start, (*segment).data_len.into())
    }
}

/// Bytes of all segments of a frame that waits to be sent.
#[inline]
pub(super) fn frame_len(mbuf: NonNull<dpdk_sys::rte_mbuf>) -> u64 {
    // SAFETY: the buffer is in the transmit queue, so it is valid and ours.
    unsafe { mbuf.as_ref() }.pkt_len.into()
}
