//! What must hold between two calls, counted anew from everything there is. Writers assert it in passing; this is the
//! reader's side.

use std::collections::BTreeMap;

use thiserror::Error;

use super::FirehoseEngine;
use super::bucket::Bucket;
use super::firehoses::{Survey, TableViolation};
use super::operations::{MOST_MOVES, Phase};
use super::pins::{PinCounts, PinViolation};
use super::state::BucketState;
use crate::core::peer_id::PeerId;

/// What contradicts itself in what an engine counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FirehoseViolation {
    /// A peer holds more firehoses than are its share.
    #[error("{peer} holds {held} firehoses, and its share is {most}")]
    Share {
        /// Which peer.
        peer: PeerId,
        /// What it holds.
        held: u64,
        /// Its share.
        most: u64,
    },
    /// The pinned buckets are not what their counts say.
    #[error(transparent)]
    Pins(#[from] PinViolation),
    /// A bucket's counts are not its uses.
    #[error("{bucket:?} counts {held} firehoses, and has {expected}")]
    Bucket {
        /// Which bucket.
        bucket: Bucket,
        /// Firehoses that it counts.
        held: u32,
        /// What there is.
        expected: u32,
    },
    /// A bucket that must be pinned is not.
    #[error("{0:?} is granted, and in state {state:?}", state = BucketState::A)]
    NotPinned(Bucket),
    /// More is pinned than the limits allow.
    #[error("{counts:?} is more than MAXVICTIM, {most}, or with M more than {bound}")]
    TooMuchPinned {
        /// What is pinned.
        counts: PinCounts,
        /// MAXVICTIM in buckets.
        most: u64,
        /// The bound of all buckets.
        bound: u64,
    },
    /// The firehoses to a peer are not what their counts say.
    #[error("firehoses to {peer}: {violation}")]
    Table {
        /// Which peer.
        peer: PeerId,
        /// What is wrong.
        #[source]
        violation: TableViolation,
    },
    /// A firehose's count is not its uses.
    #[error("{peer}: {bucket:?} counts {count} uses, and has {used}")]
    Uses {
        /// Which peer.
        peer: PeerId,
        /// Where the firehose leads.
        bucket: Bucket,
        /// What it counts.
        count: u32,
        /// What there is.
        used: u32,
    },
    /// Operations use buckets to which no firehose leads.
    #[error("{peer}: {used} buckets are in use, and not all of them are in the table")]
    NotInTable {
        /// Which peer.
        peer: PeerId,
        /// Buckets in use.
        used: usize,
    },
    /// An acquire stands in line, and has all that it waits for.
    #[error("the first in line for {0} could go on")]
    Waits(PeerId),
}

type Uses = BTreeMap<(PeerId, Bucket), u32>;

impl FirehoseEngine {
    /// Counts everything anew, and says what contradicts it.
    pub fn check_invariants(&self) -> Result<(), FirehoseViolation> {
        let uses = self.uses();
        let granted = self.check_granted()?;
        self.check_pins(&granted)?;
        self.peers.keys().try_for_each(|&peer| self.check_firehoses(peer, &uses))?;
        self.check_lines()
    }

    /// How often operations use each bucket; those in line hold nothing.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (_, operation) in self.operations.iter().filter(|(_, operation)| operation.phase != Phase::InLine) {
            let peer = operation.peer;
            operation.region.buckets().for_each(|bucket| *uses.entry((peer, bucket)).or_default() += 1);
        }
        uses
    }

    /// How many peers hold a firehose to each bucket of this rank.
    fn check_granted(&self) -> Result<BTreeMap<Bucket, u32>, FirehoseViolation> {
        let mut granted = BTreeMap::new();
        for (&peer, there) in &self.peers {
            let (held, most) = (there.granted.len() as u64, self.limits.firehoses());
            if held > most {
                return Err(FirehoseViolation::Share { peer, held, most });
            }
            there.granted.iter().for_each(|&bucket| *granted.entry(Bucket(bucket)).or_default() += 1);
        }
        Ok(granted)
    }

    fn check_pins(&self, granted: &BTreeMap<Bucket, u32>) -> Result<(), FirehoseViolation> {
        for (bucket, held) in self.pins.check()? {
            let expected = granted.get(&bucket).copied().unwrap_or(0);
            if held != expected {
                return Err(FirehoseViolation::Bucket { bucket, held, expected });
            }
        }
        if let Some(&bucket) = granted.keys().find(|&&bucket| self.pins.state(bucket) == BucketState::A) {
            return Err(FirehoseViolation::NotPinned(bucket));
        }
        let (most, share) = (self.limits.victims() as u64, self.limits.firehoses());
        let bound = share * self.peers.len() as u64 + most;
        let counts = self.pins.counts();
        if counts.pinned as u64 > bound || counts.victims as u64 > most {
            return Err(FirehoseViolation::TooMuchPinned { counts, most, bound });
        }
        Ok(())
    }

    fn check_firehoses(&self, peer: PeerId, uses: &Uses) -> Result<(), FirehoseViolation> {
        let counted = self.peers[&peer].firehoses.check();
        let counted = counted.map_err(|violation| FirehoseViolation::Table { peer, violation })?;
        for &(bucket, count) in &counted {
            let used = uses.get(&(peer, bucket)).copied().unwrap_or(0);
            if used != count {
                return Err(FirehoseViolation::Uses { peer, bucket, count, used });
            }
        }
        let used = uses.keys().filter(|(of, _)| *of == peer).count();
        if used != counted.iter().filter(|(_, count)| *count > 0).count() {
            return Err(FirehoseViolation::NotInTable { peer, used });
        }
        Ok(())
    }

    /// An operation that could go on does not stand in line.
    fn check_lines(&self) -> Result<(), FirehoseViolation> {
        for (&peer, there) in &self.peers {
            let first = there.line.front().and_then(|&id| self.operations.get(id));
            let may_go = |survey: Survey| {
                there.firehoses.affords(survey) && (survey.misses == 0 || there.open_moves < MOST_MOVES)
            };
            if first.is_some_and(|first| may_go(there.firehoses.survey(first.region))) {
                return Err(FirehoseViolation::Waits(peer));
            }
        }
        Ok(())
    }
}
