//! Where the engine of a dedicated worker runs: on a thread of its own, or inside the calls of the handle.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use roci_driver::link::Link;

use super::progress_thread::{ProgressLoop, TurnResult};
use super::rings::Rings;
use super::seat::Over;
use crate::backoff::Idle;
use crate::sync::EventFd;
use crate::worker::domain::Domain;
use crate::{Config, OpError, Worker};

/// Where the engine of a [`DedicatedWorker`](crate::DedicatedWorker) runs. Only this crate implements it.
pub trait EngineHost: sealed::HostsEngine {}

impl EngineHost for EngineThread {}
impl<L: Link> EngineHost for SteppedEngine<L> {}

pub(super) mod sealed {
    use crate::OpError;
    use crate::backoff::Idle;

    pub trait HostsEngine {
        /// Lets the engine take a turn, where it does not by itself; returns whether anything happened.
        fn step(&mut self) -> bool;

        /// A wait has been idle like this.
        fn look_after(&mut self, idle: Idle);

        /// Why the engine is over. Waits for its very end.
        fn end(&mut self) -> OpError;

        /// The handle has let the engine go: waits until that has ended for it.
        fn stop(&mut self);

        /// This is a forked child, and the engine is the parent's.
        fn forget(&mut self);
    }
}

/// Between two looks at a thread that is to end: it wakes who waits.
const LOOK: Duration = Duration::from_millis(100);

/// An engine on a thread of its own, which other handles may share.
pub struct EngineThread {
    /// None once this handle has let it go.
    life: Option<Arc<Mutex<ThreadLife>>>,
    rings: Arc<Rings>,
    /// What the application sleeps on.
    wait_fd: Arc<EventFd>,
    /// Events that had been reported when the application last armed the descriptor.
    events_seen: u64,
}

/// What the handles of a thread know of its end.
#[derive(Debug)]
struct ThreadLife {
    /// None once it has been found to be over.
    thread: Option<JoinHandle<Result<(), OpError>>>,
    /// Why it is over.
    end: Option<OpError>,
}

impl ThreadLife {
    /// Why the thread is over. Waits for its very end.
    fn end(&mut self) -> OpError {
        if let Some(thread) = self.thread.take() {
            self.end = Some(match thread.join() {
                Ok(Ok(())) => closed(),
                Ok(Err(error)) => error,
                Err(panic) => OpError::EngineGone(format!("it panicked: {}", words_of(&*panic))),
            });
        }
        self.end.clone().unwrap_or_else(closed)
    }
}

impl EngineThread {
    pub(super) fn new(thread: JoinHandle<Result<(), OpError>>, rings: Arc<Rings>, wait_fd: Arc<EventFd>) -> Self {
        let life = Arc::new(Mutex::new(ThreadLife { thread: Some(thread), end: None }));
        Self { life: Some(life), rings, wait_fd, events_seen: 0 }
    }

    /// The same thread, for another handle.
    pub(super) fn beside(&self, rings: Arc<Rings>, wait_fd: Arc<EventFd>) -> Self {
        Self { life: self.life.clone(), rings, wait_fd, events_seen: 0 }
    }

    pub(super) fn wait_fd(&self) -> &EventFd {
        &self.wait_fd
    }

    /// Events of this number were reported; returns whether there were fewer when this was last called.
    pub(super) fn note_events(&mut self, reported: u64) -> bool {
        assert!(reported >= self.events_seen, "events do not become fewer");
        mem::replace(&mut self.events_seen, reported) < reported
    }
}

impl sealed::HostsEngine for EngineThread {
    #[inline]
    fn step(&mut self) -> bool {
        false
    }

    #[inline]
    fn look_after(&mut self, _: Idle) {}

    fn end(&mut self) -> OpError {
        let life = self.life.as_ref().map(|life| life.lock().unwrap_or_else(PoisonError::into_inner).end());
        life.unwrap_or_else(closed)
    }

    fn stop(&mut self) {
        let rings = &self.rings;
        while !rings.is_over() {
            rings.handle_wakeup.sleep(LOOK, || rings.is_over());
        }
        // The last handle waits for the very end. How it ended does not matter any more.
        if let Some(life) = self.life.take().and_then(Arc::into_inner) {
            life.into_inner().unwrap_or_else(PoisonError::into_inner).end();
        }
    }

    fn forget(&mut self) {
        mem::forget(self.life.take());
    }
}

/// An engine that makes progress inside the calls of its handle, on the handle's thread: in `progress`, and where a call
/// waits. So the rings, the names of operations and the engine's side are those of an engine with a thread, and a simulation
/// decides when each of them moves.
pub struct SteppedEngine<L: Link> {
    /// None once it is over.
    progress_loop: Option<ProgressLoop<L>>,
    rings: Arc<Rings>,
    /// Why it is over.
    end: Option<OpError>,
}

impl<L: Link> SteppedEngine<L> {
    pub(super) fn new(worker: Worker<L>, config: &Config, rings: Arc<Rings>) -> Self {
        let domain = Domain::around(worker, config);
        Self { progress_loop: Some(ProgressLoop::new(domain, Over::new(rings.clone()))), rings, end: None }
    }

    pub(super) fn worker(&self) -> Option<&Worker<L>> {
        self.progress_loop.as_ref().map(ProgressLoop::worker)
    }

    fn finish(&mut self, end: OpError) {
        self.end = Some(end);
        self.progress_loop = None;
        self.rings.finish();
    }
}

impl fmt::Debug for EngineThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineThread").field("life", &self.life).finish_non_exhaustive()
    }
}

impl<L: Link> fmt::Debug for SteppedEngine<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteppedEngine").field("end", &self.end).finish_non_exhaustive()
    }
}

impl<L: Link> sealed::HostsEngine for SteppedEngine<L> {
    fn step(&mut self) -> bool {
        let Some(progress_loop) = &mut self.progress_loop else { return false };
        match progress_loop.turn() {
            TurnResult::Idle => return false,
            TurnResult::Busy => {}
            TurnResult::End(ending) => {
                if let Some(progress_loop) = self.progress_loop.take() {
                    progress_loop.end(ending);
                }
                self.finish(closed());
            }
        }
        true
    }

    fn look_after(&mut self, idle: Idle) {
        if let Some(progress_loop) = &mut self.progress_loop
            && let Err(error) = progress_loop.look_after(idle)
        {
            self.finish(error);
        }
    }

    fn end(&mut self) -> OpError {
        self.end.clone().unwrap_or_else(closed)
    }

    fn stop(&mut self) {
        self.progress_loop = None;
    }

    fn forget(&mut self) {
        mem::forget(self.progress_loop.take());
    }
}

fn closed() -> OpError {
    OpError::EngineGone("it was closed".into())
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}
