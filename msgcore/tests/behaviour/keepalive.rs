//! A peer that falls silent while nothing is on its way to it is found, and one that only has nothing to say stays.

use roci_msgcore::{OpError, Request, SendOptions, Source, Tag, WorkerEvent};
use roci_testkit::World as _;

use super::common::{World, pattern};

const QUICK: [(&str, &str); 4] =
    [("keepalive_s", "1"), ("retry_limit", "3"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "1000")];
/// A look is every 65536 calls at the latest.
pub(super) const STEP: u64 = 5_000;
/// The silence, two looks, and retries of 1 ms.
pub(super) const LIMIT: u64 = 2_000_000_000;

pub(super) fn quiet(settings: &[(&str, &str)]) -> World {
    let mut pair = World::pair(&[&QUICK[..], settings].concat());
    pair.connect_all();
    pair
}

/// Lets only rank 0 live, until a request of it ends.
fn end(pair: &mut World, request: Request) -> OpError {
    let start = pair.clock.now();
    loop {
        pair.clock.advance(STEP);
        pair.workers[0].progress();
        if let Some(outcome) = pair.workers[0].test(request) {
            return outcome.map(|done| done.len).expect_err("no peer is there");
        }
        assert!(pair.clock.now() - start < LIMIT, "{}", pair.counters());
    }
}

fn let_pass(pair: &mut World, ns: u64) {
    for _ in 0..ns / STEP {
        pair.clock.advance(STEP);
        for worker in &mut pair.workers {
            worker.progress();
        }
    }
}

/// The ways in which rank 0 depends on rank 1 without sending anything.
const NEEDS: [fn(&mut World) -> Request; 4] = [
    |pair| pair.recv_from(0, Source::from(1), Tag::new(1), 10),
    |pair| pair.recv(0, Tag::new(1), 10),
    |pair| pair.send(0, 1, &pattern(50_000, 1)),
    |pair| pair.send_with(0, 1, 1, b"met?", SendOptions::default().synchronous()),
];

#[test]
fn a_peer_whose_cable_is_cut_is_found_by_who_only_waits() {
    for (what, need) in NEEDS.iter().enumerate() {
        for queues in ["", "S,8KiB,64", "P,256,16:P,2KiB,16:S,8KiB,32"] {
            let mut pair = quiet(&[("receive_queues", queues)]);
            let request = need(&mut pair);
            pair.steps(3_000);
            pair.cut(1);
            let error = end(&mut pair, request);
            let by_name = match &error {
                OpError::PeerGone { peer, .. } => *peer == 1,
                error => *error == OpError::NobodyLeft,
            };
            assert!(by_name, "{what} {queues}: {error}");
            let is_gone =
                |event| matches!(event, WorkerEvent::PeerGone { peer, error: OpError::PeerGone { .. } } if peer == 1);
            assert!(std::iter::from_fn(|| pair.workers[0].poll_event()).any(is_gone));
            assert_eq!(pair.workers[0].stats().tx_keepalive, 1);
        }
    }
}

#[test]
fn a_peer_that_has_nothing_to_say_is_asked_and_stays() {
    for (what, need) in NEEDS.iter().enumerate() {
        let mut pair = quiet(&[]);
        let ours = need(&mut pair);
        let_pass(&mut pair, 6_000_000_000);
        let asked = pair.workers[0].stats().tx_keepalive;
        assert!((3..=6).contains(&asked), "{what}: {asked}");
        assert_eq!([0, 1].map(|who| pair.workers[who].stats().peers_gone), [0, 0]);
        let theirs = if what < 2 { pair.send(1, 1, b"at last") } else { pair.recv(1, Tag::new(1), 50_000) };
        pair.wait(0, ours).expect("it ends well");
        pair.wait(1, theirs).expect("it ends well");
        pair.steps(300);
        for worker in &pair.workers {
            worker.inside().check_invariants().unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

#[test]
fn no_probe_is_sent_where_nothing_waits_or_the_knob_is_0() {
    let mut idle = quiet(&[]);
    let_pass(&mut idle, 4_000_000_000);
    let mut off = quiet(&[("keepalive_s", "0")]);
    let _ = off.recv(0, Tag::new(1), 10);
    let_pass(&mut off, 4_000_000_000);
    for world in [idle, off] {
        assert!(world.workers.iter().all(|worker| worker.stats().tx_keepalive == 0));
    }
}
