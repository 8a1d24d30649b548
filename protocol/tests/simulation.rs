//! The reliable connection in the simulated world: 64 seeds, each run twice, and those of `ROCI_SEEDS=A..B`.

use std::collections::BTreeSet;
use std::ops::Range;

use roci_protocol::rc::Stats;
use roci_protocol::sim::{Faults, dimensions, run, run_lax, run_without_fast_path};

const SEEDS: u64 = 64;

#[expect(clippy::disallowed_methods, reason = "the seeds to run are an input of the run")]
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("ROCI_SEEDS") else { return SEEDS..2 * SEEDS };
    let bounds = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    bounds.unwrap_or_else(|| panic!("ROCI_SEEDS={text} is not of the form A..B"))
}

#[test]
fn swarm_of_seeds_keeps_every_promise_and_replays_exactly() {
    let mut retransmitted = 0;
    let mut dropped = 0;
    let (mut receiver_not_ready, mut probed, mut kept) = (0, 0, 0);
    for seed in 0..SEEDS {
        let first = run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        let second = run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(first, second, "seed {seed} did not replay");
        retransmitted += first.stats.retransmitted_packets;
        dropped += first.dropped;
        receiver_not_ready += first.stats.rnr_nak;
        probed += first.stats.tail_loss_probes;
        kept += first.stats.rx_held;
    }
    // The faults were real.
    assert!(retransmitted > 0 && dropped > 0 && receiver_not_ready > 0 && probed > 0 && kept > 0);
}

#[test]
fn each_seed_keeps_every_promise() {
    for seed in seeds() {
        run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn the_fast_path_changes_no_frame_and_no_counter() {
    for seed in seeds() {
        assert_eq!(run(seed, None), run_without_fast_path(seed, None), "seed {seed}");
    }
}

#[test]
fn the_worlds_meet_every_counter_and_every_dimension() {
    let (mut total, mut met) = (Stats::default(), BTreeSet::new());
    for seed in 1000..1400 {
        let report = run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        total.add(&report.stats);
        met.extend(report.dimensions);
    }
    let never: Vec<_> = total.iter().filter(|&(_, count)| count == 0).map(|(name, _)| name).collect();
    assert_eq!(never, Vec::<&str>::new(), "counters that never moved");
    assert_eq!(met, dimensions().collect(), "dimensions that no world had");
}

#[test]
fn different_seeds_make_different_worlds() {
    assert_ne!(run(1, None).expect("a good run").trace, run(2, None).expect("a good run").trace);
}

#[test]
fn a_perfect_network_needs_no_retransmission() {
    for seed in 0..16 {
        let report = run(seed, Some(Faults::default())).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(report.stats.local_ack_timeout_err, 0, "seed {seed}");
        // Behind a packet that the peer was not ready for, more may come early than it keeps.
        assert!(report.stats.packet_seq_err == 0 || report.stats.rnr_nak > 0, "seed {seed}");
        assert_eq!(report.dropped, 0, "seed {seed}");
    }
}

#[test]
fn heavy_loss_is_survived() {
    for seed in 0..16 {
        let faults = Faults { loss: 0.3, seed, ..Faults::default() };
        run(seed, Some(faults)).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_requester_that_believes_every_acknowledgement_receives_no_wrong_one() {
    let (mut replayed, mut again) = (0, 0);
    for seed in 0..4 * SEEDS {
        let first = run_lax(seed).unwrap_or_else(|violation| panic!("{violation}"));
        replayed += first.stats.duplicate_request;
        again += first.stats.retransmitted_packets;
        if seed < SEEDS {
            assert_eq!(run_lax(seed), Ok(first), "seed {seed} did not replay");
        }
    }
    assert!(replayed > 0 && again > 0, "the faults were real");
}
