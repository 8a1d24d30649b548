//! Selective repeat with SACKs: what two peers of this stack do instead of go-back-N, once both have said that they can. Of
//! packets that arrive out of order this keeps the PSNs; their bytes are the engine's (`driver/src/engine/held.rs`).
//!
//! A responder keeps packets that come early and reports the gap with a map of what it keeps; a requester keeps READ
//! responses that come early. Both are given to the machine again, in order, when the gap is closed
//! ([`RcQueuePair::take_held`]), so that everything else works on packets in order as ever. The requester sends again what
//! is missing and nothing else, each packet once a round trip. The shape follows RFC 6675 (SACKs and the scoreboard that is
//! made of them), RFC 8985 (a packet that was sent later and has arrived shows that an earlier one is lost; a probe where
//! nothing was sent later) and IRN (Mittal et al., SIGCOMM 2018: how little a NIC needs for it).

mod held;
mod psn_set;
mod scoreboard;

use super::congestion::CongestionControl as _;
use super::requester::{Fetch, Requester, Wqe};
use super::{Env, Quantum, RcQueuePair, TxError};
use crate::wire::Packet;
use crate::{Nanos, Psn};

pub use held::Held;
pub(super) use psn_set::{PsnSet, SACK_MAP_LEN, SPAN, earlier, later};
pub(super) use scoreboard::Scoreboard;

/// What became of a packet that came early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    New,
    /// It is kept already, or there is no room.
    No,
    /// Another one was kept under its name. Who knows which is genuine? Both are dropped, and the sender sends again.
    Conflict,
}

fn keep<E: Env>(held: &mut PsnSet, packet: &Packet<'_>, env: &mut E) -> Kept {
    let (psn, name) = (packet.headers.bth.psn, Held::of(packet));
    if held.contains(psn) {
        if env.holds_same(name, packet) {
            return Kept::No;
        }
        held.remove(psn);
        env.release(name);
        return Kept::Conflict;
    }
    if held.reaches(psn) && env.hold(name) {
        held.insert(psn);
        return Kept::New;
    }
    Kept::No
}

/// Packets of one request that are to be sent again.
#[derive(Clone, Copy)]
struct Repair {
    index: usize,
    packet: u32,
    count: u32,
}

impl<B> Requester<B> {
    #[inline]
    pub(super) fn nothing_is_missing(&self) -> bool {
        self.scoreboard.is_idle(self.window.una())
    }

    /// The first packets that are lost and not yet sent again.
    fn next_repair(&self) -> Option<Repair> {
        // What lies beyond the sets is looked at when it comes closer.
        let limit = earlier(earlier(self.scoreboard.limit(), self.window.una().plus(SPAN)), self.window.sent());
        let begun = self.queue.iter().enumerate().take_while(|(_, wqe)| wqe.first.before(limit));
        begun.into_iter().find_map(|(index, wqe)| {
            let repair = if wqe.is_fetch() { self.fetch_repair(wqe, limit) } else { self.plain_repair(wqe, limit) };
            repair.map(|(psn, count)| Repair { index, packet: psn.since(wqe.first) as u32, count })
        })
    }

    /// Of a SEND or a WRITE one packet, if it is lost.
    fn plain_repair(&self, wqe: &Wqe<B>, limit: Psn) -> Option<(Psn, u32)> {
        let from = later(later(wqe.first, self.window.una()), self.scoreboard.executed_to());
        Some((self.scoreboard.first_missing(false, from, earlier(wqe.end(), limit))?, 1))
    }

    /// Of a READ or an atomic the request where that is lost, or a run of answers.
    fn fetch_repair(&self, wqe: &Wqe<B>, limit: Psn) -> Option<(Psn, u32)> {
        let is_of_wqe = |fetch: &&Fetch| !fetch.first.before(wqe.first) && fetch.first.before(wqe.end());
        let sent = self.fetches.iter().filter(is_of_wqe).take_while(|fetch| fetch.first.before(limit));
        sent.into_iter().find_map(|fetch| {
            let from = later(fetch.first, self.window.una());
            if !fetch.first.before(self.scoreboard.executed_to()) {
                let lost = self.scoreboard.first_missing(false, fetch.first, fetch.first.plus(1))?;
                return Some((lost, fetch.end.since(lost) as u32));
            }
            let to = earlier(fetch.end, earlier(self.scoreboard.answered_to(), limit));
            let first = self.scoreboard.first_missing(true, from, to)?;
            let is_missing = |psn: Psn| self.scoreboard.first_missing(true, psn, psn.plus(1)).is_some();
            let count = (1..to.since(first) as u32).take_while(|&at| is_missing(first.plus(at))).count() as u32 + 1;
            Some((first, count))
        })
    }

