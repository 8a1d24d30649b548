//! This rank's own buckets: which of them are pinned, and for whom.
//!
//! What MAXVICTIM allows is kept at each step by unpinning the oldest victim first. Where room is made for a bucket that
//! is pinned at once, the environment gets both, and may do it more cheaply.

use roci_protocol::Rkey;
use thiserror::Error;

use super::bucket::{Bucket, Region};
use super::environment::Environment;
use super::pin_error::PinError;
use super::state::{BucketEvent, BucketState};
use super::stats::FirehoseStats;
use super::table::Table;

/// A pinned bucket.
#[derive(Clone, Copy, Debug)]
struct PinnedBucket {
    key: Rkey,
    /// Local operations that use it.
    local: u32,
    /// Ranks that hold a firehose to it.
    remote: u32,
}

/// A pinned bucket, the local operations that use it, and the ranks that hold a firehose to it.
pub(super) type Counted = (Bucket, u32, u32);

/// Victims that make room, and are still pinned: the next bucket may be pinned in their place.
type Spares = Vec<(Bucket, Rkey)>;

pub(super) struct Pins {
    table: Table<PinnedBucket>,
    spares: Spares,
    /// MAXVICTIM in buckets.
    most_local: usize,
    /// Buckets in states B, C and D.
    local_only: usize,
    /// Of all buckets, the firehoses to them.
    held: u64,
}

/// What there is of each, for invariants and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PinCounts {
    /// Pinned buckets.
    pub pinned: usize,
    /// Those in states B, C and D, which MAXVICTIM bounds.
    pub local_only: usize,
    /// Those in state B, which may be unpinned.
    pub victims: usize,
    /// Firehoses that peers hold to all of them.
    pub held: u64,
}

/// What contradicts itself among pinned buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PinViolation {
    /// A bucket that may be unpinned is no victim, or one that may not is.
    #[error("{bucket:?} is in state {state:?}, and a victim: {is_victim}")]
    Victim {
        /// Which bucket.
        bucket: Bucket,
        /// What it is.
        state: BucketState,
        /// Whether it is among the victims.
        is_victim: bool,
    },
    /// The counts are not what there is, or a victim that made room is still pinned.
    #[error("{local_only} local, {held} held, {queued} queued, and it says {counts:?}")]
    Counts {
        /// Buckets in states B, C and D.
        local_only: usize,
        /// Firehoses that lead to all buckets.
        held: u64,
        /// Buckets in the queue of victims.
        queued: usize,
        /// What is counted.
        counts: PinCounts,
    },
}

impl Pins {
    pub(super) fn new(most_local: usize) -> Self {
        Self { table: Table::default(), spares: Vec::new(), most_local, local_only: 0, held: 0 }
    }

    pub(super) fn key(&self, bucket: Bucket) -> Option<Rkey> {
        self.table.find(bucket).map(|slot| self.table.get(slot).key)
    }

    pub(super) fn state(&self, bucket: Bucket) -> BucketState {
        self.table.find(bucket).map_or(BucketState::A, |slot| self.state_at(slot))
    }

    pub(super) fn counts(&self) -> PinCounts {
        let (pinned, victims) = (self.table.len(), self.table.victims());
        PinCounts { pinned, local_only: self.local_only, victims, held: self.held }
    }

    /// Whether all of a region can be pinned for a local operation now: what others use, and this one, is no more than
    /// MAXVICTIM. Peers neither give such room nor take it.
    pub(super) fn has_room(&self, region: Region) -> bool {
        let in_use = self.local_only - self.table.victims();
        in_use + region.buckets().filter(|&bucket| !self.is_used_locally(bucket)).count() <= self.most_local
    }

