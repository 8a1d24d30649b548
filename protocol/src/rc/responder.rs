//! The responder: executes the peer's requests in order and exactly once, and answers (IBTA 9.7.5.1, 9.7.5.2).
//!
//! Answers are owed, not queued: whatever arrives, at most one acknowledgement is pending, and it speaks for
//! everything before it. READ responses go first, in the order of their PSNs, so that an acknowledgement never
//! overtakes them.

use std::collections::VecDeque;

use super::reads::{Reads, Response};
use super::{
    Completion, Config, Denied, Env, Operation, Payload, PostError, QueuePair, RecvRequest, Rejected, TxError, WcStatus,
};
use crate::wire::{Aeth, Bth, Extensions, Headers, NakCode, Opcode, Packet, Reth, Syndrome, aeth};
use crate::{Access, Msn, Psn, Rkey};

/// READ responses that one call sends before others get their turn.
const RESPONSES_PER_PUMP: usize = 64;

pub(super) struct Responder<B> {
    receives: VecDeque<RecvRequest<B>>,
    depth: usize,
    expected: Psn,
    msn: Msn,
    message: Message<B>,
    owed: Owed,
    /// Packets executed since the last acknowledgement.
    unacknowledged: u32,
    /// A gap or an RNR was reported; nothing more is said until the expected packet comes.
    nak_sent: bool,
    pub(super) reads: Reads,
}

/// The message in progress.
enum Message<B> {
    None,
    Send { receive: RecvRequest<B>, received: u32 },
    Write { rkey: Rkey, va: u64, remaining: u32, total: u32 },
}

/// What the next acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owed {
    Nothing,
    Ack,
    Rnr,
    /// The packet that was refused, or that is missing.
    Nak(NakCode, Psn),
}

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
            msn: Msn::default(),
            message: Message::None,
            owed: Owed::Nothing,
            unacknowledged: 0,
            nak_sent: false,
            reads: Reads::new(config.max_dest_rd_atomic),
        }
    }

    pub(super) fn receives_posted(&self) -> usize {
        self.receives.len()
    }

    /// Completes the message in progress with `status` and flushes the posted receives. READs that were accepted
    /// are still answered: they come before whatever was refused.
    pub(super) fn flush<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        if let Message::Send { receive, received } = std::mem::replace(&mut self.message, Message::None) {
            env.complete(recv_completion(receive, status, Operation::Recv, received, None));
        }
        while let Some(receive) = self.receives.pop_front() {
            env.complete(recv_completion(receive, WcStatus::WrFlushErr, Operation::Recv, 0, None));
        }
    }

    fn owe_nak(&mut self, owed: Owed) {
        if !self.nak_sent {
            self.nak_sent = true;
            self.owed = owed;
        }
    }

    /// The syndrome of an acknowledgement: receives posted, rounded down to a code (IBTA table 44).
    fn ack_syndrome(&self) -> Syndrome {
        Syndrome::Ack { credit: credit_code(self.receives.len()) }
    }

    /// Sends one READ response.
    fn send_response<E: Env<Buffer = B>>(
        &mut self,
        response: &Response,
        config: &Config,
        env: &mut E,
    ) -> Result<(), TxError> {
        let mut headers = Headers::plain(Bth::new(response.opcode, config.dest_qpn, response.psn));
        headers.ext.aeth = Some(Aeth { syndrome: self.ack_syndrome(), msn: self.msn });
        let Reth { va, rkey, len } = response.source;
        let payload = match len {
            0 => Payload::None,
            _ => Payload::Remote { rkey, va, len: len as usize },
        };
        env.transmit(&headers, payload)?;
        self.reads.sent();
        Ok(())
    }

    /// Sends the acknowledgement that is owed.
    fn send_owed<E: Env<Buffer = B>>(&mut self, config: &Config, env: &mut E) -> Result<(), TxError> {
        let (syndrome, psn) = match self.owed {
            Owed::Nothing => return Ok(()),
            Owed::Ack => (self.ack_syndrome(), self.expected.previous()),
            Owed::Rnr => (Syndrome::Rnr { timer: config.min_rnr_timer }, self.expected),
            Owed::Nak(code, psn) => (Syndrome::Nak(code), psn),
        };
        let ext = Extensions { aeth: Some(Aeth { syndrome, msn: self.msn }), ..Extensions::default() };
        env.transmit(&Headers { bth: Bth::new(Opcode::RcAck, config.dest_qpn, psn), ext }, Payload::None)?;
        self.owed = Owed::Nothing;
        self.unacknowledged = 0;
        Ok(())
    }
}

