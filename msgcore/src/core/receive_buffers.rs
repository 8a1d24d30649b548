//! Receives and their buffers: each peer's own, and those that all peers share; posted, used up, and posted again.

use std::mem;

use roci_driver::link::Link;
use roci_driver::{Buffer, SharedReceiveQueue};

use super::Core;
use super::breach::Breach;
use super::no_connection::NoReceives;
use super::peer::Peer;
use super::peer_id::PeerId;
use super::peers::Peers;
use super::receive_pace::ReceivePace;
use super::tx::name_of;
use super::vbuf::Pool;
use crate::receive_queues::{Kind, ReceiveQueues};

/// Credits without which nothing moves: one is for control messages alone.
const LEAST_CREDITS: usize = 2;

/// The receive queues: what they are, their buffers, and those that all peers share.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    pub(crate) queues: ReceiveQueues,
    pub(crate) pace: ReceivePace,
    /// Their buffers, by lane.
    pub(crate) pools: Vec<Pool>,
    /// By lane; none where each peer has its own.
    shared: Vec<Option<SharedReceiveBuffers>>,
    /// Somewhere a receive lacks a vbuf.
    are_missing: bool,
}

/// A receive queue that all peers share (SRQ).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedReceiveBuffers {
    pub(crate) srq: SharedReceiveQueue,
    /// Receives that it should hold by now.
    pub(crate) goal: usize,
}

/// What becomes of the credit that a message has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cost {
    /// It cost none.
    Nothing,
    /// Its credit goes back to the peer.
    Returned,
    /// Its credit is withheld, as long as any are.
    Withheld,
}

impl ReceiveBuffers {
    /// Receives as these queues have them; of each that is shared, its queue.
    pub(crate) fn new(queues: ReceiveQueues, pools: Vec<Pool>, shared: Vec<Option<SharedReceiveBuffers>>) -> Self {
        assert!(pools.len() == queues.len() && shared.len() == queues.len(), "one of each for each lane");
        Self { queues, pace: ReceivePace::new(), pools, shared, are_missing: false }
    }

    /// Whether all peers share the receives of a lane.
    pub(crate) fn is_shared(&self, lane: usize) -> bool {
        self.shared[lane].is_some()
    }

    /// Returns the queue of the receives that all peers share, where they do.
    pub(crate) fn srq(&self, lane: usize) -> Option<SharedReceiveQueue> {
        self.shared[lane].map(|shared| shared.srq)
    }

    /// Whether somewhere a receive lacks a vbuf.
    pub(crate) fn are_missing(&self) -> bool {
        self.are_missing
    }
}

impl<L: Link> Core<L> {
    /// Posts the receives that all peers share.
    pub(crate) fn post_shared(&mut self) {
        for lane in 0..self.receives.queues.len() {
            self.fill_srq(lane);
        }
    }

    /// Posts the receives of a peer's own, as far as memory goes: what is missing is not granted before it is posted.
    ///
    /// # Errors
    /// With fewer receives than the reserve and two credits take a connection could not live.
    pub(crate) fn post_own(&mut self, peer: &mut Peer) -> Result<(), NoReceives> {
        let queues = self.receives.queues.clone();
        let own = || (0..).zip(&queues).filter_map(|(lane, queue)| Some((lane, queue.size, queue.kind.own()?)));
        for (lane, _, (num, reserve)) in own() {
            self.receives.pools[lane].provide(&self.engine, num + reserve);
        }
        for (lane, size, (num, reserve)) in own() {
            let least = reserve + LEAST_CREDITS;
            if !self.receives.pools[lane].provide(&self.engine, least) {
                return Err(NoReceives { least, size, all: num + reserve });
            }
        }
        for (lane, _, (num, reserve)) in own() {
            self.post_first(peer, lane, num + reserve);
        }
        Ok(())
    }

    fn post_first(&mut self, peer: &mut Peer, index: usize, count: usize) {
        for _ in 0..count {
            let vbuf = self.receives.pools[index].take(&self.engine);
            self.add_receive(peer, index, vbuf);
        }
        let lane = &mut peer.lanes[index];
        lane.credits.lack(lane.missing);
        self.post_pending(peer, index, true);
        // So many never wait again: most are posted.
        peer.lanes[index].unposted.shrink_to(1);
    }

    /// A message has been acted upon: its receive is posted again, with its vbuf or another one.
    ///
    /// # Errors
    /// The peer had no credit for it.
    #[inline]
    pub(crate) fn repost(
        &mut self,
        peer: &mut Peer,
        lane: usize,
        vbuf: Option<Buffer>,
        cost: Cost,
    ) -> Result<(), Breach> {
        let is_withheld = cost == Cost::Withheld && self.unexpected_budget.is_withholding();
        if is_withheld && vbuf.is_none() && !peer.lanes[lane].is_shared {
            // Nothing can come for it before its credit is given back: the message takes no more memory than it came in.
            peer.lanes[lane].kept_with_messages += 1;
            return if peer.lanes[lane].credits.used(true) { Ok(()) } else { Err(Breach::NoCredit) };
        }
        let vbuf = vbuf.or_else(|| self.receives.pools[lane].take(&self.engine));
        if cost != Cost::Nothing && !peer.lanes[lane].credits.used(is_withheld) {
            if let Some(vbuf) = vbuf {
                self.give_receive_vbuf(lane, vbuf);
            }
            return Err(Breach::NoCredit);
        }
        if peer.lanes[lane].is_shared {
            peer.lanes[lane].credits.settle(0);
            self.repost_shared(lane, vbuf);
        } else {
            self.add_receive(peer, lane, vbuf);
            // What cost nothing took a receive of the reserve, and others that cost nothing may be on their way.
            self.post_pending(peer, lane, cost == Cost::Nothing);
        }
        Ok(())
    }

