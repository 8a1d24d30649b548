//! Workers alone, which are no ranks: how they meet by their addresses, part, and meet again.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use roci_driver::link::sim::NetConfig;
use roci_msgcore::{
    CallError, EndpointAddress, InsertError, OpError, Pattern, PeerId, Request, Source, Tag, TagMatch, WorkerEvent,
};
use roci_testkit::World as _;

use super::common::{World, config, pattern};

const SETTINGS: [(&str, &str); 4] =
    [("connect_method", "rdma_cm"), ("peers", "8"), ("ack_timeout_us", "200"), ("ack_timeout_max_us", "2000")];
const FAULTS: &str = "loss=0.05,dup=0.05,reorder=0.05,corrupt=0.02,seed=11";
/// How connections are made, and what goes wrong meanwhile.
const CONDITIONS: [(&str, &str); 4] = [("rdma_cm", ""), ("oob", ""), ("rdma_cm", FAULTS), ("oob", FAULTS)];
const TAG: Tag = Tag::new(7);

fn world(count: usize, settings: &[(&str, &str)]) -> World {
    let config = config(&[&SETTINGS, settings].concat());
    World::of_strangers(NetConfig::default(), &vec![config; count], 1)
}

fn address(world: &World, who: usize) -> EndpointAddress {
    world.workers[who].address()
}

/// One inserts another.
fn insert(world: &mut World, who: usize, peer: usize) -> PeerId {
    let address = address(world, peer);
    world.workers[who].insert(address).expect("there is room")
}

fn any() -> Pattern {
    Pattern::new(Source::Any, TagMatch::Any)
}

/// Lets all make progress, and carries the texts of connections' exchanges.
fn turn(world: &mut World) {
    world.steps(1);
    for who in 0..world.workers.len() {
        while let Some((to, text)) = world.workers[who].next_exchange() {
            if let Some(there) = (0..world.workers.len()).find(|&there| address(world, there) == to) {
                // Who may not ask is not answered.
                let _ = world.workers[there].deliver_exchange(&text);
            }
        }
    }
}

fn wait(world: &mut World, who: usize, request: Request) -> Result<(usize, PeerId), OpError> {
    for _ in 0..400_000 {
        if let Some(outcome) = world.workers[who].test(request) {
            return outcome.map(|done| (done.len, done.peer));
        }
        turn(world);
    }
    panic!("it does not end: {}", world.describe());
}

/// Sends bytes to a peer, which takes them from anybody; returns whom it takes them for.
fn exchange(world: &mut World, who: usize, peer: PeerId, there: usize, len: usize) -> PeerId {
    let receive = world.recv(there, TagMatch::Any, len);
    let send = world.workers[who].send_bytes(peer, TAG, &pattern(len, who)).expect("accepted");
    let (got, source) = wait(world, there, receive).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(got, len);
    assert_eq!(wait(world, who, send).expect("it has arrived"), (len, peer));
    source
}

fn check(world: &World) {
    world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
}

#[test]
fn a_stranger_comes_in_and_is_answered_and_adopted() {
    for (method, faults) in CONDITIONS {
        let mut world = world(2, &[("connect_method", method), ("faults", faults)]);
        let there = insert(&mut world, 0, 1);
        assert_eq!(there.rank(), None);
        for len in [0, 100, 100_000] {
            let here = exchange(&mut world, 0, there, 1, len);
            assert_eq!(world.workers[1].inside().address_of(here), Some(address(&world, 0)));
            assert_eq!(exchange(&mut world, 1, here, 0, len), there, "{method}: it has one name");
            assert_eq!(insert(&mut world, 1, 0), here, "{method}: who has come keeps its name");
        }
        assert_eq!(world.workers.iter().map(|worker| worker.stats().unknown_admitted).sum::<u64>(), 1, "{method}");
        check(&world);
    }
}

