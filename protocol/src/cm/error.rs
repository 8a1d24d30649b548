//! Why a call was refused.

use thiserror::Error;

use super::CmState;

/// Why a call about a connection was refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CmError {
    /// The identifier names no connection, or none any more.
    #[error("no such connection")]
    UnknownConnection,
    /// The connection's state does not take the call.
    #[error("the connection is in state {0:?}")]
    WrongState(CmState),
    /// The message has less room for private data.
    #[error("private data of {len} bytes exceeds the {limit} that the message holds")]
    PrivateData {
        /// What was asked for.
        len: usize,
        /// What there is room for.
        limit: usize,
    },
    /// The two addresses are of different IP versions.
    #[error("the route's addresses are of different IP versions")]
    IpVersion,
    /// IBTA has no code for the MTU.
    #[error("a REQ cannot name an MTU of 8192 bytes")]
    Mtu,
    /// [`CmConfig::max_connections`](super::CmConfig::max_connections) is reached.
    #[error("too many connections")]
    TooManyConnections,
    /// [`CmConfig::max_queued_events`](super::CmConfig::max_queued_events) is reached: take events first.
    #[error("too many events wait: take them first")]
    EventsFull,
}

/// Why a service cannot be listened on.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Somebody listens there.
    #[error("the service is listened on already")]
    InUse,
    /// [`CmConfig::max_listeners`](super::CmConfig::max_listeners) is reached.
    #[error("too many listeners")]
    TooManyListeners,
}
