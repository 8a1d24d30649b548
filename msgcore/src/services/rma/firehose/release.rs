//! A transfer is complete: its memory may be moved or unpinned, if somebody needs the room.

use super::FirehoseEngine;
use super::environment::Environment;
use super::operations::{FirehoseOperation, Hold};

impl FirehoseEngine {
    /// Gives back what an operation holds. For RDMA that is when its completion was polled, not when it was posted: the
    /// peer may unpin the memory from now on.
    ///
    /// # Panics
    /// Another engine has granted it.
    #[inline]
    pub fn release(&mut self, env: &mut impl Environment, hold: Hold) {
        let operation = self.operations.remove(hold.0).expect("a hold is released where it was granted");
        let FirehoseOperation { peer, region, .. } = operation;
        // Of a peer that is gone all was forgotten.
        if let Some(there) = self.peers.get_mut(&peer) {
            region.buckets().for_each(|bucket| there.firehoses.release(bucket));
            self.advance(env, peer);
        }
    }
}
