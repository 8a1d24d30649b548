//! No message starves: one whose receive is posted arrives, whatever else has no receive; and a stream to one rank
//! keeps no message to another waiting.

use roci_msgcore::{CallError, SendOptions, Source, Tag};
use roci_testkit::World as _;

use super::common::{World, config, pattern};

/// Messages that no receive waits for: more than any mode has credits, and more than take all the memory that they may.
const FLOOD: usize = 12_000;
const LEN: usize = 1000;
const UNWANTED: u64 = 1;
const WANTED: u64 = 2;

/// The ways in which receives are posted, and payloads move.
const MODES: [&[(&str, &str)]; 8] = [
    &[],
    &[("credits", "2")],
    &[("credits", "3"), ("credit_preserve", "1")],
    &[("receive_queues", "S,8KiB,512")],
    &[("receive_queues", "S,8KiB,16,8")],
    &[("receive_queues", "P,256,64:P,2KiB,32:S,16KiB,256"), ("eager_threshold", "32KiB")],
    &[("receive_queues", "P,256,2:P,8KiB,2")],
    &[("eager_threshold", "512"), ("rndv_protocol", "rput")],
];

/// A flood, and behind it a message whose receive is posted, which arrives. Then the flood is received, too.
fn survives_a_flood(settings: &[(&str, &str)]) {
    let mut pair = World::pair(&[settings, &[("unexpected_limit", "1MiB")]].concat());
    let bytes = pattern(LEN, 7);
    let wanted = pair.recv(1, Tag::new(WANTED), LEN);
    let sends: Vec<_> = (0..FLOOD).map(|_| pair.send(0, UNWANTED, &pattern(LEN, 3))).collect();
    let last = pair.send(0, WANTED, &bytes);
    pair.expect(1, wanted, &bytes);
    pair.wait(0, last).expect("it arrived");
    for send in sends {
        let receive = pair.recv(1, Tag::new(UNWANTED), LEN);
        pair.expect(1, receive, &pattern(LEN, 3));
        pair.wait(0, send).expect("it arrived");
    }
    pair.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
}

#[test]
fn a_message_whose_receive_is_posted_arrives_behind_a_flood_that_nobody_asked_for() {
    for settings in MODES {
        survives_a_flood(settings);
    }
}

/// The same from both ends at once: neither waits for the other's credits.
#[test]
fn floods_that_meet_do_not_keep_wanted_messages_from_arriving() {
    for settings in MODES {
        let mut pair = World::pair(&[settings, &[("unexpected_limit", "1MiB")]].concat());
        let wanted = [0, 1].map(|who| pair.recv(who, Tag::new(WANTED), LEN));
        for who in [0, 1] {
            for _ in 0..FLOOD {
                let _ = pair.send(who, UNWANTED, &pattern(LEN, who));
            }
            let _ = pair.send(who, WANTED, &pattern(LEN, 10 + who));
        }
        for who in [0, 1] {
            pair.expect(who, wanted[who], &pattern(LEN, 10 + (1 - who)));
        }
    }
}

/// As many messages to one rank are always under way as there are send buffers for, and one is for another rank.
#[test]
fn a_steady_stream_to_one_rank_keeps_no_message_to_another_waiting() {
    for (vbuf_max, peers) in [("16", 1), ("64", 1), ("16", 5)] {
        let settings: &[_] = &[("vbuf_max", vbuf_max), ("vbuf_pool", "16")];
        let mut world = World::of(&vec![settings; 2 + peers]);
        world.connect_all();
        let stream = |world: &mut World, count: usize| {
            for _ in 0..count {
                let _ = world.recv_from(1, Source::from(0), Tag::new(1), LEN);
                let mut payload = world.workers[0].buffer(LEN).expect("memory");
                payload.copy_from_slice(&pattern(LEN, 3));
                let _ = world.workers[0].send(1.into(), Tag::new(1), payload).expect("accepted");
            }
        };
        stream(&mut world, 1000);
        let others: Vec<_> = (2..2 + peers)
            .map(|rank| {
                let receive = world.recv_from(rank, Source::from(0), Tag::new(1), LEN);
                let send =
                    world.workers[0].send_bytes(rank.into(), Tag::new(1), &pattern(LEN, rank)).expect("accepted");
                (rank, receive, send)
            })
            .collect();
        // The stream never pauses meanwhile: what one step sends is sent anew.
        for (rank, receive, send) in others {
            let mut steps = 0;
            let done = loop {
                if let Some(done) = world.workers[rank].test(receive) {
                    break done.expect("it arrives");
                }
                stream(&mut world, 16);
                world.steps(1);
                steps += 1;
                assert!(
                    steps < 500,
                    "{vbuf_max} send buffers: a message to rank {rank} has not left: {}",
                    world.counters()
                );
            };
            assert!(done.buffer[..] == pattern(LEN, rank)[..]);
            world.wait(0, send).expect("it arrived");
        }
    }
}

