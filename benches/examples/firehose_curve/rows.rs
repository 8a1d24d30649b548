//! What is measured: two workers for each working set, and two more for what bounds it.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_benches::offers::{PutMeasure, Registration, measure};

/// Firehoses of one worker into the memory of the other, which is M there.
pub(crate) const FIREHOSES: usize = M / BUCKET;
pub(crate) const BUCKET: usize = 4 << 10;
const M: usize = 3 << 20;
const MAX_VICTIM: usize = M / 3;
/// Working sets, in hundredths of M.
const SHARES: [usize; 15] = [25, 50, 75, 90, 100, 110, 120, 135, 150, 175, 200, 250, 300, 350, 400];
/// As few firehoses as there may be, and as few victims.
const LEAST: Registration = Registration::Firehose { bucket: 32 << 10, m: 2 << 20, max_victim: 1 << 20 };

/// One working set.
pub(crate) struct Row {
    /// As a share of M.
    pub(crate) share: f64,
    pub(crate) measured: PutMeasure,
}

pub(crate) struct Rows {
    pub(crate) firehose: Vec<Row>,
    /// Everything is registered, and stays so.
    pub(crate) exposed: PutMeasure,
    /// Hardly anything stays registered: each put asks.
    pub(crate) registered: PutMeasure,
}

impl Rows {
    pub(crate) fn run() -> Self {
        let firehoses = Registration::Firehose { bucket: BUCKET, m: M, max_victim: MAX_VICTIM };
        let row = |share: usize| {
            let measured = at_random(firehoses, FIREHOSES * share / 100);
            Row { share: share as f64 / 100.0, measured }
        };
        let most = FIREHOSES * SHARES[SHARES.len() - 1] / 100;
        let firehose = SHARES.into_iter().map(row).collect();
        Self { firehose, exposed: at_random(Registration::Whole, most), registered: at_random(LEAST, most) }
    }
}

fn at_random(registration: Registration, working_set: usize) -> PutMeasure {
    let mut dice = StdRng::seed_from_u64(working_set as u64);
    measure(registration, working_set, || dice.random_range(0..working_set))
}
