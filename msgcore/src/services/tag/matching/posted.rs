//! Receives that wait for a message: MPI's posted receive queue.

use super::bins::Bins;
use super::classes::MatchClass;
use super::entries::{List, Unordered};
use super::{Encounter, MatchLabel, Pattern};
use crate::Source;
use crate::core::peer_id::PeerId;

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
    /// Receives posted before it, ever: decides between bins, list and classes.
    sequence: u64,
    name: R,
}

#[derive(Debug)]
pub(super) struct PostedReceives<R> {
    entries: Unordered<Receive<R>>,
    exact: Bins,
    /// Receives that leave something open, where few do: walking past them is cheaper than a class.
    list: List,
    listed: usize,
    /// The other ones; a few classes that are empty keep the memory of their bins.
    classes: Vec<ReceiveClass>,
    classed: usize,
    posted: u64,
}

/// Where a receive stands that leaves something open: in the list, or in the class at this place.
#[derive(Clone, Copy, Debug)]
enum Wild {
    Listed(u32),
    Classed(usize, u32),
}

/// The receives of one class that is not exact.
#[derive(Debug)]
struct ReceiveClass {
    class: MatchClass,
    bins: Bins,
}

/// Receives that a message walks past at most.
const WALK: usize = if cfg!(test) { 2 } else { 4 };
/// Classes that are kept where they are empty.
const CLASSES_KEPT: usize = if cfg!(test) { 3 } else { 16 };

