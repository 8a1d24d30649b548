//! What a requester knows of the packets that are not yet acknowledged (RFC 6675's scoreboard): which the peer keeps, which are
//! lost, and which are on their way again.
//!
//! A packet is lost once something that left later has arrived (RFC 8985's rule, without its clock: a network of one path
//! keeps order, and where it does not, a packet comes twice). That holds for a repair as well, which is why repairs are
//! listed in the order in which they left.

use std::collections::VecDeque;

use super::psn_set::{PsnSet, later};
use crate::Psn;

/// The requester's half of selective repeat: what SACKs, answers and repairs say of each packet.
#[derive(Clone, Debug)]
pub(in crate::rc) struct Scoreboard {
    /// Requests that the peer keeps, as its SACKs say. It has not executed them, and may yet drop them: nothing completes by this.
    pub(in crate::rc) sacked: PsnSet,
    /// Responses that are kept here.
    pub(in crate::rc) held: PsnSet,
    /// Sent again, and neither arrived nor lost again.
    in_repair: PsnSet,
    /// The same packets, in the order in which they left.
    repairs: VecDeque<ResentPackets>,
    /// The last one that has arrived.
    arrived: Option<ResentPackets>,
    /// The peer has executed every request before this PSN.
    executed_to: Psn,
    /// Everything before this PSN has arrived or is lost.
    lost_to: Psn,
    /// To be sent again whatever the sets say.
    pub(in crate::rc) force: Option<Psn>,
}

/// Packets of one request that were sent again together.
#[derive(Clone, Copy, Debug)]
struct ResentPackets {
    /// READs and atomics: what is missing are their answers.
    is_fetch: bool,
    first: Psn,
    end: Psn,
    /// The first PSN that had not been sent when they left.
    sent: Psn,
}

impl Scoreboard {
    pub(in crate::rc) const fn new(first: Psn) -> Self {
        Self {
            sacked: PsnSet::new(first),
            held: PsnSet::new(first),
            in_repair: PsnSet::new(first),
            repairs: VecDeque::new(),
            arrived: None,
            executed_to: first,
            lost_to: first,
            force: None,
        }
    }

    /// Asserts what holds between any two calls, where packets in `una..sent` are not acknowledged.
    pub(in crate::rc) fn check(&self, una: Psn, sent: Psn) {
        for set in [&self.sacked, &self.held, &self.in_repair] {
            assert!(set.is_empty() || !sent.before(set.end()), "{:?} was never sent", set.end().previous());
            assert!(set.is_empty() || set.base() == una, "a set begins at {:?} and not at {una:?}", set.base());
        }
        let in_repair: u32 = self.repairs.iter().map(|it| it.end.since(later(it.first, una)).max(0) as u32).sum();
        assert_eq!(in_repair, self.in_repair.len(), "repairs and their set agree");
    }

    /// Whether nothing is known to be missing, where `una` is the oldest packet that is not acknowledged.
    #[inline]
    pub(in crate::rc) fn is_idle(&self, una: Psn) -> bool {
        let is_level = !una.before(later(self.executed_to, self.lost_to));
        self.force.is_none() && self.sacked.is_empty() && self.held.is_empty() && is_level
    }

    /// The oldest packet that is not acknowledged is `una` now.
    #[inline]
    pub(in crate::rc) fn advance_to(&mut self, una: Psn) {
        self.sacked.advance_to(una);
        self.held.advance_to(una);
        self.in_repair.advance_to(una);
        // Points in the past come along: half of all PSNs later they would lie in the future.
        self.executed_to = later(self.executed_to, una);
        self.lost_to = later(self.lost_to, una);
        if !self.repairs.is_empty() {
            self.settle_repairs(una);
        }
        // All that it could tell of is acknowledged.
        self.arrived = self.arrived.filter(|repair| una.before(repair.sent));
    }

    pub(in crate::rc) fn executed_to(&self) -> Psn {
        self.executed_to
    }

    /// The peer has executed every request before `end`.
    pub(in crate::rc) fn executed_before(&mut self, end: Psn) {
        self.executed_to = later(self.executed_to, end);
    }

    /// An acknowledgement without a SACK map: the peer keeps nothing. Where a repair has arrived before it left, whatever had been
    /// sent before that repair has either been executed or never came.
    pub(in crate::rc) fn nothing_is_kept(&mut self, una: Psn) {
        self.sacked.clear();
        if let Some(ResentPackets { sent, .. }) = self.arrived.take_if(|repair| repair.first.before(una)) {
            self.lost_to = later(self.lost_to, sent);
        }
    }

    /// The first PSN after all requests and answers that have arrived, or are lost.
    pub(in crate::rc) fn limit(&self) -> Psn {
        later(self.sacked.end(), self.answered_to())
    }

