//! The responder: executes the peer's requests in order and exactly once, and answers (IBTA 9.7.5.1, 9.7.5.2).
//!
//! Answers are owed, not queued: whatever arrives, at most one acknowledgement is pending, and it speaks for
//! everything before it. Responses to READs and atomics go first, in the order of their PSNs, so that an acknowledgement never
//! overtakes them.

mod acknowledgement;
mod acknowledging;
mod whole;

pub(super) use acknowledgement::Owed;
pub use whole::Whole;

use std::collections::VecDeque;

use acknowledgement::Acknowledgement;

use super::congestion::{Algorithm, CongestionControl as _};
use super::quantum::HEADER_BYTES;
use super::recovery::{Held, PsnSet};
use super::requester::{MAX_MESSAGE, MAX_SPAN};
use super::resources::{FetchRequest, Resources, Response, ResponseBody};
use super::{
    AtomicOperation, Config, Denied, Dialect, Env, Operation, Payload, Quantum, RcCompletion, RcPostError, RcQueuePair,
    RecvRequest, Rejected, TxError, WcStatus,
};
use crate::in_place::push_in_place;
use crate::wire::{Aeth, AtomicAckEth, Headers, NakCode, Opcode, Packet, Reth};
use crate::{Access, Msn, Nanos, Psn, Rkey};

/// Nanoseconds that an acknowledgement waited here, at the end of its payload.
pub(super) const ECHO_LEN: usize = 4;

pub(super) struct Responder<B> {
    receives: VecDeque<RecvRequest<B>>,
    depth: usize,
    pub(super) expected: Psn,
    /// Packets that came early and are kept.
    pub(super) held: PsnSet,
    msn: Msn,
    message: CurrentMessage<B>,
    pub(super) acknowledgement: Acknowledgement,
    notification: Notification,
    pub(super) resources: Resources,
    /// Congestion control holds responses back until then.
    pub(super) paced_until: Option<Nanos>,
}

/// The message in progress.
enum CurrentMessage<B> {
    None,
    Send { receive: RecvRequest<B>, received: u32 },
    Write { rkey: Rkey, va: u64, remaining: u32, total: u32 },
}

/// Congestion notifications: a peer whose packets are marked hears of it, though not of every mark (IBTA A17.9.3).
#[derive(Default)]
struct Notification {
    /// The packet that was marked.
    owed: Option<Psn>,
    sent_at: Option<Nanos>,
}

/// A notification at most every so often, as NICs do.
const NOTIFY_EVERY_NS: Nanos = 50_000;
/// The body of a notification: reserved.
const NOTIFICATION: [u8; 16] = [0; 16];

/// Why a request is refused, and the status of the message in progress here.
#[derive(Clone, Copy)]
struct NakReason {
    code: NakCode,
    local: WcStatus,
}

const INVALID: NakReason = NakReason { code: NakCode::InvalidRequest, local: WcStatus::RemInvReqErr };
const TOO_LONG: NakReason = NakReason { code: NakCode::InvalidRequest, local: WcStatus::LocLenErr };

impl From<Denied> for NakReason {
    fn from(Denied: Denied) -> Self {
        Self { code: NakCode::RemoteAccess, local: WcStatus::LocAccessErr }
    }
}

/// How one request in order ended.
enum RequestOutcome {
    /// A packet of a SEND or a WRITE was executed.
    Done,
    /// A READ or an atomic was; its answers take this many PSNs.
    Fetched(u32),
    /// No receive is posted.
    NotReady,
}

