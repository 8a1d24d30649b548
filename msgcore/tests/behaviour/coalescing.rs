//! Short messages that share a packet: each is a message like any other, with or without a receive, whatever comes between.

use roci_msgcore::{OpError, Pattern, Request, SendOptions, Source, Tag, TagMatch};
use roci_testkit::World as _;

use super::common::{World, pattern};

/// Lengths of messages that share packets, and of one that does not.
const LENS: [usize; 8] = [0, 8, 24, 25, 100, 600, 1000, 1025];
const MESSAGES: u64 = 60;

fn bytes(at: u64) -> Vec<u8> {
    pattern(LENS[at as usize % LENS.len()], at as usize)
}

fn quiet_pair(settings: &[(&str, &str)]) -> World {
    let mut pair = World::pair(settings);
    pair.connect_all();
    pair.steps(1_000);
    pair
}

fn send_all(pair: &mut World) -> Vec<Request> {
    (0..MESSAGES).map(|at| pair.send(0, at, &bytes(at))).collect()
}

fn all_are_sent(pair: &mut World, sends: Vec<Request>) {
    for send in sends {
        pair.wait(0, send).expect("sent");
    }
}

#[test]
fn short_messages_share_packets_up_to_the_threshold() {
    // The first goes at once, and no packet has more than the path MTU holds.
    for (threshold, fewest, most) in
        [("0", MESSAGES, MESSAGES + 9), ("7", MESSAGES, MESSAGES + 9), ("8", 2, MESSAGES / 8)]
    {
        let mut pair = quiet_pair(&[("coalesce_threshold", threshold)]);
        let sent = |pair: &World| pair.workers[1].engine_stats().rx_frames;
        let before = sent(&pair);
        let receives: Vec<_> = (0..MESSAGES).map(|at| pair.recv(1, Tag::new(at), 8)).collect();
        let sends: Vec<_> = (0..MESSAGES).map(|at| pair.send(0, at, &at.to_be_bytes())).collect();
        for (at, receive) in (0..MESSAGES).zip(receives) {
            pair.expect(1, receive, &at.to_be_bytes());
        }
        all_are_sent(&mut pair, sends);
        let frames = sent(&pair) - before;
        assert!((fewest..=most).contains(&frames), "{frames} frames, threshold {threshold}");
        assert_eq!(pair.workers[1].stats().rx_expected, MESSAGES);
        let (engine, stats) = (pair.workers[1].engine_stats(), pair.workers[0].stats());
        assert_eq!((engine.queue_pairs.out_of_buffer, stats.credit_stalls, stats.tx_eager), (0, 0, MESSAGES));
    }
}

/// Of the messages of one packet some have receives, and in whatever places these are all arrive, in their order.
#[test]
fn each_message_meets_its_receive_wherever_in_its_packet_it_is() {
    type IsExpected = fn(u64) -> bool;
    let ways: [IsExpected; 6] =
        [|_| true, |_| false, |at| at % 2 == 0, |at| at % 7 == 3, |at| at < MESSAGES / 2, |at| at > 3];
    for is_expected in ways {
        let mut pair = quiet_pair(&[]);
        let early: Vec<_> =
            (0..MESSAGES).filter(|&at| is_expected(at)).map(|at| (at, pair.recv(1, Tag::new(at), 2000))).collect();
        let sends = send_all(&mut pair);
        pair.steps(1_000);
        let counts = pair.workers[1].stats();
        assert_eq!((counts.rx_expected, counts.rx_unexpected), (early.len() as u64, MESSAGES - early.len() as u64));
        for (at, receive) in early {
            pair.expect(1, receive, &bytes(at));
        }
        // Who takes any message has the others in the order in which they were sent.
        for at in (0..MESSAGES).filter(|&at| !is_expected(at)) {
            let receive = pair.recv(1, TagMatch::Any, 2000);
            pair.expect(1, receive, &bytes(at));
        }
        all_are_sent(&mut pair, sends);
    }
}

