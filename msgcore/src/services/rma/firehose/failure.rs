//! A peer is gone: its firehoses fall back to this rank, and operations that wait for it fail.

use super::FirehoseEngine;
use super::bucket::Bucket;
use super::environment::Environment;
use super::error::Failed;
use super::moves::MoveId;
use super::operations::{OperationId, Phase};
use crate::core::peer_id::PeerId;

impl FirehoseEngine {
    /// A peer has failed, left, or broken the protocol. Operations that wait for it end with an error; those that have its
    /// memory are released as ever. Does nothing for a peer that nothing is known of.
    pub fn peer_gone(&mut self, env: &mut impl Environment, peer: PeerId) {
        if !self.peers.contains_key(&peer) {
            return;
        }
        self.take_back_all(env, peer);
        self.peers.remove(&peer);
        let open: Vec<MoveId> = self.moves.iter().filter(|(_, open)| open.peer == peer).map(|(id, _)| id).collect();
        for id in open {
            self.moves.remove(id);
        }
        self.end_waiting(env, peer);
    }

    /// In order, so that memory is unpinned in the same order in each run.
    fn take_back_all(&mut self, env: &mut impl Environment, peer: PeerId) {
        let mut granted: Vec<u64> = self.peer_mut(peer).granted.iter().copied().collect();
        granted.sort_unstable();
        for bucket in granted {
            self.take_back(peer, Bucket(bucket));
        }
        self.pins.settle(env, &mut self.stats);
    }

    fn end_waiting(&mut self, env: &mut impl Environment, peer: PeerId) {
        let waiting =
            self.operations.iter().filter(|(_, operation)| operation.peer == peer && operation.phase != Phase::Granted);
        let waiting: Vec<OperationId> = waiting.map(|(id, _)| id).collect();
        for operation in waiting.into_iter().filter_map(|id| self.operations.remove(id)) {
            self.stats.failures += 1;
            env.ended(operation.context, Err(Failed::PeerGone(peer)));
        }
    }
}