impl<R> Default for PostedReceives<R> {
    fn default() -> Self {
        Self {
            entries: Unordered::default(),
            exact: Bins::default(),
            list: List::default(),
            listed: 0,
            classes: Vec::new(),
            classed: 0,
            posted: 0,
        }
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
            None => self.append_wild(&pattern, index),
        }
        Posted { index, generation: self.entries.generation(index) }
    }

    /// The receive posted first among all that take the message.
    #[inline]
    pub(super) fn take(&mut self, label: &MatchLabel) -> Option<R> {
        self.take_if(label, |_| Encounter::Over)
    }

    /// The same, where `meets` says so, which is asked once. It leaves its place if that says that it is over.
    #[inline]
    pub(super) fn take_if(&mut self, label: &MatchLabel, meets: impl FnOnce(R) -> Encounter) -> Option<R> {
        let exact = self.exact.head(label);
        let wild = if self.listed + self.classed > 0 { self.wild_before(exact, label) } else { None };
        let index = match wild {
            None => exact?,
            Some(Wild::Listed(index) | Wild::Classed(_, index)) => index,
        };
        let name = self.entries.get(index)?.name;
        match meets(name) {
            Encounter::Declined => return None,
            Encounter::Stays => return Some(name),
            Encounter::Over => {}
        }
        match wild {
            None => self.exact.detach(&mut self.entries, label, index),
            Some(wild) => self.detach_wild(wild, label),
        }
        self.entries.remove(index);
        Some(name)
    }

    pub(super) fn cancel(&mut self, posted: Posted) -> Option<R> {
        self.entries.get(posted.index)?;
        if self.entries.generation(posted.index) != posted.generation {
            return None;
        }
        self.remove(posted.index)
    }

    /// Removes the receives that only `rank` could have met.
    pub(super) fn forget(&mut self, peer: PeerId) -> Vec<R> {
        self.remove_all(|receive| receive.pattern.source == Source::Peer(peer))
    }

    pub(super) fn drain(&mut self, oneself: PeerId) -> Vec<R> {
        self.remove_all(|receive| receive.pattern.source != Source::Peer(oneself))
    }

    pub(super) fn pattern_of(&self, posted: Posted) -> Option<Pattern> {
        let receive = self.entries.get(posted.index)?;
        (self.entries.generation(posted.index) == posted.generation).then_some(receive.pattern)
    }

    pub(super) fn drain_wildcards(&mut self, is_over: impl Fn(R) -> bool) -> Vec<R> {
        self.remove_all(|receive| receive.pattern.source == Source::Any && is_over(receive.name))
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = Source> {
        self.entries.occupied().map(|(_, receive)| receive.pattern.source)
    }

    #[cfg(test)]
    pub(super) fn classes(&self) -> usize {
        self.classes.len()
    }

    #[cfg(test)]
    pub(super) fn footprint(&self) -> [usize; 3] {
        [self.entries.slots(), self.exact.len(), self.exact.capacity()]
    }

    #[inline]
    fn append_wild(&mut self, pattern: &Pattern, index: u32) {
        if self.listed == WALK {
            return self.append_to_class(pattern, index);
        }
        self.entries.append(&mut self.list, index);
        self.listed += 1;
    }

    #[cold]
    fn append_to_class(&mut self, pattern: &Pattern, index: u32) {
        let at = self.class_of(pattern).unwrap_or_else(|| {
            self.classes.push(ReceiveClass { class: MatchClass::of(pattern), bins: Bins::default() });
            self.classes.len() - 1
        });
        self.classes[at].bins.append(&mut self.entries, pattern.key(), index);
        self.classed += 1;
    }

    /// Where the class of a pattern stands that leaves something open.
    fn class_of(&self, pattern: &Pattern) -> Option<usize> {
        let class = MatchClass::of(pattern);
        self.classes.iter().position(|its| its.class == class)
    }

    /// The first receive that leaves something open, takes the message and was posted before `exact`.
    #[inline(never)]
    fn wild_before(&self, exact: Option<u32>, label: &MatchLabel) -> Option<Wild> {
        let end = exact.map_or(u64::MAX, |index| self.sequence_of(index));
        let mut earlier = self.entries.iter_list(self.list).take_while(|(_, receive)| receive.sequence < end);
        let listed = earlier.find(|(_, receive)| receive.pattern.takes(label)).map(|(index, _)| index);
        if self.classed == 0 { listed.map(Wild::Listed) } else { self.classed_before(listed, end, label) }
    }

    /// The same, of the receives in classes and one in the list.
    #[cold]
    fn classed_before(&self, listed: Option<u32>, end: u64, label: &MatchLabel) -> Option<Wild> {
        let mut end = listed.map_or(end, |index| self.sequence_of(index));
        let mut first = listed.map(Wild::Listed);
        for (at, ReceiveClass { class, bins }) in self.classes.iter().enumerate() {
            if let Some(index) = bins.head(&class.key(label))
                && self.sequence_of(index) < end
            {
                end = self.sequence_of(index);
                first = Some(Wild::Classed(at, index));
            }
        }
        first
    }

    fn sequence_of(&self, index: u32) -> u64 {
        self.entries.get(index).map_or(u64::MAX, |receive| receive.sequence)
    }

    /// Takes a receive that a message with this label meets out of the list or its class.
    #[inline(never)]
    fn detach_wild(&mut self, wild: Wild, label: &MatchLabel) {
        match wild {
            Wild::Listed(index) => self.detach_listed(index),
            Wild::Classed(at, index) => self.detach_from_class(at, &self.classes[at].class.key(label), index),
        }
    }

    /// Whether a receive that leaves something open stands in the list, which is short.
    fn is_listed(&self, index: u32) -> bool {
        self.entries.iter_list(self.list).any(|(listed, _)| listed == index)
    }

    fn detach_listed(&mut self, index: u32) {
        assert!(self.listed > 0, "who leaves the list is counted in it");
        self.entries.detach(&mut self.list, index);
        self.listed -= 1;
    }

    #[inline(never)]
    fn detach_from_class(&mut self, at: usize, key: &MatchLabel, index: u32) {
        let bins = &mut self.classes[at].bins;
        assert!(self.classed > 0, "who leaves a class is counted in one");
        bins.detach(&mut self.entries, key, index);
        self.classed -= 1;
        if self.classes.len() > CLASSES_KEPT && self.classes[at].bins.is_empty() {
            self.classes.swap_remove(at);
        }
    }

    fn remove(&mut self, index: u32) -> Option<R> {
        let pattern = self.entries.get(index)?.pattern;
        match pattern.exact() {
            Some(label) => self.exact.detach(&mut self.entries, &label, index),
            None if self.is_listed(index) => self.detach_listed(index),
            None => {
                let at = self.class_of(&pattern).expect("a receive stands in its class");
                self.detach_from_class(at, &pattern.key(), index);
            }
        }
        self.entries.remove(index).map(|receive| receive.name)
    }

    /// Removes the receives that are over, and returns them in the order of posting.
    fn remove_all(&mut self, is_over: impl Fn(&Receive<R>) -> bool) -> Vec<R> {
        let over = self.entries.occupied().filter(|(_, receive)| is_over(receive));
        let mut over: Vec<_> = over.map(|(index, receive)| (receive.sequence, index)).collect();
        over.sort_unstable();
        over.into_iter().filter_map(|(_, index)| self.remove(index)).collect()
    }
}
