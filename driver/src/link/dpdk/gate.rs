//! The quiescent gate: a memif port is never torn down while a burst runs.
//!
//! When a memif peer dies, DPDK's interrupt thread unmaps the rings that the poll loop may be reading at that
//! very moment, and the survivor crashes. So the interrupt thread is kept parked: an alarm callback, which
//! runs on it, sleeps in a read until the poll loop opens the gate, between two bursts. While the gate is
//! open, the thread does whatever has come up (a disconnect, for one), until the alarm parks it again.
//!
//! The poll loop waits for a *count* of parkings to rise, not for a flag: a flag could still be set from the
//! parking before. One opening costs about 160 us, so it is done every 50 to 100 ms.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use super::eal::describe;

/// Microseconds until a freed thread is parked again; whatever is ready before goes first.
const REARM_US: u64 = 10;
/// How long the poll loop waits for the thread to be parked again before it looks another time.
const PATIENCE: Duration = Duration::from_millis(500);

struct Shared {
    wake: OwnedFd,
    parkings: AtomicU64,
    is_closed: AtomicBool,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// The poll loop's side of the gate; one per process, because there is one interrupt thread.
pub(super) struct Gate {
    shared: &'static Shared,
    /// An opening whose parking has not been seen yet: no burst may run.
    pending: Option<u64>,
}

impl Gate {
    /// Parks the interrupt thread. Connect first: the handshake runs on that thread.
    pub(super) fn close() -> Result<Self, String> {
        if SHARED.get().is_none() {
            let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("eventfd: {error}"))?;
            let _ = SHARED.set(Shared { wake, parkings: AtomicU64::new(0), is_closed: AtomicBool::new(false) });
        }
        let shared = SHARED.get().ok_or("the gate was not made")?;
        if shared.is_closed.swap(true, Ordering::AcqRel) {
            return Err("the gate is closed already".to_owned());
        }
        let before = shared.parkings.load(Ordering::Acquire);
        arm()?;
        let mut gate = Self { shared, pending: Some(before) };
        if gate.wait_parked() { Ok(gate) } else { Err("the interrupt thread does not park".to_owned()) }
    }

    /// Lets the interrupt thread work, and waits until it is parked again. `false`: it is still at work, and
    /// no burst may run until this call returns `true`.
    pub(super) fn cycle(&mut self) -> bool {
        if self.pending.is_none() {
            self.pending = Some(self.shared.parkings.load(Ordering::Acquire));
            self.wake();
        }
        self.wait_parked()
    }

    fn wait_parked(&mut self) -> bool {
        let Some(before) = self.pending else { return true };
        let start = Instant::now();
        while self.shared.parkings.load(Ordering::Acquire) == before {
            if start.elapsed() > PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
        self.pending = None;
        true
    }

    fn wake(&self) {
        // An eventfd takes a write of one unless its counter is at its limit, which two writes cannot reach.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Gate {
    /// Frees the interrupt thread for good.
    fn drop(&mut self) {
        self.shared.is_closed.store(false, Ordering::Release);
        self.wake();
    }
}

fn arm() -> Result<(), String> {
    // SAFETY: `park` is a function that lives for ever and uses no argument.
    let status = unsafe { dpdk_sys::rte_eal_alarm_set(REARM_US, Some(park), std::ptr::null_mut()) };
    if status == 0 { Ok(()) } else { Err(format!("alarm: {}", describe(status))) }
}

/// Runs on the interrupt thread.
unsafe extern "C" fn park(_argument: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    if !shared.is_closed.load(Ordering::Acquire) {
        return;
    }
    shared.parkings.fetch_add(1, Ordering::AcqRel);
    let mut count = [0; 8];
    while let Err(rustix::io::Errno::INTR) = rustix::io::read(&shared.wake, &mut count) {}
    if shared.is_closed.load(Ordering::Acquire) {
        // Without an alarm nobody would be parked again: the poll loop sees that and stops polling.
        let _ = arm();
    }
}
