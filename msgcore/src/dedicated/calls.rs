//! The calls of the messaging core, at the application's side. Each leaves a command and returns.

use std::mem;

use roci_driver::Buffer;

use super::facts::LIMIT;
use super::outcomes::TakeBack;
use super::rings::Command;
use super::{DedicatedWorker, EngineHost};
use crate::backoff::Backoff;
use crate::core::completion::Completion;
use crate::core::refused::CallError;
use crate::core::refused::Refused;
use crate::core::request::first_over;
use crate::endpoint::buffer_checks::{check_payload, check_room};
use crate::services::tag::matching::Pattern;
use crate::{
    ClaimedMessage, Done, OpError, PeerId, Request, SendOptions, SomeFailed, Source, Tag, TagMatch, WorkerEvent,
};

pub(super) const UNCHANGED: &str = "a command that is refused comes back as it was";

impl<H: EngineHost> DedicatedWorker<H> {
    /// Sends all of `payload` to peer `to`, as [`Worker::send`](crate::Worker::send) does. What only the engine finds
    /// out, such as that the peer is gone, is the outcome of the request.
    pub fn send(&mut self, to: impl Into<PeerId>, tag: Tag, payload: Buffer) -> Result<Request, Refused<Buffer>> {
        self.send_with(to, tag, payload, SendOptions::default())
    }

    /// Sends a copy of `bytes`.
    pub fn send_bytes(&mut self, to: impl Into<PeerId>, tag: Tag, bytes: &[u8]) -> Result<Request, CallError> {
        let payload = self.copy_of(bytes)?;
        Ok(self.send(to, tag, payload)?)
    }

    /// Sends in another mode or context.
    pub fn send_with(
        &mut self,
        to: impl Into<PeerId>,
        tag: Tag,
        payload: Buffer,
        options: SendOptions,
    ) -> Result<Request, Refused<Buffer>> {
        let to = to.into();
        let request = match self.check_peer(to).and_then(|()| check_payload(&payload)).and_then(|()| self.mint()) {
            Ok(request) => request,
            Err(why) => return Err(Refused::new(why, payload)),
        };
        self.begin(request, Command::Send { request, to, tag, payload, options }).map_err(
            |(why, command)| match command {
                Command::Send { payload, .. } => Refused::new(why, payload),
                _ => unreachable!("{UNCHANGED}"),
            },
        )
    }