/// Many peers share few send buffers: when the first has all of its messages, no other has less than half of them. Each message takes
/// a buffer, which several would share.
#[test]
fn peers_that_wait_for_send_buffers_are_served_in_turn() {
    const PEERS: usize = 8;
    const EACH: usize = 300;
    for vbuf_max in ["16", "24"] {
        let settings: &[_] =
            &[("vbuf_max", vbuf_max), ("vbuf_pool", "16"), ("credits", "64"), ("coalesce_threshold", "0")];
        let mut world = World::of(&[settings; 1 + PEERS]);
        world.connect_all();
        let mut receives = vec![Vec::new(); PEERS];
        for (peer, receives) in (1..).zip(&mut receives) {
            receives.extend((0..EACH).map(|_| world.recv_from(peer, Source::from(0), Tag::new(1), LEN)));
        }
        for peer in 1..=PEERS {
            for _ in 0..EACH {
                let _ = world.workers[0].send_bytes(peer.into(), Tag::new(1), &pattern(LEN, peer)).expect("accepted");
            }
        }
        let met = |world: &World, peer: usize| world.workers[peer].stats().rx_expected as usize;
        world.until("one has all", |world| (1..=PEERS).any(|peer| met(world, peer) == EACH));
        let counts: Vec<_> = (1..=PEERS).map(|peer| met(&world, peer)).collect();
        assert!(counts.iter().all(|&count| count >= EACH / 2), "{vbuf_max} send buffers: {counts:?}");
    }
}

/// As many messages as may be are announced and have no receive: one more is refused, with its memory, until one is received.
#[test]
fn announcements_without_a_receive_are_limited_at_their_sender() {
    let mut pair = World::pair(&[("eager_threshold", "0"), ("arena_size", "64MiB")]);
    // Of a dedicated worker as many as may wait at all.
    let limit = if pair.workers[0].is_dedicated() { 1 << 15 } else { 1 << 16 };
    let sends: Vec<_> = (0..limit).map(|_| pair.send(0, UNWANTED, b"announced")).collect();
    pair.until("all are announced", |pair| pair.workers[1].stats().rx_unexpected as usize == limit);
    let payload = pair.workers[0].buffer(9).expect("memory");
    let refused = pair.workers[0].send(1.into(), Tag::new(WANTED), payload).expect_err("too many wait");
    assert!(matches!(refused.why, CallError::TooMany(most) if most == limit), "{}", refused.why);
    let receive = pair.recv(1, Tag::new(UNWANTED), 9);
    pair.expect(1, receive, b"announced");
    pair.wait(0, sends[0]).expect("received");
    let wanted = pair.recv(1, Tag::new(WANTED), 9);
    pair.workers[0].send(1.into(), Tag::new(WANTED), refused.given).map(drop).expect("there is room again");
    pair.wait(1, wanted).expect("it arrives");
}