impl<B> Responder<B> {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            receives: VecDeque::new(),
            depth: config.rq_depth,
            expected: config.rq_psn,
            held: PsnSet::new(config.rq_psn),
            msn: Msn::default(),
            message: CurrentMessage::None,
            acknowledgement: Acknowledgement::new(),
            notification: Notification::default(),
            resources: Resources::new(config.max_dest_rd_atomic),
            paced_until: None,
        }
    }

    pub(super) fn receives_posted(&self) -> usize {
        self.receives.len()
    }

    /// Completes the message in progress with `status` and flushes the posted receives. READs that were accepted
    /// are still answered: they come before whatever was refused.
    pub(super) fn flush<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        if let CurrentMessage::Send { receive, received } = std::mem::replace(&mut self.message, CurrentMessage::None) {
            env.complete(RcCompletion { status, len: received, ..receive.flushed() });
        }
        while let Some(receive) = self.receives.pop_front() {
            env.complete(receive.flushed());
        }
    }

    /// Asserts what holds between any two calls.
    pub(super) fn check(&self) {
        self.acknowledgement.check(self.expected);
        assert_eq!(self.held.base(), self.expected, "what is kept lies beyond the expected packet");
    }

    /// A packet was marked on its way.
    pub(super) fn owe_notification(&mut self, now: Nanos, psn: Psn) {
        let Notification { owed, sent_at } = &mut self.notification;
        if sent_at.is_none_or(|at| now.saturating_sub(at) >= NOTIFY_EVERY_NS) {
            *owed = Some(psn);
            *sent_at = Some(now);
        }
    }

    /// Queues a NAK which says that the fault is ours (remote operational error).
    pub(super) fn owe_operational_error(&mut self) {
        self.acknowledgement.owe(Owed::Nak(NakCode::RemoteOperational, self.expected));
    }

    /// Takes the receive for a message.
    fn take_receive<E: Env<Buffer = B>>(&mut self, config: &Config, env: &mut E) -> Option<RecvRequest<B>> {
        if config.shared_receives { env.take_shared_receive() } else { self.receives.pop_front() }
    }

    /// Counts a READ or an atomic among the messages, as IBTA does; see [`SendOp::counts_as_message`].
    fn count_fetch(&mut self, config: &Config) {
        if config.dialect == Dialect::Verbs {
            self.msn = self.msn.next();
        }
    }

    /// Puts a receive back that was taken for a message which is not to be.
    fn put_back<E: Env<Buffer = B>>(&mut self, receive: RecvRequest<B>, config: &Config, env: &mut E) {
        if config.shared_receives { env.return_shared_receive(receive) } else { self.receives.push_front(receive) }
    }

    /// Forgets the packets that are kept from `psn` on, up to `end`.
    pub(super) fn release_held<E: Env<Buffer = B>>(&mut self, mut psn: Psn, end: Psn, env: &mut E) -> u64 {
        let mut released = 0;
        while !self.held.is_empty() && psn.before(end) {
            if self.held.remove(psn) {
                env.release(Held::Request(psn.get()));
                released += 1;
            }
            psn = psn.plus(1);
        }
        released
    }

    /// Sends one response of a READ or an atomic.
    fn send_response<E: Env<Buffer = B>>(
        &mut self,
        response: &Response,
        config: &Config,
        env: &mut E,
    ) -> Result<usize, TxError> {
        let mut headers = Headers::plain(config.bth(self.opcode_of(response, config), response.psn));
        headers.ext.aeth = Some(Aeth { syndrome: self.ack_syndrome(config), msn: self.msn });
        let payload = match response.body {
            ResponseBody::Memory(Reth { len: 0, .. }) => Payload::None,
            ResponseBody::Memory(Reth { va, rkey, len }) => Payload::Remote { rkey, va, len: len as usize },
            ResponseBody::Original(original) => {
                headers.ext.atomic_ack = Some(AtomicAckEth { original });
                Payload::None
            }
        };
        let bytes = HEADER_BYTES + if let Payload::Remote { len, .. } = payload { len } else { 0 };
        env.transmit(&headers, payload)?;
        self.resources.sent();
        Ok(bytes)
    }

    /// Between two ends of ours all answers of a READ are MIDDLE, without an AETH, so that they are all of one length: sockets send and
    /// receive a run of such packets at once. An acknowledgement that is due goes with the FIRST or LAST that it is covered by.
    fn opcode_of(&self, response: &Response, config: &Config) -> Opcode {
        match response.opcode {
            Opcode::RcReadResponseFirst | Opcode::RcReadResponseLast
                if config.dialect == Dialect::Rocinante && !self.acknowledgement.wants_to_go_with(response.psn) =>
            {
                Opcode::RcReadResponseMiddle
            }
            opcode => opcode,
        }
    }

    /// A packet of a SEND or a WRITE was executed.
    fn executed(&mut self) {
        self.acknowledgement.executed(self.expected);
        self.expected = self.expected.plus(1);
    }

    /// A READ or an atomic was executed; its answers take `packets` PSNs.
    fn fetched(&mut self, packets: u32) {
        self.expected = self.expected.plus(packets);
        self.acknowledgement.fetched(self.expected);
    }

    /// A response acknowledges every request before its own. An acknowledgement of those that is still owed would only follow
    /// it, and where it overtakes a response on the way, rxe of Linux 6.12 takes it for the end of the READ.
    #[inline]
    fn acknowledged_by(&mut self, response: Psn) {
        if self.acknowledgement.is_covered_by(response) && self.held.is_empty() {
            self.acknowledgement.sent();
        }
    }
}

