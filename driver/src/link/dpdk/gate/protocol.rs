//! Who waits for whom at the gate: the poll loops, the one of them that opens it, and the interrupt thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::machine::{GateError, GateOps};
use crate::sync::{AtomicBool, AtomicU64, yield_now};

/// How long the thread may be at work before that is said.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it may take to park for the first time. On a machine with far more to do than processors a thread may not run
/// for a second; and a port that is stopped beside it anyway may have the whole process aborted by DPDK, which finds a
/// closed channel on its list.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// The state that the interrupt thread and the poll loops share.
pub(super) struct GateProtocol<M> {
    pub(super) machine: M,
    parkings: AtomicU64,
    /// How often the thread was let go. That the machine has ended its sleep is only a reason to look: it may be from before.
    wakings: AtomicU64,
    is_closed: AtomicBool,
    /// An alarm is set or its callback runs. A second one would follow the first without end.
    is_armed: AtomicBool,
    /// No burst may begin.
    is_open: AtomicBool,
}

/// Whether a burst of one poll loop runs, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct InBurst(AtomicBool);

impl<M: GateOps> GateProtocol<M> {
    pub(super) fn new(machine: M) -> Self {
        Self {
            machine,
            parkings: AtomicU64::new(0),
            wakings: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_armed: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        }
    }

    /// Runs a burst, or nothing at all while the gate is open.
    #[inline]
    pub(super) fn burst<R>(&self, in_burst: &InBurst, action: impl FnOnce() -> R) -> Option<R> {
        in_burst.0.store(true, Ordering::Relaxed);
        // Either the opener sees that a burst runs, or the burst sees that the gate opens.
        self.machine.fence_of_burst();
        let result = (!self.is_open.load(Ordering::Acquire)).then(action);
        in_burst.0.store(false, Ordering::Release);
        result
    }

    /// Lets the interrupt thread work where no burst of these loops runs, and waits until it is parked again. Only one
    /// thread may do so at a time. `false` where it is unknown which bursts run: then the gate stays shut.
    pub(super) fn open(&self, loops: &[Arc<InBurst>]) -> bool {
        self.is_open.store(true, Ordering::SeqCst);
        if !self.machine.fence_of_opener() {
            self.is_open.store(false, Ordering::Release);
            return false;
        }
        for other in loops {
            while other.0.load(Ordering::Acquire) {
                yield_now();
            }
        }
        let before = self.parkings.load(Ordering::Acquire);
        self.wake();
        // While the interrupt thread is at work, no burst may run.
        while !self.wait_parked(before, PATIENCE) {
            tracing::warn!("DPDK's interrupt thread has been busy for half a second");
        }
        self.is_open.store(false, Ordering::Release);
        true
    }

    /// Parks the thread that runs freely.
    pub(super) fn park(&self) -> Result<(), GateError> {
        let before = self.parkings.load(Ordering::Acquire);
        self.is_closed.store(true, Ordering::Release);
        let parked = self
            .arm()
            .and_then(|()| self.wait_parked(before, FIRST_PATIENCE).then_some(()).ok_or(GateError::NotParked));
        if parked.is_err() {
            self.free();
        }
        parked
    }

    /// Frees the thread for good.
    pub(super) fn free(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
        self.wake();
    }

    /// What the alarm runs on the interrupt thread.
    pub(super) fn serve(&self) {
        if self.is_closed.load(Ordering::SeqCst) {
            let before = self.wakings.load(Ordering::SeqCst);
            self.parkings.fetch_add(1, Ordering::AcqRel);
            while self.is_closed.load(Ordering::SeqCst) && self.wakings.load(Ordering::SeqCst) == before {
                self.machine.sleep();
            }
        }
        // This alarm is over. Who closes the gate just now finds that, and sets the next one; or has found it set, before
        // this swap, which so sees to it that the closing is seen here. Never do both.
        self.is_armed.swap(false, Ordering::AcqRel);
        if self.is_closed.load(Ordering::Acquire) {
            // Without an alarm the interrupt thread would not be parked again: the opener sees that, and no burst runs.
            let _ = self.arm();
        }
    }

    /// Sets the alarm that parks the thread, unless there is one.
    fn arm(&self) -> Result<(), GateError> {
        if self.is_armed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let armed = self.machine.set_alarm();
        if armed.is_err() {
            self.is_armed.store(false, Ordering::Release);
        }
        armed
    }

    fn wait_parked(&self, before: u64, patience: Duration) -> bool {
        let start = Instant::now();
        while self.parkings.load(Ordering::Acquire) == before {
            if start.elapsed() > patience {
                return false;
            }
            yield_now();
        }
        true
    }

    fn wake(&self) {
        self.wakings.fetch_add(1, Ordering::SeqCst);
        self.machine.wake();
    }
}
