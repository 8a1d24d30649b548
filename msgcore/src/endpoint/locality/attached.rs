//! Which ports of the engine are between this end and one peer of its host.

use std::net::{IpAddr, Ipv4Addr};

use hashbrown::HashMap;
use roci_driver::neighbour::Interface;

use crate::core::peer_id::PeerId;

/// The ports to peers of this host.
#[derive(Debug, Default)]
pub(crate) struct AttachedPorts {
    by_peer: HashMap<PeerId, usize>,
    by_port: HashMap<usize, PeerId>,
    /// Ports that are there and that their peers do not use.
    unused: HashMap<PeerId, usize>,
    /// Numbers of ports that were closed.
    free: Vec<usize>,
}

impl AttachedPorts {
    /// Returns the port to a peer, where there is one.
    pub(crate) fn port_of(&self, id: PeerId) -> Option<usize> {
        self.by_peer.get(&id).copied()
    }

    /// Returns the peer that is alone behind a port.
    pub(crate) fn peer_behind(&self, port: usize) -> Option<PeerId> {
        self.by_port.get(&port).copied()
    }

    /// Gives a peer the number of a port that was closed, or else the `next` one, and returns it.
    pub(super) fn insert(&mut self, id: PeerId, next: usize) -> usize {
        let port = self.free.pop().unwrap_or(next);
        let (before, other) = (self.by_peer.insert(id, port), self.by_port.insert(port, id));
        assert!(before.is_none() && other.is_none(), "a peer has one port, and a port one peer");
        port
    }

    /// With the numbers of ports that another endpoint has closed.
    pub(crate) fn with_free(free: Vec<usize>) -> Self {
        Self { free, ..Self::default() }
    }

    /// Returns the numbers of ports that were closed, for another endpoint.
    pub(crate) fn take_free(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.free)
    }

    /// A peer does not use its port, which is closed with the peer.
    pub(super) fn forgo(&mut self, id: PeerId) {
        if let Some(port) = self.by_peer.remove(&id) {
            self.unused.insert(id, port);
        }
    }

    /// Returns the peers that do not use their ports.
    pub(super) fn peers_with_unused(&self) -> impl Iterator<Item = PeerId> {
        self.unused.keys().copied()
    }

    /// Returns how many ports there are that their peers do not use.
    pub(super) fn unused(&self) -> usize {
        self.unused.len()
    }

    /// Returns a peer's port, used or not.
    pub(super) fn any_port_of(&self, id: PeerId) -> Option<usize> {
        self.by_peer.get(&id).or_else(|| self.unused.get(&id)).copied()
    }

    /// A peer's port is closed; returns its number.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<usize> {
        let port = self.by_peer.remove(&id).or_else(|| self.unused.remove(&id))?;
        self.by_port.remove(&port);
        self.free.push(port);
        Some(port)
    }
}

/// This host's address at one end of a port between two processes, and its peer's: those of the server and the client. They are
/// link-local (RFC 3927), and no network sees them.
pub(crate) const fn ends(is_server: bool) -> (IpAddr, IpAddr) {
    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 77, 1));
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 77, 2));
    if is_server { (SERVER, CLIENT) } else { (CLIENT, SERVER) }
}

/// An address for a port that is closed.
pub(super) const fn no_interface() -> Interface {
    Interface { ip: ends(true).0, prefix: 30, vlan: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_ports_number_is_the_next_peers() {
        let mut attached = AttachedPorts::default();
        let [first, second, third] = [1, 2, 3].map(PeerId::from);
        assert_eq!((attached.insert(first, 1), attached.insert(second, 2)), (1, 2));
        assert_eq!((attached.port_of(first), attached.peer_behind(2)), (Some(1), Some(second)));
        assert_eq!((attached.remove(first), attached.remove(first)), (Some(1), None));
        assert_eq!((attached.port_of(first), attached.peer_behind(1)), (None, None));
        assert_eq!((attached.insert(third, 3), attached.peer_behind(1)), (1, Some(third)));
        attached.forgo(third);
        assert_eq!((attached.port_of(third), attached.any_port_of(third), attached.unused()), (None, Some(1), 1));
        assert_eq!((attached.remove(third), attached.unused()), (Some(1), 0));
        let mut other = AttachedPorts::with_free(attached.take_free());
        assert_eq!((other.insert(first, 5), attached.insert(third, 6)), (1, 6), "a closed port is another endpoint's");
    }
}
