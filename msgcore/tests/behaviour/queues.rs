//! Several receive queues: messages of mixed sizes keep their order over several lanes, credits are told only of
//! receives that are posted, a shortage of shared receives heals, and the accounts are right at the end.

use roci_msgcore::{Buffer, CreditAccount, Dropped, OpError, SendOptions, Source, Tag, TagMatch};
use roci_testkit::World as _;

use super::common::{TestWorker, World, pattern};

const BSRQ: &str = "P,256,64:P,2KiB,32:S,16KiB,64,32,16,16,4";
const HEAVY: &str = "loss=0.1,dup=0.05,reorder=0.1,corrupt=0.02,seed=21";
const QUICK: [(&str, &str); 2] = [("ack_timeout_us", "100"), ("ack_timeout_max_us", "1000")];
/// Round all lanes, their edges, and the rendezvous.
const LENS: [usize; 12] = [0, 100, 10_000, 216, 2008, 217, 50_000, 2009, 16_344, 16_345, 1, 3000];

fn no_receive_was_missing(worker: &TestWorker) -> bool {
    worker.engine_stats().queue_pairs.out_of_buffer == 0
}

/// Sends `rounds` of mixed sizes each way, all under one tag, and receives them with wildcards.
fn exchange_in_order(pair: &mut World, rounds: usize, lens: &[usize]) {
    for round in 0..rounds {
        let mut sends = Vec::new();
        for (mark, &len) in lens.iter().enumerate() {
            for who in [0, 1] {
                sends.push((who, pair.send(who, 7, &pattern(len, mark + round))));
            }
        }
        if round % 2 == 1 {
            pair.steps(300);
        }
        let receives: Vec<_> = (0..lens.len())
            .map(|mark| {
                [0, 1].map(|who| pair.recv(who, if mark % 2 == 0 { TagMatch::Any } else { Tag::new(7).into() }, 60_000))
            })
            .collect();
        for (mark, (receives, &len)) in receives.into_iter().zip(lens).enumerate() {
            for (who, receive) in receives.into_iter().enumerate() {
                pair.expect(who, receive, &pattern(len, mark + round));
            }
        }
        for (who, send) in sends {
            pair.wait(who, send).expect("sent");
        }
    }
}

fn with(queues: &'static str, faults: &'static str, more: &[(&'static str, &'static str)]) -> World {
    let settings = [&[("receive_queues", queues), ("faults", faults)], &QUICK[..], more].concat();
    let mut pair = World::pair(&settings);
    pair.connect_all();
    pair
}

/// Closes both, and says what they gave up.
fn close(pair: World) -> Vec<Dropped> {
    pair.workers.into_iter().map(|worker| worker.close().expect("all is quiet")).collect()
}

#[test]
fn messages_keep_their_order_over_several_lanes() {
    for faults in ["", HEAVY] {
        for queues in [BSRQ, "P,256,64:P,2KiB,32:P,16KiB,16", "S,256,64:S,16KiB,32", "S,256,32:P,2KiB,8:S,16KiB,16"] {
            let mut pair = with(queues, faults, &[]);
            exchange_in_order(&mut pair, 12, &LENS);
            assert!(faults.is_empty() || pair.workers[0].injected_faults() > 100);
        }
    }
}

/// A series on the last lane is overtaken by short messages on the first, or overtakes them.
#[test]
fn a_series_keeps_its_place_among_messages_of_other_lanes() {
    for faults in ["", HEAVY] {
        for queues in ["P,256,64:P,2KiB,64", "P,256,64:S,2KiB,64,32,32"] {
            let mut pair = with(queues, faults, &[("eager_threshold", "20000")]);
            exchange_in_order(&mut pair, 30, &[10, 15_000, 20, 5000, 2008, 19_999, 30, 40]);
            assert_eq!(pair.workers[0].stats().tx_rget, 0);
            assert!(pair.workers[0].stats().tx_eager > 100);
        }
    }
}

