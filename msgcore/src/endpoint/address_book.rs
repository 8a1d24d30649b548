//! Which peer is where.

use hashbrown::HashMap;

use super::address::{EndpointAddress, ServicePoint};
use crate::core::peer_id::PeerId;

/// The addresses of all peers, and this end's own.
#[derive(Debug)]
pub(crate) struct AddressBook {
    own: EndpointAddress,
    /// By slot.
    entries: Vec<Option<BookEntry>>,
    by_place: HashMap<ServicePoint, PeerId>,
    /// Peers that have come by themselves, and that the application has not inserted.
    unknown: usize,
}

#[derive(Clone, Copy, Debug)]
struct BookEntry {
    id: PeerId,
    address: EndpointAddress,
    /// The application knows it.
    is_inserted: bool,
}

impl AddressBook {
    /// The addresses of the ranks of a job, which have these.
    pub(crate) fn of_ranks(oneself: PeerId, addresses: Vec<EndpointAddress>) -> Self {
        let mut book = Self::alone(addresses[oneself.slot()]);
        for (rank, address) in addresses.into_iter().enumerate() {
            book.insert(rank.into(), address, true);
        }
        book
    }

    /// No addresses but this end's own.
    pub(crate) fn alone(own: EndpointAddress) -> Self {
        Self { own, entries: Vec::new(), by_place: HashMap::new(), unknown: 0 }
    }

    /// Returns this end's own address.
    pub(crate) fn own(&self) -> EndpointAddress {
        self.own
    }

    /// Returns where a peer is.
    pub(crate) fn address(&self, id: PeerId) -> Option<EndpointAddress> {
        self.entry(id).map(|entry| entry.address)
    }

    /// Returns the peer that is at a place, and its address.
    pub(crate) fn at(&self, place: ServicePoint) -> Option<(PeerId, EndpointAddress)> {
        let id = *self.by_place.get(&place)?;
        Some((id, self.address(id)?))
    }

    /// Returns how many peers have come by themselves, and were not inserted.
    pub(crate) fn unknown(&self) -> usize {
        self.unknown
    }

    /// Whether the application has not inserted a peer.
    pub(crate) fn is_unknown(&self, id: PeerId) -> bool {
        self.entry(id).is_some_and(|entry| !entry.is_inserted)
    }

    /// A peer is at an address.
    pub(crate) fn insert(&mut self, id: PeerId, address: EndpointAddress, is_inserted: bool) {
        if self.entries.len() <= id.slot() {
            self.entries.resize(id.slot() + 1, None);
        }
        assert!(self.entries[id.slot()].is_none(), "a slot is one peer's");
        self.entries[id.slot()] = Some(BookEntry { id, address, is_inserted });
        self.by_place.insert(address.place(), id);
        self.unknown += usize::from(!is_inserted);
    }

    /// The application knows a peer from now on.
    pub(crate) fn adopt(&mut self, id: PeerId) {
        let entry = self.entries.get_mut(id.slot()).and_then(Option::as_mut);
        let entry = entry.filter(|entry| entry.id == id).expect("it has an address");
        self.unknown -= usize::from(!entry.is_inserted);
        entry.is_inserted = true;
    }

    /// A place is not this peer's any more, but its slot still is.
    pub(crate) fn vacate(&mut self, id: PeerId) {
        if let Some(address) = self.address(id)
            && self.by_place.get(&address.place()) == Some(&id)
        {
            self.by_place.remove(&address.place());
        }
    }

    /// Forgets a peer.
    pub(crate) fn remove(&mut self, id: PeerId) {
        self.vacate(id);
        if let Some(entry) = self.entry(id) {
            self.unknown -= usize::from(!entry.is_inserted);
            self.entries[id.slot()] = None;
        }
    }

    /// Whether it agrees with itself.
    pub(crate) fn is_sound(&self) -> bool {
        let unknown = self.entries.iter().flatten().filter(|entry| !entry.is_inserted).count();
        let is_there =
            |(place, &id): (&ServicePoint, &PeerId)| self.address(id).is_some_and(|address| address.place() == *place);
        unknown == self.unknown && self.by_place.iter().all(is_there)
    }

    fn entry(&self, id: PeerId) -> Option<BookEntry> {
        self.entries.get(id.slot()).copied().flatten().filter(|entry| entry.id == id)
    }
}
