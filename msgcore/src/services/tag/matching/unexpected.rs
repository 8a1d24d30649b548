//! Messages that wait for a receive: MPI's unexpected message queue. What there is of each is `stored::UnexpectedBody`.

use hashbrown::HashMap;

use super::bins::Bins;
use super::class_index::ClassIndexes;
use super::classes::MatchClass;
use super::entries::Entries;
use super::{MatchLabel, Pattern};
use crate::core::peer::PeerId;

#[derive(Debug)]
struct UnexpectedMessage<M> {
    label: MatchLabel,
    /// The sender's name for it, which no other of its messages has.
    name: u64,
    /// Bytes, of which 2^31 and an overhead are the most.
    cost: u32,
    body: M,
}

#[derive(Debug)]
pub(super) struct Unexpected<M> {
    /// In the order of their arrival, which is what a wildcard looks at.
    entries: Entries<UnexpectedMessage<M>>,
    bins: Bins,
    bytes: usize,
    /// By sender and name, from the first cancel on until there are no messages: who cancels one often cancels many.
    by_name: Option<HashMap<(PeerId, u64), u32>>,
    /// By what patterns with wildcards and ignore masks leave of labels, where a walk would be long.
    by_class: ClassIndexes,
    #[cfg(test)]
    pub(super) indexed: usize,
}

/// Messages that a pattern with a wildcard looks at one after the other; an index is worth it where there are more.
const WALK: usize = if cfg!(test) { 3 } else { 32 };

impl<M> Default for Unexpected<M> {
    fn default() -> Self {
        Self {
            entries: Entries::default(),
            bins: Bins::default(),
            bytes: 0,
            by_name: None,
            by_class: ClassIndexes::default(),
            #[cfg(test)]
            indexed: 0,
        }
    }
}

impl<M> Unexpected<M> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the messages cost together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn keep(&mut self, label: MatchLabel, name: u64, cost: usize, body: M) {
        let cost = u32::try_from(cost).expect("a message is no longer than 2 GiB");
        let index = self.entries.push(UnexpectedMessage { label, name, cost, body });
        self.bins.append(&mut self.entries, label, index);
        self.bytes += cost as usize;
        if self.is_indexed() {
            self.enter_indexes(&label, name, index);
        }
    }

    /// Whether there is an index to be kept.
    #[inline]
    fn is_indexed(&self) -> bool {
        self.by_name.is_some() || self.by_class.are_some()
    }

    #[cold]
    fn enter_indexes(&mut self, label: &MatchLabel, name: u64, index: u32) {
        if let Some(by_name) = &mut self.by_name {
            by_name.insert((label.source, name), index);
        }
        self.by_class.enter(label, self.entries.generation(index), index);
    }

    #[cold]
    fn leave_indexes(&mut self, source: PeerId, name: u64) {
        if self.entries.len() == 0 {
            self.by_name = None;
        } else if let Some(by_name) = &mut self.by_name {
            by_name.remove(&(source, name));
        }
        if self.by_class.are_some() {
            self.by_class.note_removed(self.entries.len());
        }
    }

    /// The message that came first among all that the pattern takes.
    pub(super) fn take(&mut self, pattern: &Pattern) -> Option<(MatchLabel, M)> {
        let index = self.find(pattern)?;
        self.remove(index)
    }

    pub(super) fn peek(&mut self, pattern: &Pattern) -> Option<(MatchLabel, &M)> {
        let index = self.find(pattern)?;
        let message = self.entries.get(index)?;
        Some((message.label, &message.body))
    }

    /// The message that its sender names so.
    pub(super) fn withdraw(&mut self, source: PeerId, name: u64) -> Option<(MatchLabel, M)> {
        if self.entries.len() == 0 {
            return None;
        }
        let index = *self.names().get(&(source, name))?;
        self.remove(index)
    }

    fn names(&mut self) -> &HashMap<(PeerId, u64), u32> {
        #[cfg(test)]
        {
            self.indexed += usize::from(self.by_name.is_none());
        }
        let entries = &self.entries;
        self.by_name.get_or_insert_with(|| {
            entries.iter().map(|(index, message)| ((message.label.source, message.name), index)).collect()
        })
    }

    /// Returns the sender of each message.
    pub(super) fn sources(&self) -> impl Iterator<Item = PeerId> {
        self.entries.iter().map(|(_, message)| message.label.source)
    }

    /// Takes all messages of a peer, in the order of their coming.
    pub(super) fn take_all_of(&mut self, peer: PeerId) -> Vec<(MatchLabel, M)> {
        let of_peer = self.entries.iter().filter(|(_, message)| message.label.source == peer).map(|(index, _)| index);
        let indexes: Vec<_> = of_peer.collect();
        indexes.into_iter().filter_map(|index| self.remove(index)).collect()
    }

    /// Drops the messages from `peer` that are lost with it.
    pub(super) fn forget(&mut self, peer: PeerId, mut is_lost: impl FnMut(&M) -> bool) {
        let mut next = self.entries.next(None);
        while let Some(index) = next {
            next = self.entries.next(Some(index));
            let message = self.entries.get(index);
            if message.is_some_and(|message| message.label.source == peer && is_lost(&message.body)) {
                self.remove(index);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn classes(&self) -> usize {
        self.by_class.len()
    }

    #[cfg(test)]
    pub(super) fn indexed_messages(&self) -> usize {
        self.by_class.messages()
    }

    #[cfg(test)]
    pub(super) fn footprint(&self) -> [usize; 3] {
        [self.entries.slots(), self.bins.len(), self.bins.capacity()]
    }

    #[inline]
    fn find(&mut self, pattern: &Pattern) -> Option<u32> {
        match pattern.exact() {
            Some(label) => self.bins.head(&label),
            None if self.entries.len() == 0 => None,
            None => self.find_wild(pattern),
        }
    }

    #[inline(never)]
    fn find_wild(&mut self, pattern: &Pattern) -> Option<u32> {
        let mut oldest = self.entries.iter().take(WALK);
        if let Some((index, _)) = oldest.find(|(_, message)| pattern.takes(&message.label)) {
            return Some(index);
        }
        if self.entries.len() <= WALK {
            return None;
        }
        let entries = &self.entries;
        let waiting = || entries.iter().map(|(index, message)| (message.label, entries.generation(index), index));
        let is_there = |generation, index| entries.get(index).is_some() && entries.generation(index) == generation;
        self.by_class.find(MatchClass::of(pattern), &pattern.key(), waiting, is_there)
    }

    fn remove(&mut self, index: u32) -> Option<(MatchLabel, M)> {
        let label = self.entries.get(index)?.label;
        self.bins.detach(&mut self.entries, &label, index);
        let message = self.entries.remove(index)?;
        self.bytes -= message.cost as usize;
        if self.is_indexed() {
            self.leave_indexes(label.source, message.name);
        }
        Some((label, message.body))
    }
}
