//! Classes of patterns: those that leave the same parts of a label open. All patterns of a class that take a message have one key,
//! so a class is searched by one look into a hash table, whatever wildcards it has.

use super::{MatchLabel, Pattern};
use crate::core::peer_id::PeerId;
use crate::{Source, Tag, TagMatch};

/// The source in keys of classes that take any.
const ANY_SOURCE: PeerId = PeerId::NONE;

/// What the patterns of a class leave open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct MatchClass {
    is_any_source: bool,
    /// Bits of the tag that do not count.
    ignore: u64,
}

impl MatchClass {
    /// Returns the class that a pattern belongs to.
    #[inline]
    pub(super) fn of(pattern: &Pattern) -> Self {
        Self { is_any_source: matches!(pattern.source, Source::Any), ignore: pattern.tag.ignore() }
    }

    /// Returns the key of the patterns of this class that take a message with this label.
    #[inline]
    pub(super) fn key(self, label: &MatchLabel) -> MatchLabel {
        let source = if self.is_any_source { ANY_SOURCE } else { label.source };
        MatchLabel { source, tag: Tag::new(label.tag.get() & !self.ignore), context: label.context }
    }
}

impl Pattern {
    /// Returns the only label that it takes; `None` where it leaves something open, or might.
    #[inline]
    pub(super) fn exact(&self) -> Option<MatchLabel> {
        match (self.source, self.tag) {
            (Source::Peer(source), TagMatch::Exact(tag)) => Some(MatchLabel { source, tag, context: self.context }),
            _ => None,
        }
    }

    /// Returns its key in its class.
    pub(super) fn key(&self) -> MatchLabel {
        let source = match self.source {
            Source::Any => ANY_SOURCE,
            Source::Peer(peer) => peer,
        };
        let tag = match self.tag {
            TagMatch::Any => 0,
            TagMatch::Exact(tag) => tag.get(),
            TagMatch::Masked { tag, ignore } => tag.get() & !ignore,
        };
        MatchLabel { source, tag: Tag::new(tag), context: self.context }
    }
}