#[test]
fn every_kind_of_receive_takes_messages_out_of_packets() {
    let mut pair = quiet_pair(&[]);
    let (in_place, any, short, cancelled) = {
        let to = &mut pair.workers[1];
        let in_place = to.recv_in_place(Pattern::new(Source::Any, Tag::new(1))).expect("accepted");
        (
            in_place,
            pair.recv(1, TagMatch::Masked { tag: Tag::new(2), ignore: 1 }, 100),
            pair.recv(1, Tag::new(4), 99),
            pair.recv(1, Tag::new(9), 8),
        )
    };
    let room = pair.workers[1].buffer(1 << 12).expect("memory");
    let multi = pair.workers[1].recv_multi(Pattern::new(Source::Any, Tag::new(5)), room, 1 << 11, 7).expect("accepted");
    let sends: Vec<_> = [(0, 8), (1, 10), (2, 20), (3, 30), (4, 100), (5, 50), (5, 51), (6, 60), (1 << 40, 70)]
        .map(|(tag, len)| pair.send(0, tag, &pattern(len, tag as usize)))
        .into();
    pair.expect(1, in_place, &pattern(10, 1));
    pair.expect(1, any, &pattern(20, 2));
    let error = pair.wait(1, short).expect_err("it is too long");
    assert!(matches!(&error, OpError::Truncated(why) if why.envelope.len == 100 && why.buffer.is_some()), "{error}");
    pair.workers[1].cancel(cancelled);
    assert!(pair.wait(1, cancelled).expect("it ends").is_cancelled);
    for len in [50, 51] {
        let done = pair.find("a part", |pair| pair.workers[1].poll_completion());
        let done = (done.context, done.outcome.expect("it came"));
        assert_eq!((done.0, &done.1.buffer[..]), (7, &pattern(len, 5)[..]));
    }
    pair.workers[1].cancel(multi);
    pair.wait(1, multi).expect("it ends");
    // Of those without a receive one is seen, one is claimed, one is taken back.
    let envelope = pair.find("a probe", |pair| pair.workers[1].probe(Pattern::new(Source::Any, Tag::new(6))));
    assert_eq!(envelope.len, 60);
    let claim = pair.find("a claim", |pair| pair.workers[1].claim(Pattern::new(Source::Any, Tag::new(0))));
    let buffer = pair.workers[1].buffer(8).expect("memory");
    let claimed = pair.workers[1].recv_message(claim, buffer).expect("accepted");
    pair.expect(1, claimed, &pattern(8, 0));
    let mut sends = sends;
    let withdrawn = sends.remove(7);
    pair.workers[0].cancel(withdrawn);
    assert!(pair.wait(0, withdrawn).expect("it ends").is_cancelled);
    for (tag, len) in [(3, 30), (1 << 40, 70)] {
        let receive = pair.recv(1, Tag::new(tag), 100);
        pair.expect(1, receive, &pattern(len, tag as usize));
    }
    all_are_sent(&mut pair, sends);
    assert!(pair.workers[1].probe(Pattern::new(Source::Any, TagMatch::Any)).is_none(), "nothing is left");
}

/// What cannot share a packet leaves behind what it was sent after.
#[test]
fn messages_of_other_kinds_do_not_overtake_what_waits_in_a_packet() {
    let mut pair = quiet_pair(&[("credits", "16")]);
    let options = [SendOptions::default(), SendOptions::default().synchronous(), SendOptions::default().ready()];
    let lens = [8, 8, 3000, 8, 20_000, 8, 8, 200_000, 0, 1024];
    let sends: Vec<_> =
        (0..90).map(|at| pair.send_with(0, 1, 7, &pattern(lens[at % 10], at), options[at / 2 % 3])).collect();
    for at in 0..90 {
        let receive = pair.recv(1, Tag::new(7), 200_000);
        pair.expect(1, receive, &pattern(lens[at % 10], at));
    }
    all_are_sent(&mut pair, sends);
}

#[test]
fn faults_on_both_ways_lose_nothing_of_a_packet() {
    for rdma in ["on", "off"] {
        let faults = "loss=0.05,dup=0.05,reorder=0.05,corrupt=0.05,seed=9";
        let mut pair = quiet_pair(&[("faults", faults), ("ack_timeout_us", "100"), ("rdma", rdma)]);
        for round in 0..20 {
            let early: Vec<_> = (0..MESSAGES)
                .filter(|at| at % 3 != round % 4)
                .map(|at| (at, pair.recv(1, Tag::new(at), 2000)))
                .collect();
            let sends = send_all(&mut pair);
            for (at, receive) in early {
                pair.expect(1, receive, &bytes(at));
            }
            for at in (0..MESSAGES).filter(|at| at % 3 == round % 4) {
                let receive = pair.recv(1, Tag::new(at), 2000);
                pair.expect(1, receive, &bytes(at));
            }
            all_are_sent(&mut pair, sends);
        }
        assert!(pair.workers[0].injected_faults() > 0);
    }
}

