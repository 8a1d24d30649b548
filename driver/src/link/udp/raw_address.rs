//! Addresses of sockets as the kernel reads and writes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket's address as the kernel reads and writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Writes an address as the kernel reads it, and returns how long that is.
pub(super) fn raw_address(address: SocketAddr) -> (RawAddress, usize) {
    match address {
        SocketAddr::V4(address) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            (RawAddress { v4 }, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            (RawAddress { v6 }, size_of::<libc::sockaddr_in6>())
        }
    }
}

/// Reads an address that the kernel has written; `None` where it is none of IPv4 or IPv6.
pub(super) fn socket_address(raw: &RawAddress) -> Option<SocketAddr> {
    // SAFETY: every bit pattern is a value of both views, and both begin with the family.
    let (v4, v6) = unsafe { (raw.v4, raw.v6) };
    match libc::c_int::from(v4.sin_family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}
