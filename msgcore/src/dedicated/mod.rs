//! Dedicated engines: a worker that lives on a thread of its own and serves its peers while the application computes.
//!
//! A [`Worker`] makes progress only inside its own calls. The worker behind a [`DedicatedWorker`] polls all the time:
//! RDMA READs and WRITEs of peers are answered, announcements are met and fetched, credits return, whatever the
//! application does. The price is a thread, and a way through two rings for every message.
//!
//! ```text
//! application                                    engine's thread
//!   send, recv, cancel  -- commands (1024) ---->   Worker::send, recv, cancel
//!   test, wait         <-- completions (1024) --   requests that have ended
//!   probe, barrier, .. --- as commands -------->
//!                      <-- answers (1) ---------
//!   poll_event         <-- events (64) ---------   WorkerEvent
//! ```
//!
//! The name of an operation is made at this side, and the engine uses it as it is. Its outcome is kept here until the
//! application asks for it: `test` looks into memory of its own once it has emptied the ring of completions.
//!
//! # Limits
//! A full ring of commands makes a call wait, as a wait does, until the engine has taken some; nothing is lost. A full
//! ring of completions leaves what has ended at the engine until there is room, and a full ring of events leaves them
//! at the worker, which counts those that it loses. Operations under way, or over and not waited for, are at most
//! 2^15: beyond them a call ends with [`TooMany`](crate::CallError::TooMany).
//!
//! # Waiting
//! The engine spins, then yields, then sleeps, as a wait does and by the same knobs; two threads a rank count against
//! the processors. A command wakes it from its sleep, and a completion wakes who waits for it. `engine_cpu` pins the
//! thread; one that shall never sleep on a processor of its own gets a long `yield_us`.
//!
//! # Sleeping on a descriptor
//! The handle has a file descriptor for epoll, poll and tokio's `AsyncFd` ([`AsFd`](std::os::fd::AsFd)). It is armed before
//! each sleep ([`DedicatedWorker::arm`]) and acknowledged after it ([`DedicatedWorker::acknowledge`]): the engine's thread
//! makes one system call for an arming, and none for messages that come while it is not armed. An armed descriptor becomes
//! readable when
//! - an operation ends: one whose outcome goes into the completion queue, or one that is asked for by name. One that was
//!   detached may wake for nothing;
//! - an event comes for [`DedicatedWorker::poll_event`];
//! - the engine's thread ends, by whatever: then every call says why.
//!
//! A message without a receive does not wake, nor do bytes of a stream: who sleeps posts a receive. Nothing is lost where all
//! that is there is taken before the next arming. A sleep may end for nothing.
//!
//! ```no_run
//! use std::os::fd::AsFd;
//!
//! use roci_msgcore::dedicated::Arming;
//! use roci_msgcore::{Completion, DedicatedWorker, OpError};
//!
//! /// Waits for a completion; `sleep` waits until the descriptor is readable.
//! fn next(worker: &mut DedicatedWorker, sleep: impl Fn(&dyn AsFd)) -> Result<Completion, OpError> {
//!     loop {
//!         if let Some(completion) = worker.poll_completion() {
//!             return Ok(completion);
//!         }
//!         if worker.arm()? == Arming::Armed {
//!             sleep(worker);
//!             worker.acknowledge();
//!         }
//!     }
//! }
//! ```
//!
//! # Threads
//! A [`DedicatedWorker`] may move to another thread, and only one thread uses it at a time: it is the one producer and
//! the one consumer of its rings. Several threads of an application have one each, which makes each of them a rank of
//! its own, or share one behind a mutex of theirs.
//!
//! # Several endpoints
//! A worker that is no rank opens further endpoints on the same engine ([`DedicatedWorker::open_endpoint`]), each with a handle, rings
//! and a descriptor of its own: so the threads of an application need one thread that polls, and not one each. The engine serves the
//! handles in turn, some commands of each, and no call of one handle waits for another's. The thread ends with its last handle.
//!
//! # Ends
//! That a rank has gone ends what concerns it. Once one has failed, receives from any source end too
//! ([`OpError::Job`]): who waits for them may wait for that one; and so they do once all have gone
//! ([`OpError::NobodyLeft`]).
//!
//! Where the engine's thread has ended, by a panic or with the whole job, every call returns [`OpError::EngineGone`] or
//! [`OpError::Job`]. Dropping the handle ends the thread and waits for it; peers see the rank go.
//!
//! # Forks
//! A forked child has the handle and not the thread. What the two share may be half changed and its locks closed, so in the
//! child no call looks at it: each is refused by name ([`OpError::Forked`],
//! [`CallError::Forked`](crate::CallError::Forked)), and dropping the handle forgets what it holds. The descriptor is the
//! parent's too: the child's calls neither arm nor read it, and it goes with an exec.

