//! Selective repeat: what two peers of this stack do instead of go-back-N, once both have said that they can.
//!
//! A responder keeps packets that come early and reports the gap with a map of what it keeps; a requester keeps READ
//! responses that come early. Both are given to the machine again, in order, when the gap is closed
//! ([`QueuePair::take_held`]), so that everything else works on packets in order as ever. The requester sends again what
//! is missing and nothing else, each packet once a round trip. The shape follows RFC 6675 (the map), RFC 8985 (what was
//! sent later and has arrived tells that an earlier one is lost; a probe where nothing was sent later) and IRN (Mittal
//! et al., SIGCOMM 2018: how little a NIC needs for it).

use super::bitmap::{BITS, Bitmap};
use super::congestion::CongestionControl;
use super::requester::{Requester, completion};
use super::responder::Owed;
use super::{Env, QueuePair, TxError, WcStatus};
use crate::wire::{NakCode, Packet};
use crate::{Nanos, Psn};

/// Which packet the machine asked to be kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Held {
    /// A request of the peer's with this PSN.
    Request(u32),
    /// A response of the peer's with this PSN.
    Response(u32),
}

impl Held {
    /// The name under which a packet is kept.
    pub fn of(packet: &Packet<'_>) -> Self {
        let psn = packet.headers.bth.psn.get();
        if super::is_response(packet.headers.bth.opcode) { Self::Response(psn) } else { Self::Request(psn) }
    }
}

/// What is known of the packets that are not yet acknowledged; bits count from the oldest of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scoreboard {
    /// Requests that the peer keeps. It has not executed them, and may yet drop them: nothing completes by this.
    kept: Bitmap,
    /// Responses that are kept here.
    held: Bitmap,
    /// Sent again in this round trip: when the first of them was, or before.
    repaired: Bitmap,
    /// Sent again since: they belong to the next round trip.
    repaired_since: Bitmap,
    /// The first PSN that had not been sent when the round trip began.
    recover: Psn,
    /// The packet that was sent again last, and the first PSN that had not been sent by then.
    last_repair: Option<(Psn, Psn)>,
    /// The peer has executed every request before this PSN.
    acked_to: Psn,
    /// Everything before this PSN has arrived or is lost.
    lost_to: Psn,
    /// To be sent again whatever the maps say.
    force: Option<Psn>,
}

/// Packets of one request that are to be sent again.
#[derive(Clone, Copy)]
struct Repair {
    index: usize,
    packet: u32,
    count: u32,
}

impl Scoreboard {
    pub(super) fn new(first: Psn) -> Self {
        Self { recover: first, acked_to: first, lost_to: first, ..Self::default() }
    }

    /// The oldest packet that is not acknowledged has moved on.
    #[inline]
    pub(super) fn advance(&mut self, count: u32, una: Psn) {
        self.kept.advance(count);
        self.held.advance(count);
        self.repaired.advance(count);
        self.repaired_since.advance(count);
        // Points in the past come along: half of all PSNs later they would lie in the future.
        self.acked_to = later(self.acked_to, una);
        self.lost_to = later(self.lost_to, una);
        self.last_repair = self.last_repair.filter(|(psn, _)| una.since(*psn) <= BITS.cast_signed());
        self.recover = later(self.recover, una);
    }

    fn is_repaired(&self, bit: u32) -> bool {
        self.repaired.get(bit) || self.repaired_since.get(bit)
    }

    /// What was sent after the repairs of this round trip has arrived: those of them that are still missing were lost
    /// again. The next round trip, of the repairs since, ends no earlier than with the arrival of `sent`.
    fn end_round_trip(&mut self, sent: Psn) {
        self.repaired = std::mem::take(&mut self.repaired_since);
        self.recover = sent;
    }

    fn span(&self) -> u32 {
        self.kept.span().max(self.held.span())
    }

    fn executed_before(&mut self, end: Psn) {
        if self.acked_to.before(end) {
            self.acked_to = end;
        }
    }

