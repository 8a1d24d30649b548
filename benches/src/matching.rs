//! Receives and messages that meet, among many that wait for others.

use roci_msgcore::internals::MatchingQueues;
use roci_msgcore::{Pattern, Rank, Source, Tag, TagMatch};

const PEER: Rank = 1;
/// Tags of what waits begin here; those of what meets are lower.
const OTHERS: u64 = 1 << 32;

/// Which half comes first, and what the receive asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// The receive is posted; the message finds it by its label.
    Expected,
    /// The same where the receive takes any tag.
    Wildcard,
    /// The same where all receives take any source.
    AnySource,
    /// The message waits; the receive finds it by its label.
    Unexpected,
    /// The same where the receive takes any tag. This message came last.
    UnexpectedWildcard,
}

impl Meeting {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("expected", Self::Expected),
        ("wildcard", Self::Wildcard),
        ("any_source", Self::AnySource),
        ("unexpected", Self::Unexpected),
        ("unexpected_wildcard", Self::UnexpectedWildcard),
    ];

    const fn is_wild(self) -> bool {
        matches!(self, Self::Wildcard | Self::UnexpectedWildcard)
    }

    fn source(self, of: Rank) -> Source {
        if matches!(self, Self::AnySource) { Source::Any } else { Source::from(of) }
    }

    const fn is_unexpected(self) -> bool {
        matches!(self, Self::Unexpected | Self::UnexpectedWildcard)
    }
}

/// Queues in which something waits that the meeting passes by.
#[derive(Debug)]
pub struct Queues {
    both: MatchingQueues,
    meeting: Meeting,
    next: u64,
}

impl Queues {
    /// `others` receives wait for messages that never come, or as many messages for receives, each under a tag of its
    /// own and of another peer.
    pub fn new(meeting: Meeting, others: u32) -> Self {
        let mut queues = MatchingQueues::default();
        for other in 0..others {
            let tag = Tag::new(OTHERS + u64::from(other));
            let met = if meeting.is_unexpected() {
                queues.arrive(PEER + 1, tag, other)
            } else {
                queues.receive(Pattern::new(meeting.source(PEER + 1), tag), other)
            };
            assert_eq!(met, None);
        }
        Self { both: queues, meeting, next: 0 }
    }

    /// One receive and one message, of tags that come round.
    #[inline]
    pub fn meet(&mut self) {
        self.next = (self.next + 1) & 63;
        let tag = Tag::new(self.next);
        let of = if self.meeting.is_wild() { TagMatch::Any } else { TagMatch::Exact(tag) };
        let pattern = Pattern::new(self.meeting.source(PEER), of);
        let (first, met) = if self.meeting.is_unexpected() {
            (self.both.arrive(PEER, tag, 7), self.both.receive(pattern, 8))
        } else {
            (self.both.receive(pattern, 7), self.both.arrive(PEER, tag, 8))
        };
        assert!(first.is_none() && met == Some(7), "they meet");
    }

    /// Receives that wait, and messages.
    pub fn waiting(&self) -> (usize, usize) {
        self.both.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_leaves_the_others_waiting() {
        for (name, meeting) in Meeting::ALL {
            let mut queues = Queues::new(meeting, 100);
            (0..200).for_each(|_| queues.meet());
            let waiting = if meeting.is_unexpected() { (0, 100) } else { (100, 0) };
            assert_eq!(queues.waiting(), waiting, "{name}");
        }
    }
}
