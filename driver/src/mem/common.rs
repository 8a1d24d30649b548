//! What the engines of a process have in common beside the monitor: memory that is locked, and the limit of it, are the
//! process's, and not an engine's.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::registrar::Locks;

/// It belongs to the [`WatchTable`](super::WatchTable), of which a forked child gets one of its own.
#[derive(Debug, Default)]
pub(super) struct Common {
    ended: AtomicU64,
    pub(super) locks: Mutex<Locks>,
}

impl Common {
    /// An engine has ended a registration.
    pub(super) fn end_one(&self) {
        self.ended.fetch_add(1, Relaxed);
    }

    /// Registrations that all engines have ended so far.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }
}
