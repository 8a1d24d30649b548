//! Sending: the four modes of MPI, and messages to oneself.

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{Label, Mode};

use super::matching;
use crate::core::peer::{OUTGOING_LIMIT, Outgoing};
use crate::services::tag::eager::Body;
use crate::services::tag::refused::Refused;
use crate::services::tag::request::{Done, OpError, Operation, Request};
use crate::services::tag::requests::LIMIT;
use crate::services::tag::select::{Protocol, Reason};
use crate::worker::{CallError, MAX_MESSAGE, Worker};
use crate::{Context, Rank, Tag};

/// How to send, where it is not the usual way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    context: Context,
    mode: Mode,
}

impl SendOptions {
    /// Within another context than the default one.
    #[must_use]
    pub fn within(self, context: Context) -> Self {
        Self { context, ..self }
    }

    /// The request ends when a receive has met the message (`MPI_Ssend`).
    #[must_use]
    pub fn synchronous(self) -> Self {
        Self { mode: Mode::Synchronous, ..self }
    }

    /// The receive is posted already (`MPI_Rsend`). Where it is not, the message waits like any other, and the receiver
    /// counts it.
    #[must_use]
    pub fn ready(self) -> Self {
        Self { mode: Mode::Ready, ..self }
    }

    /// A buffered send has the standard mode, whatever was asked for.
    pub(crate) fn buffered(self) -> Self {
        Self { mode: Mode::Standard, ..self }
    }
}

impl<L: Link> Worker<L> {
    /// Sends all of `payload` to rank `to`. The buffer returns when the request ends, which for a short message is
    /// at once and for a long one when the receiver has it, or with the refusal.
    #[inline]
    pub fn send(&mut self, to: Rank, tag: Tag, payload: Buffer) -> Result<Request, Refused<Buffer>> {
        self.send_with(to, tag, payload, SendOptions::default())
    }

    /// Sends a copy of `bytes`.
    pub fn send_bytes(&mut self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<Request, CallError> {
        let payload = self.copy_of(bytes)?;
        Ok(self.send(to, tag, payload)?)
    }

    /// Sends in another mode or context.
    pub fn send_with(
        &mut self,
        to: Rank,
        tag: Tag,
        payload: Buffer,
        options: SendOptions,
    ) -> Result<Request, Refused<Buffer>> {
        let SendOptions { context, mode } = options;
        let label = Label { context: context.get(), tag: tag.get() };
        if payload.len() > MAX_MESSAGE {
            return Err(Refused::new(CallError::TooLong(payload.len()), payload));
        }
        if to == self.rank {
            return self.send_to_self(label, mode, payload);
        }
        let endpoint = match self.endpoint_or_error(to) {
            Ok(endpoint) => endpoint,
            Err(why) => return Err(Refused::new(why, payload)),
        };
        if endpoint.outgoing.len() >= OUTGOING_LIMIT {
            return Err(Refused::new(CallError::TooMany(OUTGOING_LIMIT), payload));
        }
        let is_open = endpoint.is_open();
        let short_way = endpoint.short_way(payload.len());
        let Some(request) = self.requests.open(Operation::Queued { to }) else {
            return Err(Refused::new(CallError::TooMany(LIMIT), payload));
        };
        let outgoing = Outgoing { request, label, mode, payload };
        match short_way {
            Some(lane) if outgoing.payload.len() <= self.rules.eager && self.send_pools[lane].has_one() => {
                self.stats.chose(Protocol::Eager, Reason::Short);
                self.send_eager(to, lane, outgoing);
            }
            _ => self.enqueue(to, outgoing),
        }
        if !is_open {
            self.ensure_connecting(to);
        }
        Ok(request)
    }

    /// Sends a copy of `bytes`, which nobody needs to wait for (`MPI_Bsend`). What waits in such copies is bounded by
    /// `buffered_limit`.
    pub fn send_buffered(&mut self, to: Rank, tag: Tag, bytes: &[u8], options: SendOptions) -> Result<(), CallError> {
        let (asked, held) = (bytes.len(), self.requests.detached_bytes());
        if held + asked > self.buffered_limit {
            return Err(CallError::BufferFull { asked, held });
        }
        let payload = self.copy_of(bytes)?;
        let request = self.send_with(to, tag, payload, options.buffered())?;
        self.requests.detach(request, asked);
        Ok(())
    }

    /// A message to oneself never leaves the worker.
    fn send_to_self(&mut self, label: Label, mode: Mode, payload: Buffer) -> Result<Request, Refused<Buffer>> {
        let (rank, len) = (self.rank, payload.len());
        let Some(request) = self.requests.open(Operation::Queued { to: rank }) else {
            return Err(Refused::new(CallError::TooMany(LIMIT), payload));
        };
        let receive = self.matching.take_posted(&matching::Label::new(rank, label));
        // A short one is copied, so that its send is over; a long one waits in place, or one that finds no memory.
        let is_short = receive.is_none() && mode != Mode::Synchronous && len <= self.rules.eager;
        let copy = if is_short { self.copy_to_keep(&payload) } else { Ok(None) };
        let copy = match copy {
            Ok(copy) => copy,
            Err(why) => {
                self.requests.cancel_opening(request);
                return Err(Refused::new(why, payload));
            }
        };
        let is_copied = copy.is_some();
        let done = Done::new(payload, len, rank, label);
        self.requests.replace(request, Operation::Unmatched { to: rank, done });
        match receive {
            Some(receive) => {
                self.stats.rx_expected += 1;
                self.deliver_local(receive, label, request, None);
            }
            None => {
                self.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                let cost = if is_copied { len } else { 0 };
                self.keep(rank, label, cost, Body::Local { request, len, copy });
                if is_copied
                    && let Some(Operation::Unmatched { done, .. }) =
                        self.requests.replace(request, Operation::Queued { to: rank })
                {
                    self.requests.end_eager(request, done);
                }
            }
        }
        Ok(request)
    }

    /// Gives a message of this rank to its own receive, from the copy or from the send that waits.
    pub(crate) fn deliver_local(&mut self, receive: Request, label: Label, send: Request, copy: Option<Buffer>) {
        let rank = self.rank;
        let waiting = match self.requests.replace(send, Operation::Queued { to: rank }) {
            Some(Operation::Unmatched { done, .. }) => Some(done),
            Some(other) => {
                self.requests.replace(send, other);
                None
            }
            None => None,
        };
        let payload = waiting.as_ref().map(|done| &done.buffer).or(copy.as_ref());
        if let Some(payload) = payload {
            let len = payload.len();
            if let Some(mut buffer) = self.buffer_for(receive, rank, label, len) {
                buffer[..len].copy_from_slice(payload);
                self.requests.end(receive, Ok(Done::new(buffer, len, rank, label)));
            }
        } else {
            debug_assert!(false, "a message to oneself is in its copy or in its send");
            self.requests.end(receive, Err(OpError::NoRequest));
        }
        if let Some(done) = waiting {
            self.requests.end(send, Ok(done));
        }
    }

    /// A copy of a message to oneself that nobody has asked for, if there may be another one; none where there is no memory.
    fn copy_to_keep(&self, payload: &[u8]) -> Result<Option<Buffer>, CallError> {
        if self.matching.unexpected_bytes() > self.unexpected_limit {
            return Err(CallError::TooMany(self.matching.unexpected_len()));
        }
        Ok(self.copy_of(payload).ok())
    }

    fn copy_of(&self, bytes: &[u8]) -> Result<Buffer, CallError> {
        let mut copy = self.engine.buffer(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }
}
