//! What workers call each other: ranks of a job all the same, strangers each as it likes.

use roci_msgcore::{PeerId, Rank};

use crate::common::{TestWorker, World};

/// By worker, its names for all, itself among them.
#[derive(Clone)]
pub(crate) struct Names(Vec<Vec<PeerId>>);

impl Names {
    /// Those of ranks.
    pub(crate) fn of_ranks(workers: usize) -> Self {
        Self(vec![(0..workers).map(PeerId::from).collect(); workers])
    }

    /// Each worker inserts all others.
    pub(crate) fn of_strangers(world: &mut World) -> Self {
        let addresses: Vec<_> = world.workers.iter().map(|worker| worker.address()).collect();
        let names_of = |worker: &mut TestWorker| {
            addresses.iter().map(|&address| worker.insert(address).expect("there is room")).collect()
        };
        Self(world.workers.iter_mut().map(names_of).collect())
    }

    /// Returns what a worker calls another one.
    pub(crate) fn of(&self, who: Rank, other: Rank) -> PeerId {
        self.0[who][other]
    }

    /// Returns whom a worker means.
    pub(crate) fn whom(&self, who: Rank, name: PeerId) -> Rank {
        self.0[who].iter().position(|&its| its == name).unwrap_or_else(|| panic!("worker {who} knows no {name}"))
    }
}
