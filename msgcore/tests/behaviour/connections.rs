//! How ranks come to be connected: every method and side, whoever begins, with what is sent meanwhile; and how it ends
//! where it cannot be.

use roci_driver::Engine;
use roci_driver::link::sim::SimLink;
use roci_msgcore::{Done, OpError, PeerId, Ports, Request, Source, Tag, TagMatch, Worker, WorkerEvent};
use roci_testkit::World as _;

use super::common::{World, config, pattern};

const METHODS: [&str; 2] = ["oob", "rdma_cm"];
const SIDES: [&str; 2] = ["client-server", "peer-to-peer"];
const QUEUES: [&str; 2] = ["", "P,256,16:P,2KiB,16:S,8KiB,32"];
const QUICK: [(&str, &str); 2] = [("ack_timeout_us", "100"), ("ack_timeout_max_us", "1000")];

type Settings<'a> = Vec<(&'a str, &'a str)>;

/// Every way to be connected.
fn ways() -> Vec<Settings<'static>> {
    let mut ways = Vec::new();
    for method in METHODS {
        for side in SIDES {
            for queues in QUEUES {
                ways.push(
                    [&[("connect_method", method), ("connect", side), ("receive_queues", queues)], &QUICK[..]].concat(),
                );
            }
        }
    }
    ways
}

#[test]
fn a_rank_that_goes_says_so_where_connections_are_made_by_rdma_cm() {
    for queues in QUEUES {
        let mut pair = World::pair(&[("connect_method", "rdma_cm"), ("receive_queues", queues)]);
        pair.connect_all();
        pair.steps(100);
        events(&mut pair, 0);
        pair.workers.pop().expect("there are two").abort();
        pair.steps(100);
        let seen = events(&mut pair, 0);
        assert!(matches!(&seen[..], [WorkerEvent::PeerGone { peer, .. }] if *peer == 1), "{queues}: {seen:?}");
    }
}

/// Ranks know each other's addresses before they listen there.
#[test]
fn a_rank_that_does_not_listen_yet_is_asked_again_by_rdma_cm() {
    let config = config(&[("connect_method", "rdma_cm"), ("connect", "peer-to-peer"), QUICK[0], QUICK[1]]);
    let (mut world, mut late) = World::with_a_late_rank(&config);
    world.workers[0].connect(1.into()).expect("it begins");
    for _ in 0..20_000 {
        world.steps(1);
        late.engine.poll();
    }
    assert!(events(&mut world, 0).is_empty(), "it was not given up");
    world.come(late, &config);
    world.until("both are connected", is_connected);
    let sent = world.send(0, 3, b"at last");
    let received = world.recv(1, Tag::new(3), 7);
    world.expect(1, received, b"at last");
    world.workers[0].detach(sent);
}

fn is_connected(pair: &World) -> bool {
    [0, 1].into_iter().all(|who| pair.workers[who].is_connected(1 - who))
}

fn events(pair: &mut World, who: usize) -> Vec<WorkerEvent> {
    std::iter::from_fn(|| pair.workers[who].poll_event()).collect()
}

/// Both are connected once, nobody was refused, and nobody ran into a missing receive.
fn assert_connected(pair: &mut World, what: &str) {
    for who in [0, 1] {
        assert_eq!(events(pair, who), [WorkerEvent::Connected { peer: PeerId::from(1 - who) }], "{what}");
        let engine = pair.workers[who].engine_stats();
        assert_eq!(engine.queue_pairs.out_of_buffer, 0, "{what}: a message came before its receive");
        assert_eq!(pair.workers[who].stats().peers_gone, 0);
    }
}

fn exchange(pair: &mut World, mark: usize) {
    for (who, len) in [(0, 10), (1, 10), (0, 1500), (1, 1500), (0, 50_000), (1, 50_000)] {
        let receive = pair.recv(1 - who, Tag::new(9), len);
        let send = pair.send(who, 9, &pattern(len, mark));
        pair.expect(1 - who, receive, &pattern(len, mark));
        pair.wait(who, send).expect("sent");
    }
}

/// Who begins, and after how many steps the other one does.
const BEGINNINGS: [(usize, Option<usize>); 8] =
    [(0, Some(0)), (0, None), (1, None), (0, Some(1)), (1, Some(1)), (0, Some(2)), (1, Some(3)), (0, Some(300))];

