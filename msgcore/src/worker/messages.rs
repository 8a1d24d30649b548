//! The calls of tagged messages: sending, receiving, looking for what has come, taking back.

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::Worker;
use super::report::Awaited;
use crate::backoff::Backoff;
use crate::core::completion::Envelope;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::services::tag::claims::ClaimedMessage;
use crate::services::tag::matching::Pattern;
use crate::services::tag::requests::LIMIT;
use crate::services::tag::send::SendOptions;
use crate::{PeerId, Source, Tag, TagMatch};

impl<L: Link> Worker<L> {
    /// Sends all of `payload` to peer `to`. The buffer returns when the request ends, which for a short message is
    /// at once and for a long one when the receiver has it, or with the refusal. A message to this rank itself that finds
    /// no room among those without a receive ends when it is received: post the receive first.
    ///
    /// Of several short messages those behind the first may leave with the next call that makes progress, or that says that they are over:
    /// see [`Worker::ring_doorbell`].
    #[inline]
    pub fn send(&mut self, to: impl Into<PeerId>, tag: Tag, payload: Buffer) -> Result<Request, Refused<Buffer>> {
        self.send_with(to, tag, payload, SendOptions::default())
    }

    /// Sends a copy of `bytes`.
    pub fn send_bytes(&mut self, to: impl Into<PeerId>, tag: Tag, bytes: &[u8]) -> Result<Request, CallError> {
        let payload = self.endpoint.core.copy_of(bytes)?;
        Ok(self.send(to, tag, payload)?)
    }

    /// Sends in another mode or context.
    #[inline]
    pub fn send_with(
        &mut self,
        to: impl Into<PeerId>,
        tag: Tag,
        payload: Buffer,
        options: SendOptions,
    ) -> Result<Request, Refused<Buffer>> {
        let Some(request) = self.mint() else { return Err(Refused::new(CallError::TooMany(LIMIT), payload)) };
        let begun = self.begin_send(request, (to.into(), tag), payload, options);
        self.note_send(request);
        self.named(request, begun)
    }

