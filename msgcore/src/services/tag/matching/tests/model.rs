//! Every answer compared with that of two plain lists, searched from the front.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Act {
    /// A receive is posted that takes so many messages, unless they are there.
    Receive(Pattern, u32),
    /// A message comes, and waits unless a receive does.
    Arrive(MatchLabel, usize),
    /// A message comes that no receive takes, and does not wait.
    Pass(MatchLabel),
    Probe(Pattern),
    /// Takes back a receive that was posted at some time, waiting or not.
    Cancel(Index),
    /// A sender takes back a message whose mark leaves this remainder.
    Withdraw(PeerId, u32),
    /// A peer is gone, and its messages whose mark leaves this remainder with it.
    Forget(PeerId, u32),
    Drain,
}

const MODULUS: u32 = 3;

fn a_label() -> impl Strategy<Value = MatchLabel> {
    (0..3usize, 0..4u64, 0..2u32).prop_map(|(source, tag, context)| label(source, tag, context))
}

fn a_pattern() -> impl Strategy<Value = Pattern> {
    let tag = prop_oneof![
        4 => Just(0),
        2 => Just(u64::MAX),
        // Among them those of which nothing is ignored, and all that is used.
        2 => 0..4u64,
    ];
    (a_label(), prop::bool::weighted(0.25), tag, any::<bool>()).prop_map(|(label, any_source, ignore, is_masked)| {
        Pattern {
            source: if any_source { Source::Any } else { label.source.into() },
            tag: match ignore {
                0 if !is_masked => label.tag.into(),
                u64::MAX if !is_masked => TagMatch::Any,
                ignore => TagMatch::Masked { tag: label.tag, ignore },
            },
            context: label.context,
        }
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (a_pattern(), prop_oneof![2 => Just(1), 1 => 2..5u32]).prop_map(|(pattern, count)| Act::Receive(pattern, count)),
        12 => (a_label(), 0..100usize).prop_map(|(label, cost)| Act::Arrive(label, cost)),
        2 => a_label().prop_map(Act::Pass),
        4 => a_pattern().prop_map(Act::Probe),
        4 => any::<Index>().prop_map(Act::Cancel),
        2 => (0..3usize, 0..MODULUS).prop_map(|(source, rest)| Act::Withdraw(source.into(), rest)),
        1 => (0..3usize, 0..MODULUS).prop_map(|(peer, rest)| Act::Forget(peer.into(), rest)),
        1 => Just(Act::Drain),
    ]
}

/// The same by two lists.
#[derive(Default)]
struct Model {
    posted: Vec<(Pattern, u32)>,
    /// Messages that each receive takes yet, by its name.
    left: Vec<u32>,
    unexpected: Vec<(MatchLabel, usize, u32)>,
}

impl Model {
    fn take_posted(&mut self, label: &MatchLabel) -> Option<u32> {
        let at = self.posted.iter().position(|(pattern, _)| pattern.takes(label))?;
        let (_, name) = self.posted[at];
        self.left[name as usize] -= 1;
        if self.left[name as usize] == 0 {
            self.posted.remove(at);
        }
        Some(name)
    }

    fn find(&self, pattern: &Pattern) -> Option<usize> {
        self.unexpected.iter().position(|(label, ..)| pattern.takes(label))
    }

    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<(MatchLabel, u32)> {
        let (label, _, mark) = self.unexpected.remove(self.find(pattern)?);
        Some((label, mark))
    }

    fn cancel(&mut self, name: u32) -> Option<u32> {
        let at = self.posted.iter().position(|(_, posted)| *posted == name)?;
        Some(self.posted.remove(at).1)
    }

    fn withdraw(&mut self, source: PeerId, name: u32) -> Option<(MatchLabel, u32)> {
        let is_it = |(label, _, mark): &(MatchLabel, usize, u32)| label.source == source && *mark == name;
        let (label, _, mark) = self.unexpected.remove(self.unexpected.iter().position(is_it)?);
        Some((label, mark))
    }

    fn forget(&mut self, peer: PeerId, rest: u32) -> Vec<u32> {
        self.unexpected.retain(|(label, _, mark)| label.source != peer || mark % MODULUS != rest);
        let (lost, kept) = self.posted.iter().partition(|(pattern, _)| pattern.source == Source::Peer(peer));
        self.posted = kept;
        names(lost)
    }
}

fn names(posted: Vec<(Pattern, u32)>) -> Vec<u32> {
    posted.into_iter().map(|(_, name)| name).collect()
}

/// Both, and what was ever posted.
#[derive(Default)]
struct Pair {
    matching: Matching<u32, u32>,
    model: Model,
    handles: Vec<Posted>,
    /// What the receives themselves know of the messages that they take yet.
    left: Vec<u32>,
    marks: u32,
}

impl Pair {
    fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
        match act {
            Act::Receive(pattern, count) => self.receive(pattern, count)?,
            Act::Arrive(label, cost) => self.arrive(label, cost)?,
            Act::Pass(label) => {
                prop_assert_eq!(self.matching.take_posted_if(&label, |_| Encounter::Declined), None);
            }
            Act::Probe(pattern) => {
                let expected = self.model.find(&pattern).map(|at| &self.model.unexpected[at]);
                let expected = expected.map(|(label, _, mark)| (*label, mark));
                prop_assert_eq!(self.matching.peek_unexpected(&pattern), expected);
            }
            Act::Cancel(which) if !self.handles.is_empty() => {
                let name = which.index(self.handles.len());
                let cancelled = self.matching.cancel_posted(self.handles[name]);
                prop_assert_eq!(cancelled, self.model.cancel(name as u32));
            }
            Act::Cancel(_) => {}
            Act::Withdraw(source, rest) => {
                // One of the last that came, of whichever source.
                let name = self.marks.wrapping_sub(1 + rest);
                let withdrawn = self.matching.withdraw(source, name.into());
                prop_assert_eq!(withdrawn, self.model.withdraw(source, name));
            }
            Act::Forget(peer, rest) => {
                let forgotten = self.matching.forget(peer, |mark| mark % MODULUS == rest);
                prop_assert_eq!(forgotten, self.model.forget(peer, rest));
            }
            Act::Drain => {
                prop_assert_eq!(
                    self.matching.drain_posted(PeerId::NONE),
                    names(std::mem::take(&mut self.model.posted))
                );
            }
        }
        self.compare_sizes()
    }

    fn receive(&mut self, pattern: Pattern, count: u32) -> Result<(), TestCaseError> {
        for taken in 0..count {
            let found = self.matching.take_unexpected(&pattern);
            prop_assert_eq!(found, self.model.take_unexpected(&pattern));
            if found.is_none() {
                let name = self.handles.len() as u32;
                self.handles.push(self.matching.post(pattern, name));
                self.model.posted.push((pattern, name));
                self.left.push(count - taken);
                self.model.left.push(count - taken);
                break;
            }
        }
        Ok(())
    }

    fn arrive(&mut self, label: MatchLabel, cost: usize) -> Result<(), TestCaseError> {
        let left = &mut self.left;
        let met = self.matching.take_posted_if(&label, |name| {
            left[name as usize] -= 1;
            if left[name as usize] == 0 { Encounter::Over } else { Encounter::Stays }
        });
        prop_assert_eq!(met, self.model.take_posted(&label));
        if met.is_none() {
            self.matching.keep(label, u64::from(self.marks), cost, self.marks);
            self.model.unexpected.push((label, cost, self.marks));
            self.marks += 1;
        }
        Ok(())
    }

    fn compare_sizes(&self) -> Result<(), TestCaseError> {
        let Model { posted, unexpected, .. } = &self.model;
        prop_assert_eq!(self.matching.posted_len(), posted.len());
        prop_assert_eq!(self.matching.unexpected_len(), unexpected.len());
        prop_assert_eq!(self.matching.unexpected_bytes(), unexpected.iter().map(|(_, cost, _)| cost).sum::<usize>());
        let [_, bins, _] = self.matching.receives.footprint();
        prop_assert_eq!(bins, posted.iter().filter_map(|(pattern, _)| pattern.exact()).collect::<HashSet<_>>().len());
        let [_, bins, _] = self.matching.unexpected.footprint();
        prop_assert_eq!(bins, unexpected.iter().map(|(label, ..)| label).collect::<HashSet<_>>().len());
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_answer_is_that_of_two_lists(acts in prop::collection::vec(act(), 1..400)) {
        let mut pair = Pair::default();
        for act in acts {
            pair.act(act)?;
        }
        prop_assert_eq!(pair.matching.drain_posted(PeerId::NONE), names(pair.model.posted));
    }
}
