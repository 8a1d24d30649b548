//! Credits: the receive buffers that a peer has posted for us, and those that we owe it.
//!
//! A message costs its sender a credit; its receiver gives it back once the buffer is posted again, on the next
//! message of its own or, when enough wait to be given back and there is nothing to send, in a message of nothing else,
//! a credit message (MVICH calls it a no-op). A credit message costs no credit and overtakes whatever waits, so as many more
//! buffers are posted as credit messages can be on their way.
//!
//! Where the credits run out: an eager message becomes an announcement (`services/tag/select.rs`), or waits in the queue
//! (`services/tag/send_queue.rs`); `tx.rs` counts it in `credit_stalls`; `endpoint/sending.rs` (`go_on`) sends it when credits
//! come back. These are not IBTA's end-to-end credits, which are switched off.
//!
//! The last credits are not for all messages. What stays without a receive may keep its credit from the sender, for want of
//! memory; so eager messages leave at least one credit to announcements of a rendezvous, which take little memory and
//! whose credits are never withheld, and where control messages cost one, those leave one to them. So a message whose
//! receive is posted always gets through, as an announcement if need be, and so does the end of every transfer, however
//! much else is withheld.
//!
//! A queue that is shared by all peers posts fewer buffers than its peers have credits together (a sender that finds none gets an RNR
//! NAK and comes again), and counts only the messages that take memory.

use crate::receive_queues::Kind;

/// When credits are returned, and who may have the last ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    /// Credits owed that are worth a credit message ...
    pub(crate) window: u16,
    /// ... and where the peer has no more than `preserve`.
    pub(crate) notify: u16,
    /// Credits that are kept from eager messages, or half of what there are, but never less than `least` ...
    pub(crate) preserve: u16,
    /// ... which are for an announcement, and for a control message where that costs one ...
    pub(crate) least: u16,
    /// ... and those that are kept from all matched messages: 1, or 0 where control messages cost nothing.
    pub(crate) control: u16,
}

impl Rule {
    /// The rule for a queue of one peer with `limit` buffers, where the peer has `reserve` buffers for credit messages.
    ///
    /// At most one credit message that returns few credits is on its way, and the others return at least `least` of the
    /// `limit` that there are: so the reserve suffices.
    pub(crate) fn per_peer(limit: u16, reserve: u16, window: u16, notify: u16, preserve: u16) -> Self {
        assert!(limit >= 2, "one credit cannot be given back before it is used");
        let least = (1..=limit).find(|least| limit / least < reserve).unwrap_or(limit + 1);
        let preserve = preserve.clamp(1, limit / 2);
        Self { window: window.max(least), notify: notify.max(least), preserve, least: 2, control: 1 }
    }

    /// The rule for a queue of this kind, where the peer has `reserve` buffers for credit messages.
    pub(crate) fn of(kind: Kind, reserve: u16, notify: u16, preserve: u16) -> Self {
        match kind {
            Kind::PerPeer { num, window, .. } => Self::per_peer(num as u16, reserve, window as u16, notify, preserve),
            Kind::Shared { .. } => Self::shared(kind.granted()),
        }
    }

    /// The rule for a queue of all peers.
    pub(crate) fn shared(limit: u16) -> Self {
        let half = limit.div_ceil(2);
        // An eighth of the last credits is for announcements.
        Self { window: half, notify: half, preserve: limit / 8, least: 1, control: 0 }
    }
}

/// The account of one receive queue of a connection, as one of its ends keeps it. While nothing is under way, what one
/// end may send and what the other has not given back are together what the other granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditAccount {
    /// What the peer granted.
    pub granted: u16,
    /// Messages that may be sent.
    pub available: u16,
    /// What was granted to the peer.
    pub limit: u16,
    /// What the peer has spent and was not given back yet.
    pub kept: u16,
}

