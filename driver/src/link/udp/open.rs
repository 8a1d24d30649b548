//! Opening a link at an address: which one, which port, and how long its packets may be.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use rand::Rng;
use roci_protocol::wire::{ethernet, udp};
use thiserror::Error;

use super::changes::IcrcChanges;
use super::lengths::{LEAST_MTU, Lengths};
use super::own_address::OwnAddress;
use super::rx_queue::RxQueue;
use super::rx_sockets::RxSockets;
use super::socket::{KernelSocket, SocketDuty};
use super::tx_queue::TxQueue;
use super::tx_sockets::TxSockets;
use super::{Headings, Sockets, UdpLink, headers_of, interface, station};
use crate::link::LinkStats;

/// Addresses and ports that are tried before it is given up.
const TRIES: usize = 64;

/// Where a link is to be: `udp`, `udp:ADDRESS` or `udp:ADDRESS:PORT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpAddress {
    /// The address; without one, that which leads to other hosts, that of any interface, or one of the loopback interface's.
    pub ip: Option<IpAddr>,
    /// The port; without one, RoCEv2's where it is free, and any other where it is not. A server that waits for RDMA-CM gives
    /// [`ROCE_PORT`](super::ROCE_PORT): behind another port it is not found.
    pub port: Option<u16>,
}

/// The text is no address of a link over UDP.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no address for a UDP socket: write udp, udp:10.0.0.1, udp:fd00::1, udp:10.0.0.1:4791 or udp:[fd00::1]:4791"
)]
pub struct ParseUdpAddressError(String);

/// Why there is no link over UDP.
#[derive(Error)]
#[non_exhaustive]
pub enum UdpError {
    /// No interface has the address.
    #[error("udp: no interface of this host has the address {0}: 'ip address' shows those that there are")]
    NoAddress(IpAddr),
    /// The address means another host on each link.
    #[error("udp: {0} is valid on one link only: use an address of a wider scope")]
    LinkLocal(IpAddr),
    /// Another process has the port.
    #[error(
        "udp: another process has port {1} of {0}: end it ('ss -ulnp' shows it) or use another address; a peer that finds us by RDMA-CM needs this port, others may have any: leave it out"
    )]
    Taken(IpAddr, u16),
    /// No port is free.
    #[error("udp: no port of {0} is free")]
    NoPort(IpAddr),
    /// Its peers could not know that it is a socket's.
    #[error("udp: port {0} is none that peers answer to: it must be 4791, or between 16384 and 32767")]
    Port(u16),
    /// The interface's packets are too short.
    #[error(
        "udp: the interface of {0} carries packets of {1} bytes, and {LEAST_MTU} are needed: ip link set dev IFACE mtu 1500"
    )]
    Short(IpAddr, usize),
    /// The kernel refuses.
    #[error("udp: {ip}: {source}")]
    Kernel {
        /// The address.
        ip: IpAddr,
        /// Why.
        source: io::Error,
    },
}

impl FromStr for UdpAddress {
    type Err = ParseUdpAddressError;

    /// Reads what stands behind `udp:`; nothing is any address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Self { ip: Some(ip), port: None });
        }
        let address: SocketAddr = text.parse().map_err(|_| ParseUdpAddressError(text.into()))?;
        Ok(Self { ip: Some(address.ip()), port: Some(address.port()) })
    }
}

impl fmt::Display for UdpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, self.port) {
            (None, _) => f.write_str("udp"),
            (Some(ip), None) => write!(f, "udp:{ip}"),
            (Some(ip), Some(port)) => write!(f, "udp:{}", SocketAddr::new(ip, port)),
        }
    }
}

impl UdpLink {
    /// Opens a link; [`UdpLink::own`] says which address and port it has. Its packets, IP included, have up to `mtu` bytes, or what the interface carries where that is not given.
    ///
    /// # Errors
    /// The address is none of this host's, the port is another process's, or the kernel refuses.
    pub fn open(address: UdpAddress, mtu: Option<u16>) -> Result<Self, UdpError> {
        match address.ip.or_else(interface::address_towards_others) {
            Some(ip) => Self::open_at(ip, address.port, mtu),
            None => Self::open_on_loopback(mtu),
        }
    }

    /// Opens a link on the loopback interface, at an address of its own with RoCEv2's port: for processes of one host.
    ///
    /// # Errors
    /// As [`UdpLink::open`].
    pub fn open_on_loopback(mtu: Option<u16>) -> Result<Self, UdpError> {
        let mut refused = UdpError::NoPort(Ipv4Addr::LOCALHOST.into());
        for _ in 0..TRIES {
            // Neither the network's own address nor its broadcast's.
            let [b, c, d] = rand::rng().random();
            let ip = Ipv4Addr::new(127, b, c, d.clamp(1, 254)).into();
            match Self::open_at(ip, Some(udp::ROCE_PORT), mtu) {
                Err(error @ UdpError::Taken(..)) => refused = error,
                other => return other,
            }
        }
        Err(refused)
    }