impl<B> QueuePair<B> {
    /// Posts a receive. Allowed from [`super::State::Init`] on.
    pub fn post_recv(&mut self, request: RecvRequest<B>) -> Result<(), Rejected<RecvRequest<B>>> {
        let responder = &mut self.responder;
        if !self.state.takes_receives() {
            return Err(Rejected { reason: PostError::State(self.state), request });
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
        !responder.reads.is_idle()
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
        for _ in 0..RESPONSES_PER_PUMP {
            let Some(response) = self.responder.reads.next_response(self.config.mtu) else {
                let owed = self.responder.owed != Owed::Nothing;
                self.responder.send_owed(&self.config, env)?;
                self.stats.tx_acks += u64::from(owed);
                return Ok(());
            };
            match self.responder.send_response(&response, &self.config, env) {
                Ok(()) => self.stats.tx_read_responses += 1,
                Err(TxError::Busy) => return Err(TxError::Busy),
                // The owner may have ended the region once the peer had all of it: a late duplicate is no offence.
                Err(TxError::Denied) if self.responder.reads.drop_replay() => self.stats.duplicate_dropped += 1,
                Err(TxError::Denied) => {
                    self.responder.reads.drop_all();
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
        match (bth.opcode, &packet.headers.ext.reth) {
            (Opcode::RcReadRequest, Some(reth)) => {
                let replayed = responder.reads.replay(bth.psn, reth, self.config.mtu);
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
        match self.execute(packet, env) {
            Ok(Outcome::Done(packets)) => {
                self.stats.rx_requests += 1;
                let responder = &mut self.responder;
                responder.expected = responder.expected.plus(packets);
                responder.nak_sent = false;
                responder.unacknowledged = responder.unacknowledged.saturating_add(1);
                // The gap that an earlier NAK would have reported is closed.
                if packet.headers.bth.ack_req || responder.owed != Owed::Nothing {
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
            let Some(receive) = responder.receives.pop_front() else { return Ok(Outcome::NotReady) };
            responder.message = Message::Send { receive, received: 0 };
        }
        let Message::Send { receive, received } = &mut responder.message else { return Err(INVALID) };
        if packet.payload.len() > (receive.len - *received) as usize {
            return Err(TOO_LONG);
        }
        env.place(&mut receive.buffer, *received as usize, packet.payload);
        *received += packet.payload.len() as u32;
        if place.ends() {
            responder.msn = responder.msn.next();
            if let Message::Send { receive, received } = std::mem::replace(&mut responder.message, Message::None) {
                let imm = packet.headers.ext.imm.map(|imm| imm.0);
                env.complete(recv_completion(receive, WcStatus::Success, Operation::Recv, received, imm));
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
        let imm = packet.headers.ext.imm;
        if imm.is_some() && responder.receives.is_empty() {
            return Ok(Outcome::NotReady);
        }
        if len > 0 {
            env.place_remote(rkey, va, packet.payload)?;
        }
        responder.message = Message::Write { rkey, va: va.wrapping_add(len.into()), remaining: remaining - len, total };
        if place.ends() {
            responder.msn = responder.msn.next();
            responder.message = Message::None;
            if let Some(receive) = imm.and_then(|_| responder.receives.pop_front()) {
                let imm = imm.map(|imm| imm.0);
                env.complete(recv_completion(receive, WcStatus::Success, Operation::RecvRdmaWithImm, total, imm));
            }
        }
        Ok(Outcome::Done(1))
    }

    fn execute_read<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) -> Result<Outcome, Refusal> {
        let responder = &mut self.responder;
        let Some(reth) = packet.headers.ext.reth else { return Err(INVALID) };
        let idle = matches!(responder.message, Message::None);
        if !idle || !packet.payload.is_empty() || reth.len > 1 << 31 {
            return Err(INVALID);
        }
        authorize(&self.config, env, &reth, Access::REMOTE_READ)?;
        let packets = responder.reads.accept(responder.expected, reth, self.config.mtu).ok_or(INVALID)?;
        responder.msn = responder.msn.next();
        Ok(Outcome::Done(packets))
    }
}

/// A zero-length access needs no valid key (IBTA 9.7.4.1.4).
fn authorize<E: Env>(config: &Config, env: &E, reth: &Reth, access: Access) -> Result<(), Refusal> {
    if !config.access.allows(access) {
        return Err(INVALID);
    }
    if reth.len > 0 {
        env.authorize(reth.rkey, reth.va, reth.len.into(), access)?;
    }
    Ok(())
}

fn recv_completion<B>(
    receive: RecvRequest<B>,
    status: WcStatus,
    operation: Operation,
    len: u32,
    imm: Option<u32>,
) -> Completion<B> {
    Completion { wr_id: receive.wr_id, status, operation, len, imm, signaled: true, buffer: receive.buffer }
}

#[derive(Clone, Copy)]
enum Kind {
    Send,
    Write,
    Read,
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
    /// `None` for requests that this responder does not execute (atomics, SEND with invalidate).
    fn of(opcode: Opcode) -> Option<Self> {
        let (kind, place) = match opcode {
            Opcode::RcSendFirst => (Kind::Send, Place::First),
            Opcode::RcSendMiddle => (Kind::Send, Place::Middle),
            Opcode::RcSendLast | Opcode::RcSendLastImm => (Kind::Send, Place::Last),
            Opcode::RcSendOnly | Opcode::RcSendOnlyImm => (Kind::Send, Place::Only),
            Opcode::RcWriteFirst => (Kind::Write, Place::First),
            Opcode::RcWriteMiddle => (Kind::Write, Place::Middle),
            Opcode::RcWriteLast | Opcode::RcWriteLastImm => (Kind::Write, Place::Last),
            Opcode::RcWriteOnly | Opcode::RcWriteOnlyImm => (Kind::Write, Place::Only),
            Opcode::RcReadRequest => (Kind::Read, Place::Only),
            _ => return None,
        };
        Some(Self { kind, place })
    }
}

/// The largest credit code that does not promise more than `receives` (IBTA table 44).
fn credit_code(receives: usize) -> u8 {
    const CODES: [usize; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
        6144, 8192, 12_288, 16_384, 24_576, 32_768,
    ];
    const { assert!(CODES.len() == aeth::CREDIT_UNLIMITED as usize) };
    (CODES.partition_point(|&count| count <= receives) - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::credit_code;

    #[test]
    fn credit_codes_round_down() {
        assert_eq!([0, 1, 5, 6, 7, 32_767, 1 << 20].map(credit_code), [0, 1, 4, 5, 5, 29, 30]);
    }
}
