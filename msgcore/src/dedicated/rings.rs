//! What goes between the application's side and the engine's: four bounded rings, two flags and two wakeups.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roci_driver::{AdoptError, Buffer, EngineStats, RegistrationStats, UserMemory};

use super::facts::WorkerFacts;
use super::one_sided_calls::{OneSidedAnswer, OneSidedQuestion};
use super::stream_calls::{StreamAnswer, StreamCall};
use super::wakeup::Wakeup;
use crate::backoff::BackoffLimits;
use crate::core::refused::CallError;
use crate::core::segment::AwaitedNumber;
use crate::services::am::Active;
use crate::services::rma::operation::OneSidedCall;
use crate::services::tag::matching::Pattern;
use crate::sync::{ArrayQueue, AtomicBool, EventFd};
use crate::worker::Dropped;
use crate::worker::domain::DomainError;
use crate::{
    ClaimedMessage, CloseError, Done, EndpointAddress, Envelope, ExchangeError, FlushError, InsertError, OpError,
    PeerId, Request, SendOptions, Tag, WorkerEvent, WorkerStats,
};

/// Commands that may wait for the engine; a call that finds no room waits.
pub(super) const COMMANDS: usize = 1024;
/// Ends that may wait for the application; more stay at the engine.
pub(super) const COMPLETIONS: usize = 1024;
/// Events that may wait for the application; more stay at the worker.
const EVENTS: usize = 64;

/// What the engine is to do.
pub(super) enum Command {
    /// Send.
    Send { request: Request, to: PeerId, tag: Tag, payload: Buffer, options: SendOptions },
    /// Receive, into a buffer or in place.
    Recv { request: Request, pattern: Pattern, buffer: Option<Buffer> },
    /// Receive messages, one behind the other.
    RecvMulti(Box<RecvMulti>),
    /// Receive what a probe has claimed.
    RecvMessage { request: Request, message: ClaimedMessage, buffer: Buffer },
    /// Take an operation back; `left` is the end of an eager send that was reported before.
    Cancel { request: Request, left: Option<Done> },
    /// Discard what a probe has claimed.
    Discard(ClaimedMessage),
    /// Act on a peer's memory.
    OneSided { request: Request, to: PeerId, call: OneSidedCall },
    /// Have a peer run a handler that replies.
    RequestActive { request: Request, to: PeerId, active: Box<Active>, payload: Buffer },
    /// Take memory back.
    GiveBack(Buffer),
    /// Answer.
    Ask(Question),
    /// Answer what was given up, and end.
    End(LastWish),
}

/// What a multi-receive is made of. Beside the others it would make them all longer.
pub(super) struct RecvMulti {
    pub(super) request: Request,
    pub(super) pattern: Pattern,
    pub(super) buffer: Buffer,
    pub(super) least: usize,
}

/// How a worker is to end.
#[derive(Clone, Copy)]
pub(super) enum LastWish {
    /// When everything has arrived, everywhere.
    Close,
    /// At once.
    Abort,
}

/// A question of the application's, which waits for the answer. One at a time.
pub(super) enum Question {
    Probe(Pattern),
    Claim(Pattern),
    WaitProbe(Pattern),
    WaitClaim(Pattern),
    WaitChange(AwaitedNumber),
    Adopt(UserMemory),
    RegistrationStats,
    Connect(PeerId),
    Insert(EndpointAddress),
    Remove(PeerId),
    AddressOf(PeerId),
    NextExchange,
    DeliverExchange(String),
    IsConnected(PeerId),
    Stats,
    EngineStats,
    InjectedFaults,
    Barrier,
    Flush((Option<PeerId>, Duration)),
    Stream(StreamCall),
    OneSided(OneSidedQuestion),
    OpenEndpoint(EndpointRequest),
    /// Makes the engine's thread panic.
    #[cfg(test)]
    Panic,
}

/// Another endpoint on the same thread is wanted, with a handle of its own.
pub(super) struct EndpointRequest {
    /// What the handle sleeps on.
    pub(super) wait_fd: Arc<EventFd>,
    /// How it waits.
    pub(super) limits: BackoffLimits,
}