    /// How many answers are asked for again from `psn` on, up to the end of the request or to one that is kept here.
    fn answers_due(&self, psn: Psn) -> Option<u32> {
        let fetch = self.fetches.waiting_for(psn)?;
        let most = fetch.end.since(psn) as u32;
        Some((1..most).find(|&at| self.scoreboard.held.contains(psn.plus(at))).unwrap_or(most))
    }

    /// What is asked for again where the packet `psn` is forced.
    fn forced_repair(&self, psn: Psn) -> Option<Repair> {
        if !self.window.contains(psn) {
            return None;
        }
        let index = self.queue.position_of(psn)?;
        let wqe = &self.queue[index];
        let count = if wqe.is_fetch() { self.answers_due(psn)? } else { 1 };
        Some(Repair { index, packet: psn.since(wqe.first) as u32, count })
    }

    /// Returns the packet that is repeated to make a silent peer answer: first the last one, whose answer covers all
    /// the others; later the oldest one.
    pub(super) fn probe(&self, is_first: bool) -> Psn {
        let last = self.window.sent().previous();
        let holder = self.queue.iter().find(|wqe| last.before(wqe.end()));
        let is_plain = holder.is_some_and(|wqe| !wqe.is_fetch());
        if is_first && is_plain && !last.before(self.window.una()) { last } else { self.window.una() }
    }
}

impl<B> RcQueuePair<B> {
    /// The packet that was kept and whose turn it is now: give it to [`RcQueuePair::on_held_packet`].
    #[inline]
    pub fn take_held(&mut self) -> Option<Held> {
        let (expected, una) = (self.responder.expected, self.requester.window.una());
        if self.responder.held.remove(expected) {
            Some(Held::Request(expected.get()))
        } else if self.requester.scoreboard.held.remove(una) {
            Some(Held::Response(una.get()))
        } else {
            None
        }
    }

    /// The peer has executed everything before `end`: completes what can be.
    pub(super) fn acknowledge_selectively<E: Env<Buffer = B>>(&mut self, now: Nanos, end: Psn, env: &mut E) {
        self.requester.scoreboard.executed_before(end);
        self.settle(now, env);
    }

    /// Moves the oldest packet on over everything that is done.
    fn settle<E: Env<Buffer = B>>(&mut self, now: Nanos, env: &mut E) {
        let requester = &mut self.requester;
        let (before, acked_to) = (requester.window.una(), requester.scoreboard.executed_to());
        let mut una = before;
        while let Some(wqe) = requester.queue.front().filter(|wqe| !wqe.is_fetch() && !wqe.request.op.is_local()) {
            let end = wqe.end();
            if una.before(acked_to) {
                una = earlier(acked_to, end);
            }
            if una != end {
                break;
            }
            requester.queue.pop().request.succeed(env);
        }
        // The sets of packets move on once, whatever number of requests has ended.
        if una != before {
            requester.advance_una(una);
        }
        requester.catch_up();
        if requester.window.una() != before {
            self.progressed(now, before);
        }
    }

    /// The peer's SACK: a gap at `psn` and, maybe, a map of what it keeps beyond.
    pub(super) fn on_sack<E: Env<Buffer = B>>(&mut self, now: Nanos, psn: Psn, map: &[u8], env: &mut E) {
        self.acknowledge_selectively(now, psn, env);
        let requester = &mut self.requester;
        // An answer, but unless something was executed the retries are not restored: a path may lose what matters.
        requester.retries.on_answer();
        if psn == requester.window.sent() {
            // No request is missing: what it keeps beyond is nothing of ours.
            return;
        }
        let (una, sent) = (requester.window.una(), requester.window.sent());
        if map.is_empty() {
            // It keeps nothing: the packet itself is asked for.
            requester.scoreboard.sacked.clear();
            if !requester.scoreboard.is_in_repair(psn) {
                requester.scoreboard.force = Some(psn);
            }
        } else {
            let before = requester.scoreboard.sacked.len();
            requester.scoreboard.sacked.add_sack_map(psn, map, sent);
            // It may have been kept and dropped again.
            requester.scoreboard.sacked.remove(psn);
            requester.scoreboard.settle_repairs(una);
            if requester.scoreboard.sacked.len() > before {
                // What was sent arrives: the path lives, though its oldest packet is missing.
                requester.restart_timer(now, &self.config);
            }
        }
        self.settle(now, env);
        if !self.requester.nothing_is_missing() {
            self.requester.congestion.on_loss(now);
        }
    }

