//! Locality: peers on the same host get a port of their own, at the first contact; all others are behind the port that the
//! configuration names.
//!
//! Each endpoint has a [socket](LocalSocket) at which those of its host find it, and none of another host. The lower address of a
//! pair is the server: it makes a port's socket and says where (`ready`). The client, which asks for that (`want`) where it comes
//! first, opens its end. Once the link is up an end connects over it (`Site::port_of`). Where anything is in the
//! way (no place for a port, another mount namespace, a peer that does not answer in time) either end says so (`apart`), and the two
//! connect over the network. So a host is recognized by what is needed of it: a common kernel and network, a common file system, and
//! a common user.

mod attached;
mod local_port;
mod message;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use roci_driver::PortConfig;
use roci_driver::link::Link;
use roci_protocol::Nanos;

use super::Endpoint;
use super::address::EndpointAddress;
use crate::core::Core;
use crate::core::peer_id::PeerId;
use crate::core::stage::Stage;

pub(crate) use attached::{AttachedPorts, ends};
pub use local_port::{LocalPortError, LocalPorts, PendingPort};
pub use message::MeetingPoint;

use local_port::check_point;
use message::{LocalBody, LocalMessage, MESSAGE_LEN};
use socket::{LocalSocket, reaches};

/// How long a peer of this host may take to answer; it may be computing.
const ANSWER_NS: Nanos = 10_000_000_000;
/// How long a link between two that have answered may take to come up: longer at the server, which must not go before its client.
const CLIENT_NS: Nanos = 5_000_000_000;
const SERVER_NS: Nanos = 10_000_000_000;
/// Messages that one look takes.
const MESSAGES: usize = 16;

/// What it takes to have ports to peers of this host.
pub struct LocalMeans<L: Link> {
    socket: LocalSocket,
    ports: Box<dyn LocalPorts<L>>,
    limit: usize,
}

impl<L: Link> LocalMeans<L> {
    /// The endpoint at an address is found by those of its host from now on: before anybody learns the address. It has at most so many
    /// ports, made by `ports`.
    ///
    /// # Errors
    /// Another endpoint has the address, or there are no more descriptors.
    pub fn new(own: &EndpointAddress, ports: Box<dyn LocalPorts<L>>, limit: usize) -> io::Result<Self> {
        Ok(Self { socket: LocalSocket::bind(own)?, ports, limit })
    }
}

/// What an endpoint and its peers of this host do to have ports.
pub(crate) struct Locality<L: Link> {
    /// None where all peers are behind the network's port.
    means: Option<LocalMeans<L>>,
    meetings: BTreeMap<PeerId, LocalPortState<L>>,
    pub(crate) attached: AttachedPorts,
    /// Peers that are to be asked for a connection once it is clear over which port.
    waiting: BTreeSet<PeerId>,
    /// Peers that have asked for one over the port that this end does not have yet.
    early: BTreeSet<PeerId>,
    is_urgent: bool,
}

/// How far the port to a peer is.
enum LocalPortState<L: Link> {
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
        }
    }

    /// With ports, as far as there are means.
    pub(crate) fn with(means: Option<LocalMeans<L>>) -> Self {
        Self { means, ..Self::none() }
    }

    /// Whether a port is being opened or asked for.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// How far the port to a peer is from now on; `None` forgets it.
    fn set(&mut self, id: PeerId, meeting: Option<LocalPortState<L>>) {
        match meeting {
            Some(meeting) => drop(self.meetings.insert(id, meeting)),
            None => drop(self.meetings.remove(&id)),
        }
        self.is_urgent = self.meetings.values().any(LocalPortState::is_under_way);
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
    pub(super) fn give_up(&mut self, id: PeerId) {
        self.waiting.remove(&id);
        self.early.remove(&id);
    }

    /// A peer has gone, and its queue pairs are destroyed: the port to it is closed.
    pub(super) fn release_port(&mut self, core: &mut Core<L>, id: PeerId) {
        self.set(id, None);
        self.give_up(id);
        if let (Some(index), Some(means)) = (self.attached.remove(id), &self.means) {
            let config = PortConfig { interfaces: vec![attached::no_interface()], ..PortConfig::default() };
            drop(core.engine.replace_port(index, means.ports.closed(), config));
        }
    }

    /// Ports that there are or may soon be.
    fn count(&self) -> usize {
        self.meetings.values().filter(|meeting| meeting.has_port()).count()
    }
}

impl<L: Link> LocalPortState<L> {
    const fn is_under_way(&self) -> bool {
        matches!(self, Self::Asked { .. } | Self::Opening { .. })
    }

