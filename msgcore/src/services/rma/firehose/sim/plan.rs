//! What a world is like.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Rank;

/// Everything that decides what happens in a world.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// Decides all else.
    pub seed: u64,
    /// Ranks.
    pub ranks: usize,
    /// F: firehoses to each peer.
    pub firehoses: u64,
    /// MAXVICTIM in buckets.
    pub victims: usize,
    /// Buckets of each peer that a rank puts to and gets from.
    pub working_set: u64,
    /// Whether all ranks work on the same buckets of a peer, which then has one registration for several firehoses.
    pub is_shared: bool,
    /// The longest transfer in buckets.
    pub longest: u64,
    /// Transfers that a rank has under way.
    pub depth: usize,
    /// Transfers of each rank.
    pub transfers: u64,
    /// Of them, those before anything is measured.
    pub warm_up: u64,
    /// How much later than others anything may arrive, in nanoseconds: so messages overtake each other.
    pub jitter: u64,
    /// Of a hundred pins, those that the memory refuses.
    pub refused_percent: u8,
    /// A rank that fails.
    pub death: Option<Death>,
    /// Whether the oracle looks at everything after each step.
    pub is_watched: bool,
}

/// A rank that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// Which.
    pub rank: Rank,
    /// When, in nanoseconds.
    pub at: u64,
}

impl Plan {
    /// A hard world: firehoses are few, messages overtake each other, and some fail.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let ranks = if dice.random_ratio(1, 8) { dice.random_range(9..=16) } else { dice.random_range(2..=6) };
        let firehoses = dice.random_range(1..=if ranks > 8 { 4 } else { 12 });
        let longest = dice.random_range(1..=firehoses.min(4));
        let victims = dice.random_range(1..=16);
        let death = Death { rank: dice.random_range(0..ranks), at: dice.random_range(1_000..200_000) };
        Self {
            seed,
            ranks,
            firehoses,
            victims,
            working_set: dice.random_range(longest..=3 * firehoses + longest),
            is_shared: dice.random(),
            longest,
            depth: dice.random_range(1..=12),
            transfers: 400 / ranks as u64,
            warm_up: 0,
            jitter: if dice.random_ratio(1, 8) { 0 } else { dice.random_range(1..20_000) },
            refused_percent: if dice.random_ratio(1, 4) { dice.random_range(1..40) } else { 0 },
            death: Some(death).filter(|_| ranks > 2 && dice.random_ratio(1, 6)),
            is_watched: true,
        }
    }

    /// A quiet world to measure in: `ranks` ranks that have four transfers of one bucket each under way, spread evenly over
    /// a working set of each peer's, which no other rank touches. As by default, MAXVICTIM is a third of M.
    pub fn to_measure(ranks: usize, firehoses: u64, working_set: u64, transfers: u64) -> Self {
        let peers = ranks as u64 - 1;
        // Each bucket is touched eight times: then one in three thousand was not touched yet.
        let warm_up = 8 * working_set * peers;
        Self {
            seed: 1,
            ranks,
            firehoses,
            victims: (firehoses * peers).div_ceil(3) as usize,
            working_set,
            is_shared: false,
            longest: 1,
            depth: 4,
            transfers: warm_up + transfers,
            warm_up,
            jitter: 0,
            refused_percent: 0,
            death: None,
            is_watched: false,
        }
    }

    /// Where a rank's working set begins in the memory of each of its peers.
    pub(super) fn first_bucket(&self, rank: Rank) -> u64 {
        if self.is_shared { 0 } else { rank as u64 * self.working_set }
    }

    /// What each rank offers its peers: all working sets in it.
    pub(super) fn segment(&self) -> u64 {
        self.first_bucket(self.ranks - 1) + self.working_set
    }
}