/// All send buffers are on their way to a rank that does not answer, and there is no memory for another: once there is some, a
/// message to a third rank leaves.
#[test]
fn a_message_leaves_once_there_is_memory_for_a_send_buffer() {
    let settings: &[_] = &[("vbuf_pool", "1"), ("vbuf_secondary_pool", "1"), ("retry_limit", "100000")];
    let mut world = World::of(&[settings; 3]);
    world.connect_all();
    let receive = world.recv_from(2, Source::from(0), Tag::new(1), LEN);
    let mut payloads: Vec<_> = (0..20).map(|_| world.workers[0].buffer(LEN).expect("memory")).collect();
    world.steps(1000);
    world.cut(1);
    let mut hog = Vec::new();
    for size in [1 << 20, 1 << 16, 1 << 13, 1 << 12, 64] {
        hog.extend(std::iter::from_fn(|| world.workers[0].buffer(size).ok()));
    }
    let last = payloads.pop().expect("some");
    for payload in payloads {
        let _ = world.workers[0].send(1.into(), Tag::new(1), payload).expect("accepted");
    }
    let send = world.workers[0].send(2.into(), Tag::new(1), last).expect("accepted");
    world.steps(5_000);
    assert!(world.workers[2].test(receive).is_none(), "there was a buffer for it");
    drop(hog);
    world.wait(2, receive).expect("it arrives");
    world.wait(0, send).expect("it arrived");
}

/// Messages of `len` bytes that no receive waits for, `count` from each rank to rank 0, whose arena keeps its floor: the
/// application has memory to receive them, and does.
fn leaves_the_application_its_memory(
    arena: &str,
    settings: &[(&str, &str)],
    ranks: usize,
    (count, len): (usize, usize),
) {
    let receiver = [&[("arena_size", arena), ("wireup", "lazy")], settings].concat();
    let sender = [&[("arena_size", "16MiB"), ("wireup", "lazy"), ("vbuf_pool", "8")], settings].concat();
    let each = [vec![&receiver[..]], vec![&sender[..]; ranks - 1]].concat();
    let mut world = World::of(&each);
    let floor = config(&receiver).arena_size / 16;
    let sends: Vec<Vec<_>> = (1..ranks)
        .map(|rank| {
            (0..count).map(|_| world.send_with(rank, 0, 1, &pattern(len, rank), SendOptions::default())).collect()
        })
        .collect();
    let all = ((ranks - 1) * count) as u64;
    world.find("all messages, or their announcements", |world| {
        (world.workers[0].stats().rx_unexpected == all).then_some(())
    });
    let free = world.workers[0].free_bytes();
    assert!(world.workers[0].inside().unexpected_bytes() > 0, "they wait");
    assert!(free >= floor - floor / 8, "{free} bytes are free, and the floor is {floor}: {}", world.counters());
    for (rank, sends) in (1..ranks).zip(sends) {
        for send in sends {
            let receive = world.recv_from(0, Source::from(rank), Tag::new(1), len);
            let done = world.wait(0, receive).expect("it comes");
            assert!(done.buffer[..] == pattern(len, rank)[..]);
            world.wait(rank, send).expect("it is sent");
        }
    }
    world.workers[0].inside().check_invariants().expect("what must hold");
    // As many again find all credits at home.
    let last = world.send_with(1, 0, 1, &pattern(len, 5), SendOptions::default());
    let receive = world.recv_from(0, Source::from(1), Tag::new(1), len);
    assert!(world.wait(0, receive).expect("it comes").buffer[..] == pattern(len, 5)[..]);
    world.wait(1, last).expect("it is sent");
}

#[test]
fn small_messages_from_many_peers_leave_the_application_its_memory() {
    leaves_the_application_its_memory("112MiB", &[("credits", "160"), ("vbuf_size", "1KiB")], 601, (140, 100));
}

#[test]
fn large_messages_from_eight_ranks_leave_the_application_its_memory() {
    for settings in [
        &[][..],
        &[("credits", "240")],
        &[("receive_queues", "S,8KiB,512")],
        &[("receive_queues", "S,8KiB,1024,512,512,256")],
        &[("receive_queues", "P,256,64:P,8KiB,200")],
    ] {
        leaves_the_application_its_memory("24MiB", settings, 8, (140, 5_000));
    }
}

/// The queue asks for more credits than there is memory for: each peer is granted its part of what there is.
#[test]
fn what_peers_have_credits_for_on_a_shared_queue_leaves_the_application_its_memory() {
    let settings: &[_] = &[("receive_queues", "S,8KiB,4096,2048,2000,256")];
    leaves_the_application_its_memory("24MiB", settings, 8, (700, 5_000));
}