    /// Sends a copy of `bytes` (`MPI_Ibsend`). What waits in such copies is bounded by `buffered_limit`. The request may be
    /// waited for, taken back, or left alone with [`Worker::detach`] (`MPI_Bsend`).
    pub fn send_buffered(
        &mut self,
        to: impl Into<PeerId>,
        tag: Tag,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<Request, CallError> {
        self.endpoint.services.tag.check_buffered(bytes.len())?;
        let payload = self.endpoint.core.copy_of(bytes)?;
        let request = self.send_with(to, tag, payload, options.buffered())?;
        self.endpoint.services.tag.requests.note_buffered(request, bytes.len());
        Ok(request)
    }

    /// Sends `bytes` of no more than [`Worker::inject_size`], which are the caller's again when the call returns (`fi_tinject`): they
    /// are in the packet, or in a copy where the message cannot leave at once. There is no operation to wait for; that the peer
    /// is gone is an event alone ([`Worker::poll_event`]). A synchronous mode is not heeded.
    ///
    /// # Errors
    /// The message is too long, or could not be sent.
    #[inline]
    pub fn inject(
        &mut self,
        to: impl Into<PeerId>,
        tag: Tag,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<(), CallError> {
        let (to, options, limit) = (to.into(), options.buffered(), self.inject_size());
        if bytes.len() > limit {
            return Err(CallError::TooLongToInject { len: bytes.len(), limit });
        }
        if self.endpoint.inject(to, options.label(tag), bytes)? {
            Ok(())
        } else {
            self.inject_copy(to, tag, bytes, options)
        }
    }

    /// The same where something waits before it, or there is no room yet.
    #[cold]
    fn inject_copy(&mut self, to: PeerId, tag: Tag, bytes: &[u8], options: SendOptions) -> Result<(), CallError> {
        let request = self.send_buffered(to, tag, bytes, options)?;
        self.detach(request);
        Ok(())
    }

    /// Returns the longest message that may be injected, in bytes.
    #[inline]
    pub fn inject_size(&self) -> usize {
        self.endpoint.services.tag.inject_size(&self.endpoint.core)
    }

    /// Leaves an operation alone, whose outcome will not be asked for (`MPI_Request_free`). It goes on, and its memory returns
    /// to the arena when it ends; that its peer is gone is an event alone ([`Worker::poll_event`]).
    pub fn detach(&mut self, request: Request) {
        if !self.is_forked() {
            self.endpoint.services.tag.requests.detach(request);
        }
    }

    /// As [`Worker::send_with`], under a name that is made elsewhere.
    #[inline]
    pub(crate) fn begin_send(
        &mut self,
        request: Request,
        to: (PeerId, Tag),
        payload: Buffer,
        options: SendOptions,
    ) -> Result<(), Refused<Buffer>> {
        let begun = self.endpoint.send(request, to, payload, options);
        self.carry_mail_if_any();
        begun
    }

    /// Makes a name for a request; `None` where too many are under way.
    #[inline]
    pub(super) fn mint(&mut self) -> Option<Request> {
        self.endpoint.services.tag.requests.mint()
    }

    /// Returns the name of what has begun, or takes it back.
    #[inline]
    pub(super) fn named<T>(&mut self, request: Request, begun: Result<(), Refused<T>>) -> Result<Request, Refused<T>> {
        match begun {
            Ok(()) => Ok(request),
            Err(refused) => {
                self.endpoint.services.tag.requests.release(request);
                Err(refused)
            }
        }
    }

    /// Receives a message into `buffer`. A message that is longer ends the request with an error that says what
    /// it was and has the buffer ([`OpError::Truncated`](crate::OpError::Truncated)).
    #[inline]
    pub fn recv(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: Buffer,
    ) -> Result<Request, Refused<Buffer>> {
        self.recv_with(Pattern::new(source, tag), buffer)
    }

    /// Receives a message of any context into `buffer`.
    #[inline]
    pub fn recv_with(&mut self, pattern: Pattern, buffer: Buffer) -> Result<Request, Refused<Buffer>> {
        let Some(request) = self.mint() else { return Err(Refused::new(CallError::TooMany(LIMIT), buffer)) };
        let begun = self.endpoint.recv(request, pattern, Some(buffer));
        self.named(request, begun).map_err(|Refused { why, given }| {
            let Some(buffer) = given else { unreachable!("a refusal hands back what it was given") };
            Refused::new(why, buffer)
        })
    }

    /// Receives messages into `buffer`, one behind the other, until less than `least` bytes of it are left (libfabric's
    /// `FI_MULTI_RECV` with `FI_OPT_MIN_MULTI_RECV`). It keeps its place in the order of posting: a message that it would take
    /// and that no receive posted before it takes is its. Messages that have come before are taken at once, the first to come
    /// first. A minimum of 0 counts as 1.
    ///
    /// Each message is a [`Completion`](crate::Completion) with `context`, when it has arrived whole: messages may arrive in
    /// another order than they were sent in. Its buffer is the piece of `buffer` that the message lies in, cut off with
    /// [`Buffer::split_off`](crate::Buffer::split_off), so a message uses up its length rounded up to 64 bytes, and an empty one
    /// nothing. One that is longer than what is left ends as truncated, with no buffer, and uses up nothing either.
    ///
    /// The multi-receive ends with a completion of its own, which is no message, behind all of its messages: the only one
    /// that [`is_last`](crate::Completion::is_last). What is left of the buffer is in it. It ends where less than `least` is
    /// left, after 65,536 messages that have used up nothing, when it is cancelled
    /// ([`Done::is_cancelled`](crate::Done::is_cancelled)), and where a receive would fail
    /// ([`OpError::MultiReceive`](crate::OpError::MultiReceive), which has the rest and says why).
    ///
    /// [`Worker::test`] and [`Worker::wait`] by the returned name are for that end alone, which is no completion then; the
    /// messages still are. So they are where the name is detached.
    pub fn recv_multi(
        &mut self,
        pattern: Pattern,
        buffer: Buffer,
        least: usize,
        context: u64,
    ) -> Result<Request, Refused<Buffer>> {
        let Some(request) = self.mint() else { return Err(Refused::new(CallError::TooMany(LIMIT), buffer)) };
        let begun = self.endpoint.recv_multi(request, pattern, (buffer, least), Some(context));
        self.named(request, begun)
    }

    /// Receives a message in memory of the worker's: the vbuf that it came in, where it came in one, so that it is not
    /// copied. The memory is the application's from then on; [`Worker::give_back`] spares the worker making another.
    pub fn recv_in_place(&mut self, pattern: Pattern) -> Result<Request, CallError> {
        let request = self.mint().ok_or(CallError::TooMany(LIMIT))?;
        let begun = self.endpoint.recv(request, pattern, None);
        Ok(self.named(request, begun)?)
    }

    /// Receives a message that was claimed (`MPI_Imrecv`). Where the call is refused the message stays claimed, and comes
    /// back with the buffer.
    pub fn recv_message(
        &mut self,
        message: ClaimedMessage,
        buffer: Buffer,
    ) -> Result<Request, Refused<(ClaimedMessage, Buffer)>> {
        let Some(request) = self.mint() else {
            return Err(Refused::new(CallError::TooMany(LIMIT), (message, buffer)));
        };
        let begun = self.endpoint.recv_message(request, message, buffer);
        self.named(request, begun)
    }

    /// Gives memory back that a receive has handed out, or any other that is not needed any more. The application's own is only dropped.
    pub fn give_back(&mut self, mut buffer: Buffer) {
        if buffer.is_users() {
            return;
        }
        buffer.reset();
        let pools = &mut self.endpoint.core.receives.pools;
        match pools.iter().position(|pool| pool.is_its_own(buffer.capacity())) {
            Some(lane) => {
                pools[lane].adopt();
                self.endpoint.core.give_receive_vbuf(lane, buffer);
                self.endpoint.settle();
            }
            None => drop(buffer),
        }
    }

    /// Whether a message that such a receive would take has come (`MPI_Iprobe`). Where none is there it looks once at what
    /// comes in, as [`Worker::progress`] does, so that who asks again and again will see one.
    pub fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        self.look_twice(|worker| worker.endpoint.peek(&pattern))
    }

    /// Waits until a message that such a receive would take has come (`MPI_Probe`).
    pub fn wait_probe(&mut self, pattern: Pattern) -> Result<Envelope, CallError> {
        self.wait_for(pattern, |worker| worker.endpoint.peek(&pattern))
    }

    /// Claims the message that such a receive would take, if one has come (`MPI_Improbe`). It looks as
    /// [`Worker::probe`] does.
    pub fn claim(&mut self, pattern: Pattern) -> Option<ClaimedMessage> {
        self.look_twice(|worker| worker.endpoint.claim(&pattern))
    }

    /// Discards a message that was claimed: its memory is free again, and its sender's operation ends as if it had been
    /// received. A message that is dropped is discarded too, when the worker next looks around.
    pub fn discard(&mut self, message: ClaimedMessage) {
        self.endpoint.discard(&message);
    }

    /// Waits until a message that such a receive would take has come, and claims it (`MPI_Mprobe`).
    pub fn wait_claim(&mut self, pattern: Pattern) -> Result<ClaimedMessage, CallError> {
        self.wait_for(pattern, |worker| worker.endpoint.claim(&pattern))
    }

    /// Takes an operation back, if it has met nothing yet. The request must still be waited for: it ends with
    /// [`Done::is_cancelled`](crate::Done::is_cancelled) where that was in time, and as if there had been no call where it was
    /// not.
    pub fn cancel(&mut self, request: Request) {
        // In a forked child waiting for it says so.
        if !self.is_forked() {
            self.endpoint.cancel(request);
        }
    }

    /// Before and after what comes in. Nothing does where the worker is the parent's.
    fn look_twice<T>(&mut self, look: impl Fn(&mut Self) -> Option<T>) -> Option<T> {
        look(self).or_else(|| {
            if !self.is_forked() {
                self.progress();
            }
            look(self)
        })
    }

    fn wait_for<T>(&mut self, pattern: Pattern, look: impl Fn(&mut Self) -> Option<T>) -> Result<T, CallError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(found) = self.look_for(pattern, &look)? {
                return Ok(found);
            }
            self.progress_or_idle(&mut backoff, Awaited::Message(&pattern))?;
        }
    }

    /// Looks for a message that a probe waits for.
    ///
    /// # Errors
    /// It can never come.
    pub(crate) fn look_for<T>(
        &mut self,
        pattern: Pattern,
        look: impl Fn(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, CallError> {
        self.endpoint.check_source(&pattern)?;
        if let Some(found) = look(self) {
            return Ok(Some(found));
        }
        if let Some(error) = self.endpoint.cannot_come(pattern.source) {
            return Err(error.into());
        }
        // As a receive that is waited for: it may have been for the rank that has failed, and while it waits here this
        // rank sends itself nothing either.
        if matches!(pattern.source, Source::Any)
            && let Some(error) = self.reason_against_wildcards()
        {
            return Err(error.into());
        }
        Ok(None)
    }
}
