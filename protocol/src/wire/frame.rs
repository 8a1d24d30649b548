//! The whole frame: Ethernet, IP, UDP, packet, ICRC; and the flow that emits frames of one connection.

use std::net::IpAddr;

use super::icrc::{self, Register};
use super::packet::{Headers, Packet, pad_of};
use super::{Ethernet, HeaderWords, Ipv4, Ipv6, MacAddr, Malformed, Udp, ethernet, ipv4, ipv6, udp};
use crate::Qpn;

/// More than any frame holds beside its payload: Ethernet with a tag, IPv6, UDP, BTH, the longest
/// extensions, pad and ICRC.
pub const MAX_OVERHEAD: usize = 18 + ipv6::LEN + udp::LEN + 12 + 32 + 3 + icrc::LEN;
const MAX_FLOW_HEADER: usize = 18 + ipv6::LEN + udp::LEN;

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ip {
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
}

impl Ip {
    /// A header from `source` to `destination` with the fields of a fresh flow: no fragmentation,
    /// identification 0, hop limit 64. `None` where the versions differ.
    pub fn between(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let flags_fragment = ipv4::DONT_FRAGMENT;
                Some(Self::V4(Ipv4 { tos: 0, payload_len: 0, id: 0, flags_fragment, ttl: 64, source, destination }))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6(Ipv6 {
                traffic_class: 0,
                flow_label: 0,
                payload_len: 0,
                hop_limit: 64,
                source,
                destination,
            })),
            _ => None,
        }
    }

    /// The sender.
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.source),
            Self::V6(header) => IpAddr::V6(header.source),
        }
    }

    /// The receiver.
    pub const fn destination(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.destination),
            Self::V6(header) => IpAddr::V6(header.destination),
        }
    }

    /// The header's length.
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::LEN,
            Self::V6(_) => ipv6::LEN,
        }
    }

    /// DSCP and ECN as one byte.
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(header) => header.tos,
            Self::V6(header) => header.traffic_class,
        }
    }

    /// The header with another DSCP and ECN.
    #[must_use]
    pub const fn with_traffic_class(mut self, class: u8) -> Self {
        match &mut self {
            Self::V4(header) => header.tos = class,
            Self::V6(header) => header.traffic_class = class,
        }
        self
    }

    /// The header with another flow label, of which IPv4 has none.
    #[must_use]
    pub const fn with_flow_label(mut self, label: u32) -> Self {
        if let Self::V6(header) = &mut self {
            header.flow_label = label & 0xf_ffff;
        }
        self
    }

    const fn ethertype(&self) -> u16 {
        match self {
            Self::V4(_) => ethernet::ETHERTYPE_IPV4,
            Self::V6(_) => ethernet::ETHERTYPE_IPV6,
        }
    }

    fn emit(&self, bytes: &mut [u8]) {
        match self {
            Self::V4(header) => header.emit(bytes),
            Self::V6(header) => header.emit(bytes),
        }
    }

    fn with_payload_len(mut self, len: u16) -> Self {
        match &mut self {
            Self::V4(header) => header.payload_len = len,
            Self::V6(header) => header.payload_len = len,
        }
        self
    }
}

