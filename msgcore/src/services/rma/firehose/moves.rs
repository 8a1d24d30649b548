//! Moves under way: requests to peers that were not answered yet.

use super::bucket::{Bucket, Region};
use super::operations::OperationId;
use crate::core::peer_id::PeerId;
use crate::core::slab::Key;

/// A move, as the engine names it.
pub(super) type MoveId = Key;

/// A request that firehoses lead to new buckets, in place of old ones.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) peer: PeerId,
    pub(super) new: Vec<Region>,
    pub(super) old: Vec<Bucket>,
    /// Operations that wait for it; those that have failed meanwhile are not taken out.
    pub(super) waiters: Vec<OperationId>,
}

impl Move {
    pub(super) fn to(peer: PeerId) -> Self {
        Self { peer, new: Vec::new(), old: Vec::new(), waiters: Vec::new() }
    }
}
