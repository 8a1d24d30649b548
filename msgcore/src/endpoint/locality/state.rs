//! How far the ports to peers of this host are.

use std::collections::{BTreeMap, BTreeSet};
use std::{io, mem};

use roci_driver::link::Link;
use roci_driver::{MemoryMark, PortConfig};
use roci_protocol::Nanos;

use super::attached::{AttachedPorts, no_interface};
use super::local_port::{LocalPorts, PendingPort};
use super::message::MeetingPoint;
use super::socket::LocalSocket;
use crate::core::Core;
use crate::core::peer::Peer;
use crate::core::peer_id::PeerId;
use crate::endpoint::address::EndpointAddress;

/// What it takes to have more to do with peers of this host than with others: ports of their own, or a look at their memory.
pub struct LocalMeans<L: Link> {
    pub(super) socket: LocalSocket,
    pub(super) ports: Option<PortMeans<L>>,
    /// By this peers know this process's memory, where they may read it.
    pub(super) mark: Option<MemoryMark>,
}

/// What it takes to have ports to peers of this host.
pub(super) struct PortMeans<L: Link> {
    pub(super) ports: Box<dyn LocalPorts<L>>,
    pub(super) limit: usize,
}

impl<L: Link> LocalMeans<L> {
    /// The endpoint at an address is found by those of its host from now on: before anybody learns the address.
    ///
    /// # Errors
    /// Another endpoint has the address, or there are no more descriptors.
    pub fn new(own: &EndpointAddress) -> io::Result<Self> {
        Ok(Self { socket: LocalSocket::bind(own)?, ports: None, mark: None })
    }

    /// The endpoint has at most so many ports to peers of this host, made by `ports`.
    #[must_use]
    pub fn with_ports(self, ports: Box<dyn LocalPorts<L>>, limit: usize) -> Self {
        Self { ports: Some(PortMeans { ports, limit }), ..self }
    }

    /// Peers of this host may read this process's memory, as far as the kernel lets them, and this one theirs.
    #[must_use]
    pub fn with_mark(self, mark: MemoryMark) -> Self {
        Self { mark: Some(mark), ..self }
    }
}

/// What an endpoint and its peers of this host do to have ports.
pub(crate) struct Locality<L: Link> {
    /// None where those of this host are as all others.
    pub(super) means: Option<LocalMeans<L>>,
    pub(super) meetings: BTreeMap<PeerId, LocalPortState<L>>,
    pub(crate) attached: AttachedPorts,
    /// Peers that are to be asked for a connection once it is clear over which port.
    pub(super) waiting: BTreeSet<PeerId>,
    /// Peers that have asked for one over the port that this end does not have yet.
    pub(super) early: BTreeSet<PeerId>,
    is_urgent: bool,
    /// The process that has opened all this: in a forked child it is the parent's.
    process: u32,
}

/// How far the port to a peer is.
pub(super) enum LocalPortState<L: Link> {
    /// The server was asked for it.
    Asked { until: Nanos },
    /// This end is open.
    Opening { port: Box<dyn PendingPort<L>>, point: Option<MeetingPoint>, until: Nanos },
    /// It is there.
    Met,
    /// There will be none.
    Apart,
}

impl<L: Link> Locality<L> {
    /// Without ports: all peers are behind the network's.
    pub(crate) fn none() -> Self {
        Self {
            means: None,
            meetings: BTreeMap::new(),
            attached: AttachedPorts::default(),
            waiting: BTreeSet::new(),
            early: BTreeSet::new(),
            is_urgent: false,
            process: std::process::id(),
        }
    }

    /// With ports, as far as there are means. Those of these numbers are closed, and the first to be used again.
    pub(crate) fn with(means: Option<LocalMeans<L>>, free: Vec<usize>) -> Self {
        let mut locality = Self::none();
        locality.means = means;
        locality.attached = AttachedPorts::with_free(free);
        locality
    }

