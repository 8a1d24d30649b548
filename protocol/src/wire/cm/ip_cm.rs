//! The header that private data starts with where services are ports (IBTA annex A11, Linux's `cma_hdr`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use static_assertions::const_assert_eq;
use thiserror::Error;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header's length.
pub const IP_CM_LEN: usize = 36;
/// Major and minor version, both 0.
const VERSION: u8 = 0;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct IpCmView {
    version: u8,
    ip_version: u8,
    source_port: U16,
    source: [u8; 16],
    destination: [u8; 16],
}
const_assert_eq!(size_of::<IpCmView>(), IP_CM_LEN);

/// Why private data does not start with the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum IpCmError {
    /// Shorter than the header.
    #[error("private data is too short for an IP addressing header")]
    Truncated,
    /// A version other than 0.0.
    #[error("IP addressing header of a version other than 0.0")]
    Version,
    /// Neither IPv4 nor IPv6.
    #[error("IP addressing header with neither IPv4 nor IPv6")]
    IpVersion,
    /// An IPv4 address that fills more than its last four bytes.
    #[error("IP addressing header with an IPv4 address in more than 4 bytes")]
    Address,
}

/// Who connects to whom, in IP's terms; the destination's port is in the service identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpCm {
    /// The port that the sender connects from.
    pub source_port: u16,
    source: IpAddr,
    destination: IpAddr,
    /// Four reserved bits.
    reserved: u8,
}

impl IpCm {
    /// The header of a connection from `source` to `destination`. `None` where the versions differ.
    pub fn between(source: IpAddr, source_port: u16, destination: IpAddr) -> Option<Self> {
        let header = Self { source_port, source, destination, reserved: 0 };
        (source.is_ipv4() == destination.is_ipv4()).then_some(header)
    }

    /// The side that connects.
    pub const fn source(&self) -> IpAddr {
        self.source
    }

    /// The side that is connected to.
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Reads the header and returns what follows it: private data for the application.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), IpCmError> {
        let (view, rest) = IpCmView::ref_from_prefix(bytes).map_err(|_| IpCmError::Truncated)?;
        if view.version != VERSION {
            return Err(IpCmError::Version);
        }
        let address = match view.ip_version >> 4 {
            4 => v4,
            6 => v6,
            _ => return Err(IpCmError::IpVersion),
        };
        let header = Self {
            source_port: view.source_port.get(),
            source: address(view.source)?,
            destination: address(view.destination)?,
            reserved: view.ip_version & 0x0f,
        };
        Ok((header, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 36.
    pub fn emit(&self, bytes: &mut [u8]) {
        let ip_version = if self.source.is_ipv4() { 4 } else { 6 };
        let view = IpCmView {
            version: VERSION,
            ip_version: ip_version << 4 | self.reserved,
            source_port: self.source_port.into(),
            source: octets(self.source),
            destination: octets(self.destination),
        };
        bytes[..IP_CM_LEN].copy_from_slice(view.as_bytes());
    }
}

fn v4(octets: [u8; 16]) -> Result<IpAddr, IpCmError> {
    match octets {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => Ok(Ipv4Addr::new(a, b, c, d).into()),
        _ => Err(IpCmError::Address),
    }
}

#[allow(clippy::unnecessary_wraps)] // the twin of `v4`
fn v6(octets: [u8; 16]) -> Result<IpAddr, IpCmError> {
    Ok(Ipv6Addr::from(octets).into())
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        }
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(source: &str, destination: &str) -> [u8; IP_CM_LEN] {
        let address = |text: &str| text.parse().expect("an address");
        let header = IpCm::between(address(source), 0xcd63, address(destination)).expect("one version");
        let mut bytes = [0xee; IP_CM_LEN];
        header.emit(&mut bytes);
        assert_eq!(IpCm::parse(&bytes), Ok((header, &[][..])));
        bytes
    }

    #[test]
    fn addresses_of_both_versions_lie_where_annex_a11_puts_them() {
        let v4 = emitted("10.77.0.1", "10.77.0.2");
        assert_eq!(v4[..4], [0, 0x40, 0xcd, 0x63]);
        assert_eq!((&v4[4..20], &v4[32..]), (&[[0; 12].as_slice(), &[10, 77, 0, 1]].concat()[..], &[10, 77, 0, 2][..]));
        let v6 = emitted("fe80::1", "fe80::2");
        assert_eq!((v6[1], v6[4], v6[19], v6[35]), (0x60, 0xfe, 1, 2));
    }

    #[test]
    fn what_is_not_a_header_is_refused_by_name() {
        let good = emitted("10.77.0.1", "10.77.0.2");
        let broken = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            IpCm::parse(&bytes).map(|_| ()).expect_err("a broken header")
        };
        assert_eq!(broken(0, 0x10), IpCmError::Version);
        assert_eq!(broken(1, 0x50), IpCmError::IpVersion);
        assert_eq!(broken(4, 1), IpCmError::Address);
        assert_eq!(broken(31, 0xff), IpCmError::Address);
        assert_eq!(IpCm::parse(&good[..35]), Err(IpCmError::Truncated));
        assert_eq!(IpCm::between([10, 0, 0, 1].into(), 1, [0u16; 8].into()), None);
    }
}
