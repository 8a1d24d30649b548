//! This rank's firehoses to one peer: where they lead, and which of them may be moved.

use roci_protocol::Rkey;
use thiserror::Error;

use super::bucket::{Bucket, Region};
use super::moves::MoveId;
use super::standing::{Standing, Turn};
use super::table::Table;

/// One firehose.
#[derive(Clone, Copy, Debug)]
struct Firehose {
    /// Operations that use it, or wait for it.
    uses: u32,
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Pending(MoveId),
    Granted(Rkey),
    Leaving,
}

/// What contradicts itself among the firehoses to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TableViolation {
    /// A firehose that is not in use is not in the queue, or one that is in use is.
    #[error("{bucket:?} is {standing:?}, and in the queue: {is_victim}")]
    Victim {
        /// Where it leads.
        bucket: Bucket,
        /// What it is.
        standing: Standing,
        /// Whether it is in the queue.
        is_victim: bool,
    },
    /// A firehose that was given up is in use.
    #[error("{bucket:?} is given up, and used {uses} times")]
    UsedWhenGivenUp {
        /// Where it leads.
        bucket: Bucket,
        /// How often it is in use.
        uses: u32,
    },
    /// The counts are not what there is.
    #[error("{queued} of {victims} queued, {leaving} of {counted} leaving, {used} of {most} used")]
    Counts {
        /// Firehoses that are in the queue and not in use.
        queued: usize,
        /// What is counted of those.
        victims: usize,
        /// Firehoses that were given up.
        leaving: u64,
        /// What is counted of those.
        counted: u64,
        /// Firehoses that are spent.
        used: u64,
        /// How many there are.
        most: u64,
    },
}

/// What a region needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Survey {
    /// Firehoses that do not lead there yet.
    pub(super) misses: u64,
    /// Firehoses that do, and would be used again.
    idle: u64,
    /// Some bucket is given up, and the peer has not answered.
    is_leaving: bool,
}

/// What an operation finds for a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lookup {
    /// A firehose leads there.
    Hit,
    /// One will, when a move is answered.
    Pending(MoveId),
    /// None does.
    Miss,
}

/// Mistakes that can be put back in, so that tests see them found.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    /// A bucket whose firehose is moved elsewhere is forgotten before the peer has answered.
    ForgetsLeaving,
    /// A bucket that is used again stays in the queue of victims.
    StaysVictim,
}

#[derive(Default)]
pub(super) struct Firehoses {
    table: Table<Firehose>,
    /// F.
    most: u64,
    leaving: u64,
    #[cfg(test)]
    mistake: Option<Mistake>,
}

impl Firehose {
    fn standing(&self) -> Standing {
        match (self.at, self.uses) {
            (At::Pending(_), _) => Standing::Pending,
            (At::Granted(_), 0) => Standing::Idle,
            (At::Granted(_), _) => Standing::InUse,
            (At::Leaving, _) => Standing::Leaving,
        }
    }
}

impl Firehoses {
    #[cfg(test)]
    pub(super) fn make(&mut self, mistake: Option<Mistake>) {
        self.mistake = mistake;
    }

    /// There are so many, as the peer has said in the key to its memory.
    pub(super) fn set_most(&mut self, most: u64) {
        self.most = most;
    }

    /// Those that lead somewhere: no more than F, between two calls.
    pub(super) fn used(&self) -> u64 {
        self.table.len() as u64 - self.leaving
    }

    #[inline]
    pub(super) fn survey(&self, region: Region) -> Survey {
        let mut survey = Survey::default();
        for bucket in region.buckets() {
            match self.table.find(bucket).map(|slot| self.table.get(slot).standing()) {
                None | Some(Standing::Absent) => survey.misses += 1,
                Some(Standing::Idle) => survey.idle += 1,
                Some(Standing::Leaving) => survey.is_leaving = true,
                Some(Standing::Pending | Standing::InUse) => {}
            }
        }
        survey
    }

    /// Whether it can be had at once and whole: what is not in use is enough, and the peer has answered for each bucket.
    #[inline]
    pub(super) fn affords(&self, survey: Survey) -> bool {
        let unused = self.most - self.used() + self.table.victims() as u64;
        !survey.is_leaving && survey.misses + survey.idle <= unused
    }

    /// Another operation uses a bucket, if a firehose leads there.
    #[inline]
    pub(super) fn hit(&mut self, bucket: Bucket) -> Lookup {
        let Some(slot) = self.table.find(bucket) else { return Lookup::Miss };
        self.turn(slot, Turn::Hit);
        match self.table.get(slot).at {
            At::Pending(awaited) => Lookup::Pending(awaited),
            At::Granted(_) => Lookup::Hit,
            At::Leaving => unreachable!("a bucket that is given up is not hit"),
        }
    }

    /// A firehose is to lead to a bucket, for one operation.
    pub(super) fn ask(&mut self, bucket: Bucket, by: MoveId) {
        next(Standing::Absent, Turn::Ask);
        self.table.insert(bucket, Firehose { uses: 1, at: At::Pending(by) });
    }

    /// Gives up those that were not used for longest, until there are no more than F.
    pub(super) fn replace(&mut self) -> Vec<Bucket> {
        let surplus = self.used().saturating_sub(self.most);
        (0..surplus).map(|_| self.replace_oldest()).collect()
    }