    /// A response of a READ or an atomic, in whatever order.
    pub(super) fn on_response_selectively<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        env: &mut E,
    ) -> bool {
        let psn = packet.headers.bth.psn;
        let Some(&Fetch { first, .. }) = self.requester.fetches.waiting_for(psn) else {
            self.stats.stale_response += 1;
            return false;
        };
        // A response acknowledges every request before its own, and shows that its own was executed.
        self.acknowledge_selectively(now, first.plus(1), env);
        let requester = &mut self.requester;
        if psn == requester.window.una() {
            if requester.scoreboard.held.remove(psn) {
                env.release(Held::Response(psn.get()));
            }
            let is_placed = self.place_response(now, packet, env);
            self.settle(now, env);
            return is_placed;
        }
        match keep(&mut requester.scoreboard.held, packet, env) {
            Kept::New => {
                requester.scoreboard.settle_repairs(requester.window.una());
                requester.restart_timer(now, &self.config);
                self.stats.rx_held += 1;
                self.requester.congestion.on_loss(now);
                return true;
            }
            Kept::Conflict => self.stats.rx_held_conflicts += 1,
            Kept::No => self.stats.stale_response += 1,
        }
        false
    }

    /// A response that was kept does not fit: it is asked for again.
    #[cold]
    pub(super) fn forget_held_response(&mut self) {
        self.stats.rx_held_refused += 1;
        self.requester.scoreboard.force = Some(self.requester.window.una());
    }

    /// Forgets everything that came early and is kept, because it has waited too long: the caller drops the packets.
    pub fn give_back_held(&mut self) {
        self.stats.rx_held_expired += u64::from(self.responder.held.len() + self.requester.scoreboard.held.len());
        self.responder.held.clear();
        if !self.requester.scoreboard.held.is_empty() {
            self.requester.scoreboard.held.clear();
            self.requester.scoreboard.force = Some(self.requester.window.una());
        }
    }

    /// A request beyond the expected one: kept if possible, and the gap is reported.
    #[cold]
    pub(super) fn on_early_request<E: Env<Buffer = B>>(&mut self, packet: &Packet<'_>, env: &mut E) -> bool {
        let kept = keep(&mut self.responder.held, packet, env);
        match kept {
            Kept::New => self.stats.rx_held += 1,
            Kept::Conflict => self.stats.rx_held_conflicts += 1,
            Kept::No => {}
        }
        let responder = &mut self.responder;
        responder.acknowledgement.owe_gap(responder.expected);
        kept == Kept::New
    }

    /// Sends what is lost again, as far as pacing, the quantum and the link allow.
    pub(super) fn send_repairs<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        quantum: &mut Quantum,
        env: &mut E,
    ) -> Result<(), TxError> {
        if !self.is_selective() || self.requester.nothing_is_missing() || self.requester.rnr.is_waiting() {
            return Ok(());
        }
        if let Some(psn) = self.requester.scoreboard.force {
            if let Some(repair) = self.requester.forced_repair(psn) {
                quantum.spend(self.send_repair(now, repair, env)?);
            }
            self.requester.scoreboard.force = None;
        }
        while quantum.is_left() && !self.requester.retries.is_probing() {
            let Some(repair) = self.requester.next_repair() else { break };
            if !self.requester.is_released(now) {
                break;
            }
            quantum.spend(self.send_repair(now, repair, env)?);
        }
        Ok(())
    }

    fn send_repair<E: Env<Buffer = B>>(&mut self, now: Nanos, repair: Repair, env: &mut E) -> Result<usize, TxError> {
        let Repair { index, packet, count } = repair;
        let requester = &mut self.requester;
        let bytes = requester.send_again(now, (index, packet, count), &self.config, env)?;
        let wqe = &requester.queue[index];
        let (is_fetch, first) = (wqe.is_fetch(), wqe.first.plus(packet));
        requester.scoreboard.repaired(is_fetch, first, first.plus(count), requester.window.sent());
        self.stats.tx_requests += 1;
        self.stats.retransmitted_packets += 1;
        Ok(bytes)
    }
}
