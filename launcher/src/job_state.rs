//! What a board knows of its job.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Rank;
use crate::mailboxes::Mailboxes;
use crate::outbox::Outbox;
use crate::values::Values;

/// What a board knows of its job.
pub(super) struct JobState {
    pub(super) values: Values,
    /// Where each rank has come from, once it has.
    pub(super) origins: Vec<Option<String>>,
    /// How often each rank has come: a generation of the job is what all of them are in between one hello and the next.
    pub(super) comings: Vec<u64>,
    /// Sessions in the present barrier of each generation, each at most once.
    pub(super) barriers: BTreeMap<u64, Vec<Arc<Outbox>>>,
    pub(super) mailboxes: Mailboxes,
    /// The line that notifies the ranks of each rank that has gone.
    pub(super) gone: BTreeMap<Rank, String>,
    /// Up to which generation each rank has left, whatever became of its process.
    pub(super) left: Vec<u64>,
    /// Why a wait for all others is in vain: a rank has gone, well ...
    pub(super) departure: Option<String>,
    /// ... or ill.
    pub(super) illness: Option<String>,
    /// Why the job as a whole is in vain.
    pub(super) failure: Option<String>,
    /// No rank may come any more.
    pub(super) is_closed: bool,
}

impl JobState {
    pub(super) fn new(size: usize) -> Self {
        Self {
            values: Values::default(),
            origins: vec![None; size],
            comings: vec![0; size],
            barriers: BTreeMap::new(),
            mailboxes: Mailboxes::new(size),
            gone: BTreeMap::new(),
            left: vec![0; size],
            departure: None,
            illness: None,
            failure: None,
            is_closed: false,
        }
    }

    /// A rank has come, once more; returns for the how manyth time. What only earlier generations read is forgotten.
    pub(super) fn come(&mut self, rank: Rank) -> u64 {
        self.comings[rank] += 1;
        let oldest = self.comings.iter().copied().min().unwrap_or(0);
        self.values.forget_before(oldest);
        self.comings[rank]
    }

    /// Who waits in any barrier.
    pub(super) fn in_barriers(&self) -> impl Iterator<Item = &Arc<Outbox>> {
        self.barriers.values().flatten()
    }

    /// Why a wait for all others of a generation is in vain.
    pub(super) fn reason_to_give_up(&self, generation: u64) -> Option<String> {
        let known = self.failure.as_ref().or(self.illness.as_ref()).or(self.departure.as_ref()).cloned();
        known.or_else(|| self.left.iter().position(|&left| left >= generation).map(reason_of_leaving))
    }
}

/// Why who waits for a rank that has left waits in vain.
pub(super) fn reason_of_leaving(rank: Rank) -> String {
    format!("rank {rank} has left the job")
}
