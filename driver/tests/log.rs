//! What the log says of retransmissions (`RUST_LOG=roci_driver=debug`).

mod common;

use common::Wire;
use roci_driver::SendWr;
use roci_driver::link::sim::NetConfig;
use roci_testkit::{World as _, logged};

/// A message that finds no receive, which is posted later; what both ends log meanwhile.
fn log_of_rnr(label: Option<&str>) -> Vec<String> {
    let mut wire = Wire::over(NetConfig::default(), None, Default::default());
    let sender = &mut wire.ends[0];
    if let Some(label) = label {
        sender.engine.label_qp(sender.qp, label);
    }
    logged(|| {
        let payload = wire.buffer(0, &[7; 8]);
        wire.post(0, SendWr::send(1, payload));
        wire.find("an RNR NAK", |wire| (wire.ends[0].engine.stats().queue_pairs.rnr_nak > 0).then_some(()));
        wire.post_recv(1, 8);
        wire.wait(0);
    })
}

#[test]
fn a_retransmission_is_logged_with_its_peer_and_its_cause() {
    let lines = log_of_rnr(None);
    let is_it = |line: &&String| line.contains("RNR NAK");
    let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(line.starts_with("DEBUG queue pair ") && line.contains(" to 10.0.0.2: "), "{line}");
}

#[test]
fn a_queue_pair_with_a_label_is_logged_under_its_peers_name() {
    let lines = log_of_rnr(Some("rank 3"));
    let line = lines.iter().find(|line| line.contains("RNR NAK")).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(line.starts_with("DEBUG rank 3 (queue pair ") && line.contains(" to 10.0.0.2): "), "{line}");
}

#[test]
fn the_counters_of_a_queue_pair_are_its_own() {
    let mut wire = Wire::over(NetConfig::default(), None, Default::default());
    wire.post_recv(1, 8);
    let payload = wire.buffer(0, &[7; 8]);
    wire.post(0, SendWr::send(1, payload));
    wire.wait(0);
    let end = &mut wire.ends[0];
    let qp = end.qp;
    assert_eq!(end.engine.qp_stats(qp).expect("it is there").tx_requests, 1);
    end.engine.destroy_qp(qp);
    assert_eq!(end.engine.qp_stats(qp), None);
}
