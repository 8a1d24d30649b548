//! The messaging core in a simulated world: workers on a switch that loses, repeats, reorders and corrupts, under a clock
//! that only the test moves. A seed decides everything. `ROCI_SEEDS=A..B` runs other seeds than the usual ones.

#[path = "../common/mod.rs"]
mod common;
mod oracle;
mod plan;
mod programme;
mod run;
#[path = "../common/seeds.rs"]
mod seeds;

use std::ops::Range;

use run::{Report, Run};
use seeds::{Replay, is_survey, seeds};

const SEEDS: Range<u64> = 0..64;

fn run(seed: u64) -> Report {
    let _replay = Replay { seed, test: "simulation" };
    Run::new(seed).finish().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

#[test]
fn a_swarm_of_worlds_keeps_every_promise_and_replays_exactly() {
    let (mut faults, mut cancelled, mut stalls, mut failed) = (0, 0, 0, 0);
    let is_survey = is_survey();
    for seed in seeds(SEEDS) {
        // A survey goes on behind a seed that fails.
        let Ok(report) = std::panic::catch_unwind(|| run(seed)) else {
            assert!(is_survey, "seed {seed} failed");
            failed += 1;
            continue;
        };
        if !is_survey {
            assert_eq!(report, run(seed), "seed {seed} did not replay");
        }
        faults += report.faults;
        cancelled += report.cancelled;
        stalls += report.stalls;
    }
    assert_eq!(failed, 0, "so many seeds failed");
    // The worlds were hard ones.
    assert!(is_survey || (faults > 0 && cancelled > 0 && stalls > 0));
}
