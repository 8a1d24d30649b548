//! The responder: executes the peer's requests in order and exactly once, and answers (IBTA 9.7.5.1, 9.7.5.2).
//!
//! Answers are owed, not queued: whatever arrives, at most one acknowledgement is pending, and it speaks for
//! everything before it. Responses to READs and atomics go first, in the order of their PSNs, so that an acknowledgement never
//! overtakes them.

use std::collections::VecDeque;

use super::bitmap::{self, Bitmap};
use super::credits;
use super::requester::MAX_MESSAGE;
use super::resources::{Answer, Body, Resources, Response};
use super::{
    AtomicOperation, Completion, Config, Denied, Env, Operation, Payload, PostError, QueuePair, RecvRequest, Rejected,
    State, TxError, WcStatus,
};
use crate::wire::{Aeth, AtomicAckEth, Bth, Extensions, Headers, NakCode, Opcode, Packet, Reth, Syndrome, aeth};
use crate::{Access, Msn, Nanos, Psn, Rkey};

/// READ responses that one call sends before others get their turn.
const RESPONSES_PER_PUMP: usize = 64;

pub(super) struct Responder<B> {
    receives: VecDeque<RecvRequest<B>>,
    depth: usize,
    pub(super) expected: Psn,
    /// Packets that came early and are kept; bits count from the expected one.
    pub(super) held: Bitmap,
    msn: Msn,
    message: Message<B>,
    pub(super) owed: Owed,
    notification: Notification,
    /// Packets executed since the last acknowledgement.
    unacknowledged: u32,
    /// A gap or an RNR was reported; nothing more is said until the expected packet comes.
    pub(super) nak_sent: bool,
    pub(super) resources: Resources,
}

/// The message in progress.
enum Message<B> {
    None,
    Send { receive: RecvRequest<B>, received: u32 },
    Write { rkey: Rkey, va: u64, remaining: u32, total: u32 },
}

/// What the next acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    Nothing,
    Ack,
    Rnr,
    /// The packet that was refused, or that is missing.
    Nak(NakCode, Psn),
}

/// Congestion notifications: a peer whose packets are marked hears of it, though not of every mark (IBTA A17.9.3).
#[derive(Default)]
struct Notification {
    is_owed: bool,
    sent_at: Option<Nanos>,
}

/// A notification at most every so often, as NICs do.
const NOTIFY_EVERY_NS: Nanos = 50_000;
/// The body of a notification: reserved.
const NOTIFICATION: [u8; 16] = [0; 16];

/// Why a request is refused, and what the message in progress here is told.
#[derive(Clone, Copy)]
struct Refusal {
    code: NakCode,
    local: WcStatus,
}

const INVALID: Refusal = Refusal { code: NakCode::InvalidRequest, local: WcStatus::RemInvReqErr };
const TOO_LONG: Refusal = Refusal { code: NakCode::InvalidRequest, local: WcStatus::LocLenErr };

impl From<Denied> for Refusal {
    fn from(Denied: Denied) -> Self {
        Self { code: NakCode::RemoteAccess, local: WcStatus::LocAccessErr }
    }
}

/// How one request in order ended.
enum Outcome {
    /// Executed; it took this many PSNs.
    Done(u32),
    /// No receive is posted.
    NotReady,
}