impl<B> RcQueuePair<B> {
    /// Posts a receive. Allowed from [`State::Init`](super::State::Init) on; in the error state it is flushed at the next pump.
    pub fn post_recv(&mut self, request: RecvRequest<B>) -> Result<(), Rejected<RecvRequest<B>>> {
        let responder = &mut self.responder;
        if !self.state.takes_receives() {
            return Err(Rejected { reason: RcPostError::State(self.state), request });
        }
        if self.config.shared_receives {
            return Err(Rejected { reason: RcPostError::SharedReceives, request });
        }
        if responder.receives.len() == responder.depth {
            return Err(Rejected { reason: RcPostError::QueueFull, request });
        }
        push_in_place(&mut responder.receives, || request);
        Ok(())
    }

    /// Whether responses to READs and atomics wait that may leave now.
    #[inline]
    pub fn owes_responses(&self) -> bool {
        !self.responder.resources.is_idle() && self.responder.paced_until.is_none()
    }

    /// Sends responses of READs and atomics, in the order of their PSNs, as far as pacing, the quantum and the link allow.
    pub fn pump_responses<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        quantum: &mut Quantum,
        env: &mut E,
    ) -> Result<(), TxError> {
        let is_paced = self.config.congestion == Algorithm::Dcqcn;
        self.responder.paced_until = None;
        while quantum.is_left() {
            let Some(response) = self.responder.resources.next_response(self.config.mtu) else { break };
            let release_at = if is_paced { self.requester.congestion.release_at() } else { 0 };
            if release_at > now {
                self.responder.paced_until = Some(release_at);
                break;
            }
            match self.responder.send_response(&response, &self.config, env) {
                Ok(bytes) => {
                    self.stats.tx_read_responses += 1;
                    self.responder.acknowledged_by(response.psn);
                    quantum.spend(bytes);
                    if is_paced {
                        self.requester.congestion.on_sent(now, bytes);
                    }
                }
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

    /// [`RcQueuePair::pump_responses`], and then the acknowledgement that they may have kept back.
    pub fn pump_replies<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        quantum: &mut Quantum,
        env: &mut E,
    ) -> Result<(), TxError> {
        self.pump_responses(now, quantum, env)?;
        self.pump_acknowledgement(now, env)
    }

    pub(super) fn on_request<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        let distance = packet.headers.bth.psn.since(self.responder.expected);
        if distance == 0 {
            return self.on_expected(now, packet, env);
        }
        if distance < 0 {
            self.on_duplicate(packet);
            return false;
        }
        self.stats.out_of_sequence += 1;
        if self.is_selective() {
            return self.on_early_request(packet, env);
        }
        self.responder.acknowledgement.owe_nak(Owed::Nak(NakCode::PsnSequence, self.responder.expected));
        false
    }

    #[cold]
    fn on_duplicate(&mut self, packet: &Packet<'_>) {
        self.stats.duplicate_request += 1;
        let bth = &packet.headers.bth;
        let responder = &mut self.responder;
        match bth.opcode {
            Opcode::RcReadRequest | Opcode::RcCompareSwap | Opcode::RcFetchAdd => {
                let replayed = responder.resources.replay(&packet.headers, self.config.mtu);
                self.stats.duplicate_dropped += u64::from(!replayed);
            }
            // The peer has not received the acknowledgement: this is worth one of its own.
            _ => responder.acknowledgement.owe_again(),
        }
    }

    /// A good packet whose opcode means nothing: where it is the next one, the peer asks for what cannot be done (IBTA
    /// 9.7.4.1.2: reserved opcodes are invalid requests).
    pub fn on_unknown_opcode<E: Env<Buffer = B>>(&mut self, psn: Psn, env: &mut E) {
        if self.state.accepts_requests() && psn == self.responder.expected {
            self.refuse(INVALID, psn, env);
        }
    }

    fn on_expected<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        match self.execute(packet, env) {
            Ok(RequestOutcome::Done) => {
                self.responder.executed();
                self.settle_expected(now, env);
                let ends_message = matches!(self.responder.message, CurrentMessage::None);
                self.responder.acknowledgement.owe_ack(packet.headers.bth.ack_req, ends_message);
                true
            }
            Ok(RequestOutcome::Fetched(packets)) => {
                self.responder.fetched(packets);
                self.settle_expected(now, env);
                true
            }
            Ok(RequestOutcome::NotReady) => {
                self.stats.out_of_buffer += 1;
                self.responder.acknowledgement.owe_rnr();
                false
            }
            Err(refusal) if !self.looks_at_held => {
                self.refuse(refusal, self.responder.expected, env);
                false
            }
            Err(_) => {
                self.forget_held_request(env);
                false
            }
        }
    }

    /// The expected packet was executed, and another is expected now.
    #[inline]
    fn settle_expected<E: Env<Buffer = B>>(&mut self, now: Nanos, env: &mut E) {
        self.stats.rx_requests += 1;
        let responder = &mut self.responder;
        if !responder.held.is_empty() {
            // A READ's answers have PSNs that no request can have: what was kept under them is no good.
            self.stats.rx_held_conflicts += responder.release_held(responder.held.base(), responder.expected, env);
        }
        responder.held.advance_to(responder.expected);
        responder.acknowledgement.settle(now);
    }

    /// A packet that was kept would be refused: as if it had never come, and the genuine one were missing.
    #[cold]
    fn forget_held_request<E: Env<Buffer = B>>(&mut self, env: &mut E) {
        self.stats.rx_held_refused += 1;
        let responder = &mut self.responder;
        // A receive that nothing was placed in was taken by this very packet; a message that has begun goes on.
        if matches!(responder.message, CurrentMessage::Send { received: 0, .. })
            && let CurrentMessage::Send { receive, .. } =
                std::mem::replace(&mut responder.message, CurrentMessage::None)
        {
            responder.put_back(receive, &self.config, env);
        }
        responder.acknowledgement.owe(Owed::Nak(NakCode::PsnSequence, responder.expected));
    }

    /// Answers packet `psn` with a fatal NAK and goes to the error state.
    fn refuse<E: Env<Buffer = B>>(&mut self, refusal: NakReason, psn: Psn, env: &mut E) {
        match refusal.code {
            NakCode::RemoteAccess => self.stats.resp_remote_access_errors += 1,
            _ => self.stats.resp_invalid_request += 1,
        }
        self.responder.acknowledgement.owe(Owed::Nak(refusal.code, psn));
        self.fail_responder(refusal.local, env);
    }

    fn execute<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) -> Result<RequestOutcome, NakReason> {
        let opcode = packet.headers.bth.opcode;
        let part = RequestPart::of(opcode).ok_or(INVALID)?;
        let full = self.config.mtu.bytes();
        let fits = match part.place {
            RequestPosition::First | RequestPosition::Middle => packet.payload.len() == full,
            RequestPosition::Last => (1..=full).contains(&packet.payload.len()),
            RequestPosition::Only => packet.payload.len() <= full,
        };
        if !fits {
            return Err(INVALID);
        }
        match part.kind {
            RequestKind::Send => self.execute_send(packet, part.place, env),
            RequestKind::Write => self.execute_write(packet, part.place, env),
            RequestKind::Read => self.execute_read(packet, env),
            RequestKind::Atomic => self.execute_atomic(packet, env),
        }
    }

    fn execute_send<E: Env<Buffer = B>>(
        &mut self,
        packet: &Packet<'_>,
        place: RequestPosition,
        env: &mut E,
    ) -> Result<RequestOutcome, NakReason> {
        let responder = &mut self.responder;
        if place.starts() != matches!(responder.message, CurrentMessage::None) {
            return Err(INVALID);
        }
        if place.starts() {
            let Some(receive) = responder.take_receive(&self.config, env) else { return Ok(RequestOutcome::NotReady) };
            responder.message = CurrentMessage::Send { receive, received: 0 };
        }
        let CurrentMessage::Send { receive, received } = &mut responder.message else { return Err(INVALID) };
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
            if let CurrentMessage::Send { receive, received } =
                std::mem::replace(&mut responder.message, CurrentMessage::None)
            {
                env.complete(ReceiveResult::of(packet, Operation::Recv, received).completes(receive));
            }
        }
        Ok(RequestOutcome::Done)
    }

    fn execute_write<E: Env<Buffer = B>>(
        &mut self,
        packet: &Packet<'_>,
        place: RequestPosition,
        env: &mut E,
    ) -> Result<RequestOutcome, NakReason> {
        let responder = &mut self.responder;
        if place.starts() != matches!(responder.message, CurrentMessage::None) {
            return Err(INVALID);
        }
        let (rkey, va, remaining, total) = match (&responder.message, packet.headers.ext.reth) {
            (CurrentMessage::None, Some(reth)) => {
                authorize(&self.config, env, &reth, Access::REMOTE_WRITE)?;
                (reth.rkey, reth.va, reth.len, reth.len)
            }
            (&CurrentMessage::Write { rkey, va, remaining, total }, None) => (rkey, va, remaining, total),
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
                None => return Ok(RequestOutcome::NotReady),
                receive => receive,
            },
        };
        if len > 0
            && let Err(denied) = env.place_remote(rkey, va, packet.payload)
        {
            if let Some(receive) = receive {
                responder.put_back(receive, &self.config, env);
            }
            return Err(denied.into());
        }
        responder.message =
            CurrentMessage::Write { rkey, va: va.wrapping_add(len.into()), remaining: remaining - len, total };
        if place.ends() {
            responder.msn = responder.msn.next();
            responder.message = CurrentMessage::None;
            if let Some(receive) = receive {
                env.complete(ReceiveResult::of(packet, Operation::RecvRdmaWithImm, total).completes(receive));
            }
        }
        Ok(RequestOutcome::Done)
    }

    fn execute_read<E: Env<Buffer = B>>(
        &mut self,
        packet: &Packet<'_>,
        env: &mut E,
    ) -> Result<RequestOutcome, NakReason> {
        let responder = &mut self.responder;
        let Some(reth) = packet.headers.ext.reth else { return Err(INVALID) };
        let idle = matches!(responder.message, CurrentMessage::None);
        // Its answers may not reach half around all PSNs, or the next one would lie in the past.
        if !idle || !packet.payload.is_empty() || self.config.mtu.packets(reth.len) > MAX_SPAN {
            return Err(INVALID);
        }
        authorize(&self.config, env, &reth, Access::REMOTE_READ)?;
        if !responder.resources.make_room() {
            return Err(INVALID);
        }
        let packets = responder.resources.accept(responder.expected, FetchRequest::Read(reth), self.config.mtu);
        responder.count_fetch(&self.config);
        Ok(RequestOutcome::Fetched(packets))
    }

    fn execute_atomic<E: Env<Buffer = B>>(
        &mut self,
        packet: &Packet<'_>,
        env: &mut E,
    ) -> Result<RequestOutcome, NakReason> {
        let responder = &mut self.responder;
        let Some(request) = packet.headers.ext.atomic else { return Err(INVALID) };
        let idle = matches!(responder.message, CurrentMessage::None);
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
        let answer = FetchRequest::Atomic { opcode, request, original };
        let packets = responder.resources.accept(responder.expected, answer, self.config.mtu);
        responder.count_fetch(&self.config);
        Ok(RequestOutcome::Fetched(packets))
    }
}

