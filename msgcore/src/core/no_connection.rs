//! Why there is no connection to a peer.

use std::net::IpAddr;

use roci_driver::neighbour::Unreachable;
use roci_driver::{CmCallError, ConnectError, ParseAddressError, RejReason};
use thiserror::Error;

use super::peer_id::PeerId;
use crate::units::show_size;

/// Why there is no connection to a peer. Who refuses says it with the same words, which are all that the other end gets.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoConnection {
    /// The peer did not answer, or did not go on.
    #[error("it did not answer in time (ROCI_CONNECT_TIMEOUT_S)")]
    Overdue,
    /// RDMA-CM's requests were not answered.
    #[error("it does not answer")]
    Unanswered,
    /// The peer refused, in its own words; or this end did, because the peer has failed before.
    #[error("{0}")]
    Refused(String),
    /// The peer's RDMA-CM refused.
    #[error("it refused: {0}")]
    Rejected(RejReason),
    /// The launcher did not carry a message of the wire-up.
    #[error("{0}")]
    NoMail(String),
    /// There is no launcher that could.
    #[error("there is no launcher that carries mail")]
    NoLauncher,
    /// What the peer sent is no address.
    #[error(transparent)]
    Address(#[from] ParseAddressError),
    /// A queue pair cannot be made, or not with that peer.
    #[error(transparent)]
    QueuePair(#[from] ConnectError),
    /// RDMA-CM cannot do it.
    #[error(transparent)]
    RdmaCm(#[from] CmCallError),
    /// Nothing leads to the peer's address.
    #[error("no way to {ip}: {why}")]
    NoWay {
        /// The peer's address.
        ip: IpAddr,
        /// What stands in the way.
        why: Unreachable,
    },
    /// The ends have different numbers of receive queues.
    #[error("{here} receive queues here, {there} at the peer")]
    ReceiveQueues {
        /// At this end.
        here: usize,
        /// At the other.
        there: usize,
    },
    /// The peer's host was not published.
    #[error("its host is not known")]
    NoHost,
    /// Who asks is at an address where no rank is, or behind another rank's port.
    #[error("it is no rank of this job")]
    NoRank,
    /// Who asks does not say where it is.
    #[error("it does not say which endpoint it is")]
    Anonymous,
    /// Who asks means an endpoint that was here before.
    #[error("the endpoint that it means is gone, and another has its address")]
    Replaced,
    /// More peers have come by themselves than are let in.
    #[error("{0} peers that were not inserted are here already (ROCI_PEERS)")]
    TooManyUnknown(usize),
    /// More peers are connected than memory was planned for.
    #[error("{0} peers are connected already (ROCI_PEERS)")]
    TooManyConnected(usize),
    /// Who asks names a lane that it does not have.
    #[error("it asks for a lane that does not exist")]
    NoLane,
    /// Two connections between two ranks.
    #[error("{from} is connected to {to} already")]
    Connected {
        /// Who asks.
        from: PeerId,
        /// Who was asked.
        to: PeerId,
    },
    /// The peer has failed meanwhile, or is connected.
    #[error("it is connected already, or gone")]
    Gone,
    /// Nothing was asked for that could be answered.
    #[error("there is no request to answer")]
    NoRequest,
    /// There is no memory for what a connection needs first.
    #[error("{0} has no memory for a first message: raise its ROCI_ARENA_SIZE")]
    NoMemory(PeerId),
    /// There is no memory for the receives of the connection.
    #[error("{peer} has {why}")]
    NoReceives {
        /// Where.
        peer: PeerId,
        /// How much there is.
        why: NoReceives,
    },
}

/// There is no memory for the least receives that a connection needs.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("no memory for {least} receives of {}, the least of {all}: raise its ROCI_ARENA_SIZE", show_size(size))]
pub struct NoReceives {
    pub(super) least: usize,
    pub(super) size: usize,
    pub(super) all: usize,
}
