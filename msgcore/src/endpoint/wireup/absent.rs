//! Peers that do not answer yet. The addresses of ranks are known as soon as they have ports, and a moment before they listen there.

use std::collections::BTreeMap;

use roci_driver::CmCallError;
use roci_driver::neighbour::Unreachable;
use roci_protocol::Nanos;

use crate::core::peer::PeerId;

/// How long a rank that does not listen is left alone before it is asked again.
const PAUSE_NS: Nanos = 10_000_000;
/// How long it may take: after that it has other settings.
const PATIENCE_NS: Nanos = 30_000_000_000;

/// Ranks that have been asked for a connection, and do not listen yet.
#[derive(Debug, Default)]
pub(super) struct AbsentRanks(BTreeMap<PeerId, Absence>);

#[derive(Clone, Copy, Debug)]
struct Absence {
    until: Nanos,
    /// When it is asked again; none while it is being asked.
    next: Option<Nanos>,
}

impl AbsentRanks {
    /// A rank does not listen; returns whether it is to be asked again.
    pub(super) fn note(&mut self, rank: PeerId, now: Nanos) -> bool {
        let absence = self.0.entry(rank).or_insert(Absence { until: now + PATIENCE_NS, next: None });
        absence.next = Some(now + PAUSE_NS);
        now < absence.until || self.0.remove(&rank).is_none()
    }

    /// Returns the next rank that is to be asked again.
    pub(super) fn next_due(&mut self, now: Nanos) -> Option<PeerId> {
        let is_due = |absence: &Absence| absence.next.is_some_and(|next| next <= now);
        let (&rank, absence) = self.0.iter_mut().find(|(_, absence)| is_due(absence))?;
        absence.next = None;
        Some(rank)
    }

    /// A rank is there, or is asked for nothing any more.
    pub(super) fn forget(&mut self, rank: PeerId) {
        self.0.remove(&rank);
    }
}

/// Whether a peer's station is not known yet. One that computes answers for its station no sooner than for anything else, and others
/// take places among those that are asked for.
pub(super) const fn is_to_be_asked_again(why: &CmCallError) -> bool {
    use Unreachable::{NoAnswer, TooMany};
    matches!(why, CmCallError::Resolving | CmCallError::Unreachable(NoAnswer | TooMany))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_asked_again_after_a_pause_and_not_for_ever() {
        let (mut absent, rank) = (AbsentRanks::default(), PeerId::from(3));
        assert!(absent.note(rank, 5));
        assert_eq!((absent.next_due(5), absent.next_due(PAUSE_NS + 5)), (None, Some(rank)));
        assert_eq!(absent.next_due(PAUSE_NS + 5), None, "it is being asked");
        assert!(absent.note(rank, PATIENCE_NS));
        assert!(!absent.note(rank, PATIENCE_NS + 5) && absent.next_due(Nanos::MAX).is_none());
        assert!(absent.note(rank, PATIENCE_NS + 6), "another attempt");
        absent.forget(rank);
        assert_eq!(absent.next_due(Nanos::MAX), None);
    }
}