/// Who is asked for a connection computes, or who has asked and is answered: longer than Linux waits (55 s), and shorter than
/// `connect_timeout_s`.
#[test]
fn a_peer_that_computes_for_minutes_is_connected_all_the_same() {
    // Before its station is known, or afterwards.
    for (absent, turns) in [(1, 0), (1, 3), (0, 3)] {
        let mut world = world(2, &[]);
        let there = insert(&mut world, 0, 1);
        let receive = world.recv(1, TagMatch::Any, 10);
        let send = world.workers[0].send_bytes(there, TAG, &pattern(10, 0)).expect("accepted");
        for turn in 0..turns {
            world.clock().advance(1_000_000);
            world.workers[turn % 2].progress();
        }
        for _ in 0..3_000 {
            world.clock().advance(100_000_000);
            world.workers[1 - absent].progress();
        }
        assert!(!world.workers[0].is_connected(there));
        assert_eq!(wait(&mut world, 1, receive).expect("it comes").0, 10);
        wait(&mut world, 0, send).expect("it has arrived");
        check(&world);
    }
}

/// And one that never answers is given up.
#[test]
fn a_peer_that_is_away_for_longer_than_the_timeout_is_given_up() {
    let mut world = world(2, &[("connect_timeout_s", "100")]);
    let there = insert(&mut world, 0, 1);
    let send = world.workers[0].send_bytes(there, TAG, &pattern(10, 0)).expect("accepted");
    let mut seconds = 0;
    let outcome = loop {
        if let Some(outcome) = world.workers[0].test(send) {
            break outcome;
        }
        world.clock().advance(1_000_000_000);
        world.workers[0].progress();
        seconds += 1;
        assert!(seconds < 200, "it is waited for for ever: {}", world.describe());
    };
    assert!(matches!(outcome, Err(OpError::NotConnected { .. })), "{outcome:?}");
    assert!((95..=120).contains(&seconds), "after {seconds} s");
}

/// Short messages wait for others, to leave with them, and the peer is removed: they leave all the same, and what they were in is used
/// again, however often that is done.
#[test]
fn what_was_sent_to_a_peer_that_is_removed_at_once_has_left() {
    const SENT: usize = 9;
    let mut world = world(2, &[]);
    for round in 0..20 {
        let there = insert(&mut world, 0, 1);
        exchange(&mut world, 0, there, 1, 10);
        for number in 0..SENT {
            let send = world.workers[0].send_bytes(there, TAG, &pattern(8, number)).expect("accepted");
            world.workers[0].detach(send);
        }
        world.workers[0].take_turn();
        world.workers[0].remove(there).expect("it is known");
        check(&world);
        for _ in 0..SENT {
            let receive = world.recv(1, TagMatch::Any, 10);
            assert_eq!(wait(&mut world, 1, receive).expect("it has left").0, 8, "round {round}");
        }
        until_gone(&mut world, 1);
        // It is looked for seldom whether all of a peer's messages were received.
        world.steps(10_000);
    }
    check(&world);
}

/// A receive from one peer takes none of another's, and a peer that was inserted has the name that its messages have.
#[test]
fn messages_are_told_apart_by_who_sent_them() {
    let mut world = world(3, &[]);
    let peers = [1, 2].map(|peer| insert(&mut world, 0, peer));
    let receives = peers.map(|peer| world.recv_from(0, peer.into(), TAG, 10));
    for who in [2, 1] {
        let there = insert(&mut world, who, 0);
        let len = who;
        let send = world.workers[who].send_bytes(there, TAG, &pattern(len, who)).expect("accepted");
        wait(&mut world, who, send).expect("it has arrived");
    }
    for (at, receive) in receives.into_iter().enumerate() {
        assert_eq!(wait(&mut world, 0, receive).expect("it comes"), (at + 1, peers[at]));
    }
}

#[test]
fn both_may_ask_at_once() {
    for (method, faults) in CONDITIONS {
        let mut world = world(2, &[("connect_method", method), ("faults", faults)]);
        let peers = [insert(&mut world, 0, 1), insert(&mut world, 1, 0)];
        let receives = [0, 1].map(|who| world.recv(who, TagMatch::Any, 50));
        let sends =
            [0, 1].map(|who| world.workers[who].send_bytes(peers[who], TAG, &pattern(50, who)).expect("accepted"));
        for who in [0, 1] {
            assert_eq!(wait(&mut world, who, receives[who]).expect("it comes"), (50, peers[who]), "{method}");
            wait(&mut world, who, sends[who]).expect("it has arrived");
        }
        world.steps(2_000);
        assert_eq!(world.workers[0].stats().peers_gone, 0, "{method}");
        check(&world);
    }
}