/// What a loss has held back comes all at once: there must be a receive for every credit that was told of.
#[test]
fn no_more_credits_are_returned_than_receives_are_posted() {
    for queues in ["P,256,64", "P,256,64,8,16,7", "P,256,200,100,10,40", "P,256,4,1", "P,256,2", "P,256,16:P,2KiB,16"] {
        let mut pair = with(queues, "loss=0.1,reorder=0.05,seed=4", &[]);
        for round in 0..20 {
            let sends: Vec<_> = (0..150).map(|mark| pair.send(0, mark, &pattern(mark as usize, round))).collect();
            for mark in 0..150 {
                let receive = pair.recv(1, Tag::new(mark), 150);
                pair.expect(1, receive, &pattern(mark as usize, round));
            }
            for send in sends {
                pair.wait(0, send).expect("sent");
            }
        }
        assert!(pair.workers.iter().all(no_receive_was_missing), "{queues}: {}", pair.counters());
    }
}

/// The receiver has no memory for another vbuf: it must not tell of receives that it cannot post.
#[test]
fn a_receiver_without_memory_returns_no_credits_and_goes_on_when_there_is_some() {
    for queues in ["P,8KiB,16", "S,8KiB,16,8,8,8,4"] {
        let settings = [("receive_queues", queues), ("credit_preserve", "1"), QUICK[0], QUICK[1]];
        let mut pair = World::pair(&settings);
        pair.connect_all();
        let receives: Vec<_> = (0..300).map(|mark| pair.recv(1, Tag::new(mark), 100)).collect();
        let mut hog = Vec::new();
        for size in [1 << 20, 1 << 16, 1 << 13] {
            hog.extend(std::iter::from_fn(|| pair.workers[1].buffer(size).ok()));
        }
        // These are kept with their vbufs; those behind them are expected.
        let kept: Vec<_> = (1000..1200).map(|mark| pair.send(0, mark, &pattern(100, 1))).collect();
        let sends: Vec<_> = (0..300).map(|mark| pair.send(0, mark, &pattern(100, mark as usize))).collect();
        pair.steps(20_000);
        assert_eq!(pair.workers[1].stats().peers_gone, 0, "{}", pair.counters());
        drop(hog);
        for (mark, _) in (1000..).zip(&kept) {
            let receive = pair.recv(1, Tag::new(mark), 100);
            pair.expect(1, receive, &pattern(100, 1));
        }
        for (mark, receive) in receives.into_iter().enumerate() {
            pair.expect(1, receive, &pattern(100, mark));
        }
        for send in kept.into_iter().chain(sends) {
            pair.wait(0, send).expect("sent");
        }
    }
}

/// Takes all memory of rank 1 but for room for so many receives of 8 KiB, until it is dropped.
fn leave_room_for(pair: &World, receives: usize) -> Vec<Buffer> {
    let keep: Vec<_> = (0..receives).map(|_| pair.workers[1].buffer(8192).expect("memory")).collect();
    let mut hog = Vec::new();
    for size in [1 << 20, 1 << 16, 1 << 13] {
        hog.extend(std::iter::from_fn(|| pair.workers[1].buffer(size).ok()));
    }
    drop(keep);
    hog
}

/// What cannot be posted when the connection is made is not granted then, and given when there is memory.
#[test]
fn a_connection_made_while_memory_is_short_grants_no_receives_that_are_missing() {
    for (method, who, room) in [("oob", 0, 40), ("oob", 1, 40), ("rdma_cm", 0, 40), ("rdma_cm", 1, 10), ("oob", 0, 130)]
    {
        let mut pair = World::pair(&[("connect_method", method), QUICK[0], QUICK[1]]);
        let hog = leave_room_for(&pair, room);
        pair.workers[who].connect((1 - who).into()).expect("it is there");
        let sends: Vec<_> = (0..300).map(|mark| pair.send(0, mark, &pattern(100, mark as usize))).collect();
        for _ in 0..20_000 {
            pair.step();
            pair.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
        }
        assert!(pair.workers[0].is_connected(1), "{}", pair.counters());
        let CreditAccount { granted, available, .. } = pair.workers[0].inside().credits_of(1)[0];
        assert!(granted == 128 && usize::from(available) < room, "{available} of {granted}");
        drop(hog);
        for (mark, send) in (0..300).zip(sends) {
            let receive = pair.recv(1, Tag::new(mark), 100);
            pair.expect(1, receive, &pattern(100, mark as usize));
            pair.wait(0, send).expect("sent");
        }
        pair.steps(5_000);
        let [near, far] = [0, 1].map(|who| pair.workers[who].inside().credits_of(1 - who)[0]);
        assert_eq!(near.available + far.kept, 128, "all are granted in the end");
        assert_eq!(pair.workers[1].inside().receive_bytes_of(0), 135 * 8192);
        assert!(pair.workers.iter().all(no_receive_was_missing), "{}", pair.counters());
    }
}

