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
mod cma;
mod local_port;
mod message;
mod socket;
mod state;

use std::mem;

use roci_driver::link::Link;
use roci_protocol::Nanos;

use super::Endpoint;
use super::address::EndpointAddress;
use super::address_book::PeerSession;
use super::wireup::{AskedOver, Meant};
use crate::core::peer_id::PeerId;
use crate::core::stage::Stage;

pub(crate) use attached::{AttachedPorts, ends};
pub use local_port::{LocalPortError, LocalPorts, PendingPort};
pub use message::MeetingPoint;
pub use state::LocalMeans;
pub(crate) use state::Locality;

use local_port::check_point;
use message::{LocalBody, LocalMessage, MESSAGE_LEN};
use socket::{LocalDatagram, reaches};
use state::{LocalPortState, PortMeans};

/// How long a peer of this host may take to answer; it may be computing.
const ANSWER_NS: Nanos = 10_000_000_000;
/// How long a client waits for the link, whose server waits already; and how long that one does: until its client has answered, and
/// waited in vain, and longer.
const CLIENT_NS: Nanos = 5_000_000_000;
const SERVER_NS: Nanos = ANSWER_NS + 2 * CLIENT_NS;
/// Messages that one look takes.
const MESSAGES: usize = 16;

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
        let has_ports = self.wireup.locality.means.as_ref().is_some_and(|means| means.ports.is_some());
        let Some(theirs) = self.wireup.book.address(id).filter(|_| has_ports) else { return };
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
        if self.gone_with_ports().next().is_some() {
            // What was under way with them completes at once.
            self.on_completions();
        }
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
        self.close_ports_of_gone();
        let count = self.wireup.locality.count();
        let means = self.wireup.locality.means.as_mut().and_then(|means| means.ports.as_mut());
        let PortMeans { ports, limit } = means.ok_or_else(|| LocalPortError("they are off".into()))?;
        if count >= *limit {
            return Err(LocalPortError(format!("there are {count} already (ROCI_LOCAL_PORTS)")));
        }
        action(&mut **ports)
    }

    /// Closes the ports to peers that have failed, and of which nothing is under way, whether the application has removed them or not.
    /// They have places that others need; and a server that has forgotten this end gives it the same socket again, at which a process
    /// has one client at a time.
    fn close_ports_of_gone(&mut self) {
        self.release_retired();
        let gone: Vec<_> = self.gone_with_ports().collect();
        let Self { core, peers, wireup, .. } = self;
        for id in gone {
            let Some(peer) = peers.get_mut(id).filter(|peer| peer.is_at_rest()) else { continue };
            wireup.locality.part_from(core, peer);
        }
    }

    fn gone_with_ports(&self) -> impl Iterator<Item = PeerId> {
        let is_gone = |id: &PeerId| self.peers.get(*id).is_some_and(|peer| peer.failure.is_some());
        self.wireup.locality.peers_with_ports().filter(is_gone)
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
        let session = self.wireup.book.session(id);
        self.wireup.book.address(id).is_some_and(|theirs| self.send_local((theirs, session), body))
    }

    fn send_local(&mut self, (theirs, session): (EndpointAddress, PeerSession), body: LocalBody) -> bool {
        let Some(means) = &mut self.wireup.locality.means else { return false };
        let meant = Meant { incarnation: theirs.incarnation, session };
        let message = LocalMessage { from: self.wireup.book.own(), meant, body }.to_string();
        let is_sent = message.len() <= MESSAGE_LEN && means.socket.send(theirs, message).is_ok();
        self.wireup.locality.note_urgency();
        is_sent
    }

    /// Looks after ports that are being opened; returns whether anything happened.
    pub(super) fn tend_locality(&mut self) -> bool {
        if self.wireup.locality.means.is_none() {
            return false;
        }
        if let Some(means) = &mut self.wireup.locality.means {
            means.socket.send_again();
        }
        let mut happened = false;
        for _ in 0..MESSAGES {
            let mut bytes = [0; MESSAGE_LEN];
            let Some(LocalDatagram { len, process }) = self.next_datagram(&mut bytes) else { break };
            happened = true;
            match LocalMessage::parse(&bytes[..len]) {
                Some(LocalMessage { from, meant, body: body @ (LocalBody::Mark(_) | LocalBody::Attached) }) => {
                    self.on_cma_message((from, meant), process, &body);
                }
                Some(message) => self.on_local_message(message),
                None => {}
            }
        }
        let is_under_way = |(&id, meeting): (&PeerId, &LocalPortState<L>)| meeting.is_under_way().then_some(id);
        for id in self.wireup.locality.meetings.iter().filter_map(is_under_way).collect::<Vec<_>>() {
            self.look_at_port(id);
        }
        self.wireup.locality.note_urgency();
        happened | self.go_on_with_decided()
    }

    fn next_datagram(&mut self, bytes: &mut [u8; MESSAGE_LEN]) -> Option<LocalDatagram> {
        let means = self.wireup.locality.means.as_mut()?;
        let received = means.socket.receive(bytes);
        self.core.stats.local_messages_refused += mem::take(&mut means.socket.refused);
        received
    }

    fn on_local_message(&mut self, LocalMessage { from, meant, body }: LocalMessage) {
        if body == LocalBody::Apart && self.wireup.book.at(from.place()).is_none() {
            // Who wants nothing is not let in.
            return;
        }
        let Ok(id) = self.identify(from, meant) else {
            // It connects over the network, and learns the reason there. Two that do not know each other answer no answer.
            if body != LocalBody::Apart {
                let session = PeerSession { ours: 0, theirs: meant.session.ours };
                self.send_local((from, session), LocalBody::Apart);
            }
            return;
        };
        let is_server = self.wireup.book.own() < from;
        let is_to_be_connected = self.peers.get(id).is_none_or(|peer| {
            peer.failure.is_none() && matches!(peer.connection.stage(), Stage::Idle | Stage::Asking)
        });
        let meeting = self.wireup.locality.meetings.get(&id);
        match (body, meeting) {
            (LocalBody::Apart, Some(LocalPortState::Met)) if !is_to_be_connected => {}
            (LocalBody::Apart, Some(LocalPortState::Met)) => self.go_on_without_port(id),
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
        let is_up = match meeting {
            LocalPortState::Opening { port, .. } => port.is_up(),
            LocalPortState::Asked { .. } => false,
            LocalPortState::Met | LocalPortState::Apart => return,
        };
        if is_up {
            self.attach(id);
        } else if is_late {
            self.part(id, "it does not answer");
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
                tracing::info!("{id} is reached over a port of this host");
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
            self.on_asked_over(id, AskedOver::Local);
        }
        for &id in &decided {
            if self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage() == Stage::Asking) {
                self.begin_wireup(id);
            }
        }
        !decided.is_empty() || !asked.is_empty()
    }

    /// A peer that is not connected does not use the port between the two, which is closed with the peer. What was asked for over it
    /// is given up.
    pub(super) fn forgo_port(&mut self, id: PeerId) {
        if self.wireup.locality.meetings.contains_key(&id) {
            self.with_method(|method, site| method.forget(site, id));
            self.wireup.locality.attached.forgo(id);
            self.set_local_port(id, LocalPortState::Apart);
        }
    }

    /// There is a port to a peer, and the peer does not have it: both connect over the network.
    pub(super) fn go_on_without_port(&mut self, id: PeerId) {
        self.forgo_port(id);
        if self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage() == Stage::Asking) {
            self.begin_wireup(id);
        }
    }
}
