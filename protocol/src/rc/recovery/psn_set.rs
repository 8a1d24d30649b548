//! A set of PSNs within a window that moves forward: what was kept, SACKed or sent again.

use crate::Psn;

/// PSNs that a set reaches over, and so the packets that selective repeat has in flight at most.
pub(in crate::rc) const SPAN: u32 = 2048;
/// A set in full as a SACK carries it.
pub(in crate::rc) const SACK_MAP_LEN: usize = SPAN as usize / 8;

const WORDS: usize = SPAN as usize / 64;

/// PSNs in `base..base + SPAN`. PSN n is bit n modulo [`SPAN`], so the window moves without moving a bit.
///
/// The words are allocated with the first member and freed with the last one: a connection that misses nothing has none.
#[derive(Clone, Debug)]
pub(in crate::rc) struct PsnSet {
    base: Psn,
    len: u32,
    words: Option<Box<[u64; WORDS]>>,
}

impl PsnSet {
    pub(in crate::rc) const fn new(base: Psn) -> Self {
        Self { base, len: 0, words: None }
    }

    #[inline]
    pub(in crate::rc) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the window begins.
    pub(in crate::rc) const fn base(&self) -> Psn {
        self.base
    }

    /// How many members there are.
    pub(in crate::rc) const fn len(&self) -> u32 {
        self.len
    }

    /// Whether `psn` lies in the window.
    #[inline]
    pub(in crate::rc) const fn reaches(&self, psn: Psn) -> bool {
        let distance = psn.since(self.base);
        distance >= 0 && distance < SPAN.cast_signed()
    }

    #[inline]
    pub(in crate::rc) fn contains(&self, psn: Psn) -> bool {
        self.len > 0 && self.reaches(psn) && self.words.as_ref().is_some_and(|words| words[word(psn)] & bit(psn) != 0)
    }

    /// Adds `psn`; `false` where it is there already, or out of the window.
    pub(in crate::rc) fn insert(&mut self, psn: Psn) -> bool {
        if !self.reaches(psn) {
            return false;
        }
        let slot = &mut self.words.get_or_insert_default()[word(psn)];
        let is_new = *slot & bit(psn) == 0;
        *slot |= bit(psn);
        self.len += u32::from(is_new);
        is_new
    }

    /// Takes `psn` out; `false` where it is not there.
    pub(in crate::rc) fn remove(&mut self, psn: Psn) -> bool {
        let is_member = self.contains(psn);
        if is_member && let Some(words) = &mut self.words {
            words[word(psn)] &= !bit(psn);
            self.len -= 1;
            self.free_if_empty();
        }
        is_member
    }

    /// Moves the window on to `base`; members before it leave.
    #[inline]
    pub(in crate::rc) fn advance_to(&mut self, base: Psn) {
        assert!(!base.before(self.base), "a window never moves back");
        if self.len > 0 {
            self.leave_behind(base);
        }
        self.base = base;
    }

    #[cold]
    fn leave_behind(&mut self, base: Psn) {
        let Some(words) = &mut self.words else { return };
        if base.since(self.base) >= SPAN.cast_signed() {
            return self.clear();
        }
        let mut psn = self.base;
        while psn.before(base) && self.len > 0 {
            let end = earlier(psn.plus(64 - psn.get() % 64), base);
            let leaving = mask(psn, end);
            self.len -= (words[word(psn)] & leaving).count_ones();
            words[word(psn)] &= !leaving;
            psn = end;
        }
        self.free_if_empty();
    }

    #[inline]
    pub(in crate::rc) fn clear(&mut self) {
        if self.len > 0 {
            self.len = 0;
            self.free_if_empty();
        }
    }

    /// Frees the words where the last member has left.
    #[cold]
    fn free_if_empty(&mut self) {
        if self.len == 0 {
            self.words = None;
        }
    }