fn begin(pair: &mut World, first: usize, second: Option<usize>) {
    pair.workers[first].connect((1 - first).into()).expect("it is there");
    if let Some(steps) = second {
        pair.steps(steps);
        pair.workers[1 - first].connect(first.into()).expect("it is there");
    }
}

#[test]
fn ranks_are_connected_whichever_begins() {
    for settings in ways() {
        for (first, second) in BEGINNINGS {
            let what = format!("{settings:?}, {first} first, then after {second:?}");
            let mut pair = World::pair(&settings);
            begin(&mut pair, first, second);
            pair.until(&what, is_connected);
            assert_connected(&mut pair, &what);
            exchange(&mut pair, 1);
            pair.workers[first].connect((1 - first).into()).expect("it is connected already");
            pair.steps(300);
            assert_connected_no_more(&mut pair);
        }
    }
}

/// What is sent before the other's queue pairs are up is lost, and comes again only after a timeout.
#[test]
fn neither_end_sends_before_the_other_can_receive() {
    for method in METHODS {
        for side in SIDES {
            for (first, second) in BEGINNINGS {
                let mut pair = World::pair(&[("connect_method", method), ("connect", side)]);
                begin(&mut pair, first, second);
                pair.until("both know", is_connected);
                let again = [0, 1].map(|who| pair.workers[who].engine_stats().queue_pairs.retransmitted_packets);
                assert_eq!(again, [0, 0], "{method}, {side}: {first} first, then after {second:?}");
            }
        }
    }
}

/// RDMA-CM's reply has no word for the MTU, so a request may name one that the peer's port does not carry.
#[test]
fn ends_whose_ports_carry_packets_of_other_lengths_agree_on_the_shorter() {
    for method in METHODS {
        for mtus in [["9000", "1500"], ["1500", "9000"], ["9000", "600"], ["4200", "2200"]] {
            for (first, second) in BEGINNINGS {
                let what = format!("{method}, {mtus:?}, {first} first, then after {second:?}");
                let settings = mtus.map(|mtu| [("connect_method", method), ("port_mtu", mtu)]);
                let mut pair = World::of(&[&settings[0], &settings[1]]);
                begin(&mut pair, first, second);
                pair.until(&what, is_connected);
                assert_connected(&mut pair, &what);
                exchange(&mut pair, 1);
            }
        }
    }
}

fn assert_connected_no_more(pair: &mut World) {
    for who in [0, 1] {
        assert_eq!(events(pair, who), []);
    }
}

#[test]
fn what_is_sent_meanwhile_flows_in_order_once_they_are_connected() {
    let lens = [10, 3000, 0, 50_000, 20, 1500, 9000, 30];
    for settings in ways() {
        for senders in [&[0][..], &[1], &[0, 1], &[1, 0]] {
            let mut pair = World::pair(&settings);
            let mut sends = Vec::new();
            for (mark, &len) in lens.iter().enumerate() {
                for &who in senders {
                    sends.push((who, pair.send(who, 7, &pattern(len, mark))));
                }
                pair.steps(1);
            }
            for (mark, &len) in lens.iter().enumerate() {
                for &who in senders {
                    let receive = pair.recv_from(1 - who, Source::from(who), TagMatch::Any, 50_000);
                    pair.expect(1 - who, receive, &pattern(len, mark));
                }
            }
            for (who, send) in sends {
                pair.wait(who, send).expect("sent");
            }
            pair.until("both know", is_connected);
            assert_connected(&mut pair, &format!("{settings:?}"));
        }
    }
}

#[test]
fn frames_lost_meanwhile_do_not_keep_them_apart() {
    for settings in ways() {
        for seed in 0..12 {
            let faults = format!("loss=0.2,dup=0.1,reorder=0.1,corrupt=0.05,seed={seed}");
            let settings = [&settings[..], &[("faults", &faults)]].concat();
            let what = format!("{settings:?}");
            let mut pair = World::pair(&settings);
            pair.workers[seed % 2].connect((1 - seed % 2).into()).expect("it is there");
            if seed % 3 == 0 {
                pair.workers[1 - seed % 2].connect((seed % 2).into()).expect("it is there");
            }
            let send = pair.send(seed % 2, 1, b"early");
            let receive = pair.recv(1 - seed % 2, Tag::new(1), 5);
            // A management datagram is repeated only after milliseconds.
            for _ in 0..400_000 {
                if is_connected(&pair) {
                    break;
                }
                pair.clock.advance(50_000);
                pair.step();
                let is_gone = pair.workers.iter().any(|worker| worker.stats().peers_gone > 0);
                assert!(!is_gone, "{what}: {:?} {}", [0, 1].map(|who| events(&mut pair, who)), pair.counters());
            }
            pair.expect(1 - seed % 2, receive, b"early");
            pair.wait(seed % 2, send).expect("sent");
            pair.until(&what, is_connected);
            assert_connected(&mut pair, &what);
        }
    }
}

