//! A transfer is complete: its memory may be moved or unpinned, if somebody needs the room.

use super::FirehoseEngine;
use super::environment::Environment;
use super::error::UnknownHold;
use super::operations::{FirehoseOperation, Hold};

impl FirehoseEngine {
    /// Gives back what an operation holds. For RDMA that is when its completion was polled, not when it was posted: the
    /// peer may unpin the memory from now on. A handle that another rank's engine granted comes back with the error.
    #[inline]
    pub fn release(&mut self, env: &mut impl Environment, hold: Hold) -> Result<(), UnknownHold> {
        if hold.rank != self.me || self.operations.get(hold.id).is_none() {
            return Err(UnknownHold(hold));
        }
        let FirehoseOperation { peer, region, .. } = self.operations.remove(hold.id).expect("it was found just now");
        // Of a peer that is gone all was forgotten.
        if !self.peers[peer].is_gone {
            region.buckets().for_each(|bucket| self.peers[peer].firehoses.release(bucket));
            self.advance(env, peer);
        }
        Ok(())
    }
}
