//! Which part of which message an opcode is. The responder has a table of its own: what is judged does not vouch for itself.

use crate::wire::Opcode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
    Atomic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl Place {
    pub(super) const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    pub(super) const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// It carries immediate data.
    pub(super) has_imm: bool,
}

impl Part {
    /// `None` for what is no request of a reliable connection.
    pub(super) const fn of(opcode: Opcode) -> Option<Self> {
        use Opcode as O;
        let (kind, place) = match opcode {
            O::RcSendFirst => (Kind::Send, Place::First),
            O::RcSendMiddle => (Kind::Send, Place::Middle),
            O::RcSendLast | O::RcSendLastImm | O::RcSendLastInvalidate => (Kind::Send, Place::Last),
            O::RcSendOnly | O::RcSendOnlyImm | O::RcSendOnlyInvalidate => (Kind::Send, Place::Only),
            O::RcWriteFirst => (Kind::Write, Place::First),
            O::RcWriteMiddle => (Kind::Write, Place::Middle),
            O::RcWriteLast | O::RcWriteLastImm => (Kind::Write, Place::Last),
            O::RcWriteOnly | O::RcWriteOnlyImm => (Kind::Write, Place::Only),
            O::RcReadRequest => (Kind::Read, Place::Only),
            O::RcCompareSwap | O::RcFetchAdd => (Kind::Atomic, Place::Only),
            _ => return None,
        };
        let has_imm = matches!(opcode, O::RcSendLastImm | O::RcSendOnlyImm | O::RcWriteLastImm | O::RcWriteOnlyImm);
        Some(Self { kind, place, has_imm })
    }

    /// Its answer is data.
    pub(super) const fn is_fetch(self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Atomic)
    }

    /// The responder takes a receive for this very packet: a SEND's first one, a WRITE's with immediate data.
    pub(super) const fn takes_receive(self) -> bool {
        match self.kind {
            Kind::Send => self.place.starts(),
            Kind::Write => self.has_imm,
            Kind::Read | Kind::Atomic => false,
        }
    }

    /// It may ask for a solicited event.
    pub(super) const fn may_solicit(self) -> bool {
        match self.kind {
            Kind::Send => self.place.ends(),
            Kind::Write => self.has_imm,
            Kind::Read | Kind::Atomic => false,
        }
    }
}