#[test]
fn many_ranks_are_connected_all_at_once() {
    for method in METHODS {
        for side in SIDES {
            let configs: Vec<_> =
                (0..6).map(|_| config(&[("connect_method", method), ("connect", side), QUICK[0]])).collect();
            let mut world = World::with(&configs);
            world.connect_all();
            for who in 0..6 {
                assert_eq!(events(&mut world, who).len(), 5);
            }
        }
    }
}

/// More peers than send buffers: each has one for its first message nevertheless.
#[test]
fn more_peers_than_send_buffers_are_all_connected() {
    for method in METHODS {
        // Receives for all of them fit.
        let few = [("connect_method", method), ("vbuf_max", "16"), ("vbuf_pool", "1"), ("credits", "64"), QUICK[0]];
        let mut world = World::of(&[&few[..]; 40]);
        for peer in 1..40 {
            world.workers[0].connect(peer.into()).expect("it is there");
        }
        world.until("all are connected", |world| (1..40).all(|peer| world.workers[0].is_connected(peer)));
        assert!(world.workers[0].stats().vbufs <= 16 + 39 + 39 * 71, "a buffer more for each peer, and its receives");
    }
}

/// Waits for the end of an operation that cannot succeed.
fn why(pair: &mut World, who: usize, request: Request) -> OpError {
    pair.wait(who, request).map(|done: Done| done.len).expect_err("it cannot be")
}

fn queues_of(queues: &'static str, method: &'static str, side: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        ("receive_queues", queues),
        ("connect_method", method),
        ("connect", side),
        ("connect_timeout_s", "1"),
        QUICK[0],
        QUICK[1],
    ]
}

/// Rank 1 has other receive queues than the others: it is refused by name, and names the reason too.
#[test]
fn receive_queues_that_do_not_fit_are_named_at_both_ends_and_the_others_go_on() {
    let ours = "P,256,16:P,4KiB,16";
    for (theirs, reason) in [
        ("P,256,16", "receive queue"),
        ("P,256,16:S,4KiB,16", "receive queue 2 is"),
        ("P,256,16:P,8KiB,16", "receive queue 2 has buffers of"),
    ] {
        for method in METHODS {
            for side in SIDES {
                for first in [0, 1] {
                    let (ours, theirs) = (queues_of(ours, method, side), queues_of(theirs, method, side));
                    let mut world = World::of(&[&ours, &theirs, &ours]);
                    let sends = [first, 1 - first].map(|who| (who, world.send(who, 1, &pattern(100, 1))));
                    for (who, send) in sends {
                        // An eager send may not have left yet: it ends with the reason.
                        let error = why(&mut world, who, send);
                        let what = format!("{theirs:?} {method} {side} {first} first: {who} says {error}");
                        assert!(error.to_string().contains(reason), "{what}");
                        let again = world.workers[who].send_error(1 - who, b"again");
                        assert!(again.to_string().contains(reason), "{again}");
                        assert!(
                            matches!(&events(&mut world, who)[..], [WorkerEvent::PeerGone { peer, .. }] if *peer == 1 - who)
                        );
                    }
                    let send = world.workers[2].send_bytes(0.into(), Tag::new(3), b"fine").expect("accepted");
                    let receive = world.recv_from(0, Source::from(2), Tag::new(3), 4);
                    assert_eq!(world.wait(0, receive).expect("received").len, 4);
                    world.wait(2, send).expect("sent");
                }
            }
        }
    }
}

/// Counts may differ: each is told the other's.
#[test]
fn receive_queues_may_differ_in_their_counts() {
    for method in METHODS {
        let ours = queues_of("P,256,4:S,8KiB,8,4,2,2,1", method, SIDES[0]);
        let theirs = queues_of("P,256,300,200:S,8KiB,512", method, SIDES[0]);
        let mut pair = World::of(&[&ours, &theirs]);
        for mark in 0..20 {
            exchange(&mut pair, mark);
        }
        assert!(is_connected(&pair));
    }
}

