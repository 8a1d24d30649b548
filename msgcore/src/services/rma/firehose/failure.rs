//! A peer is gone: its firehoses fall back to this rank, and operations that wait for it fail.

use super::FirehoseEngine;
use super::bucket::Bucket;
use super::environment::Environment;
use super::error::Failed;
use super::moves::MoveId;
use super::operations::{OperationId, Phase};
use crate::Rank;

impl FirehoseEngine {
    /// A peer has failed, left, or broken the protocol. Operations that wait for it end with an error; those that have its
    /// memory are released as ever. Does nothing for a rank that is gone already, or none.
    pub fn peer_gone(&mut self, env: &mut impl Environment, peer: Rank) {
        if peer == self.me || self.peers.get(peer).is_none_or(|peer| peer.is_gone) {
            return;
        }
        self.peers[peer].is_gone = true;
        self.take_back_all(env, peer);
        self.peers[peer].firehoses.clear();
        self.peers[peer].line.clear();
        let open: Vec<MoveId> = self.moves.iter().filter(|(_, open)| open.peer == peer).map(|(id, _)| id).collect();
        for id in open {
            self.moves.remove(id);
        }
        self.end_waiting(env, peer);
    }

    /// In order, so that memory is unpinned in the same order in each run.
    fn take_back_all(&mut self, env: &mut impl Environment, peer: Rank) {
        let mut granted: Vec<u64> = self.peers[peer].granted.iter().copied().collect();
        granted.sort_unstable();
        for bucket in granted {
            self.take_back(peer, Bucket(bucket));
        }
        self.pins.settle(env, &mut self.stats);
    }

    fn end_waiting(&mut self, env: &mut impl Environment, peer: Rank) {
        let waiting =
            self.operations.iter().filter(|(_, operation)| operation.peer == peer && operation.phase != Phase::Granted);
        let waiting: Vec<OperationId> = waiting.map(|(id, _)| id).collect();
        for operation in waiting.into_iter().filter_map(|id| self.operations.remove(id)) {
            self.stats.failures += 1;
            env.ended(operation.context, Err(Failed::PeerGone(peer)));
        }
    }
}
