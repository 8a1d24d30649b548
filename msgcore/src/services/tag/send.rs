//! Sending: the four modes of MPI, and messages to oneself.

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{Label, Mode};

use super::TagService;
use super::matching::MatchLabel;
use super::operation::TagOperation;
use super::select::{Protocol, Reason};
use super::send_queue::{OUTGOING_LIMIT, Outgoing};
use super::stored::UnexpectedBody;
use crate::core::Core;
use crate::core::completion::{Done, OpError};
use crate::core::peer::Peer;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::{Context, Tag};

/// How to send, where it is not the usual way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    context: Context,
    mode: Mode,
    data: Option<u64>,
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

    /// With 8 bytes of the sender's that the receive gets with the message, whatever its length (`fi_tsenddata`):
    /// [`Done::data`](crate::Done::data).
    #[must_use]
    pub fn with_data(self, data: u64) -> Self {
        Self { data: Some(data), ..self }
    }

    /// Returns what travels with a message under `tag`, and its mode.
    pub(crate) fn label(self, tag: Tag) -> (Label, Mode) {
        (Label { context: self.context.get(), tag: tag.get(), data: self.data }, self.mode)
    }

    /// A buffered send has the standard mode, whatever was asked for.
    pub(crate) fn buffered(self) -> Self {
        Self { mode: Mode::Standard, ..self }
    }
}

impl TagService {
    /// Sends a message under this name: at once, where nothing waits before it, or it is queued. Returns whether it was queued.
    #[inline]
    pub(crate) fn send<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        request: Request,
        (label, mode): (Label, Mode),
        payload: Buffer,
    ) -> Result<bool, Refused<Buffer>> {
        if !self.queues[peer.id.slot()].has_room() {
            return Err(Refused::new(CallError::TooMany(OUTGOING_LIMIT), payload));
        }
        let is_short = payload.len() <= self.rules.eager;
        match self.short_lane(core, peer, payload.len(), mode) {
            Some(lane) if is_short => {
                core.message_sizes.note(payload.len() as u64);
                core.stats.chose(Protocol::Eager, Reason::Short);
                self.send_short(core, peer, lane, Outgoing { request, label, mode, payload });
                Ok(false)
            }
            _ => {
                let at = self.queues[peer.id.slot()].outgoing.push(Outgoing { request, label, mode, payload });
                self.requests.open(request, || TagOperation::Outgoing { to: peer.id, at });
                Ok(true)
            }
        }
    }

    /// Whether so many bytes more may wait in buffered sends.
    pub(crate) fn check_buffered(&self, asked: usize) -> Result<(), CallError> {
        let held = self.requests.buffered_bytes();
        if held + asked > self.buffered_limit {
            return Err(CallError::BufferFull { asked, held });
        }
        Ok(())
    }

    /// Sends a message to this end itself, which never leaves it.
    pub(crate) fn send_to_self<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        (label, mode): (Label, Mode),
        payload: Buffer,
    ) {
        let (oneself, len) = (self.oneself, payload.len());
        self.requests.open(request, || TagOperation::Queued { to: oneself });
        let receive = self.meet_posted(&MatchLabel::new(oneself, label), len);
        // A short one is copied, so that its send is over; a long one waits in place, or one that finds no memory for a copy.
        let is_short = receive.is_none() && mode != Mode::Synchronous && len <= self.rules.eager;
        let copy = if is_short { copy_to_store(core, &payload) } else { None };
        let is_copied = copy.is_some();
        let done = Done::new(payload, len, oneself, label);
        self.requests.replace(request, TagOperation::Unmatched { to: oneself, done });
        match receive {
            Some(receive) => {
                core.stats.rx_expected += 1;
                self.deliver_local(core, receive, label, request, None);
            }
            None => {
                core.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                self.store(core, oneself, label, UnexpectedBody::Local { request, len, copy, data: label.data });
                if is_copied
                    && let Some(TagOperation::Unmatched { done, .. }) =
                        self.requests.replace(request, TagOperation::Queued { to: oneself })
                {
                    self.requests.end_eager(request, done);
                }
            }
        }
    }

    /// Gives a message of this end to its own receive, from the copy or from the send that waits.
    pub(super) fn deliver_local<L: Link>(
        &mut self,
        core: &mut Core<L>,
        receive: Request,
        label: Label,
        send: Request,
        copy: Option<Buffer>,
    ) {
        let oneself = self.oneself;
        let waiting = self.take_local_send(send);
        let payload = waiting.as_ref().map(|done| &done.buffer).or(copy.as_ref());
        if let Some(payload) = payload {
            let len = payload.len();
            if let Some(mut buffer) = self.buffer_for(core, receive, oneself, label, len) {
                buffer.copy_from(0, payload, 0..len);
                self.requests.end(receive, Ok(Done::new(buffer, len, oneself, label)));
            }
        } else {
            debug_assert!(false, "a message to oneself is in its copy or in its send");
            self.requests.end(receive, Err(OpError::NoRequest));
        }
        if let Some(done) = waiting {
            self.requests.end(send, Ok(done));
        }
    }

    /// Ends a send to this end itself that still waits: its message was received, or discarded.
    pub(super) fn end_local_send(&mut self, send: Request) {
        if let Some(done) = self.take_local_send(send) {
            self.requests.end(send, Ok(done));
        }
    }

    /// Takes the payload of a send to this end itself, where that still waits.
    fn take_local_send(&mut self, send: Request) -> Option<Done> {
        match self.requests.replace(send, TagOperation::Queued { to: self.oneself })? {
            TagOperation::Unmatched { done, .. } => Some(done),
            other => {
                self.requests.replace(send, other);
                None
            }
        }
    }
}

/// Returns a copy of a message to oneself that has no receive; `None` where there is no memory, or there may be no more copies.
fn copy_to_store<L: Link>(core: &Core<L>, payload: &Buffer) -> Option<Buffer> {
    if core.unexpected_budget.is_exceeded() {
        return None;
    }
    let mut copy = core.engine.buffer(payload.len()).ok()?;
    copy.copy_from(0, payload, 0..payload.len());
    Some(copy)
}
