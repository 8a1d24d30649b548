//! Active messages: each runs a handler at its receiver, which may reply.
//!
//! *Short* ones have arguments alone, *medium* ones a payload that fits a vbuf, and a *long* one runs its handler once what was put
//! before it is in the receiver's memory. None is ever stored at the receiver: handlers run as messages come, inside progress, so
//! the credit of each comes back. Where there is no credit they wait at their sender, up to a limit.
//!
//! # No deadlock
//! A handler cannot send: it replies, or does not. A request is counted at its sender until its reply is there, and there may
//! be so many to one peer ([`WINDOW`]); so replies that wait for credits are bounded at the receiver, which ends a peer that asks for
//! more. A reply needs a credit alone,
//! which comes back without anything else having to happen first, since its receiver only notes it. So replies always leave, and with
//! them requests go on.
//!
//! # Order
//! There is none, among active messages or between them and others: a peer may be reached over several queue pairs.

pub(crate) mod handlers;

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{Buffer, Rkey};
use roci_protocol::msg::{ActiveKind, Header, Label, MAX_ARGUMENTS, Message};

use self::handlers::{ActiveMessage, Handler, HandlerContext, HandlerId, Handlers, Reply, written};
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::{Done, OpError};
use crate::core::lane::lane_for;
use crate::core::peer::{Peer, PeerId};
use crate::core::refused::CallError;
use crate::core::request::{OperationEnded, Request};

/// Requests to one peer whose replies are not here; more wait.
pub(crate) const WINDOW: u32 = 256;
/// Active messages that may wait for one peer.
const WAITING_LIMIT: usize = 1 << 14;
/// Those of this end to itself.
const LOCAL_LIMIT: usize = WAITING_LIMIT;

/// An active message, as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) kind: ActiveKind,
    pub(crate) handler: u32,
    pub(crate) token: u32,
    pub(crate) arguments: [u64; MAX_ARGUMENTS],
    pub(crate) count: u8,
}

/// A request whose reply is not here.
#[derive(Debug)]
struct OpenRequest {
    request: Request,
    peer: PeerId,
}

/// The active messages of one end.
#[derive(Default)]
pub(crate) struct AmService {
    handlers: Handlers,
    /// By token.
    requests: Vec<Option<OpenRequest>>,
    free: Vec<u32>,
    /// How many of them are open to each peer, by slot.
    open: Vec<u32>,
    /// Messages of this end to itself, which run in the next progress.
    local: VecDeque<(Active, Option<Buffer>)>,
    reply: Reply,
}

