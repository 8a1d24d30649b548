//! The name under which a packet that came early is kept, and whether two packets of one name agree.

use crate::rc::is_response;
use crate::wire::Packet;

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
        if is_response(packet.headers.bth.opcode) { Self::Response(psn) } else { Self::Request(psn) }
    }

    /// Whether two packets of this name say the same. What one packet and its retransmission may differ in is left out: who
    /// is to answer at once, what is acknowledged beside, where a READ that is asked for again begins and ends.
    pub fn agree(self, one: &Packet<'_>, other: &Packet<'_>) -> bool {
        let (a, b) = (&one.headers.ext, &other.headers.ext);
        let is_same_request = one.headers.bth.opcode == other.headers.bth.opcode
            && (a.imm, a.ieth, a.atomic) == (b.imm, b.ieth, b.atomic)
            && a.reth.map(|reth| (reth.va, reth.rkey)) == b.reth.map(|reth| (reth.va, reth.rkey));
        (matches!(self, Self::Response(_)) || is_same_request)
            && a.atomic_ack == b.atomic_ack
            && one.payload == other.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{AtomicAckEth, AtomicEth, Bth, Headers, ImmDt, Opcode, Reth};
    use crate::{Psn, Qpn, Rkey};

    #[test]
    fn two_packets_of_one_name_agree_unless_what_they_do_differs() {
        let headers = |opcode| Headers::plain(Bth::new(opcode, Qpn::new(1), Psn::new(5)));
        let agree = |one: &Headers, other: &Headers| {
            let [one, other] = [one, other].map(|headers| Packet { headers: *headers, payload: &[1] });
            Held::of(&one).agree(&one, &other)
        };
        let mut one = headers(Opcode::RcWriteOnlyImm);
        one.ext.reth = Some(Reth { va: 1, rkey: Rkey(2), len: 3 });
        one.ext.atomic = Some(AtomicEth { va: 1, rkey: Rkey(2), swap_or_add: 3, compare: 4 });
        one.ext.imm = Some(ImmDt(6));
        let same: [fn(&mut Headers); 2] =
            [|it| it.bth.ack_req = true, |it| it.ext.reth = Some(Reth { va: 1, rkey: Rkey(2), len: 4 })];
        let other: [fn(&mut Headers); 6] = [
            |it| it.bth.opcode = Opcode::RcWriteOnly,
            |it| it.ext.imm = Some(ImmDt(7)),
            |it| it.ext.atomic = None,
            |it| it.ext.reth = Some(Reth { va: 2, rkey: Rkey(2), len: 3 }),
            |it| it.ext.reth = Some(Reth { va: 1, rkey: Rkey(3), len: 3 }),
            |it| it.ext.atomic_ack = Some(AtomicAckEth { original: 1 }),
        ];
        for (change, agrees) in same.map(|it| (it, true)).into_iter().chain(other.map(|it| (it, false))) {
            let mut changed = one;
            change(&mut changed);
            assert_eq!(agree(&one, &changed), agrees, "{changed:?}");
        }
        // Where a READ is asked for again from its middle, other opcodes answer.
        let [one, mut other] = [Opcode::RcReadResponseMiddle, Opcode::RcReadResponseFirst].map(headers);
        assert!(agree(&one, &other));
        other.ext.atomic_ack = Some(AtomicAckEth { original: 1 });
        assert!(!agree(&one, &other));
        let [one, other] = [[1], [2]].map(|payload| (one, payload));
        let [one, other] = [&one, &other].map(|(headers, payload)| Packet { headers: *headers, payload });
        assert!(!Held::of(&one).agree(&one, &other), "the bytes count");
    }
}