/// A parsed frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Layer 2.
    pub ethernet: Ethernet,
    /// Layer 3.
    pub ip: Ip,
    /// Layer 4.
    pub udp: Udp,
    /// The RoCEv2 packet.
    pub packet: Packet<'a>,
    /// IP header to ICRC: what the ICRC is computed over.
    pub datagram: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame; the ICRC is left to [`Frame::verify_icrc`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let FrameLayers { ethernet, ip, udp, datagram, transport } = FrameLayers::parse(bytes)?;
        Ok(Self { ethernet, ip, udp, packet: Packet::parse(transport)?, datagram })
    }

    /// BTH to ICRC.
    pub fn transport(&self) -> &'a [u8] {
        &self.datagram[self.ip.wire_len() + udp::LEN..]
    }

    /// Checks the ICRC.
    #[inline]
    pub fn verify_icrc(&self) -> Result<(), Malformed> {
        icrc::verify(self.datagram)
    }

    /// Whether the sender has left the ICRC out. Only who has agreed to that may take the packet unchecked.
    #[inline]
    pub fn omits_icrc(&self) -> bool {
        self.datagram.ends_with(&icrc::omitted(self.packet.headers.bth.dest_qpn))
    }

    /// Writes the frame again from its parsed parts; bytes behind IP's length (Ethernet's own pad) are not kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        let payload = self.packet.payload;
        let padded = payload.len() + pad_of(payload.len());
        let transport = self.packet.headers.wire_len() + padded + icrc::LEN;
        let mut bytes = vec![0; self.ethernet.wire_len() + self.ip.wire_len() + udp::LEN + transport];
        self.ethernet.emit(&mut bytes);
        let datagram = &mut bytes[self.ethernet.wire_len()..];
        self.ip.with_payload_len((udp::LEN + transport) as u16).emit(datagram);
        Udp { payload_len: transport as u16, ..self.udp }.emit(&mut datagram[self.ip.wire_len()..]);
        let packet = &mut datagram[self.ip.wire_len() + udp::LEN..];
        let at = self.packet.headers.emit(packet);
        packet[at..at + payload.len()].copy_from_slice(payload);
        seal(datagram);
        bytes
    }
}

/// What a frame holds down to UDP to the RoCEv2 port, whatever the packet inside is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLayers<'a> {
    /// Layer 2.
    pub ethernet: Ethernet,
    /// Layer 3.
    pub ip: Ip,
    /// Layer 4.
    pub udp: Udp,
    /// IP header to ICRC.
    pub datagram: &'a [u8],
    /// BTH to ICRC.
    pub transport: &'a [u8],
}

impl<'a> FrameLayers<'a> {
    /// Reads the headers below the transport.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (ethernet, rest) = Ethernet::parse(bytes)?;
        let (ip, datagram) = match ethernet.ethertype {
            ethernet::ETHERTYPE_IPV4 => Ipv4::parse(rest).map(|(header, payload)| (Ip::V4(header), payload))?,
            ethernet::ETHERTYPE_IPV6 => Ipv6::parse(rest).map(|(header, payload)| (Ip::V6(header), payload))?,
            _ => return Err(Malformed::NotIp),
        };
        let (udp, transport) = Udp::parse(datagram)?;
        if udp.destination != udp::ROCE_PORT {
            return Err(Malformed::NotRoce);
        }
        Ok(Self { ethernet, ip, udp, datagram: &rest[..ip.wire_len() + datagram.len()], transport })
    }
}

/// Computes and writes the ICRC of a datagram that is complete but for its last four bytes.
pub(crate) fn seal(datagram: &mut [u8]) {
    let (register, headers) = Register::after_udp(datagram).expect("we wrote this header");
    let end = datagram.len() - icrc::LEN;
    let icrc = register.finish(&datagram[headers..end]);
    datagram[end..].copy_from_slice(&icrc);
}

/// How many lengths a flow remembers: the full packet, the acknowledgement and the latest small ones.
const REMEMBERED: usize = 8;

/// The headers below the transport that all frames of one connection share.
///
/// IP and UDP differ between two frames only in their lengths, so header bytes and the ICRC register behind
/// them are computed once per length and remembered.
#[derive(Clone)]
pub struct Flow {
    ethernet: Ethernet,
    ip: Ip,
    source_port: u16,
    len: usize,
    /// Frames carry an ICRC.
    is_sealed: bool,
    remembered: [Prepared; REMEMBERED],
}

#[derive(Clone, Copy)]
struct Prepared {
    transport_len: usize,
    header: [u8; MAX_FLOW_HEADER],
    register: Register,
}

