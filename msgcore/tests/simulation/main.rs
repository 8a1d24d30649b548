//! The messaging core in a simulated world: workers on a switch that loses, repeats, reorders and corrupts, under a clock
//! that only the test moves. They are ranks of a job, or strangers that know each other by address. A seed decides everything.
//! `ROCI_SEEDS=A..B` runs other seeds than the usual ones.

#[path = "../common/mod.rs"]
mod common;
mod names;
mod one_sided;
mod oracle;
mod plan;
mod programme;
mod run;
mod streams;

use std::ops::Range;

use roci_testkit::Swarm;
use run::{Report, Run};

const SEEDS: Range<u64> = 0..64;

fn run(seed: u64) -> Report {
    Run::new(seed).finish().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

#[test]
fn a_swarm_of_worlds_keeps_every_promise_and_replays_exactly() {
    let swarm = Swarm::new("roci-msgcore", "simulation", SEEDS);
    let reports = swarm.run(run);
    // The worlds were hard ones.
    let counts: [fn(&Report) -> u64; 10] = [
        |report| report.faults,
        |report| report.cancelled,
        |report| report.stalls,
        |report| report.partitions,
        |report| report.deaths,
        |report| report.missed,
        |report| report.streamed,
        |report| report.operations,
        |report| report.dedicated,
        |report| report.strangers,
    ];
    let sums = counts.map(|count| reports.iter().map(count).sum::<u64>());
    assert!(!swarm.is_usual() || !sums.contains(&0), "{sums:?}");
}
