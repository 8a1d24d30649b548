//! Ports of the engine: a link, this host's addresses on it, and its neighbours.

use roci_protocol::Pkey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roci_protocol::wire::MacAddr;
use roci_protocol::wire::ethernet::VID_MASK;
use thiserror::Error;

use super::Engine;
use super::identifications::Identifications;
use super::port_turns::LastFrames;
use crate::link::{Link, LinkState, ZeroCopyError};
use crate::neighbour::{Interface, NeighbourConfig, NeighbourStats, Neighbours, Resolution};

pub(super) struct Port<L> {
    pub(super) link: L,
    pub(super) interfaces: Vec<Interface>,
    pub(super) neighbours: Neighbours,
    pub(super) pkey: Pkey,
    /// One peer alone is on the link: when it goes down, that peer is gone.
    pub(super) is_point_to_point: bool,
    pub(super) state: LinkState,
    pub(super) last_frames: LastFrames,
    /// A look at it takes as long as dozens of looks at others ([`Link::receives_by_system_call`]).
    pub(super) is_dear: bool,
    /// What senders have counted up to, where the link hides it ([`Link::hides_identification`]).
    pub(super) identifications: Option<Identifications>,
    /// `Ok` where payloads of the arena are sent without a copy, or the reason why not.
    pub(super) zero_copy: Result<(), ZeroCopyError>,
}

/// This host on a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortConfig {
    /// Its addresses, at least one; queue pairs are made on the first by default.
    pub interfaces: Vec<Interface>,
    /// Stations that are never asked for.
    pub neighbours: Vec<(IpAddr, MacAddr)>,
    /// The way to IPv4 addresses off the link.
    pub gateway_v4: Option<Ipv4Addr>,
    /// The way to IPv6 addresses off the link.
    pub gateway_v6: Option<Ipv6Addr>,
    /// The partition of its queue pairs: packets of another one are dropped.
    pub pkey: Pkey,
    /// One peer alone is on the link: when it goes down, its connections end.
    pub is_point_to_point: bool,
}

/// Why a port was not added.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PortConfigError {
    /// A host without an address can neither send nor receive.
    #[error("a port needs at least one address")]
    NoAddress,
    /// IEEE 802.1Q has 12 bits for it, and two values are reserved.
    #[error("VLAN {0} is not between 1 and 4094")]
    Vlan(u16),
    /// IBTA 10.9.1.2 has no partition 0.
    #[error("{0} is no P_Key: its lower 15 bits are zero")]
    Pkey(Pkey),
}

impl<L: Link> Engine<L> {
    /// Adds a port with this host's address on it, and returns its index. Its neighbours are those with the same
    /// first 24 bits (IPv4) or 64 bits (IPv6).
    pub fn add_port(&mut self, link: L, ip: IpAddr, is_point_to_point: bool) -> usize {
        let prefix = if ip.is_ipv4() { 24 } else { 64 };
        let interfaces = vec![Interface { ip, prefix, vlan: None }];
        let config = PortConfig { interfaces, is_point_to_point, ..PortConfig::default() };
        self.push_port(link, config)
    }

    /// Adds a port, and returns its index.
    pub fn add_port_with(&mut self, link: L, config: PortConfig) -> Result<usize, PortConfigError> {
        if config.interfaces.is_empty() {
            return Err(PortConfigError::NoAddress);
        }
        if !config.pkey.is_valid() {
            return Err(PortConfigError::Pkey(config.pkey));
        }
        let is_vlan = |vlan: u16| (1..VID_MASK).contains(&vlan);
        match config.interfaces.iter().filter_map(|interface| interface.vlan).find(|&vlan| !is_vlan(vlan)) {
            Some(vlan) => Err(PortConfigError::Vlan(vlan)),
            None => Ok(self.push_port(link, config)),
        }
    }

    /// Whether a queue pair is on a port.
    pub fn is_port_in_use(&self, index: usize) -> bool {
        self.qps.iter().any(|slot| slot.port == index)
            || self.datagrams.values().any(|datagrams| datagrams.port == index)
    }

    /// Gives the number of a port whose queue pairs have all been destroyed to another link, and returns the link that had it.
    ///
    /// # Panics
    /// When a queue pair is on the port ([`Engine::is_port_in_use`]).
    pub fn replace_port(&mut self, index: usize, link: L, config: PortConfig) -> L {
        assert!(!self.is_port_in_use(index), "the port's queue pairs are destroyed");
        let port = self.make_port(link, config);
        std::mem::replace(&mut self.ports[index], port).link
    }

    /// Has a poll take no more frames from each port that there is now, where its link can ([`Link::receive_at_most`]): less is
    /// delivered before the application posts its next receives.
    pub fn receive_at_most(&mut self, frames: usize) {
        for port in &mut self.ports {
            port.link.receive_at_most(frames);
        }
    }

    fn push_port(&mut self, link: L, config: PortConfig) -> usize {
        let port = self.make_port(link, config);
        self.ports.push(port);
        self.ports.len() - 1
    }

    fn make_port(&mut self, mut link: L, config: PortConfig) -> Port<L> {
        let zero_copy = link.attach(self.memory.arena.clone());
        match &zero_copy {
            Ok(()) => tracing::info!("payloads are sent from where they lie"),
            Err(error @ (ZeroCopyError::Off | ZeroCopyError::Copies(_))) => {
                tracing::info!("payloads are copied: {error}");
            }
            Err(error) => tracing::warn!("payloads are copied: {error}"),
        }
        let PortConfig { interfaces, neighbours, gateway_v4, gateway_v6, pkey, is_point_to_point } = config;
        let identifications = link.hides_identification().then(Identifications::new);
        let (mac, fixed, is_dear) = (link.mac(), neighbours, link.receives_by_system_call());
        let neighbours = NeighbourConfig { mac, interfaces: interfaces.clone(), fixed, gateway_v4, gateway_v6 };
        let neighbours = Neighbours::new(neighbours);
        Port {
            link,
            interfaces,
            neighbours,
            pkey,
            is_point_to_point,
            state: LinkState::Up,
            last_frames: LastFrames::default(),
            is_dear,
            identifications,
            zero_copy,
        }
    }

    /// Returns the station that frames for `ip` go to, from the address of a port with index `address`. Sends an ARP
    /// request or a neighbour solicitation where that is unknown: poll, and call again.
    pub fn resolve(&mut self, port: usize, address: usize, ip: IpAddr) -> Resolution {
        let port = &mut self.ports[port];
        if let Some(station) = port.link.station_of(ip) {
            return Resolution::Known(station);
        }
        let (now, vlan) = (port.link.now(), port.interfaces[address].vlan);
        port.neighbours.resolve(now, ip, vlan)
    }

    /// Returns the first address of this host on a port.
    pub fn ip(&self, port: usize) -> IpAddr {
        self.ports[port].interfaces[0].ip
    }

    /// Whether a host is on the link of a port's address with index `address`, so that frames for it go to its own
    /// station; else they go to the gateway's.
    pub fn is_on_link(&self, port: usize, address: usize, ip: IpAddr) -> bool {
        let port = &self.ports[port];
        port.link.station_of(ip).is_some() || port.interfaces[address].reaches(ip)
    }

    /// Returns `Ok` if a port sends payloads of the arena without a copy, or the reason why it copies them.
    pub fn check_zero_copy(&self, port: usize) -> Result<(), ZeroCopyError> {
        self.ports[port].zero_copy.clone()
    }

    /// The counters of a port's neighbours.
    pub fn neighbour_stats(&self, port: usize) -> &NeighbourStats {
        self.ports[port].neighbours.stats()
    }
}