impl<B> Responder<B> {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            receives: VecDeque::with_capacity(config.rq_depth),
            depth: config.rq_depth,
            expected: config.rq_psn,
            held: Bitmap::default(),
            msn: Msn::default(),
            message: Message::None,
            owed: Owed::Nothing,
            notification: Notification::default(),
            unacknowledged: 0,
            nak_sent: false,
            resources: Resources::new(config.max_dest_rd_atomic),
        }
    }

    pub(super) fn receives_posted(&self) -> usize {
        self.receives.len()
    }

    /// Completes the message in progress with `status` and flushes the posted receives. READs that were accepted
    /// are still answered: they come before whatever was refused.
    pub(super) fn flush<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        if let Message::Send { receive, received } = std::mem::replace(&mut self.message, Message::None) {
            env.complete(Arrived { status, len: received, ..Arrived::FLUSHED }.completes(receive));
        }
        while let Some(receive) = self.receives.pop_front() {
            env.complete(Arrived::FLUSHED.completes(receive));
        }
    }

    fn owe_nak(&mut self, owed: Owed) {
        if !self.nak_sent {
            self.nak_sent = true;
            self.owed = owed;
        }
    }

    /// A packet was marked on its way.
    pub(super) fn owe_notification(&mut self, now: Nanos) {
        let Notification { is_owed, sent_at } = &mut self.notification;
        if sent_at.is_none_or(|at| now.saturating_sub(at) >= NOTIFY_EVERY_NS) {
            *is_owed = true;
            *sent_at = Some(now);
        }
    }

    fn send_notification<E: Env<Buffer = B>>(&mut self, config: &Config, env: &mut E) -> Result<(), TxError> {
        let mut bth = Bth::new(Opcode::Cnp, config.dest_qpn, Psn::default());
        bth.becn = true;
        env.transmit(&Headers::plain(bth), Payload::Bytes(&NOTIFICATION))?;
        self.notification.is_owed = false;
        Ok(())
    }

    /// Tells the peer that the fault is ours.
    pub(super) fn owe_operational_error(&mut self) {
        self.owed = Owed::Nak(NakCode::RemoteOperational, self.expected);
    }

    /// The syndrome of an acknowledgement: receives posted, rounded down to a code. Shared ones are promised to
    /// nobody (IBTA 9.7.7.2.5).
    fn ack_syndrome(&self, config: &Config) -> Syndrome {
        let shared = config.shared_receives;
        Syndrome::Ack { credit: if shared { aeth::CREDIT_UNLIMITED } else { credits::code_of(self.receives.len()) } }
    }

    /// Takes the receive for a message.
    fn take_receive<E: Env<Buffer = B>>(&mut self, config: &Config, env: &mut E) -> Option<RecvRequest<B>> {
        if config.shared_receives { env.take_shared_receive() } else { self.receives.pop_front() }
    }

    /// Sends one response of a READ or an atomic.
    fn send_response<E: Env<Buffer = B>>(
        &mut self,
        response: &Response,
        config: &Config,
        env: &mut E,
    ) -> Result<(), TxError> {
        let mut headers = Headers::plain(Bth::new(response.opcode, config.dest_qpn, response.psn));
        headers.ext.aeth = Some(Aeth { syndrome: self.ack_syndrome(config), msn: self.msn });
        let payload = match response.body {
            Body::Memory(Reth { len: 0, .. }) => Payload::None,
            Body::Memory(Reth { va, rkey, len }) => Payload::Remote { rkey, va, len: len as usize },
            Body::Original(original) => {
                headers.ext.atomic_ack = Some(AtomicAckEth { original });
                Payload::None
            }
        };
        env.transmit(&headers, payload)?;
        self.resources.sent();
        Ok(())
    }

    /// Sends the acknowledgement that is owed.
    fn send_owed<E: Env<Buffer = B>>(&mut self, config: &Config, env: &mut E) -> Result<(), TxError> {
        let reports_gap = !self.held.is_empty() && self.owed == Owed::Ack;
        let owed = if reports_gap { Owed::Nak(NakCode::PsnSequence, self.expected) } else { self.owed };
        let (syndrome, psn) = match owed {
            Owed::Nothing => return Ok(()),
            Owed::Ack => (self.ack_syndrome(config), self.expected.previous()),
            Owed::Rnr => (Syndrome::Rnr { timer: config.min_rnr_timer }, self.expected),
            Owed::Nak(code, psn) => (Syndrome::Nak(code), psn),
        };
        let ext = Extensions { aeth: Some(Aeth { syndrome, msn: self.msn }), ..Extensions::default() };
        let is_gap = matches!(owed, Owed::Nak(NakCode::PsnSequence, _));
        let map = self.held.to_bytes();
        // A peer that does not know the map never makes us keep anything.
        let payload = if is_gap && !self.held.is_empty() { Payload::Bytes(&map) } else { Payload::None };
        env.transmit(&Headers { bth: Bth::new(Opcode::RcAck, config.dest_qpn, psn), ext }, payload)?;
        self.owed = Owed::Nothing;
        self.unacknowledged = 0;
        Ok(())
    }
}

impl<B> QueuePair<B> {
    /// Posts a receive. Allowed from [`State::Init`] on; in the error state it is flushed at the next pump.
    pub fn post_recv(&mut self, request: RecvRequest<B>) -> Result<(), Rejected<RecvRequest<B>>> {
        let responder = &mut self.responder;
        if !self.state.takes_receives() {
            return Err(Rejected { reason: PostError::State(self.state), request });
        }
        if self.config.shared_receives {
            return Err(Rejected { reason: PostError::SharedReceives, request });
        }
        if responder.receives.len() == responder.depth {
            return Err(Rejected { reason: PostError::QueueFull, request });
        }
        responder.receives.push_back(request);
        Ok(())
    }

