//! Every connection there is, by our name of it and by its peer's.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::patience::Patience;
use super::{CmState, Offer, Route};
use crate::wire::cm::{CmMessage, Mad, Rtu, ServiceId};
use crate::wire::mad;
use crate::{Nanos, Qpn};

/// A connection's name: our communication identifier. It is random, and not used again soon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) u32);

impl ConnId {
    /// The communication identifier, as messages carry it.
    pub const fn comm_id(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {:#010x}", self.0)
    }
}

/// A management datagram, ready to send.
pub(super) type Datagram = [u8; mad::LEN];

/// The numbers by which a peer names a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerIds {
    /// Its communication identifier.
    pub(super) comm_id: u32,
    /// Its adapter.
    pub(super) ca_guid: u64,
    /// Its queue pair.
    pub(super) qpn: Qpn,
}

/// What is known about a connection.
pub(super) struct Connection<R> {
    pub(super) route: R,
    pub(super) state: CmState,
    pub(super) service: ServiceId,
    /// The transaction of the REQ, which every message but DREQ and DREP carries.
    pub(super) tid: u64,
    /// Known from the REQ or the REP on.
    pub(super) peer: Option<PeerIds>,
    /// Our side; the passive one's is known once it accepts.
    pub(super) offer: Option<Offer>,
    pub(super) patience: Patience,
    /// When the timer strikes.
    pub(super) due: Option<Nanos>,
    /// What to say again, after a timeout or because the peer does.
    pub(super) said: LastSaid,
    /// The application knows that it is over.
    pub(super) has_ended: bool,
}

/// The last message of a connection.
pub(super) enum LastSaid {
    Nothing,
    /// An RTU, which is made anew: of the connections that are open half have said it last.
    Rtu,
    Message(Box<Datagram>),
}

impl<R> Connection<R> {
    /// What was said last, once more. `id` is the connection's name.
    pub(super) fn last_said(&self, id: ConnId) -> Option<Datagram> {
        match &self.said {
            LastSaid::Nothing => None,
            LastSaid::Rtu => {
                let rtu = Rtu { local_comm_id: id.0, remote_comm_id: self.peer?.comm_id, ..Rtu::default() };
                Some(Mad::new(self.tid, CmMessage::Rtu(rtu)).emit())
            }
            LastSaid::Message(datagram) => Some(**datagram),
        }
    }
}

/// Why a message belongs to no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Miss {
    /// There is none of these names.
    Unknown,
    /// There is one, with somebody else.
    Foreign,
}

/// Every connection, and the indices.
pub(super) struct Connections<R> {
    all: BTreeMap<ConnId, Connection<R>>,
    by_comm_id: BTreeSet<(u64, u32, ConnId)>,
    by_queue_pair: BTreeSet<(u64, Qpn, ConnId)>,
    /// How many there are with each address.
    by_address: BTreeMap<IpAddr, usize>,
}

const FIRST: ConnId = ConnId(0);
const LAST: ConnId = ConnId(u32::MAX);

impl<R: Route> Connections<R> {
    pub(super) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            by_comm_id: BTreeSet::new(),
            by_queue_pair: BTreeSet::new(),
            by_address: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, id: ConnId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Connection<R>> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection<R>> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: ConnId, connection: Connection<R>) {
        let peer = connection.peer;
        *self.by_address.entry(connection.route.remote_ip()).or_default() += 1;
        self.all.insert(id, connection);
        if let Some(peer) = peer {
            self.index(id, peer);
        }
    }

    /// The peer has said who it is.
    pub(super) fn name_peer(&mut self, id: ConnId, peer: PeerIds) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.peer = Some(peer);
            self.index(id, peer);
        }
    }

    fn index(&mut self, id: ConnId, peer: PeerIds) {
        self.by_comm_id.insert((peer.ca_guid, peer.comm_id, id));
        self.by_queue_pair.insert((peer.ca_guid, peer.qpn, id));
    }

    pub(super) fn remove(&mut self, id: ConnId) {
        let Some(Connection { peer, route, .. }) = self.all.remove(&id) else { return };
        if let Entry::Occupied(mut count) = self.by_address.entry(route.remote_ip()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let Some(peer) = peer else { return };
        self.by_comm_id.remove(&(peer.ca_guid, peer.comm_id, id));
        self.by_queue_pair.remove(&(peer.ca_guid, peer.qpn, id));
    }

    /// How many there are with an address.
    pub(super) fn with(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    /// Entries of the indices of names.
    #[cfg(test)]
    pub(super) fn indexed(&self) -> usize {
        assert_eq!(self.by_address.values().sum::<usize>(), self.all.len());
        self.by_comm_id.len() + self.by_queue_pair.len()
    }

    /// The connection that we call `ours`, with the peer at `route`.
    fn named(&self, route: R, ours: u32) -> Result<(ConnId, &Connection<R>), Miss> {
        let id = ConnId(ours);
        let connection = self.all.get(&id).ok_or(Miss::Unknown)?;
        if connection.route == route { Ok((id, connection)) } else { Err(Miss::Foreign) }
    }

    /// The connection of both names.
    pub(super) fn find(&self, route: R, ours: u32, theirs: u32) -> Result<ConnId, Miss> {
        let (id, connection) = self.named(route, ours)?;
        let is_theirs = connection.peer.is_some_and(|peer| peer.comm_id == theirs);
        if is_theirs { Ok(id) } else { Err(Miss::Unknown) }
    }

    /// The connection whose peer has not named it.
    pub(super) fn find_unnamed(&self, route: R, ours: u32) -> Result<ConnId, Miss> {
        let (id, connection) = self.named(route, ours)?;
        if connection.peer.is_none() { Ok(id) } else { Err(Miss::Unknown) }
    }

    /// The connection that a peer's adapter calls `comm_id`. A sender that claims to be that adapter on another route
    /// is another peer.
    pub(super) fn find_theirs(&self, route: R, ca_guid: u64, comm_id: u32) -> Option<ConnId> {
        let range = self.by_comm_id.range((ca_guid, comm_id, FIRST)..=(ca_guid, comm_id, LAST));
        range.map(|&(_, _, id)| id).find(|&id| self.is_with(id, route))
    }

    /// The connection of a peer's queue pair.
    pub(super) fn find_queue_pair(&self, route: R, ca_guid: u64, qpn: Qpn) -> Option<ConnId> {
        let range = self.by_queue_pair.range((ca_guid, qpn, FIRST)..=(ca_guid, qpn, LAST));
        range.map(|&(_, _, id)| id).find(|&id| self.is_with(id, route))
    }

    fn is_with(&self, id: ConnId, route: R) -> bool {
        self.all.get(&id).is_some_and(|connection| connection.route == route)
    }
}
