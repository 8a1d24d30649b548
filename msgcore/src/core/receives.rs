//! Receives: each peer's own, and those that all peers share; posted, used up, and posted again.

use roci_driver::link::Link;
use roci_driver::{Buffer, SharedReceiveQueue};

use crate::Rank;
use crate::config::show_size;
use crate::core::peer::Endpoint;
use crate::core::tx::name_of;
use crate::receive_queues::Kind;
use crate::worker::Worker;

/// The rank in the name of a receive that is everybody's.
pub(crate) const ANYBODY: Rank = u32::MAX as Rank;

/// Credits without which nothing moves: one is for control messages alone.
const LEAST_CREDITS: usize = 2;

/// A receive queue that all peers share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) srq: SharedReceiveQueue,
    /// Receives that it should hold by now.
    pub(crate) goal: usize,
}

impl<L: Link> Worker<L> {
    /// Posts the receives that all peers share.
    pub(crate) fn post_shared(&mut self) {
        for lane in 0..self.queues.len() {
            self.fill_shared(lane);
        }
    }

    /// Posts the receives of a peer's own, as far as memory goes: what is missing is not granted before it is posted.
    /// With fewer receives than the reserve and two credits take a connection could not live, and it is refused.
    pub(crate) fn post_own(&mut self, rank: Rank) -> Result<(), String> {
        let queues = self.queues.clone();
        let own = || (0..).zip(&queues).filter_map(|(lane, queue)| Some((lane, queue.size, queue.kind.own()?)));
        for (lane, _, (num, reserve)) in own() {
            self.receive_pools[lane].provide(&self.engine, num + reserve);
        }
        for (lane, size, (num, reserve)) in own() {
            let least = reserve + LEAST_CREDITS;
            if !self.receive_pools[lane].provide(&self.engine, least) {
                return Err(format!(
                    "rank {} has no memory for {least} receives of {}, the least of {}: raise its ROCI_ARENA_SIZE",
                    self.rank,
                    show_size(&size),
                    num + reserve
                ));
            }
        }
        for (lane, _, (num, reserve)) in own() {
            self.post_first(rank, lane, num + reserve);
        }
        Ok(())
    }

    fn post_first(&mut self, rank: Rank, index: usize, count: usize) {
        for _ in 0..count {
            let vbuf = self.receive_pools[index].take(&self.engine);
            self.add_receive(rank, index, vbuf);
        }
        if let Some(endpoint) = self.endpoint(rank) {
            let lane = &mut endpoint.lanes[index];
            lane.credits.lack(lane.missing);
        }
        self.post_pending(rank, index, true);
    }

    /// A receive has been used up.
    #[inline]
    pub(crate) fn note_receive_used(&mut self, rank: Rank, lane: usize) {
        if let Some(lane) = self.endpoints[rank].as_deref_mut().and_then(|endpoint| endpoint.lanes.get_mut(lane)) {
            lane.posted = lane.posted.saturating_sub(1);
        }
    }

    /// A message has been acted upon: its receive is posted again, with its vbuf or another one. `cost` tells whether it
    /// cost the peer a credit, and then whether it is kept.
    #[inline]
    pub(crate) fn repost(&mut self, rank: Rank, lane: usize, vbuf: Option<Buffer>, cost: Option<bool>) {
        let is_withheld = self.is_withholding && cost == Some(true);
        let vbuf = vbuf.or_else(|| self.receive_pools[lane].take(&self.engine));
        let Some(endpoint) = self.endpoint(rank) else {
            return self.give_back_any(lane, vbuf);
        };
        if cost.is_some() && !endpoint.lanes[lane].credits.used(is_withheld) {
            self.give_back_any(lane, vbuf);
            let what = "it sent more messages than it had credits for".into();
            return self.fail_peer(rank, crate::core::rx::protocol_error(rank, what));
        }
        if endpoint.lanes[lane].is_shared {
            endpoint.lanes[lane].credits.settle(0);
            self.repost_shared(lane, vbuf);
        } else {
            self.add_receive(rank, lane, vbuf);
            // What cost nothing took a receive of the reserve, and others that cost nothing may be on their way.
            self.post_pending(rank, lane, cost.is_none());
        }
    }

    fn give_back_any(&mut self, lane: usize, vbuf: Option<Buffer>) {
        if let Some(vbuf) = vbuf {
            self.give_receive_vbuf(lane, vbuf);
        }
    }

    fn add_receive(&mut self, rank: Rank, lane: usize, vbuf: Option<Buffer>) {
        let Some(lane) = self.endpoint(rank).map(|endpoint| &mut endpoint.lanes[lane]) else { return };
        match vbuf {
            Some(mut vbuf) => {
                vbuf.reset();
                lane.unposted.push(vbuf);
            }
            None => {
                lane.missing += 1;
                self.receives_are_missing = true;
            }
        }
    }

