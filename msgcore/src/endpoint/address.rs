//! Where an endpoint is: all that a stranger needs to reach it.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use roci_driver::link::udp::station;
use roci_protocol::wire::MacAddr;
use roci_protocol::wire::udp::ROCE_PORT;
use static_assertions::const_assert;
use thiserror::Error;

/// The first byte of an address, which says how the others are laid out.
const VERSION: u8 = 2;

/// Where an endpoint is, and which of those that were there one after the other it is. Ordered, so that two ends agree whose
/// request goes on where both have asked.
///
/// Its text is `IP:SERVICE/INCARNATION`, and `/PORT` behind it for another UDP port than 4791:
/// `10.0.0.1:28416/0123456789abcdef/17003`. `to_string` makes it, and `parse` reads it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointAddress {
    /// The host's address on its port.
    pub ip: IpAddr,
    /// The UDP port that its frames come in at: RoCEv2's own (4791), or that of a socket where several processes share the host's
    /// address.
    pub udp_port: u16,
    /// The port of RDMA-CM's service (`RDMA_PS_TCP`) that it listens at.
    pub service: u16,
    /// A number that no other endpoint has that was, or will be, at this place.
    pub incarnation: u64,
}

/// The place of an endpoint: its host, its UDP port, and the service that it listens at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ServicePoint {
    ip: IpAddr,
    udp_port: u16,
    service: u16,
}

/// Why bytes or a text are no address.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadEndpointAddress {
    /// There are fewer bytes, or more.
    #[error("an endpoint's address has {len} bytes, and not {0}", len = EndpointAddress::LEN)]
    Length(usize),
    /// Another release made it.
    #[error("an endpoint's address of version {0}, and this is version {VERSION}")]
    Version(u8),
    /// It names no host.
    #[error("an endpoint's address without a host")]
    NoHost,
    /// A text that is not one.
    #[error(
        "an endpoint's address is IP:SERVICE/INCARNATION, and /PORT for another UDP port than 4791, as 10.0.0.1:28416/0123456789abcdef"
    )]
    Text,
}

impl EndpointAddress {
    /// Bytes of an address.
    pub const LEN: usize = 32;

    /// Returns it as bytes, for who carries it: a version, a reserved byte, the service (2 bytes), the incarnation (8), the host as
    /// an IPv6 address or one that is mapped to it (16), the UDP port (2), and 2 reserved bytes; numbers in network order.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let ip = match self.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&self.service.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[12..28].copy_from_slice(&ip.octets());
        bytes[28..30].copy_from_slice(&self.udp_port.to_be_bytes());
        bytes
    }

    /// Reads what [`EndpointAddress::to_bytes`] has made.
    ///
    /// # Errors
    /// It is no address.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadEndpointAddress> {
        let &bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| BadEndpointAddress::Length(bytes.len()))?;
        let [version, _, s0, s1, i0, i1, i2, i3, i4, i5, i6, i7, ip @ .., u0, u1, _, _] = bytes;
        if version != VERSION {
            return Err(BadEndpointAddress::Version(version));
        }
        let address = Self {
            ip: Ipv6Addr::from(ip).into(),
            udp_port: u16::from_be_bytes([u0, u1]),
            service: u16::from_be_bytes([s0, s1]),
            incarnation: u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
        };
        address.check()
    }

    /// Returns it with its host written in the one way that all have.
    ///
    /// # Errors
    /// It names no host.
    pub(crate) fn check(self) -> Result<Self, BadEndpointAddress> {
        let ip = self.ip.to_canonical();
        let is_a_host = match ip {
            IpAddr::V4(ip) => !(ip == Ipv4Addr::UNSPECIFIED || ip.is_multicast() || ip.is_broadcast()),
            IpAddr::V6(ip) => !(ip == Ipv6Addr::UNSPECIFIED || ip.is_multicast()),
        };
        if is_a_host && self.udp_port != 0 { Ok(Self { ip, ..self }) } else { Err(BadEndpointAddress::NoHost) }
    }

    /// Returns the place that it names: one endpoint at a time is there.
    pub(crate) const fn place(&self) -> ServicePoint {
        ServicePoint { ip: self.ip, udp_port: self.udp_port, service: self.service }
    }

    /// Returns the station that its frames go to where it is a socket.
    pub(crate) const fn socket_station(&self) -> MacAddr {
        station::of_port(self.udp_port)
    }
}
const_assert!(EndpointAddress::LEN <= 64);

impl Display for EndpointAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let &Self { ip, udp_port, service, incarnation } = self;
        match ip {
            IpAddr::V4(ip) => write!(f, "{ip}:{service}/{incarnation:016x}")?,
            IpAddr::V6(ip) => write!(f, "[{ip}]:{service}/{incarnation:016x}")?,
        }
        if udp_port == ROCE_PORT { Ok(()) } else { write!(f, "/{udp_port}") }
    }
}

impl FromStr for EndpointAddress {
    type Err = BadEndpointAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (place, rest) = text.trim().split_once('/').ok_or(BadEndpointAddress::Text)?;
        let (incarnation, udp_port) = rest.split_once('/').map_or((rest, None), |(first, port)| (first, Some(port)));
        let place: std::net::SocketAddr = place.parse().map_err(|_| BadEndpointAddress::Text)?;
        let incarnation = u64::from_str_radix(incarnation, 16).map_err(|_| BadEndpointAddress::Text)?;
        let udp_port = udp_port.map_or(Ok(ROCE_PORT), |port| port.parse().map_err(|_| BadEndpointAddress::Text))?;
        Self { ip: place.ip(), udp_port, service: place.port(), incarnation }.check()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn an_ip() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(|ip| IpAddr::V4(ip.into())),
            any::<[u8; 16]>().prop_map(|ip| Ipv6Addr::from(ip).to_canonical())
        ]
    }

    proptest! {
        #[test]
        fn bytes_and_texts_are_read_as_they_were_written(ip in an_ip(), udp_port: u16, service: u16, incarnation: u64) {
            let address = EndpointAddress { ip, udp_port, service, incarnation };
            prop_assert_eq!(EndpointAddress::from_bytes(&address.to_bytes()), address.check());
            prop_assert_eq!(address.to_string().parse(), address.check());
        }

        #[test]
        fn no_bytes_and_no_text_panic(bytes: Vec<u8>, text: String) {
            let _ = EndpointAddress::from_bytes(&bytes);
            let _ = text.parse::<EndpointAddress>();
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        let good = EndpointAddress { ip: [10, 0, 0, 1].into(), udp_port: ROCE_PORT, service: 1, incarnation: 2 };
        let mut other = good.to_bytes();
        other[0] = 9;
        assert_eq!(EndpointAddress::from_bytes(&other), Err(BadEndpointAddress::Version(9)));
        assert_eq!(EndpointAddress::from_bytes(&other[1..]), Err(BadEndpointAddress::Length(31)));
        for ip in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            let nowhere = EndpointAddress { ip: ip.parse().expect("an address"), ..good };
            assert_eq!(EndpointAddress::from_bytes(&nowhere.to_bytes()), Err(BadEndpointAddress::NoHost), "{ip}");
        }
        for text in ["", "10.0.0.1:1", "10.0.0.1/2", "10.0.0.1:1/", "10.0.0.1:1/g", "host:1/2"] {
            assert_eq!(text.parse::<EndpointAddress>(), Err(BadEndpointAddress::Text), "{text}");
        }
        assert_eq!("10.0.0.1:1/2".parse(), Ok(good));
        assert_eq!("[::ffff:10.0.0.1]:1/2".parse(), Ok(good), "it is the same host");
    }
}