impl Active {
    /// Returns the active message that a message is, if it is one.
    pub(crate) fn of(message: Message) -> Option<Self> {
        match message {
            Message::Active { kind, handler, token, arguments, count } => {
                Some(Self { kind, handler, token, arguments, count })
            }
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn message(self) -> Message {
        let Self { kind, handler, token, arguments, count } = self;
        Message::Active { kind, handler, token, arguments, count }
    }
}

impl AmService {
    /// Registers a handler under a name.
    ///
    /// # Errors
    /// The name is taken, or another one has its hash.
    pub(crate) fn register(&mut self, name: &str, handler: Handler) -> Result<HandlerId, CallError> {
        self.handlers.register(name, handler)
    }

    /// Opens a request to a peer, and returns the token that its reply will have.
    ///
    /// # Errors
    /// As many are open as may be.
    pub(crate) fn open_request(&mut self, request: Request, peer: PeerId) -> Result<u32, CallError> {
        let slot = peer.slot();
        if self.open.len() <= slot {
            self.open.resize(slot + 1, 0);
        }
        if self.open[slot] == WINDOW {
            return Err(CallError::TooMany(WINDOW as usize));
        }
        self.open[slot] += 1;
        let token = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        self.requests[token as usize] = Some(OpenRequest { request, peer });
        Ok(token)
    }

    /// Returns how many requests more may be opened to a peer.
    pub(crate) fn room(&self, peer: PeerId) -> usize {
        (WINDOW - self.open.get(peer.slot()).copied().unwrap_or(0)) as usize
    }

    /// Forgets a request that was not sent, or is over. Returns which that was.
    pub(crate) fn close_request(&mut self, token: u32, peer: PeerId) -> Option<Request> {
        let entry = self.requests.get_mut(token as usize)?;
        let open = entry.take_if(|open| open.peer == peer)?;
        self.free.push(token);
        self.open[peer.slot()] -= 1;
        Some(open.request)
    }

    /// An active message has come. Returns the request that is over with it, and how.
    ///
    /// # Errors
    /// It answers what was not asked.
    #[inline]
    pub(crate) fn on_active<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        active: Active,
        payload: &[u8],
    ) -> Result<Option<OperationEnded>, Breach> {
        match active.kind {
            ActiveKind::Reply | ActiveKind::Unanswered => return self.on_reply(core, peer, active, payload).map(Some),
            ActiveKind::OneWay | ActiveKind::Request | ActiveKind::Long => {}
        }
        if active.kind == ActiveKind::Request && peer.tx.replies_waiting > WINDOW as usize {
            return Err(Breach::TooManyAnswers);
        }
        let has_run = self.run(core, peer.id, active, payload);
        if active.kind == ActiveKind::Request {
            self.answer(core, peer, active.token, has_run);
        }
        Ok(None)
    }

    /// Runs the handler of a message; returns whether there is one.
    #[inline]
    fn run<L: Link>(&mut self, core: &mut Core<L>, source: PeerId, active: Active, payload: &[u8]) -> bool {
        let Self { handlers, reply, .. } = self;
        if active.kind == ActiveKind::Long && !is_written(core, &active) {
            core.stats.rx_denied += 1;
            return false;
        }
        let Some(handler) = handlers.get_mut(active.handler) else {
            core.stats.rx_active_unknown += 1;
            return false;
        };
        core.stats.rx_active += 1;
        let may_reply = active.kind == ActiveKind::Request;
        if may_reply {
            reply.count = 0;
            reply.payload.clear();
        }
        let arguments = &active.arguments[..usize::from(active.count).min(MAX_ARGUMENTS)];
        let message = match (active.kind, active.arguments) {
            (ActiveKind::Long, [va, len, _]) => ActiveMessage {
                source,
                arguments: arguments.get(2..).unwrap_or_default(),
                payload: &[],
                written: Some(written(active.token, va, len)),
            },
            _ => ActiveMessage { source, arguments, payload, written: None },
        };
        handler(&mut HandlerContext { memory: core, reply, may_reply }, message);
        true
    }

    /// Replies to a request with what its handler has left. Where that cannot be, the request is over all the same.
    fn answer<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, token: u32, has_run: bool) {
        let Reply { arguments, count, payload } = &self.reply;
        let unanswered =
            Active { kind: ActiveKind::Unanswered, handler: token, token: 0, arguments: [0; MAX_ARGUMENTS], count: 0 };
        let reply = Active { kind: ActiveKind::Reply, arguments: *arguments, count: *count, ..unanswered };
        core.stats.tx_active += 1;
        if !has_run || payload.len() > core.receives.queues.max_payload() {
            return peer.queue_control(unanswered.message());
        }
        if payload.is_empty() {
            if !post_at_once(core, peer, reply, &[]) {
                peer.queue_control(reply.message());
            }
        } else if !post_at_once(core, peer, reply, payload) && queue(core, peer, reply, payload).is_err() {
            peer.queue_control(unanswered.message());
        }
    }