    /// Pins a region for a local operation, for which there is room: all of it, or nothing.
    pub(super) fn pin_local(
        &mut self,
        env: &mut impl Environment,
        stats: &mut FirehoseStats,
        region: Region,
    ) -> Result<(), PinError> {
        // First what is pinned for this rank already: a victim among it must not make room for the rest.
        for bucket in region.buckets() {
            if let Some(slot) = self.table.find(bucket).filter(|&slot| self.state_at(slot).is_local_only()) {
                stats.victim_reuses += u64::from(self.table.is_victim(slot));
                self.apply(slot, BucketEvent::LocalPin);
            }
        }
        let rest = region.buckets().try_for_each(|bucket| self.use_locally(env, stats, bucket));
        if rest.is_err() {
            stats.rollbacks += 1;
            // All that is in use locally counts this operation: what was before was the first to count it.
            for bucket in region.buckets() {
                if self.is_used_locally(bucket) {
                    self.unpin_local(bucket);
                }
            }
        }
        self.settle(env, stats);
        rest
    }

    /// A local operation has ended. The bucket stays pinned.
    pub(super) fn unpin_local(&mut self, bucket: Bucket) {
        let slot = self.slot(bucket);
        let pin = self.table.get(slot);
        assert!(pin.local > 0, "{bucket:?} is in use by no local operation");
        self.apply(slot, BucketEvent::LocalUnpin { last: pin.local == 1 });
    }

    /// A rank gets a firehose to a bucket.
    pub(super) fn pin_remote(
        &mut self,
        env: &mut impl Environment,
        stats: &mut FirehoseStats,
        bucket: Bucket,
    ) -> Result<Rkey, PinError> {
        let slot = self.pinned_slot(env, stats, bucket)?;
        self.apply(slot, BucketEvent::RemotePin);
        Ok(self.table.get(slot).key)
    }

    /// A rank has no firehose to a bucket any more. It stays pinned, unless there are too many such: then the oldest is
    /// spared for the next pin, until [`Self::settle`].
    pub(super) fn unpin_remote(&mut self, bucket: Bucket) {
        let slot = self.slot(bucket);
        let pin = self.table.get(slot);
        assert!(pin.remote > 0, "no firehose leads to {bucket:?}");
        self.apply(slot, BucketEvent::RemoteUnpin { last: pin.remote == 1 });
        while self.local_only > self.most_local {
            let evicted = self.spare_oldest();
            assert!(evicted, "more than MAXVICTIM is in use by local operations");
        }
    }

    /// Unpins what was spared and not pinned over, and sees that all is well.
    pub(super) fn settle(&mut self, env: &mut impl Environment, stats: &mut FirehoseStats) {
        while let Some((victim, key)) = self.spares.pop() {
            stats.unpins += 1;
            env.unpin(victim, key);
        }
        assert!(self.local_only <= self.most_local, "{} buckets are more than MAXVICTIM", self.local_only);
    }

    /// Pins a bucket for a local operation, if it is not among those that are pinned for this rank.
    fn use_locally(
        &mut self,
        env: &mut impl Environment,
        stats: &mut FirehoseStats,
        bucket: Bucket,
    ) -> Result<(), PinError> {
        if self.is_used_locally(bucket) {
            return Ok(());
        }
        if self.local_only == self.most_local {
            let evicted = self.spare_oldest();
            assert!(evicted, "a local operation began without room for it");
        }
        let slot = self.pinned_slot(env, stats, bucket)?;
        self.apply(slot, BucketEvent::LocalPin);
        Ok(())
    }

    /// The bucket's slot, pinned if it was not. A bucket that was just pinned is a victim for the moment, so the caller
    /// gives it to somebody at once.
    fn pinned_slot(
        &mut self,
        env: &mut impl Environment,
        stats: &mut FirehoseStats,
        bucket: Bucket,
    ) -> Result<u32, PinError> {
        if let Some(slot) = self.table.find(bucket) {
            stats.victim_reuses += u64::from(self.table.is_victim(slot));
            return Ok(slot);
        }
        let key = match self.spares.iter().position(|&(spare, _)| spare == bucket) {
            // It was to make room for others of the same request, and is wanted again itself.
            Some(at) => {
                stats.victim_reuses += 1;
                self.spares.swap_remove(at).1
            }
            None => self.pin(env, stats, bucket)?,
        };
        Ok(self.table.insert(bucket, PinnedBucket { key, local: 0, remote: 0 }))
    }