    /// Whether an answer is owed that should not wait: a NAK, READ responses, or an acknowledgement of at
    /// least `packets` packets.
    #[inline]
    pub fn owes_reply(&self, packets: u32) -> bool {
        let responder = &self.responder;
        !responder.resources.is_idle()
            || responder.notification.is_owed
            || match responder.owed {
                Owed::Nothing => false,
                Owed::Ack => responder.unacknowledged >= packets,
                Owed::Rnr | Owed::Nak(..) => true,
            }
    }

    /// Sends READ responses and the acknowledgement that is owed, as far as the link allows.
    ///
    /// A refusal is answered even though it has put the queue pair into the error state.
    pub fn pump_replies<E: Env<Buffer = B>>(&mut self, env: &mut E) -> Result<(), TxError> {
        if self.state == State::Error {
            self.responder.flush(WcStatus::WrFlushErr, env);
        }
        if self.responder.notification.is_owed {
            self.responder.send_notification(&self.config, env)?;
            self.stats.np_cnp_sent += 1;
        }
        for _ in 0..RESPONSES_PER_PUMP {
            let Some(response) = self.responder.resources.next_response(self.config.mtu) else {
                let owed = self.responder.owed != Owed::Nothing;
                self.responder.send_owed(&self.config, env)?;
                self.stats.tx_acks += u64::from(owed);
                return Ok(());
            };
            match self.responder.send_response(&response, &self.config, env) {
                Ok(()) => self.stats.tx_read_responses += 1,
                Err(TxError::Busy) => return Err(TxError::Busy),
                // The owner may have ended the region once the peer had all of it: a late duplicate is no offence.
                Err(TxError::Denied) if self.responder.resources.drop_replay() => self.stats.duplicate_dropped += 1,
                Err(TxError::Denied) => {
                    self.responder.resources.drop_all();
                    self.refuse(Denied.into(), response.psn, env);
                }
            }
        }
        Ok(())
    }

