//! The completer (rxe's and IBTA's word for the requester's receiving half, IBTA 9.7.5): acts on ACKs, NAKs, RNR NAKs and
//! responses of READs and atomics.

use super::congestion::CongestionControl as _;
use super::requester::{Requester, Wqe};
use super::responder::ECHO_LEN;
use super::{Dialect, Env, RECENT, RcQueuePair, SendOp, WcStatus, rnr_timer_ns};
use crate::wire::{Aeth, AtomicAckEth, Bth, NakCode, Opcode, Packet, Syndrome};
use crate::{Msn, Mtu, Nanos, Psn};

impl<B> RcQueuePair<B> {
    pub(super) fn on_response<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        let psn = packet.headers.bth.psn;
        if !psn.before(self.requester.window.sent()) && !self.reports_all_executed(packet) {
            self.stats.ghost_ack += 1;
            return false;
        }
        // What the peer waited with another answer is no part of this one's round trip.
        self.requester.rtt.forget_peer_delay();
        match (packet.headers.bth.opcode, packet.headers.ext.aeth) {
            (Opcode::RcAck, Some(aeth)) if packet.payload.is_empty() || self.is_selective() => {
                return self.on_ack(now, psn, aeth, packet.payload, env);
            }
            (Opcode::RcAck, _) => self.stats.bad_response += 1,
            (_, None) => return self.on_fetch_response(now, packet, env),
            (_, Some(Aeth { syndrome: Syndrome::Ack { credit }, msn })) => {
                self.requester.credits.hear(msn, credit);
                return self.on_fetch_response(now, packet, env);
            }
            (_, Some(_)) => self.stats.bad_response += 1,
        }
        false
    }

    /// Whether the peer reports a gap behind all that was sent: it has executed everything, and keeps a packet of the future
    /// that somebody else has forged.
    #[cold]
    fn reports_all_executed(&self, packet: &Packet<'_>) -> bool {
        let is_gap = packet.headers.ext.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::Nak(NakCode::PsnSequence));
        self.is_selective() && is_gap && packet.headers.bth.psn == self.requester.window.sent()
    }

    fn on_ack<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, aeth: Aeth, payload: &[u8], env: &mut E) -> bool {
        if psn.before(self.requester.window.una()) {
            self.stats.stale_ack += 1;
            // A receive may have been posted since: the news of it has no younger PSN to come with.
            if let Syndrome::Ack { credit } = aeth.syndrome
                && self.requester.window.una().since(psn) <= RECENT
            {
                self.requester.credits.hear(aeth.msn, credit);
            }
            return false;
        }
        let map = if payload.is_empty() { payload } else { self.requester.hear_payload(payload) };
        match aeth.syndrome {
            Syndrome::Ack { credit } => self.on_positive_ack(now, psn, (aeth.msn, credit), env),
            Syndrome::Rnr { timer } => self.on_rnr(now, psn, timer, env),
            Syndrome::Nak(NakCode::PsnSequence) if self.is_selective() => {
                self.stats.packet_seq_err += 1;
                // It advertises no credits, but each message that was executed had its receive.
                self.requester.credits.hear(aeth.msn, 0);
                self.on_sack(now, psn, map, env);
            }
            Syndrome::Nak(NakCode::PsnSequence) => self.on_sequence_nak(now, psn, env),
            Syndrome::Nak(code) => self.on_fatal_nak(now, psn, code, env),
            Syndrome::Reserved(_) => {
                self.stats.bad_response += 1;
                return false;
            }
        }
        true
    }

    /// Everything up to `psn` has arrived at the peer, which keeps nothing beyond.
    pub(super) fn on_positive_ack<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        psn: Psn,
        (msn, credit): (Msn, u8),
        env: &mut E,
    ) {
        self.requester.credits.hear(msn, credit);
        if self.is_selective() {
            self.acknowledge_selectively(now, psn.plus(1), env);
            self.requester.retries.on_answer();
            let una = self.requester.window.una();
            self.requester.scoreboard.nothing_is_kept(una);
        } else {
            self.acknowledge(now, psn.plus(1), env);
        }
    }

    /// Everything before `end` has arrived at the peer: completes what can be, and returns whether all of it
    /// could. A READ or an atomic without its response stops it: that is a NAK implied (IBTA 9.7.5.1.1).
    fn acknowledge<E: Env<Buffer = B>>(&mut self, now: Nanos, end: Psn, env: &mut E) -> bool {
        if self.is_selective() {
            self.acknowledge_selectively(now, end, env);
            return true;
        }
        let requester = &mut self.requester;
        let before = requester.window.una();
        let mut missing = None;
        while let Some(wqe) = requester.queue.front() {
            if !wqe.first.before(end) {
                break;
            }
            if wqe.is_fetch() {
                missing = Some(wqe.first.plus(wqe.received));
                break;
            }
            if end.before(wqe.end()) {
                requester.advance_una(end);
                break;
            }
            let done = wqe.end();
            requester.advance_una(done);
            requester.queue.pop().request.succeed(env);
        }
        if let Some(psn) = missing.filter(|psn| requester.window.una().before(*psn)) {
            requester.advance_una(psn);
        }
        requester.catch_up();
        if requester.window.una() != before {
            self.progressed(now, before);
        }
        let Some(psn) = missing else { return true };
        self.reread(psn);
        false
    }

    /// Asks again for a READ or an atomic whose responses from `psn` on are missing: `false` where that was done before.
    fn reread(&mut self, psn: Psn) -> bool {
        let is_new_gap = self.requester.reread(psn);
        self.stats.implied_nak_seq_err += u64::from(is_new_gap);
        is_new_gap
    }

    fn on_sequence_nak<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, env: &mut E) {
        self.stats.packet_seq_err += 1;
        if !self.acknowledge(now, psn, env) {
            return;
        }
        if self.requester.retries.spend(&self.config) {
            self.requester.rewind(psn);
            self.requester.restart_timer(now, &self.config);
        } else {
            self.stats.retry_exceeded_err += 1;
            self.fail(WcStatus::RetryExcErr, env);
        }
    }

    fn on_rnr<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, timer: u8, env: &mut E) {
        self.stats.rnr_nak += 1;
        if !self.acknowledge(now, psn, env) {
            return;
        }
        // One for each transmission: while it waits nothing was sent that could be refused again.
        if self.requester.rnr.holds_back(psn) {
            return;
        }
        // It answers, so it is not silent.
        self.requester.retries.restore();
        if self.requester.rnr.spend(psn, now + rnr_timer_ns(timer), &self.config) {
            if !self.is_selective() {
                self.requester.rewind(psn);
            }
        } else {
            self.stats.rnr_nak_retry_err += 1;
            self.fail(WcStatus::RnrRetryExcErr, env);
        }
    }

    fn on_fatal_nak<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, code: NakCode, env: &mut E) {
        // A READ before the refused request may never be answered now: it is the one that fails.
        self.acknowledge(now, psn, env);
        self.stats.remote_errors += 1;
        let status = match code {
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
            _ => WcStatus::RemInvReqErr,
        };
        self.fail(status, env);
    }

    fn on_fetch_response<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        let psn = packet.headers.bth.psn;
        if psn.before(self.requester.window.una()) {
            self.stats.stale_response += 1;
            return false;
        }
        if self.is_selective() {
            return self.on_response_selectively(now, packet, env);
        }
        let Some(fetch) = self.requester.queue.oldest_fetch() else {
            self.stats.stale_response += 1;
            return false;
        };
        let first = fetch.first;
        if psn.before(first.plus(fetch.received)) {
            self.stats.stale_response += 1;
            return false;
        }
        // A response acknowledges every request before its own.
        self.acknowledge_before(now, first, env);
        let expected = first.plus(self.requester.queue[0].received);
        if psn != expected {
            let is_new_gap = self.reread(expected);
            self.stats.stale_response += u64::from(!is_new_gap);
            return false;
        }
        if !self.begins_as_asked(packet) {
            self.stats.stale_response += 1;
            return false;
        }
        self.place_response(now, packet, env)
    }

    /// Whether a READ response begins a run of answers where one was asked for (IBTA 9.7.5.1.6: FIRST or ONLY comes first,
    /// MIDDLE and LAST follow). Where a READ is asked for again from its middle, rxe goes on with MIDDLE.
    fn begins_as_asked(&self, packet: &Packet<'_>) -> bool {
        let Bth { opcode, psn, .. } = packet.headers.bth;
        let wqe = &self.requester.queue[0];
        match opcode {
            Opcode::RcReadResponseFirst | Opcode::RcReadResponseOnly => {
                psn == wqe.first || self.requester.fetches.is_reread_from(psn)
            }
            Opcode::RcReadResponseMiddle | Opcode::RcReadResponseLast => wqe.received > 0,
            _ => true,
        }
    }

    fn acknowledge_before<E: Env<Buffer = B>>(&mut self, now: Nanos, first: Psn, env: &mut E) {
        if self.requester.window.una().before(first) {
            let complete = self.acknowledge(now, first, env);
            assert!(complete, "nothing that is answered by data stands before the first such request");
        }
    }

    /// Takes the response that the oldest request, a READ or an atomic, waits for.
    pub(super) fn place_response<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        let wqe = self.requester.queue.front_mut();
        let is_placed = match (wqe.request.op, packet.headers.ext.atomic_ack) {
            (SendOp::Atomic { .. }, Some(AtomicAckEth { original })) if packet.payload.is_empty() => {
                env.place(&mut wqe.request.buffer, 0, &original.to_ne_bytes());
                true
            }
            (SendOp::Read { .. }, None) => {
                let is_part = self.config.dialect == Dialect::Rocinante;
                place_read(wqe, packet, self.config.mtu, is_part, env)
            }
            _ => false,
        };
        if !is_placed {
            self.stats.bad_response += 1;
            if self.looks_at_held {
                self.forget_held_response();
            } else {
                self.fail(WcStatus::BadRespErr, env);
            }
            return false;
        }
        let requester = &mut self.requester;
        let before = requester.window.una();
        let wqe = requester.queue.front_mut();
        wqe.received += 1;
        let (una, is_whole) = (wqe.first.plus(wqe.received), wqe.received == wqe.packets);
        requester.advance_una(una);
        if is_whole {
            let wqe = requester.queue.pop();
            env.complete(wqe.request.ended(WcStatus::Success));
        }
        requester.catch_up();
        self.progressed(now, before);
        true
    }

    /// The oldest packet was `before`, and is another now.
    pub(super) fn progressed(&mut self, now: Nanos, before: Psn) {
        let requester = &mut self.requester;
        let packets = requester.window.una().since(before) as u32;
        let sample = requester.rtt.acknowledged(requester.window.una(), now);
        requester.congestion.on_acknowledged(now, packets, sample);
        requester.progressed(now, &self.config);
    }

    #[inline]
    pub(super) fn is_selective(&self) -> bool {
        self.config.dialect == Dialect::Rocinante
    }
}

