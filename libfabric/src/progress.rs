//! Waiting: how a thread that finds nothing to do spares the processor, and the thread that makes progress for an application that
//! computes.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::endpoint::EndpointState;

/// Looks in vain before the processor is yielded, and before the thread sleeps between two of them.
const SPINS: u32 = 200;
const YIELDS: u32 = 2_000;
/// The longest sleep between two looks.
const SLEEP: Duration = Duration::from_micros(500);

/// How long somebody waits, and how.
pub(crate) struct PollingWait {
    until: Option<Instant>,
    in_vain: u32,
}

impl PollingWait {
    /// For so many milliseconds; for ever where they are negative.
    pub(crate) fn of_milliseconds(timeout_ms: c_int) -> Self {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Self { until: timeout.map(|timeout| Instant::now() + timeout), in_vain: 0 }
    }

    /// Waits a moment before the next look; returns whether there is time for one.
    pub(crate) fn wait(&mut self, happened: bool) -> bool {
        self.in_vain = if happened { 0 } else { self.in_vain.saturating_add(1) };
        if self.in_vain > YIELDS {
            thread::sleep(SLEEP.min(Duration::from_micros(20) * (self.in_vain - YIELDS)));
        } else if self.in_vain > SPINS {
            thread::yield_now();
        }
        // A clock is dearer than a look.
        !self.in_vain.is_multiple_of(16) || self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Reads of a queue that have found nothing, one after the other. An MPI library that waits does nothing but read: where there are more
/// ranks than processors, those that have nothing to do must let the others run.
#[derive(Default)]
pub(crate) struct IdleReads(AtomicU32);

impl IdleReads {
    /// A read finds nothing ready. Yields the processor where many before it have found nothing either.
    #[inline]
    pub(crate) fn note(&self, happened: bool) {
        // Two threads that read at once may lose a count.
        let in_vain = if happened { 0 } else { self.0.load(Ordering::Relaxed) + 1 };
        if in_vain <= SPINS {
            self.0.store(in_vain, Ordering::Relaxed);
        } else {
            thread::yield_now();
        }
    }
}

/// A thread that makes progress for an endpoint. It has ended when this is dropped: the library may be unloaded then.
pub(crate) struct ProgressThread {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Where it has panicked the process has said so.
            let _ = thread.join();
        }
    }
}

/// Makes progress for an endpoint from now on.
pub(crate) fn serve(endpoint: Weak<EndpointState>) -> io::Result<ProgressThread> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let its = is_stopped.clone();
    let run = move || {
        let mut patience = PollingWait::of_milliseconds(-1);
        while !its.load(Ordering::Acquire)
            && let Some(happened) = endpoint.upgrade().map(|endpoint| endpoint.progress())
        {
            patience.wait(happened);
        }
    };
    let thread = thread::Builder::new().name("roci-progress".into()).spawn(run)?;
    Ok(ProgressThread { is_stopped, thread: Some(thread) })
}
