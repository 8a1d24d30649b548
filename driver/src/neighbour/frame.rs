//! Frames around what is asked and answered.

use std::net::{Ipv4Addr, Ipv6Addr};

use roci_protocol::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use roci_protocol::wire::{Ethernet, MacAddr};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpPacket, ArpRepr, EthernetAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr,
};

use super::Ignored;
use super::local::vlan_of;

/// EtherType of ARP.
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
/// The shortest Ethernet frame without its FCS; what is shorter is filled up with zeros (IEEE 802.3 3.2.8).
const MIN_FRAME: usize = 60;
/// The VLAN id's bits of the tag control information.
const VLAN_ID: u16 = 0xfff;
/// The default of RFC 1700; Linux's too.
const ECHO_HOP_LIMIT: u8 = 64;
/// The hop limit of all neighbour discovery messages: a station off the link cannot send it (RFC 4861 3.1).
pub(super) const NDP_HOP_LIMIT: u8 = 255;

/// The Ethernet header of a frame that arrived.
pub(super) struct RxHeader {
    pub(super) source: MacAddr,
    pub(super) destination: MacAddr,
    pub(super) vlan: Option<u16>,
    pub(super) ethertype: u16,
    tag: Option<u16>,
}

/// The Ethernet header of a frame to send.
pub(super) struct TxHeader {
    pub(super) source: MacAddr,
    pub(super) destination: MacAddr,
    /// The tag control information.
    pub(super) tag: Option<u16>,
}

impl RxHeader {
    pub(super) fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Ignored> {
        let (header, payload) = Ethernet::parse(frame).map_err(|_| Ignored::Truncated)?;
        let Ethernet { destination, source, vlan: tag, ethertype } = header;
        let vlan = vlan_of(tag.map(|control| control & VLAN_ID));
        // A tag with a priority alone is the sender's affair; any other goes back as it came.
        let tag = tag.filter(|_| vlan.is_some());
        Ok((Self { source, destination, vlan, ethertype, tag }, payload))
    }

    /// The envelope of a reply.
    pub(super) const fn reply(&self, source: MacAddr, destination: MacAddr) -> TxHeader {
        TxHeader { source, destination, tag: self.tag }
    }
}

impl TxHeader {
    pub(super) fn arp(&self, arp: &ArpRepr) -> Vec<u8> {
        self.seal(ETHERTYPE_ARP, arp.buffer_len(), |bytes| arp.emit(&mut ArpPacket::new_unchecked(bytes)))
    }

    pub(super) fn icmpv4(&self, src_addr: Ipv4Addr, dst_addr: Ipv4Addr, icmp: &Icmpv4Repr<'_>) -> Vec<u8> {
        let (next_header, payload_len) = (IpProtocol::Icmp, icmp.buffer_len());
        let ip = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: ECHO_HOP_LIMIT };
        let checksums = ChecksumCapabilities::default();
        self.seal(ETHERTYPE_IPV4, ip.buffer_len() + payload_len, |bytes| {
            ip.emit(&mut Ipv4Packet::new_unchecked(&mut *bytes), &checksums);
            icmp.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes[ip.buffer_len()..]), &checksums);
        })
    }

    pub(super) fn icmpv6(&self, src_addr: Ipv6Addr, dst_addr: Ipv6Addr, icmp: &Icmpv6Repr<'_>) -> Vec<u8> {
        let hop_limit = if matches!(icmp, Icmpv6Repr::Ndisc(_)) { NDP_HOP_LIMIT } else { ECHO_HOP_LIMIT };
        let (next_header, payload_len) = (IpProtocol::Icmpv6, icmp.buffer_len());
        let ip = Ipv6Repr { src_addr, dst_addr, next_header, payload_len, hop_limit };
        let checksums = ChecksumCapabilities::default();
        self.seal(ETHERTYPE_IPV6, ip.buffer_len() + payload_len, |bytes| {
            ip.emit(&mut Ipv6Packet::new_unchecked(&mut *bytes));
            let mut packet = Icmpv6Packet::new_unchecked(&mut bytes[ip.buffer_len()..]);
            icmp.emit(&src_addr, &dst_addr, &mut packet, &checksums);
        })
    }

    /// The header, and after it `len` zeroed bytes that `fill` writes.
    fn seal(&self, ethertype: u16, len: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let &Self { source, destination, tag } = self;
        let header = Ethernet { destination, source, vlan: tag, ethertype };
        let end = header.wire_len() + len;
        let mut frame = vec![0; end.max(MIN_FRAME)];
        header.emit(&mut frame);
        fill(&mut frame[header.wire_len()..end]);
        frame
    }
}

pub(super) const fn hardware(mac: MacAddr) -> EthernetAddress {
    EthernetAddress(mac.0)
}