    /// Sends a copy of `bytes` (`MPI_Ibsend`), as [`Worker::send_buffered`](crate::Worker::send_buffered) does.
    pub fn send_buffered(
        &mut self,
        to: impl Into<PeerId>,
        tag: Tag,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<Request, CallError> {
        self.check_process()?;
        self.drain();
        let (asked, held) = (bytes.len(), self.outcomes.buffered_bytes());
        if held + asked > self.buffered_limit {
            return Err(CallError::BufferFull { asked, held });
        }
        let payload = self.copy_of(bytes)?;
        let request = self.send_with(to, tag, payload, options.buffered())?;
        // It cannot have ended: completions were last taken before it went into the ring.
        self.outcomes.note_buffered(request, asked);
        Ok(request)
    }

    /// Sends `bytes`, which are the caller's again when the call returns, as [`Worker::inject`](crate::Worker::inject) does. The
    /// engine is given a copy, and finds out later whether there is such a peer: a message to one that was removed ends unseen, as that
    /// of an operation that was left alone does.
    ///
    /// # Errors
    /// The message is too long, or could not be sent.
    pub fn inject(
        &mut self,
        to: impl Into<PeerId>,
        tag: Tag,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<(), CallError> {
        let limit = self.inject_size();
        if bytes.len() > limit {
            return Err(CallError::TooLongToInject { len: bytes.len(), limit });
        }
        let request = self.send_buffered(to, tag, bytes, options)?;
        self.detach(request);
        Ok(())
    }

    /// Returns the longest message that may be injected, in bytes.
    pub fn inject_size(&self) -> usize {
        self.constants.inject_size
    }

    /// Leaves an operation alone, as [`Worker::detach`](crate::Worker::detach) does.
    pub fn detach(&mut self, request: Request) {
        if self.is_forked() {
            return;
        }
        if let Some(buffer) = self.outcomes.detach(request) {
            self.give_back(buffer);
        }
    }

    /// Receives a message into `buffer`, as [`Worker::recv`](crate::Worker::recv) does.
    pub fn recv(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: Buffer,
    ) -> Result<Request, Refused<Buffer>> {
        self.recv_with(Pattern::new(source, tag), buffer)
    }

    /// Receives a message of any context into `buffer`.
    pub fn recv_with(&mut self, pattern: Pattern, buffer: Buffer) -> Result<Request, Refused<Buffer>> {
        self.begin_recv(pattern, Some(buffer)).map_err(|Refused { why, given }| match given {
            Some(buffer) => Refused::new(why, buffer),
            None => unreachable!("{UNCHANGED}"),
        })
    }

    /// Receives a message in memory of the worker's, as [`Worker::recv_in_place`](crate::Worker::recv_in_place) does.
    pub fn recv_in_place(&mut self, pattern: Pattern) -> Result<Request, CallError> {
        Ok(self.begin_recv(pattern, None)?)
    }

    /// Receives a message that was claimed (`MPI_Imrecv`). Where the call is refused the message stays claimed, and comes
    /// back with the buffer.
    pub fn recv_message(
        &mut self,
        message: ClaimedMessage,
        buffer: Buffer,
    ) -> Result<Request, Refused<(ClaimedMessage, Buffer)>> {
        let request = match check_room(Some(&buffer)).and_then(|()| self.mint()) {
            Ok(request) => request,
            Err(why) => return Err(Refused::new(why, (message, buffer))),
        };
        if !self.claims.is_of(&message) {
            self.outcomes.forget(request);
            return Err(Refused::new(CallError::NoMessage, (message, buffer)));
        }
        self.begin(request, Command::RecvMessage { request, message, buffer }).map_err(|(why, command)| match command {
            Command::RecvMessage { message, buffer, .. } => Refused::new(why, (message, buffer)),
            _ => unreachable!("{UNCHANGED}"),
        })
    }

    /// Discards a message that was claimed, as [`Worker::discard`](crate::Worker::discard) does.
    pub fn discard(&mut self, message: ClaimedMessage) {
        if !self.is_forked() {
            // Where the engine is gone, so is the message.
            drop(self.post(Command::Discard(message)));
        }
    }

    /// Gives memory back that a receive has handed out, or any other that is not needed any more: what the payload of a short
    /// [`DedicatedWorker::send_bytes`] came in is used again for the next one.
    pub fn give_back(&mut self, buffer: Buffer) {
        if self.is_forked() {
            return mem::forget(buffer);
        }
        if let Err(other) = self.stock.give(buffer) {
            // Where the engine is gone it returns to the arena.
            drop(self.post(Command::GiveBack(other)));
        }
    }

    /// Takes an operation back, if it has met nothing yet, as [`Worker::cancel`](crate::Worker::cancel) does. It must
    /// still be waited for.
    pub fn cancel(&mut self, request: Request) {
        if self.is_forked() {
            // Waiting for it says so.
            return;
        }
        self.drain();
        match self.outcomes.take_back(request) {
            TakeBack::Late => {}
            TakeBack::Ask => self.post_cancel(request, None),
            TakeBack::AskAgain(done) => self.post_cancel(request, Some(done)),
        }
        self.ask_again();
    }

    /// Asks for eager sends that had left when they were to be taken back.
    #[inline]
    pub(super) fn ask_again(&mut self) {
        while let Some((request, done)) = self.outcomes.next_again() {
            self.post_cancel(request, Some(done));
        }
    }

    /// Where the engine is gone an operation that has not ended says so when it is waited for, and one that has keeps its end.
    fn post_cancel(&mut self, request: Request, left: Option<Done>) {
        if let Err(Command::Cancel { left: Some(done), .. }) = self.post(Command::Cancel { request, left }) {
            self.outcomes.restore(request, done);
        }
    }

    /// The outcome of an operation that is over, or `None` while it is not.
    #[inline]
    pub fn test(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        if self.is_forked() {
            return Some(Err(OpError::Forked));
        }
        self.drain();
        self.ask_again();
        let outcome = self.outcomes.take(request);
        if outcome.is_some() || !self.rings.is_over() {
            return outcome;
        }
        // What it did before its end was done.
        self.drain();
        self.outcomes.take(request).or_else(|| {
            self.outcomes.forget(request);
            Some(Err(self.end()))
        })
    }

    /// Waits until an operation is over.
    pub fn wait(&mut self, request: Request) -> Result<Done, OpError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(outcome) = self.test(request) {
                return outcome;
            }
            self.idle(&mut backoff);
        }
    }

