//! A peer has answered a move: what waited for it goes on, or fails.

use super::FirehoseEngine;
use super::bucket::{Bucket, Region};
use super::environment::Environment;
use super::error::{Failed, FirehoseBreach};
use super::moves::{Move, MoveId};
use super::operations::{FirehoseOperation, Hold, OperationId, Phase};
use super::pin_error::PinError;
use super::wire::Keys;
use crate::core::peer_id::PeerId;

impl FirehoseEngine {
    /// The firehoses lead to their new buckets, and the peer has forgotten the old ones.
    pub(super) fn on_move_granted(
        &mut self,
        env: &mut impl Environment,
        from: PeerId,
        id: u64,
        keys: Keys<'_>,
    ) -> Result<(), FirehoseBreach> {
        let open = self.move_of(from, id)?;
        let (got, wanted) = (keys.len(), open.new.iter().map(|region| region.count()).sum());
        if got as u64 != wanted {
            return Err(FirehoseBreach::Keys { got, wanted });
        }
        let Move { new, old, waiters, .. } = self.close(id);
        for (bucket, key) in new.into_iter().flat_map(Region::buckets).zip(keys.iter()) {
            self.peer_mut(from).firehoses.granted(bucket, key);
        }
        self.forget(from, old);
        for waiter in waiters {
            self.one_answer_less(env, waiter);
        }
        self.advance(env, from);
        Ok(())
    }

    /// The firehoses lead nowhere. The peer has forgotten the old buckets all the same.
    pub(super) fn on_move_refused(
        &mut self,
        env: &mut impl Environment,
        from: PeerId,
        id: u64,
        reason: PinError,
    ) -> Result<(), FirehoseBreach> {
        self.move_of(from, id)?;
        let Move { new, old, waiters, .. } = self.close(id);
        for waiter in waiters {
            self.fail(env, from, waiter, Failed::Refused { peer: from, reason });
        }
        for bucket in new.into_iter().flat_map(Region::buckets) {
            self.peer_mut(from).firehoses.refused(bucket);
        }
        self.forget(from, old);
        self.advance(env, from);
        Ok(())
    }

    /// The peer counts these no more: they may be asked for anew.
    fn forget(&mut self, peer: PeerId, old: Vec<Bucket>) {
        for bucket in old {
            self.peer_mut(peer).firehoses.answered(bucket);
        }
    }

    fn move_of(&self, from: PeerId, id: u64) -> Result<&Move, FirehoseBreach> {
        self.moves.get(MoveId::from_word(id)).filter(|open| open.peer == from).ok_or(FirehoseBreach::UnknownMove(id))
    }

    fn close(&mut self, id: u64) -> Move {
        let closed = self.moves.remove(MoveId::from_word(id)).expect("it was found just now");
        self.peer_mut(closed.peer).open_moves -= 1;
        closed
    }

    /// An operation waits for one move less, if it has not failed meanwhile.
    fn one_answer_less(&mut self, env: &mut impl Environment, waiter: OperationId) {
        let Some(operation) = self.operations.get_mut(waiter) else { return };
        let Phase::Moving(awaited) = &mut operation.phase else { unreachable!("{operation:?} waits for a move") };
        *awaited -= 1;
        if *awaited == 0 {
            operation.phase = Phase::Granted;
            let context = operation.context;
            env.ended(context, Ok(Hold(waiter)));
        }
    }

    /// An operation fails, if it has not failed already: its places in the table are free.
    fn fail(&mut self, env: &mut impl Environment, peer: PeerId, waiter: OperationId, why: Failed) {
        let Some(FirehoseOperation { region, context, .. }) = self.operations.remove(waiter) else { return };
        region.buckets().for_each(|bucket| self.peer_mut(peer).firehoses.release(bucket));
        self.stats.failures += 1;
        env.ended(context, Err(why));
    }
}
