//! A rank: its engine, and an application that puts and gets.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_protocol::Rkey;

use super::broken::BrokenPromise;
use super::costs;
use super::host::Host;
use super::plan::Plan;
use crate::Rank;
use crate::services::rma::firehose::{Bucket, Failed, FirehoseEngine, Grain, Hold, Limits, PinError, Span};

/// Bytes of a bucket, which nothing in the world depends on.
const BUCKET: u64 = 4096;

/// An RDMA that is to land at a peer.
pub(super) struct Landing {
    pub(super) peer: Rank,
    pub(super) transfer: u64,
    pub(super) bucket: Bucket,
    pub(super) key: Rkey,
}

/// A put or a get.
struct RmaTransfer {
    peer: Rank,
    span: Span,
    hold: Option<Hold>,
    /// RDMAs that have not been acknowledged.
    unacknowledged: usize,
}

pub(super) struct Station {
    pub(super) engine: FirehoseEngine,
    pub(super) host: Host,
    pub(super) landings: Vec<Landing>,
    /// When its processor has done all that it was given.
    pub(super) busy_until: u64,
    pub(super) complete: u64,
    pub(super) failed: u64,
    me: Rank,
    plan: Plan,
    dice: StdRng,
    begun: u64,
    transfers: BTreeMap<u64, RmaTransfer>,
    /// Peers that are there.
    peers: Vec<Rank>,
}

impl Station {
    pub(super) fn new(plan: Plan, me: Rank) -> Self {
        let grain = Grain::new(BUCKET).expect("a power of two");
        let limits = Limits::exact(grain, plan.firehoses, plan.victims);
        let mut dice = StdRng::seed_from_u64(plan.seed ^ (me as u64 + 1) << 40);
        let host = Host::new(plan.segment(), plan.refused_percent, StdRng::from_rng(&mut dice));
        Self {
            engine: FirehoseEngine::new(limits),
            host,
            landings: Vec::new(),
            busy_until: 0,
            complete: 0,
            failed: 0,
            me,
            plan,
            dice,
            begun: 0,
            transfers: BTreeMap::new(),
            peers: (0..plan.ranks).filter(|&peer| peer != me).collect(),
        }
    }

    /// Begins transfers until so many are under way as the plan says.
    pub(super) fn begin(&mut self) -> Result<(), BrokenPromise> {
        while self.transfers.len() < self.plan.depth && self.begun < self.plan.transfers && !self.peers.is_empty() {
            let peer = self.peers[self.dice.random_range(0..self.peers.len())];
            let count = self.dice.random_range(1..=self.plan.longest);
            let span = self.span(self.plan.first_bucket(self.me), self.plan.working_set, count);
            let context = self.begun;
            self.begun += 1;
            let transfer = RmaTransfer { peer, span, hold: None, unacknowledged: 0 };
            self.transfers.insert(context, transfer);
            self.acquire(context)?;
        }
        Ok(())
    }

    /// So many buckets out of a set, though rarely all their bytes.
    fn span(&mut self, first: u64, set: u64, count: u64) -> Span {
        let first = first + self.dice.random_range(0..=set - count);
        let (skip, cut) = (self.dice.random_range(0..BUCKET / 2), self.dice.random_range(0..BUCKET / 2));
        Span { va: first * BUCKET + skip, len: count * BUCKET - skip - cut }
    }

    /// First the peer's memory ...
    fn acquire(&mut self, context: u64) -> Result<(), BrokenPromise> {
        let RmaTransfer { peer, span, .. } = self.transfers[&context];
        let share = self.engine.limits().share();
        match self.engine.acquire(&mut self.host, peer.into(), share, span, context) {
            Ok(Some(hold)) => self.transfer(context, hold),
            Ok(None) => Ok(()),
            Err(error) => Err(BrokenPromise::NotBegun { rank: self.me, error }),
        }
    }

