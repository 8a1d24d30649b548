//! What must hold whatever happens, as far as one end can see it. Tests ask for it between any two calls.

use roci_driver::link::Link;
use thiserror::Error;

use super::Endpoint;
use crate::core::credits::CreditAccount;
use crate::core::lane::{Lane, SEND_QUEUE};
use crate::core::peer::PeerId;
use crate::firehose::FirehoseViolation;
use crate::receive_queues::{Kind, ReceiveQueue};

/// A promise that this end does not keep.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvariantViolation {
    /// Messages without a receive and their memory do not fit each other.
    #[error("{count} unexpected messages take {bytes} bytes")]
    Unexpected {
        /// How many there are.
        count: usize,
        /// What they take.
        bytes: usize,
    },
    /// Vbufs with several messages and those of them that have no receive do not fit each other.
    #[error("vbufs with several messages do not fit the messages in them")]
    KeptPackets,
    /// An open packet waits that nothing will post.
    #[error("peers with open packets are not those that are in the list")]
    OpenPackets,
    /// More memory is open to peers than may be.
    #[error("{0} regions are open")]
    Regions(usize),
    /// A pool has more free buffers than were made.
    #[error("more vbufs are free than exist: {0}")]
    Pool(String),
    /// The book of addresses does not agree with itself.
    #[error("the book of addresses does not agree with itself")]
    Addresses,
    /// Messages that multi-receives have taken, and those receives, do not fit each other.
    #[error("messages that multi-receives have taken do not fit those receives")]
    MultiReceives,
    /// What one-sided operations hold at their peers, and what is registered for peers, is not what Firehose counts.
    #[error(transparent)]
    Firehose(#[from] FirehoseViolation),
    /// Memory of peers is held for operations that have ended.
    #[error("memory of peers is held for operations that have ended")]
    Holds,
    /// Operations that are not all transfers yet are not what their peer counts.
    #[error("{0} counts other operations that are not all transfers yet than there are")]
    Partial(PeerId),
    /// Heads and tails of a stream do not fit its ring.
    #[error("heads and tails of a stream do not fit its ring")]
    Stream,
    /// A lane of a peer is wrong.
    #[error("peer {peer}, lane {lane}: {what}")]
    Lane {
        /// Whose.
        peer: PeerId,
        /// Which.
        lane: usize,
        /// What is wrong.
        what: LaneViolation,
    },
}

/// What may be wrong with a lane.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LaneViolation {
    /// Credits that were never granted.
    #[error("credits out of thin air: {0:?}")]
    Credits(CreditAccount),
    /// More is under way than the send queue holds.
    #[error("{0} work requests are posted")]
    InFlight(usize),
    /// There are more receives than the queue has.
    #[error("{posted} receives and {idle} of {all}")]
    Receives {
        /// Those that are posted.
        posted: usize,
        /// Those that are not.
        idle: usize,
        /// How many there are.
        all: usize,
    },
    /// A credit was returned whose receive is not posted.
    #[error("{idle} receives are not posted, and {kept} credits not given")]
    Idle {
        /// Receives that are not posted.
        idle: usize,
        /// Credits that were not returned.
        kept: u16,
    },
}

impl<L: Link> Endpoint<L> {
    /// Returns the credits of each receive queue of a connection; nothing where there is none.
    pub(crate) fn credits_of(&self, id: PeerId) -> Vec<CreditAccount> {
        let lanes = self.peers.get(id).map_or(&[][..], |peer| &peer.lanes);
        lanes.iter().map(|lane| lane.credits.account()).collect()
    }

    /// Verifies what this end can see of its own promises.
    ///
    /// # Errors
    /// The one that is broken.
    ///
    /// # Panics
    /// Where the engine breaks one of its own.
    pub(crate) fn check(&self) -> Result<(), InvariantViolation> {
        self.core.engine.check();
        let (count, bytes) =
            (self.services.tag.matching.unexpected_len(), self.services.tag.matching.unexpected_bytes());
        ensure((count == 0) == (bytes == 0), || InvariantViolation::Unexpected { count, bytes })?;
        ensure(self.services.tag.are_kept_packets_sound(), || InvariantViolation::KeptPackets)?;
        ensure(self.core.are_open_packets_sound(&self.peers), || InvariantViolation::OpenPackets)?;
        ensure(self.core.regions.is_sound(), || InvariantViolation::Regions(self.core.regions.open()))?;
        ensure(self.wireup.book.is_sound(), || InvariantViolation::Addresses)?;
        ensure(self.services.tag.requests.are_pieces_sound(), || InvariantViolation::MultiReceives)?;
        ensure(self.services.stream.is_sound(), || InvariantViolation::Stream)?;
        self.services.rma.check_firehoses()?;
        ensure(self.services.rma.holds_what_it_needs(), || InvariantViolation::Holds)?;
        for pool in self.core.receives.pools.iter().chain(&self.core.send_pools) {
            ensure(pool.is_sound(), || InvariantViolation::Pool(format!("{pool:?}")))?;
        }
        for peer in self.peers.iter().filter(|peer| peer.failure.is_none()) {
            let partial = peer.tx.transfers.partial();
            ensure(self.services.rma.partial(peer.id) == partial, || InvariantViolation::Partial(peer.id))?;
            for (index, (lane, queue)) in peer.lanes.iter().zip(&self.core.receives.queues).enumerate() {
                check_lane(lane, queue, peer.connection.stage().has_terms())
                    .map_err(|what| InvariantViolation::Lane { peer: peer.id, lane: index, what })?;
            }
        }
        Ok(())
    }
}

fn check_lane(lane: &Lane, queue: &ReceiveQueue, has_terms: bool) -> Result<(), LaneViolation> {
    let account = lane.credits.account();
    let CreditAccount { granted, available, limit, kept } = account;
    ensure(available <= granted && kept <= limit, || LaneViolation::Credits(account))?;
    ensure(lane.in_flight.count() <= SEND_QUEUE, || LaneViolation::InFlight(lane.in_flight.count()))?;
    let Kind::PerPeer { num, reserve, .. } = queue.kind else { return Ok(()) };
    let (all, posted) = ((num + reserve) as usize, lane.posted);
    let idle = lane.unposted.len() + lane.missing + lane.kept_with_messages;
    // One more for the peer's terms, while they have not come.
    ensure(posted + idle <= all + usize::from(!has_terms), || LaneViolation::Receives { posted, idle, all })?;
    // Receives that were filled and not looked at yet are in neither number, nor are their credits.
    ensure(idle <= usize::from(kept), || LaneViolation::Idle { idle, kept })
}

fn ensure<E>(holds: bool, violation: impl FnOnce() -> E) -> Result<(), E> {
    if holds { Ok(()) } else { Err(violation()) }
}