    /// Waits until all operations are over. Where some have failed the error has the ends of all.
    pub fn wait_all(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Done>, SomeFailed> {
        SomeFailed::unless_all_are_good(requests.into_iter().map(|request| self.wait(request)).collect())
    }

    /// Waits until one of these operations is over, as [`Worker::wait_any`](crate::Worker::wait_any) does.
    ///
    /// # Errors
    /// There is none.
    pub fn wait_any(&mut self, requests: &[Request]) -> Result<(usize, Result<Done, OpError>), OpError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(over) = first_over(requests, |request| self.test(request))? {
                return Ok(over);
            }
            self.idle(&mut backoff);
        }
    }

    /// Has the outcome of an operation go into the completion queue, as
    /// [`Worker::queue_completion`](crate::Worker::queue_completion) does.
    ///
    /// # Errors
    /// There is no such operation.
    pub fn queue_completion(&mut self, request: Request, context: u64) -> Result<(), OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        self.drain();
        if self.outcomes.queue_completion(request, context) { Ok(()) } else { Err(OpError::NoRequest) }
    }

    /// Returns the next completion; takes what the engine has reported where there is none. A stepped engine takes its turn.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if self.is_forked() {
            return None;
        }
        self.outcomes.next_completion().or_else(|| {
            self.progress();
            self.next_completion()
        })
    }

    /// Waits for a completion, as [`Worker::wait_completion`](crate::Worker::wait_completion) does.
    ///
    /// # Errors
    /// No operation is under way whose outcome would be one.
    pub fn wait_completion(&mut self) -> Result<Completion, OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        let mut backoff = Backoff::new(self.limits);
        loop {
            self.drain();
            self.ask_again();
            if let Some(completion) = self.next_completion() {
                return Ok(completion);
            }
            if self.outcomes.completions_open() == 0 {
                return Err(OpError::NoRequest);
            }
            self.idle(&mut backoff);
        }
    }

    /// Where the engine is gone, what it has not reported ends as that says.
    fn next_completion(&mut self) -> Option<Completion> {
        let is_over = self.rings.is_over();
        if is_over {
            // What it did before its end was done.
            self.drain();
        }
        let next = self.outcomes.next_completion();
        if next.is_some() || !is_over || self.outcomes.completions_open() == 0 {
            return next;
        }
        let error = self.end();
        self.outcomes.end_queued(&error);
        self.outcomes.next_completion()
    }

    /// What has happened to the worker as a whole. What had happened before a fork is the parent's to see.
    pub fn poll_event(&mut self) -> Option<WorkerEvent> {
        if self.is_forked() {
            return None;
        }
        self.rings.events.pop()
    }

    fn begin_recv(&mut self, pattern: Pattern, buffer: Option<Buffer>) -> Result<Request, Refused<Option<Buffer>>> {
        let can_be = self.check_source(&pattern).and_then(|()| check_room(buffer.as_ref()));
        let request = match can_be.and_then(|()| self.mint()) {
            Ok(request) => request,
            Err(why) => return Err(Refused::new(why, buffer)),
        };
        self.begin(request, Command::Recv { request, pattern, buffer }).map_err(|(why, command)| match command {
            Command::Recv { buffer, .. } => Refused::new(why, buffer),
            _ => unreachable!("{UNCHANGED}"),
        })
    }

    pub(super) fn mint(&mut self) -> Result<Request, CallError> {
        self.check_process()?;
        self.outcomes.open().ok_or(CallError::TooMany(LIMIT))
    }

    /// Gives a command with a request to the engine; where it is gone the command comes back.
    #[expect(clippy::result_large_err, reason = "the command moves once more where the engine is gone, which is rare")]
    pub(super) fn begin(&mut self, request: Request, command: Command) -> Result<Request, (OpError, Command)> {
        match self.post(command) {
            Ok(()) => Ok(request),
            Err(command) => {
                self.outcomes.forget(request);
                Err((self.end(), command))
            }
        }
    }

    /// The engine is the parent's in a forked child.
    #[inline]
    fn check_process(&self) -> Result<(), CallError> {
        if self.is_forked() { Err(CallError::Forked) } else { Ok(()) }
    }

    pub(super) fn check_source(&self, pattern: &Pattern) -> Result<(), CallError> {
        match pattern.source {
            Source::Peer(peer) => self.check_peer(peer),
            Source::Any => Ok(()),
        }
    }

    /// Whether there may be such a peer: of others than ranks only the engine knows.
    pub(super) fn check_peer(&self, peer: PeerId) -> Result<(), CallError> {
        match peer.rank() {
            Some(rank) if rank >= self.constants.size => Err(CallError::NoRank { rank, size: self.constants.size }),
            _ => Ok(()),
        }
    }

    /// A copy in memory that messages may be sent from.
    pub(super) fn copy_of(&mut self, bytes: &[u8]) -> Result<Buffer, CallError> {
        self.check_process()?;
        let mut copy = self.stock.take(&self.arena, bytes.len(), self.outcomes.under_way())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }
}