impl Prepared {
    /// Writes everything below the transport.
    #[inline]
    fn copy_header(&self, below: &mut [u8]) {
        /// Over IPv4 without a tag; of known length, it is copied without a call.
        const USUAL: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
        match <&mut [u8; USUAL]>::try_from(&mut *below) {
            Ok(usual) => usual.copy_from_slice(&self.header[..USUAL]),
            Err(_) => below.copy_from_slice(&self.header[..below.len()]),
        }
    }
}

impl Flow {
    /// The flow between two stations; `ip` says everything above Ethernet but the lengths.
    pub fn new(source: MacAddr, destination: MacAddr, vlan: Option<u16>, ip: Ip, source_port: u16) -> Self {
        let ethernet = Ethernet { destination, source, vlan, ethertype: ip.ethertype() };
        let len = ethernet.wire_len() + ip.wire_len() + udp::LEN;
        let empty = prepare(&ethernet, &ip, source_port, 0);
        Self { ethernet, ip, source_port, len, is_sealed: true, remembered: [empty; REMEMBERED] }
    }

    /// The same without ICRCs, for a peer that has agreed to it.
    #[must_use]
    pub const fn unsealed(mut self) -> Self {
        self.is_sealed = false;
        self
    }

    /// The same flow with another DSCP and ECN. Where its tag has a priority, it becomes the one that the DSCP's class
    /// selector names (RFC 2474, 4.2.2: its first three bits).
    #[must_use]
    pub fn with_traffic_class(&self, class: u8) -> Self {
        const PRIORITY: u16 = 0b111 << 13;
        let ip = self.ip.with_traffic_class(class);
        let vlan = self.ethernet.vlan.map(|tag| match tag & PRIORITY {
            0 => tag,
            _ => tag & !PRIORITY | u16::from(class >> 5) << 13,
        });
        let ethernet = Ethernet { vlan, ..self.ethernet };
        let empty = prepare(&ethernet, &ip, self.source_port, 0);
        Self { ethernet, ip, remembered: [empty; REMEMBERED], ..self.clone() }
    }

    /// Whether its frames carry an ICRC.
    #[inline]
    pub const fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The VLAN that its frames are on.
    #[inline]
    pub const fn vlan_id(&self) -> Option<u16> {
        self.ethernet.vlan_id()
    }

    /// The station that its frames go to.
    pub const fn destination_mac(&self) -> MacAddr {
        self.ethernet.destination
    }

    /// Sends to another station from now on.
    pub fn set_destination_mac(&mut self, station: MacAddr) {
        self.ethernet.destination = station;
        let empty = prepare(&self.ethernet, &self.ip, self.source_port, 0);
        self.remembered = [empty; REMEMBERED];
    }

    /// The sender's address.
    pub const fn source_ip(&self) -> IpAddr {
        self.ip.source()
    }

    /// The receiver's address.
    pub const fn destination_ip(&self) -> IpAddr {
        self.ip.destination()
    }

    /// The length of a frame with these headers and a payload of `payload_len` bytes.
    #[inline]
    pub const fn frame_len(&self, headers: &Headers, payload_len: usize) -> usize {
        self.len + headers.wire_len() + payload_len + pad_of(payload_len) + icrc::LEN
    }

    /// Writes a frame into `bytes`, which must be exactly [`Flow::frame_len`] long; `fill` writes the payload,
    /// and the ICRC, if there is one, is taken while it is hot in the cache.
    #[inline]
    pub fn emit(&mut self, bytes: &mut [u8], headers: &Headers, payload_len: usize, fill: impl FnOnce(&mut [u8])) {
        let emit = |transport: &mut [u8], pad: usize| {
            let padded = Headers { bth: super::Bth { pad: pad as u8, ..headers.bth }, ..*headers };
            padded.emit(transport)
        };
        self.emit_with(bytes, (headers.bth.dest_qpn, emit), payload_len, fill);
    }

