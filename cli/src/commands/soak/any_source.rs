//! Messages that are received from the peer that sends first.
//!
//! Receives from any source and receives from a named peer must not ask for the same tags: each could take the message that the
//! other one waits for. So the messages with the lowest tags are received from any source. A fast peer may be a round ahead; so
//! their tags are others in odd rounds than in even ones.

use std::collections::VecDeque;

use roci_msgcore::{Rank, Tag, TagMatch};

use super::SoakMessage;

/// Of the tags that are drawn, those below this are received from any source.
pub(super) const OPEN_TAGS: u64 = 4;
/// Of these, those below this are received by either tag of two.
const EITHER_TAGS: u64 = 2;
/// Added to these tags in odd rounds.
const ODD_ROUND: u64 = 16;
/// The longest message that is received from any source: every such receive has room for it.
pub(super) const LONGEST: usize = 256 << 10;
/// Receives from any source have at most this part of an arena.
pub(super) const ARENA_PART: usize = 16;

/// The tag of a message in this round.
pub(super) fn tag_in_round(drawn: u64, round: u64) -> Tag {
    Tag::new(if drawn < OPEN_TAGS && round % 2 == 1 { drawn + ODD_ROUND } else { drawn })
}

/// Which tags the receive takes that this message is for, if it takes messages of any source.
pub(super) fn open_match(tag: Tag) -> Option<TagMatch> {
    match tag.get() % ODD_ROUND {
        0..EITHER_TAGS => {
            let ignore = EITHER_TAGS - 1;
            Some(TagMatch::Masked { tag: Tag::new(tag.get() & !ignore), ignore })
        }
        EITHER_TAGS..OPEN_TAGS => Some(TagMatch::Exact(tag)),
        _ => None,
    }
}

/// What each peer has sent in this round for receives from any source, in the order in which it was sent.
pub(super) struct OpenLetters(Vec<VecDeque<SoakMessage>>);

impl OpenLetters {
    pub(super) fn new(size: usize) -> Self {
        Self((0..size).map(|_| VecDeque::new()).collect())
    }

    pub(super) fn push(&mut self, peer: Rank, letter: SoakMessage) {
        self.0[peer].push_back(letter);
    }

    /// Takes the first message of a peer that such a receive takes: messages of one sender do not overtake. `None` where all have come.
    pub(super) fn take(&mut self, peer: Rank, tags: TagMatch) -> Option<SoakMessage> {
        let letters = self.0.get_mut(peer)?;
        let at = letters.iter().position(|letter| open_match(letter.tag) == Some(tags))?;
        letters.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MEETING, NEXT, TAGS, TOTALS};
    use super::*;

    #[test]
    fn no_receive_from_any_source_takes_what_another_round_or_a_named_receive_waits_for() {
        let tags = |round| (0..TAGS).map(move |drawn| tag_in_round(drawn, round));
        for round in 0..4 {
            for open in tags(round).filter_map(open_match) {
                assert!(!tags(round + 1).any(|tag| takes(open, tag)));
                assert!(tags(round).filter(|&tag| takes(open, tag)).all(|tag| open_match(tag) == Some(open)));
                assert!(![NEXT, TOTALS, MEETING].iter().any(|&tag| takes(open, tag)));
            }
        }
    }

    fn takes(tags: TagMatch, tag: Tag) -> bool {
        match tags {
            TagMatch::Exact(its) => its == tag,
            TagMatch::Masked { tag: its, ignore } => its.get() & !ignore == tag.get() & !ignore,
            TagMatch::Any => true,
        }
    }

    #[test]
    fn a_peers_messages_are_expected_in_its_order() {
        let letter = |drawn, content| SoakMessage { tag: tag_in_round(drawn, 1), len: 0, content };
        let mut letters = OpenLetters::new(2);
        for (drawn, content) in [(3, 1), (1, 2), (0, 3), (3, 4)] {
            letters.push(1, letter(drawn, content));
        }
        let mut take = |peer, drawn| {
            let tags = open_match(tag_in_round(drawn, 1)).expect("it is an open one");
            letters.take(peer, tags).map(|letter| letter.content)
        };
        assert_eq!([take(1, 0), take(1, 0), take(1, 3), take(1, 3)], [Some(2), Some(3), Some(1), Some(4)]);
        assert_eq!([take(1, 3), take(0, 0), take(2, 0)], [None; 3]);
    }
}
