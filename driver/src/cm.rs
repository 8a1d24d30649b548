//! Connections in band: RDMA-CM as an application sees it (`rdma_create_id(3)` and the calls around it).
//!
//! Only the application posts receives, so both sides come up in two steps. Active: [`crate::Engine::cm_connect`];
//! [`CmEvent::Replied`] brings a queue pair, which is confirmed by [`crate::Engine::cm_confirm`] once its receives are
//! posted. Passive: [`crate::Engine::cm_listen`]; on [`CmEvent::Request`] [`crate::Engine::cm_prepare`] makes the queue
//! pair, and [`crate::Engine::cm_accept`] answers once its receives are posted.

use std::net::IpAddr;

use roci_protocol::cm::{self, CmError, ConnId, Ending, Offer, PrivateData, SidrFailure, SidrId, Terms};
use roci_protocol::rc::Dialect;
use roci_protocol::wire::MacAddr;
use roci_protocol::wire::cm::{RejReason, ServiceId};
use roci_protocol::{Mtu, Pkey, Qpn};
use thiserror::Error;

use crate::handles::{CmChannel, QueuePair};
use crate::link::udp::station;
use crate::neighbour::Unreachable;
use crate::qp::{ConnectError, QpParams, UnconnectedQp};

/// What happens to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer asks for a connection.
    Request {
        /// The new connection.
        id: ConnId,
        /// The service that it is for.
        service: ServiceId,
        /// Which of this host's ports, and which of its addresses there: where the queue pair must be made.
        place: (usize, usize),
        /// What the peer's queue pair is like.
        terms: Terms,
        /// The peer's address and port of RDMA-CM, if the service is a port.
        source: Option<(IpAddr, u16)>,
        /// The station that it came from.
        station: MacAddr,
        /// The peer's private data.
        private_data: PrivateData,
    },
    /// The peer grants a connection.
    Replied {
        /// The connection.
        id: ConnId,
        /// Its queue pair, ready to send.
        qp: QueuePair,
        /// The peer's private data.
        private_data: PrivateData,
    },
    /// The connection is open.
    Established {
        /// The connection.
        id: ConnId,
        /// Its queue pair.
        qp: QueuePair,
    },
    /// The peer refuses the connection.
    Rejected {
        /// The connection.
        id: ConnId,
        /// Why.
        reason: RejReason,
        /// The peer's private data.
        private_data: PrivateData,
    },
    /// The peer granted a connection that this host cannot make; it was notified (REJ).
    Failed {
        /// The connection.
        id: ConnId,
        /// Why.
        error: CmCallError,
    },
    /// The peer does not answer: for 55 seconds, or as long as [`Engine::cm_be_patient`](crate::Engine::cm_be_patient) says, nothing has come.
    Unreachable {
        /// The connection.
        id: ConnId,
    },
    /// The connection is over: its queue pair is in the error state, and its work requests are flushed.
    ///
    /// A peer's process that is killed says nothing, unlike one whose kernel speaks for it. Its end shows in the next work
    /// request, which ends with [`WcStatus::RetryExcErr`](crate::WcStatus::RetryExcErr) and
    /// [`Event::QueuePairFailed`](crate::Event::QueuePairFailed). Who only waits for a peer sends it an empty
    /// [`SendWr::write`](crate::SendWr::write) now and then.
    Disconnected {
        /// The connection.
        id: ConnId,
        /// Why.
        ending: Ending,
    },
    /// The connection's name may be used again.
    TimewaitExit {
        /// The connection that was.
        id: ConnId,
    },
    /// A datagram service's queue pair is known.
    ServiceResolved {
        /// The question.
        id: SidrId,
        /// The queue pair.
        qpn: Qpn,
        /// The key that lets datagrams in.
        qkey: u32,
    },
    /// A datagram service's queue pair is not known.
    ServiceFailed {
        /// The question.
        id: SidrId,
        /// Why.
        failure: SidrFailure,
    },
}

/// Why the connection manager did not do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CmCallError {
    /// The connection, or its state, does not allow it.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// The queue pair cannot be connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The peer's station is not known yet: poll, and call again.
    #[error("the peer's station is being asked for")]
    Resolving,
    /// Nothing leads to the peer.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(Unreachable),
    /// The peer decides on the path MTU, and the link does not carry it any more: refuse with [`RejReason::INVALID_MTU`].
    #[error("the link does not carry the path MTU that the peer asks for")]
    PathMtu,
    /// The queue pair was made on another address than the one that the peer connects to.
    #[error("the queue pair is on another address than the connection")]
    OtherAddress,
    /// The connection has a queue pair already, or none yet.
    #[error("the connection is not at the point where it takes a queue pair")]
    NotPrepared,
    /// The engine is the parent's: see [`crate::Engine::is_forked`].
    #[error("this process was forked from the engine's: open an engine of its own")]
    Forked,
    /// Several engines share the port, and management datagrams go to another one of them.
    #[error("another engine of this port speaks RDMA-CM: the one with its lowest queue")]
    OtherEngine,
}

/// The route between this host and a peer, for messages of the connection manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CmRoute {
    /// Which of this host's ports, and which of its addresses there. It is kept with each connection, and so is short.
    pub(crate) place: (u16, u16),
    pub(crate) ours: IpAddr,
    pub(crate) theirs: IpAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) mac: MacAddr,
    /// This host's key of the partition.
    pub(crate) pkey: Pkey,
    /// DSCP and ECN, and the 802.1p priority: those of the connection that is asked for, or in which the peer's messages
    /// come.
    pub(crate) traffic_class: u8,
    pub(crate) priority: u8,
    /// What a REQ that comes this way may ask for.
    pub(crate) mtu: Mtu,
}

