//! The receiving twin of [`Flow`](super::Flow): frames of one connection look alike below the transport, so what was found
//! good once is compared, and not read again.

use std::net::Ipv4Addr;

use super::frame::Frame;
use super::icrc::{self, Register};
use super::identification::Finder;
use super::{bth, ethernet, ipv4, ipv6, udp};
use crate::Qpn;

/// How many lengths a connection remembers, each in the place that its words give it. Of eight, the first packet of a WRITE
/// and those behind it, which are 16 bytes shorter, have two.
const REMEMBERED: usize = 8;
/// Where the EtherType of a frame without a tag is: what is compared begins there, as addresses below IP do not matter.
const FROM: usize = 12;
const V4: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
const V6: usize = ethernet::LEN + ipv6::LEN + udp::LEN;

/// What the frames of one connection had below the transport, by their length.
///
/// It holds only what its owner has [accepted](Inflow::accept). A frame that equals that, byte for byte from the EtherType
/// to the transport, is as good as the one before down to there, so that only the packet and the ICRC are left to check.
#[derive(Clone)]
pub struct Inflow {
    /// Frames carry an ICRC.
    is_sealed: bool,
    /// Frames may show another identification than that which their ICRC was made with.
    hides_identification: bool,
    remembered: [Accepted; REMEMBERED],
}

#[derive(Clone, Copy)]
struct Accepted {
    transport_len: u16,
    /// EtherType, IP and UDP; all zero, which no frame has, where nothing is remembered.
    header: [u8; V6 - FROM],
    /// The ICRC behind them.
    register: Register,
    finder: Finder,
}

/// A frame that looks like one that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognized<'a> {
    /// BTH to ICRC.
    pub transport: &'a [u8],
    /// The identification that its ICRC was made with, XORed with the one that it shows: 0 where that is not hidden.
    pub identification: u16,
}

impl Inflow {
    /// Nothing is known yet, but whether frames carry an ICRC, and whether they hide the identification that it was made with.
    pub const fn new(is_sealed: bool, hides_identification: bool) -> Self {
        let nothing =
            Accepted { transport_len: 0, header: [0; V6 - FROM], register: Register::NOTHING, finder: Finder::NONE };
        Self { is_sealed, hides_identification, remembered: [nothing; REMEMBERED] }
    }

    /// Remembers what a frame has below the transport: it was parsed, its ICRC is right, and nothing in its IP header, from
    /// the addresses to the congestion mark, demands to be looked at in the frames that equal it.
    ///
    /// Frames with a tag are not remembered.
    pub fn accept(&mut self, bytes: &[u8], frame: &Frame<'_>) {
        let Some(len) = header_len(bytes) else { return };
        let Ok((register, _)) = Register::after_udp(frame.datagram) else { return };
        let mut header = [0; V6 - FROM];
        header[..len - FROM].copy_from_slice(&bytes[FROM..len]);
        let is_hidden = self.hides_identification && self.is_sealed && len == V4;
        let finder = if is_hidden { Finder::of(frame.datagram.len()) } else { Finder::NONE };
        *self.slot(bytes.len()) = Accepted { transport_len: frame.udp.payload_len, header, register, finder };
    }

    /// A frame that looks like one that was accepted and whose ICRC is right, or left out where frames carry none. `None` says
    /// nothing about the frame: it is to be parsed.
    #[inline(always)]
    pub fn recognize<'a>(&self, bytes: &'a [u8]) -> Option<Recognized<'a>> {
        let accepted = &self.remembered[index(bytes.len())];
        let transport = match header_len(bytes)? {
            V4 => behind::<{ V4 - FROM }>(bytes, &accepted.header)?,
            _ => behind::<{ V6 - FROM }>(bytes, &accepted.header)?,
        };
        let transport = transport.get(..usize::from(accepted.transport_len))?;
        let (covered, icrc) = transport.split_at_checked(transport.len().checked_sub(icrc::LEN)?)?;
        if covered.len() < bth::LEN {
            return None;
        }
        let expected =
            if self.is_sealed { accepted.register.finish(covered) } else { icrc::omitted(destination(covered)?) };
        let difference = u32::from_le_bytes(expected) ^ u32::from_le_bytes(*icrc.first_chunk()?);
        let identification = if difference == 0 { 0 } else { accepted.finder.find(difference)? };
        Some(Recognized { transport, identification })
    }

    fn slot(&mut self, frame_len: usize) -> &mut Accepted {
        &mut self.remembered[index(frame_len)]
    }
}

/// The queue pair that a frame without a tag says it is for, by its place alone: nothing of the frame is checked.
#[inline]
pub fn glance(bytes: &[u8]) -> Option<Qpn> {
    destination(bytes.get(header_len(bytes)?..)?)
}

/// A UDP socket that sends over IPv4: its address and its port, as one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderV4(u64);

impl SenderV4 {
    /// The socket with this address and port.
    #[inline]
    pub const fn new(ip: Ipv4Addr, port: u16) -> Self {
        Self((ip.to_bits() as u64) << u16::BITS | port as u64)
    }