    /// The same for answers alone: requests that the peer keeps say nothing of what it has answered.
    pub(in crate::rc) fn answered_to(&self) -> Psn {
        later(self.held.end(), later(self.executed_to, self.lost_to))
    }

    /// Whether `psn` was sent again and may still arrive.
    pub(in crate::rc) fn is_in_repair(&self, psn: Psn) -> bool {
        self.in_repair.contains(psn)
    }

    /// The first packet in `from..to` that is missing, by what the peer keeps or what is kept here.
    pub(in crate::rc) fn first_missing(&self, is_answered: bool, from: Psn, to: Psn) -> Option<Psn> {
        let arrived = if is_answered { &self.held } else { &self.sacked };
        arrived.first_absent(&self.in_repair, from, to)
    }

    /// `first..end` was sent again, after all up to `sent`; of a READ or an atomic, answers with these PSNs are due.
    pub(in crate::rc) fn repaired(&mut self, is_fetch: bool, first: Psn, end: Psn, sent: Psn) {
        let mut psn = first;
        while psn.before(end) && self.in_repair.insert(psn) {
            psn = psn.plus(1);
        }
        if first.before(psn) {
            self.repairs.push_back(ResentPackets { is_fetch, first, end: psn, sent });
        }
    }

    /// Something has arrived: repairs that left before it and are still missing were lost again.
    pub(in crate::rc) fn settle_repairs(&mut self, una: Psn) {
        let arrived_to = [self.held.end(), self.sacked.end()].into_iter().fold(una, later);
        let is_overtaken =
            |repair: &ResentPackets| repair.sent.before(arrived_to) || self.has_arrived(repair, una).is_some();
        let Some(last) = self.repairs.iter().rposition(is_overtaken) else { return };
        for at in 0..=last {
            let ResentPackets { first, end, sent, .. } = self.repairs[at];
            // Of the last one a part may be on its way: answers come in order.
            let arrived_at = self.has_arrived(&self.repairs[at], una);
            if arrived_at.is_some() {
                self.arrived = Some(self.repairs[at]);
            }
            let keeps_from = match arrived_at {
                Some(psn) if at == last && !sent.before(arrived_to) => psn.plus(1),
                _ => end,
            };
            let mut psn = later(first, una);
            while psn.before(keeps_from) {
                self.in_repair.remove(psn);
                psn = psn.plus(1);
            }
            self.repairs[at].first = later(keeps_from, first);
        }
        let is_done = |repair: &ResentPackets| !repair.first.before(repair.end);
        let done = if self.repairs.get(last).is_some_and(is_done) { last + 1 } else { last };
        self.repairs.drain(..done);
    }

    /// The last packet of a repair that has arrived.
    fn has_arrived(&self, repair: &ResentPackets, una: Psn) -> Option<Psn> {
        let is_executed = |psn: Psn| psn.before(self.executed_to);
        let is_done = |psn: Psn| {
            if repair.is_fetch {
                self.held.contains(psn) || (!is_executed(psn) && self.sacked.contains(psn))
            } else {
                is_executed(psn) || self.sacked.contains(psn)
            }
        };
        let mut psn = repair.end;
        while repair.first.before(psn) {
            psn = psn.previous();
            if psn.before(una) || is_done(psn) {
                return Some(psn);
            }
        }
        None
    }

    /// After a timeout everything may be sent again: the peer's next SACK says anew what it keeps.
    pub(in crate::rc) fn start_over(&mut self, force: Psn) {
        self.in_repair.clear();
        self.repairs.clear();
        self.arrived = None;
        self.sacked.clear();
        self.force = Some(force);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(psn: u32) -> Psn {
        Psn::new(psn)
    }

    #[test]
    fn an_answer_that_is_placed_shows_that_what_left_before_its_request_is_lost_again() {
        let mut scoreboard = Scoreboard::new(psn(100));
        scoreboard.executed_before(psn(110));
        scoreboard.repaired(true, psn(105), psn(106), psn(110));
        scoreboard.repaired(true, psn(100), psn(101), psn(110));
        scoreboard.advance_to(psn(101));
        assert!(!scoreboard.is_in_repair(psn(105)));
        assert!(scoreboard.repairs.is_empty(), "nothing is under way");
        scoreboard.check(psn(101), psn(110));
    }

    #[test]
    #[should_panic(expected = "was never sent")]
    fn the_check_knows_that_what_was_never_sent_is_not_kept() {
        let mut scoreboard = Scoreboard::new(psn(100));
        scoreboard.sacked.insert(psn(105));
        scoreboard.check(psn(100), psn(106));
        scoreboard.check(psn(100), psn(105));
    }
}