    /// Whether a repair that is sent now belongs to this round trip.
    fn begin_repair(&mut self, una: Psn, sent: Psn) -> bool {
        if !una.before(self.recover) {
            self.end_round_trip(sent);
        }
        if self.repaired.is_empty() && self.repaired_since.is_empty() {
            self.recover = sent;
        }
        self.recover == sent
    }

    /// After a timeout everything may be sent again: the peer's next report tells anew what it keeps.
    pub(super) fn start_over(&mut self, force: Psn) {
        self.repaired.clear();
        self.repaired_since.clear();
        self.kept.clear();
        self.force = Some(force);
    }
}

impl<B> Requester<B> {
    #[inline]
    pub(super) fn nothing_is_missing(&self) -> bool {
        let board = &self.board;
        let is_level = !self.una.before(later(board.acked_to, board.lost_to));
        board.force.is_none() && board.kept.is_empty() && board.held.is_empty() && is_level
    }

    /// Where a PSN lies on the scoreboard; out of its range where it lies before.
    fn bit(&self, psn: Psn) -> u32 {
        u32::try_from(psn.since(self.una)).unwrap_or(BITS)
    }

    /// The first packets that are lost and not yet sent again.
    fn next_repair(&self) -> Option<Repair> {
        let last_done = self.una.plus(self.board.span());
        let limit = [self.board.acked_to, self.board.lost_to].into_iter().fold(last_done, later);
        // What lies beyond the scoreboard is looked at when it comes closer.
        let limit = earlier(earlier(limit, self.una.plus(BITS)), self.sent);
        let begun = self.queue.iter().enumerate().take_while(|(_, wqe)| wqe.first.before(limit));
        begun.into_iter().find_map(|(index, _)| self.repair_of(index, limit))
    }

    fn repair_of(&self, index: usize, limit: Psn) -> Option<Repair> {
        let wqe = &self.queue[index];
        let is_executed = wqe.first.before(self.board.acked_to) || wqe.received > 0;
        // Of what the peer has executed, only responses can be missing.
        let done = if wqe.is_fetch() && is_executed { &self.board.held } else { &self.board.kept };
        let is_missing = |packet: &u32| {
            let bit = self.bit(wqe.first.plus(*packet));
            bit < BITS && !done.get(bit) && !self.board.is_repaired(bit)
        };
        if wqe.is_fetch() && !is_executed {
            return is_missing(&0).then_some(Repair { index, packet: 0, count: wqe.packets });
        }
        let from = if wqe.is_fetch() { wqe.received } else { packets_before(wqe.first, self.board.acked_to) };
        let from = from.max(packets_before(wqe.first, self.una));
        let end = packets_before(wqe.first, limit).min(wqe.packets);
        let packet = (from..end).find(is_missing)?;
        let run = if wqe.is_fetch() { (packet..end).take_while(is_missing).count() as u32 } else { 1 };
        Some(Repair { index, packet, count: run })
    }

    fn note_repair(&mut self, repair: Repair) {
        let belongs_to_this = self.board.begin_repair(self.una, self.sent);
        let first = self.queue[repair.index].first.plus(repair.packet);
        self.board.last_repair = Some((first, self.sent));
        for packet in 0..repair.count.min(BITS) {
            let bit = self.bit(first.plus(packet));
            let round_trip = if belongs_to_this { &mut self.board.repaired } else { &mut self.board.repaired_since };
            round_trip.set(bit);
        }
    }

    /// Notes which requests the peer keeps; bit n of the map stands for the packet n beyond `base`.
    fn hear_map(&mut self, base: Psn, map: &Bitmap) {
        let (una, sent) = (self.una, self.sent);
        for wqe in self.queue.iter().take_while(|wqe| wqe.first.before(sent)) {
            // Of a READ there is one request packet, whatever PSNs its responses take.
            let packets = if wqe.is_fetch() { 1 } else { wqe.packets };
            let within = packets_before(wqe.first, base)..packets_before(wqe.first, base.plus(BITS)).min(packets);
            for packet in within {
                let psn = wqe.first.plus(packet);
                let kept = u32::try_from(psn.since(base)).is_ok_and(|bit| map.get(bit));
                if kept && psn.before(sent) {
                    self.board.kept.set(u32::try_from(psn.since(una)).unwrap_or(BITS));
                }
            }
        }
        let last_done = self.una.plus(self.board.span());
        if self.board.recover.before(last_done) {
            self.board.end_round_trip(sent);
        }
    }

