//! The names of what an engine holds: handles, which nothing but the engine can use.

use roci_protocol::Qpn;

/// A connected queue pair of an engine. The handle of a destroyed one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QueuePair(pub(crate) Qpn);

impl QueuePair {
    /// The number that peers and captures know it by.
    pub const fn qpn(self) -> Qpn {
        self.0
    }
}

/// A completion queue of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionQueue(pub(crate) usize);

/// An event channel of an engine's connection manager (`rdma_create_event_channel(3)`). The default one is always there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CmChannel(pub(crate) u32);

/// A shared receive queue of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedReceiveQueue(pub(crate) usize);