/// What is under way with a peer that is removed ends by name, its messages are gone, and its name is no peer's; the same address
/// is another peer then, at both ends.
#[test]
fn a_peer_is_removed_and_inserted_again() {
    for (method, faults) in CONDITIONS {
        let mut world = world(2, &[("connect_method", method), ("faults", faults)]);
        let there = insert(&mut world, 0, 1);
        let here = exchange(&mut world, 0, there, 1, 10);
        // One of each: a receive, a send without a receive there, and messages that were not received.
        let receive = world.recv_from(0, there.into(), Tag::new(9), 10);
        let send = world.workers[0].send_bytes(there, Tag::new(8), &pattern(200_000, 1)).expect("accepted");
        for len in [10, 200_000] {
            let _ = world.workers[1].send_bytes(here, Tag::new(5), &pattern(len, 1)).expect("accepted");
        }
        (0..200).for_each(|_| turn(&mut world));
        assert!(world.workers[0].probe(any()).is_some());
        world.workers[0].remove(there).expect("it is there");
        for request in [receive, send] {
            assert_eq!(wait(&mut world, 0, request), Err(OpError::PeerRemoved { peer: there }), "{method}");
        }
        assert!(world.workers[0].probe(any()).is_none(), "{method}: what it sent is gone");
        assert!(matches!(world.workers[0].remove(there), Err(CallError::NoPeer(peer)) if peer == there));
        refused(&mut world, 0, there);
        refused_multi(&mut world, 0, there);
        let gone = until_gone(&mut world, 1);
        assert_eq!(gone, here, "{method}: the other end is notified");
        check(&world);
        let again = insert(&mut world, 0, 1);
        assert_ne!(again, there);
        let new = exchange(&mut world, 0, again, 1, 100_000);
        assert_ne!(new, here, "{method}: who comes after a failure is another peer");
        assert_eq!(exchange(&mut world, 1, new, 0, 100), again);
        check(&world);
    }
}

/// A message that was claimed outlives its sender's removal, as far as it is here.
#[test]
fn a_claimed_message_of_a_peer_that_was_removed_is_received_or_lost_by_name() {
    for (len, is_lost) in [(10, false), (100_000, true)] {
        let mut world = world(2, &[]);
        let here = insert(&mut world, 1, 0);
        let send = world.workers[1].send_bytes(here, TAG, &pattern(len, 1)).expect("accepted");
        world.workers[1].detach(send);
        let claimed = (0..10_000).find_map(|_| {
            turn(&mut world);
            world.workers[0].claim(any())
        });
        let claimed = claimed.expect("it comes");
        let peer = claimed.envelope().source;
        world.workers[0].remove(peer).expect("it has come");
        world.steps(5_000);
        let buffer = world.workers[0].buffer(len).expect("memory");
        let receive = world.workers[0].recv_message(claimed, buffer).expect("accepted");
        let outcome = wait(&mut world, 0, receive);
        assert_eq!(outcome, if is_lost { Err(OpError::PeerRemoved { peer }) } else { Ok((len, peer)) });
        check(&world);
    }
}

/// The word that a peer has gone may be lost, and the peer may begin anew before it is repeated: that says so, too. What is late of the
/// session before ends nothing of the new one.
#[test]
fn a_peer_that_begins_anew_is_met_anew_though_its_parting_was_lost() {
    for method in ["rdma_cm", "oob"] {
        for len in [8, 100_000] {
            let mut world = world(2, &[("connect_method", method)]);
            let mut there = insert(&mut world, 0, 1);
            let mut here = exchange(&mut world, 0, there, 1, len);
            for _ in 0..3 {
                world.net.part(&[0]);
                world.workers[0].remove(there).expect("it is there");
                world.steps(1);
                let mut late = Vec::new();
                while let Some((_, text)) = world.workers[0].next_exchange() {
                    late.push(text);
                }
                world.net.heal();
                there = insert(&mut world, 0, 1);
                let anew = exchange(&mut world, 0, there, 1, len);
                assert_ne!(anew, here, "{method}");
                let gone = std::iter::from_fn(|| world.workers[1].poll_event());
                let gone: Vec<_> = gone.filter(|event| matches!(event, WorkerEvent::PeerGone { .. })).collect();
                let error = OpError::PeerReplaced { peer: here };
                assert_eq!(gone, [WorkerEvent::PeerGone { peer: here, error }], "{method}");
                for text in late {
                    let _ = world.workers[1].deliver_exchange(&text);
                }
                assert_eq!(exchange(&mut world, 1, anew, 0, len), there, "{method}: nothing has ended it");
                check(&world);
                here = anew;
            }
        }
    }
}