impl PartialEq for CmRoute {
    /// The station may change while the host stays the same: a gateway fails over, a machine migrates. Where a station is a socket, it
    /// is one process of several at the host's address.
    fn eq(&self, other: &Self) -> bool {
        let ends = |way: &Self| (way.port(), way.ours, way.theirs, way.vlan, station::port_of(way.mac));
        ends(self) == ends(other)
    }
}

impl CmRoute {
    /// Which of this host's ports.
    pub(crate) fn port(&self) -> usize {
        self.place.0.into()
    }
}

impl cm::Route for CmRoute {
    fn local_ip(&self) -> IpAddr {
        self.ours
    }

    fn remote_ip(&self) -> IpAddr {
        self.theirs
    }

    fn pkey(&self) -> Pkey {
        self.pkey
    }

    fn mtu(&self) -> Mtu {
        self.mtu
    }
}

/// What a connection is beyond IBTA. Two peers of this stack say it in a tag in front of their private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Beyond {
    pub(crate) dialect: Dialect,
    /// Packets carry an ICRC.
    pub(crate) icrc: bool,
}

/// Whose tag it is. Answer and question differ, because some applications send back what they are sent.
#[derive(Clone, Copy)]
pub(crate) enum TagSender {
    Asks = 0,
    Agrees = 0x80,
}

/// How a tag begins; a byte of flags follows.
const MARK: [u8; 7] = *b"rocinan";
const OWN_DIALECT: u8 = 1;
const NO_ICRC: u8 = 2;

impl Beyond {
    /// Nothing: what everybody else is.
    pub(crate) const NOTHING: Self = Self { dialect: Dialect::Verbs, icrc: true };

    /// What these parameters want.
    pub(crate) const fn wanted(params: &QpParams) -> Self {
        Self { dialect: params.dialect, icrc: params.icrc }
    }

    /// What two peers do, who want this much.
    pub(crate) const fn with(self, peer: Self) -> Self {
        Self { dialect: self.dialect.with(peer.dialect), icrc: self.icrc || peer.icrc }
    }

    const fn flags(self) -> u8 {
        let dialect = if matches!(self.dialect, Dialect::Rocinante) { OWN_DIALECT } else { 0 };
        dialect | if self.icrc { 0 } else { NO_ICRC }
    }

    const fn of_flags(flags: u8) -> Option<Self> {
        if flags == 0 || flags & !(OWN_DIALECT | NO_ICRC) != 0 {
            return None;
        }
        let dialect = if flags & OWN_DIALECT == 0 { Dialect::Verbs } else { Dialect::Rocinante };
        Some(Self { dialect, icrc: flags & NO_ICRC == 0 })
    }

    /// Private data with the tag in front of it, where there is something to say.
    pub(crate) fn tagged(self, tag: TagSender, private_data: &[u8]) -> Vec<u8> {
        match self.flags() {
            0 => private_data.to_vec(),
            flags => [&MARK[..], &[tag as u8 | flags], private_data].concat(),
        }
    }

    /// What the peer says, and what its application does.
    pub(crate) fn untagged(tag: TagSender, private_data: PrivateData) -> (Self, PrivateData) {
        let flags = private_data.strip_prefix(&MARK).and_then(|rest| rest.first()).map(|last| last ^ tag as u8);
        match flags.and_then(Self::of_flags) {
            Some(beyond) => (beyond, private_data.after(MARK.len() + 1)),
            None => (Self::NOTHING, private_data),
        }
    }
}

/// What the engine keeps for a connection of the connection manager. There are many that are open and few that are being made, so
/// what only those need is elsewhere.
pub(crate) struct CmConnection {
    /// Where its events go.
    pub(crate) channel: CmChannel,
    pub(crate) half: Half,
}

/// This side of a connection.
pub(crate) enum Half {
    /// The peer has asked, and the application has not given a queue pair.
    Asked(Box<PeerRequest>),
    /// It waits for the peer's terms.
    Asking(Box<OwnRequest>),
    /// Its queue pair is connected, and the peer was not answered.
    Prepared(Box<Grant>),
    Connected(QueuePair),
    /// It has no queue pair any more, or never had one that could be connected.
    Gone,
}

/// What a peer has asked for.
pub(crate) struct PeerRequest {
    pub(crate) terms: Terms,
    pub(crate) beyond: Beyond,
}

/// What this side has asked for.
pub(crate) struct OwnRequest {
    pub(crate) params: QpParams,
    pub(crate) qp: UnconnectedQp,
}

/// What a peer is to be granted.
pub(crate) struct Grant {
    pub(crate) qp: QueuePair,
    pub(crate) offer: Offer,
    /// What both do.
    pub(crate) beyond: Beyond,
}

impl Half {
    /// The queue pair, once it is connected.
    pub(crate) fn qp(&self) -> Option<QueuePair> {
        match self {
            Self::Prepared(grant) => Some(grant.qp),
            Self::Connected(qp) => Some(*qp),
            Self::Asked(_) | Self::Asking(_) | Self::Gone => None,
        }
    }
}
