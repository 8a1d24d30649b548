//! Peers that are no ranks: they are inserted by their address, or come by themselves, and go.
//!
//! A peer that was inserted and has failed stays failed until it is removed, so that what the application does with it next ends with
//! the reason. One that was not is forgotten soon, or when its last message is taken. Who comes from its address later is another
//! peer, and so is who is inserted at it. A peer that has removed this end and inserted it again says so by its *session*
//! (`AddressBook`), should the word that it has gone be lost. A slot is used again once nothing that is named after it is
//! under way.

use roci_driver::link::Link;
use roci_protocol::Nanos;
use thiserror::Error;

use super::Endpoint;
use super::address::{BadEndpointAddress, EndpointAddress};
use super::wireup::Meant;
use crate::core::completion::OpError;
use crate::core::lane::SEND_QUEUE;
use crate::core::no_connection::NoConnection;
use crate::core::peer_id::PeerId;
use crate::core::refused::CallError;
use crate::receive_queues::{Kind, ReceiveQueues};

/// Peers that may be inserted: each takes a few hundred bytes before it is connected.
const INSERTED_LIMIT: usize = 1 << 20;

/// Time between two looks at all messages, for those of peers that have gone.
const DEPARTED_LOOK: Nanos = 1_000_000;

/// Peers that are no ranks and have gone.
#[derive(Default)]
pub(super) struct LeavingPeers {
    /// Those that are named no more, and have work requests under way.
    retired: Vec<PeerId>,
    /// Those that had come by themselves, and whose messages wait.
    departed: Vec<PeerId>,
    /// When their messages were last looked for.
    looked_at: Nanos,
}

impl LeavingPeers {
    /// Whether messages wait of peers that have gone.
    pub(super) fn are_any_departed(&self) -> bool {
        !self.departed.is_empty()
    }
}

/// Why an address was not inserted.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The peers of a rank are the ranks of its job.
    #[error("a rank of a job has no peers but its ranks: open a worker alone")]
    Rank,
    /// The address is this end's own, but of an endpoint that was here before.
    #[error("the endpoint of {0} is gone: this one has its address")]
    Replaced(EndpointAddress),
    /// There are as many peers as there may be.
    #[error("{0} peers were inserted already: remove some of them first")]
    TooMany(usize),
    /// It is no address.
    #[error(transparent)]
    Address(#[from] BadEndpointAddress),
    /// The worker is the parent's.
    #[error("this process was forked from the worker's, whose peers stay with that one")]
    Forked,
    /// The thread of a dedicated worker has ended.
    #[error("the worker's thread is gone")]
    EngineGone,
}

impl<L: Link> Endpoint<L> {
    /// Returns the peer at an address. It is another one than before where the one before has failed, or another endpoint was
    /// there.
    ///
    /// # Errors
    /// There can be no such peer.
    pub(crate) fn insert(&mut self, address: EndpointAddress) -> Result<PeerId, InsertError> {
        let (own, address) = (self.wireup.book.own(), address.check()?);
        if self.is_forked() {
            return Err(InsertError::Forked);
        } else if !self.peers.may_strangers_come() {
            return Err(InsertError::Rank);
        } else if address == own {
            return Ok(self.peers.oneself());
        } else if address.place() == own.place() {
            return Err(InsertError::Replaced(address));
        }
        self.insert_stranger(address)
    }

    fn insert_stranger(&mut self, address: EndpointAddress) -> Result<PeerId, InsertError> {
        let before = self.wireup.book.at(address.place());
        if let Some((id, there)) = before
            && there == address
            && self.peers.live_mut(id).is_some()
        {
            self.wireup.book.adopt(id);
            return Ok(id);
        }
        self.release_retired();
        if self.peers.slots() > INSERTED_LIMIT {
            return Err(InsertError::TooMany(INSERTED_LIMIT));
        }
        if let Some((id, _)) = before {
            self.fail_peer(id, OpError::PeerReplaced { peer: id });
            self.wireup.book.vacate(id);
        }
        let id = self.peers.add();
        self.wireup.book.insert(id, address, true);
        self.make_room_for_peers();
        Ok(id)
    }

