//! Which peer is where.

use std::cmp::Ordering;

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
    /// Entries that were made so far.
    sessions: u64,
    /// Peers that have come by themselves, and that the application has not inserted.
    unknown: usize,
}

#[derive(Clone, Copy, Debug)]
struct BookEntry {
    id: PeerId,
    address: EndpointAddress,
    /// The application knows it.
    is_inserted: bool,
    session: PeerSession,
}

/// Which of the entries that two ends have had for each other they talk by. An end that has removed the other one and inserts it again
/// has another entry, and counts on: so each recognizes that the other begins anew, and what is late of the session before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PeerSession {
    /// The number that the speaker has given its entry, from 1; 0 where it has none.
    pub(crate) ours: u64,
    /// The other end's, as far as the speaker knows it; 0 where that has not spoken yet.
    pub(crate) theirs: u64,
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
        Self { own, entries: Vec::new(), by_place: HashMap::new(), sessions: 0, unknown: 0 }
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
        self.sessions += 1;
        let session = PeerSession { ours: self.sessions, theirs: 0 };
        self.entries[id.slot()] = Some(BookEntry { id, address, is_inserted, session });
        self.by_place.insert(address.place(), id);
        self.unknown += usize::from(!is_inserted);
    }

    /// Returns the session with a peer as far as both ends know it; one with who has no address is none.
    pub(crate) fn session(&self, id: PeerId) -> PeerSession {
        self.entry(id).map_or_else(PeerSession::default, |entry| entry.session)
    }

    /// A peer says what session this is. Returns whether it is the one known, or an older one, or a newer one: then the peer has
    /// forgotten what was before, and so must this end.
    pub(crate) fn check_session(&mut self, id: PeerId, said: PeerSession) -> Ordering {
        let Some(BookEntry { session: known, .. }) = self.entry_mut(id) else { return Ordering::Equal };
        if said.theirs != 0 && said.theirs != known.ours {
            return Ordering::Less;
        }
        if said.ours == 0 {
            return Ordering::Equal;
        }
        if known.theirs == 0 {
            known.theirs = said.ours;
        }
        said.ours.cmp(&known.theirs)
    }

    /// A peer talks to this end in a session of this number.
    pub(crate) fn note_session(&mut self, id: PeerId, theirs: u64) {
        if let Some(entry) = self.entry_mut(id).filter(|_| theirs != 0) {
            entry.session.theirs = theirs;
        }
    }

    /// The application knows a peer from now on.
    pub(crate) fn adopt(&mut self, id: PeerId) {
        let entry = self.entry_mut(id).expect("it has an address");
        let was_inserted = std::mem::replace(&mut entry.is_inserted, true);
        self.unknown -= usize::from(!was_inserted);
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

    fn entry_mut(&mut self, id: PeerId) -> Option<&mut BookEntry> {
        self.entries.get_mut(id.slot())?.as_mut().filter(|entry| entry.id == id)
    }

    fn entry(&self, id: PeerId) -> Option<BookEntry> {
        self.entries.get(id.slot()).copied().flatten().filter(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_begins_anew_is_recognized_and_what_is_late_of_it_too() {
        let address = |service| EndpointAddress { ip: [10, 0, 0, 1].into(), udp_port: 4791, service, incarnation: 5 };
        let mut book = AddressBook::alone(address(1));
        let [first, second] = [PeerId::new(1, 1), PeerId::new(2, 1)];
        book.insert(first, address(2), false);
        let says = |ours, theirs| PeerSession { ours, theirs };
        assert_eq!(book.check_session(first, says(7, 0)), Ordering::Equal, "the first that it says is its own");
        let orders = [6, 7, 8, 7, 0].map(|ours| book.check_session(first, says(ours, 0)));
        assert_eq!(orders, [Ordering::Less, Ordering::Equal, Ordering::Greater, Ordering::Equal, Ordering::Equal]);
        let before = book.session(first);
        assert_eq!((before.theirs, book.check_session(first, says(7, before.ours))), (7, Ordering::Equal));
        book.remove(first);
        assert_eq!(
            (book.session(first), book.check_session(first, says(9, 0))),
            (PeerSession::default(), Ordering::Equal)
        );
        book.insert(second, address(2), true);
        assert!(book.session(second).ours > before.ours && book.is_sound());
        let late = book.check_session(second, says(7, before.ours));
        assert_eq!((late, book.session(second).theirs), (Ordering::Less, 0), "it answers what was said before");
    }
}
