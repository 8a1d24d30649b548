//! The quiescent gate: a memif port is never torn down while a burst runs.
//!
//! When a memif peer dies, DPDK's interrupt thread unmaps the rings that a poll loop may be reading at that very
//! moment, and the survivor crashes: with DPDK 24.11, and bare frames in a stream, 8 of 30 did without this gate, and
//! none with it. So the interrupt thread is kept parked: an alarm callback, which runs on it, sleeps in a read until
//! somebody opens the gate, while no burst runs. While the gate is open, the thread does whatever has come up (a
//! disconnect, for one), until the alarm parks it again.
//!
//! There is one interrupt thread and one gate per process, and any number of poll loops, each on its thread. The loop
//! whose turn it is opens the gate for all of them: it sets a flag and waits for the bursts that run already; a loop
//! that arrives while the gate is open skips its burst. So no loop waits for another one, which may not poll for long.
//!
//! The opener waits for a *count* of parkings to rise, not for a flag: a flag could still be set from the parking
//! before. One opening costs about 160 us, so it is done every 25 to 100 ms.

mod machine;
#[cfg(all(loom, test))]
mod models;
mod protocol;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::control;
use machine::{Dpdk, GateError};
use protocol::{GateProtocol, InBurst};

/// The gate was open a moment ago, for another port or another loop: that was enough.
const RECENT: Duration = Duration::from_millis(25);

/// Openings before a port is closed though a control channel is readable: it may be the application's own.
const OPENINGS_MAX: usize = 200;

/// State that only the thread that opens or closes the gate uses.
struct Desk {
    loops: Vec<Arc<InBurst>>,
    opened: Option<Instant>,
}

/// What the interrupt thread and the poll loops look at.
static SHARED: OnceLock<GateProtocol<Dpdk>> = OnceLock::new();
static DESK: Mutex<Desk> = Mutex::new(Desk { loops: Vec::new(), opened: None });

/// One link's side of the gate; the last one that goes frees the interrupt thread for good.
pub(super) struct Gate {
    shared: &'static GateProtocol<Dpdk>,
    in_burst: Arc<InBurst>,
}

impl Gate {
    /// A gate for a link's bursts; the first one parks the interrupt thread. Connect first: the
    /// handshake runs on that thread.
    pub(super) fn close() -> Result<Self, GateError> {
        let mut desk = desk();
        let shared = shared()?;
        if desk.loops.is_empty() {
            shared.park()?;
            desk.opened = Some(Instant::now());
        }
        let in_burst = Arc::new(InBurst::default());
        desk.loops.push(in_burst.clone());
        Ok(Self { shared, in_burst })
    }

    /// Runs a burst, or nothing at all while the gate is open.
    #[inline]
    pub(super) fn burst<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.shared.burst(&self.in_burst, action)
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
    let_work_after(Duration::ZERO);
}

/// The same, unless it has worked within this time: a port that comes up while others carry frames leaves them most of it.
pub(super) fn let_work_after(rest: Duration) {
    let mut desk = desk();
    let has_rested = desk.opened.is_none_or(|opened| opened.elapsed() >= rest);
    if let (Some(shared), true) = (SHARED.get(), has_rested && !desk.loops.is_empty()) {
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
fn shared() -> Result<&'static GateProtocol<Dpdk>, GateError> {
    if let Some(shared) = SHARED.get() {
        return Ok(shared);
    }
    let machine = Dpdk::new()?;
    Ok(SHARED.get_or_init(|| GateProtocol::new(machine)))
}

/// The interrupt thread's part, on that thread.
fn serve() {
    if let Some(shared) = SHARED.get() {
        shared.serve();
    }
}

impl Desk {
    fn open(&mut self, shared: &GateProtocol<Dpdk>) {
        if shared.open(&self.loops) {
            self.opened = Some(Instant::now());
        }
    }
}
