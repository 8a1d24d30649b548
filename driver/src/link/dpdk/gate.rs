//! The quiescent gate: a memif port is never torn down while a burst runs.
//!
//! When a memif peer dies, DPDK's interrupt thread unmaps the rings that a poll loop may be reading at that very
//! moment, and the survivor crashes. So the interrupt thread is kept parked: an alarm callback, which runs on it,
//! sleeps in a read until somebody opens the gate, while no burst runs. While the gate is open, the thread does
//! whatever has come up (a disconnect, for one), until the alarm parks it again.
//!
//! There is one interrupt thread and one gate per process, and any number of poll loops, each on its thread. Whoever
//! is due opens the gate for all of them: it says so, waits for the bursts that run already, and a loop that comes
//! while the gate is open goes without its burst. So no loop waits for another one, which may not poll for long.
//!
//! Whoever opens waits for a *count* of parkings to rise, not for a flag: a flag could still be set from the parking
//! before. One opening costs about 160 us, so it is done every 25 to 100 ms.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::thread::{MembarrierCommand, membarrier};

use super::control;
use super::eal::describe;

/// Microseconds until a freed thread is parked again; whatever is ready before goes first.
const REARM_US: u64 = 10;
/// How long the thread may be at work before that is said.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it may take to park for the first time. On a machine with far more to do than processors a thread may not run
/// for a second; and a port that is stopped beside it anyway may have the whole process aborted by DPDK, which finds a
/// closed channel on its list.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// The gate was open a moment ago, for another port or another loop: that was enough.
const RECENT: Duration = Duration::from_millis(25);

/// Openings before a port is closed though a control channel is readable: it may be the application's own.
const OPENINGS_MAX: usize = 200;

/// What the interrupt thread and the poll loops look at.
struct Shared {
    wake: OwnedFd,
    parkings: AtomicU64,
    /// How often the thread was let go. What `wake` holds is only a reason to look: it may be from before.
    wakings: AtomicU64,
    is_closed: AtomicBool,
    /// An alarm is set or its callback runs. A second one would follow the first without end.
    is_armed: AtomicBool,
    /// No burst may begin.
    is_open: AtomicBool,
    /// Whether the kernel runs a fence on all threads, so that bursts need none.
    has_membarrier: bool,
}

/// What belongs to whoever opens or closes.
struct Desk {
    loops: Vec<Arc<InBurst>>,
    opened: Option<Instant>,
}

/// Whether a burst of one poll loop runs, on a cache line of its own.
#[repr(align(64))]
struct InBurst(AtomicBool);

static SHARED: OnceLock<Shared> = OnceLock::new();
static DESK: Mutex<Desk> = Mutex::new(Desk { loops: Vec::new(), opened: None });

/// One poll loop's side of the gate; the last one that goes frees the interrupt thread for good.
pub(super) struct Gate {
    shared: &'static Shared,
    in_burst: Arc<InBurst>,
}

impl Gate {
    /// A gate for the calling thread's poll loop; the first one parks the interrupt thread. Connect first: the
    /// handshake runs on that thread.
    pub(super) fn close() -> Result<Self, String> {
        let mut desk = desk();
        let shared = shared()?;
        if desk.loops.is_empty() {
            shared.park()?;
            desk.opened = Some(Instant::now());
        }
        let in_burst = Arc::new(InBurst(AtomicBool::new(false)));
        desk.loops.push(in_burst.clone());
        Ok(Self { shared, in_burst })
    }

    /// Runs a burst, or nothing at all while the gate is open.
    #[inline]
    pub(super) fn burst<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.in_burst.0.store(true, Ordering::Relaxed);
        // Either the opener sees that a burst runs, or the burst sees that the gate opens. The opener's `membarrier`
        // is a fence on this thread too, so that only the compiler must keep the order here.
        if self.shared.has_membarrier {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        let result = (!self.shared.is_open.load(Ordering::Acquire)).then(action);
        self.in_burst.0.store(false, Ordering::Release);
        result
    }

