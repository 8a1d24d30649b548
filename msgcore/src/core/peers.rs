//! The table of peers.

use hashbrown::HashMap;
use roci_driver::QueuePair;

use super::completion::OpError;
use super::peer::Peer;
use super::peer_id::PeerId;

/// All peers, and whose each queue pair is. The ranks of a job have their slots from the start; other peers come and go, and a slot
/// that was one's is another's later, of the next generation.
#[derive(Debug)]
pub(crate) struct Peers {
    slots: Vec<PeerSlot>,
    /// Slots that are used by none.
    free: Vec<u32>,
    /// The peer and lane of a queue pair.
    by_qp: HashMap<QueuePair, (PeerId, usize)>,
    ranks: Ranks,
}

/// A peer's, or one that was, or will be.
#[derive(Debug, Default)]
struct PeerSlot {
    /// Of the peer that has it, or had it last.
    generation: u32,
    peer: Option<Box<Peer>>,
}

/// The ranks of the job: this end's own alone where there is none.
#[derive(Debug)]
struct Ranks {
    count: usize,
    oneself: PeerId,
    /// Those that are gone.
    gone: usize,
    /// Those that have been connected or are gone.
    known: usize,
    /// Peers may come that are none.
    may_strangers_come: bool,
}

impl Peers {
    /// A table for a job of `count` ranks, this one among them.
    pub(crate) fn new(oneself: PeerId, count: usize) -> Self {
        let ranks = Ranks { count, oneself, gone: 0, known: 0, may_strangers_come: false };
        let slots = std::iter::repeat_with(PeerSlot::default).take(count).collect();
        Self { slots, free: Vec::new(), by_qp: HashMap::new(), ranks }
    }

    /// A table for peers that are no ranks. This end is rank 0 of a job of one.
    pub(crate) fn of_strangers() -> Self {
        let mut peers = Self::new(PeerId::from(0), 1);
        peers.ranks.may_strangers_come = true;
        peers
    }

    /// Returns how many ranks there are, this one among them.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks.count
    }

    /// Returns how many slots there are, used or not.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether peers may come that are no ranks.
    pub(crate) fn may_strangers_come(&self) -> bool {
        self.ranks.may_strangers_come
    }

    /// Returns this end's own slot.
    pub(crate) fn oneself(&self) -> PeerId {
        self.ranks.oneself
    }

    /// Returns a peer that something was done with, gone or not.
    #[inline]
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.slots.get(id.slot())?.peer.as_deref().filter(|peer| peer.id == id)
    }

    /// Returns a peer that something was done with, gone or not.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.at_mut(id.slot()).filter(|peer| peer.id == id)
    }

    /// Returns the peer that has a slot, gone or not.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<&mut Peer> {
        self.slots.get_mut(slot)?.peer.as_deref_mut()
    }

    /// Returns the peer that has a slot, unless it is gone.
    #[inline]
    pub(crate) fn live_at_mut(&mut self, slot: usize) -> Option<&mut Peer> {
        self.at_mut(slot).filter(|peer| peer.failure.is_none())
    }

    /// Returns which peer has a slot, where something was done with it.
    #[inline]
    pub(crate) fn id_at(&self, slot: usize) -> Option<PeerId> {
        Some(self.slots.get(slot)?.peer.as_deref()?.id)
    }

    /// Returns a peer that is not gone.
    #[inline]
    pub(crate) fn live_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.get_mut(id).filter(|peer| peer.failure.is_none())
    }

    /// Whether there is such an end, this one among them.
    #[inline]
    pub(crate) fn has(&self, id: PeerId) -> bool {
        match id.rank() {
            Some(rank) => rank < self.ranks.count,
            None => self.get(id).is_some_and(|peer| !matches!(peer.failure, Some(OpError::PeerRemoved { .. }))),
        }
    }

    /// Returns the entry of a peer that there is, made where nothing was done with it yet.
    #[inline]
    pub(crate) fn entry(&mut self, id: PeerId) -> &mut Peer {
        assert!(id != self.ranks.oneself, "an end is not its own peer");
        let peer = self.slots[id.slot()].peer.get_or_insert_with(|| Box::new(Peer::new(id)));
        assert!(peer.id == id, "the caller has looked whose the slot is");
        peer
    }

    /// Returns all peers that something was done with.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(|slot| slot.peer.as_deref())
    }

    /// Returns all peers that are not gone.
    pub(crate) fn iter_live_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let peers = self.slots.iter_mut().filter_map(|slot| slot.peer.as_deref_mut());
        peers.filter(|peer| peer.failure.is_none())
    }

    /// Returns the names of all peers, whether anything was done with them or not.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> {
        let name = |(index, slot): (usize, &PeerSlot)| {
            if index < self.ranks.count { Some(index.into()) } else { slot.peer.as_deref().map(|peer| peer.id) }
        };
        self.slots.iter().enumerate().filter_map(name).filter(|&id| id != self.ranks.oneself)
    }

    /// Makes an entry for a peer that is no rank.
    pub(crate) fn add(&mut self) -> PeerId {
        assert!(self.ranks.may_strangers_come, "the peers of a rank are ranks");
        let index = self.free.pop().map_or(self.slots.len(), |slot| slot as usize);
        if index == self.slots.len() {
            self.slots.push(PeerSlot::default());
        }
        let slot = &mut self.slots[index];
        // 0 is for ranks: a slot that was used four thousand million times begins again behind it.
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        let id = PeerId::new(index, slot.generation);
        assert!(slot.peer.is_none(), "a free slot has no peer");
        slot.peer = Some(Box::new(Peer::new(id)));
        id
    }

    /// A peer that is no rank, and of which nothing is under way, gives its slot to the next one.
    pub(crate) fn release(&mut self, id: PeerId) {
        let peer = self.slots[id.slot()].peer.take().expect("it has its slot");
        assert!(
            peer.id == id && id.rank().is_none() && peer.is_at_rest(),
            "nothing that is named after it is under way"
        );
        for lane in &peer.lanes {
            self.by_qp.remove(&lane.qp);
        }
        self.free.push(id.slot() as u32);
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
    pub(crate) fn note_connected(&mut self, id: PeerId) {
        if id.rank().is_some() {
            self.ranks.known += 1;
            assert!(self.ranks.known < self.ranks.count.max(1), "there are no more peers than ranks");
        }
    }

    /// A peer is gone, which was connected before, or not.
    pub(crate) fn note_gone(&mut self, id: PeerId, was_connected: bool) {
        if id.rank().is_some() {
            self.ranks.gone += 1;
            self.ranks.known += usize::from(!was_connected);
            assert!(self.ranks.gone <= self.ranks.known, "who is gone is known");
        }
    }

    /// There were peers, and all of them are gone, and no others can come.
    pub(crate) fn is_deserted(&self) -> bool {
        self.ranks.count > 1 && self.ranks.gone == self.ranks.count - 1
    }

    /// Whether every peer that there may be has been connected, or is gone.
    pub(crate) fn are_all_known(&self) -> bool {
        self.ranks.known == self.ranks.count - 1 && !self.ranks.may_strangers_come
    }
}