    pub(super) fn on_request<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) {
        let distance = packet.headers.bth.psn.since(self.responder.expected);
        if distance > 0 {
            self.stats.out_of_sequence += 1;
            if self.is_selective() {
                self.on_early_request(distance as u32, env);
                return;
            }
            self.responder.owe_nak(Owed::Nak(NakCode::PsnSequence, self.responder.expected));
        } else if distance < 0 {
            self.on_duplicate(packet);
        } else {
            self.on_expected(packet, env);
        }
    }

    fn on_duplicate(&mut self, packet: &Packet<'_>) {
        self.stats.duplicate_request += 1;
        let bth = &packet.headers.bth;
        let responder = &mut self.responder;
        match bth.opcode {
            Opcode::RcReadRequest | Opcode::RcCompareSwap | Opcode::RcFetchAdd => {
                let replayed = responder.resources.replay(&packet.headers, self.config.mtu);
                self.stats.duplicate_dropped += u64::from(!replayed);
            }
            _ => {
                // The peer has not heard of it: this is worth an acknowledgement of its own.
                responder.unacknowledged = responder.unacknowledged.max(1);
                if responder.owed == Owed::Nothing {
                    responder.owed = Owed::Ack;
                }
            }
        }
    }

    fn on_expected<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) {
        let is_fetch =
            matches!(packet.headers.bth.opcode, Opcode::RcReadRequest | Opcode::RcCompareSwap | Opcode::RcFetchAdd);
        match self.execute(packet, env) {
            Ok(Outcome::Done(packets)) => {
                self.stats.rx_requests += 1;
                let responder = &mut self.responder;
                responder.expected = responder.expected.plus(packets);
                responder.held.advance(packets);
                responder.nak_sent = false;
                responder.unacknowledged = responder.unacknowledged.saturating_add(1);
                if is_fetch {
                    // Its response acknowledges it and everything before it.
                    responder.owed = Owed::Nothing;
                } else if packet.headers.bth.ack_req || responder.owed != Owed::Nothing {
                    responder.owed = Owed::Ack;
                }
            }
            Ok(Outcome::NotReady) => {
                self.stats.out_of_buffer += 1;
                self.responder.nak_sent = false;
                self.responder.owe_nak(Owed::Rnr);
            }
            Err(refusal) => self.refuse(refusal, self.responder.expected, env),
        }
    }

    /// Answers packet `psn` with a fatal NAK and goes to the error state.
    fn refuse<E: Env<Buffer = B>>(&mut self, refusal: Refusal, psn: Psn, env: &mut E) {
        match refusal.code {
            NakCode::RemoteAccess => self.stats.resp_remote_access_errors += 1,
            _ => self.stats.resp_invalid_request += 1,
        }
        self.responder.owed = Owed::Nak(refusal.code, psn);
        self.fail_responder(refusal.local, env);
    }

    fn execute<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) -> Result<Outcome, Refusal> {
        let opcode = packet.headers.bth.opcode;
        let part = Part::of(opcode).ok_or(INVALID)?;
        let full = self.config.mtu.bytes();
        let fits = match part.place {
            Place::First | Place::Middle => packet.payload.len() == full,
            Place::Last => (1..=full).contains(&packet.payload.len()),
            Place::Only => packet.payload.len() <= full,
        };
        if !fits {
            return Err(INVALID);
        }
        match part.kind {
            Kind::Send => self.execute_send(packet, part.place, env),
            Kind::Write => self.execute_write(packet, part.place, env),
            Kind::Read => self.execute_read(packet, env),
            Kind::Atomic => self.execute_atomic(packet, env),
        }
    }

    fn execute_send<E: Env<Buffer = B>>(
        &mut self,
        packet: &Packet<'_>,
        place: Place,
        env: &mut E,
    ) -> Result<Outcome, Refusal> {
        let responder = &mut self.responder;
        if place.starts() != matches!(responder.message, Message::None) {
            return Err(INVALID);
        }
        if place.starts() {
            let Some(receive) = responder.take_receive(&self.config, env) else { return Ok(Outcome::NotReady) };
            responder.message = Message::Send { receive, received: 0 };
        }
        let Message::Send { receive, received } = &mut responder.message else { return Err(INVALID) };
        if packet.payload.len() > (receive.len - *received) as usize {
            return Err(TOO_LONG);
        }
        let invalidated = packet.headers.ext.ieth.map(|ieth| ieth.0);
        if let Some(rkey) = invalidated {
            env.invalidate(rkey)?;
        }
        env.place(&mut receive.buffer, *received as usize, packet.payload);
        *received += packet.payload.len() as u32;
        if place.ends() {
            responder.msn = responder.msn.next();
            if let Message::Send { receive, received } = std::mem::replace(&mut responder.message, Message::None) {
                env.complete(Arrived::of(packet, Operation::Recv, received).completes(receive));
            }
        }
        Ok(Outcome::Done(1))
    }

    fn execute_write<E: Env<Buffer = B>>(
        &mut self,
        packet: &Packet<'_>,
        place: Place,
        env: &mut E,
    ) -> Result<Outcome, Refusal> {
        let responder = &mut self.responder;
        if place.starts() != matches!(responder.message, Message::None) {
            return Err(INVALID);
        }
        let (rkey, va, remaining, total) = match (&responder.message, packet.headers.ext.reth) {
            (Message::None, Some(reth)) => {
                authorize(&self.config, env, &reth, Access::REMOTE_WRITE)?;
                (reth.rkey, reth.va, reth.len, reth.len)
            }
            (&Message::Write { rkey, va, remaining, total }, None) => (rkey, va, remaining, total),
            _ => return Err(INVALID),
        };
        let len = packet.payload.len() as u32;
        let fits = if place.ends() { len == remaining } else { len < remaining };
        if !fits {
            return Err(INVALID);
        }
        let receive = match packet.headers.ext.imm {
            None => None,
            Some(_) => match responder.take_receive(&self.config, env) {
                None => return Ok(Outcome::NotReady),
                receive => receive,
            },
        };
        if len > 0
            && let Err(denied) = env.place_remote(rkey, va, packet.payload)
        {
            if let Some(receive) = receive {
                env.complete(Arrived::FLUSHED.completes(receive));
            }
            return Err(denied.into());
        }
        responder.message = Message::Write { rkey, va: va.wrapping_add(len.into()), remaining: remaining - len, total };
        if place.ends() {
            responder.msn = responder.msn.next();
            responder.message = Message::None;
            if let Some(receive) = receive {
                env.complete(Arrived::of(packet, Operation::RecvRdmaWithImm, total).completes(receive));
            }
        }
        Ok(Outcome::Done(1))
    }

    fn execute_read<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) -> Result<Outcome, Refusal> {
        let responder = &mut self.responder;
        let Some(reth) = packet.headers.ext.reth else { return Err(INVALID) };
        let idle = matches!(responder.message, Message::None);
        if !idle || !packet.payload.is_empty() {
            return Err(INVALID);
        }
        authorize(&self.config, env, &reth, Access::REMOTE_READ)?;
        // PSNs that requests were sent with are not free for responses.
        let is_taken = (1..self.config.mtu.packets(reth.len).min(bitmap::BITS)).any(|bit| responder.held.get(bit));
        if is_taken || !responder.resources.make_room() {
            return Err(INVALID);
        }
        let packets = responder.resources.accept(responder.expected, Answer::Read(reth), self.config.mtu);
        responder.msn = responder.msn.next();
        Ok(Outcome::Done(packets))
    }

    fn execute_atomic<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) -> Result<Outcome, Refusal> {
        let responder = &mut self.responder;
        let Some(request) = packet.headers.ext.atomic else { return Err(INVALID) };
        let idle = matches!(responder.message, Message::None);
        let is_aligned = request.va.is_multiple_of(8);
        if !idle || !packet.payload.is_empty() || !is_aligned || !self.config.access.allows(Access::REMOTE_ATOMIC) {
            return Err(INVALID);
        }
        // Nothing is executed whose result could not be kept.
        if !responder.resources.make_room() {
            return Err(INVALID);
        }
        let opcode = packet.headers.bth.opcode;
        let operation = match opcode {
            Opcode::RcCompareSwap => {
                AtomicOperation::CompareSwap { compare: request.compare, swap: request.swap_or_add }
            }
            _ => AtomicOperation::FetchAdd { add: request.swap_or_add },
        };
        let original = env.atomic(request.rkey, request.va, operation)?;
        let answer = Answer::Atomic { opcode, request, original };
        let packets = responder.resources.accept(responder.expected, answer, self.config.mtu);
        responder.msn = responder.msn.next();
        Ok(Outcome::Done(packets))
    }
}

