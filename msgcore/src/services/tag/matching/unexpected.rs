//! Messages that wait for a receive.

use super::bins::Bins;
use super::entries::Entries;
use super::{Label, Pattern};
use crate::Rank;

#[derive(Debug)]
struct Message<M> {
    label: Label,
    cost: usize,
    body: M,
}

#[derive(Debug)]
pub(super) struct Unexpected<M> {
    /// In the order of their arrival, which is what a wildcard looks at.
    entries: Entries<Message<M>>,
    bins: Bins,
    bytes: usize,
}

impl<M> Default for Unexpected<M> {
    fn default() -> Self {
        Self { entries: Entries::default(), bins: Bins::default(), bytes: 0 }
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

    pub(super) fn keep(&mut self, label: Label, cost: usize, body: M) {
        let index = self.entries.push(Message { label, cost, body });
        self.bins.append(&mut self.entries, label, index);
        self.bytes += cost;
    }

    /// The message that came first among all that the pattern takes.
    pub(super) fn take(&mut self, pattern: &Pattern) -> Option<(Label, M)> {
        let index = self.find(pattern)?;
        self.remove(index)
    }

    pub(super) fn peek(&self, pattern: &Pattern) -> Option<(Label, &M)> {
        let message = self.entries.get(self.find(pattern)?)?;
        Some((message.label, &message.body))
    }

    /// The newest of the sender's messages that `is_it` accepts: a send is cancelled soon, or in vain.
    pub(super) fn withdraw(&mut self, source: Rank, mut is_it: impl FnMut(&M) -> bool) -> Option<(Label, M)> {
        let is_it = |(_, message): &(_, &Message<M>)| message.label.source == source && is_it(&message.body);
        let (index, _) = self.entries.iter_newest_first().find(is_it)?;
        self.remove(index)
    }

    /// Drops the messages from `rank` that are lost with it.
    pub(super) fn forget(&mut self, rank: Rank, mut is_lost: impl FnMut(&M) -> bool) {
        let mut next = self.entries.next(None);
        while let Some(index) = next {
            next = self.entries.next(Some(index));
            let message = self.entries.get(index);
            if message.is_some_and(|message| message.label.source == rank && is_lost(&message.body)) {
                self.remove(index);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn footprint(&self) -> [usize; 3] {
        [self.entries.slots(), self.bins.len(), self.bins.capacity()]
    }

    fn find(&self, pattern: &Pattern) -> Option<u32> {
        match pattern.exact() {
            Some(label) => self.bins.head(&label),
            None => self.entries.iter().find(|(_, message)| pattern.takes(&message.label)).map(|(index, _)| index),
        }
    }

    fn remove(&mut self, index: u32) -> Option<(Label, M)> {
        let label = self.entries.get(index)?.label;
        self.bins.detach(&mut self.entries, label, index);
        let message = self.entries.remove(index)?;
        self.bytes -= message.cost;
        Some((label, message.body))
    }
}