    /// The number; its highest 16 bits are 0.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Who sends an IPv4 frame without a tag, by its place alone: nothing of the frame is checked.
#[inline]
pub fn glance_at_sender(bytes: &[u8]) -> Option<SenderV4> {
    let &ip = bytes.get(ethernet::LEN + ipv4::SOURCE..)?.first_chunk::<4>()?;
    let &port = bytes.get(V4 - udp::LEN..)?.first_chunk()?;
    Some(SenderV4::new(ip.into(), u16::from_be_bytes(port)))
}

#[inline]
fn destination(transport: &[u8]) -> Option<Qpn> {
    let &[high, middle, low] = transport.get(bth::DEST_QPN..)?.first_chunk()?;
    Some(Qpn::new(u32::from_be_bytes([0, high, middle, low])))
}

/// Where the transport begins, if the EtherType is followed by IP and UDP as RoCEv2 has them; it need not be.
#[inline]
fn header_len(bytes: &[u8]) -> Option<usize> {
    match u16::from_be_bytes(*bytes.get(FROM..)?.first_chunk()?) {
        ethernet::ETHERTYPE_IPV4 => Some(V4),
        ethernet::ETHERTYPE_IPV6 => Some(V6),
        _ => None,
    }
}

/// What follows the `N` bytes from [`FROM`] on, if they equal the first of `header`.
#[inline]
fn behind<'a, const N: usize>(bytes: &'a [u8], header: &[u8; V6 - FROM]) -> Option<&'a [u8]> {
    let (seen, rest) = bytes.get(FROM..)?.split_first_chunk::<N>()?;
    (*seen == header[..N]).then_some(rest)
}