    /// Forgets a peer: what is under way with it ends with an error that names it, and what it has sent and was not received is
    /// discarded.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn remove(&mut self, id: PeerId) -> Result<(), CallError> {
        if self.is_forked() {
            return Err(CallError::Forked);
        }
        if id.rank().is_some() || self.wireup.book.address(id).is_none() {
            return Err(CallError::NoPeer(id));
        }
        self.wireup.book.adopt(id);
        self.fail_peer(id, OpError::PeerRemoved { peer: id });
        let Self { core, services, .. } = self;
        services.tag.discard_all_of(core, id);
        self.retire(id);
        self.settle();
        Ok(())
    }

    /// Returns the peer that speaks from an address to this end, over texts that somebody carries.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn identify(&mut self, from: EndpointAddress, meant: Meant) -> Result<PeerId, NoConnection> {
        let identified = self.with_method(|_, site| site.identify(from, meant));
        self.welcome_strangers();
        identified
    }

    /// Sees to those that have come while a wire-up method was at work.
    pub(super) fn welcome_strangers(&mut self) {
        let Some((admitted, replaced)) = self.wireup.take_arrivals(self.core.engine.now()) else { return };
        self.core.stats.unknown_admitted += admitted as u64;
        self.make_room_for_peers();
        for id in replaced {
            self.fail_peer(id, OpError::PeerReplaced { peer: id });
        }
    }

    /// A peer has failed that the application never inserted, and will not remove. What has come from it stays, and so does the
    /// peer while any of it does: it counts among those that may come, so that none leaves more than its credits were for.
    pub(super) fn retire_unknown(&mut self, id: PeerId) {
        if !self.wireup.book.is_unknown(id) {
            return;
        }
        if self.services.tag.matching.has_messages_of(id) {
            self.wireup.book.vacate(id);
            self.leaving.departed.push(id);
        } else {
            self.retire(id);
        }
    }

    /// Retires those that have gone and whose last message was taken. Takes a look at each message that waits, and so only now and then:
    /// by time and not by calls, since others may wait for the place of one that has gone.
    pub(super) fn retire_departed(&mut self) {
        if !self.leaving.are_any_departed() {
            return;
        }
        let now = self.core.engine.now();
        if now.saturating_sub(self.leaving.looked_at) < DEPARTED_LOOK {
            return;
        }
        self.leaving.looked_at = now;
        let left = self.services.tag.matching.senders();
        for id in self.leaving.departed.extract_if(.., |id| !left.contains(id)).collect::<Vec<_>>() {
            // It may have been removed meanwhile.
            if self.wireup.book.is_unknown(id) {
                self.retire(id);
            }
        }
    }

    /// A peer is named no more, and gives up its slot when nothing of it is under way.
    fn retire(&mut self, id: PeerId) {
        self.wireup.book.remove(id);
        self.leaving.retired.push(id);
    }

    /// Gives the slots of peers that were retired, and whose work requests have all ended, to others.
    pub(super) fn release_retired(&mut self) {
        let Self { core, peers, services, leaving, wireup, .. } = self;
        leaving.retired.retain(|&id| {
            let peer = peers.get_mut(id).expect("it has its slot still");
            if !peer.is_at_rest() {
                return true;
            }
            wireup.locality.part_from(core, peer);
            services.on_slot_released(core, id);
            peers.release(id);
            false
        });
    }

    /// There are more peers than before: each has its place in the tables of services, and its completions a place in the queue.
    fn make_room_for_peers(&mut self) {
        self.services.make_room(self.peers.slots());
        let room = completions_of(&self.core.receives.queues, self.peers.slots());
        self.core.engine.resize_cq(self.core.cq, room);
    }
}

/// Returns how many completions there may be at once, of so many ends.
pub(super) fn completions_of(queues: &ReceiveQueues, ends: usize) -> usize {
    let peers = ends.saturating_sub(1);
    let of_queue = |kind: Kind| match kind {
        Kind::PerPeer { num, reserve, .. } => peers * (SEND_QUEUE + num as usize + reserve as usize + 1),
        // Receives that were filled wait to be looked at while others are posted in their stead; and each peer may have
        // taken one for a message that has not come whole.
        Kind::Shared { num, .. } => peers * (SEND_QUEUE + 1) + 2 * num as usize,
    };
    queues.iter().map(|queue| of_queue(queue.kind)).sum()
}
