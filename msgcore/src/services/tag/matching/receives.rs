//! Receives that wait for a message: MPI's posted receive queue.

use super::bins::Bins;
use super::entries::{List, Unordered};
use super::{MatchLabel, Pattern};
use crate::{Rank, Source};

/// A receive that was posted, as the application names it to take it back. A name outlives its receive without
/// harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Receive<R> {
    pattern: Pattern,
    /// Receives posted before it, ever: decides between a bin and the list of wildcards.
    sequence: u64,
    name: R,
}

#[derive(Debug)]
pub(super) struct PostedReceives<R> {
    entries: Unordered<Receive<R>>,
    exact: Bins,
    wild: List,
    posted: u64,
}

impl<R> Default for PostedReceives<R> {
    fn default() -> Self {
        Self { entries: Unordered::default(), exact: Bins::default(), wild: List::default(), posted: 0 }
    }
}

impl<R: Copy> PostedReceives<R> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn post(&mut self, pattern: Pattern, name: R) -> Posted {
        let index = self.entries.push(Receive { pattern, sequence: self.posted, name });
        self.posted += 1;
        match pattern.exact() {
            Some(label) => self.exact.append(&mut self.entries, label, index),
            None => self.entries.append(&mut self.wild, index),
        }
        Posted { index, generation: self.entries.generation(index) }
    }

    /// The receive posted first among all that take the message.
    #[inline]
    pub(super) fn take(&mut self, label: &MatchLabel) -> Option<R> {
        self.take_if(label, |_| true)
    }

    /// The same, where `meets` says so; else it stays where it is.
    #[inline]
    pub(super) fn take_if(&mut self, label: &MatchLabel, meets: impl FnOnce(R) -> bool) -> Option<R> {
        let exact = self.exact.head(label);
        if let Some(index) = self.wild_before(exact, label) {
            return if meets(self.entries.get(index)?.name) { self.remove(index) } else { None };
        }
        let index = exact?;
        if !meets(self.entries.get(index)?.name) {
            return None;
        }
        self.exact.detach(&mut self.entries, *label, index);
        self.entries.remove(index).map(|receive| receive.name)
    }

    pub(super) fn cancel(&mut self, posted: Posted) -> Option<R> {
        self.entries.get(posted.index)?;
        if self.entries.generation(posted.index) != posted.generation {
            return None;
        }
        self.remove(posted.index)
    }

    /// Removes the receives that only `rank` could have met.
    pub(super) fn forget(&mut self, rank: Rank) -> Vec<R> {
        self.remove_all(|pattern| pattern.source == Source::Rank(rank))
    }

    pub(super) fn drain(&mut self, oneself: Rank) -> Vec<R> {
        self.remove_all(|pattern| pattern.source != Source::Rank(oneself))
    }

    pub(super) fn pattern_of(&self, posted: Posted) -> Option<Pattern> {
        let receive = self.entries.get(posted.index)?;
        (self.entries.generation(posted.index) == posted.generation).then_some(receive.pattern)
    }

    pub(super) fn drain_wildcards(&mut self) -> Vec<R> {
        self.remove_all(|pattern| pattern.source == Source::Any)
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = Source> {
        self.entries.occupied().map(|(_, receive)| receive.pattern.source)
    }

    #[cfg(test)]
    pub(super) fn footprint(&self) -> [usize; 3] {
        [self.entries.slots(), self.exact.len(), self.exact.capacity()]
    }

    /// The first receive with a wildcard that takes the message and was posted before `exact`.
    fn wild_before(&self, exact: Option<u32>, label: &MatchLabel) -> Option<u32> {
        if self.wild.is_empty() {
            return None;
        }
        let end = exact.and_then(|index| self.entries.get(index)).map_or(u64::MAX, |receive| receive.sequence);
        let mut earlier = self.entries.iter_list(self.wild).take_while(|(_, receive)| receive.sequence < end);
        earlier.find(|(_, receive)| receive.pattern.takes(label)).map(|(index, _)| index)
    }

    fn remove(&mut self, index: u32) -> Option<R> {
        match self.entries.get(index)?.pattern.exact() {
            Some(label) => self.exact.detach(&mut self.entries, label, index),
            None => self.entries.detach(&mut self.wild, index),
        }
        self.entries.remove(index).map(|receive| receive.name)
    }

    /// Removes the receives that are over, and returns them in the order of posting.
    fn remove_all(&mut self, is_over: impl Fn(&Pattern) -> bool) -> Vec<R> {
        let over = self.entries.occupied().filter(|(_, receive)| is_over(&receive.pattern));
        let mut over: Vec<_> = over.map(|(index, receive)| (receive.sequence, index)).collect();
        over.sort_unstable();
        over.into_iter().filter_map(|(_, index)| self.remove(index)).collect()
    }
}