/// A zero-length access needs no valid key (IBTA 9.7.4.1.4); one beyond a message's length is invalid whatever its key.
fn authorize<E: Env>(config: &Config, env: &E, reth: &Reth, access: Access) -> Result<(), NakReason> {
    if !config.access.allows(access) || reth.len > MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.len > 0 {
        env.authorize(reth.rkey, reth.va, reth.len.into(), access)?;
    }
    Ok(())
}

/// The result of a receive, for its completion.
#[derive(Clone, Copy)]
struct ReceiveResult {
    status: WcStatus,
    operation: Operation,
    len: u32,
    imm: Option<u32>,
    invalidated: Option<Rkey>,
    solicited: bool,
}

impl ReceiveResult {
    /// A message that this packet ended.
    fn of(packet: &Packet<'_>, operation: Operation, len: u32) -> Self {
        let Headers { bth, ext } = &packet.headers;
        let (imm, invalidated) = (ext.imm.map(|imm| imm.0), ext.ieth.map(|ieth| ieth.0));
        Self { status: WcStatus::Success, operation, len, imm, invalidated, solicited: bth.solicited }
    }

    fn completes<B>(self, receive: RecvRequest<B>) -> RcCompletion<B> {
        let Self { status, operation, len, imm, invalidated, solicited } = self;
        let RecvRequest { wr_id, buffer, .. } = receive;
        RcCompletion { wr_id, status, operation, len, imm, invalidated, solicited, signaled: true, buffer }
    }
}