    const fn has_port(&self) -> bool {
        matches!(self, Self::Met | Self::Opening { .. })
    }

    const fn until(&self) -> Nanos {
        match self {
            Self::Asked { until } | Self::Opening { until, .. } => *until,
            Self::Met | Self::Apart => Nanos::MAX,
        }
    }
}

impl<L: Link> Endpoint<L> {
    /// Begins to find out over which port a peer is to be connected; returns whether that takes time. The endpoint goes on to connect
    /// when it is known.
    pub(super) fn meet(&mut self, id: PeerId) -> bool {
        if !self.wireup.locality.meetings.contains_key(&id) {
            self.begin_to_meet(id);
        }
        let is_pending = self.wireup.locality.is_opening(id);
        if is_pending {
            self.wireup.locality.waiting.insert(id);
        }
        is_pending
    }

    fn begin_to_meet(&mut self, id: PeerId) {
        let Some(theirs) = self.wireup.book.address(id).filter(|_| self.wireup.locality.means.is_some()) else {
            return;
        };
        if !reaches(&theirs) {
            return;
        }
        if self.wireup.book.own() < theirs {
            self.serve(id);
        } else if self.notify_local(id, LocalBody::Want) {
            let until = self.core.engine.now() + ANSWER_NS;
            self.set_local_port(id, LocalPortState::Asked { until });
        }
    }

    /// Opens the server's end of the port to a peer, and says where it is.
    fn serve(&mut self, id: PeerId) {
        let until = self.core.engine.now() + SERVER_NS;
        let opened = self.with_a_place(|ports| ports.serve());
        match opened {
            Ok((port, point)) if self.notify_local(id, LocalBody::Ready(point.clone())) => {
                self.set_local_port(id, LocalPortState::Opening { port, point: Some(point), until });
            }
            Ok(_) => self.part(id, "it does not take our answer"),
            Err(why) => self.part(id, &why.to_string()),
        }
    }

    /// Opens the client's end of the port to a peer.
    fn join(&mut self, id: PeerId, point: &MeetingPoint) {
        let until = self.core.engine.now() + CLIENT_NS;
        let opened = check_point(point).and_then(|()| self.with_a_place(|ports| ports.join(point)));
        match opened {
            Ok(port) => self.set_local_port(id, LocalPortState::Opening { port, point: None, until }),
            Err(why) => self.part(id, &why.to_string()),
        }
    }

    fn with_a_place<R>(
        &mut self,
        action: impl FnOnce(&mut dyn LocalPorts<L>) -> Result<R, LocalPortError>,
    ) -> Result<R, LocalPortError> {
        // Peers that have gone may have ports still.
        self.release_retired();
        let count = self.wireup.locality.count();
        let means = self.wireup.locality.means.as_mut().ok_or_else(|| LocalPortError("they are off".into()))?;
        if count >= means.limit {
            return Err(LocalPortError(format!("there are {count} already (ROCI_LOCAL_PORTS)")));
        }
        action(&mut *means.ports)
    }

    /// There will be no port to a peer, which is notified: both connect over the network.
    fn part(&mut self, id: PeerId, why: &str) {
        tracing::info!("{id} is reached over the network: {why}");
        self.core.stats.local_ports_missed += 1;
        self.notify_local(id, LocalBody::Apart);
        self.set_local_port(id, LocalPortState::Apart);
    }

    fn set_local_port(&mut self, id: PeerId, meeting: LocalPortState<L>) {
        self.wireup.locality.set(id, Some(meeting));
    }

    /// Sends a message to a peer; returns whether it was taken.
    fn notify_local(&mut self, id: PeerId, body: LocalBody) -> bool {
        let (Some(means), Some(theirs)) = (&self.wireup.locality.means, self.wireup.book.address(id)) else {
            return false;
        };
        let message = LocalMessage { from: self.wireup.book.own(), meant: theirs.incarnation, body }.to_string();
        message.len() <= MESSAGE_LEN && means.socket.send(&theirs, &message).is_ok()
    }

    /// Looks after ports that are being opened; returns whether anything happened.
    pub(super) fn tend_locality(&mut self) -> bool {
        if self.wireup.locality.means.is_none() {
            return false;
        }
        let mut happened = false;
        for _ in 0..MESSAGES {
            let mut bytes = [0; MESSAGE_LEN];
            let Some(len) = self.next_datagram(&mut bytes) else { break };
            happened = true;
            if let Some(message) = LocalMessage::parse(&bytes[..len]) {
                self.on_local_message(message);
            }
        }
        let is_under_way = |(&id, meeting): (&PeerId, &LocalPortState<L>)| meeting.is_under_way().then_some(id);
        for id in self.wireup.locality.meetings.iter().filter_map(is_under_way).collect::<Vec<_>>() {
            self.look_at_port(id);
        }
        happened | self.go_on_with_decided()
    }

