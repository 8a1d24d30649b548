//! Firehose in a simulated world: ranks that put and get, messages that overtake each other, memory that is refused, ranks
//! that fail. After each step the engine counts everything anew, and an oracle compares what ranks believe of each other
//! with what is pinned. A seed decides everything. `ROCI_SEEDS=A..B` runs other seeds than the usual ones.

use std::ops::Range;

use roci_msgcore::firehose::FirehoseStats;
use roci_msgcore::firehose::sim::{FirehoseWorld, Measure, Plan, Report, costs};
use roci_testkit::Swarm;

const SEEDS: Range<u64> = 0..500;

fn run(seed: u64) -> Report {
    FirehoseWorld::new(Plan::of_seed(seed)).run().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

#[test]
fn every_world_keeps_its_promises_and_replays_exactly() {
    let swarm = Swarm::new("roci-msgcore", "firehose", SEEDS);
    let (mut sum, mut overtaken, mut failed) = (FirehoseStats::default(), 0, 0);
    for report in swarm.run(run) {
        sum = sum + report.stats;
        overtaken += report.overtaken;
        failed += report.failed;
    }
    println!("{overtaken} messages overtook others, {failed} transfers failed, {sum:?}");
    // The worlds were hard ones: nothing that can happen did not.
    let breaches = sum.breaches;
    assert_eq!(breaches, 0, "ranks that keep the protocol were said to break it");
    let missing = sum.iter().find(|(name, count)| *name != "breaches" && *count == 0);
    assert!(!swarm.is_usual() || (missing.is_none() && overtaken > 0 && failed > 0), "{missing:?} in {sum:?}");
}

const RANKS: usize = 4;

/// A working set, as a share of M, and what it does.
fn measure(share: f64) -> Measure {
    const FIREHOSES: u64 = 64;
    let working_set = (FIREHOSES as f64 * share) as u64;
    let world = FirehoseWorld::new(Plan::to_measure(RANKS, FIREHOSES, working_set, 2_000));
    world.run().unwrap_or_else(|violation| panic!("{violation}")).measure
}

#[test]
fn a_working_set_within_m_is_hit() {
    for share in [0.25, 0.5, 1.0] {
        let measured = measure(share);
        assert!(measured.hit_rate >= 0.99, "{share} of M: {measured:?}");
    }
}

/// In virtual time, which is the same in each run.
#[test]
fn a_larger_working_set_costs_what_its_misses_cost_and_no_more() {
    // A miss is two messages, each of which is sent and taken, and at worst two registrations.
    let miss = (4 * costs::MESSAGE + costs::PIN + costs::UNPIN) as f64;
    let mut last = f64::MAX;
    for share in [1.0, 1.25, 1.5, 2.0, 3.0, 4.0] {
        let measured = measure(share);
        let (time, hits) = (RANKS as f64 * 1e9 / measured.rate, measured.hit_rate);
        let bound = costs::POST as f64 + (1.0 - hits) * miss;
        assert!(time <= 1.15 * bound, "{share} of M: {time} ns a transfer, and its misses cost {bound}: {measured:?}");
        assert!(hits >= 0.95 / share && measured.rate < last, "{share} of M: {measured:?}");
        last = measured.rate;
    }
}