mod alone;
mod calls;
mod facts;
mod host;
pub(crate) mod internals;
#[cfg(all(loom, test))]
mod models;
mod multi_calls;
mod one_sided;
mod one_sided_calls;
mod outcomes;
mod progress_thread;
mod questions;
mod rings;
mod seat;
mod stock;
mod stream_calls;
mod streams;
#[cfg(test)]
mod tests;
mod wait_fd;
mod wakeup;

use std::mem;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use roci_driver::link::Link;
use roci_driver::{Arena, ArenaError, Buffer, ForkWatch};
use static_assertions::assert_impl_all;

use crate::backoff::{Backoff, BackoffLimits};
use crate::config::Config;
use crate::services::tag::claims::ClaimHome;
use crate::sync::EventFd;
use crate::worker::domain::Domain;
use crate::worker::ports::join;
use crate::worker::wireup_error::WireupError;
use crate::{OpError, Rank, Worker};
use facts::{WorkerConstants, WorkerFacts};
use host::sealed::HostsEngine as _;
pub use host::{EngineHost, EngineThread, SteppedEngine};
use one_sided::OneSidedHandle;
use outcomes::Outcomes;
use rings::{Command, Rings};
use roci_launcher::Job;
use seat::Over;
use stock::Stock;
use streams::StreamHandle;
pub use wait_fd::Arming;

/// The handle of a worker that lives on a thread of its own.
///
/// ```no_run
/// use roci_msgcore::{Config, DedicatedWorker, Source, Tag};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut worker = DedicatedWorker::open(&Config::load(None)?)?;
/// let receive = worker.recv(Source::Any, Tag::new(7), worker.buffer(4 << 20)?)?;
/// // Meanwhile the message comes, however long this takes.
/// let sum: u64 = (0..1_000_000).sum();
/// let message = worker.wait(receive)?;
/// # drop((sum, message));
/// worker.close()?;
/// # Ok(())
/// # }
/// ```
pub struct DedicatedWorker<H: EngineHost = EngineThread> {
    constants: WorkerConstants,
    arena: Arc<Arena>,
    fork_watch: ForkWatch,
    rings: Arc<Rings>,
    outcomes: Outcomes,
    claims: ClaimHome,
    stock: Stock,
    streams: StreamHandle,
    one_sided: OneSidedHandle,
    limits: BackoffLimits,
    buffered_limit: usize,
    host: H,
}

// Several threads may share a handle behind a lock.
assert_impl_all!(DedicatedWorker: Send);

impl DedicatedWorker {
    /// Opens this rank of the job that the process was started in, on a new thread, as [`Worker::open`] does.
    pub fn open(config: &Config) -> Result<Self, WireupError> {
        Self::spawn(config, join(config)?)
    }

    /// Opens a worker that is no rank of a job, on a new thread, as [`Worker::open_alone`] does.
    pub fn open_alone(config: &Config) -> Result<Self, WireupError> {
        let config = config.for_strangers();
        let ours = config.clone();
        Self::start(&config, move || Ok(Domain::live(Worker::open_alone(&ours)?, &ours)))
    }

    /// Opens this rank of `job` on a new thread, as [`Worker::open_job`] does.
    pub fn spawn(config: &Config, job: Job) -> Result<Self, WireupError> {
        let ours = config.clone();
        Self::start(config, move || Ok(Domain::live(Worker::open_job(&ours, job)?, &ours)))
    }

    /// Opens a worker on a new thread: ports belong to the thread that opens them.
    fn start<L: Link, F>(config: &Config, open: F) -> Result<Self, WireupError>
    where
        F: FnOnce() -> Result<Domain<L>, WireupError> + Send + 'static,
    {
        let wait_fd = Arc::new(EventFd::new().map_err(WireupError::WaitFd)?);
        let rings = Arc::new(Rings::with_wait_fd(wait_fd.clone()));
        let (opened, is_open) = sync_channel(1);
        let (theirs, ours) = (rings.clone(), config.clone());
        let body = move || {
            let over = Over::new(theirs);
            let domain = open().and_then(|domain| progress_thread::pin(ours.engine_cpu).map(|()| domain));
            let limits = |worker: &Worker<L>| {
                let cpus = worker.job.as_ref().map_or_else(processors, Job::cpus);
                // Two threads a rank.
                BackoffLimits::new(&ours, 2 * worker.size(), cpus)
            };
            match domain {
                Ok(domain) => {
                    let limits = limits(domain.worker());
                    // Who does not listen any more has panicked, and its handle will not come.
                    drop(opened.send(Ok(WorkerFacts::of(domain.worker(), limits))));
                    progress_thread::run(domain, limits, over)
                }
                Err(error) => {
                    drop(opened.send(Err(error)));
                    Ok(())
                }
            }
        };
        let thread = thread::Builder::new().name("roci-engine".into()).spawn(body);
        let thread = thread.map_err(|source| WireupError::Thread { cpu: None, source })?;
        let mut host = EngineThread::new(thread, rings.clone(), wait_fd);
        let Ok(outcome) = is_open.recv() else { return Err(host.end().into()) };
        match outcome {
            Ok(facts) => Ok(Self::at(facts, config.buffered_limit, rings, host)),
            Err(error) => {
                // A second try finds it gone.
                host.stop();
                Err(error)
            }
        }
    }
}

