//! What is measured: one world for each working set, and two more for what bounds it.

use roci_msgcore::firehose::sim::{BrokenWorld, FirehoseWorld, Measure, Plan};

pub(crate) const RANKS: usize = 4;
/// Firehoses to each peer, which is M there.
pub(crate) const FIREHOSES: u64 = 256;
/// Transfers of each rank after the warm-up.
pub(crate) const TRANSFERS: u64 = 20_000;
/// Working sets, in hundredths of M.
const SHARES: [u64; 15] = [25, 50, 75, 90, 100, 110, 120, 135, 150, 175, 200, 250, 300, 350, 400];

/// One working set.
pub(crate) struct Row {
    /// As a share of M.
    pub(crate) share: f64,
    pub(crate) measured: Measure,
}

pub(crate) struct Rows {
    pub(crate) firehose: Vec<Row>,
    /// Everything is pinned, and stays so.
    pub(crate) pinned: Measure,
    /// Nothing stays pinned: each transfer asks, and is registered.
    pub(crate) registered: Measure,
}

impl Rows {
    pub(crate) fn run() -> Result<Self, Box<BrokenWorld>> {
        let world = |plan: Plan| FirehoseWorld::new(plan).run().map(|report| report.measure);
        let plan = |firehoses: u64, share: u64| Plan::to_measure(RANKS, firehoses, FIREHOSES * share / 100, TRANSFERS);
        let row = |share: u64| {
            let measured = world(plan(FIREHOSES, share))?;
            Ok(Row { share: share as f64 / 100.0, measured })
        };
        let firehose = SHARES.into_iter().map(row).collect::<Result<_, Box<BrokenWorld>>>()?;
        let most = SHARES[SHARES.len() - 1];
        let pinned = world(plan(FIREHOSES * most / 100, most))?;
        // As many firehoses as transfers are under way, and room for a single victim.
        let few = plan(FIREHOSES, most).depth as u64;
        let registered = world(Plan { victims: 1, ..plan(few, most) })?;
        Ok(Self { firehose, pinned, registered })
    }
}