    /// Whether a port is being opened or asked for.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// How far the port to a peer is from now on; `None` forgets it.
    pub(super) fn set(&mut self, id: PeerId, meeting: Option<LocalPortState<L>>) {
        match meeting {
            Some(meeting) => drop(self.meetings.insert(id, meeting)),
            None => drop(self.meetings.remove(&id)),
        }
        self.note_urgency();
    }

    pub(super) fn note_urgency(&mut self) {
        let has_unsent = self.means.as_ref().is_some_and(|means| means.socket.has_unsent());
        self.is_urgent = has_unsent || self.meetings.values().any(LocalPortState::is_under_way);
    }

    /// Whether a port to a peer is there.
    pub(crate) fn has_port(&self, id: PeerId) -> bool {
        matches!(self.meetings.get(&id), Some(LocalPortState::Met))
    }

    /// Whether the port to a peer is being opened.
    pub(crate) fn is_opening(&self, id: PeerId) -> bool {
        self.meetings.get(&id).is_some_and(LocalPortState::is_under_way)
    }

    /// The peer has asked for a connection over the port that is being opened.
    pub(crate) fn note_early(&mut self, id: PeerId) {
        self.early.insert(id);
    }

    /// No connection to the peer is to be made any more.
    pub(in crate::endpoint) fn give_up(&mut self, id: PeerId) {
        self.waiting.remove(&id);
        self.early.remove(&id);
    }

    /// A peer has gone, and nothing of it is under way: its queue pairs are destroyed, and the port to it is closed.
    pub(in crate::endpoint) fn part_from(&mut self, core: &mut Core<L>, peer: &mut Peer) {
        for lane in mem::take(&mut peer.lanes) {
            core.engine.destroy_qp(lane.qp);
        }
        self.release_port(core, peer.id);
    }

    /// A peer has gone, and its queue pairs are destroyed: the port to it is closed.
    pub(in crate::endpoint) fn release_port(&mut self, core: &mut Core<L>, id: PeerId) {
        self.set(id, None);
        self.give_up(id);
        if self.attached.any_port_of(id).is_some_and(|port| core.engine.is_port_in_use(port)) {
            // Something has kept a queue pair: the port stays.
            return;
        }
        let means = self.means.as_ref().and_then(|means| means.ports.as_ref());
        if let (Some(index), Some(PortMeans { ports, .. })) = (self.attached.remove(id), means) {
            let config = PortConfig { interfaces: vec![no_interface()], ..PortConfig::default() };
            drop(core.engine.replace_port(index, ports.closed(), config));
        }
    }

    /// Returns the peers to which there is a port, or may soon be, used or not.
    pub(super) fn peers_with_ports(&self) -> impl Iterator<Item = PeerId> {
        let met = self.meetings.iter().filter(|(_, meeting)| meeting.has_port()).map(|(&id, _)| id);
        met.chain(self.attached.peers_with_unused())
    }

    /// Ports that there are or may soon be.
    pub(super) fn count(&self) -> usize {
        self.meetings.values().filter(|meeting| meeting.has_port()).count() + self.attached.unused()
    }
}

impl<L: Link> Drop for Locality<L> {
    /// What is being opened is the parent's in a forked child: neither DPDK's ports nor directories are this process's to close.
    fn drop(&mut self) {
        if std::process::id() != self.process {
            mem::forget(mem::take(&mut self.meetings));
            mem::forget(self.means.take());
        }
    }
}

impl<L: Link> LocalPortState<L> {
    pub(super) const fn is_under_way(&self) -> bool {
        matches!(self, Self::Asked { .. } | Self::Opening { .. })
    }

    const fn has_port(&self) -> bool {
        matches!(self, Self::Met | Self::Opening { .. })
    }

    pub(super) const fn until(&self) -> Nanos {
        match self {
            Self::Asked { until } | Self::Opening { until, .. } => *until,
            Self::Met | Self::Apart => Nanos::MAX,
        }
    }
}