/// The engine's answer.
pub(super) enum Answer {
    Probe(Option<Envelope>),
    Claim(Option<ClaimedMessage>),
    WaitProbe(Result<Envelope, CallError>),
    WaitClaim(Result<ClaimedMessage, CallError>),
    WaitChange(Result<u64, CallError>),
    Adopt(Result<Buffer, AdoptError>),
    RegistrationStats(Box<RegistrationStats>),
    Connect(Result<(), CallError>),
    Insert(Result<PeerId, InsertError>),
    Remove(Result<(), CallError>),
    AddressOf(Option<EndpointAddress>),
    NextExchange(Option<(EndpointAddress, String)>),
    DeliverExchange(Result<(), ExchangeError>),
    IsConnected(bool),
    Stats(Box<WorkerStats>),
    EngineStats(Box<EngineStats>),
    InjectedFaults(u64),
    Barrier(Result<(), OpError>),
    Flush(Result<(), FlushError>),
    Stream(StreamAnswer),
    OneSided(OneSidedAnswer),
    OpenEndpoint(Result<Box<(WorkerFacts, Arc<Rings>)>, DomainError>),
    Close(Result<Dropped, CloseError>),
    Abort(Dropped),
}

/// An operation that has ended.
pub(super) struct OperationEnd {
    pub(super) request: Request,
    pub(super) outcome: Result<Done, OpError>,
    /// Of an eager send: it has left, and can still be taken back.
    pub(super) has_left: bool,
    /// It is a message that this multi-receive has taken, which goes on.
    pub(super) is_part: bool,
}

/// The rings. Each has one producer and one consumer, and no lock.
pub(super) struct Rings {
    pub(super) commands: ArrayQueue<Command>,
    pub(super) completions: ArrayQueue<OperationEnd>,
    pub(super) answers: ArrayQueue<Answer>,
    pub(super) events: ArrayQueue<WorkerEvent>,
    /// The thread's, for whichever of its handles.
    pub(super) engine_wakeup: Arc<Wakeup>,
    pub(super) handle_wakeup: Wakeup,
    /// The application has let the engine go.
    is_released: AtomicBool,
    /// The engine's thread is at its end.
    is_over: AtomicBool,
    /// The application has waited for so many seconds, and wants to know for what; 0 where it does not.
    report_wish: AtomicU64,
    /// Events that the engine has ever put into their ring.
    events_reported: AtomicU64,
}

impl Rings {
    pub(super) fn new() -> Self {
        Self {
            commands: ArrayQueue::new(COMMANDS),
            completions: ArrayQueue::new(COMPLETIONS),
            answers: ArrayQueue::new(1),
            events: ArrayQueue::new(EVENTS),
            engine_wakeup: Arc::default(),
            handle_wakeup: Wakeup::default(),
            is_released: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            report_wish: AtomicU64::new(0),
            events_reported: AtomicU64::new(0),
        }
    }

    /// Rings whose application's side may sleep on a descriptor.
    pub(super) fn with_wait_fd(wait_fd: Arc<EventFd>) -> Self {
        Self { handle_wakeup: Wakeup::with_wait_fd(wait_fd), ..Self::new() }
    }

    /// Rings to the same thread as others.
    pub(super) fn beside(others: &Self, wait_fd: Arc<EventFd>) -> Self {
        Self { engine_wakeup: others.engine_wakeup.clone(), ..Self::with_wait_fd(wait_fd) }
    }

    /// Leaves a command for the engine, which is woken if it sleeps; returns it where there is no room.
    #[inline]
    pub(super) fn post(&self, command: Command) -> Result<(), Command> {
        self.commands.push(command)?;
        self.engine_wakeup.wake();
        Ok(())
    }

    /// The application has waited for so long: the engine is to say what it knows.
    pub(super) fn wish_report(&self, waited: Duration) {
        self.report_wish.store(waited.as_secs(), Ordering::Relaxed);
        self.engine_wakeup.wake();
    }

    /// How long the application had waited when it last wanted to know for what.
    pub(super) fn take_report_wish(&self) -> Option<u64> {
        if self.report_wish.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.report_wish.swap(0, Ordering::Relaxed)).filter(|&seconds| seconds > 0)
    }

    /// The engine has put an event into its ring.
    pub(super) fn note_event(&self) {
        self.events_reported.fetch_add(1, Ordering::Release);
        self.handle_wakeup.wake_armed();
    }

    /// Returns how many events the engine has ever reported.
    pub(super) fn events_reported(&self) -> u64 {
        self.events_reported.load(Ordering::Acquire)
    }

    /// The application is done with the engine, whatever is under way.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        self.engine_wakeup.wake();
    }

    #[inline]
    pub(super) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// The engine's thread leaves nothing in the rings any more.
    pub(super) fn finish(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.handle_wakeup.wake();
    }

    /// Whether the engine's thread is at its end. What it left before can be seen then.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether the engine has something to do for the application.
    pub(super) fn has_orders(&self) -> bool {
        !self.commands.is_empty() || self.is_released.load(Ordering::SeqCst)
    }

    /// Whether the application has something to hear.
    pub(super) fn has_news(&self) -> bool {
        !self.completions.is_empty() || !self.answers.is_empty() || self.is_over.load(Ordering::SeqCst)
    }
}