    /// The first PSN after the last member; the window's start where there is none.
    pub(in crate::rc) fn end(&self) -> Psn {
        let Some(words) = self.words.as_ref().filter(|_| self.len > 0) else { return self.base };
        let mut end = self.base.plus(SPAN);
        while self.base.before(end) {
            // The word that the PSN before `end` lies in, down to the window's start.
            let start = later(end.previous().word_start(), self.base);
            let members = words[word(start)] & mask(start, end);
            if members != 0 {
                return start.word_start().plus(64 - members.leading_zeros());
            }
            end = start;
        }
        unreachable!("a set that is not empty has a last member")
    }

    /// The first PSN in `from..to` that is not a member of this set or the other.
    pub(in crate::rc) fn first_absent(&self, other: &Self, from: Psn, to: Psn) -> Option<Psn> {
        let mut psn = from;
        while psn.before(to) {
            let end = earlier(psn.plus(64 - psn.get() % 64), to);
            let absent = !(self.members(psn, end) | other.members(psn, end)) & mask(psn, end);
            if absent != 0 {
                return Some(psn.word_start().plus(absent.trailing_zeros()));
            }
            psn = end;
        }
        None
    }

    /// The bits of one word that lie in `from..to`; none beyond the window.
    fn members(&self, from: Psn, to: Psn) -> u64 {
        if self.len == 0 || !self.reaches(from) {
            return 0;
        }
        let to = earlier(to, self.base.plus(SPAN));
        self.words.as_ref().map_or(0, |words| words[word(from)] & mask(from, to))
    }

    /// The set as a SACK carries it: bit n of byte n / 8 stands for PSN `base + n`. Returns its bytes, words of 8 up to the last
    /// that is not 0.
    pub(in crate::rc) fn write_sack_map(&self, map: &mut [u8; SACK_MAP_LEN]) -> usize {
        let len = (self.end().since(self.base) as usize).next_multiple_of(64) / 8;
        for (at, chunk) in map[..len].chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&self.word_from(self.base.plus(64 * at as u32)).to_le_bytes());
        }
        len
    }

    /// 64 PSNs from any one of the window on: of its last word the bits beyond the window are those before its start,
    /// which are never set.
    fn word_from(&self, psn: Psn) -> u64 {
        let (Some(words), shift) = (&self.words, psn.get() % 64) else { return 0 };
        let low = words[word(psn)] >> shift;
        if shift == 0 { low } else { low | words[word(psn.plus(64))] << (64 - shift) }
    }

    /// Adds what a SACK's map that begins at `base` names, as far as it lies in the window and before `end`.
    pub(in crate::rc) fn add_sack_map(&mut self, base: Psn, map: &[u8], end: Psn) {
        let (first, end) = (self.base, earlier(end, self.base.plus(SPAN)));
        for (at, chunk) in map.chunks(8).enumerate() {
            let bits = chunk.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            let from = base.plus(64 * at as u32);
            let middle = from.word_start().plus(64);
            self.add_bits(bits << (from.get() % 64), later(from, first), earlier(middle, end));
            if middle != from.plus(64) {
                self.add_bits(bits >> (64 - from.get() % 64), later(middle, first), earlier(from.plus(64), end));
            }
        }
    }

    /// Adds those bits of a word that lie in `from..to`.
    fn add_bits(&mut self, bits: u64, from: Psn, to: Psn) {
        let new = bits & mask(from, to);
        if new != 0 {
            let slot = &mut self.words.get_or_insert_default()[word(from)];
            self.len += (new & !*slot).count_ones();
            *slot |= new;
        }
    }
}

impl Psn {
    /// The first of the 64 PSNs that share a word with this one.
    const fn word_start(self) -> Self {
        Self::new(self.get() & !63)
    }
}

const fn word(psn: Psn) -> usize {
    (psn.get() % SPAN / 64) as usize
}

const fn bit(psn: Psn) -> u64 {
    1 << (psn.get() % 64)
}

/// The bits of `from..to`, of which both ends belong to one word, but for a `to` that begins the next.
const fn mask(from: Psn, to: Psn) -> u64 {
    let count = to.since(from);
    if count <= 0 { 0 } else { u64::MAX >> (64 - count as u32) << (from.get() % 64) }
}