    /// Posts the receives that wait, at once or when so few are left that it is time; their credits are owed then. A peer
    /// never spends its very last credit on what waits for others, so one receive that is left must be time enough; and
    /// where most credits are withheld for want of memory, each of the others is given back at once.
    #[inline]
    fn post_pending(&mut self, rank: Rank, index: usize, is_urgent: bool) {
        let Some(Kind::PerPeer { low, reserve, .. }) = self.queues.get(index).map(|queue| queue.kind) else { return };
        let Some(lane) = self.endpoints[rank].as_deref_mut().map(|endpoint| &mut endpoint.lanes[index]) else { return };
        let is_in_time = lane.posted > (low.max(1) + reserve) as usize && !lane.credits.is_short();
        if !is_urgent && is_in_time {
            return;
        }
        while let Some(vbuf) = lane.unposted.pop() {
            match self.engine.post_recv(lane.qp, name_of(index, rank), vbuf) {
                Ok(()) => lane.posted += 1,
                // A queue pair that refuses has failed, and its completions say so.
                Err(refused) => return self.receive_pools[index].give(refused.request),
            }
        }
        lane.credits.settle(lane.missing);
    }

    /// A message has been acted upon that came in a shared receive.
    fn repost_shared(&mut self, lane: usize, vbuf: Option<Buffer>) {
        match vbuf {
            Some(vbuf) => self.receive_pools[lane].give(vbuf),
            None => self.receives_are_missing = true,
        }
        self.top_up(lane);
    }

    /// Posts shared receives again once few are left, and more than before once there is a shortage.
    pub(crate) fn top_up(&mut self, lane: usize) {
        let Some(Kind::Shared { low, num, limit, .. }) = self.queues.get(lane).map(|queue| queue.kind) else { return };
        let Some(shared) = self.shared[lane].as_mut() else { return };
        let left = self.engine.srq_len(shared.srq);
        if left < limit as usize {
            shared.goal = (2 * shared.goal).min(num as usize);
        }
        if left <= (low as usize).min(shared.goal - shared.goal.div_ceil(4)) {
            self.fill_shared(lane);
        }
    }

    /// Posts shared receives up to the goal, as far as vbufs go.
    fn fill_shared(&mut self, lane: usize) {
        let Some(Shared { srq, goal }) = self.shared[lane] else { return };
        for _ in self.engine.srq_len(srq)..goal {
            let Some(mut vbuf) = self.receive_pools[lane].take(&self.engine) else {
                self.receives_are_missing = true;
                return;
            };
            vbuf.reset();
            if let Err(refused) = self.engine.post_srq_recv(srq, name_of(lane, ANYBODY), vbuf) {
                return self.receive_pools[lane].give(refused.request);
            }
        }
    }

    /// A vbuf that was kept is free: whoever lacks a receive has it.
    pub(crate) fn give_receive_vbuf(&mut self, lane: usize, vbuf: Buffer) {
        self.receive_pools[lane].give(vbuf);
        // It may have been the last one: where a peer has ended nothing else posts it again.
        self.top_up(lane);
        if self.receives_are_missing {
            self.replace_missing();
        }
    }

    #[cold]
    pub(crate) fn replace_missing(&mut self) {
        self.receives_are_missing = false;
        for lane in 0..self.queues.len() {
            self.fill_shared(lane);
        }
        for rank in 0..self.size {
            for lane in 0..self.endpoint(rank).map_or(0, |endpoint| endpoint.lanes.len()) {
                let missing =
                    self.endpoint(rank).map_or(0, |endpoint| std::mem::take(&mut endpoint.lanes[lane].missing));
                for _ in 0..missing {
                    let vbuf = self.receive_pools[lane].take(&self.engine);
                    self.add_receive(rank, lane, vbuf);
                }
                if missing > 0 {
                    self.post_pending(rank, lane, true);
                    self.return_credits(rank);
                }
            }
        }
    }

    /// Vbufs are to be made for receives whose own are kept: without much memory the application needs the rest.
    #[cold]
    pub(crate) fn mind_memory(&mut self) {
        self.is_withholding |= self.free_bytes() < self.memory_floor;
    }

    /// Unexpected messages take less memory: credits that were kept back are given.
    pub(crate) fn release_withheld(&mut self) {
        if !self.is_withholding || self.matching.unexpected_bytes() > self.unexpected_limit / 2 {
            return;
        }
        self.is_withholding = false;
        for rank in 0..self.size {
            if let Some(endpoint) = self.endpoint(rank) {
                for lane in &mut endpoint.lanes {
                    lane.credits.release_withheld();
                    lane.credits.settle(lane.unposted.len() + lane.missing);
                }
                self.return_credits(rank);
            }
        }
    }
}

impl Endpoint {
    /// Bytes of the receives that are this peer's alone.
    pub(crate) fn receive_bytes(&self) -> usize {
        let of_lane = |lane: &crate::core::peer::Lane| {
            let count = lane.posted + lane.unposted.len();
            if lane.is_shared { 0 } else { count * (lane.payload + roci_protocol::msg::LEN) }
        };
        self.lanes.iter().map(of_lane).sum()
    }
}