    /// The packet whose repetition makes a silent peer speak: the last one, whose answer tells of all the others; later
    /// the oldest one.
    pub(super) fn probe(&self, is_first: bool) -> Psn {
        let last = self.sent.previous();
        let holder = self.queue.iter().find(|wqe| last.before(wqe.end()));
        let is_plain = holder.is_some_and(|wqe| !wqe.is_fetch());
        if is_first && is_plain && !last.before(self.una) { last } else { self.una }
    }
}

fn earlier(one: Psn, other: Psn) -> Psn {
    if one.before(other) { one } else { other }
}

fn later(one: Psn, other: Psn) -> Psn {
    if one.before(other) { other } else { one }
}

/// How far `psn` lies into what begins with `first`; 0 where it lies before.
fn packets_before(first: Psn, psn: Psn) -> u32 {
    u32::try_from(psn.since(first)).unwrap_or(0)
}

impl<B> QueuePair<B> {
    /// The packet that was kept and whose turn it is now: give it to [`QueuePair::on_packet`] again.
    #[inline]
    pub fn take_held(&mut self) -> Option<Held> {
        let responder = &mut self.responder;
        if responder.held.get(0) {
            responder.held.unset(0);
            return Some(Held::Request(responder.expected.get()));
        }
        let requester = &mut self.requester;
        if !requester.board.held.get(0) {
            return None;
        }
        requester.board.held.unset(0);
        Some(Held::Response(requester.una.get()))
    }

    /// The peer has executed everything before `end`: completes what can be.
    pub(super) fn acknowledge_selectively<E: Env<Buffer = B>>(&mut self, now: Nanos, end: Psn, env: &mut E) {
        self.requester.board.executed_before(end);
        self.settle(now, env);
    }

    /// An acknowledgement without a map: the peer keeps nothing. Where it covers the last repair, whatever was sent
    /// before that repair has either been executed or never came.
    pub(super) fn on_plain_ack(&mut self) {
        let Requester { board, una, .. } = &mut self.requester;
        board.kept.clear();
        if let Some((_, sent)) = board.last_repair.take_if(|(psn, _)| psn.before(*una)) {
            board.lost_to = later(board.lost_to, sent);
        }
    }

    /// Moves the oldest packet on over everything that is done.
    fn settle<E: Env<Buffer = B>>(&mut self, now: Nanos, env: &mut E) {
        let requester = &mut self.requester;
        let before = requester.una;
        while let Some(wqe) = requester.queue.front().filter(|wqe| !wqe.is_fetch() && !wqe.request.op.is_local()) {
            let (una, end, acked_to) = (requester.una, wqe.end(), requester.board.acked_to);
            if una == end {
                let wqe = requester.pop();
                env.complete(completion(wqe.request, WcStatus::Success));
            } else if una.before(acked_to) {
                requester.advance_una(if acked_to.before(end) { acked_to } else { end });
            } else {
                break;
            }
        }
        requester.catch_up();
        if requester.una != before {
            self.progressed(now, before);
        }
    }