/// The account of one queue of a connection, kept by one of its ends.
#[derive(Debug)]
pub(crate) struct Credits {
    rule: Rule,
    /// What the peer granted, once its terms are known.
    granted: u16,
    /// Messages that we may send.
    available: u16,
    /// What we granted.
    limit: u16,
    /// Messages dealt with whose receives may not be posted again yet.
    pending: u16,
    /// Receives posted again and not yet given back.
    owed: u16,
    /// Receives kept back because memory for unexpected messages is short.
    withheld: u16,
}

impl Credits {
    /// An account of a peer that may send `limit` messages, and grants none yet.
    pub(crate) fn new(limit: u16) -> Self {
        Self { rule: Rule::shared(limit), granted: 0, available: 0, limit, pending: 0, owed: 0, withheld: 0 }
    }

    /// The peer's terms have come: of what it grants so many have no receive yet, and are given back later.
    pub(crate) fn open(&mut self, granted: u16, missing: u16, rule: Rule) {
        debug_assert_eq!(self.granted, 0, "terms come once");
        self.rule = rule;
        self.granted = granted;
        self.available = granted - missing;
    }

    /// So many of the first receives could not be posted: their credits are as good as spent.
    pub(crate) fn lack(&mut self, missing: usize) {
        debug_assert!(missing < self.limit.into(), "a connection is refused before that");
        self.pending += missing as u16;
    }

    /// What our terms must say is missing. What was posted meanwhile is granted by them, and owed no more.
    pub(crate) fn missing(&mut self) -> u16 {
        self.owed = 0;
        self.pending
    }

    /// Messages that may be sent if they set memory free or are never stored: control messages, parts of a payload that a receive
    /// waits for, tails of a stream.
    pub(crate) fn for_control(&self) -> u16 {
        self.available
    }

    /// Messages that may be sent if they are requests, or data of a stream.
    pub(crate) fn for_requests(&self) -> u16 {
        self.available.saturating_sub(self.rule.control)
    }

    /// Messages that may be sent if they are eager.
    #[inline]
    pub(crate) fn for_eager(&self) -> u16 {
        self.available.saturating_sub(self.preserved())
    }

    /// Credits that eager messages leave.
    #[inline]
    fn preserved(&self) -> u16 {
        self.rule.preserve.min(self.granted / 2).max(self.rule.least)
    }

    /// As [`Self::for_eager`], once all credits are at home.
    pub(crate) fn most_for_eager(&self) -> u16 {
        self.granted.saturating_sub(self.preserved())
    }

    /// Sends a message: spends a credit.
    #[inline]
    pub(crate) fn spend(&mut self) {
        assert!(self.available > 0, "a message was sent without a credit");
        self.available -= 1;
    }

    /// The peer gave back `count`; `false` where it gives more than there are.
    #[must_use]
    #[inline]
    pub(crate) fn regain(&mut self, count: u16) -> bool {
        let may_regain = self.may_regain(count);
        self.available += if may_regain { count } else { 0 };
        may_regain
    }

    /// Whether the peer can give so many back.
    #[inline]
    pub(crate) fn may_regain(&self, count: u16) -> bool {
        count <= self.granted - self.available
    }

    /// A message that cost the peer a credit is dealt with; `false` where the peer had none to spend. Its credit is owed
    /// once [`Self::settle`] says that there is a receive for it.
    #[must_use]
    #[inline]
    pub(crate) fn used(&mut self, withhold: bool) -> bool {
        if !self.may_use() {
            return false;
        }
        if withhold {
            self.withheld += 1;
        } else {
            self.pending += 1;
        }
        true
    }

    /// Whether the peer has a credit to spend.
    #[inline]
    pub(crate) fn may_use(&self) -> bool {
        self.kept() < self.limit
    }

    /// The same as [`Self::used`] for a message that took no receive: its credit is owed already.
    #[must_use]
    #[inline]
    pub(crate) fn used_at_once(&mut self) -> bool {
        let may_use = self.may_use();
        self.owed += u16::from(may_use);
        may_use
    }