/// The kind of message that a request opcode is of.
#[derive(Clone, Copy)]
enum RequestKind {
    Send,
    Write,
    Read,
    Atomic,
}

/// The position of a request packet in its message.
#[derive(Clone, Copy)]
enum RequestPosition {
    First,
    Middle,
    Last,
    Only,
}

impl RequestPosition {
    const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Which part of which kind of message a request opcode is.
struct RequestPart {
    kind: RequestKind,
    place: RequestPosition,
}

impl RequestPart {
    /// `None` for what is no request.
    fn of(opcode: Opcode) -> Option<Self> {
        let (kind, place) = match opcode {
            Opcode::RcSendFirst => (RequestKind::Send, RequestPosition::First),
            Opcode::RcSendMiddle => (RequestKind::Send, RequestPosition::Middle),
            Opcode::RcSendLast | Opcode::RcSendLastImm | Opcode::RcSendLastInvalidate => {
                (RequestKind::Send, RequestPosition::Last)
            }
            Opcode::RcSendOnly | Opcode::RcSendOnlyImm | Opcode::RcSendOnlyInvalidate => {
                (RequestKind::Send, RequestPosition::Only)
            }
            Opcode::RcWriteFirst => (RequestKind::Write, RequestPosition::First),
            Opcode::RcWriteMiddle => (RequestKind::Write, RequestPosition::Middle),
            Opcode::RcWriteLast | Opcode::RcWriteLastImm => (RequestKind::Write, RequestPosition::Last),
            Opcode::RcWriteOnly | Opcode::RcWriteOnlyImm => (RequestKind::Write, RequestPosition::Only),
            Opcode::RcReadRequest => (RequestKind::Read, RequestPosition::Only),
            Opcode::RcCompareSwap | Opcode::RcFetchAdd => (RequestKind::Atomic, RequestPosition::Only),
            _ => return None,
        };
        Some(Self { kind, place })
    }
}
