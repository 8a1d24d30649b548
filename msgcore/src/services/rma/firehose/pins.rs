//! This rank's own buckets: which of them are pinned, and for how many peers.
//!
//! What MAXVICTIM allows is kept at each step by unpinning the oldest victim first. Where room is made for a bucket that
//! is pinned at once, the environment gets both, and may do it more cheaply.

use roci_protocol::Rkey;
use thiserror::Error;

use super::bucket::Bucket;
use super::environment::Environment;
use super::pin_error::PinError;
use super::state::{BucketEvent, BucketState};
use super::stats::FirehoseStats;
use super::table::Table;

/// A pinned bucket.
#[derive(Clone, Copy, Debug)]
struct PinnedBucket {
    key: Rkey,
    /// Ranks that hold a firehose to it.
    held: u32,
    /// It is not offered any more, and closed; it is forgotten when no rank holds it.
    is_withdrawn: bool,
}

/// Victims that make room, and are still pinned: the next bucket may be pinned in their place.
type Spares = Vec<(Bucket, Rkey)>;

pub(super) struct Pins {
    table: Table<PinnedBucket>,
    spares: Spares,
    /// MAXVICTIM in buckets.
    most_victims: usize,
    /// M in buckets: those that peers hold together.
    most_held: usize,
    /// Of all buckets, the firehoses to them.
    held: u64,
}

/// What there is of each, for invariants and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PinCounts {
    /// Pinned buckets.
    pub pinned: usize,
    /// Those in state B, which may be unpinned, and which MAXVICTIM bounds.
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
    #[error("{held} held, {queued} queued, and it says {counts:?}")]
    Counts {
        /// Firehoses that lead to all buckets.
        held: u64,
        /// Buckets in the queue of victims.
        queued: usize,
        /// What is counted.
        counts: PinCounts,
    },
}

impl Pins {
    pub(super) fn new(most_victims: usize, most_held: usize) -> Self {
        Self { table: Table::default(), spares: Vec::new(), most_victims, most_held, held: 0 }
    }

    pub(super) fn key(&self, bucket: Bucket) -> Option<Rkey> {
        let pin = self.table.get(self.table.find(bucket)?);
        (!pin.is_withdrawn).then_some(pin.key)
    }

    pub(super) fn state(&self, bucket: Bucket) -> BucketState {
        self.table.find(bucket).map_or(BucketState::A, |slot| self.state_at(slot))
    }

    pub(super) fn counts(&self) -> PinCounts {
        PinCounts { pinned: self.table.len(), victims: self.table.victims(), held: self.held }
    }

    /// A rank gets a firehose to a bucket.
    pub(super) fn pin_remote(
        &mut self,
        env: &mut impl Environment,
        stats: &mut FirehoseStats,
        bucket: Bucket,
    ) -> Result<Rkey, PinError> {
        let is_held = self.table.find(bucket).is_some_and(|slot| self.table.get(slot).held > 0);
        if !is_held && self.table.len() - self.table.victims() >= self.most_held {
            return Err(PinError::NoKey);
        }
        let slot = self.pinned_slot(env, stats, bucket)?;
        if self.table.is_victim(slot) {
            self.table.revive(slot);
        }
        self.apply(slot, BucketEvent::RemotePin);
        self.held += 1;
        Ok(self.table.get(slot).key)
    }

    /// A rank has no firehose to a bucket any more. It stays pinned, unless there are too many such: then the oldest is
    /// spared for the next pin, until [`Self::settle`].
    pub(super) fn unpin_remote(&mut self, bucket: Bucket) {
        let slot = self.table.find(bucket).unwrap_or_else(|| panic!("{bucket:?} is not pinned"));
        let held = self.table.get(slot).held;
        assert!(held > 0, "no firehose leads to {bucket:?}");
        self.apply(slot, BucketEvent::RemoteUnpin { last: held == 1 });
        self.held -= 1;
        if held == 1 && self.table.get(slot).is_withdrawn {
            self.table.remove(slot);
        } else if held == 1 {
            self.table.retire(slot);
        }
        while self.table.victims() > self.most_victims {
            self.spare_oldest();
        }
    }

    /// A bucket is not offered any more: it is closed at once, though peers hold it, and pinned for no other.
    pub(super) fn withdraw(&mut self, env: &mut impl Environment, stats: &mut FirehoseStats, bucket: Bucket) {
        let Some(slot) = self.table.find(bucket) else { return };
        let PinnedBucket { key, held, is_withdrawn } = *self.table.get(slot);
        if is_withdrawn {
            return;
        }
        stats.unpins += 1;
        env.unpin(bucket, key);
        if held == 0 {
            self.table.remove(slot);
        } else {
            self.table.get_mut(slot).is_withdrawn = true;
        }
    }

    /// Unpins what was spared and not pinned over, and sees that all is well.
    pub(super) fn settle(&mut self, env: &mut impl Environment, stats: &mut FirehoseStats) {
        while let Some((victim, key)) = self.spares.pop() {
            stats.unpins += 1;
            env.unpin(victim, key);
        }
        let victims = self.table.victims();
        assert!(victims <= self.most_victims, "{victims} victims are more than MAXVICTIM");
    }

    /// The bucket's slot, pinned if it was not. A bucket that was just pinned is held by no rank for the moment, so the caller
    /// gives it to somebody at once.
    fn pinned_slot(
        &mut self,
        env: &mut impl Environment,
        stats: &mut FirehoseStats,
        bucket: Bucket,
    ) -> Result<u32, PinError> {
        if let Some(slot) = self.table.find(bucket) {
            if self.table.get(slot).is_withdrawn {
                return Err(PinError::NotOffered);
            }
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
        Ok(self.table.insert(bucket, PinnedBucket { key, held: 0, is_withdrawn: false }))
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
                Err(error) if error == PinError::NotOffered => return Err(error),
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
        true
    }

    /// Moves a bucket to the state that an event leads to, with its count.
    fn apply(&mut self, slot: u32, event: BucketEvent) {
        let to = self.state_at(slot).on(event).unwrap_or_else(|illegal| panic!("{illegal}"));
        let pin = self.table.get_mut(slot);
        match event {
            BucketEvent::RemotePin => pin.held += 1,
            BucketEvent::RemoteUnpin { .. } => pin.held -= 1,
            BucketEvent::Evict => unreachable!("a victim that is evicted leaves the table"),
        }
        assert_eq!(BucketState::of(pin.held), to, "the count contradicts the table");
    }

    /// Of each pinned bucket how many ranks hold it, if all is well with it.
    pub(super) fn check(&self) -> Result<Vec<(Bucket, u32)>, PinViolation> {
        let slots = self.table.sorted();
        let mut held = 0;
        for &slot in &slots {
            let (state, is_victim) = (self.state_at(slot), self.table.is_victim(slot));
            if (state == BucketState::B) != is_victim {
                let bucket = self.table.bucket(slot);
                return Err(PinViolation::Victim { bucket, state, is_victim });
            }
            held += u64::from(self.table.get(slot).held);
        }
        let queued = self.table.queue().count();
        if (held, queued) != (self.held, self.table.victims()) || !self.spares.is_empty() {
            return Err(PinViolation::Counts { held, queued, counts: self.counts() });
        }
        Ok(slots.into_iter().map(|slot| (self.table.bucket(slot), self.table.get(slot).held)).collect())
    }

    fn state_at(&self, slot: u32) -> BucketState {
        BucketState::of(self.table.get(slot).held)
    }
}