    fn replace_oldest(&mut self) -> Bucket {
        let slot = self.table.oldest().expect("the survey has counted the victims");
        let bucket = self.table.bucket(slot);
        #[cfg(test)]
        if self.mistake == Some(Mistake::ForgetsLeaving) {
            self.table.remove(slot);
            return bucket;
        }
        self.turn(slot, Turn::Replace);
        self.leaving += 1;
        bucket
    }

    /// The peer has pinned a bucket.
    pub(super) fn granted(&mut self, bucket: Bucket, key: Rkey) {
        let slot = self.slot(bucket);
        let unused = self.table.get(slot).uses == 0;
        next(self.table.get(slot).standing(), Turn::Granted { unused });
        self.table.get_mut(slot).at = At::Granted(key);
        if unused {
            self.table.retire(slot);
        }
    }

    /// The peer has not pinned a bucket; operations that waited have failed.
    pub(super) fn refused(&mut self, bucket: Bucket) {
        let slot = self.slot(bucket);
        assert_eq!(self.table.get(slot).uses, 0, "somebody still waits for {bucket:?}");
        next(self.table.get(slot).standing(), Turn::Refused);
        self.table.remove(slot);
    }

    /// The peer knows that the firehose leads to this bucket no more.
    pub(super) fn answered(&mut self, bucket: Bucket) {
        #[cfg(test)]
        if self.mistake == Some(Mistake::ForgetsLeaving) {
            return;
        }
        let slot = self.slot(bucket);
        next(self.table.get(slot).standing(), Turn::Answered);
        self.table.remove(slot);
        self.leaving -= 1;
    }

    /// An operation uses a bucket no more. Its firehose stays, and may be moved.
    #[inline]
    pub(super) fn release(&mut self, bucket: Bucket) {
        let slot = self.slot(bucket);
        let uses = self.table.get(slot).uses;
        assert!(uses > 0, "{bucket:?} is not in use");
        self.turn(slot, Turn::Release { last: uses == 1 });
    }

    pub(super) fn key(&self, bucket: Bucket) -> Option<Rkey> {
        match self.table.get(self.table.find(bucket)?).at {
            At::Granted(key) => Some(key),
            At::Pending(_) | At::Leaving => None,
        }
    }

    /// Every firehose that leads somewhere for sure, by bucket.
    pub(super) fn granted_keys(&self) -> Vec<(Bucket, Rkey)> {
        let slots = self.table.sorted().into_iter();
        slots.filter_map(|slot| Some((self.table.bucket(slot), self.key(self.table.bucket(slot))?))).collect()
    }

    /// Of each bucket in the table, how often it is in use, if all is well with it.
    pub(super) fn check(&self) -> Result<Vec<(Bucket, u32)>, TableViolation> {
        let slots = self.table.sorted();
        let mut leaving = 0;
        for &slot in &slots {
            let (bucket, firehose) = (self.table.bucket(slot), self.table.get(slot));
            let standing = firehose.standing();
            leaving += u64::from(standing == Standing::Leaving);
            let is_victim = self.table.is_victim(slot);
            if (standing == Standing::Idle) != is_victim {
                return Err(TableViolation::Victim { bucket, standing, is_victim });
            }
            if standing == Standing::Leaving && firehose.uses > 0 {
                return Err(TableViolation::UsedWhenGivenUp { bucket, uses: firehose.uses });
            }
        }
        let queued = self.table.queue().filter(|&slot| self.table.is_victim(slot)).count();
        if queued != self.table.victims() || leaving != self.leaving || self.used() > self.most {
            let (victims, counted, used, most) = (self.table.victims(), self.leaving, self.used(), self.most);
            return Err(TableViolation::Counts { queued, victims, leaving, counted, used, most });
        }
        Ok(slots.into_iter().map(|slot| (self.table.bucket(slot), self.table.get(slot).uses)).collect())
    }

    /// Moves a firehose to the standing that a turn leads to, with its uses and its place in the queue.
    fn turn(&mut self, slot: u32, turn: Turn) {
        let firehose = self.table.get_mut(slot);
        let from = firehose.standing();
        let to = next(from, turn);
        match turn {
            Turn::Hit => firehose.uses += 1,
            Turn::Release { .. } => firehose.uses -= 1,
            Turn::Replace => firehose.at = At::Leaving,
            Turn::Ask | Turn::Granted { .. } | Turn::Refused | Turn::Answered => {
                unreachable!("{turn:?} is for the caller that adds or removes")
            }
        }
        assert_eq!(firehose.standing(), to, "the counts contradict the table");
        match (from == Standing::Idle, to == Standing::Idle) {
            (true, false) => self.leave_queue(slot),
            (false, true) => self.table.retire(slot),
            _ => {}
        }
    }

    /// A bucket that is used again must not be given to another: it leaves the queue in the same step.
    fn leave_queue(&mut self, slot: u32) {
        #[cfg(test)]
        if self.mistake == Some(Mistake::StaysVictim) && self.table.get(slot).uses > 0 {
            return;
        }
        self.table.revive(slot);
    }

    fn slot(&self, bucket: Bucket) -> u32 {
        self.table.find(bucket).unwrap_or_else(|| panic!("no firehose leads to {bucket:?}"))
    }
}

fn next(from: Standing, turn: Turn) -> Standing {
    from.on(turn).unwrap_or_else(|illegal| panic!("{illegal}"))
}
