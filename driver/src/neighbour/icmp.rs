//! IPv4 and IPv6 as far as they carry ICMP: echo requests (RFC 792, RFC 4443) are answered here.

use std::net::IpAddr;

use roci_protocol::Nanos;
use smoltcp::wire::{
    Icmpv4Message, Icmpv4Packet, Icmpv4Repr, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet,
    Ipv6Packet,
};

use super::frame::RxHeader;
use super::local::is_unicast_ip;
use super::{Handled, Ignored, NeighbourVerdict, Neighbours};

impl Neighbours {
    pub(super) fn on_ipv4(&self, from: &RxHeader, bytes: &[u8]) -> Result<Handled, Ignored> {
        let ip = Ipv4Packet::new_checked(bytes).map_err(|_| Ignored::Malformed)?;
        if ip.version() != 4 {
            return Err(Ignored::Malformed);
        }
        if !ip.verify_checksum() {
            return Err(Ignored::Checksum);
        }
        if ip.more_frags() || ip.frag_offset() != 0 {
            return Err(Ignored::Fragment);
        }
        if ip.next_header() != IpProtocol::Icmp {
            return Err(Ignored::OtherProtocol);
        }
        let icmp = Icmpv4Packet::new_checked(ip.payload()).map_err(|_| Ignored::Malformed)?;
        if !icmp.verify_checksum() {
            return Err(Ignored::Checksum);
        }
        if (icmp.msg_type(), icmp.msg_code()) != (Icmpv4Message::EchoRequest, 0) {
            return Err(Ignored::OtherProtocol);
        }
        let (asker, ours) = (ip.src_addr(), ip.dst_addr());
        self.check_echo(from, asker.into(), ours.into())?;
        let (ident, seq_no, data) = (icmp.echo_ident(), icmp.echo_seq_no(), icmp.data());
        let reply = Icmpv4Repr::EchoReply { ident, seq_no, data };
        let reply = from.reply(self.local.mac(), from.source).icmpv4(ours, asker, &reply);
        Ok(Handled { verdict: NeighbourVerdict::Echo, reply: Some(reply) })
    }

    pub(super) fn on_ipv6(&mut self, now: Nanos, from: &RxHeader, bytes: &[u8]) -> Result<Handled, Ignored> {
        let ip = Ipv6Packet::new_checked(bytes).map_err(|_| Ignored::Malformed)?;
        if ip.version() != 6 {
            return Err(Ignored::Malformed);
        }
        if ip.next_header() != IpProtocol::Icmpv6 {
            return Err(Ignored::OtherProtocol);
        }
        // Before the lengths, which are known of known messages only.
        let message = ip.payload().first().copied().map(Icmpv6Message::from).ok_or(Ignored::Malformed)?;
        let is_ndp = match message {
            Icmpv6Message::EchoRequest => false,
            Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => true,
            _ => return Err(Ignored::OtherProtocol),
        };
        let icmp = Icmpv6Packet::new_checked(ip.payload()).map_err(|_| Ignored::Malformed)?;
        if !icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()) {
            return Err(Ignored::Checksum);
        }
        if is_ndp { self.on_ndp(now, from, &ip, &icmp) } else { self.on_echo_v6(from, &ip, &icmp) }
    }

    fn on_echo_v6(
        &self,
        from: &RxHeader,
        ip: &Ipv6Packet<&[u8]>,
        icmp: &Icmpv6Packet<&[u8]>,
    ) -> Result<Handled, Ignored> {
        if icmp.msg_code() != 0 {
            return Err(Ignored::OtherProtocol);
        }
        let (asker, ours) = (ip.src_addr(), ip.dst_addr());
        self.check_echo(from, asker.into(), ours.into())?;
        let (ident, seq_no, data) = (icmp.echo_ident(), icmp.echo_seq_no(), icmp.payload());
        let reply = Icmpv6Repr::EchoReply { ident, seq_no, data };
        let reply = from.reply(self.local.mac(), from.source).icmpv6(ours, asker, &reply);
        Ok(Handled { verdict: NeighbourVerdict::Echo, reply: Some(reply) })
    }

    /// Only what is for us alone is answered, and only to one other host: a group could have one frame raise
    /// many. RFC 1122 3.2.2.6 allows that silence, and RFC 4443 4.2 only recommends otherwise.
    fn check_echo(&self, from: &RxHeader, asker: IpAddr, target: IpAddr) -> Result<(), Ignored> {
        if from.destination != self.local.mac() || !self.local.owns(target, from.vlan) {
            return Err(Ignored::NotOurs);
        }
        if !is_unicast_ip(asker) || self.local.owns(asker, from.vlan) {
            return Err(Ignored::Invalid);
        }
        Ok(())
    }
}
