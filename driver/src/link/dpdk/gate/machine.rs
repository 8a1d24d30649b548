//! What the gate needs of DPDK and of the kernel.

use std::ffi::c_void;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};
use thiserror::Error;

use super::super::eal::describe;

/// Microseconds until a freed thread is parked again; whatever is ready before goes first.
const REARM_US: u64 = 10;

/// Why there is no gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(in crate::link::dpdk) enum GateError {
    /// The kernel gives no eventfd.
    #[error("eventfd: {0}")]
    Eventfd(Errno),
    /// DPDK sets no alarm.
    #[error("alarm: {}", describe(*.0))]
    Alarm(i32),
    /// The alarm has been set, and the thread does not come to it.
    #[error("the interrupt thread does not park")]
    NotParked,
}

/// What the gate's protocol needs of DPDK and the kernel. A model has one of its own.
pub(super) trait GateOps {
    /// Has the interrupt thread call [`GateProtocol::serve`](super::protocol::GateProtocol::serve) once, a moment later.
    fn set_alarm(&self) -> Result<(), GateError>;

    /// Ends a sleep, or the next one.
    fn wake(&self);

    /// Sleeps until somebody wakes, or for no reason until earlier.
    fn sleep(&self);

    /// Stands between a poll loop's store and its load.
    fn fence_of_burst(&self);

    /// Stands between the opener's store and its load, and with [`GateOps::fence_of_burst`] keeps both from missing the
    /// other's. `false` where that cannot be had.
    fn fence_of_opener(&self) -> bool;
}

/// DPDK's alarms, an eventfd and membarrier(2).
pub(super) struct Dpdk {
    wake: OwnedFd,
    /// Whether the kernel runs a fence on all threads, so that bursts need none.
    has_membarrier: bool,
}

impl Dpdk {
    pub(super) fn new() -> Result<Self, GateError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(GateError::Eventfd)?;
        let has_membarrier = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        Ok(Self { wake, has_membarrier })
    }
}

impl GateOps for Dpdk {
    fn set_alarm(&self) -> Result<(), GateError> {
        // SAFETY: `park` is a function that lives for ever and uses no argument.
        let status = unsafe { dpdk_sys::rte_eal_alarm_set(REARM_US, Some(park), std::ptr::null_mut()) };
        if status == 0 { Ok(()) } else { Err(GateError::Alarm(status)) }
    }

    fn wake(&self) {
        // An eventfd takes a write of one unless its counter is at its limit, which these writes cannot reach.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn sleep(&self) {
        // Whatever it returns, an interruption for one, is no more than a reason to look again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// The opener's `membarrier` is a fence on this thread too, so that only the compiler must keep the order here.
    #[inline]
    fn fence_of_burst(&self) {
        if self.has_membarrier {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    fn fence_of_opener(&self) -> bool {
        if self.has_membarrier {
            // It cannot fail after its registration.
            return membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        }
        fence(Ordering::SeqCst);
        true
    }
}

/// Runs on the interrupt thread.
unsafe extern "C" fn park(_argument: *mut c_void) {
    super::serve();
}
