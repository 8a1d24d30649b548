//! A transfer wants a peer's memory: a hit, a hit on what is on its way, a move, or waiting in line.

use super::FirehoseEngine;
use super::bucket::{Bucket, Region, Span, coalesce};
use super::environment::Environment;
use super::error::AcquireError;
use super::firehoses::Lookup;
use super::limits::FirehoseShare;
use super::moves::{Move, MoveId};
use super::operations::{FirehoseOperation, Hold, MOST_MOVES, MOST_OPERATIONS, OperationId, Phase};
use super::wire::{self, MAX_BUCKETS};
use crate::core::peer_id::PeerId;

/// What became of an attempt.
pub(super) enum Attempt {
    /// Too little is free: nothing was taken.
    Blocked,
    /// It has its places, and waits for answers.
    Moving,
    /// It has its memory.
    Granted,
}

impl FirehoseEngine {
    /// Acquires memory of a peer's, which gives this end `share`, for a transfer. A [`Hold`] says that it is there already, `None` that the environment
    /// will hear of it, with `context`. Costs the peer nothing where firehoses lead there already.
    #[inline]
    pub fn acquire(
        &mut self,
        env: &mut impl Environment,
        peer: PeerId,
        share: FirehoseShare,
        span: Span,
        context: u64,
    ) -> Result<Option<Hold>, AcquireError> {
        let region = self.judge_acquire(peer, share, span)?;
        let operation = FirehoseOperation { peer, span, region, context, phase: Phase::InLine };
        let id = self.operations.insert(operation).ok_or(AcquireError::TooMany(MOST_OPERATIONS))?;
        if self.peer_mut(peer).line.is_empty() {
            match self.try_acquire(env, id, peer, region) {
                Attempt::Granted => return Ok(Some(Hold(id))),
                Attempt::Moving => return Ok(None),
                Attempt::Blocked => {}
            }
        }
        self.stats.stalls += 1;
        self.peer_mut(peer).line.push_back(id);
        Ok(None)
    }

    /// Something was released, or answered: the first in line may have it.
    pub(super) fn advance(&mut self, env: &mut impl Environment, peer: PeerId) {
        while let Some(&id) = self.peer_mut(peer).line.front() {
            let FirehoseOperation { region, context, .. } =
                *self.operations.get(id).expect("who stands in line has not ended");
            match self.try_acquire(env, id, peer, region) {
                Attempt::Blocked => return,
                Attempt::Moving => {}
                Attempt::Granted => env.ended(context, Ok(Hold(id))),
            }
            self.peer_mut(peer).line.pop_front();
        }
    }

    fn judge_acquire(&mut self, peer: PeerId, share: FirehoseShare, span: Span) -> Result<Region, AcquireError> {
        let region = share.grain.cover(span)?;
        let (buckets, most) = (region.count(), share.firehoses.min(MAX_BUCKETS));
        if buckets > most {
            return Err(AcquireError::TooLarge { buckets, most });
        }
        let there = self.peers.entry(peer).or_default();
        if *there.share.get_or_insert(share) != share {
            return Err(AcquireError::OtherShare(peer));
        }
        there.firehoses.set_most(share.firehoses);
        #[cfg(test)]
        there.firehoses.make(self.mistake);
        Ok(region)
    }

    /// Takes all that an operation needs, or nothing.
    fn try_acquire(&mut self, env: &mut impl Environment, id: OperationId, peer: PeerId, region: Region) -> Attempt {
        let firehoses = &self.peer_mut(peer).firehoses;
        let survey = firehoses.survey(region);
        if !firehoses.affords(survey) {
            return Attempt::Blocked;
        }
        if survey.misses > 0 && self.peer_mut(peer).open_moves >= MOST_MOVES {
            return Attempt::Blocked;
        }
        let awaited =
            if survey.misses == 0 { self.hit_all(id, peer, region) } else { self.miss(env, id, peer, region) };
        match awaited {
            0 => self.stats.hits += 1,
            _ if survey.misses == 0 => self.stats.pending_hits += 1,
            _ => self.stats.misses += 1,
        }
        let operation = self.operations.get_mut(id).expect("it has not ended");
        operation.phase = if awaited == 0 { Phase::Granted } else { Phase::Moving(awaited) };
        if awaited == 0 { Attempt::Granted } else { Attempt::Moving }
    }

    /// Uses what firehoses lead to; says how many moves must be answered before.
    fn hit_all(&mut self, id: OperationId, peer: PeerId, region: Region) -> u32 {
        let mut awaited = 0;
        for bucket in region.buckets() {
            match self.peer_mut(peer).firehoses.hit(bucket) {
                Lookup::Hit => {}
                Lookup::Pending(pending) => awaited += self.hang_on(pending, id),
                Lookup::Miss => unreachable!("the survey has found {bucket:?}"),
            }
        }
        awaited
    }

    /// The operation waits for a move, once for all its buckets.
    fn hang_on(&mut self, pending: MoveId, id: OperationId) -> u32 {
        let waiters = &mut self.moves.get_mut(pending).expect("a pending bucket belongs to a move").waiters;
        if waiters.last() == Some(&id) {
            return 0;
        }
        waiters.push(id);
        1
    }

    /// Moves firehoses to what none leads to, and uses the rest; says how many moves must be answered before.
    fn miss(&mut self, env: &mut impl Environment, id: OperationId, peer: PeerId, region: Region) -> u32 {
        let own = self.moves.insert(Move::to(peer)).expect("each peer has few");
        self.peer_mut(peer).open_moves += 1;
        let mut awaited = self.hang_on(own, id);
        let mut new = Vec::new();
        for bucket in region.buckets() {
            match self.peer_mut(peer).firehoses.hit(bucket) {
                Lookup::Hit => {}
                Lookup::Pending(pending) => awaited += self.hang_on(pending, id),
                Lookup::Miss => {
                    self.peer_mut(peer).firehoses.ask(bucket, own);
                    new.push(bucket);
                }
            }
        }
        // Behind the hits, which are no victims any more.
        let old = self.peer_mut(peer).firehoses.replace();
        self.request(env, own, new, old);
        awaited
    }

    fn request(&mut self, env: &mut impl Environment, id: MoveId, new: Vec<Bucket>, old: Vec<Bucket>) {
        self.stats.moved += new.len() as u64;
        self.stats.replaced += old.len() as u64;
        let (regions, replaced) = (coalesce(new), coalesce(old.iter().copied()));
        wire::emit_request(&mut self.message, id.to_word(), &regions, &replaced);
        let open = self.moves.get_mut(id).expect("it was opened just now");
        (open.new, open.old) = (regions, old);
        env.send(open.peer, &self.message);
    }
}
