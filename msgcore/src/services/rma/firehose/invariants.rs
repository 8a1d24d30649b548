//! What must hold between two calls, counted anew from everything there is. Writers assert it in passing; this is the
//! reader's side.

use std::collections::BTreeMap;

use super::FirehoseEngine;
use super::bucket::Bucket;
use super::operations::{Phase, Place};
use super::state::BucketState;
use crate::Rank;

type Uses = BTreeMap<(Place, Bucket), u32>;

impl FirehoseEngine {
    /// Counts everything anew, and says what contradicts it.
    pub fn check_invariants(&self) -> Result<(), String> {
        let uses = self.uses();
        let granted = self.check_granted()?;
        self.check_pins(&uses, &granted)?;
        (0..self.peers.len()).try_for_each(|rank| self.check_firehoses(rank, &uses))?;
        self.check_lines()
    }

    /// How often operations use each bucket; those in line hold nothing.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (_, operation) in self.operations.iter().filter(|(_, operation)| operation.phase != Phase::InLine) {
            let place = operation.place;
            operation.region.buckets().for_each(|bucket| *uses.entry((place, bucket)).or_default() += 1);
        }
        uses
    }

    /// How many peers hold a firehose to each bucket of this rank.
    fn check_granted(&self) -> Result<BTreeMap<Bucket, u32>, String> {
        let mut granted = BTreeMap::new();
        for (rank, peer) in self.peers.iter().enumerate() {
            let (held, most) = (peer.granted.len() as u64, self.limits.firehoses());
            if held > most || (peer.is_gone && held > 0) {
                return Err(format!("rank {rank} holds {held} firehoses, and its share is {most}"));
            }
            peer.granted.iter().for_each(|&bucket| *granted.entry(Bucket(bucket)).or_default() += 1);
        }
        Ok(granted)
    }

    fn check_pins(&self, uses: &Uses, granted: &BTreeMap<Bucket, u32>) -> Result<(), String> {
        let counted = self.pins.check()?;
        for &(bucket, local, remote) in &counted {
            let (used, held) = (uses.get(&(Place::Here, bucket)), granted.get(&bucket));
            let expected = (used.copied().unwrap_or(0), held.copied().unwrap_or(0));
            if (local, remote) != expected {
                return Err(format!("{bucket:?} counts {local} uses and {remote} firehoses, and has {expected:?}"));
            }
        }
        let wanted = uses.keys().filter(|(place, _)| *place == Place::Here).map(|(_, bucket)| bucket);
        if let Some(bucket) = wanted.chain(granted.keys()).find(|&&bucket| self.pins.key(bucket).is_none()) {
            return Err(format!("{bucket:?} is in use or granted, and in state {:?}", BucketState::A));
        }
        let (most, share) = (self.limits.victims() as u64, self.limits.firehoses());
        let bound = share * (self.peers.len() as u64 - 1) + most;
        let counts = self.pins.counts();
        if counts.pinned as u64 > bound || counts.local_only as u64 > most {
            return Err(format!("{counts:?} is more than MAXVICTIM, {most}, or with M more than {bound}"));
        }
        Ok(())
    }

    fn check_firehoses(&self, rank: Rank, uses: &Uses) -> Result<(), String> {
        let peer = &self.peers[rank];
        let counted = peer.firehoses.check().map_err(|what| format!("firehoses to rank {rank}: {what}"))?;
        for (bucket, count) in &counted {
            let used = uses.get(&(Place::Peer(rank), *bucket)).copied().unwrap_or(0);
            if used != *count {
                return Err(format!("rank {rank}: {bucket:?} counts {count} uses, and has {used}"));
            }
        }
        let used = uses.keys().filter(|(place, _)| *place == Place::Peer(rank)).count();
        if !peer.is_gone && used != counted.iter().filter(|(_, count)| *count > 0).count() {
            return Err(format!("rank {rank}: {used} buckets are in use, and not all of them are in the table"));
        }
        Ok(())
    }

    /// An operation that could go on does not stand in line.
    fn check_lines(&self) -> Result<(), String> {
        for (rank, peer) in self.peers.iter().enumerate() {
            let first = peer.line.front().and_then(|&id| self.operations.get(id));
            if first.is_some_and(|first| peer.firehoses.affords(peer.firehoses.survey(first.region))) {
                return Err(format!("the first in line for rank {rank} could go on"));
            }
        }
        let first = self.line.front().and_then(|&id| self.operations.get(id));
        if first.is_some_and(|first| self.pins.has_room(first.region)) {
            return Err("the first local pin in line could go on".into());
        }
        Ok(())
    }
}
