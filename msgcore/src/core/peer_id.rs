//! The names of peers.

use std::fmt::{self, Display, Formatter};

use crate::Rank;

/// A peer: a rank of the job, or an end that was met by its address.
///
/// Its slot in the table of peers is used again once it has been removed. Its generation sets it apart from those that had the slot
/// before, so an old name never reaches a new peer. The ranks of a job have their ranks for slots, are never replaced, and are of
/// generation 0; a peer of generation 0 is equal to its rank.
///
/// It is one word, the generation above the slot: matching compares and hashes it with every message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u64);

impl PeerId {
    /// A source that is no peer.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// The peer that has a slot for the `generation`th time.
    pub(crate) fn new(slot: usize, generation: u32) -> Self {
        assert!(generation > 0, "ranks have no generation");
        Self(u64::from(generation) << 32 | slot as u32 as u64)
    }

    /// Returns its slot in the table of peers: slots are dense, so arrays can be indexed by them. It is the rank of a job's rank.
    #[inline]
    pub const fn slot(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns which of the peers that had its slot it is, counted from 1; 0 for a rank.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns its rank, if it is one of a job.
    pub fn rank(self) -> Option<Rank> {
        (self.generation() == 0).then_some(self.slot())
    }
}

impl From<Rank> for PeerId {
    /// The peer that has this rank; a rank that no job has is no peer.
    #[inline]
    fn from(rank: Rank) -> Self {
        Self(u64::from(u32::try_from(rank).unwrap_or(u32::MAX)))
    }
}

impl PartialEq<Rank> for PeerId {
    fn eq(&self, rank: &Rank) -> bool {
        self.rank() == Some(*rank)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Display for PeerId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.rank() {
            Some(rank) => write!(f, "rank {rank}"),
            None => write!(f, "peer {}.{}", self.slot(), self.generation()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_equal_to_its_number_and_a_stranger_to_none() {
        let (rank, stranger) = (PeerId::from(3), PeerId::new(3, 2));
        assert_eq!((rank.to_string(), stranger.to_string()), ("rank 3".into(), "peer 3.2".into()));
        assert!(rank == 3 && stranger != 3 && rank != stranger);
        assert_eq!((rank.rank(), stranger.rank()), (Some(3), None));
        assert_eq!(PeerId::from(usize::MAX).slot(), u32::MAX as usize, "no table has that slot");
    }
}