/// Not even the reserve and two receives can be posted: nothing could ever be sent.
#[test]
fn a_connection_without_memory_for_the_least_receives_is_refused_by_name_at_both_ends() {
    for (method, who) in [("oob", 0), ("oob", 1), ("rdma_cm", 0), ("rdma_cm", 1)] {
        let mut pair = World::pair(&[("connect_method", method), QUICK[0], QUICK[1]]);
        let hog = leave_room_for(&pair, 8);
        let sends = [who, 1 - who].map(|who| (who, pair.send(who, 1, b"early")));
        for (who, send) in sends {
            let error = pair.wait(who, send).map(|done| done.len).expect_err("there is no room").to_string();
            let why = "rank 1 has no memory for 9 receives of 8KiB, the least of 135: raise its ROCI_ARENA_SIZE";
            assert!(error.contains(why), "{method}, {who} first: {error}");
        }
        drop(hog);
        pair.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
    }
}

/// Memory comes back without any vbuf of the worker's: nobody else would notice.
#[test]
fn receives_that_had_no_memory_are_posted_once_there_is_some() {
    let mut pair = World::pair(&[("receive_queues", "S,8KiB,8,4,8,8,0"), ("vbuf_secondary_pool", "1"), QUICK[0]]);
    pair.connect_all();
    let mut hog = Vec::new();
    for size in [1 << 20, 1 << 16, 1 << 13, 64] {
        hog.extend(std::iter::from_fn(|| pair.workers[1].buffer(size).ok()));
    }
    let sends: Vec<_> = (0..40).map(|mark| pair.send(0, mark, &pattern(100, mark as usize))).collect();
    pair.steps(5_000);
    drop(hog);
    pair.until("all have come", |pair| pair.workers[1].stats().rx_unexpected == 40);
    for (mark, send) in (0..40).zip(sends) {
        let receive = pair.recv(1, Tag::new(mark), 100);
        pair.expect(1, receive, &pattern(100, mark as usize));
        pair.wait(0, send).expect("sent");
    }
}

#[test]
fn two_credits_are_enough_on_every_lane() {
    let mut pair = with("P,256,2:P,2KiB,2:P,16KiB,2", HEAVY, &[]);
    exchange_in_order(&mut pair, 10, &LENS);
    assert!(pair.workers.iter().all(no_receive_was_missing));
    assert!(pair.workers[0].stats().credit_stalls > 0);
}

/// Many peers send to one at once: its shared queue runs dry, grows, and every message arrives.
#[test]
fn a_shortage_of_shared_receives_grows_the_queue_and_heals() {
    let settings = [("receive_queues", "S,512,256,128,64,4,3"), QUICK[0], QUICK[1]];
    let mut world = World::of(&[&settings[..]; 5]);
    world.connect_all();
    let mut sends = Vec::new();
    for mark in 0..60 {
        for from in 1..5 {
            sends.push((from, world.send_with(from, 0, mark, &pattern(300, mark as usize), SendOptions::default())));
        }
    }
    world.until("all have come", |world| world.workers[0].stats().rx_unexpected == 240);
    assert!(world.workers[0].engine_stats().queue_pairs.out_of_buffer > 0, "four receives are too few for this");
    for mark in 0..60 {
        for from in 1..5 {
            let receive = world.recv_from(0, Source::from(from), Tag::new(mark), 300);
            assert!(*world.wait(0, receive).expect("received").buffer == *pattern(300, mark as usize));
        }
    }
    for (from, send) in sends {
        world.wait(from, send).expect("sent");
    }
    // It has grown: the same again finds receives.
    let before = world.workers[0].engine_stats().queue_pairs.out_of_buffer;
    for from in 1..5 {
        for _ in 0..10 {
            let _ = world.send_with(from, 0, 1, b"again", SendOptions::default());
        }
        world.steps(200);
    }
    assert_eq!(world.workers[0].engine_stats().queue_pairs.out_of_buffer, before);
}

