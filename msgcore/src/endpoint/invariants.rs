//! What must hold whatever happens, as far as one end can see it. Tests ask for it between any two calls.

use roci_driver::link::Link;

use crate::Rank;
use crate::core::peer::{Endpoint, Lane, SEND_QUEUE};
use crate::receive_queues::{Kind, ReceiveQueue};
use crate::worker::Worker;

/// The account of one receive queue of a connection, as one of its ends keeps it. While nothing is under way, what one
/// end may send and what the other has not given back are together what the other granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditAccount {
    /// What the peer granted.
    pub granted: u16,
    /// Messages that may be sent.
    pub available: u16,
    /// What was granted to the peer.
    pub limit: u16,
    /// What the peer has spent and was not given back yet.
    pub kept: u16,
}

impl<L: Link> Worker<L> {
    /// The credits of each receive queue of a connection; nothing where there is none.
    pub fn credits_of(&self, rank: Rank) -> Vec<CreditAccount> {
        let lanes = self.endpoints.get(rank).and_then(Option::as_deref).map_or(&[][..], |endpoint| &endpoint.lanes);
        lanes.iter().map(|lane| lane.credits.account()).collect()
    }

    /// Bytes of the arena that the worker's own buffers for messages take, wherever those are.
    pub fn vbuf_bytes(&self) -> usize {
        self.receive_pools.iter().chain(&self.send_pools).map(crate::core::vbuf::Pool::bytes).sum()
    }

    /// Verifies what this end can see of its own promises; says which one is broken.
    ///
    /// # Panics
    /// Where the engine breaks one of its own.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.engine.check();
        let (count, bytes) = (self.matching.unexpected_len(), self.matching.unexpected_bytes());
        ensure((count == 0) == (bytes == 0), || format!("{count} unexpected messages take {bytes} bytes"))?;
        ensure(self.regions <= self.region_limit, || format!("{} regions are open", self.regions))?;
        for pool in self.receive_pools.iter().chain(&self.send_pools) {
            ensure(pool.is_sound(), || format!("more vbufs are free than exist: {pool:?}"))?;
        }
        for (rank, endpoint) in self.endpoints.iter().enumerate() {
            if let Some(endpoint) = endpoint.as_deref().filter(|endpoint| endpoint.failure.is_none()) {
                self.check_peer(endpoint).map_err(|what| format!("rank {}, peer {rank}: {what}", self.rank))?;
            }
        }
        Ok(())
    }

    fn check_peer(&self, endpoint: &Endpoint) -> Result<(), String> {
        for (index, (lane, queue)) in endpoint.lanes.iter().zip(&self.queues).enumerate() {
            check_lane(lane, queue, endpoint.stage.has_terms()).map_err(|what| format!("lane {index}: {what}"))?;
        }
        Ok(())
    }
}

fn check_lane(lane: &Lane, queue: &ReceiveQueue, has_terms: bool) -> Result<(), String> {
    let account = lane.credits.account();
    let CreditAccount { granted, available, limit, kept } = account;
    ensure(available <= granted && kept <= limit, || format!("credits out of thin air: {account:?}"))?;
    ensure(lane.in_flight <= SEND_QUEUE, || format!("{} work requests are posted", lane.in_flight))?;
    let Kind::PerPeer { num, reserve, .. } = queue.kind else { return Ok(()) };
    let (all, posted) = ((num + reserve) as usize, lane.posted);
    let idle = lane.unposted.len() + lane.missing;
    // One more for the peer's terms, while they have not come.
    ensure(posted + idle <= all + usize::from(!has_terms), || format!("{posted} receives and {idle} of {all}"))?;
    // Receives that were filled and not looked at yet are in neither number, nor are their credits.
    ensure(idle <= usize::from(kept), || format!("{idle} receives are not posted, and {kept} credits not given"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