/// Both ask, and one of them begins anew before it knows of the other's request, which goes on: nothing was between them yet, and
/// nothing fails.
#[test]
fn a_peer_that_begins_anew_while_both_ask_is_met() {
    let mut world = world(2, &[("connect_method", "oob")]);
    // The request of the lower address goes on.
    let first = usize::from(address(&world, 1) < address(&world, 0));
    let second = 1 - first;
    let ask = |world: &mut World, who: usize, peer: usize| {
        let peer = insert(world, who, peer);
        let send = world.workers[who].send_bytes(peer, TAG, &pattern(10, who)).expect("accepted");
        world.workers[who].detach(send);
        let (_, text) = world.workers[who].next_exchange().expect("it asks");
        (peer, text)
    };
    let (there, ours) = ask(&mut world, first, second);
    let (here, theirs) = ask(&mut world, second, first);
    world.workers[first].deliver_exchange(&theirs).expect("it is known");
    world.steps(10);
    world.workers[second].remove(here).expect("it is there");
    world.steps(10);
    // What was said about the first request is not carried: it is past.
    for who in [first, second] {
        while world.workers[who].next_exchange().is_some() {}
    }
    let (here, anew) = ask(&mut world, second, first);
    world.workers[second].deliver_exchange(&ours).expect("it is known");
    world.workers[first].deliver_exchange(&anew).expect("it is known");
    assert_eq!(exchange(&mut world, second, here, first, 10), there, "it has kept its name");
    check(&world);
}

/// A call that names a peer which there is not, or no more.
fn refused(world: &mut World, who: usize, peer: PeerId) {
    let error = match world.workers[who].send_bytes(peer, TAG, b"x") {
        Err(error) => error,
        // The engine's side of a dedicated worker refuses it.
        Ok(request) => match wait(world, who, request).expect_err("there is no such peer") {
            OpError::Refused(why) => {
                assert_eq!(why, format!("there is no {peer}"));
                return;
            }
            other => other.into(),
        },
    };
    assert!(matches!(error, CallError::NoPeer(named) if named == peer), "{error}");
}