#[test]
fn each_connection_takes_what_its_own_queues_take() {
    for (queues, bytes) in [
        ("P,256,64,32,16,7", 71 * 256),
        ("P,256,64,32,16,7:P,2KiB,32,16,8,7", 71 * 256 + 39 * 2048),
        ("P,256,64,32,16,7:S,16KiB,64", 71 * 256),
        ("S,16KiB,64", 0),
    ] {
        let settings = [("receive_queues", queues)];
        let mut world = World::of(&[&settings[..]; 3]);
        for worker in &mut world.workers {
            assert_eq!((worker.inside().receive_bytes_of(0), worker.inside().receive_bytes_of(9)), (0, 0));
        }
        world.workers[0].connect(1.into()).expect("it is there");
        world.until("they are connected", |world| world.workers[0].is_connected(1) && world.workers[1].is_connected(0));
        assert_eq!([1, 2].map(|peer| world.workers[0].inside().receive_bytes_of(peer)), [bytes, 0], "{queues}");
        assert_eq!(world.workers[1].inside().receive_bytes_of(0), bytes);
    }
}

/// After any traffic all receives are there again, no message is lost, and all memory but for vbufs is free.
#[test]
fn nothing_is_lost_at_the_end() {
    for (queues, faults) in [(BSRQ, HEAVY), ("P,256,64:P,2KiB,32:P,16KiB,16", HEAVY), (BSRQ, "")] {
        let mut pair = with(queues, faults, &[]);
        let fresh = pair.workers[0].inside().receive_bytes_of(1);
        exchange_in_order(&mut pair, 5, &LENS);
        pair.steps(5_000);
        let free = [0, 1].map(|who| pair.workers[who].free_bytes());
        let vbufs = [0, 1].map(|who| pair.workers[who].stats().vbufs);
        exchange_in_order(&mut pair, 5, &LENS);
        pair.steps(5_000);
        for who in [0, 1] {
            let worker = &pair.workers[who];
            let stats = worker.stats();
            assert_eq!(worker.inside().receive_bytes_of(1 - who), fresh);
            assert_eq!(stats.rx_expected + stats.rx_unexpected, 10 * LENS.len() as u64);
            assert_eq!(worker.inside().unexpected_bytes(), 0);
            assert!(stats.vbufs > vbufs[who] || worker.free_bytes() == free[who]);
            assert!(worker.engine_stats().is_balanced());
        }
        assert_eq!(close(pair), [Dropped::default(); 2]);
    }
}

#[test]
fn a_close_says_what_it_gave_up() {
    let mut pair = World::pair(&[("receive_queues", BSRQ)]);
    pair.connect_all();
    let _ = [1, 2, 3].map(|tag| pair.send(0, tag, b"nobody asks"));
    let _ = [10, 11].map(|tag| pair.recv(1, Tag::new(tag), 8));
    let _ = pair.recv(0, Tag::new(10), 8);
    pair.steps(300);
    let message = pair.workers[1].claim(roci_msgcore::Pattern::new(0, Tag::new(2)));
    assert!(message.is_some());
    let nothing = Dropped::default();
    let theirs = Dropped { receives: 2, unexpected: 2, claimed: 1, ..nothing };
    assert_eq!(close(pair), [Dropped { receives: 1, ..nothing }, theirs]);
}

/// Rank 1 makes no progress any more.
#[test]
fn a_close_names_a_peer_that_does_not_answer() {
    let mut pair = World::pair(&[("connect_timeout_s", "1")]);
    pair.connect_all();
    let _ = pair.send(0, 1, &pattern(100_000, 1));
    pair.steps(300);
    let error = pair.workers.remove(0).close().expect_err("no peer answers");
    assert_eq!(error.why, OpError::Silent { peers: vec![1.into()], sends: 1, seconds: 1 });
    assert_eq!(error.dropped, Dropped { sends: 1, ..Dropped::default() });
}

