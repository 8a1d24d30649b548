//! ARP (RFC 826): who has an IPv4 address.

use std::net::Ipv4Addr;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr};

use super::frame::{RxHeader, TxHeader, hardware};
use super::local::is_unicast_mac;
use super::table::{Claim, Evidence, NeighbourKey, NeighbourRequest};
use super::{Handled, Ignored, Learnt, NeighbourVerdict, Neighbours};

const BROADCAST: MacAddr = MacAddr([0xff; 6]);

impl Neighbours {
    pub(super) fn on_arp(&mut self, now: Nanos, from: &RxHeader, bytes: &[u8]) -> Result<Handled, Ignored> {
        let packet = ArpPacket::new_checked(bytes).map_err(|_| Ignored::Malformed)?;
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        }) = ArpRepr::parse(&packet)
        else {
            return Err(Ignored::Malformed);
        };
        let mac = MacAddr(source_hardware_addr.0);
        // A group's address in a table would turn unicast into a flood (RFC 1812 3.3.2).
        if !is_unicast_mac(mac) {
            return Err(Ignored::Invalid);
        }
        let is_for_us = self.local.owns(target.into(), from.vlan);
        let evidence = match operation {
            ArpOperation::Reply if is_for_us => Evidence::Answer,
            ArpOperation::Request if is_for_us => Evidence::Question,
            ArpOperation::Reply | ArpOperation::Request => Evidence::Hearsay,
            ArpOperation::Unknown(_) => return Err(Ignored::OtherProtocol),
        };
        let key = NeighbourKey { ip: sender.into(), vlan: from.vlan };
        let learnt = self.learn(now, key, Claim { mac, evidence, is_override: true });
        // Who announces our address as its own does not ask for it.
        let is_asked = evidence == Evidence::Question && learnt != Learnt::AgainstUs;
        let reply = is_asked.then(|| self.arp_reply(from, target, mac, sender));
        Handled::conclude(NeighbourVerdict::Arp, learnt, reply)
    }

    fn arp_reply(&self, from: &RxHeader, ours: Ipv4Addr, asker: MacAddr, asker_ip: Ipv4Addr) -> Vec<u8> {
        from.reply(self.local.mac(), asker).arp(&ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: hardware(self.local.mac()),
            source_protocol_addr: ours,
            target_hardware_addr: hardware(asker),
            target_protocol_addr: asker_ip,
        })
    }

    /// Asks everybody, or the station alone where one is known (RFC 1122 2.3.2.1).
    pub(super) fn arp_request(&self, request: &NeighbourRequest, source: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
        let destination = request.mac.unwrap_or(BROADCAST);
        let envelope = TxHeader { source: self.local.mac(), destination, tag: request.key.vlan };
        envelope.arp(&ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: hardware(self.local.mac()),
            source_protocol_addr: source,
            target_hardware_addr: hardware(MacAddr::default()),
            target_protocol_addr: target,
        })
    }
}