/// A multi-receive from a peer that there is no more, whose buffer comes back.
fn refused_multi(world: &mut World, who: usize, peer: PeerId) {
    let buffer = world.workers[who].buffer(100).expect("memory");
    match world.workers[who].recv_multi(Pattern::new(peer, TagMatch::Any), buffer, 1, 5) {
        Err(refused) => {
            assert!(matches!(refused.why, CallError::NoPeer(named) if named == peer), "{refused}");
            assert_eq!(refused.given.len(), 100);
        }
        // The engine's side of a dedicated worker refuses it.
        Ok(_) => {
            let completion = world.find("its end", |world| world.workers[who].poll_completion());
            match completion.outcome {
                Err(OpError::MultiReceive(failed)) => {
                    assert_eq!(failed.why, OpError::Refused(format!("there is no {peer}")));
                    assert!(completion.is_last && failed.rest.is_some_and(|rest| rest.len() == 100));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn until_gone(world: &mut World, who: usize) -> PeerId {
    for _ in 0..400_000 {
        turn(world);
        if let Some(WorkerEvent::PeerGone { peer, .. }) = world.workers[who].poll_event() {
            return peer;
        }
    }
    panic!("none goes: {}", world.describe());
}

/// Slots are used again, many times, and only once nothing of the one before is under way: an old name reaches no peer.
#[test]
fn slots_are_used_again_and_old_names_reach_no_peer() {
    let mut world = world(3, &[]);
    let mut names = BTreeSet::new();
    for round in 0..50 {
        let peer = 1 + round % 2;
        let there = insert(&mut world, 0, peer);
        assert!(names.insert(there), "{there} again");
        let receive = world.recv(peer, TagMatch::Any, 5_000);
        let sends: Vec<_> = (0..20).map(|_| world.workers[0].send_bytes(there, TAG, &pattern(5_000, round))).collect();
        if round % 3 > 0 {
            wait(&mut world, peer, receive).expect("it comes");
        }
        // With much of it under way.
        world.workers[0].remove(there).expect("it is there");
        for send in sends {
            match wait(&mut world, 0, send.expect("accepted")) {
                Ok((5_000, to)) => assert_eq!(to, there),
                other => assert_eq!(other, Err(OpError::PeerRemoved { peer: there })),
            }
        }
        check(&world);
        if round % 3 == 0 {
            let envelope = (0..10_000).find_map(|_| {
                turn(&mut world);
                world.workers[peer].test(receive)
            });
            // A receive from anybody is met or goes on: it is not the removed peer's.
            if envelope.is_none() {
                world.workers[peer].cancel(receive);
                wait(&mut world, peer, receive).expect("taken back");
            }
        }
    }
    world.steps(20_000);
    let slots = names.iter().map(|name| name.slot()).max().expect("some");
    assert!(slots <= 8, "{slots} slots for two peers at a time");
    // Others have those slots now.
    let there = [1, 2].map(|peer| insert(&mut world, 0, peer));
    assert!(there.iter().any(|new| names.iter().any(|old| old.slot() == new.slot())));
    for (peer, there) in [1, 2].into_iter().zip(there) {
        // What came before is not this one's.
        while world.workers[peer].claim(any()).is_some() {}
        exchange(&mut world, 0, there, peer, 100);
    }
    for name in names {
        refused(&mut world, 0, name);
    }
}

/// An endpoint that was started again at the same place is another one: the address of the one before reaches none.
#[test]
fn an_address_means_one_incarnation() {
    let mut world = world(2, &[]);
    let stale = EndpointAddress { incarnation: 77, ..address(&world, 1) };
    let there = world.workers[0].insert(stale).expect("it is not known yet");
    let send = world.workers[0].send_bytes(there, TAG, &pattern(10, 1)).expect("accepted");
    let error = wait(&mut world, 0, send).expect_err("it is gone").to_string();
    let why = format!("{there} cannot be connected: the endpoint that it means is gone, and another has its address");
    assert_eq!(error, why);
    assert_eq!(world.workers[1].stats().unknown_admitted, 0);
    let there = insert(&mut world, 0, 1);
    exchange(&mut world, 0, there, 1, 100);
    let own = address(&world, 0);
    assert_eq!(world.workers[0].insert(own), Ok(PeerId::from(0)), "it is its own");
    let before = EndpointAddress { incarnation: 3, ..own };
    assert_eq!(world.workers[0].insert(before), Err(InsertError::Replaced(before)));
}

/// One that was connected dies and comes again at its place: the old name ends, by itself or with the new one's coming.
#[test]
fn who_comes_again_replaces_the_one_before() {
    let mut world = world(2, &[]);
    let there = insert(&mut world, 0, 1);
    exchange(&mut world, 0, there, 1, 10);
    let receive = world.recv_from(0, there.into(), TAG, 10);
    let (config, own) = (config(&SETTINGS), address(&world, 1));
    world.restart_stranger(1, &config, own.incarnation + 10);
    let here = insert(&mut world, 1, 0);
    let new = exchange(&mut world, 1, here, 0, 20);
    assert_ne!(new, there);
    let error = wait(&mut world, 0, receive).expect_err("it is gone");
    assert!(
        matches!(error, OpError::PeerReplaced { peer } | OpError::PeerGone { peer, .. } if peer == there),
        "{error}"
    );
    refused_or_failed(&mut world, 0, there);
    assert_eq!(insert(&mut world, 0, 1), new);
    check(&world);
}

fn refused_or_failed(world: &mut World, who: usize, peer: PeerId) {
    if let Ok(request) = world.workers[who].send_bytes(peer, TAG, b"x") {
        wait(world, who, request).expect_err("it is gone");
    }
}

/// A worker lets in as many as memory was planned for; who comes then is refused by name, and the others go on.
#[test]
fn more_peers_than_were_planned_for_are_refused_by_name() {
    let hub = config(&[&SETTINGS[..], &[("peers", "4")]].concat());
    let mut configs = vec![config(&SETTINGS); 6];
    configs[0] = hub;
    let mut world = World::of_strangers(NetConfig::default(), &configs, 1);
    let peers: Vec<_> = (1..6).map(|who| insert(&mut world, who, 0)).collect();
    // Half of them may come by themselves.
    for who in 1..3 {
        exchange(&mut world, who, peers[who - 1], 0, 100);
    }
    let send = world.workers[3].send_bytes(peers[2], TAG, b"may I?").expect("accepted");
    let error = wait(&mut world, 3, send).expect_err("it is full").to_string();
    assert!(error.ends_with("2 peers that were not inserted are here already (ROCI_PEERS)"), "{error}");
    // All others are for those that were inserted.
    for (who, has_room) in [(4, true), (5, true), (3, false)] {
        let there = insert(&mut world, 0, who);
        let send = world.workers[0].send_bytes(there, TAG, b"come").expect("accepted");
        let outcome = wait(&mut world, 0, send);
        assert_eq!(outcome.is_ok(), has_room, "{outcome:?}");
        if let Err(error) = outcome {
            assert!(error.to_string().ends_with("4 peers are connected already (ROCI_PEERS)"), "{error}");
        }
    }
    while world.workers[0].claim(any()).is_some() {}
    exchange(&mut world, 2, peers[1], 0, 100_000);
    check(&world);
}

/// A stranger that sends and goes leaves its messages, which are received from it by name; until then it counts among those that may
/// come, and afterwards no more.
#[test]
fn who_sends_and_goes_is_remembered_until_its_last_message_is_taken() {
    let hub = config(&[&SETTINGS[..], &[("peers", "4")]].concat());
    let mut configs = vec![config(&SETTINGS); 5];
    configs[0] = hub;
    let mut world = World::of_strangers(NetConfig::default(), &configs, 1);
    let mut left = Vec::new();
    for who in 1..4 {
        let there = insert(&mut world, who, 0);
        let send = world.workers[who].send_bytes(there, TAG, &pattern(10, who)).expect("accepted");
        let outcome = wait(&mut world, who, send);
        (0..5_000).for_each(|_| turn(&mut world));
        if who == 3 {
            assert!(outcome.is_err() || !world.workers[who].is_connected(there), "two have left messages");
            continue;
        }
        left.push(world.workers[0].probe(any()).expect("it has come").source);
        world.workers[who].remove(there).expect("it is there");
        until_gone(&mut world, 0);
        (0..20_000).for_each(|_| turn(&mut world));
    }
    left[1] = world.workers[0].claim(Pattern::new(Source::from(left[0]), TAG)).map_or(left[1], |message| {
        world.workers[0].discard(message);
        world.workers[0].probe(any()).expect("the other's").source
    });
    let receive = world.recv_from(0, left[1].into(), TAG, 10);
    assert_eq!(wait(&mut world, 0, receive).expect("it waits"), (10, left[1]));
    // Soon: others may wait for the place.
    (0..2_000).for_each(|_| turn(&mut world));
    refused(&mut world, 0, left[1]);
    let there = insert(&mut world, 4, 0);
    exchange(&mut world, 4, there, 0, 100);
    check(&world);
}

#[test]
fn one_end_of_a_wire_may_be_itself() {
    let mut world = world(1, &[]);
    let oneself = insert(&mut world, 0, 0);
    let receive = world.recv_from(0, oneself.into(), TAG, 10);
    let send = world.workers[0].send_bytes(oneself, TAG, b"me").expect("accepted");
    assert_eq!(wait(&mut world, 0, receive).expect("at once"), (2, oneself));
    wait(&mut world, 0, send).expect("sent");
    assert!(matches!(world.workers[0].remove(oneself), Err(CallError::NoPeer(peer)) if peer == oneself));
}

/// The peers of a rank are ranks.
#[test]
fn a_rank_has_no_strangers() {
    let mut pair = World::pair(&[("connect_method", "rdma_cm")]);
    let stranger = EndpointAddress { ip: [10, 0, 0, 9].into(), udp_port: 4791, service: 28_416, incarnation: 9 };
    assert_eq!(pair.workers[0].insert(stranger), Err(InsertError::Rank));
    assert!(matches!(pair.workers[0].remove(1.into()), Err(CallError::NoPeer(peer)) if peer == 1));
    assert!(pair.workers[0].deliver_exchange("10.0.0.9:1/2 0 knock").is_err());
    assert!(pair.workers[0].next_exchange().is_none());
}

/// Texts that none of ours has written change nothing.
#[test]
fn hostile_texts_of_an_exchange_are_refused() {
    let mut world = world(2, &[("connect_method", "oob"), ("connect_timeout_s", "1")]);
    let own = address(&world, 0);
    let foreign = EndpointAddress { ip: [10, 0, 0, 77].into(), udp_port: 4791, service: 1, incarnation: 4 };
    let me = format!("{own} {}", own.incarnation);
    let texts = ["", "x", "10.0.0.1", "0.0.0.0:1/1 1 1 0 ask"].map(str::to_owned);
    for text in texts.into_iter().chain(["1 0 ask x", "1 ask", "1", "1 x ask"].map(|rest| format!("{me} {rest}"))) {
        assert!(world.workers[0].deliver_exchange(&text).is_err(), "{text}");
    }
    assert!(world.workers[0].deliver_exchange(&format!("{foreign} 99 1 0 ask x")).is_err(), "it means another");
    for rest in ["", "ask", "ask x;y", "grant x", "gone x;y", "refuse", "knock", "\n"] {
        let _ = world.workers[0].deliver_exchange(&format!("{foreign} {} 1 0 {rest}", own.incarnation));
        (0..10).for_each(|_| turn(&mut world));
        check(&world);
    }
    let there = insert(&mut world, 0, 1);
    exchange(&mut world, 0, there, 1, 100);
}

/// A stream is a peer's own: who has its slot later has another.
#[test]
fn a_stream_ends_with_its_peer() {
    let mut world = world(2, &[]);
    let mut memory = 0;
    for round in 0..6u8 {
        let there = insert(&mut world, 0, 1);
        let here = insert(&mut world, 1, 0);
        let (mut put, mut got, bytes) = (0, Vec::new(), [round; 5_000]);
        for _ in 0..400_000 {
            if got.len() == bytes.len() {
                break;
            }
            put += world.workers[0].stream(there).expect("a peer").put(&bytes[put..]).expect("it lives");
            let mut into = [0; 5_000];
            let count = world.workers[1].stream(here).expect("a peer").get(&mut into).expect("it lives");
            got.extend_from_slice(&into[..count]);
            turn(&mut world);
        }
        assert!(*got == bytes, "round {round}: {} bytes have come", got.len());
        world.workers[0].remove(there).expect("it is there");
        world.workers[1].remove(here).expect("it is there");
        for _ in 0..2 {
            assert!(world.workers[0].stream(there).and_then(|mut stream| stream.put(b"x")).is_err());
            (0..2_000).for_each(|_| turn(&mut world));
        }
        let now = world.workers[0].memory();
        assert!(round == 0 || now == memory, "round {round} leaves {} bytes", memory - now);
        memory = now;
    }
}

/// What four strangers do at random: each inserts, removes, sends, receives, and is killed and started again now and then, while
/// packets are lost. Every operation ends, every message is what its sender has sent, and the promises hold after every step.
#[test]
fn whatever_strangers_do_every_operation_ends() {
    for seed in 0..12 {
        Crowd::new(seed).run();
    }
}

struct Crowd {
    world: World,
    dice: StdRng,
    seed: u64,
    /// What each knows of the others.
    known: Vec<Vec<PeerId>>,
    /// Operations of each, and the length that a message has which is received.
    open: Vec<Vec<Request>>,
    incarnation: u64,
    ended: usize,
}

impl Crowd {
    const COUNT: usize = 4;

    fn new(seed: u64) -> Self {
        let faults = format!("loss=0.03,dup=0.03,reorder=0.03,seed={seed}");
        // A peer that was killed without a word is missed soon.
        let settings =
            [("faults", faults.as_str()), ("retry_limit", "12"), ("keepalive_s", "1"), ("connect_timeout_s", "1")];
        let config = config(&[&SETTINGS[..], &settings].concat());
        let world = World::of_strangers(NetConfig::default(), &vec![config; Self::COUNT], seed);
        let (known, open) = (vec![Vec::new(); Self::COUNT], vec![Vec::new(); Self::COUNT]);
        Self { world, dice: StdRng::seed_from_u64(seed), seed, known, open, incarnation: 100, ended: 0 }
    }

    fn run(&mut self) {
        for _ in 0..400 {
            self.act();
            let steps = self.dice.random_range(1..60);
            (0..steps).for_each(|_| self.step());
        }
        // Receives from anybody may wait for ever; all others end when no peer is known.
        for who in 0..Self::COUNT {
            for peer in std::mem::take(&mut self.known[who]) {
                let _ = self.world.workers[who].remove(peer);
            }
            for &request in &self.open[who] {
                self.world.workers[who].cancel(request);
            }
        }
        for _ in 0..200_000 {
            if self.open.iter().all(Vec::is_empty) {
                break;
            }
            self.step();
        }
        let left = self.open.iter().map(Vec::len).collect::<Vec<_>>();
        assert!(
            left.iter().all(|&left| left == 0),
            "seed {}: {left:?} operations never end: {}",
            self.seed,
            self.world.counters()
        );
        assert!(self.ended > 50, "seed {}: {} operations", self.seed, self.ended);
    }

    fn act(&mut self) {
        let who = self.dice.random_range(0..Self::COUNT);
        let len = [0, 10, 2_000, 30_000, 100_000][self.dice.random_range(0..5)];
        let peer = self.known[who].choose(&mut self.dice).copied();
        match (self.dice.random_range(0..100), peer) {
            (0..15, _) => {
                let other = self.dice.random_range(0..Self::COUNT);
                let address = self.world.workers[other].address();
                if let Ok(peer) = self.world.workers[who].insert(address)
                    && other != who
                {
                    self.known[who].push(peer);
                }
            }
            (15..22, Some(peer)) => {
                self.known[who].retain(|&known| known != peer);
                let _ = self.world.workers[who].remove(peer);
            }
            (22..60, Some(peer)) => {
                let bytes = pattern(len, who);
                let tag = Tag::new((who as u64) << 32 | len as u64);
                if let Ok(request) = self.world.workers[who].send_bytes(peer, tag, &bytes) {
                    self.open[who].push(request);
                }
            }
            (60..64, Some(peer)) => {
                let request = self.world.recv_from(who, peer.into(), TagMatch::Any, 100_000);
                self.open[who].push(request);
            }
            (64..98, _) => {
                let request = self.world.recv(who, TagMatch::Any, 100_000);
                self.open[who].push(request);
            }
            (98.., _) => {
                self.incarnation += 1;
                let settings = [&SETTINGS[..], &[("retry_limit", "12"), ("connect_timeout_s", "1")]].concat();
                self.world.restart_stranger(who, &config(&settings), self.incarnation);
                self.known[who].clear();
                self.open[who].clear();
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        self.world.steps(1);
        for who in 0..Self::COUNT {
            let worker = &mut self.world.workers[who];
            worker.inside().check_invariants().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            let ended = &mut self.ended;
            self.open[who].retain(|&request| match worker.test(request) {
                None => true,
                Some(Ok(done)) if !done.is_cancelled && done.tag != Tag::new(0) => {
                    let (from, len) = ((done.tag.get() >> 32) as usize, done.tag.get() as u32 as usize);
                    assert_eq!(done.len, len);
                    assert!(done.buffer[..len] == *pattern(len, from), "another message's bytes");
                    *ended += 1;
                    false
                }
                Some(_) => {
                    *ended += 1;
                    false
                }
            });
        }
    }
}
