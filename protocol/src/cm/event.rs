//! Events for the application.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use super::{ConnId, SidrId, Terms};
use crate::Qpn;
use crate::wire::cm::{RejReason, ServiceId};

/// The most private data that a message of these carries: REP's.
const CAPACITY: usize = 196;

/// The other side's private data. Messages do not say how much of it counts: unused bytes are zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; CAPACITY],
}

impl PrivateData {
    /// What follows the first `len` bytes.
    #[must_use]
    pub fn after(&self, len: usize) -> Self {
        Self::copy_of(self.get(len..).unwrap_or_default())
    }

    /// A copy of at most 196 bytes.
    pub(super) fn copy_of(data: &[u8]) -> Self {
        let len = data.len().min(CAPACITY);
        let mut bytes = [0; CAPACITY];
        bytes[..len].copy_from_slice(&data[..len]);
        Self { len: len as u8, bytes }
    }
}

/// Without the zeros at the end.
impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        write!(f, "{:?}", self.get(..used).unwrap_or_default())
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Why a connection ended that was open, or about to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The peer asked for it.
    ByPeer,
    /// We asked for it, and the peer confirmed.
    Confirmed,
    /// We asked for it, and the peer never answered.
    Unanswered,
    /// The peer forgot the connection: its queue pair asked for another one.
    Stale,
    /// The peer refused what it had agreed to.
    Rejected(RejReason),
}

/// Why a datagram service's queue pair is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SidrFailure {
    /// The peer's status: 1 unsupported, 2 rejected, 3 no queue pair (IBTA table 120).
    Refused(u8),
    /// No answer came.
    Unreachable,
}

/// An event for the application; events come in the order in which they happened.
///
/// A connection's life is `Request` or `connect`, perhaps `Reply`, perhaps `Established`, then at most one of
/// `Rejected`, `Unreachable` and `Disconnected` (none if the application itself refused), and last `TimewaitExit`.
#[allow(clippy::large_enum_variant)] // a box would be an allocation for each message of a peer
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// A peer asks for a connection: accept or reject it.
    Request {
        /// The new connection.
        id: ConnId,
        /// The service that it is for.
        service: ServiceId,
        /// What our queue pair will be connected to.
        remote: Terms,
        /// The peer's address and port, if the service is a port.
        source: Option<(IpAddr, u16)>,
        /// Our address.
        destination: IpAddr,
        /// The peer's private data, the addressing header taken off.
        private_data: PrivateData,
    },
    /// The peer grants a connection: confirm it once the queue pair can send, or refuse.
    Reply {
        /// The connection.
        id: ConnId,
        /// What our queue pair will be connected to.
        remote: Terms,
        /// The peer's private data.
        private_data: PrivateData,
    },
    /// The connection is open.
    Established {
        /// The connection.
        id: ConnId,
    },
    /// The peer refuses the connection, or gave up waiting for it.
    Rejected {
        /// The connection.
        id: ConnId,
        /// Why.
        reason: RejReason,
        /// The peer's private data; it counts if the reason is [`RejReason::CONSUMER_DEFINED`].
        private_data: PrivateData,
    },
    /// No answer came to our REQ or REP.
    Unreachable {
        /// The connection.
        id: ConnId,
    },
    /// The connection is over: its queue pair should stop.
    Disconnected {
        /// The connection.
        id: ConnId,
        /// Why.
        ending: Ending,
    },
    /// The connection's identifier is released; its queue pair's number may be used again.
    TimewaitExit {
        /// The connection that was.
        id: ConnId,
    },
    /// A datagram service's queue pair is known.
    SidrResolved {
        /// The question.
        id: SidrId,
        /// The queue pair.
        qpn: Qpn,
        /// The key that lets datagrams in.
        qkey: u32,
    },
    /// A datagram service's queue pair is not known.
    SidrFailed {
        /// The question.
        id: SidrId,
        /// Why.
        failure: SidrFailure,
    },
}
