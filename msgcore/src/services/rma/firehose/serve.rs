//! A peer sends something: its messages are judged whole before anything comes of them.
//!
//! A move is served at once, whatever this rank does meanwhile. First the old firehoses are taken, then the new ones
//! given: so there are never more than the peer's share, and memory that is not needed any more can be pinned over.

use super::FirehoseEngine;
use super::bucket::Bucket;
use super::environment::Environment;
use super::error::FirehoseBreach;
use super::pin_error::PinError;
use super::wire::{self, FirehoseMessage, MAX_BUCKETS, Regions};
use crate::core::peer_id::PeerId;

impl FirehoseEngine {
    /// Takes a message of a peer's, in memory that the peer cannot change. An error is a breach of the protocol: nothing
    /// has come of the message, and the connection should be ended, with [`Self::peer_gone`].
    pub fn on_message(&mut self, env: &mut impl Environment, from: PeerId, bytes: &[u8]) -> Result<(), FirehoseBreach> {
        let outcome = self.take_message(env, from, bytes);
        self.stats.breaches += u64::from(outcome.is_err());
        outcome
    }

    fn take_message(&mut self, env: &mut impl Environment, from: PeerId, bytes: &[u8]) -> Result<(), FirehoseBreach> {
        match FirehoseMessage::parse(bytes)? {
            FirehoseMessage::Request { id, new, old } => self.on_move_request(env, from, id, new, old),
            FirehoseMessage::Granted { id, keys } => self.on_move_granted(env, from, id, keys),
            FirehoseMessage::Refused { id, reason } => self.on_move_refused(env, from, id, reason),
        }
    }

    fn on_move_request(
        &mut self,
        env: &mut impl Environment,
        from: PeerId,
        id: u64,
        new: Regions<'_>,
        old: Regions<'_>,
    ) -> Result<(), FirehoseBreach> {
        self.judge_move(from, env.room(), new, old)?;
        self.stats.moves_served += 1;
        old.buckets().for_each(|bucket| self.take_back(from, bucket));
        match self.grant_all(env, from, new) {
            Ok(()) => wire::emit_granted(&mut self.message, id, &self.keys),
            Err(reason) => wire::emit_refused(&mut self.message, id, reason),
        }
        self.pins.settle(env, &mut self.stats);
        env.send(from, &self.message);
        Ok(())
    }

    /// Judges a request. Counts first, so that a request that names all memory there is costs no more than others.
    fn judge_move(
        &mut self,
        from: PeerId,
        room: usize,
        new: Regions<'_>,
        old: Regions<'_>,
    ) -> Result<(), FirehoseBreach> {
        let (peer, share) = (self.peers.entry(from).or_default(), self.limits.firehoses());
        let (asked, returned, held) = (new.count(), old.count(), peer.granted.len() as u64);
        // Each new bucket is a key of the answer.
        let most = MAX_BUCKETS.min(wire::keys_that_fit(room));
        if asked > most || returned > MAX_BUCKETS {
            return Err(FirehoseBreach::TooManyAtOnce { buckets: asked.max(returned), most });
        }
        let buckets = (held + asked).saturating_sub(returned);
        if buckets > share {
            return Err(FirehoseBreach::MoreThanItsShare { buckets, most: share });
        }
        if let Some(bucket) = old.buckets().find(|bucket| !peer.granted.contains(&bucket.0)) {
            return Err(FirehoseBreach::NotHeld(bucket));
        }
        if let Some(bucket) = new.buckets().find(|bucket| peer.granted.contains(&bucket.0)) {
            return Err(FirehoseBreach::HeldAlready(bucket));
        }
        if let Some(twice) = repeated(&mut self.buckets, old.buckets()) {
            return Err(FirehoseBreach::NotHeld(twice));
        }
        repeated(&mut self.buckets, new.buckets()).map_or(Ok(()), |twice| Err(FirehoseBreach::HeldAlready(twice)))
    }

    /// Gives a peer firehoses to all of its new buckets, or to none; their keys are in `keys`.
    fn grant_all(&mut self, env: &mut impl Environment, to: PeerId, new: Regions<'_>) -> Result<(), PinError> {
        self.keys.clear();
        for bucket in new.buckets() {
            match self.pins.pin_remote(env, &mut self.stats, bucket) {
                Ok(key) => self.keys.push(key),
                Err(error) => {
                    self.stats.rollbacks += 1;
                    new.buckets().take(self.keys.len()).for_each(|bucket| self.take_back(to, bucket));
                    return Err(error);
                }
            }
            self.peer_mut(to).granted.insert(bucket.0);
        }
        Ok(())
    }

    /// A peer has no firehose to a bucket any more.
    pub(super) fn take_back(&mut self, from: PeerId, bucket: Bucket) {
        let was_granted = self.peer_mut(from).granted.remove(&bucket.0);
        assert!(was_granted, "{from} holds no firehose to {bucket:?}");
        self.pins.unpin_remote(bucket);
    }
}

/// A bucket that comes more than once.
fn repeated(room: &mut Vec<Bucket>, buckets: impl Iterator<Item = Bucket>) -> Option<Bucket> {
    room.clear();
    room.extend(buckets);
    room.sort_unstable();
    room.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