    /// [`Flow::frame_len`] for headers that are words.
    #[inline]
    pub const fn frame_len_of_words(&self, headers: &HeaderWords, payload_len: usize) -> usize {
        self.len + headers.wire_len() + payload_len + pad_of(payload_len) + icrc::LEN
    }

    /// [`Flow::emit`] for headers that are words.
    #[inline]
    pub fn emit_words(
        &mut self,
        bytes: &mut [u8],
        headers: &HeaderWords,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let emit = |transport: &mut [u8], pad| headers.emit(transport, pad);
        self.emit_with(bytes, (headers.dest_qpn(), emit), payload_len, fill);
    }

    #[inline]
    fn emit_with(
        &mut self,
        bytes: &mut [u8],
        (dest_qpn, emit): (Qpn, impl FnOnce(&mut [u8], usize) -> usize),
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let (below, transport) = bytes.split_at_mut(self.len);
        let prepared = self.prepared(transport.len());
        prepared.copy_header(below);
        let register = prepared.register;
        let pad = pad_of(payload_len);
        let start = emit(transport, pad);
        let end = start + payload_len;
        fill(&mut transport[start..end]);
        if pad > 0 {
            transport[end..end + pad].fill(0);
        }
        let (covered, icrc) = transport.split_at_mut(end + pad);
        let sum = if self.is_sealed { register.finish(covered) } else { icrc::omitted(dest_qpn) };
        icrc.copy_from_slice(&sum);
    }

    /// The bytes before and behind a payload of `payload_len` bytes in a frame with these headers.
    #[inline]
    pub const fn lens_around(&self, headers: &Headers, payload_len: usize) -> (usize, usize) {
        (self.len + headers.wire_len(), pad_of(payload_len) + icrc::LEN)
    }

    /// Writes what stands before and behind a payload that stays where it is; `head` and `tail` must be exactly as long
    /// as [`Flow::lens_around`] says. The ICRC is that of the payload's bytes now: if they change before the frame has
    /// left, the receiver discards it. So there always is one here, whatever the peer has agreed to.
    #[inline]
    pub fn emit_around(&mut self, head: &mut [u8], tail: &mut [u8], headers: &Headers, payload: &[u8]) {
        let (below, transport) = head.split_at_mut(self.len);
        let prepared = self.prepared(transport.len() + payload.len() + tail.len());
        prepared.copy_header(below);
        let register = prepared.register;
        let (pad, icrc) = tail.split_at_mut(pad_of(payload.len()));
        let padded = Headers { bth: super::Bth { pad: pad.len() as u8, ..headers.bth }, ..*headers };
        padded.emit(transport);
        pad.fill(0);
        icrc.copy_from_slice(&register.finish_around(transport, payload, pad.len()));
    }

    #[inline]
    fn prepared(&mut self, transport_len: usize) -> &Prepared {
        let slot = &mut self.remembered[transport_len / 4 % REMEMBERED];
        if slot.transport_len != transport_len {
            *slot = prepare(&self.ethernet, &self.ip, self.source_port, transport_len);
        }
        slot
    }
}