    fn next_datagram(&mut self, bytes: &mut [u8; MESSAGE_LEN]) -> Option<usize> {
        let means = self.wireup.locality.means.as_mut()?;
        let len = means.socket.receive(bytes);
        self.core.stats.local_messages_refused += std::mem::take(&mut means.socket.refused);
        len
    }

    fn on_local_message(&mut self, LocalMessage { from, meant, body }: LocalMessage) {
        let Ok(id) = self.identify(from, meant) else { return };
        let is_server = self.wireup.book.own() < from;
        let is_to_be_connected =
            self.peers.live_mut(id).is_none_or(|peer| matches!(peer.connection.stage(), Stage::Idle | Stage::Asking));
        let meeting = self.wireup.locality.meetings.get(&id);
        match (body, meeting) {
            (LocalBody::Apart, Some(LocalPortState::Met)) => {}
            (LocalBody::Apart, _) => self.set_local_port(id, LocalPortState::Apart),
            (_, None | Some(LocalPortState::Asked { .. })) if !is_to_be_connected => {
                self.part(id, "it is connected already");
            }
            (LocalBody::Want, None) if is_server => self.serve(id),
            // The answer may have been lost.
            (LocalBody::Want, Some(LocalPortState::Opening { point: Some(point), .. })) => {
                self.notify_local(id, LocalBody::Ready(point.clone()));
            }
            (LocalBody::Ready(point), None | Some(LocalPortState::Asked { .. })) if !is_server => self.join(id, &point),
            (_, Some(LocalPortState::Apart)) => {
                self.notify_local(id, LocalBody::Apart);
            }
            // It comes twice, or is no message for this end's part.
            _ => {}
        }
    }

    /// Whether the port to a peer is there, or has taken too long.
    fn look_at_port(&mut self, id: PeerId) {
        let now = self.core.engine.now();
        let Some(meeting) = self.wireup.locality.meetings.get_mut(&id) else { return };
        let is_late = now >= meeting.until();
        match meeting {
            LocalPortState::Opening { port, .. } => match port.is_up() {
                Ok(true) => self.attach(id),
                Ok(false) if is_late => self.part(id, "the link does not come up"),
                Ok(false) => {}
                Err(why) => self.part(id, &why.to_string()),
            },
            LocalPortState::Asked { .. } if is_late => self.part(id, "it does not answer"),
            LocalPortState::Asked { .. } | LocalPortState::Met | LocalPortState::Apart => {}
        }
    }

    /// The link to a peer is up: its port is one of the engine's from now on.
    fn attach(&mut self, id: PeerId) {
        let Some(LocalPortState::Opening { port, .. }) = self.wireup.locality.meetings.remove(&id) else { return };
        let engine = &mut self.core.engine;
        let attached = &mut self.wireup.locality.attached;
        match port.finish() {
            Ok((link, config)) => {
                let index = attached.insert(id, engine.port_count());
                if index == engine.port_count() {
                    engine.add_port_with(link, config).expect("a local port has an address and no VLAN");
                } else {
                    drop(engine.replace_port(index, link, config));
                }
                self.core.stats.local_ports_opened += 1;
                self.set_local_port(id, LocalPortState::Met);
            }
            Err(why) => self.part(id, &why.to_string()),
        }
    }

    /// Connects, or lets itself be connected, where that waited for a port.
    fn go_on_with_decided(&mut self) -> bool {
        let Self { wireup, .. } = self;
        let locality = &mut wireup.locality;
        let (meetings, waiting, early) = (&locality.meetings, &mut locality.waiting, &mut locality.early);
        let is_decided = |id: &PeerId| meetings.get(id).is_none_or(|meeting| !meeting.is_under_way());
        let decided: Vec<_> = waiting.extract_if(.., |id| is_decided(id)).collect();
        let asked: Vec<_> = early.extract_if(.., |id| is_decided(id)).collect();
        for &id in &asked {
            self.on_asked(id);
        }
        for &id in &decided {
            if self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage() == Stage::Asking) {
                self.begin_wireup(id);
            }
        }
        !decided.is_empty() || !asked.is_empty()
    }

    /// A peer that is not connected has no use for the port between the two. It stays open, for there may be queue pairs on it.
    pub(super) fn forgo_port(&mut self, id: PeerId) {
        if self.wireup.locality.meetings.contains_key(&id) {
            self.wireup.locality.attached.forget(id);
            self.set_local_port(id, LocalPortState::Apart);
        }
    }
}
