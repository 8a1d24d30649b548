//! Neighbour discovery (RFC 4861): who has an IPv6 address. Routers and redirects are none of ours.

use std::net::Ipv6Addr;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;
use smoltcp::wire::{Icmpv6Packet, Icmpv6Repr, Ipv6Packet, NdiscNeighborFlags as Flags, NdiscRepr, RawHardwareAddress};

use super::frame::{NDP_HOP_LIMIT, RxHeader, TxHeader, hardware};
use super::local::is_unicast_mac;
use super::table::{Claim, Evidence, NeighbourKey, NeighbourRequest};
use super::{Handled, Ignored, Learnt, NeighbourVerdict, Neighbours};

/// All nodes of the link (RFC 4291 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A solicitation that passed its checks.
struct Solicitation {
    source: Ipv6Addr,
    target: Ipv6Addr,
    mac: Option<MacAddr>,
}

impl Neighbours {
    /// Takes a solicitation or an advertisement whose checksum was verified.
    pub(super) fn on_ndp(
        &mut self,
        now: Nanos,
        from: &RxHeader,
        ip: &Ipv6Packet<&[u8]>,
        icmp: &Icmpv6Packet<&[u8]>,
    ) -> Result<Handled, Ignored> {
        if ip.hop_limit() != NDP_HOP_LIMIT {
            return Err(Ignored::HopLimit);
        }
        if icmp.msg_code() != 0 {
            return Err(Ignored::Invalid);
        }
        let (source, destination) = (ip.src_addr(), ip.dst_addr());
        match NdiscRepr::parse(icmp).map_err(|_| Ignored::Malformed)? {
            NdiscRepr::NeighborSolicit { target_addr: target, lladdr } => {
                let solicitation = Solicitation { source, target, mac: station(lladdr)? };
                check_solicitation(&solicitation, destination)?;
                self.on_solicitation(now, from, &solicitation)
            }
            NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr } => {
                let is_impossible = destination.is_multicast() && flags.contains(Flags::SOLICITED);
                // RFC 4861 7.1.2.
                if target.is_multicast() || is_impossible {
                    return Err(Ignored::Invalid);
                }
                self.on_advertisement(now, from, target, flags, station(lladdr)?)
            }
            _ => Err(Ignored::OtherProtocol),
        }
    }

    /// RFC 4861 7.2.3 and 7.2.4.
    fn on_solicitation(&mut self, now: Nanos, from: &RxHeader, ask: &Solicitation) -> Result<Handled, Ignored> {
        if !self.local.owns(ask.target.into(), from.vlan) {
            return Err(Ignored::NotOurs);
        }
        let learnt = match ask.mac {
            Some(mac) => {
                let key = NeighbourKey { ip: ask.source.into(), vlan: from.vlan };
                self.learn(now, key, Claim { mac, evidence: Evidence::Question, is_override: true })
            }
            None => Learnt::Nothing,
        };
        let reply = (learnt != Learnt::AgainstUs).then(|| self.advertisement(from, ask));
        Handled::conclude(NeighbourVerdict::Ndp, learnt, reply)
    }

    /// RFC 4861 7.2.5.
    fn on_advertisement(
        &mut self,
        now: Nanos,
        from: &RxHeader,
        target: Ipv6Addr,
        flags: Flags,
        mac: Option<MacAddr>,
    ) -> Result<Handled, Ignored> {
        let key = NeighbourKey { ip: target.into(), vlan: from.vlan };
        // An answer to a unicast question may leave out what the asker knows (4.4).
        let mac = mac.or_else(|| self.table.mac(&key)).ok_or(Ignored::NotOurs)?;
        let evidence = if flags.contains(Flags::SOLICITED) { Evidence::Answer } else { Evidence::Hearsay };
        let claim = Claim { mac, evidence, is_override: flags.contains(Flags::OVERRIDE) };
        let learnt = self.learn(now, key, claim);
        Handled::conclude(NeighbourVerdict::Ndp, learnt, None)
    }

    /// To the asker; to everybody where the asker has no address yet, as in duplicate address detection.
    fn advertisement(&self, from: &RxHeader, ask: &Solicitation) -> Vec<u8> {
        let (destination, station, flags) = if ask.source.is_unspecified() {
            (ALL_NODES, group_station(ALL_NODES), Flags::OVERRIDE)
        } else {
            (ask.source, ask.mac.unwrap_or(from.source), Flags::SOLICITED | Flags::OVERRIDE)
        };
        let advert = NdiscRepr::NeighborAdvert { flags, target_addr: ask.target, lladdr: Some(raw(self.local.mac())) };
        from.reply(self.local.mac(), station).icmpv6(ask.target, destination, &Icmpv6Repr::Ndisc(advert))
    }

    /// Asks the group of those who may have the address, or the station alone where one is known (7.2.2, 7.3.3).
    pub(super) fn solicitation(&self, request: &NeighbourRequest, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let group = solicited_node(target);
        let (destination, station) = request.mac.map_or((group, group_station(group)), |mac| (target, mac));
        let envelope = TxHeader { source: self.local.mac(), destination: station, tag: request.key.vlan };
        let ask = NdiscRepr::NeighborSolicit { target_addr: target, lladdr: Some(raw(self.local.mac())) };
        envelope.icmpv6(source, destination, &Icmpv6Repr::Ndisc(ask))
    }
}

/// RFC 4861 7.1.1, as far as parsing did not.
fn check_solicitation(ask: &Solicitation, destination: Ipv6Addr) -> Result<(), Ignored> {
    let is_probe = ask.source.is_unspecified();
    let is_good_probe = destination == solicited_node(ask.target) && ask.mac.is_none();
    if ask.target.is_multicast() || ask.source.is_multicast() || (is_probe && !is_good_probe) {
        return Err(Ignored::Invalid);
    }
    Ok(())
}

/// The station that an option names.
fn station(option: Option<RawHardwareAddress>) -> Result<Option<MacAddr>, Ignored> {
    let Some(address) = option else { return Ok(None) };
    let mac = address.as_bytes().try_into().map(MacAddr).map_err(|_| Ignored::Malformed)?;
    if is_unicast_mac(mac) { Ok(Some(mac)) } else { Err(Ignored::Invalid) }
}

fn raw(mac: MacAddr) -> RawHardwareAddress {
    hardware(mac).into()
}

/// Returns the solicited-node group, to which the owner of the address listens (RFC 4291 2.7.1).
pub(super) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The station address of a group (RFC 2464 7).
pub(super) fn group_station(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}
