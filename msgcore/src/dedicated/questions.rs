//! Calls that the engine answers: the application waits for the answer, and nothing else is under way meanwhile.

use std::time::Duration;

use roci_driver::{Buffer, EngineStats, RegistrationStats, UserMemory};

use super::rings::{Answer, Command, LastWish, Question};
use super::{DedicatedWorker, EngineHost};
use crate::backoff::Backoff;
use crate::core::refused::CallError;
use crate::services::tag::matching::Pattern;
use crate::worker::Dropped;
use crate::{ClaimedMessage, CloseError, Envelope, FlushError, OpError, PeerId, WorkerStats};

const OTHER_ANSWER: &str = "one question at a time, and its own answer";

/// Asks, and takes the answer of that kind.
macro_rules! ask {
    ($worker:expr, $kind:ident $(($what:expr))?) => {
        match $worker.ask(Command::Ask(Question::$kind $(($what))?)) {
            Ok(Answer::$kind(answer)) => Ok(answer),
            Ok(_) => unreachable!("one question at a time, and its own answer"),
            Err(error) => Err(error),
        }
    };
}

pub(super) use ask;

/// Why a call was not accepted whose question found no engine.
pub(super) fn refused(error: OpError) -> CallError {
    match error {
        OpError::Forked => CallError::Forked,
        other => other.into(),
    }
}

impl<H: EngineHost> DedicatedWorker<H> {
    /// Whether a message that such a receive would take has come.
    pub fn probe(&mut self, pattern: Pattern) -> Result<Option<Envelope>, OpError> {
        ask!(self, Probe(pattern))
    }

    /// Claims the message that such a receive would take, if one has come (`MPI_Improbe`).
    pub fn claim(&mut self, pattern: Pattern) -> Result<Option<ClaimedMessage>, OpError> {
        ask!(self, Claim(pattern))
    }

    /// Waits until a message that such a receive would take has come, as
    /// [`Worker::wait_probe`](crate::Worker::wait_probe) does.
    pub fn wait_probe(&mut self, pattern: Pattern) -> Result<Envelope, CallError> {
        ask!(self, WaitProbe(pattern)).map_err(refused)?
    }

    /// Waits until a message that such a receive would take has come, and claims it (`MPI_Mprobe`).
    pub fn wait_claim(&mut self, pattern: Pattern) -> Result<ClaimedMessage, CallError> {
        ask!(self, WaitClaim(pattern)).map_err(refused)?
    }

    /// Makes a buffer of the application's own memory, as [`Worker::adopt`](crate::Worker::adopt) does. The engine's
    /// thread registers it, for which this waits: what is sent again and again is better kept as a buffer.
    pub fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, CallError> {
        ask!(self, Adopt(memory)).map_err(refused)?.map_err(CallError::from)
    }

    /// The counters of the application's memory.
    pub fn registration_stats(&mut self) -> Result<RegistrationStats, OpError> {
        ask!(self, RegistrationStats).map(|stats| *stats)
    }

    /// Begins to connect to a peer, as [`Worker::connect`](crate::Worker::connect) does.
    pub fn connect(&mut self, peer: impl Into<PeerId>) -> Result<(), CallError> {
        let peer = peer.into();
        self.check_peer(peer)?;
        ask!(self, Connect(peer)).map_err(refused)?
    }

    /// Whether messages to a peer leave at once.
    pub fn is_connected(&mut self, peer: impl Into<PeerId>) -> Result<bool, OpError> {
        ask!(self, IsConnected(peer.into()))
    }

    /// The worker's counters.
    pub fn stats(&mut self) -> Result<WorkerStats, OpError> {
        ask!(self, Stats).map(|stats| *stats)
    }

    /// The engine's counters.
    pub fn engine_stats(&mut self) -> Result<EngineStats, OpError> {
        ask!(self, EngineStats).map(|stats| *stats)
    }

    /// Returns how many faults were injected on all ports.
    pub fn injected_faults(&mut self) -> Result<u64, OpError> {
        ask!(self, InjectedFaults)
    }

    /// Waits until every rank has called this. Messages sent before may still be under way.
    pub fn barrier(&mut self) -> Result<(), OpError> {
        ask!(self, Barrier)?
    }

    /// Waits until all that was sent to a rank, or to all, is in its memory, as [`Worker::flush`](crate::Worker::flush) does.
    pub fn flush(&mut self, to: Option<PeerId>, timeout: Duration) -> Result<(), FlushError> {
        ask!(self, Flush((to, timeout))).map_err(refused)?
    }

    /// Waits until every rank closes, and ends the worker and its thread, as [`Worker::close`](crate::Worker::close)
    /// does. Says what it gave up: what was not received.
    pub fn close(mut self) -> Result<Dropped, CloseError> {
        match self.ask(Command::End(LastWish::Close))? {
            Answer::Close(closed) => closed,
            _ => unreachable!("{OTHER_ANSWER}"),
        }
    }

    /// Ends the worker and its thread without waiting for any rank. Says what it gave up.
    pub fn abort(mut self) -> Result<Dropped, OpError> {
        match self.ask(Command::End(LastWish::Abort))? {
            Answer::Abort(dropped) => Ok(dropped),
            _ => unreachable!("{OTHER_ANSWER}"),
        }
    }

    /// Makes the engine's thread panic; there is no answer.
    #[cfg(test)]
    pub(super) fn provoke_panic(&mut self) -> OpError {
        self.ask(Command::Ask(Question::Panic)).err().expect("a panic answers nothing")
    }

    pub(super) fn ask(&mut self, command: Command) -> Result<Answer, OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        if self.post(command).is_err() {
            return Err(self.end());
        }
        let mut backoff = Backoff::new(self.limits);
        loop {
            let is_over = self.rings.is_over();
            if let Some(answer) = self.rings.answers.pop() {
                return Ok(answer);
            }
            if is_over {
                return Err(self.end());
            }
            let happened = self.drain();
            self.ask_again();
            if !happened {
                self.idle(&mut backoff);
            }
        }
    }
}