    /// The peer reports a gap at `psn` and, maybe, a map of what it keeps beyond.
    pub(super) fn on_gap<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, map: &[u8], env: &mut E) {
        self.acknowledge_selectively(now, psn, env);
        let requester = &mut self.requester;
        // It speaks, but unless something was executed its patience is not restored: a path may lose what matters.
        requester.spoke();
        match Bitmap::from_bytes(map) {
            Some(map) if !map.is_empty() => requester.hear_map(psn, &map),
            // It keeps nothing: the packet itself is asked for.
            _ if !requester.board.is_repaired(requester.bit(psn)) => requester.board.force = Some(psn),
            _ => {}
        }
        self.settle(now, env);
        if !self.requester.nothing_is_missing() {
            self.requester.congestion.on_loss(now);
        }
    }

    /// A response of a READ or an atomic, in whatever order.
    pub(super) fn on_response_selectively<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) {
        let psn = packet.headers.bth.psn;
        let covers = |wqe: &&super::requester::Wqe<B>| !psn.before(wqe.first) && psn.before(wqe.end());
        let holder = self.requester.queue.iter().find(covers);
        let Some(first) = holder.filter(|wqe| wqe.is_fetch()).map(|wqe| wqe.first) else {
            self.stats.stale_response += 1;
            return;
        };
        // A response acknowledges every request before its own, and tells that its own was executed.
        self.acknowledge_selectively(now, first.plus(1), env);
        let requester = &mut self.requester;
        if psn == requester.una {
            self.place_response(now, packet, env);
            self.settle(now, env);
            return;
        }
        let bit = requester.bit(psn);
        if bit < BITS && !requester.board.held.get(bit) && env.hold() {
            requester.board.held.set(bit);
            if requester.board.recover.before(psn.plus(1)) {
                let sent = requester.sent;
                requester.board.end_round_trip(sent);
            }
            self.stats.rx_held += 1;
            self.requester.congestion.on_loss(now);
        } else {
            self.stats.stale_response += 1;
        }
    }

    /// A request beyond the expected one: kept if possible, and the gap is reported.
    pub(super) fn on_early_request<E: Env<Buffer = B>>(&mut self, distance: u32, env: &mut E) {
        let responder = &mut self.responder;
        if distance < BITS && !responder.held.get(distance) && env.hold() {
            responder.held.set(distance);
            self.stats.rx_held += 1;
        }
        // Whoever was told to wait knows what is missing.
        let is_waiting = responder.nak_sent;
        if !is_waiting && matches!(responder.owed, Owed::Nothing | Owed::Ack | Owed::Nak(NakCode::PsnSequence, _)) {
            responder.owed = Owed::Nak(NakCode::PsnSequence, responder.expected);
        }
    }

    /// Sends what is lost again, as far as pacing and the link allow.
    pub(super) fn send_repairs<E: Env<Buffer = B>>(&mut self, now: Nanos, env: &mut E) -> Result<(), TxError> {
        if !self.is_selective() || self.requester.nothing_is_missing() || self.requester.is_waiting_for_receiver() {
            return Ok(());
        }
        if let Some(psn) = self.requester.board.force {
            self.send_forced(now, psn, env)?;
        }
        while !self.requester.is_probing() {
            let Some(repair) = self.requester.next_repair() else { break };
            if !self.requester.is_released(now) {
                break;
            }
            self.send_repair(now, repair, env)?;
        }
        Ok(())
    }

    fn send_forced<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, env: &mut E) -> Result<(), TxError> {
        let requester = &self.requester;
        let is_outstanding = !psn.before(requester.una) && psn.before(requester.sent);
        if let Some(index) = requester.queue.iter().position(|wqe| psn.before(wqe.end())).filter(|_| is_outstanding) {
            let wqe = &requester.queue[index];
            let packet = if wqe.is_fetch() { wqe.received } else { psn.since(wqe.first) as u32 };
            let count = if wqe.is_fetch() { wqe.packets - packet } else { 1 };
            self.send_repair(now, Repair { index, packet, count }, env)?;
        }
        self.requester.board.force = None;
        Ok(())
    }

    fn send_repair<E: Env<Buffer = B>>(&mut self, now: Nanos, repair: Repair, env: &mut E) -> Result<(), TxError> {
        let Repair { index, packet, count } = repair;
        self.requester.send_again(now, (index, packet, count), &self.config, env)?;
        self.requester.note_repair(repair);
        self.stats.tx_requests += 1;
        self.stats.retransmitted_packets += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::{Config, Dialect};

    #[test]
    fn what_was_lost_long_ago_is_not_taken_for_the_future_after_half_of_all_psns() {
        let mut requester = Requester::<()>::new(&Config { dialect: Dialect::Rocinante, ..Config::default() });
        for _ in 0..3 {
            requester.sent = requester.una.plus(1 << 22);
            requester.board.executed_before(requester.sent);
            requester.advance_una(requester.sent);
            assert!(requester.nothing_is_missing(), "at {:?}", requester.una);
        }
    }
}