/// Processors of a worker that no launcher has given any.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

impl<L: Link> DedicatedWorker<SteppedEngine<L>> {
    /// Serves this handle with a worker that makes progress inside the handle's calls alone: what a program does with an
    /// engine of its own, step by step and under a clock of its own. See [`SteppedEngine`].
    pub fn stepped(worker: Worker<L>, config: &Config) -> Self {
        let rings = Arc::new(Rings::new());
        let facts = WorkerFacts::of(&worker, BackoffLimits::new(config, worker.size(), worker.size()));
        Self::at(facts, config.buffered_limit, rings.clone(), SteppedEngine::new(worker, config, rings))
    }

    /// Returns the worker that serves this handle; `None` once it has ended.
    pub fn worker(&self) -> Option<&Worker<L>> {
        self.host.worker()
    }
}

impl<H: EngineHost> DedicatedWorker<H> {
    fn at(facts: WorkerFacts, buffered_limit: usize, rings: Arc<Rings>, host: H) -> Self {
        let WorkerFacts { constants, arena, fork_watch, claims, names, limits } = facts;
        Self {
            constants,
            arena,
            fork_watch,
            rings,
            outcomes: Outcomes::named(names),
            claims,
            stock: Stock::default(),
            streams: StreamHandle::default(),
            one_sided: OneSidedHandle::default(),
            limits,
            buffered_limit,
            host,
        }
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.constants.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.constants.size
    }

    /// Memory for messages, straight from the arena, and returned to it when dropped. A forked child gets none: see
    /// [`Worker::buffer`].
    pub fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
        if self.is_forked() {
            return Err(ArenaError::Forked);
        }
        self.arena.buffer(len)
    }

    /// Free bytes of the arena; a forked child has none.
    pub fn free_bytes(&self) -> usize {
        if self.is_forked() { 0 } else { self.arena.free_bytes() }
    }

    /// Returns the bytes of the arena that the handle keeps for copies of short messages.
    pub fn kept_bytes(&self) -> usize {
        self.stock.free_bytes()
    }

    /// Whether this process was forked from the one that opened the worker, whose thread stays with that one. Then calls
    /// are refused by name, and dropping the handle ends nothing.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.fork_watch.is_forked()
    }

    /// Leaves all to the parent: its thread cannot be joined here, and memory of the arena does not go back.
    #[cold]
    fn forget(&mut self) {
        self.host.forget();
        mem::forget((mem::take(&mut self.outcomes), mem::take(&mut self.stock)));
        // Not even the last handle of what the thread may have been changing ends it.
        mem::forget((self.rings.clone(), self.arena.clone()));
    }

    /// Takes what the engine has reported, and returns whether there was anything. An engine with a thread makes progress by
    /// itself; a stepped one does so here and in waits, and not in [`Self::test`].
    pub fn progress(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut happened = self.host.step();
        happened |= self.drain();
        self.ask_again();
        happened
    }

    /// Gives a command to the engine; waits where the ring is full. It comes back where the engine is gone.
    fn post(&mut self, mut command: Command) -> Result<(), Command> {
        let mut backoff = None;
        loop {
            if self.rings.is_over() {
                return Err(command);
            }
            match self.rings.post(command) {
                Ok(()) => return Ok(()),
                Err(refused) => command = refused,
            }
            // What is not taken out of the other ring could be what the engine waits for.
            self.drain();
            let limits = self.limits;
            self.idle(backoff.get_or_insert_with(|| Backoff::new(limits)));
        }
    }

    /// Takes what has ended out of the ring; returns whether there was any.
    #[inline]
    fn drain(&mut self) -> bool {
        let mut is_any = false;
        while let Some(completion) = self.rings.completions.pop() {
            is_any = true;
            if let Some(buffer) = self.outcomes.end(completion) {
                drop(self.stock.give(buffer));
            }
        }
        is_any
    }

    /// Nothing has come from the engine: waits as the knobs want it.
    fn idle(&mut self, backoff: &mut Backoff) {
        if self.host.step() {
            return backoff.reset();
        }
        let rings = &self.rings;
        let idle = backoff.idle_by(|at_most| rings.handle_wakeup.sleep(at_most, || rings.has_news()));
        if let Some(waited) = backoff.take_report() {
            rings.wish_report(waited);
        }
        self.host.look_after(idle);
    }

    /// Why the engine is over. Waits for its very end.
    #[cold]
    fn end(&mut self) -> OpError {
        self.host.end()
    }
}

impl<H: EngineHost> Drop for DedicatedWorker<H> {
    fn drop(&mut self) {
        if self.is_forked() {
            return self.forget();
        }
        self.rings.release();
        self.host.stop();
    }
}