#[test]
fn an_abort_says_what_it_gave_up() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let _ = pair.send(0, 1, &pattern(100_000, 1));
    let _ = pair.send_with(0, 0, 1, b"myself", SendOptions::default().synchronous());
    pair.steps(100);
    let dropped: Vec<_> = pair.workers.into_iter().map(TestWorker::abort).collect();
    let nothing = Dropped::default();
    assert_eq!(dropped, [Dropped { sends: 2, unexpected: 1, ..nothing }, Dropped { unexpected: 1, ..nothing }]);
}

/// Nearly all of a peer's credits are withheld: what is left must carry the end of one transfer after the other.
#[test]
fn transfers_end_while_the_peers_credits_are_withheld() {
    let mut pair = World::pair(&[("unexpected_limit", "1MiB"), QUICK[0]]);
    pair.connect_all();
    let flood: Vec<_> = (0..400).map(|_| pair.send(0, 1, &pattern(8000, 1))).collect();
    pair.steps(5_000);
    for mark in 0..20 {
        let receive = pair.recv(0, Tag::new(100 + mark), 100_000);
        let send = pair.send(1, 100 + mark, &pattern(100_000, mark as usize));
        pair.expect(0, receive, &pattern(100_000, mark as usize));
        pair.wait(1, send).expect("the word of its end comes through");
    }
    for _ in 0..400 {
        let receive = pair.recv(1, Tag::new(1), 8000);
        pair.expect(1, receive, &pattern(8000, 1));
    }
    for send in flood {
        pair.wait(0, send).expect("sent");
    }
}

/// A stream that the receiver waits for goes before announcements that it would only keep.
#[test]
fn a_stream_flows_while_the_receiver_withholds_credits() {
    let mut pair = World::pair(&[("unexpected_limit", "1MiB"), ("rndv_protocol", "r3"), QUICK[0]]);
    pair.connect_all();
    let long = pair.send(0, 2, &pattern(500_000, 2));
    let flood: Vec<_> = (0..2_000).map(|_| pair.send(0, 1, &pattern(8000, 1))).collect();
    pair.steps(5_000);
    let receive = pair.recv(1, Tag::new(2), 500_000);
    pair.expect(1, receive, &pattern(500_000, 2));
    pair.wait(0, long).expect("sent");
    for _ in 0..2_000 {
        let receive = pair.recv(1, Tag::new(1), 8000);
        pair.expect(1, receive, &pattern(8000, 1));
    }
    for send in flood {
        pair.wait(0, send).expect("sent");
    }
}

/// No knob says anything about receives: rank 0 has none for any peer alone, and messages of all sizes pass.
#[test]
fn the_ranks_of_a_large_job_share_their_receives() {
    let settings: &[_] = &[("arena_size", "32MiB"), ("wireup", "lazy"), ("ack_timeout_us", "200")];
    let mut world = World::of(&vec![settings; 140]);
    for len in [100, 8_000, 50_000] {
        for peer in 1..140 {
            let send = world.send_with(peer, 0, 1, &pattern(len, peer), SendOptions::default());
            let receive = world.recv_from(0, Source::from(peer), Tag::new(1), len);
            let done = world.wait(0, receive).expect("it arrives");
            assert!(done.buffer[..len] == pattern(len, peer)[..], "the bytes differ");
            world.wait(peer, send).expect("it is sent");
        }
    }
    assert_eq!((1..140).map(|peer| world.workers[0].inside().receive_bytes_of(peer)).sum::<usize>(), 0);
    world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
}

/// The application posts its next receives behind a poll, so a poll that takes less leaves less to be stored.
#[test]
fn a_poll_takes_few_frames_while_messages_find_no_receive() {
    let mut pair = World::pair(&[("coalesce_threshold", "0")]);
    pair.connect_all();
    let frames = |pair: &World| pair.workers[1].engine_stats().rx_frames;
    for (wave, most) in [(0, 32), (1, 4)] {
        let before = frames(&pair);
        for mark in 0..16 {
            let _ = pair.send(0, 7, &pattern(100, mark));
        }
        for _ in 0..50 {
            pair.workers[0].progress();
        }
        let mut largest = 0;
        while frames(&pair) < before + 16 {
            let before = frames(&pair);
            pair.workers[1].progress();
            largest = largest.max(frames(&pair) - before);
            pair.step();
        }
        assert!(largest > 1 && largest <= most, "wave {wave}: {largest} frames in a poll");
    }
}