    /// So many receives are not posted: all credits but as many are owed, or the peer's next message might find none.
    #[inline]
    pub(crate) fn settle(&mut self, unposted: usize) {
        let ready = usize::from(self.pending).saturating_sub(unposted) as u16;
        self.pending -= ready;
        self.owed += ready;
    }

    /// Memory is free again: what was kept back can be given, as soon as it is settled.
    pub(crate) fn release_withheld(&mut self) {
        self.pending += self.withheld;
        self.withheld = 0;
    }

    /// What the peer has spent and was not given back.
    #[inline]
    fn kept(&self) -> u16 {
        self.pending + self.owed + self.withheld
    }

    /// Whether the peer can have no more than its control messages need.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.limit - self.kept() <= self.rule.control
    }

    /// Whether the peer should hear even without a message to carry the news: enough is owed; or less, and the peer runs
    /// low; or anything, and it cannot have what a request needs.
    #[inline]
    pub(crate) fn is_return_due(&self) -> bool {
        let Rule { window, notify, preserve, control, .. } = self.rule;
        // What the peer has, and what is on its way to it or from it.
        let peers = self.limit - self.kept();
        self.owed >= window || (self.owed >= notify && peers <= preserve) || (self.owed > 0 && peers <= control)
    }

    /// Both sides of the account.
    pub(crate) fn account(&self) -> CreditAccount {
        let &Self { granted, available, limit, .. } = self;
        CreditAccount { granted, available, limit, kept: self.kept() }
    }

    /// What is owed.
    pub(crate) fn owed(&self) -> u16 {
        self.owed
    }

    /// Takes all that is owed, for a header.
    #[inline]
    pub(crate) fn take_owed(&mut self) -> u16 {
        std::mem::take(&mut self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(limit: u16, rule: Rule) -> Credits {
        let mut credits = Credits::new(limit);
        credits.open(limit, 0, rule);
        credits
    }

    /// A message is dealt with, and its receive posted again at once.
    fn repost(credits: &mut Credits, withhold: bool) -> bool {
        let had_credit = credits.used(withhold);
        credits.settle(0);
        had_credit
    }

    /// Two ends, messages and returns in flight, in every order that dice choose, with memory that comes and goes: nothing
    /// is lost, the returns on their way never exceed the reserve, and while eager messages' credits are withheld, for
    /// however long, an announcement gets through.
    #[test]
    fn credits_are_conserved_the_reserve_suffices_and_announcements_always_get_through() {
        let per_peer =
            |(limit, reserve)| (limit, reserve, Rule::per_peer(limit, reserve, limit / 4, limit / 8, limit / 6));
        let own = (3..40).flat_map(|limit| [(limit, 2), (limit, 4), (limit, 9)]).map(per_peer);
        let shared = (2..40).map(|limit| (limit, limit, Rule::shared(limit)));
        for (limit, reserve, rule) in own.chain(shared) {
            let (mut sender, mut receiver) = (account(limit, rule), account(limit, rule));
            // Whether each is eager.
            let (mut messages, mut returns) = (Vec::new(), Vec::new());
            let mut state = u64::from(limit);
            for round in 0..10_000u32 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let is_withholding = round / 64 % 2 == 1;
                match state >> 62 {
                    0 | 1 if sender.for_requests() > 0 => {
                        messages.push(sender.for_eager() > 0);
                        sender.spend();
                    }
                    2 if !messages.is_empty() => {
                        let is_eager = messages.remove(0);
                        assert!(repost(&mut receiver, is_eager && is_withholding));
                    }
                    3 if !returns.is_empty() => assert!(sender.regain(returns.remove(0))),
                    _ => {}
                }
                if !is_withholding {
                    receiver.release_withheld();
                    receiver.settle(0);
                }
                if receiver.is_return_due() {
                    returns.push(receiver.take_owed());
                }
                let count = returns.len();
                assert!(count <= reserve.into(), "limit {limit}, reserve {reserve}: {count} returns in flight");
                let in_flight: u16 = returns.iter().sum();
                assert_eq!(sender.available + messages.len() as u16 + receiver.kept() + in_flight, limit);
                let is_stuck = sender.for_requests() == 0 && messages.is_empty() && returns.is_empty();
                assert!(!is_stuck, "limit {limit}, reserve {reserve}: no announcement gets through");
            }
        }
    }

    #[test]
    fn the_last_credits_are_for_requests_and_the_very_last_for_control() {
        let mut credits = account(8, Rule::per_peer(8, 4, 4, 2, 3));
        assert_eq!((credits.for_eager(), credits.for_requests(), credits.for_control()), (5, 7, 8));
        (0..7).for_each(|_| credits.spend());
        assert_eq!((credits.for_eager(), credits.for_requests(), credits.for_control()), (0, 0, 1));
        let credits = account(3, Rule::per_peer(3, 3, 1, 1, 10));
        assert_eq!((credits.for_eager(), credits.for_requests(), credits.for_control()), (1, 2, 3));
        let credits = account(2, Rule::shared(2));
        assert_eq!((credits.for_eager(), credits.for_requests(), credits.for_control()), (1, 2, 2));
    }

    #[test]
    fn nothing_may_be_sent_before_the_peers_terms_are_known() {
        let mut credits = Credits::new(4);
        assert_eq!((credits.for_eager(), credits.for_requests(), credits.for_control()), (0, 0, 0));
        assert!(!credits.regain(1));
    }

    #[test]
    fn a_peer_cannot_give_more_than_there_is() {
        let mut credits = account(4, Rule::per_peer(4, 4, 2, 2, 1));
        assert!(!credits.regain(1));
        credits.spend();
        assert!(credits.regain(1));
        assert!(!credits.regain(u16::MAX));
    }

    #[test]
    fn withheld_credits_are_given_later() {
        let mut credits = account(4, Rule::per_peer(4, 4, 2, 2, 1));
        assert!((0..4).all(|_| repost(&mut credits, true)));
        assert!(!repost(&mut credits, false), "it sent more than it may");
        assert!(!credits.is_return_due());
        credits.release_withheld();
        credits.settle(0);
        assert!(credits.is_return_due());
        assert_eq!(credits.take_owed(), 4);
    }

    /// All but one credit are withheld, and the one comes back from a control message: it is returned at once, or the
    /// sender's next control message would wait for ever.
    #[test]
    fn the_credit_of_a_control_message_comes_back_while_the_others_are_withheld() {
        let mut credits = account(64, Rule::per_peer(64, 7, 16, 5, 10));
        assert!((0..63).all(|_| repost(&mut credits, true)));
        assert!(repost(&mut credits, false));
        assert!(credits.is_return_due());
    }

    /// Two of four receives are missing when the terms are sent; one is posted before that, and the other later.
    #[test]
    fn what_is_missing_at_first_is_not_granted_and_given_back_later() {
        let rule = Rule::per_peer(4, 4, 2, 2, 1);
        let (mut sender, mut receiver) = (Credits::new(4), Credits::new(4));
        receiver.lack(2);
        receiver.settle(1);
        assert_eq!(receiver.missing(), 1);
        sender.open(4, 1, rule);
        receiver.open(4, 0, rule);
        assert_eq!((sender.for_control(), receiver.owed()), (3, 0));
        receiver.settle(0);
        assert!(sender.regain(receiver.take_owed()));
        assert_eq!((sender.for_control(), receiver.kept()), (4, 0));
    }

    #[test]
    fn a_credit_is_owed_once_its_receive_is_posted() {
        let mut credits = account(4, Rule::per_peer(4, 4, 2, 2, 1));
        assert!((0..3).all(|_| credits.used(false)));
        credits.settle(3);
        assert_eq!((credits.owed(), credits.is_return_due()), (0, false));
        credits.settle(1);
        assert_eq!(credits.owed(), 2);
        credits.settle(0);
        assert_eq!(credits.take_owed(), 3);
    }
}
