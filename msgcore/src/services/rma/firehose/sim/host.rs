//! A rank's memory, and what its engine wants done: kept until the world does it.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use roci_protocol::Rkey;

use super::costs;
use crate::Rank;
use crate::core::peer_id::PeerId;
use crate::services::rma::firehose::{Bucket, Environment, Failed, Hold, PinError};

pub(in crate::services::rma::firehose) struct Host {
    /// What is pinned, and the key to it; none is ever used again.
    pub(in crate::services::rma::firehose) pinned: BTreeMap<Bucket, Rkey>,
    pub(in crate::services::rma::firehose) outbox: Vec<(Rank, Vec<u8>)>,
    pub(in crate::services::rma::firehose) ended: Vec<(u64, Result<Hold, Failed>)>,
    /// Processor time since the world looked last.
    pub(in crate::services::rma::firehose) cost: u64,
    pub(in crate::services::rma::firehose) refused: u64,
    /// Buckets that it offers, the first ones.
    offered: u64,
    refused_percent: u8,
    keys: u32,
    dice: StdRng,
}

impl Host {
    pub(in crate::services::rma::firehose) fn new(offered: u64, refused_percent: u8, dice: StdRng) -> Self {
        let (outbox, ended) = (Vec::new(), Vec::new());
        Self { pinned: BTreeMap::new(), outbox, ended, cost: 0, refused: 0, offered, refused_percent, keys: 0, dice }
    }

    /// Memory that pins nothing any more.
    #[cfg(test)]
    pub(in crate::services::rma::firehose) fn refuse_all(&mut self) {
        self.refused_percent = 100;
    }
}

impl Environment for Host {
    fn send(&mut self, peer: PeerId, message: &[u8]) {
        self.cost += costs::MESSAGE;
        self.outbox.push((peer.slot(), message.to_vec()));
    }

    fn pin(&mut self, bucket: Bucket) -> Result<Rkey, PinError> {
        if bucket.0 >= self.offered {
            return Err(PinError::NotOffered);
        }
        self.cost += costs::PIN;
        if self.refused_percent > 0 && self.dice.random_range(0..100) < self.refused_percent {
            self.refused += 1;
            return Err(if self.refused.is_multiple_of(2) { PinError::NoKey } else { PinError::NoMemory });
        }
        self.keys += 1;
        let earlier = self.pinned.insert(bucket, Rkey(self.keys));
        assert!(earlier.is_none(), "{bucket:?} is pinned already");
        Ok(Rkey(self.keys))
    }

    fn unpin(&mut self, bucket: Bucket, key: Rkey) {
        self.cost += costs::UNPIN;
        assert_eq!(self.pinned.remove(&bucket), Some(key), "{bucket:?} is pinned by another key, or not");
    }

    fn ended(&mut self, context: u64, outcome: Result<Hold, Failed>) {
        self.ended.push((context, outcome));
    }
}
