//! Chooses the engine that a frame is for, of several on one port. This looks at a few bytes and proves nothing: the
//! engine that gets the frame parses and verifies it.

use roci_protocol::Qpn;
use roci_protocol::wire::{mad, udp};

const ETHERTYPE_AT: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// ARP's operation (RFC 826), and the one that answers.
const ARP_OPERATION_AT: usize = 6;
const ARP_REPLY: u16 = 2;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMPV6: u8 = 58;
/// ICMPv6's answer of neighbour discovery (RFC 4861).
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Where the BTH has the destination's number.
const DEST_QPN_AT: usize = 5;

/// Whom a frame concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addressee {
    /// The engine of this queue pair.
    Owner(Qpn),
    /// The one that answers for all: ARP and neighbour discovery, pings, management datagrams, and unknown frames.
    Steward,
    /// Every engine: an answer about a neighbour, whom each may have asked for.
    Everyone,
}

/// Whom a frame concerns.
#[inline]
pub(super) fn addressee(frame: &[u8]) -> Addressee {
    match concerns(frame) {
        Some(found) => found,
        None => Addressee::Steward,
    }
}

/// Whether a frame's UDP checksum was left out, as RoCEv2 does (IBTA's annex A17). Some NICs take that for wrong.
#[cold]
pub(in super::super) fn is_without_udp_checksum(frame: &[u8]) -> bool {
    let checksum = payload_of_ip(frame).and_then(|(protocol, payload)| Some((protocol, payload.get(6..UDP_LEN)?)));
    checksum == Some((PROTOCOL_UDP, &[0, 0]))
}

#[inline]
fn concerns(frame: &[u8]) -> Option<Addressee> {
    let Some((protocol, payload)) = payload_of_ip(frame) else {
        let (ethertype, payload) = ethertype(frame)?;
        let is_answer = ethertype == ETHERTYPE_ARP && word(payload, ARP_OPERATION_AT) == Some(ARP_REPLY);
        return is_answer.then_some(Addressee::Everyone);
    };
    if protocol == PROTOCOL_ICMPV6 {
        return (payload.first() == Some(&NEIGHBOUR_ADVERTISEMENT)).then_some(Addressee::Everyone);
    }
    if protocol != PROTOCOL_UDP || word(payload, 2)? != udp::ROCE_PORT {
        return None;
    }
    let &[high, middle, low] = payload.get(UDP_LEN + DEST_QPN_AT..)?.first_chunk()?;
    let qpn = u32::from_be_bytes([0, high, middle, low]);
    (qpn > mad::QPN).then_some(Addressee::Owner(Qpn::new(qpn)))
}

/// The protocol inside of a frame's IP packet, and its bytes.
#[inline]
fn payload_of_ip(frame: &[u8]) -> Option<(u8, &[u8])> {
    let (ethertype, packet) = ethertype(frame)?;
    match ethertype {
        ETHERTYPE_IPV4 => {
            let words = usize::from(*packet.first()? & 0xf);
            Some((*packet.get(9)?, packet.get(4 * words..)?))
        }
        ETHERTYPE_IPV6 => Some((*packet.get(6)?, packet.get(IPV6_LEN..)?)),
        _ => None,
    }
}

/// The ethertype behind a VLAN's tag, if there is one, and what follows.
#[inline]
fn ethertype(frame: &[u8]) -> Option<(u16, &[u8])> {
    let at = if word(frame, ETHERTYPE_AT)? == ETHERTYPE_VLAN { ETHERTYPE_AT + 4 } else { ETHERTYPE_AT };
    Some((word(frame, at)?, frame.get(at + 2..)?))
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;
    use roci_protocol::Psn;
    use roci_protocol::wire::{Bth, Extensions, Flow, Frame, Headers, Ip, MacAddr, Opcode};

    use super::*;

    fn frame_for(qpn: u32, is_v6: bool, vlan: Option<u16>) -> Vec<u8> {
        let [ours, theirs] = if is_v6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
        let [ours, theirs] = [ours, theirs].map(|text| text.parse::<IpAddr>().expect("an address"));
        let ip = Ip::between(ours, theirs).expect("one version");
        let mut flow = Flow::new(MacAddr([2; 6]), MacAddr([4; 6]), vlan, ip, 0xc123);
        let bth = Bth::new(Opcode::RcSendOnly, Qpn::new(qpn), Psn::new(7));
        let headers = Headers { bth, ext: Extensions::default() };
        let mut frame = vec![0; flow.frame_len(&headers, 64)];
        flow.emit(&mut frame, &headers, 64, |payload| payload.fill(9));
        frame
    }

    proptest! {
        #[test]
        fn a_packet_concerns_the_queue_pair_that_its_header_names(
            qpn in 0u32..1 << 24, is_v6: bool, vlan in proptest::option::of(1u16..4095)
        ) {
            let frame = frame_for(qpn, is_v6, vlan);
            let parsed = Frame::parse(&frame).expect("well made").packet.headers.bth.dest_qpn;
            let expected = if qpn > 1 { Addressee::Owner(parsed) } else { Addressee::Steward };
            prop_assert_eq!(addressee(&frame), expected);
            prop_assert!(is_without_udp_checksum(&frame));
        }

        #[test]
        fn cut_frames_and_noise_concern_somebody(
            noise in proptest::collection::vec(any::<u8>(), 0..120), cut in 0usize..140, is_v6: bool
        ) {
            addressee(&noise);
            is_without_udp_checksum(&noise);
            let frame = frame_for(0x40_0007, is_v6, None);
            let cut = cut.min(frame.len());
            let found = addressee(&frame[..cut]);
            prop_assert!(matches!(found, Addressee::Steward | Addressee::Owner(_)));
        }
    }

    #[test]
    fn answers_about_neighbours_are_everyones_and_questions_the_stewards() {
        let arp = |operation: u8| {
            let mut frame = vec![0xff; 12];
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
            frame.resize(60, 0);
            frame
        };
        assert_eq!(addressee(&arp(1)), Addressee::Steward);
        assert_eq!(addressee(&arp(2)), Addressee::Everyone);
        let icmp = |kind: u8| {
            let mut frame = vec![2; 12];
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, PROTOCOL_ICMPV6, 255]);
            frame.resize(14 + IPV6_LEN, 1);
            frame.extend([kind, 0, 0, 0]);
            frame
        };
        assert_eq!(addressee(&icmp(135)), Addressee::Steward);
        assert_eq!(addressee(&icmp(NEIGHBOUR_ADVERTISEMENT)), Addressee::Everyone);
        assert_eq!(addressee(&[]), Addressee::Steward);
    }

    #[test]
    fn a_checksum_that_is_there_is_seen() {
        let mut frame = frame_for(9, false, None);
        frame[14 + 20 + 6] = 1;
        assert!(!is_without_udp_checksum(&frame));
        assert!(!is_without_udp_checksum(&[0; 10]));
    }
}