    /// Lets the interrupt thread work, and waits until it is parked again. Does nothing where that was done a moment
    /// ago or is being done.
    pub(super) fn cycle(&self) {
        let mut desk = match DESK.try_lock() {
            Ok(desk) => desk,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if desk.opened.is_none_or(|opened| opened.elapsed() >= RECENT) {
            desk.open(self.shared);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut desk = desk();
        desk.loops.retain(|other| !Arc::ptr_eq(other, &self.in_burst));
        if desk.loops.is_empty() {
            self.shared.free();
        }
    }
}

/// Lets the interrupt thread work where it is parked: a port that comes up while others run needs it to shake hands.
pub(super) fn let_work() {
    let mut desk = desk();
    if let (Some(shared), false) = (SHARED.get(), desk.loops.is_empty()) {
        desk.open(shared);
    }
}

/// Runs `action`, which stops or closes a port, while the interrupt thread is parked.
///
/// That thread may be parked with a list of ready control channels half done. It knows them by number: one that was
/// closed meanwhile and whose number was used again would be read though nothing has come, and the thread would wait
/// there for ever. So it first deals with all that has come; what is not readable now is not on its list.
pub(super) fn held<R>(action: impl FnOnce() -> R) -> R {
    let mut desk = desk();
    let shared = shared();
    let is_guest = desk.loops.is_empty();
    let parked = match &shared {
        Ok(shared) if is_guest => shared.park().ok().map(|()| *shared),
        Ok(shared) => Some(*shared),
        Err(_) => None,
    };
    if let Some(shared) = parked {
        for _ in 0..OPENINGS_MAX {
            if !control::is_any_readable() {
                break;
            }
            desk.open(shared);
        }
    }
    let result = action();
    if let Some(shared) = parked.filter(|_| is_guest) {
        shared.free();
    }
    result
}

fn desk() -> MutexGuard<'static, Desk> {
    DESK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is shared, made by the first who asks. The caller holds the desk.
fn shared() -> Result<&'static Shared, String> {
    if let Some(shared) = SHARED.get() {
        return Ok(shared);
    }
    let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("eventfd: {error}"))?;
    Ok(SHARED.get_or_init(|| Shared {
        wake,
        parkings: AtomicU64::new(0),
        wakings: AtomicU64::new(0),
        is_closed: AtomicBool::new(false),
        is_armed: AtomicBool::new(false),
        is_open: AtomicBool::new(false),
        has_membarrier: membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok(),
    }))
}

impl Desk {
    fn open(&mut self, shared: &Shared) {
        shared.is_open.store(true, Ordering::SeqCst);
        if shared.has_membarrier {
            // It cannot fail after its registration; without it nobody knows which bursts run, and the gate stays shut.
            if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
                shared.is_open.store(false, Ordering::Release);
                return;
            }
        } else {
            fence(Ordering::SeqCst);
        }
        for other in &self.loops {
            while other.0.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        let before = shared.parkings.load(Ordering::Acquire);
        shared.wake();
        // While the interrupt thread is at work, no burst may run.
        while !shared.wait_parked(before, PATIENCE) {
            tracing::warn!("DPDK's interrupt thread has been busy for half a second");
        }
        shared.is_open.store(false, Ordering::Release);
        self.opened = Some(Instant::now());
    }
}

impl Shared {
    fn park(&self) -> Result<(), String> {
        let before = self.parkings.load(Ordering::Acquire);
        self.is_closed.store(true, Ordering::SeqCst);
        let parked = self.arm().and_then(|()| {
            self.wait_parked(before, FIRST_PATIENCE)
                .then_some(())
                .ok_or_else(|| "the interrupt thread does not park".to_owned())
        });
        if parked.is_err() {
            self.free();
        }
        parked
    }

    /// Frees the thread for good.
    fn free(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
        self.wake();
    }

    /// Sets the alarm that parks the thread, unless there is one.
    fn arm(&self) -> Result<(), String> {
        if self.is_armed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let status = set_alarm();
        if status != 0 {
            self.is_armed.store(false, Ordering::SeqCst);
            return Err(format!("alarm: {}", describe(status)));
        }
        Ok(())
    }

    fn wait_parked(&self, before: u64, patience: Duration) -> bool {
        let start = Instant::now();
        while self.parkings.load(Ordering::Acquire) == before {
            if start.elapsed() > patience {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn wake(&self) {
        self.wakings.fetch_add(1, Ordering::SeqCst);
        // An eventfd takes a write of one unless its counter is at its limit, which these writes cannot reach.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

fn set_alarm() -> i32 {
    // SAFETY: `park` is a function that lives for ever and uses no argument.
    unsafe { dpdk_sys::rte_eal_alarm_set(REARM_US, Some(park), std::ptr::null_mut()) }
}

/// Runs on the interrupt thread.
unsafe extern "C" fn park(_argument: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    if shared.is_closed.load(Ordering::SeqCst) {
        let before = shared.wakings.load(Ordering::SeqCst);
        shared.parkings.fetch_add(1, Ordering::AcqRel);
        let mut count = [0; 8];
        while shared.is_closed.load(Ordering::SeqCst) && shared.wakings.load(Ordering::SeqCst) == before {
            // Whatever it returns, an interruption for one, is no more than a reason to look again.
            let _ = rustix::io::read(&shared.wake, &mut count);
        }
    }
    // This alarm is over. Who closes the gate just now sets the next one, or it is seen here; never do both.
    shared.is_armed.store(false, Ordering::SeqCst);
    if shared.is_closed.load(Ordering::SeqCst) {
        // Without an alarm nobody would be parked again: whoever opened the gate sees that, and no burst runs.
        let _ = shared.arm();
    }
}