/// A zero-length access needs no valid key (IBTA 9.7.4.1.4); one beyond a message's length is invalid whatever its key.
fn authorize<E: Env>(config: &Config, env: &E, reth: &Reth, access: Access) -> Result<(), Refusal> {
    if !config.access.allows(access) || reth.len > MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.len > 0 {
        env.authorize(reth.rkey, reth.va, reth.len.into(), access)?;
    }
    Ok(())
}

/// What became of a receive.
#[derive(Clone, Copy)]
struct Arrived {
    status: WcStatus,
    operation: Operation,
    len: u32,
    imm: Option<u32>,
    invalidated: Option<Rkey>,
    solicited: bool,
}

impl Arrived {
    const FLUSHED: Self = Self {
        status: WcStatus::WrFlushErr,
        operation: Operation::Recv,
        len: 0,
        imm: None,
        invalidated: None,
        solicited: true,
    };

    /// A message that this packet ended.
    fn of(packet: &Packet<'_>, operation: Operation, len: u32) -> Self {
        let Headers { bth, ext } = &packet.headers;
        let (imm, invalidated) = (ext.imm.map(|imm| imm.0), ext.ieth.map(|ieth| ieth.0));
        Self { status: WcStatus::Success, operation, len, imm, invalidated, solicited: bth.solicited }
    }

    fn completes<B>(self, receive: RecvRequest<B>) -> Completion<B> {
        let Self { status, operation, len, imm, invalidated, solicited } = self;
        let RecvRequest { wr_id, buffer, .. } = receive;
        Completion { wr_id, status, operation, len, imm, invalidated, solicited, signaled: true, buffer }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Send,
    Write,
    Read,
    Atomic,
}

#[derive(Clone, Copy)]
enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl Place {
    const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Which part of which kind of message a request opcode is.
struct Part {
    kind: Kind,
    place: Place,
}

impl Part {
    /// `None` for what is no request.
    fn of(opcode: Opcode) -> Option<Self> {
        let (kind, place) = match opcode {
            Opcode::RcSendFirst => (Kind::Send, Place::First),
            Opcode::RcSendMiddle => (Kind::Send, Place::Middle),
            Opcode::RcSendLast | Opcode::RcSendLastImm | Opcode::RcSendLastInvalidate => (Kind::Send, Place::Last),
            Opcode::RcSendOnly | Opcode::RcSendOnlyImm | Opcode::RcSendOnlyInvalidate => (Kind::Send, Place::Only),
            Opcode::RcWriteFirst => (Kind::Write, Place::First),
            Opcode::RcWriteMiddle => (Kind::Write, Place::Middle),
            Opcode::RcWriteLast | Opcode::RcWriteLastImm => (Kind::Write, Place::Last),
            Opcode::RcWriteOnly | Opcode::RcWriteOnlyImm => (Kind::Write, Place::Only),
            Opcode::RcReadRequest => (Kind::Read, Place::Only),
            Opcode::RcCompareSwap | Opcode::RcFetchAdd => (Kind::Atomic, Place::Only),
            _ => return None,
        };
        Some(Self { kind, place })
    }
}