/// Lengths of whole words beside each other have different places, and so have those that are a line apart, as of packets with one
/// message more.
#[inline]
const fn index(frame_len: usize) -> usize {
    (frame_len / 4 + frame_len / 64) % REMEMBERED
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;
    use crate::wire::{Bth, Flow, Headers, Ip, MacAddr, Opcode, Reth, identification};
    use crate::{Psn, Rkey};

    const SIDES: [[IpAddr; 2]; 2] = [
        [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))],
        [
            IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
        ],
    ];

    fn flow([source, destination]: [IpAddr; 2], vlan: Option<u16>) -> Flow {
        let ip = Ip::between(source, destination).expect("one version");
        Flow::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), vlan, ip, 0xc000)
    }

    fn frame(flow: &mut Flow, psn: u32, len: usize) -> Vec<u8> {
        let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(psn)));
        let mut bytes = vec![0; flow.frame_len(&headers, len)];
        flow.emit(&mut bytes, &headers, len, |payload| payload.fill(psn as u8));
        bytes
    }

    fn accepted(bytes: &[u8]) -> Inflow {
        let mut inflow = Inflow::new(true, false);
        inflow.accept(bytes, &Frame::parse(bytes).expect("it is well formed"));
        inflow
    }

    /// What is recognized would have been verified, and begins where a parsed frame's transport does.
    fn assert_is_sound(inflow: &Inflow, bytes: &[u8]) -> bool {
        let Some(Recognized { transport, identification: 0 }) = inflow.recognize(bytes) else { return false };
        let frame = Frame::parse(bytes).expect("what is recognized is well formed");
        frame.verify_icrc().expect("its ICRC is right");
        assert_eq!((transport, glance(bytes)), (frame.transport(), Some(frame.packet.headers.bth.dest_qpn)));
        true
    }

    #[test]
    fn frames_like_the_accepted_one_are_recognized_at_every_length() {
        for sides in SIDES {
            let mut flow = flow(sides, None);
            for len in (0..300).chain([1023, 1024, 4096, 8192]) {
                let inflow = accepted(&frame(&mut flow, 1, len));
                assert!(assert_is_sound(&inflow, &frame(&mut flow, 2, len)), "{len}");
                assert!(!assert_is_sound(&inflow, &frame(&mut flow, 2, len + 4)), "{len}");
            }
        }
    }

    #[test]
    fn lengths_that_fall_into_different_places_are_remembered_beside_each_other() {
        let mut flow = flow(SIDES[0], None);
        let mut inflow = Inflow::new(true, false);
        for len in [0, 4, 8, 12] {
            let bytes = frame(&mut flow, 1, len);
            inflow.accept(&bytes, &Frame::parse(&bytes).expect("it is well formed"));
        }
        assert!([0, 4, 8, 12].into_iter().all(|len| assert_is_sound(&inflow, &frame(&mut flow, 2, len))));
    }

    #[test]
    fn packets_with_one_message_more_do_not_displace_each_other() {
        let mut flow = flow(SIDES[0], None);
        let mut inflow = Inflow::new(true, false);
        let lens = || (0..REMEMBERED).map(|more| 48 + 64 * more);
        for len in lens() {
            let bytes = frame(&mut flow, 1, len);
            inflow.accept(&bytes, &Frame::parse(&bytes).expect("it is well formed"));
        }
        assert!(lens().all(|len| assert_is_sound(&inflow, &frame(&mut flow, 2, len))));
    }

    #[test]
    fn the_packets_of_a_write_do_not_displace_each_other() {
        let mut flow = flow(SIDES[0], None);
        let mut packet = |opcode, psn| {
            let reth = (opcode == Opcode::RcWriteFirst).then_some(Reth { va: 0, rkey: Rkey(1), len: 8192 });
            let mut headers = Headers::plain(Bth::new(opcode, Qpn::new(7), Psn::new(psn)));
            headers.ext.reth = reth;
            let mut bytes = vec![0; flow.frame_len(&headers, 4096)];
            flow.emit(&mut bytes, &headers, 4096, |payload| payload.fill(1));
            bytes
        };
        let mut inflow = Inflow::new(true, false);
        for opcode in [Opcode::RcWriteFirst, Opcode::RcWriteLast] {
            let bytes = packet(opcode, 1);
            inflow.accept(&bytes, &Frame::parse(&bytes).expect("it is well formed"));
        }
        assert!(
            [Opcode::RcWriteFirst, Opcode::RcWriteLast]
                .map(|opcode| packet(opcode, 2))
                .iter()
                .all(|bytes| assert_is_sound(&inflow, bytes))
        );
    }

    #[test]
    fn whatever_bit_is_wrong_a_frame_is_recognized_only_where_it_would_be_parsed() {
        for sides in SIDES {
            let good = frame(&mut flow(sides, None), 1, 21);
            let inflow = accepted(&good);
            let mut recognized = 0;
            for bit in 0..good.len() * 8 {
                let mut bytes = good.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                recognized += usize::from(assert_is_sound(&inflow, &bytes));
            }
            // Two stations' addresses, and the BTH's byte that no ICRC covers.
            assert_eq!(recognized, (12 + 1) * 8);
        }
    }

    #[test]
    fn a_frame_that_is_cut_is_not_recognized_and_ethernets_own_pad_does_not_matter() {
        for sides in SIDES {
            let good = frame(&mut flow(sides, None), 1, 0);
            let inflow = accepted(&good);
            for len in 0..good.len() {
                assert!(!assert_is_sound(&inflow, &good[..len]), "{len}");
            }
            let mut padded = good.clone();
            padded.resize(good.len() + 2, 0xee);
            assert!(assert_is_sound(&accepted(&padded), &padded));
        }
    }

    #[test]
    fn nothing_is_recognized_before_it_is_accepted_and_tags_never_are() {
        let plain = frame(&mut flow(SIDES[0], None), 1, 8);
        assert!(!assert_is_sound(&Inflow::new(true, false), &plain));
        assert!(!assert_is_sound(&Inflow::new(true, false), &[0; 64]));
        let tagged = frame(&mut flow(SIDES[0], Some(5)), 1, 8);
        assert!(!assert_is_sound(&accepted(&tagged), &tagged) && glance(&tagged).is_none());
        let other = frame(&mut flow([SIDES[0][1], SIDES[0][0]], None), 1, 8);
        assert!(!assert_is_sound(&accepted(&plain), &other), "another sender's");
    }

    #[test]
    fn a_hidden_identification_is_found_where_it_may_be_hidden_and_damage_is_not_taken_for_one() {
        for sides in SIDES {
            let good = frame(&mut flow(sides, None), 1, 21);
            let hiding = |hides| {
                let mut inflow = Inflow::new(true, hides);
                inflow.accept(&good, &Frame::parse(&good).expect("it is well formed"));
                inflow
            };
            let is_v4 = sides[0].is_ipv4();
            for id in [1, 63, 64, 0x1234, u16::MAX] {
                let mut other = good.clone();
                let change = identification::change(good.len() - ethernet::LEN, id);
                let icrc = other.last_chunk_mut::<4>().expect("there is one");
                *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
                assert_eq!(hiding(false).recognize(&other), None);
                let found = hiding(true).recognize(&other).map(|recognized| recognized.identification);
                assert_eq!(found, is_v4.then_some(id));
            }
            let inflow = hiding(true);
            let damaged = (V6 * 8..good.len() * 8).filter(|bit| {
                let mut bytes = good.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                inflow.recognize(&bytes).is_some_and(|recognized| recognized.identification != 0)
            });
            assert_eq!(damaged.count(), 0);
        }
    }

    #[test]
    fn a_sender_is_its_address_and_port() {
        let bytes = frame(&mut flow(SIDES[0], None), 1, 0);
        assert_eq!(glance_at_sender(&bytes), Some(SenderV4(0x0a00_0001_c000)));
        assert_eq!(glance_at_sender(&bytes[..35]), None);
    }

    #[test]
    fn without_icrcs_the_mark_alone_is_recognized() {
        let bytes = |flow: &mut Flow| frame(flow, 1, 8);
        let (sealed, unsealed) = (bytes(&mut flow(SIDES[0], None)), bytes(&mut flow(SIDES[0], None).unsealed()));
        for (is_sealed, good, bad) in [(true, &sealed, &unsealed), (false, &unsealed, &sealed)] {
            let mut inflow = Inflow::new(is_sealed, false);
            inflow.accept(good, &Frame::parse(good).expect("it is well formed"));
            assert!(inflow.recognize(good).is_some() && inflow.recognize(bad).is_none());
        }
    }
}