fn prepare(ethernet: &Ethernet, ip: &Ip, source_port: u16, transport_len: usize) -> Prepared {
    let mut header = [0; MAX_FLOW_HEADER];
    let ip_at = ethernet.wire_len();
    let udp_at = ip_at + ip.wire_len();
    ethernet.emit(&mut header);
    ip.with_payload_len((udp::LEN + transport_len) as u16).emit(&mut header[ip_at..]);
    let payload_len = transport_len as u16;
    Udp { source: source_port, destination: udp::ROCE_PORT, payload_len, checksum: 0 }.emit(&mut header[udp_at..]);
    let (register, _) = Register::after_udp(&header[ip_at..]).expect("we wrote this header");
    Prepared { transport_len, header, register }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Bth, Opcode};
    use crate::{Psn, Qpn};

    fn flow() -> Flow {
        let ip = Ip::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("one version");
        Flow::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), None, ip, 0xc000)
    }

    #[test]
    fn a_flow_emits_frames_that_parse_and_verify_at_every_length() {
        let mut flow = flow();
        for len in (0..300).chain([1023, 1024, 4096]).chain(0..300) {
            let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(len as u32)));
            let mut bytes = vec![0xee; flow.frame_len(&headers, len)];
            flow.emit(&mut bytes, &headers, len, |payload| payload.fill(0x5a));
            let frame = Frame::parse(&bytes).expect("a frame of ours");
            assert_eq!(frame.verify_icrc(), Ok(()), "length {len}");
            assert_eq!(frame.packet.payload, vec![0x5a; len]);
            assert_eq!(frame.to_bytes(), bytes);
        }
    }

    #[test]
    fn a_frame_around_a_payload_is_the_frame_with_the_payload_in_it() {
        let mut flow = flow();
        for len in (0..300).chain([1023, 1024, 4096]) {
            let payload: Vec<_> = (0..len).map(|at| (at * 7) as u8).collect();
            let mut headers = Headers::plain(Bth::new(Opcode::RcWriteOnlyImm, Qpn::new(7), Psn::new(len as u32)));
            headers.ext.reth = Some(crate::wire::Reth { va: 9, rkey: crate::Rkey(3), len: len as u32 });
            headers.ext.imm = Some(crate::wire::ImmDt(5));
            let mut whole = vec![0xee; flow.frame_len(&headers, len)];
            flow.emit(&mut whole, &headers, len, |bytes| bytes.copy_from_slice(&payload));
            let (head, tail) = flow.lens_around(&headers, len);
            let (mut head, mut tail) = (vec![0xee; head], vec![0xee; tail]);
            flow.emit_around(&mut head, &mut tail, &headers, &payload);
            assert_eq!([head, payload, tail].concat(), whole, "length {len}");
        }
    }

    #[test]
    fn a_flow_without_icrcs_emits_the_same_frames_with_a_mark_in_their_place() {
        let (mut sealed, mut unsealed) = (flow(), flow().unsealed());
        assert!(sealed.is_sealed() && !unsealed.is_sealed());
        for len in (0..300).chain([1023, 1024, 4096]) {
            let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(len as u32)));
            let frames = [&mut sealed, &mut unsealed].map(|flow| {
                let mut bytes = vec![0xee; flow.frame_len(&headers, len)];
                flow.emit(&mut bytes, &headers, len, |payload| payload.fill(0x5a));
                bytes
            });
            let [with, without] = frames.each_ref().map(|bytes| Frame::parse(bytes).expect("a frame of ours"));
            assert_eq!((with.packet, with.omits_icrc()), (without.packet, false), "length {len}");
            assert!(without.omits_icrc());
            assert_eq!(without.verify_icrc(), Err(Malformed::Icrc));
            let end = with.datagram.len() - icrc::LEN;
            assert_eq!(with.datagram[..end], without.datagram[..end]);
        }
    }

    #[test]
    fn a_mark_is_that_of_one_queue_pair() {
        let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(1)));
        let mut flow = flow().unsealed();
        let mut bytes = vec![0; flow.frame_len(&headers, 8)];
        flow.emit(&mut bytes, &headers, 8, |payload| payload.fill(1));
        let qpn = 14 + ipv4::LEN + udp::LEN + 5;
        for bit in 0..24 {
            let mut damaged = bytes.clone();
            damaged[qpn + bit / 8] ^= 1 << (bit % 8);
            let frame = Frame::parse(&damaged).expect("its headers make sense");
            assert_ne!(frame.packet.headers.bth.dest_qpn, Qpn::new(7));
            assert!(!frame.omits_icrc());
        }
    }

    #[test]
    fn addresses_of_different_versions_make_no_flow() {
        assert_eq!(Ip::between([10, 0, 0, 1].into(), [0u16; 8].into()), None);
    }
}