    fn open_at(ip: IpAddr, port: Option<u16>, mtu: Option<u16>) -> Result<Self, UdpError> {
        let carried = carried_from(ip)?;
        let lengths = Lengths::new(mtu, carried);
        if lengths.most() < ethernet::LEN + LEAST_MTU {
            return Err(UdpError::Short(ip, carried));
        }
        let sockets = sockets_at(ip, port)?;
        let own = sockets.rx.anybody().local();
        let (mac, offload) = (station::of_port(own.port()), sockets.tx().offload());
        tracing::info!("udp: {own}, frames of up to {} bytes, {offload:?}", lengths.most());
        Ok(Self {
            lengths,
            rx: RxQueue::new(headers_of(ip)),
            tx: TxQueue::new(offload.gso),
            headings: Headings { own, mac },
            own_address: OwnAddress::new(ip),
            changes: IcrcChanges::new(),
            failed: VecDeque::new(),
            full_since: None,
            next_look: 0,
            stats: LinkStats::default(),
            sockets,
        })
    }

    /// Returns whether a socket may be opened at this address, which some interface of this host has.
    ///
    /// # Errors
    /// None has it, or it means another host on each link.
    pub fn check_address(ip: IpAddr) -> Result<(), UdpError> {
        carried_from(ip).map(drop)
    }
}

/// How long the packets are that the interface of an address carries.
fn carried_from(ip: IpAddr) -> Result<usize, UdpError> {
    if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        return Err(UdpError::LinkLocal(ip));
    }
    interface::mtu_of(ip).map_err(|source| refusal(ip, source))
}

fn refusal(ip: IpAddr, source: io::Error) -> UdpError {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => UdpError::NoAddress(ip),
        _ => UdpError::Kernel { ip, source },
    }
}

/// The sockets of a link at this address, and at this port where one is given.
fn sockets_at(ip: IpAddr, port: Option<u16>) -> Result<Sockets, UdpError> {
    if let Some(port) = port.filter(|&port| !station::is_answerable(port)) {
        return Err(UdpError::Port(port));
    }
    let socket = match port {
        Some(port) => bind(ip, port, duty_at(port))?.ok_or(UdpError::Taken(ip, port))?,
        None => bind_any(ip)?,
    };
    let tx = sender_beside(&socket)?.map(TxSockets::new);
    Ok(Sockets { rx: RxSockets::new(socket, tx.is_some()), tx })
}

/// The socket that sends for one with RoCEv2's port, from a port that is entropy; `None` where a socket has a port of its own, by which
/// it is answered.
fn sender_beside(socket: &KernelSocket) -> Result<Option<KernelSocket>, UdpError> {
    let own = socket.local();
    if own.port() != udp::ROCE_PORT {
        return Ok(None);
    }
    for _ in 0..TRIES {
        let port = rand::rng().random_range(station::ENTROPY_FROM..=u16::MAX);
        if let Some(sender) = bind(own.ip(), port, SocketDuty::Send)? {
            return Ok(Some(sender));
        }
    }
    Err(UdpError::NoPort(own.ip()))
}

/// Where a socket has RoCEv2's port, another one sends.
const fn duty_at(port: u16) -> SocketDuty {
    if port == udp::ROCE_PORT { SocketDuty::Receive } else { SocketDuty::Both }
}

/// A socket at this port; `None` where another has it.
fn bind(ip: IpAddr, port: u16, duty: SocketDuty) -> Result<Option<KernelSocket>, UdpError> {
    match KernelSocket::bind(SocketAddr::new(ip, port), duty) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(source) => Err(refusal(ip, source)),
    }
}

/// A socket at RoCEv2's port, or at one of its own where another process has that.
fn bind_any(ip: IpAddr) -> Result<KernelSocket, UdpError> {
    if let Some(socket) = bind(ip, udp::ROCE_PORT, SocketDuty::Receive)? {
        return Ok(socket);
    }
    for _ in 0..TRIES {
        if let Some(socket) = bind(ip, rand::rng().random_range(station::OWN_PORTS), SocketDuty::Both)? {
            return Ok(socket);
        }
    }
    Err(UdpError::NoPort(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in ["udp:10.0.0.1", "udp:fd00::1", "udp:10.0.0.1:4791", "udp:[fd00::1]:33000"] {
            let address: UdpAddress = text["udp:".len()..].parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("".parse(), Ok(UdpAddress::default()));
        assert_eq!("[fd00::1]".parse::<UdpAddress>().map(|address| address.port), Ok(None));
        for bad in ["eth0", "10.0.0", "10.0.0.1:", "10.0.0.1:70000", "fd00::1:x", ":4791"] {
            assert!(bad.parse::<UdpAddress>().is_err(), "{bad}");
        }
    }
}
