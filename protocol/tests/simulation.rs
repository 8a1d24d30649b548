//! The reliable connection in the simulated world: 64 seeds, each run twice.

use roci_protocol::sim::{Faults, run};

const SEEDS: u64 = 64;

#[test]
fn swarm_of_seeds_keeps_every_promise_and_replays_exactly() {
    let mut retransmitted = 0;
    let mut dropped = 0;
    let mut receiver_not_ready = 0;
    for seed in 0..SEEDS {
        let first = run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        let second = run(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(first, second, "seed {seed} did not replay");
        retransmitted += first.stats.retransmitted_packets;
        dropped += first.dropped;
        receiver_not_ready += first.stats.rnr_nak;
    }
    // The faults were real.
    assert!(retransmitted > 0 && dropped > 0 && receiver_not_ready > 0);
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
        assert_eq!(report.stats.packet_seq_err, 0, "seed {seed}");
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
