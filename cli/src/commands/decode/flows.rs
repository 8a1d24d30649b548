//! Packets of the same queue pair, from the same host: which were sent again, and how many there were.

use std::collections::HashMap;
use std::net::IpAddr;

use roci_protocol::wire::{Frame, Opcode, Syndrome, Transport};
use roci_protocol::{Nanos, Psn, Qpn};

use super::packet::CapturedPacket;

/// What the packets before it say of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketMark {
    /// The same packet was captured before.
    Retransmitted,
    /// One behind it was captured before, and this one was not.
    OutOfOrder,
}

impl PacketMark {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Retransmitted => "retransmitted",
            Self::OutOfOrder => "out_of_order",
        }
    }
}

/// Packets from one host to one queue pair of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FlowKey {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) dest_qpn: Qpn,
}

impl FlowKey {
    pub(super) fn of(frame: &Frame<'_>) -> Self {
        let dest_qpn = frame.packet.headers.bth.dest_qpn;
        Self { source: frame.ip.source(), destination: frame.ip.destination(), dest_qpn }
    }
}

/// What a flow carried.
#[derive(Default)]
pub(super) struct PacketFlow {
    pub(super) packets: u64,
    pub(super) payload: u64,
    pub(super) acks: u64,
    pub(super) naks: u64,
    pub(super) retransmitted: u64,
    pub(super) out_of_order: u64,
    pub(super) bad_icrc: u64,
    pub(super) first: Option<Nanos>,
    pub(super) last: Option<Nanos>,
    /// Requests and responses have PSNs of two different ends.
    requests: PsnHistory,
    responses: PsnHistory,
}

/// All flows of a capture.
#[derive(Default)]
pub(super) struct Flows(HashMap<FlowKey, PacketFlow>);

impl Flows {
    /// Counts a packet, and says what those before it mean for it.
    pub(super) fn note(&mut self, at: Option<Nanos>, packet: &CapturedPacket<'_>) -> Option<PacketMark> {
        let Ok(frame) = &packet.frame else { return None };
        let flow = self.0.entry(FlowKey::of(frame)).or_default();
        flow.count(frame, at, packet.has_bad_icrc())
    }

    /// The flows, in the order of their keys.
    pub(super) fn sorted(&self) -> Vec<(&FlowKey, &PacketFlow)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(key, _)| **key);
        all
    }
}

impl PacketFlow {
    fn count(&mut self, frame: &Frame<'_>, at: Option<Nanos>, is_bad: bool) -> Option<PacketMark> {
        let headers = &frame.packet.headers;
        self.packets += 1;
        self.payload += frame.packet.payload.len() as u64;
        self.bad_icrc += u64::from(is_bad);
        self.first = self.first.or(at);
        self.last = at.or(self.last);
        match headers.ext.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack { .. }) => self.acks += u64::from(headers.bth.opcode == Opcode::RcAck),
            Some(_) => self.naks += 1,
            None => {}
        }
        if is_bad || !has_order(headers.bth.opcode) {
            return None;
        }
        let history = if is_response(headers.bth.opcode) { &mut self.responses } else { &mut self.requests };
        let mark = history.note(headers.bth.psn);
        match mark {
            Some(PacketMark::Retransmitted) => self.retransmitted += 1,
            Some(PacketMark::OutOfOrder) => self.out_of_order += 1,
            None => {}
        }
        mark
    }
}

/// Whether a packet has a PSN of its own. An acknowledgement names that of a request, and may do so again.
fn has_order(opcode: Opcode) -> bool {
    opcode.transport() == Transport::Rc && opcode != Opcode::RcAck
}

const fn is_response(opcode: Opcode) -> bool {
    use Opcode::{RcAtomicAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly};
    matches!(opcode, RcAtomicAck | RcReadResponseFirst | RcReadResponseMiddle | RcReadResponseLast | RcReadResponseOnly)
}

/// Packets back from the newest one of which is remembered whether they were captured.
const REMEMBERED: usize = 4096;

/// The PSNs that were captured lately.
#[derive(Default)]
struct PsnHistory {
    newest: Option<Psn>,
    /// By the last bits of a PSN: the PSN that was captured there last.
    captured: Vec<Option<Psn>>,
}

impl PsnHistory {
    fn note(&mut self, psn: Psn) -> Option<PacketMark> {
        self.captured.resize(REMEMBERED, None);
        let place = &mut self.captured[psn.get() as usize % REMEMBERED];
        let was_captured = place.replace(psn) == Some(psn);
        match self.newest {
            Some(newest) if !newest.before(psn) => {
                let is_again = was_captured || newest.since(psn) as usize >= REMEMBERED;
                Some(if is_again { PacketMark::Retransmitted } else { PacketMark::OutOfOrder })
            }
            _ => {
                self.newest = Some(psn);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(psns: &[u32]) -> Vec<Option<PacketMark>> {
        let mut history = PsnHistory::default();
        psns.iter().map(|&psn| history.note(Psn::new(psn))).collect()
    }

    #[test]
    fn what_came_before_is_retransmitted_and_what_is_late_is_out_of_order() {
        let [again, late] = [Some(PacketMark::Retransmitted), Some(PacketMark::OutOfOrder)];
        assert_eq!(marks(&[5, 6, 8, 7, 7, 9, 5]), [None, None, None, late, again, None, again]);
        assert_eq!(marks(&[0xff_ffff, 0, 0xff_ffff, 1]), [None, None, again, None], "PSNs begin anew");
        assert_eq!(marks(&[0, 5000, 4999, 1]), [None, None, late, again], "so far back only a repetition is likely");
    }
}
