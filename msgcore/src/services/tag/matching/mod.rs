//! Matching: receives that wait for a message, and messages that wait for a receive.
//!
//! The order is MPI's. Of the messages that a receive could take, it takes the one that came first, so messages from
//! one sender do not overtake each other. Of the receives that a message could meet, it meets the one that was posted
//! first. A context is part of every name and never a wildcard.
//!
//! Without wildcards both questions are one look into a hash table: receives and messages stand in bins by context,
//! source and tag. Of the receives with wildcards or ignore masks a few stand in a list, and the others in classes
//! ([`classes`]), by what they leave open: a message looks once into each class, of which an application has few, and exact
//! receives pay nothing for them. A receive with a wildcard looks at a few messages in the order of their arrival, and then into
//! an index of its class. Slots are used again and empty bins are removed: in the steady state nothing is allocated, and memory
//! follows the most that ever waited at once, whatever tags peers choose.
//!
//! The limits are the worker's: it bounds receives by its requests, and messages by what they cost together.

mod bins;
mod class_index;
mod classes;
pub(super) mod entries;
mod posted;
#[cfg(test)]
mod tests;
mod unexpected;

use posted::PostedReceives;
use unexpected::Unexpected;

pub(crate) use posted::Posted;

use std::collections::HashSet;

use roci_protocol::msg;

use crate::core::peer_id::PeerId;
use crate::{Context, Source, Tag, TagMatch};

/// What a message says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MatchLabel {
    pub(crate) source: PeerId,
    pub(crate) tag: Tag,
    pub(crate) context: Context,
}

/// Which messages a receive or a probe takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// From whom.
    pub source: Source,
    /// Under which tag.
    pub tag: TagMatch,
    /// In which context.
    pub context: Context,
}

impl MatchLabel {
    /// The label of a message that came from `source`.
    #[inline]
    pub(crate) fn new(source: PeerId, label: msg::Label) -> Self {
        Self { source, tag: Tag::new(label.tag), context: Context::new(label.context) }
    }

    /// What travels with the message, and with it this data.
    pub(crate) fn wire(&self, data: Option<u64>) -> msg::Label {
        msg::Label { context: self.context.get(), tag: self.tag.get(), data }
    }
}

impl Pattern {
    /// Messages from `source` under `tag`, in the default context.
    pub fn new(source: impl Into<Source>, tag: impl Into<TagMatch>) -> Self {
        Self { source: source.into(), tag: tag.into(), context: Context::default() }
    }

    /// Those of another context.
    #[must_use]
    pub fn within(self, context: Context) -> Self {
        Self { context, ..self }
    }

    /// Whether a message with this label is one of those.
    pub(crate) fn takes(&self, label: &MatchLabel) -> bool {
        let from = match self.source {
            Source::Any => true,
            Source::Peer(peer) => peer == label.source,
        };
        from && self.tag.takes(label.tag) && self.context == label.context
    }
}

/// What a receive does with a message that it could take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encounter {
    /// It leaves it alone, and nothing has changed.
    Declined,
    /// It takes it, and keeps its place for others.
    Stays,
    /// It takes it, and waits no longer.
    Over,
}

/// Both queues of a worker. `R` names a receive, `M` is what is there of a message.
#[derive(Debug)]
pub(crate) struct Matching<R: Copy, M> {
    receives: PostedReceives<R>,
    unexpected: Unexpected<M>,
}

impl<R: Copy, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self { receives: PostedReceives::default(), unexpected: Unexpected::default() }
    }
}

impl<R: Copy, M> Matching<R, M> {
    /// A receive waits from now on. Its messages must have been looked for before, by [`Self::take_unexpected`].
    pub(crate) fn post(&mut self, pattern: Pattern, receive: R) -> Posted {
        self.receives.post(pattern, receive)
    }

    /// A message came: the receive posted first among all that take it.
    pub(crate) fn take_posted(&mut self, label: &MatchLabel) -> Option<R> {
        self.receives.take(label)
    }

    /// The same, where `meets` says that this receive has taken the message; else nothing has changed. A receive that stays
    /// keeps its place in the order of posting.
    #[inline]
    pub(crate) fn take_posted_if(&mut self, label: &MatchLabel, meets: impl FnOnce(R) -> Encounter) -> Option<R> {
        self.receives.take_if(label, meets)
    }

    /// Takes a receive back; `None` where it was met or cancelled before.
    pub(crate) fn cancel_posted(&mut self, posted: Posted) -> Option<R> {
        self.receives.cancel(posted)
    }

    /// A message that has no receive, which its sender names `name`; `cost` is the memory that it takes. Its receive must have
    /// been looked for before, by [`Self::take_posted`].
    pub(crate) fn keep(&mut self, label: MatchLabel, name: u64, cost: usize, message: M) {
        self.unexpected.keep(label, name, cost, message);
    }

    /// A receive is to be posted: the message that came first among all that it takes.
    pub(crate) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<(MatchLabel, M)> {
        self.unexpected.take(pattern)
    }

    /// The message that a receive would take.
    pub(crate) fn peek_unexpected(&mut self, pattern: &Pattern) -> Option<(MatchLabel, &M)> {
        self.unexpected.peek(pattern)
    }

    /// A send is cancelled: takes the message that its sender names so.
    pub(crate) fn withdraw(&mut self, source: PeerId, name: u64) -> Option<(MatchLabel, M)> {
        self.unexpected.withdraw(source, name)
    }

    /// Forgets a peer that is gone: the receives that wait for it alone are returned in the order of posting, and its
    /// messages for which `is_lost` are dropped. The others can still be received.
    pub(crate) fn forget(&mut self, peer: PeerId, is_lost: impl FnMut(&M) -> bool) -> Vec<R> {
        self.unexpected.forget(peer, is_lost);
        self.receives.forget(peer)
    }

    /// Whether a message of a peer waits.
    pub(crate) fn has_messages_of(&self, peer: PeerId) -> bool {
        self.unexpected.sources().any(|source| source == peer)
    }

    /// Returns the senders of all messages that wait.
    pub(crate) fn senders(&self) -> HashSet<PeerId> {
        self.unexpected.sources().collect()
    }

    /// Takes all messages of a peer.
    pub(crate) fn take_all_of(&mut self, peer: PeerId) -> Vec<(MatchLabel, M)> {
        self.unexpected.take_all_of(peer)
    }

    /// Every receive that waits, in the order of posting, for an end after which no message can come.
    pub(crate) fn drain_posted(&mut self, oneself: PeerId) -> Vec<R> {
        self.receives.drain(oneself)
    }

    /// What a receive waits for; `None` where it was met or cancelled.
    pub(crate) fn pattern_of(&self, posted: Posted) -> Option<Pattern> {
        self.receives.pattern_of(posted)
    }

    /// Those of the receives that wait for anybody that `is_over` names, in the order of posting, for an end that leaves too few.
    pub(crate) fn drain_wildcards(&mut self, is_over: impl Fn(R) -> bool) -> Vec<R> {
        self.receives.drain_wildcards(is_over)
    }

    /// Whom the receives wait for, one after the other.
    pub(crate) fn posted_sources(&self) -> impl Iterator<Item = Source> {
        self.receives.sources()
    }

    /// Memory that unexpected messages take.
    pub(crate) fn unexpected_bytes(&self) -> usize {
        self.unexpected.bytes()
    }

    /// How many receives wait.
    pub(crate) fn posted_len(&self) -> usize {
        self.receives.len()
    }

    /// How many messages wait.
    pub(crate) fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }
}
