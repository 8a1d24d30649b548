//! Receiving: into a buffer of the application, or lent; and looking before receiving.

use std::sync::atomic::{AtomicU64, Ordering};

use roci_driver::Buffer;
use roci_driver::link::Link;

use crate::backoff::Backoff;
use crate::services::tag::eager::Body;
use crate::services::tag::matching::{Label, Pattern};
use crate::services::tag::refused::Refused;
use crate::services::tag::request::{OpError, Operation, Request};
use crate::services::tag::requests::LIMIT;
use crate::worker::report::Awaited;
use crate::worker::{CallError, Worker};
use crate::{Rank, Source, Tag, TagMatch};

/// The next claim's number. All workers of the process draw from it, so that none takes another's message for its own.
static NEXT_CLAIM: AtomicU64 = AtomicU64::new(0);

/// What a probe says of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Who sent it.
    pub source: Rank,
    /// Its tag.
    pub tag: Tag,
    /// Its length in bytes.
    pub len: usize,
}

/// A message that a probe has claimed: no receive but [`Worker::recv_message`] takes it (`MPI_Message`).
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a message that was claimed must be received"]
pub struct Message {
    claim: u64,
    envelope: Envelope,
}

impl Message {
    /// What it says of itself.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }
}

impl<L: Link> Worker<L> {
    /// Receives a message into `buffer`. A message that is longer ends the request with an error that says what
    /// it was and has the buffer ([`OpError::Truncated`]).
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
        match self.check_receive(&pattern) {
            Ok(()) => Ok(self.post(pattern, Some(buffer))),
            Err(why) => Err(Refused::new(why, buffer)),
        }
    }

    /// Receives a message in memory of the worker's: the vbuf that it came in, where it came in one, so that it is not
    /// copied. The memory is the application's from then on; [`Worker::give_back`] spares the worker making another.
    pub fn recv_lent(&mut self, pattern: Pattern) -> Result<Request, CallError> {
        self.check_receive(&pattern)?;
        Ok(self.post(pattern, None))
    }

    /// Gives memory back that was lent, or any other that is not needed any more. The application's own is only dropped.
    pub fn give_back(&mut self, mut buffer: Buffer) {
        if buffer.is_users() {
            return;
        }
        buffer.reset();
        let fits = |pool: &crate::core::vbuf::Pool| pool.is_its_own(buffer.capacity());
        match self.receive_pools.iter().position(fits) {
            Some(lane) => {
                self.receive_pools[lane].adopt();
                self.give_receive_vbuf(lane, buffer);
            }
            None => drop(buffer),
        }
    }

    /// Whether a message that such a receive would take has come (`MPI_Iprobe`). Where none is there it looks once at what
    /// comes in, as [`Worker::progress`] does, so that who asks again and again will hear of one.
    pub fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        self.look_twice(|worker| worker.peek(&pattern))
    }

    /// Waits until a message that such a receive would take has come (`MPI_Probe`).
    pub fn wait_probe(&mut self, pattern: Pattern) -> Result<Envelope, CallError> {
        self.wait_for(pattern, |worker| worker.peek(&pattern))
    }

    /// Claims the message that such a receive would take, if one has come (`MPI_Improbe`). It looks as
    /// [`Worker::probe`] does.
    pub fn claim(&mut self, pattern: Pattern) -> Option<Message> {
        self.look_twice(|worker| worker.take_claim(&pattern))
    }

    /// Waits until a message that such a receive would take has come, and claims it (`MPI_Mprobe`).
    pub fn wait_claim(&mut self, pattern: Pattern) -> Result<Message, CallError> {
        self.wait_for(pattern, |worker| worker.take_claim(&pattern))
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
        self.check_source(&pattern)?;
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if let Some(error) = self.nobody_sends(pattern.source) {
                return Err(error.into());
            }
            // As a receive that is waited for: it may have been for the rank that has failed, and while it waits here this
            // rank sends itself nothing either.
            if matches!(pattern.source, Source::Any)
                && let Some(error) = self.reason_against_wildcards()
            {
                return Err(error.into());
            }
            self.progress_or_idle(&mut backoff, Awaited::Message(&pattern))?;
        }
    }

    fn peek(&self, pattern: &Pattern) -> Option<Envelope> {
        self.matching.peek_unexpected(pattern).map(|(label, body)| envelope(&label, body))
    }

    fn take_claim(&mut self, pattern: &Pattern) -> Option<Message> {
        let (label, body) = self.matching.take_unexpected(pattern)?;
        let envelope = envelope(&label, &body);
        // Somebody has met it: from here on it cannot be taken back.
        self.note_match(&label, &body);
        let claim = NEXT_CLAIM.fetch_add(1, Ordering::Relaxed);
        self.claimed.insert(claim, (label, body));
        self.release_withheld();
        Some(Message { claim, envelope })
    }

    /// Receives a message that was claimed (`MPI_Imrecv`). Where the call is refused the message stays claimed, and comes
    /// back with the buffer.
    pub fn recv_message(&mut self, message: Message, buffer: Buffer) -> Result<Request, Refused<(Message, Buffer)>> {
        if self.requests.is_full() {
            return Err(Refused::new(CallError::TooMany(LIMIT), (message, buffer)));
        }
        if self.is_forked() {
            return Err(Refused::new(CallError::Forked, (message, buffer)));
        }
        let Some((label, body)) = self.claimed.remove(&message.claim) else {
            return Err(Refused::new(CallError::NoMessage, (message, buffer)));
        };
        let waiting = Operation::Waiting { buffer: Some(buffer), posted: None };
        let Some(request) = self.requests.open(waiting) else { unreachable!("there is room") };
        match self.loss_of(label.source, &body) {
            Some(error) => drop(self.requests.end(request, Err(error))),
            None => self.deliver_kept(request, label, body),
        }
        self.release_withheld();
        Ok(request)
    }

    /// Whether such a receive can be posted.
    #[inline]
    fn check_receive(&self, pattern: &Pattern) -> Result<(), CallError> {
        self.check_source(pattern)?;
        if self.requests.is_full() {
            return Err(CallError::TooMany(LIMIT));
        }
        Ok(())
    }

    #[inline]
    fn check_source(&self, pattern: &Pattern) -> Result<(), CallError> {
        if let Source::Rank(rank) = pattern.source
            && rank >= self.size
        {
            return Err(CallError::NoRank { rank, size: self.size });
        }
        if self.is_forked() {
            return Err(CallError::Forked);
        }
        Ok(())
    }

    /// The receive was looked at by [`Self::check_receive`].
    #[inline]
    fn post(&mut self, pattern: Pattern, buffer: Option<Buffer>) -> Request {
        let waiting = Operation::Waiting { buffer, posted: None };
        let Some(request) = self.requests.open(waiting) else { unreachable!("there is room") };
        if let Some((label, body)) = self.matching.take_unexpected(&pattern) {
            self.note_match(&label, &body);
            self.deliver_kept(request, label, body);
            self.release_withheld();
        } else if let Some(error) = self.nobody_sends(pattern.source) {
            self.requests.end(request, Err(error));
        } else {
            let handle = self.matching.post(pattern, request);
            if let Some(Operation::Waiting { posted, .. }) = self.requests.get_mut(request) {
                *posted = Some(handle);
            }
        }
        request
    }

    /// A message that waited has been met.
    fn note_match(&mut self, label: &Label, body: &Body) {
        if let Body::Whole { id, mode, .. } | Body::Series { id, mode, .. } = body {
            self.acknowledge_match(label.source, *id, *mode);
            self.advance(label.source);
        }
    }

    /// Gives a message that waited to its receive.
    fn deliver_kept(&mut self, request: Request, label: Label, body: Body) {
        let (source, wire) = (label.source, label.wire());
        match body {
            Body::Whole { lane, vbuf, .. } => {
                if let Some(vbuf) = self.deliver(request, source, wire, lane, vbuf) {
                    self.give_receive_vbuf(lane, vbuf);
                }
            }
            Body::Series { id, .. } => self.deliver_series(request, source, wire, id),
            Body::Local { request: send, copy, .. } => self.deliver_local(request, wire, send, copy),
            Body::Remote(remote) => self.meet(request, source, wire, remote),
        }
    }

    /// Why a receive from `source` can never be met.
    fn nobody_sends(&self, source: Source) -> Option<OpError> {
        match source {
            Source::Rank(rank) => self.endpoints[rank].as_ref().and_then(|endpoint| endpoint.failure.clone()),
            // This rank itself, if nobody else: as in a job of one.
            Source::Any => None,
        }
    }
}

fn envelope(label: &Label, body: &Body) -> Envelope {
    Envelope { source: label.source, tag: label.tag, len: body.len() }
}
