//! One end of all conversations: progress, connections, the end of a peer.

pub(crate) mod failure;
pub(crate) mod invariants;
pub(crate) mod progress;
pub(crate) mod wireup;
