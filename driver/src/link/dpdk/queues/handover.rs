//! Frames on their way from the engine that found them to the one that they are for.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crossbeam::queue::ArrayQueue;

use super::super::mbuf::Mbuf;

/// Frames that wait for one engine: as many as a receive ring of the device holds. One more is lost, as there.
pub(in super::super) const HANDOVER: usize = 512;

/// Frames that wait for one engine. Any thread may add to it, without a lock.
pub(super) struct Handover(ArrayQueue<SendMbuf>);

/// A received frame that is handed over to another thread.
struct SendMbuf(NonNull<dpdk_sys::rte_mbuf>);

// SAFETY: a parcel owns its packet buffer as an `Mbuf` does, and nothing else names that. An `Mbuf` stays on its thread
// so that its pool may be freed beside it; a parcel is made only on shared ports, whose pools live for ever and take
// buffers back from any thread (they are made for several producers and consumers).
unsafe impl Send for SendMbuf {}

impl Drop for SendMbuf {
    fn drop(&mut self) {
        // SAFETY: the parcel owns the buffer, and this is its end.
        drop(unsafe { Mbuf::from_raw(self.0) });
    }
}

impl Handover {
    pub(super) fn new() -> Self {
        Self(ArrayQueue::new(HANDOVER))
    }

    /// `false` where there is no room, and the frame is lost.
    #[inline]
    pub(super) fn give(&self, frame: Mbuf) -> bool {
        self.0.push(SendMbuf(frame.into_raw())).is_ok()
    }

    /// The frame that has waited longest.
    #[inline]
    pub(super) fn take(&self) -> Option<Mbuf> {
        let parcel = ManuallyDrop::new(self.0.pop()?);
        // SAFETY: the parcel owned the buffer, and is not dropped.
        Some(unsafe { Mbuf::from_raw(parcel.0) })
    }

    /// Whether nothing waits: a load or two, for polls that find nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
