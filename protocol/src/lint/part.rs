//! Which part of which message an opcode is. The responder has a table of its own: what is judged does not vouch for itself.

use crate::wire::Opcode;

/// The kind of message that a request opcode is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageKind {
    Send,
    Write,
    Read,
    Atomic,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketPosition {
    First,
    Middle,
    Last,
    Only,
}

impl PacketPosition {
    pub(super) const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    pub(super) const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) kind: MessageKind,
    pub(super) place: PacketPosition,
    /// It carries immediate data.
    pub(super) has_imm: bool,
}

impl Part {
    /// `None` for what is no request of a reliable connection.
    pub(super) const fn of(opcode: Opcode) -> Option<Self> {
        use Opcode as O;
        let (kind, place) = match opcode {
            O::RcSendFirst => (MessageKind::Send, PacketPosition::First),
            O::RcSendMiddle => (MessageKind::Send, PacketPosition::Middle),
            O::RcSendLast | O::RcSendLastImm | O::RcSendLastInvalidate => (MessageKind::Send, PacketPosition::Last),
            O::RcSendOnly | O::RcSendOnlyImm | O::RcSendOnlyInvalidate => (MessageKind::Send, PacketPosition::Only),
            O::RcWriteFirst => (MessageKind::Write, PacketPosition::First),
            O::RcWriteMiddle => (MessageKind::Write, PacketPosition::Middle),
            O::RcWriteLast | O::RcWriteLastImm => (MessageKind::Write, PacketPosition::Last),
            O::RcWriteOnly | O::RcWriteOnlyImm => (MessageKind::Write, PacketPosition::Only),
            O::RcReadRequest => (MessageKind::Read, PacketPosition::Only),
            O::RcCompareSwap | O::RcFetchAdd => (MessageKind::Atomic, PacketPosition::Only),
            _ => return None,
        };
        let has_imm = matches!(opcode, O::RcSendLastImm | O::RcSendOnlyImm | O::RcWriteLastImm | O::RcWriteOnlyImm);
        Some(Self { kind, place, has_imm })
    }

    /// Its answer is data.
    pub(super) const fn is_fetch(self) -> bool {
        matches!(self.kind, MessageKind::Read | MessageKind::Atomic)
    }

    /// The responder takes a receive for this very packet: a SEND's first one, a WRITE's with immediate data.
    pub(super) const fn takes_receive(self) -> bool {
        match self.kind {
            MessageKind::Send => self.place.starts(),
            MessageKind::Write => self.has_imm,
            MessageKind::Read | MessageKind::Atomic => false,
        }
    }

    /// It may ask for a solicited event.
    pub(super) const fn may_solicit(self) -> bool {
        match self.kind {
            MessageKind::Send => self.place.ends(),
            MessageKind::Write => self.has_imm,
            MessageKind::Read | MessageKind::Atomic => false,
        }
    }
}