    /// ... then the transfer.
    fn transfer(&mut self, context: u64, hold: Hold) -> Result<(), BrokenPromise> {
        let transfer = self.transfers.get_mut(&context).ok_or(BrokenPromise::UnknownEnd)?;
        let peer = transfer.peer;
        let before = self.landings.len();
        let landings = self.engine.pieces(&hold).map(|piece| {
            let bucket = Bucket(piece.span.va / BUCKET);
            Landing { peer, transfer: context, bucket, key: piece.key }
        });
        self.landings.extend(landings);
        transfer.unacknowledged = self.landings.len() - before;
        self.host.cost += costs::POST * transfer.unacknowledged as u64;
        let wanted = (transfer.span.va + transfer.span.len - 1) / BUCKET - transfer.span.va / BUCKET + 1;
        transfer.hold = Some(hold);
        if transfer.unacknowledged as u64 != wanted {
            return Err(BrokenPromise::Keys { rank: self.me, keys: transfer.unacknowledged, wanted });
        }
        Ok(())
    }

    /// What had to wait goes on.
    pub(super) fn go_on(&mut self, context: u64, outcome: Result<Hold, Failed>) -> Result<(), BrokenPromise> {
        match outcome {
            Ok(hold) => self.transfer(context, hold),
            Err(Failed::PeerGone(peer)) if !self.peers.contains(&peer.slot()) => self.fail(context),
            Err(Failed::Refused { reason, .. }) => self.refused(context, reason),
            Err(error) => Err(BrokenPromise::Failed { rank: self.me, error }),
        }
    }

    fn refused(&mut self, context: u64, reason: PinError) -> Result<(), BrokenPromise> {
        if self.plan.refused_percent == 0 {
            return Err(BrokenPromise::Refused { rank: self.me, reason });
        }
        self.fail(context)
    }

    fn fail(&mut self, context: u64) -> Result<(), BrokenPromise> {
        self.failed += 1;
        self.finish(context)
    }

    /// An RDMA is acknowledged.
    pub(super) fn acknowledged(&mut self, context: u64) -> Result<(), BrokenPromise> {
        // Where the peer is gone, all of them have ended at once.
        let Some(transfer) = self.transfers.get_mut(&context) else { return Ok(()) };
        transfer.unacknowledged -= 1;
        if transfer.unacknowledged > 0 {
            return Ok(());
        }
        self.complete += 1;
        self.finish(context)
    }

    fn finish(&mut self, context: u64) -> Result<(), BrokenPromise> {
        let transfer = self.transfers.remove(&context).ok_or(BrokenPromise::SecondEnd)?;
        if let Some(hold) = transfer.hold {
            self.engine.release(&mut self.host, hold);
        }
        Ok(())
    }

    /// A peer is gone: what was on its way to it has ended.
    pub(super) fn peer_gone(&mut self, gone: Rank) -> Result<(), BrokenPromise> {
        self.peers.retain(|&peer| peer != gone);
        self.engine.peer_gone(&mut self.host, gone.into());
        let on_their_way =
            self.transfers.iter().filter(|(_, transfer)| transfer.peer == gone && transfer.hold.is_some());
        let ended: Vec<u64> = on_their_way.map(|(&context, _)| context).collect();
        ended.into_iter().try_for_each(|context| self.fail(context))
    }

    pub(super) fn knows(&self, peer: Rank) -> bool {
        self.peers.contains(&peer)
    }

    /// All that it was to do has ended.
    pub(super) fn check_end(&self) -> Result<(), BrokenPromise> {
        let (rank, open) = (self.me, self.transfers.len());
        let is_done = self.begun == self.plan.transfers || self.peers.is_empty();
        if open > 0 || !is_done || self.complete + self.failed != self.begun {
            let (complete, failed) = (self.complete, self.failed);
            return Err(BrokenPromise::NeverEnds { rank, open, complete, failed });
        }
        Ok(())
    }
}
