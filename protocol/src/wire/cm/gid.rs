//! Global identifiers over RoCEv2 are IP addresses (IBTA annex A17).

use std::net::{IpAddr, Ipv6Addr};

/// The identifier of an address; IPv4's is `::ffff:a.b.c.d`.
pub const fn gid_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The address of an identifier.
pub const fn ip_of(gid: Ipv6Addr) -> IpAddr {
    gid.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_identifiers_and_come_back() {
        for (address, gid) in [("10.77.0.1", "::ffff:10.77.0.1"), ("fe80::1", "fe80::1"), ("::1", "::1")] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(gid_of(address), gid.parse::<Ipv6Addr>().expect("an address"));
            assert_eq!(ip_of(gid_of(address)), address);
        }
    }
}