    #[inline]
    fn add_receive(&mut self, peer: &mut Peer, lane: usize, vbuf: Option<Buffer>) {
        let lane = &mut peer.lanes[lane];
        match vbuf {
            Some(mut vbuf) => {
                vbuf.reset();
                lane.unposted.push(vbuf);
            }
            None => {
                lane.missing += 1;
                self.receives.are_missing = true;
            }
        }
    }

    /// Posts the receives that wait, at once or when so few are left that it is time; their credits are owed then. A peer
    /// never spends its very last credit on what waits for others, so one receive that is left must be time enough; and
    /// where most credits are withheld for want of memory, each of the others is given back at once.
    #[inline]
    fn post_pending(&mut self, peer: &mut Peer, index: usize, is_urgent: bool) {
        let Some(queue) = self.receives.queues.get(index) else { return };
        let Kind::PerPeer { low, reserve, .. } = queue.kind else { return };
        let lane = &peer.lanes[index];
        let is_in_time = lane.posted > (low.max(1) + reserve) as usize && !lane.credits.is_short();
        if is_urgent || !is_in_time {
            self.post_unposted(peer, index);
        }
    }

    fn post_unposted(&mut self, peer: &mut Peer, index: usize) {
        let (id, lane) = (peer.id, &mut peer.lanes[index]);
        while let Some(vbuf) = lane.unposted.pop() {
            match self.engine.post_recv(lane.qp, name_of(index, id), vbuf) {
                Ok(()) => lane.posted += 1,
                // A queue pair that refuses has failed, and its completions say so.
                Err(refused) => return self.receives.pools[index].give(refused.given),
            }
        }
        lane.credits.settle(lane.missing);
    }

    /// A message has been acted upon that came in a shared receive.
    fn repost_shared(&mut self, lane: usize, vbuf: Option<Buffer>) {
        match vbuf {
            Some(vbuf) => self.receives.pools[lane].give(vbuf),
            None => self.receives.are_missing = true,
        }
        self.refill_srq(lane);
    }

    /// Posts shared receives again once few are left, and more than before once there is a shortage.
    pub(crate) fn refill_srq(&mut self, lane: usize) {
        let Some(Kind::Shared { low, num, limit, .. }) = self.receives.queues.get(lane).map(|queue| queue.kind) else {
            return;
        };
        let Some(shared) = self.receives.shared[lane].as_mut() else { return };
        let left = self.engine.srq_len(shared.srq);
        if left < limit as usize {
            shared.goal = (2 * shared.goal).min(num as usize);
        }
        if left <= (low as usize).min(shared.goal - shared.goal.div_ceil(4)) {
            self.fill_srq(lane);
        }
    }

    /// Posts shared receives up to the goal, as far as vbufs go.
    fn fill_srq(&mut self, lane: usize) {
        let Some(SharedReceiveBuffers { srq, goal }) = self.receives.shared[lane] else { return };
        for _ in self.engine.srq_len(srq)..goal {
            let Some(mut vbuf) = self.receives.pools[lane].take(&self.engine) else {
                self.receives.are_missing = true;
                return;
            };
            vbuf.reset();
            if let Err(refused) = self.engine.post_srq_recv(srq, name_of(lane, PeerId::NONE), vbuf) {
                return self.receives.pools[lane].give(refused.given);
            }
        }
    }

    /// Takes back a vbuf that was kept: a receive that lacks one has it soon.
    pub(crate) fn give_receive_vbuf(&mut self, lane: usize, vbuf: Buffer) {
        self.receives.pools[lane].give(vbuf);
        // It may have been the last one: where a peer has ended nothing else posts it again.
        self.refill_srq(lane);
        if self.receives.are_missing {
            self.ready.note_receive_buffer();
        }
    }

    /// Posts the receives that lacked a vbuf, of all peers, as far as vbufs go now.
    #[cold]
    pub(crate) fn replace_missing(&mut self, peers: &mut Peers) {
        self.receives.are_missing = false;
        for lane in 0..self.receives.queues.len() {
            self.fill_srq(lane);
        }
        // Below the floor only vbufs that have come back are used: others would be made of the application's memory.
        let may_grow = self.unexpected_budget.is_idle() || self.unexpected_budget.is_above_floor(self.free_bytes());
        for peer in peers.iter_live_mut() {
            for lane in 0..peer.lanes.len() {
                let missing = mem::take(&mut peer.lanes[lane].missing);
                for _ in 0..missing {
                    let pool = &mut self.receives.pools[lane];
                    let vbuf = if may_grow { pool.take(&self.engine) } else { pool.take_free() };
                    self.add_receive(peer, lane, vbuf);
                }
                if missing > 0 {
                    self.post_pending(peer, lane, true);
                    self.return_credits(peer);
                }
            }
        }
    }

    /// Gives back the credits that were withheld, to all peers, once messages without a receive take less memory.
    pub(crate) fn release_withheld(&mut self, peers: &mut Peers) {
        if !self.unexpected_budget.release() {
            return;
        }
        for peer in peers.iter_live_mut() {
            for lane in &mut peer.lanes {
                lane.missing += mem::take(&mut lane.kept_with_messages);
                assert!(lane.missing <= lane.credits.account().kept.into(), "a receive that is missing keeps a credit");
                self.receives.are_missing |= lane.missing > 0;
                lane.credits.release_withheld();
                lane.credits.settle(lane.unposted.len() + lane.missing);
            }
            self.return_credits(peer);
        }
        if self.receives.are_missing {
            self.ready.note_receive_buffer();
        }
    }
}
