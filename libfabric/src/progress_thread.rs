//! Threads that make progress for an application.
//!
//! One that asks for it is served all the time (`FI_PROGRESS_AUTO`). Any other makes progress in its own calls. But a send may be over for
//! it that has not left: it waits behind a packet that was lost, or for credits. An application that waits elsewhere then, as Open MPI does
//! in `PMIx_Connect`, may wait for somebody who waits for that message. A reliable adapter would have sent it by itself, and so does a
//! [`watch_over`] thread.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::endpoint::EndpointState;
use crate::progress::PollingWait;

/// How long an application makes no progress until somebody does so for it, at least; and the shortest time between two looks then.
const ABSENCE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_micros(200);
/// Signals that the kernel ends a process by, where they are blocked.
const FAULTS: [Signal; 4] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL];

/// A thread that makes progress for an endpoint. It has ended when this is dropped: the library may be unloaded then.
pub(crate) struct ProgressThread {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The process that it is a thread of. A forked child has it not, and must not wait for its end.
    process: u32,
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        if self.process != process::id() {
            return std::mem::forget(thread);
        }
        thread.thread().unpark();
        // Where it has panicked the process has said so.
        let _ = thread.join();
    }
}

/// What [`watch_over`] has done for an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stead {
    /// Nothing: the application makes progress, or there is nothing to do.
    Nothing,
    /// It has looked for what holds up what was sent, and nothing has happened.
    Looked,
    /// Something has happened.
    Moved,
}

/// Makes progress for an endpoint from now on.
pub(crate) fn serve(endpoint: Weak<EndpointState>) -> io::Result<ProgressThread> {
    let mut patience = PollingWait::of_milliseconds(-1);
    start("roci-progress", endpoint, EndpointState::progress, move |happened| {
        patience.wait(happened);
    })
}

/// Makes progress for an endpoint where its application does not, as long as something that was sent has not arrived.
pub(crate) fn watch_over(endpoint: Weak<EndpointState>) -> io::Result<ProgressThread> {
    let mut pause = ABSENCE;
    start("roci-watch", endpoint, EndpointState::progress_instead, move |stead| {
        pause = match stead {
            Stead::Nothing => ABSENCE,
            Stead::Looked => ABSENCE.min(pause * 2),
            Stead::Moved => LOOK,
        };
        thread::park_timeout(pause);
    })
}

/// Starts a thread that looks at an endpoint and rests, again and again, as long as the endpoint is there. It is sent none of the
/// application's signals but faults of its own: an application may handle those of its memory.
fn start<T>(
    name: &str,
    endpoint: Weak<EndpointState>,
    look: impl Fn(&EndpointState) -> T + Send + 'static,
    mut rest: impl FnMut(T) + Send + 'static,
) -> io::Result<ProgressThread> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let its = is_stopped.clone();
    let run = move || {
        while !its.load(Ordering::Acquire)
            && let Some(seen) = endpoint.upgrade().map(|endpoint| look(&endpoint))
        {
            rest(seen);
        }
    };
    let mut blocked = SigSet::all();
    for fault in FAULTS {
        blocked.remove(fault);
    }
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    before.thread_set_mask()?;
    Ok(ProgressThread { is_stopped, thread: Some(thread?), process: process::id() })
}
