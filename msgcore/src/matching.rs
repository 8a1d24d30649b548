//! Matching: receives that wait for a message, and messages that wait for a receive.
//!
//! Both queues keep the order in which their entries came, and are searched from the front: so messages from
//! one sender that a receive could take are taken in the order of sending (MPI's non-overtaking rule), and
//! receives that a message could meet are met in the order of posting. A search is linear in the queue's length.

use std::collections::VecDeque;

use crate::request::Request;
use crate::{Rank, Source, Tag, TagMatch};

/// A receive that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) source: Source,
    pub(crate) tag: TagMatch,
    pub(crate) request: Request,
}

/// A message that waits.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Unexpected {
    pub(crate) source: Rank,
    pub(crate) tag: Tag,
    pub(crate) body: Body,
}

/// What is there of a message.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// All of it.
    Eager(Vec<u8>),
    /// Its description: the payload waits at the sender.
    Rendezvous(Remote),
}

/// A payload that waits at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    pub(crate) rkey: roci_protocol::Rkey,
    pub(crate) len: u64,
    /// The sender's name for the operation.
    pub(crate) id: u64,
}

#[derive(Default)]
pub(crate) struct Matching {
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Unexpected>,
    unexpected_bytes: usize,
}

/// Book-keeping of an unexpected message, so that empty ones are bounded too.
const OVERHEAD: usize = 64;

impl Body {
    fn cost(&self) -> usize {
        match self {
            Self::Eager(bytes) => OVERHEAD + bytes.len(),
            Self::Rendezvous(_) => OVERHEAD,
        }
    }
}

impl Posted {
    fn takes(&self, source: Rank, tag: Tag) -> bool {
        let from = match self.source {
            Source::Any => true,
            Source::Rank(rank) => rank == source,
        };
        from && match self.tag {
            TagMatch::Any => true,
            TagMatch::Exact(exact) => exact == tag,
        }
    }
}

impl Matching {
    /// A message came: the receive that takes it, if one waits.
    pub(crate) fn take_posted(&mut self, source: Rank, tag: Tag) -> Option<Request> {
        let at = self.posted.iter().position(|posted| posted.takes(source, tag))?;
        self.posted.remove(at).map(|posted| posted.request)
    }

    /// A receive is to be posted: the message that it takes, if one waits.
    pub(crate) fn take_unexpected(&mut self, receive: &Posted) -> Option<Unexpected> {
        let at = self.unexpected.iter().position(|message| receive.takes(message.source, message.tag))?;
        let message = self.unexpected.remove(at)?;
        self.unexpected_bytes -= message.body.cost();
        Some(message)
    }

    /// The message that a receive would take: its sender, tag and length.
    pub(crate) fn peek_unexpected(&self, receive: &Posted) -> Option<(Rank, Tag, usize)> {
        let message = self.unexpected.iter().find(|message| receive.takes(message.source, message.tag))?;
        let len = match &message.body {
            Body::Eager(bytes) => bytes.len(),
            Body::Rendezvous(remote) => remote.len as usize,
        };
        Some((message.source, message.tag, len))
    }

    pub(crate) fn post(&mut self, receive: Posted) {
        self.posted.push_back(receive);
    }

    pub(crate) fn keep(&mut self, message: Unexpected) {
        self.unexpected_bytes += message.body.cost();
        self.unexpected.push_back(message);
    }

    /// Memory that unexpected messages take.
    pub(crate) fn unexpected_bytes(&self) -> usize {
        self.unexpected_bytes
    }

    /// Forgets a peer that is gone: the receives that wait for it alone are returned, and payloads that waited
    /// with it are dropped. What it sent in full can still be received.
    pub(crate) fn forget(&mut self, rank: Rank) -> Vec<Request> {
        let mut orphans = Vec::new();
        self.posted.retain(|posted| {
            let waits = posted.source == Source::Rank(rank);
            if waits {
                orphans.push(posted.request);
            }
            !waits
        });
        self.unexpected.retain(|message| {
            let lost = message.source == rank && matches!(message.body, Body::Rendezvous(_));
            if lost {
                self.unexpected_bytes -= message.body.cost();
            }
            !lost
        });
        orphans
    }

    /// Every receive that waits, for an end that leaves nobody to send.
    pub(crate) fn take_all_posted(&mut self) -> Vec<Request> {
        self.posted.drain(..).map(|posted| posted.request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(number: u32, source: Source, tag: TagMatch) -> Posted {
        Posted { source, tag, request: Request::for_test(number) }
    }

    fn message(source: Rank, tag: u64, mark: u8) -> Unexpected {
        Unexpected { source, tag: Tag::new(tag), body: Body::Eager(vec![mark]) }
    }

    #[test]
    fn receives_are_met_in_the_order_of_posting() {
        let mut matching = Matching::default();
        matching.post(receive(1, Source::Rank(3), TagMatch::Exact(Tag::new(7))));
        matching.post(receive(2, Source::Any, TagMatch::Any));
        matching.post(receive(3, Source::Rank(3), TagMatch::Any));
        assert_eq!(matching.take_posted(3, Tag::new(8)), Some(Request::for_test(2)));
        assert_eq!(matching.take_posted(3, Tag::new(7)), Some(Request::for_test(1)));
        assert_eq!(matching.take_posted(4, Tag::new(7)), None);
        assert_eq!(matching.take_posted(3, Tag::new(7)), Some(Request::for_test(3)));
    }

    #[test]
    fn messages_of_one_sender_do_not_overtake() {
        let mut matching = Matching::default();
        for (tag, mark) in [(1, 10), (2, 20), (1, 30)] {
            matching.keep(message(0, tag, mark));
        }
        let mut take = |tag| {
            let found = matching.take_unexpected(&receive(0, Source::Any, tag)).expect("a message waits");
            match found.body {
                Body::Eager(bytes) => bytes[0],
                Body::Rendezvous(_) => unreachable!("all are eager"),
            }
        };
        assert_eq!(take(TagMatch::Exact(Tag::new(2))), 20);
        assert_eq!(take(TagMatch::Any), 10);
        assert_eq!(take(TagMatch::Exact(Tag::new(1))), 30);
        assert_eq!(matching.unexpected_bytes(), 0);
    }

    #[test]
    fn a_gone_peer_leaves_what_it_sent_in_full() {
        let mut matching = Matching::default();
        matching.post(receive(1, Source::Rank(2), TagMatch::Any));
        matching.post(receive(2, Source::Any, TagMatch::Exact(Tag::new(99))));
        matching.keep(message(2, 1, 1));
        let remote = Remote { rkey: roci_protocol::Rkey(1), len: 9, id: 9 };
        matching.keep(Unexpected { source: 2, tag: Tag::new(1), body: Body::Rendezvous(remote) });
        assert_eq!(matching.forget(2), [Request::for_test(1)]);
        assert_eq!(matching.unexpected_bytes(), OVERHEAD + 1);
        assert_eq!(matching.take_all_posted(), [Request::for_test(2)]);
    }
}
