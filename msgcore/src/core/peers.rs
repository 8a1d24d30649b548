//! The table of peers.

use hashbrown::HashMap;
use roci_driver::QueuePair;

use super::peer::{Peer, PeerId};

/// All peers, and whose each queue pair is.
#[derive(Debug)]
pub(crate) struct Peers {
    slots: Vec<Option<Box<Peer>>>,
    /// The peer and lane of a queue pair.
    by_qp: HashMap<QueuePair, (PeerId, usize)>,
    /// The slot that is this end itself.
    oneself: PeerId,
    /// Peers that are gone.
    gone: usize,
    /// Peers that have been connected or are gone.
    known: usize,
}

impl Peers {
    /// A table for `count` ends, this one among them.
    pub(crate) fn new(oneself: PeerId, count: usize) -> Self {
        Self { slots: (0..count).map(|_| None).collect(), by_qp: HashMap::new(), oneself, gone: 0, known: 0 }
    }

    /// Returns how many ends there are, this one among them.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns this end's own slot.
    pub(crate) fn oneself(&self) -> PeerId {
        self.oneself
    }

    /// Returns a peer that something was done with, gone or not.
    #[inline]
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.slots.get(id.slot())?.as_deref().filter(|peer| peer.id == id)
    }

    /// Returns a peer that something was done with, gone or not.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.at_mut(id.slot()).filter(|peer| peer.id == id)
    }

    /// Returns the peer that has a slot, gone or not.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<&mut Peer> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// Whether there is such an end, this one among them.
    pub(crate) fn has(&self, id: PeerId) -> bool {
        id.rank().is_some_and(|rank| rank < self.slots.len())
    }

    /// Returns the peer that has a slot, unless it is gone.
    #[inline]
    pub(crate) fn live_at_mut(&mut self, slot: usize) -> Option<&mut Peer> {
        self.at_mut(slot).filter(|peer| peer.failure.is_none())
    }

    /// Returns which peer has a slot, where something was done with it.
    #[inline]
    pub(crate) fn id_at(&self, slot: usize) -> Option<PeerId> {
        Some(self.slots.get(slot)?.as_deref()?.id)
    }

    /// Returns a peer that is not gone.
    #[inline]
    pub(crate) fn live_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.get_mut(id).filter(|peer| peer.failure.is_none())
    }

    /// Returns the entry of a peer, made where nothing was done with it yet.
    #[inline]
    pub(crate) fn entry(&mut self, id: PeerId) -> &mut Peer {
        assert!(id != self.oneself, "an end is not its own peer");
        let peer = self.slots[id.slot()].get_or_insert_with(|| Box::new(Peer::new(id)));
        assert!(peer.id == id, "the caller has looked whose the slot is");
        peer
    }

    /// Returns all peers that something was done with.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(Option::as_deref)
    }

    /// Returns all peers that are not gone.
    pub(crate) fn iter_live_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.slots.iter_mut().filter_map(Option::as_deref_mut).filter(|peer| peer.failure.is_none())
    }

    /// The slots of all peers, whether anything was done with them or not.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> + use<> {
        let oneself = self.oneself;
        (0..self.slots.len()).map(PeerId::from).filter(move |&id| id != oneself)
    }

    /// A queue pair is a peer's lane from now on.
    pub(crate) fn bind(&mut self, qp: QueuePair, id: PeerId, lane: usize) {
        self.by_qp.insert(qp, (id, lane));
    }

    /// Returns the peer and lane of a queue pair.
    pub(crate) fn of_qp(&self, qp: QueuePair) -> Option<(PeerId, usize)> {
        self.by_qp.get(&qp).copied()
    }

    /// A peer is connected.
    pub(crate) fn note_connected(&mut self) {
        self.known += 1;
        assert!(self.known < self.slots.len().max(1), "there are no more peers than slots");
    }

    /// A peer is gone, which was connected before, or not.
    pub(crate) fn note_gone(&mut self, was_connected: bool) {
        self.gone += 1;
        self.known += usize::from(!was_connected);
        assert!(self.gone <= self.known, "who is gone is known");
    }

    /// There were peers, and all of them are gone.
    pub(crate) fn is_deserted(&self) -> bool {
        self.slots.len() > 1 && self.gone == self.slots.len() - 1
    }

    /// Whether every peer has been connected, or is gone.
    pub(crate) fn are_all_known(&self) -> bool {
        self.known == self.slots.len() - 1
    }
}