/// Packets of both bring credits, of which some messages are taken before others are kept: in the end all are at home.
#[test]
fn no_credit_is_lost_with_the_front_of_a_packet() {
    const EACH: u64 = 30;
    let settings: &[_] = &[("credits", "12"), ("credit_notify_threshold", "1")];
    let mut world = World::of(&[settings; 3]);
    world.connect_all();
    for round in 0..40 {
        // The first ones, and they end in the middle of a packet.
        let early = |who: usize| (round + 5 * who as u64) % 20;
        let receive = |world: &mut World, who: usize, at: u64| (who, at, world.recv(who, Tag::new(at), 30));
        let mut receives = Vec::new();
        for who in [0, 1] {
            receives.extend((0..early(who)).map(|at| receive(&mut world, who, at)));
            // What goes at once goes to another peer: so it is the packet that brings credits.
            let first = world.workers[who].send_bytes(2.into(), Tag::new(0), &[]).expect("accepted");
            world.workers[who].detach(first);
            for at in 0..EACH {
                let to = (1 - who).into();
                let send =
                    world.workers[who].send_bytes(to, Tag::new(at), &pattern(30, at as usize)).expect("accepted");
                world.workers[who].detach(send);
            }
        }
        world.steps(3);
        for who in [0, 1] {
            receives.extend((early(who)..EACH).map(|at| receive(&mut world, who, at)));
        }
        for (who, at, receive) in receives {
            world.expect(who, receive, &pattern(30, at as usize));
        }
        for who in [0, 1] {
            let receive = world.recv_from(2, Source::from(who), Tag::new(0), 0);
            world.wait(2, receive).expect("it comes");
        }
    }
    world.steps(1_000);
    for who in [0, 1] {
        let credits_of = |who: usize, peer: usize| world.workers[who].inside().credits_of(peer)[0];
        let (ours, theirs) = (credits_of(who, 1 - who), credits_of(1 - who, who));
        assert_eq!(ours.available + theirs.kept, ours.granted, "{ours:?} {theirs:?}");
    }
}

/// Where messages without a receive may take no more memory, each takes its part of the vbuf that it came in.
#[test]
fn packets_without_memory_for_copies_are_kept_in_parts_and_all_memory_comes_back() {
    for queues in ["", "S,8192,64,16,32,32,48"] {
        let mut pair = quiet_pair(&[("unexpected_limit", "1MiB"), ("arena_size", "16MiB"), ("receive_queues", queues)]);
        let free = pair.workers[1].memory();
        for round in 0..3 {
            let sends: Vec<_> =
                (0..9_000).map(|at| pair.send(0, at, &pattern(at as usize % 90, at as usize))).collect();
            pair.steps(3_000);
            let stored = pair.workers[1].stats().rx_unexpected;
            assert!(stored > 3_000, "{stored}");
            for at in 0..9_000 {
                let at = if round == 1 { 8_999 - at } else { at };
                let receive = pair.recv(1, Tag::new(at), 90);
                pair.expect(1, receive, &pattern(at as usize % 90, at as usize));
            }
            all_are_sent(&mut pair, sends);
        }
        pair.steps(70_000);
        assert_eq!(pair.workers[1].memory(), free, "queues {queues}");
    }
}

/// Nothing is waited for, and nothing is kept.
#[test]
fn who_goes_without_lingering_has_sent_what_was_in_a_packet() {
    let mut pair = quiet_pair(&[("linger_ms", "0")]);
    for at in 0..9 {
        let send = pair.send(0, at, &[7; 8]);
        pair.workers[0].detach(send);
    }
    pair.workers[0].take_turn();
    drop(pair.workers.remove(0));
    for at in 0..9 {
        let buffer = pair.workers[0].buffer(8).expect("memory");
        let receive = pair.workers[0].recv(Source::Any, Tag::new(at), buffer).expect("accepted");
        assert_eq!(pair.wait(0, receive).expect("it came").buffer[..], [7; 8]);
    }
}

/// Who computes, and then loses its peer, has what was in the packet back.
#[test]
fn a_peer_that_goes_takes_nothing_of_an_open_packet_with_it() {
    let mut pair = quiet_pair(&[("retry_limit", "3"), ("ack_timeout_max_us", "2000")]);
    let free = pair.workers[0].memory();
    let sends: Vec<_> = (0..9).map(|at| pair.send(0, at, &[7; 8])).collect();
    pair.cut(1);
    pair.workers[0].ring_doorbell();
    let more: Vec<_> =
        (0..9).filter_map(|at| pair.workers[0].send_bytes(1.into(), Tag::new(at), &[7; 8]).ok()).collect();
    pair.until("the peer is gone", |pair| pair.workers[0].stats().peers_gone > 0);
    for send in sends.into_iter().chain(more) {
        let _ = pair.wait(0, send);
    }
    pair.steps(70_000);
    assert_eq!(pair.workers[0].memory(), free);
}
