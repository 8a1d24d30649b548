//! What we are: our addresses, the links they are on, and what the configuration says of others.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roci_protocol::wire::MacAddr;

use super::{Interface, NeighbourConfig};

#[derive(Debug)]
pub(super) struct Local {
    mac: MacAddr,
    interfaces: Vec<Interface>,
    /// Made of `mac`; ours wherever IPv6 is.
    automatic: Ipv6Addr,
    fixed: BTreeMap<IpAddr, MacAddr>,
    gateway_v4: Option<Ipv4Addr>,
    gateway_v6: Option<Ipv6Addr>,
}

impl Local {
    pub(super) fn new(config: NeighbourConfig) -> Self {
        let NeighbourConfig { mac, mut interfaces, fixed, gateway_v4, gateway_v6 } = config;
        for interface in &mut interfaces {
            interface.vlan = vlan_of(interface.vlan);
        }
        let fixed = fixed.into_iter().collect();
        Self { mac, interfaces, automatic: link_local(mac), fixed, gateway_v4, gateway_v6 }
    }

    pub(super) const fn mac(&self) -> MacAddr {
        self.mac
    }

    pub(super) fn has_vlan(&self, vlan: Option<u16>) -> bool {
        self.on(vlan).next().is_some()
    }

    /// Whether the address is ours on this VLAN.
    pub(super) fn owns(&self, ip: IpAddr, vlan: Option<u16>) -> bool {
        self.on(vlan).any(|interface| interface.ip == ip || (interface.ip.is_ipv6() && ip == self.automatic))
    }

    /// The station of a static neighbour.
    pub(super) fn fixed(&self, ip: IpAddr) -> Option<MacAddr> {
        self.fixed.get(&ip).copied()
    }

    /// The station of an address that needs no asking.
    pub(super) fn certain(&self, ip: IpAddr, vlan: Option<u16>) -> Option<MacAddr> {
        self.fixed(ip).or_else(|| self.owns(ip, vlan).then_some(self.mac))
    }

    /// Returns the next hop for `ip`: itself on the link, or a gateway that is on the link; `None` if there is no
    /// route.
    pub(super) fn next_hop(&self, ip: IpAddr, vlan: Option<u16>) -> Option<IpAddr> {
        if self.source_for(ip, vlan).is_some() {
            return Some(ip);
        }
        let gateway = match ip {
            IpAddr::V4(_) => self.gateway_v4.map(IpAddr::V4),
            // A link-local address is never behind a router (RFC 4291 2.5.6).
            IpAddr::V6(ip) if ip.is_unicast_link_local() => None,
            IpAddr::V6(_) => self.gateway_v6.map(IpAddr::V6),
        }?;
        (self.fixed(gateway).is_some() || self.source_for(gateway, vlan).is_some()).then_some(gateway)
    }

    /// The address of ours that asks for `ip`; `None` where it is on no link of this VLAN.
    pub(super) fn source_for(&self, ip: IpAddr, vlan: Option<u16>) -> Option<IpAddr> {
        if let IpAddr::V6(ip) = ip
            && ip.is_unicast_link_local()
        {
            let speaks_ipv6 = self.on(vlan).any(|interface| interface.ip.is_ipv6());
            return speaks_ipv6.then_some(self.automatic.into());
        }
        self.on(vlan).find(|interface| covers(interface, ip)).map(|interface| interface.ip)
    }

    fn on(&self, vlan: Option<u16>) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(move |interface| interface.vlan == vlan)
    }
}

/// The VLAN: a tag with id 0 gives a priority only, the frame is untagged (IEEE 802.1Q 9.6).
pub(super) fn vlan_of(id: Option<u16>) -> Option<u16> {
    id.filter(|&id| id != 0)
}

/// Broadcast or multicast.
pub(super) const fn is_group(mac: MacAddr) -> bool {
    mac.0[0] & 1 != 0
}

/// Whether the station address may be one station's.
pub(super) fn is_unicast_mac(mac: MacAddr) -> bool {
    !is_group(mac) && mac != MacAddr::default()
}

/// Whether the address may be one host's.
pub(super) fn is_unicast_ip(ip: IpAddr) -> bool {
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast)
}

/// Whether an address is on an interface's link.
pub(super) fn covers(interface: &Interface, ip: IpAddr) -> bool {
    match (interface.ip, ip) {
        (IpAddr::V4(ours), IpAddr::V4(ip)) => {
            let host_bits = 32 - u32::from(interface.prefix.min(32));
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            (ours.to_bits() ^ ip.to_bits()) & mask == 0
        }
        (IpAddr::V6(ours), IpAddr::V6(ip)) => {
            let host_bits = 128 - u32::from(interface.prefix.min(128));
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            (ours.to_bits() ^ ip.to_bits()) & mask == 0
        }
        _ => false,
    }
}

/// The link-local address with the station's modified EUI-64 (RFC 4291 2.5.6 and appendix A).
fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_length_is_a_prefix() {
        let on = |ip: &str, prefix, other: &str| {
            covers(&Interface { ip: ip.parse().unwrap(), prefix, vlan: None }, other.parse().unwrap())
        };
        assert!(on("10.0.0.1", 0, "192.0.2.1"));
        assert!(on("10.0.0.1", 8, "10.255.0.1") && !on("10.0.0.1", 8, "11.0.0.1"));
        assert!(on("10.0.0.0", 31, "10.0.0.1") && !on("10.0.0.0", 31, "10.0.0.2"));
        assert!(on("10.0.0.1", 255, "10.0.0.1") && !on("10.0.0.1", 255, "10.0.0.2"));
        assert!(on("2001:db8::1", 0, "fd00::1"));
        assert!(on("2001:db8::1", 64, "2001:db8::ff") && !on("2001:db8::1", 64, "2001:db8:1::1"));
        assert!(!on("10.0.0.1", 0, "2001:db8::1"));
    }

    #[test]
    fn the_link_local_address_is_made_of_the_station_address() {
        let mac = MacAddr([0x00, 0x1b, 0x21, 0x3c, 0x9d, 0xf8]);
        assert_eq!(link_local(mac), "fe80::21b:21ff:fe3c:9df8".parse::<Ipv6Addr>().unwrap());
    }
}