/// A rank that never makes progress, or whose cable is cut, is given up in time and by name.
#[test]
fn a_rank_that_does_not_answer_is_given_up_in_time() {
    for settings in ways() {
        for (who, is_cut) in [(0, true), (1, true), (0, false), (1, false)] {
            for steps in [0, 1, 2, 3] {
                let settings = [&settings[..], &[("connect_timeout_s", "1")]].concat();
                let mut pair = World::pair(&settings);
                let send = pair.send(who, 1, &pattern(50_000, 1));
                pair.steps(steps);
                if is_connected(&pair) {
                    continue;
                }
                let mut other = pair.workers.remove(1 - who);
                if is_cut {
                    pair.cut(1 - who);
                }
                let start = pair.clock.now();
                let outcome = loop {
                    pair.clock.advance(10_000);
                    pair.workers[0].progress();
                    if is_cut {
                        other.progress();
                    }
                    if let Some(outcome) = pair.workers[0].test(send) {
                        break outcome;
                    }
                    assert!(pair.clock.now() - start < 1_100_000_000, "{settings:?} {who} {is_cut} {steps}");
                };
                let error = outcome.expect_err("no peer answers");
                // Whoever finds out first tells the other, as far as the launcher reaches it.
                let by_name =
                    matches!(error, OpError::NotConnected { .. } | OpError::PeerGone { .. } | OpError::GivenUp { .. });
                assert!(by_name, "{error}");
                let rank = 1 - who;
                let event = pair.workers[0].poll_event().expect("it is told");
                assert_eq!(event, WorkerEvent::PeerGone { peer: rank.into(), error: error.clone() });
                assert!(error.to_string().starts_with(&format!("rank {rank} ")), "{error}");
            }
        }
    }
}

/// A rank gives the other one up, which has nothing under way and would never notice by itself.
#[test]
fn a_rank_that_is_given_up_learns_it_and_its_waits_end() {
    let shared = METHODS.map(|method| queues_of("S,8KiB,64", method, SIDES[0]));
    // Both begin, so that one of two requests is refused.
    for (settings, gives_up) in ways().into_iter().chain(shared).flat_map(|way| [(way.clone(), 0), (way, 1)]) {
        let (what, other) = (format!("{settings:?}, {gives_up} gives up"), 1 - gives_up);
        let mut pair = World::pair(&[&settings[..], &[("retry_limit", "3")]].concat());
        pair.connect_all();
        let receive = pair.recv_from(other, Source::from(gives_up), Tag::new(1), 10);
        let _ = pair.send(gives_up, 9, b"x");
        while pair.workers[gives_up].stats().peers_gone == 0 {
            pair.clock.advance(10_000);
            pair.workers[gives_up].progress();
        }
        let error = why(&mut pair, other, receive);
        match &error {
            OpError::GivenUp { peer, why } if *peer == gives_up => {
                let is_named = why.contains("IBV_WC_RETRY_EXC_ERR") || what.contains("rdma_cm");
                assert!(is_named, "{what}: {why}");
            }
            OpError::PeerGone { peer, .. } if *peer == gives_up => assert!(what.contains("rdma_cm"), "{what}"),
            other => panic!("{what}: {other}"),
        }
        assert_eq!(pair.workers[other].send_error(gives_up, b"x"), error, "{what}");
        pair.steps(70_000);
        assert_eq!([0, 1].map(|who| pair.workers[who].stats().peers_gone), [1, 1], "{what}");
    }
}

/// What a worker needs at the start is counted before anything is made of it.
#[test]
fn a_worker_that_its_arena_cannot_hold_is_refused_with_the_sum() {
    let refusal = |settings: &[(&str, &str)]| {
        let config = config(settings);
        let engines = (0..8).map(|_| Engine::<SimLink>::new(config.arena_size).expect("memory")).collect();
        let hosts: Vec<_> = (1..=8).map(|host| [10, 0, 0, host].into()).collect();
        let ports = Ports::group(engines, &hosts).remove(0);
        Worker::assemble(ports, &config).err().map(|error| error.to_string())
    };
    let error = refusal(&[("vbuf_size", "64KiB")]).expect("60 MiB of receives, and 8 of send buffers");
    let sum = "an arena of 64MiB does not hold 60MiB of receives for 7 peers, 8MiB of send buffers, 4MiB of staging";
    assert!(error.starts_with(sum), "{error}");
    let error = refusal(&[("ack_timeout_us", "300000")]).expect("it is more than 250000");
    assert!(error.starts_with("ack_timeout_us=300000: is more than"), "{error}");
}