    /// The reply to a request has come.
    fn on_reply<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &Peer,
        active: Active,
        payload: &[u8],
    ) -> Result<OperationEnded, Breach> {
        let reply = u64::from(active.handler);
        let request = self.close_request(active.handler, peer.id).ok_or(Breach::UnaskedAnswer { reply })?;
        if active.kind == ActiveKind::Unanswered {
            return Ok((request, Err(OpError::Unanswered { peer: peer.id })));
        }
        Ok((request, reply_as_outcome(core, peer.id, active, payload)))
    }

    /// Sends an active message to this end itself: it runs in the next progress.
    ///
    /// # Errors
    /// Too many wait, or there is no memory for a copy.
    pub(crate) fn send_to_self<L: Link>(
        &mut self,
        core: &mut Core<L>,
        active: Active,
        payload: &[u8],
    ) -> Result<(), CallError> {
        self.check_local_room()?;
        let payload = if payload.is_empty() { None } else { Some(core.copy_of(payload)?) };
        self.local.push_back((active, payload));
        core.stats.tx_active += 1;
        Ok(())
    }

    /// Whether another message of this end to itself may wait.
    ///
    /// # Errors
    /// As many wait as may.
    pub(crate) fn check_local_room(&self) -> Result<(), CallError> {
        if self.local.len() < LOCAL_LIMIT { Ok(()) } else { Err(CallError::TooMany(LOCAL_LIMIT)) }
    }

    /// A message of this end to itself without a payload runs in the next progress. There is room for it.
    pub(crate) fn run_soon(&mut self, active: Active) {
        self.local.push_back((active, None));
    }

    /// Returns how many messages of this end to itself wait.
    #[inline]
    pub(crate) fn local_len(&self) -> usize {
        self.local.len()
    }

    /// Runs the handler of the oldest message of this end to itself. Returns the request that is over with it, and how.
    pub(crate) fn run_local<L: Link>(&mut self, core: &mut Core<L>, oneself: PeerId) -> Option<OperationEnded> {
        let (active, payload) = self.local.pop_front()?;
        let has_run = self.run(core, oneself, active, payload.as_deref().unwrap_or_default());
        if active.kind != ActiveKind::Request {
            return None;
        }
        let request = self.close_request(active.token, oneself)?;
        if !has_run {
            return Some((request, Err(OpError::Unanswered { peer: oneself })));
        }
        let reply = Active { arguments: self.reply.arguments, count: self.reply.count, ..active };
        Some((request, reply_as_outcome(core, oneself, reply, &self.reply.payload)))
    }

    /// A peer is gone: its replies will not come.
    pub(crate) fn on_peer_down(&mut self, peer: PeerId) {
        for token in 0..self.requests.len() as u32 {
            self.close_request(token, peer);
        }
    }
}

/// Whether the memory of a long message is such as its sender may have written it: a put by message may have been denied, and a
/// hostile peer may say what it likes.
fn is_written<L: Link>(core: &Core<L>, active: &Active) -> bool {
    let [va, len, _] = active.arguments;
    core.engine.check_write_by_key(core.pd, (Rkey(active.token), va), len).is_ok()
}

/// Sends an active message: at once, where nothing waits before it; or it is queued, in a copy. Returns whether it was.
///
/// # Errors
/// Too many wait, or there is no memory for a copy.
#[inline]
pub(crate) fn send<L: Link>(
    core: &mut Core<L>,
    peer: &mut Peer,
    active: Active,
    payload: &[u8],
) -> Result<bool, CallError> {
    let is_queued = !post_at_once(core, peer, active, payload);
    if is_queued {
        queue(core, peer, active, payload)?;
    }
    core.stats.tx_active += 1;
    Ok(is_queued)
}

/// The outcome of a request: the reply's payload, with its first argument as data.
fn reply_as_outcome<L: Link>(core: &mut Core<L>, peer: PeerId, reply: Active, payload: &[u8]) -> Result<Done, OpError> {
    let len = payload.len();
    let buffer = core.copy_of(payload).map_err(|_| OpError::NoMemory { peer, len: len as u64 })?;
    let data = (reply.count > 0).then_some(reply.arguments[0]);
    Ok(Done::new(buffer, len, peer, Label { data, ..Label::default() }))
}

/// Sends a message that nothing waits before, if there is room; returns whether it did.
#[inline]
fn post_at_once<L: Link>(core: &mut Core<L>, peer: &mut Peer, active: Active, payload: &[u8]) -> bool {
    if !peer.is_open() || peer.tx.has_work() {
        return false;
    }
    let (lane, vbufs) = lane_for(payload.len(), peer.lanes.iter().map(|lane| lane.payload));
    let it = &peer.lanes[lane];
    if vbufs > 1 || !it.admits_requests() || !it.has_place() || !core.has_spare_vbuf(lane) {
        return false;
    }
    core.post_vbuf(peer, lane, Header::new(active.message()), payload);
    true
}

/// Queues a copy of a message.
#[cold]
fn queue<L: Link>(core: &mut Core<L>, peer: &mut Peer, active: Active, payload: &[u8]) -> Result<(), CallError> {
    if active.kind != ActiveKind::Reply && peer.tx.payloads.len() - peer.tx.replies_waiting >= WAITING_LIMIT {
        return Err(CallError::TooMany(WAITING_LIMIT));
    }
    Ok(core.queue_payload(peer, active.message(), payload)?)
}
