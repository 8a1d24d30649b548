//! The acknowledgement that a responder owes: whatever arrives, at most one is pending, and it speaks for everything before it.

use crate::wire::NakCode;
use crate::{Nanos, Psn};

/// What the next acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::rc) enum Owed {
    Nothing,
    /// Of a message that was sent without AckReq: it is sent together with others, or after a while.
    Later,
    Ack,
    Rnr,
    /// The packet that was refused, or that is missing.
    Nak(NakCode, Psn),
}

/// A SEND or WRITE so many PSNs back is old news: its number is about to mean a packet of the future.
const ACKNOWLEDGEABLE_FOR: i32 = 1 << 22;
/// So many packets are worth an acknowledgement that could wait.
const ACK_UNASKED: u32 = 16;

/// What is owed, and since when. A positive one is owed only where there is a packet that it may name.
pub(in crate::rc) struct Acknowledgement {
    owed: Owed,
    /// The last executed packet of a SEND or WRITE: the only kind that a positive acknowledgement may name.
    acknowledgeable: Option<Psn>,
    /// Packets executed since the last acknowledgement.
    packets: u32,
    /// A gap or an RNR was reported; nothing more is said until the expected packet comes.
    nak_sent: bool,
    /// When a packet was executed last.
    executed_at: Nanos,
    /// Since when one is owed that may wait, where it is.
    waits_since: Nanos,
    /// It has waited for long: it was not asked for, and there are few packets.
    is_hastened: bool,
}

impl Acknowledgement {
    pub(super) const fn new() -> Self {
        Self {
            owed: Owed::Nothing,
            acknowledgeable: None,
            packets: 0,
            nak_sent: false,
            executed_at: 0,
            waits_since: 0,
            is_hastened: false,
        }
    }

    #[inline]
    pub(super) const fn owed(&self) -> Owed {
        self.owed
    }

    /// Whether one is due: a NAK, or an acknowledgement of at least `packets` packets.
    #[inline]
    pub(super) const fn is_due(&self, packets: u32) -> bool {
        match self.owed {
            Owed::Nothing | Owed::Later => false,
            Owed::Ack => self.packets >= packets,
            Owed::Rnr | Owed::Nak(..) => true,
        }
    }

    /// The packet that a positive one names.
    #[inline]
    pub(super) const fn acknowledgeable(&self) -> Option<Psn> {
        self.acknowledgeable
    }

    /// Since when one is owed that may wait.
    pub(super) fn waits_since(&self) -> Option<Nanos> {
        (self.owed == Owed::Later).then_some(self.waits_since)
    }

    /// How long it has waited.
    pub(super) const fn waited(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.executed_at)
    }

    /// Owes this, whatever was owed before.
    pub(in crate::rc) fn owe(&mut self, owed: Owed) {
        self.owed = owed;
    }

    /// Owes an acknowledgement of the executed packet: at once where its sender asks for one, or where something is owed already;
    /// later where it ends a message.
    #[inline]
    pub(super) fn owe_ack(&mut self, is_asked_for: bool, ends_message: bool) {
        if self.owed == Owed::Nothing {
            self.waits_since = self.executed_at;
        }
        self.is_hastened &= !is_asked_for;
        self.owed = match self.owed {
            Owed::Nothing | Owed::Later if is_asked_for => Owed::Ack,
            Owed::Nothing if !ends_message => Owed::Nothing,
            Owed::Nothing | Owed::Later if self.packets < ACK_UNASKED => Owed::Later,
            _ => Owed::Ack,
        };
    }

    /// What is owed for later is owed at once, and waits for no others.
    pub(super) fn hasten(&mut self) {
        if self.owed == Owed::Later {
            self.owed = Owed::Ack;
            self.packets = self.packets.max(ACK_UNASKED);
            self.is_hastened = true;
        }
    }

    /// Owes one for a packet that came twice: the peer has not received the first. Where nothing was executed that one could
    /// name, the duplicate is a stray.
    pub(super) fn owe_again(&mut self) {
        self.packets = self.packets.max(1);
        if matches!(self.owed, Owed::Nothing | Owed::Later) && self.acknowledgeable.is_some() {
            self.owed = Owed::Ack;
        }
    }

    /// Owes a NAK, once until the expected packet comes.
    pub(super) fn owe_nak(&mut self, owed: Owed) {
        if !self.nak_sent {
            self.nak_sent = true;
            self.owed = owed;
        }
    }

    /// Owes an RNR NAK: each time that the expected packet finds no receive.
    pub(super) fn owe_rnr(&mut self) {
        self.nak_sent = false;
        self.owe_nak(Owed::Rnr);
    }

    /// Owes a report of a gap at `expected`, unless the peer waits after an RNR NAK and knows what is missing, or something worse
    /// is to be reported.
    pub(in crate::rc) fn owe_gap(&mut self, expected: Psn) {
        if !self.nak_sent
            && matches!(self.owed, Owed::Nothing | Owed::Later | Owed::Ack | Owed::Nak(NakCode::PsnSequence, _))
        {
            self.owed = Owed::Nak(NakCode::PsnSequence, expected);
        }
    }

    /// Names `psn`, a packet of a SEND or a WRITE that was executed.
    #[inline]
    pub(super) fn executed(&mut self, psn: Psn) {
        self.acknowledgeable = Some(psn);
    }

    /// A READ or an atomic was executed: what comes next is `expected`.
    ///
    /// The answer to it is data, and the peer may never have seen it. An acknowledgement with such a PSN would complete the
    /// request without data: Linux's rxe takes it for the answer and reports success.
    ///
    /// What is owed goes with the answer, and of a gap nothing is left to be said.
    pub(super) fn fetched(&mut self, expected: Psn) {
        let is_recent = |psn: &Psn| (1..=ACKNOWLEDGEABLE_FOR).contains(&expected.since(*psn));
        self.acknowledgeable = self.acknowledgeable.filter(is_recent);
        if self.acknowledgeable.is_none() || !matches!(self.owed, Owed::Later | Owed::Ack) {
            self.sent();
        }
    }

    /// The expected packet has come and was executed.
    #[inline]
    pub(super) fn settle(&mut self, now: Nanos) {
        self.nak_sent = false;
        self.executed_at = now;
        self.packets = self.packets.saturating_add(1);
    }

    /// Whether a response acknowledges all that a positive one would.
    #[inline]
    pub(super) fn is_covered_by(&self, response: Psn) -> bool {
        matches!(self.owed, Owed::Later | Owed::Ack) && self.acknowledgeable.is_some_and(|psn| psn.before(response))
    }

    /// Whether a response that acknowledges all of it should also say how many receives are posted, as it would itself. Where it has
    /// only waited for long the response's own number is enough.
    #[inline]
    pub(super) fn wants_to_go_with(&self, response: Psn) -> bool {
        self.owed == Owed::Ack && !self.is_hastened && self.is_covered_by(response)
    }

    /// It was sent, or something else has said the same.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.owed = Owed::Nothing;
        self.packets = 0;
        self.is_hastened = false;
    }

    /// Asserts what holds between any two calls, where `expected` comes next.
    pub(super) fn check(&self, expected: Psn) {
        let is_positive = matches!(self.owed, Owed::Later | Owed::Ack);
        assert!(!is_positive || self.acknowledgeable.is_some(), "an acknowledgement of nothing is owed");
        assert!(self.acknowledgeable.is_none_or(|psn| psn.before(expected)), "what comes next is acknowledged");
    }
}