    /// Pins it, in a spare's place if there is one. Where the environment can pin no more, victims give way until it can.
    fn pin(&mut self, env: &mut impl Environment, stats: &mut FirehoseStats, bucket: Bucket) -> Result<Rkey, PinError> {
        loop {
            let outcome = match self.spares.pop() {
                Some((victim, key)) => {
                    stats.repins += 1;
                    env.repin(victim, key, bucket)
                }
                None => env.pin(bucket),
            };
            match outcome {
                Ok(key) => {
                    stats.pins += 1;
                    return Ok(key);
                }
                Err(_) if !self.spares.is_empty() || self.spare_oldest() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The oldest victim gives way; false if there is none.
    fn spare_oldest(&mut self) -> bool {
        let Some(slot) = self.table.oldest() else { return false };
        BucketState::B.on(BucketEvent::Evict).unwrap_or_else(|illegal| panic!("{illegal}"));
        self.spares.push((self.table.bucket(slot), self.table.get(slot).key));
        self.table.remove(slot);
        self.local_only -= 1;
        true
    }

    /// Moves a bucket to the state that an event leads to, with its counts.
    fn apply(&mut self, slot: u32, event: BucketEvent) {
        let from = self.state_at(slot);
        let to = from.on(event).unwrap_or_else(|illegal| panic!("{illegal}"));
        let pin = self.table.get_mut(slot);
        match event {
            BucketEvent::LocalPin => pin.local += 1,
            BucketEvent::LocalUnpin { .. } => pin.local -= 1,
            BucketEvent::RemotePin => pin.remote += 1,
            BucketEvent::RemoteUnpin { .. } => pin.remote -= 1,
            BucketEvent::Evict => unreachable!("a victim that is evicted leaves the table"),
        }
        assert_eq!(BucketState::of(pin.local, pin.remote), to, "the counts contradict the table");
        self.account(slot, from, to, event);
    }

    fn account(&mut self, slot: u32, from: BucketState, to: BucketState, event: BucketEvent) {
        match event {
            BucketEvent::RemotePin => self.held += 1,
            BucketEvent::RemoteUnpin { .. } => self.held -= 1,
            _ => {}
        }
        // A bucket that was just pinned is in state B by its counts, and was counted nowhere yet.
        let is_new = from == BucketState::B && !self.table.is_victim(slot);
        if from == BucketState::B && !is_new {
            self.table.revive(slot);
        }
        self.local_only -= usize::from(from.is_local_only() && !is_new);
        self.local_only += usize::from(to.is_local_only());
        if to == BucketState::B {
            self.table.retire(slot);
        }
    }

    /// Of each pinned bucket the two counts, if all is well with it.
    pub(super) fn check(&self) -> Result<Vec<Counted>, PinViolation> {
        let slots = self.table.sorted();
        let (mut local_only, mut held) = (0, 0);
        for &slot in &slots {
            let (state, is_victim) = (self.state_at(slot), self.table.is_victim(slot));
            if (state == BucketState::B) != is_victim {
                let bucket = self.table.bucket(slot);
                return Err(PinViolation::Victim { bucket, state, is_victim });
            }
            local_only += usize::from(state.is_local_only());
            held += u64::from(self.table.get(slot).remote);
        }
        let queued = self.table.queue().count();
        if (local_only, held, queued) != (self.local_only, self.held, self.table.victims()) || !self.spares.is_empty() {
            return Err(PinViolation::Counts { local_only, held, queued, counts: self.counts() });
        }
        let counted = |slot: u32| {
            let PinnedBucket { local, remote, .. } = *self.table.get(slot);
            (self.table.bucket(slot), local, remote)
        };
        Ok(slots.into_iter().map(counted).collect())
    }

    fn is_used_locally(&self, bucket: Bucket) -> bool {
        matches!(self.state(bucket), BucketState::C | BucketState::D)
    }

    fn slot(&self, bucket: Bucket) -> u32 {
        self.table.find(bucket).unwrap_or_else(|| panic!("{bucket:?} is not pinned"))
    }

    fn state_at(&self, slot: u32) -> BucketState {
        let pin = self.table.get(slot);
        BucketState::of(pin.local, pin.remote)
    }
}