pub(in crate::rc) const fn earlier(one: Psn, other: Psn) -> Psn {
    if one.before(other) { one } else { other }
}

pub(in crate::rc) const fn later(one: Psn, other: Psn) -> Psn {
    if one.before(other) { other } else { one }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What is done to a set and to a list of its members.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        Advance(u32),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let near = || prop_oneof![0..200_u32, 0..SPAN + 100];
        prop_oneof![
            8 => near().prop_map(Step::Insert),
            2 => near().prop_map(Step::Remove),
            2 => near().prop_map(Step::Advance),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn a_set_agrees_with_a_list(start in prop_oneof![Just(0xff_ff00_u32), 0..1_u32 << 24], steps in prop::collection::vec(step(), 1..80)) {
            let (mut base, mut list) = (Psn::new(start), BTreeSet::new());
            let mut set = PsnSet::new(base);
            for step in steps {
                match step {
                    Step::Insert(distance) => {
                        let is_new = distance < SPAN && list.insert(distance);
                        prop_assert_eq!(set.insert(base.plus(distance)), is_new);
                    }
                    Step::Remove(distance) => prop_assert_eq!(set.remove(base.plus(distance)), list.remove(&distance)),
                    Step::Advance(distance) => {
                        base = base.plus(distance);
                        set.advance_to(base);
                        list = list.iter().filter_map(|at| at.checked_sub(distance)).collect();
                    }
                    Step::Clear => {
                        set.clear();
                        list.clear();
                    }
                }
                prop_assert_eq!((set.is_empty(), set.len() as usize), (list.is_empty(), list.len()));
                prop_assert_eq!(set.words.is_none(), list.is_empty(), "memory goes with the last member");
                let end = list.last().map_or(0, |last| last + 1);
                prop_assert_eq!(set.end(), base.plus(end));
                let absent = (0..end).find(|at| !list.contains(at));
                for other in [&PsnSet::new(base), &set] {
                    prop_assert_eq!(set.first_absent(other, base, set.end()), absent.map(|at| base.plus(at)));
                }
                prop_assert!((0..SPAN + 10).all(|at| set.contains(base.plus(at)) == list.contains(&at)));
                let mut map = [0; SACK_MAP_LEN];
                let len = set.write_sack_map(&mut map);
                let mut copy = PsnSet::new(base);
                (0..2).for_each(|_| copy.add_sack_map(base, &map[..len], set.end()));
                prop_assert_eq!(copy.len(), set.len());
                prop_assert!((0..SPAN).all(|at| copy.contains(base.plus(at)) == list.contains(&at)));
            }
        }
    }

    #[test]
    fn a_map_counts_only_in_the_window_and_before_its_end() {
        let mut set = PsnSet::new(Psn::new(10));
        set.add_sack_map(Psn::new(8), &[0b1011_0111, 1], Psn::new(16));
        assert!([10, 12, 13, 15].iter().all(|&psn| set.contains(Psn::new(psn))) && !set.contains(Psn::new(8)));
        assert_eq!(set.end(), Psn::new(16), "what was never sent cannot be kept");
    }

    #[test]
    fn a_member_at_the_windows_end_fills_the_map_and_is_not_taken_for_the_psn_before_its_start() {
        let mut set = PsnSet::new(Psn::new(100));
        set.insert(Psn::new(99 + SPAN));
        assert_eq!(set.write_sack_map(&mut [0; SACK_MAP_LEN]), SACK_MAP_LEN);
        let before = Psn::new(99);
        assert_eq!(set.first_absent(&PsnSet::new(set.base()), before, set.base()), Some(before));
    }

    #[test]
    fn an_empty_set_holds_no_memory() {
        let mut set = PsnSet::new(Psn::new(0));
        set.advance_to(Psn::new(5000));
        set.remove(Psn::new(5001));
        assert!(set.words.is_none());
    }
}