impl<B> Requester<B> {
    /// What an acknowledgement between two ends of ours carries: a map in words of 8 bytes, which is returned, and how long
    /// the peer waited with its answer, in 4 bytes of nanoseconds. Either may be missing.
    #[cold]
    fn hear_payload<'a>(&mut self, payload: &'a [u8]) -> &'a [u8] {
        match payload.split_last_chunk() {
            Some((map, delay)) if payload.len() % 8 == ECHO_LEN => {
                self.rtt.hear_peer_delay(u32::from_be_bytes(*delay).into());
                map
            }
            _ => payload,
        }
    }
}

/// Places a READ response; `false` where its length or its place in the message is wrong. A part that was asked for
/// again ends where that part does.
fn place_read<E: Env>(wqe: &mut Wqe<E::Buffer>, packet: &Packet<'_>, mtu: Mtu, is_part: bool, env: &mut E) -> bool {
    let offset = (wqe.received as usize) << mtu.shift();
    let len = (wqe.request.len as usize - offset).min(mtu.bytes());
    let is_last = wqe.received + 1 == wqe.packets;
    let fits = packet.payload.len() == len && (is_part || ends_read(packet.headers.bth.opcode) == is_last);
    if fits {
        env.place(&mut wqe.request.buffer, offset, packet.payload);
    }
    fits
}

fn ends_read(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::RcReadResponseLast | Opcode::RcReadResponseOnly)
}
