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

/// A shared receive queue of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedReceiveQueue(pub(crate) usize);
