//! Two workers over a simulated wire: protocols, ordering, credits, truncation, a cut wire.

use roci_msgcore::{OpError, Pattern, SendOptions, Source, Tag, TagMatch};
use roci_testkit::{World as _, logged};

use super::common::{World, pattern};

const SIZES: [usize; 14] = [0, 1, 8, 4063, 4064, 4095, 4096, 4097, 8151, 8152, 8153, 65_536, 1_000_003, 4 << 20];

#[test]
fn every_size_arrives_whether_expected_or_not() {
    let mut pair = World::pair(&[]);
    for (tag, &len) in SIZES.iter().enumerate() {
        let bytes = pattern(len, tag);
        let early = pair.recv(1, Tag::new(tag as u64), len);
        let send = pair.send(0, tag as u64, &bytes);
        pair.expect(1, early, &bytes);
        assert_eq!(pair.wait(0, send).expect("sent").len, len);

        let send = pair.send(0, tag as u64, &bytes);
        pair.steps(100);
        let late = pair.recv(1, Tag::new(tag as u64), len);
        pair.expect(1, late, &bytes);
        pair.wait(0, send).expect("sent");
    }
    let stats = pair.workers[0].stats();
    assert_eq!((stats.tx_eager, stats.tx_rget), (2 * 10, 2 * 4));
    assert_eq!(pair.workers[1].stats().rx_unexpected, SIZES.len() as u64);
}

#[test]
fn faults_on_both_ways_lose_nothing() {
    let faults = "loss=0.02,dup=0.02,reorder=0.02,corrupt=0.02,seed=5";
    let mut pair = World::pair(&[("faults", faults), ("ack_timeout_us", "100")]);
    for (tag, &len) in SIZES.iter().enumerate() {
        let bytes = pattern(len, tag);
        for who in [0, 1] {
            let receive = pair.recv(1 - who, Tag::new(tag as u64), len);
            let send = pair.send(who, tag as u64, &bytes);
            pair.expect(1 - who, receive, &bytes);
            pair.wait(who, send).expect("sent");
        }
    }
    assert!(pair.workers[0].injected_faults() > 0);
    let stats = pair.workers[1].engine_stats();
    assert!(stats.is_balanced());
    assert!(stats.malformed(roci_protocol::wire::Malformed::Icrc) > 0);
}

#[test]
fn messages_do_not_overtake_and_wildcards_take_them_in_order() {
    let mut pair = World::pair(&[]);
    let lens = [10, 100_000, 20, 200_000, 30];
    let sends: Vec<_> = lens.iter().map(|&len| pair.send(0, 7, &pattern(len, len))).collect();
    for (index, &len) in lens.iter().enumerate() {
        let tag = if index % 2 == 0 { TagMatch::Any } else { Tag::new(7).into() };
        let receive = pair.recv(1, tag, 200_000);
        pair.expect(1, receive, &pattern(len, len));
    }
    for send in sends {
        pair.wait(0, send).expect("sent");
    }
}

/// The upper half of a tag says what a message is, the lower whose it is: receives for one half meet messages in the order of
/// posting and of sending, whichever came first.
#[test]
fn receives_ignore_the_bits_of_tags_that_their_masks_set() {
    let tag = |kind: u64, number: u64| kind << 32 | number;
    let of_kind = |kind| TagMatch::Masked { tag: Tag::new(tag(kind, 0)), ignore: 0xffff_ffff };
    for is_posted_first in [true, false] {
        let mut pair = World::pair(&[]);
        let lens = [10, 100_000, 0, 9_000];
        let send = |pair: &mut World| -> Vec<_> {
            let kinds = lens.iter().zip(0..).flat_map(|(&len, at)| [(2, len, at), (1, len, at)]);
            kinds.map(|(kind, len, at)| pair.send(0, tag(kind, at), &pattern(len, kind as usize))).collect()
        };
        let mut sends = if is_posted_first { Vec::new() } else { send(&mut pair) };
        pair.steps(2_000);
        let receives: Vec<_> = [1, 2].map(|kind| lens.map(|_| (kind, pair.recv(1, of_kind(kind), 100_000)))).concat();
        if is_posted_first {
            sends = send(&mut pair);
        }
        for ((kind, receive), (len, at)) in receives.into_iter().zip(lens.into_iter().zip(0..).cycle()) {
            let done = pair.wait(1, receive).expect("it arrives");
            assert_eq!((done.tag, done.len), (Tag::new(tag(kind, at)), len), "posted first: {is_posted_first}");
            assert!(done.buffer[..len] == pattern(len, kind as usize)[..]);
        }
        for send in sends {
            pair.wait(0, send).expect("sent");
        }
    }
}

/// A server with very many messages that wait: receives from anybody find the oldest under their tags.
#[test]
fn receives_from_any_source_find_their_messages_among_thousands() {
    let mut pair = World::pair(&[]);
    let sends: Vec<_> = (0..2_000).map(|tag| pair.send(0, tag % 500, &tag.to_le_bytes())).collect();
    pair.find("all have come", |pair| (pair.workers[1].stats().rx_unexpected == 2_000).then_some(()));
    for round in 0..4 {
        for tag in (0..500_u64).rev() {
            let receive = pair.recv_from(1, Source::Any, Tag::new(tag), 8);
            pair.expect(1, receive, &(round * 500 + tag).to_le_bytes());
        }
    }
    for send in sends {
        pair.wait(0, send).expect("sent");
    }
}

/// A peer that takes nothing has no credits left, and then has them again: either is logged once, with its name.
#[test]
fn the_log_says_which_peers_credits_are_used_up_and_when_they_come_back() {
    let mut pair = World::pair(&[("credits", "2"), ("vbuf_size", "256")]);
    let lines = logged(|| {
        let sends: Vec<_> = (0..20).map(|mark| pair.send(0, mark, &pattern(100, 7))).collect();
        for mark in 0..20 {
            let receive = pair.recv(1, Tag::new(mark), 100);
            pair.expect(1, receive, &pattern(100, 7));
        }
        for send in sends {
            pair.wait(0, send).expect("sent");
        }
        // A look at what is seldom looked at.
        pair.steps(2_000);
    });
    assert!(pair.workers[0].stats().credit_stalls > 1);
    let of_rank_1: Vec<_> = lines.iter().filter(|line| line.starts_with("DEBUG rank 1: ")).collect();
    let at = |what: &str| of_rank_1.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(at("wait for credits") < at("credits for messages to it have come"), "{of_rank_1:?}");
    let stalls = of_rank_1.iter().filter(|line| line.contains("wait for credits")).count() as u64;
    assert!(stalls < pair.workers[0].stats().credit_stalls, "not each stall is logged: {stalls}");
}

#[test]
fn what_is_sent_again_is_logged_with_the_name_of_its_peer() {
    let mut pair = World::pair(&[("faults", "loss=0.1,seed=5"), ("ack_timeout_us", "100")]);
    let bytes = pattern(200_000, 7);
    let lines = logged(|| {
        let receive = pair.recv(1, Tag::new(7), bytes.len());
        let send = pair.send(0, 7, &bytes);
        pair.expect(1, receive, &bytes);
        pair.wait(0, send).expect("sent");
    });
    let is_named = |line: &&String| line.starts_with("DEBUG rank ") && line.contains(" (queue pair ");
    assert!(lines.iter().any(|line| is_named(&line)), "{lines:?}");
}

#[test]
fn without_credits_messages_wait_and_none_is_lost() {
    let mut pair = World::pair(&[("credits", "2"), ("vbuf_size", "256")]);
    let sends: Vec<_> = (0..200).map(|mark| pair.send(0, mark, &pattern(100, mark as usize))).collect();
    for mark in (0..200).rev() {
        let receive = pair.recv(1, Tag::new(mark), 100);
        pair.expect(1, receive, &pattern(100, mark as usize));
    }
    for send in sends {
        pair.wait(0, send).expect("sent");
    }
    assert!(pair.workers[0].stats().credit_stalls > 0);
    assert!(pair.workers[1].stats().tx_credit > 0);
    assert_eq!(pair.workers[1].engine_stats().queue_pairs.out_of_buffer, 0, "the receiver never runs out of buffers");
}

#[test]
fn both_directions_at_once_with_the_fewest_credits_do_not_deadlock() {
    let mut pair = World::pair(&[("credits", "2")]);
    let mut requests = Vec::new();
    for round in 0..100 {
        for who in [0, 1] {
            let len = [0, 50, 9_000, 100_000][round % 4];
            requests.push((who, pair.send(who, round as u64, &pattern(len, round))));
            requests.push((who, pair.recv(who, Tag::new(round as u64), 100_000)));
        }
    }
    for (who, request) in requests {
        pair.wait(who, request).expect("done");
    }
}

#[test]
fn a_message_that_does_not_fit_is_reported_and_the_next_one_arrives() {
    let mut pair = World::pair(&[]);
    for len in [100, 100_000] {
        let send = pair.send(0, 1, &pattern(len, 1));
        let short = pair.recv(1, Tag::new(1), 99);
        let error = pair.wait(1, short).expect_err("it does not fit");
        let what = format!("a message of {len} bytes with tag 1 from rank 0 does not fit a receive of 99 bytes");
        assert_eq!(error.to_string(), what);
        pair.wait(0, send).expect("the sender is not to blame");
        let receive = pair.recv(1, Tag::new(2), 8);
        let send = pair.send(0, 2, b"next");
        pair.expect(1, receive, b"next");
        pair.wait(0, send).expect("sent");
    }
}

#[test]
fn unexpected_messages_are_bounded_by_back_pressure() {
    let mut pair = World::pair(&[("unexpected_limit", "1MiB"), ("credits", "8"), ("credit_preserve", "1")]);
    let sends: Vec<_> = (0..1000).map(|mark| pair.send(0, mark, &pattern(8000, mark as usize))).collect();
    pair.steps(20_000);
    // What does not fit is announced, which takes little; its payload stays with its sender.
    assert_eq!(pair.workers[1].stats().rx_unexpected, 1000);
    let [eager, announced] = [pair.workers[0].stats().tx_eager, pair.workers[0].stats().fallback_credit];
    assert!((126..145).contains(&eager), "{eager} messages of 8000 bytes, each in 8192, in 1 MiB");
    assert_eq!(eager + announced, 1000);
    assert!(pair.workers[1].inside().unexpected_bytes() < (1 << 20) + 8 * 8400 + 1000 * 128);
    for mark in 0..1000 {
        let receive = pair.recv(1, Tag::new(mark), 8000);
        pair.expect(1, receive, &pattern(8000, mark as usize));
    }
    for send in sends {
        pair.wait(0, send).expect("sent");
    }
}

/// A flood of short messages that nobody asks for, under the default limit, which is more than the whole arena; and where
/// the application itself has most of it.
#[test]
fn unexpected_messages_leave_memory_to_receive_them() {
    for (taken, left) in [(0, 16 << 20), (52 << 20, 1 << 20)] {
        let mut pair = World::pair(&[]);
        pair.connect_all();
        let hog: Vec<_> = (0..taken >> 20).map(|_| pair.workers[1].buffer(1 << 20).expect("memory")).collect();
        let sends: Vec<_> = (0..9_000).map(|mark| pair.send(0, mark, &pattern(100, mark as usize))).collect();
        pair.steps(30_000);
        let free = pair.workers[1].free_bytes();
        assert!(free > left, "{free} bytes are free beside {taken}: {}", pair.counters());
        for (mark, send) in (0..9_000).zip(sends) {
            let receive = pair.recv(1, Tag::new(mark), 8_000);
            pair.expect(1, receive, &pattern(100, mark as usize));
            pair.wait(0, send).expect("sent");
        }
        drop(hog);
    }
}

#[test]
fn a_cut_wire_ends_everything_that_needs_the_peer_by_name() {
    let mut pair = World::pair(&[("retry_limit", "4")]);
    pair.connect_all();
    let receive = pair.recv(0, Tag::new(1), 100);
    let send = pair.send(0, 2, &pattern(100_000, 0));
    pair.cut(0);
    let error = pair.wait(0, send).expect_err("the peer is gone").to_string();
    assert!(error.starts_with("rank 1 is gone: ") && error.contains("IBV_WC_"), "{error}");
    let error = pair.wait(0, receive).expect_err("its peer has gone");
    assert!(error == OpError::NobodyLeft || matches!(error, OpError::PeerGone { peer, .. } if peer == 1));
    let late = pair.recv_from(0, Source::from(1), Tag::new(3), 100);
    assert!(pair.wait(0, late).is_err());
    assert!(matches!(pair.workers[0].send_error(1, b"x"), OpError::PeerGone { peer, .. } if peer == 1));
}

/// As a job of one does; but a receive that waited when the last peer went has to end, and so has a wait.
#[test]
fn a_rank_whose_peers_are_gone_can_still_talk_to_itself() {
    let mut pair = World::pair(&[("retry_limit", "3"), ("ack_timeout_us", "100")]);
    pair.connect_all();
    let early = pair.recv(0, Tag::new(1), 10);
    pair.cut(1);
    let _ = pair.send(0, 9, b"x");
    assert_eq!(pair.wait(0, early).map(|done| done.len), Err(OpError::NobodyLeft));
    let late = pair.recv(0, Tag::new(1), 10);
    assert_eq!(pair.workers[0].wait(late).map(|done| done.len), Err(OpError::NobodyLeft), "it cannot send meanwhile");
    // The engine of a dedicated worker has ended it, and a new one is met.
    let late = if pair.workers[0].is_dedicated() { pair.recv(0, Tag::new(1), 10) } else { late };
    assert!(pair.workers[0].test_in_turn(late).is_none(), "it is still there");
    let send = pair.workers[0].send_bytes(0.into(), Tag::new(1), b"self").expect("accepted");
    assert_eq!(pair.wait(0, late).map(|done| (done.peer, done.len)), Ok((0.into(), 4)));
    pair.wait(0, send).expect("sent");
}

#[test]
fn a_rank_can_talk_to_itself() {
    let mut pair = World::pair(&[]);
    let worker = &mut pair.workers[0];
    let send = worker.send_bytes(0.into(), Tag::new(5), b"me").expect("accepted");
    let envelope = worker.probe(Pattern::new(Source::Any, TagMatch::Any)).expect("it waits");
    assert_eq!((envelope.source, envelope.tag, envelope.len), (0.into(), Tag::new(5), 2));
    let buffer = worker.buffer(10).expect("memory");
    let receive = worker.recv(0, Tag::new(5), buffer).expect("accepted");
    let done = worker.test_in_turn(receive).expect("at once").expect("it fits");
    assert_eq!((&done.buffer[..done.len], done.peer), (&b"me"[..], 0.into()));
    worker.test_in_turn(send).expect("at once").expect("sent");
}

#[test]
fn misuse_is_refused_by_name() {
    let mut pair = World::pair(&[]);
    let worker = &mut pair.workers[0];
    let error = worker.send_bytes(2.into(), Tag::new(0), b"").expect_err("no such rank").to_string();
    assert_eq!(error, "rank 2 is not in this job of 2");
    let buffer = worker.buffer(1).expect("memory");
    assert!(worker.recv(9, Tag::new(0), buffer).is_err());
    assert!(worker.buffer(1 << 40).is_err());
}

/// Everything is sent before anybody makes progress: all credits and all send buffers are out at once.
#[test]
fn a_burst_both_ways_without_progress_does_not_deadlock() {
    let mut pair = World::pair(&[]);
    let mut requests = Vec::new();
    for mark in 0..300 {
        for who in [0, 1] {
            requests.push((who, pair.send(who, mark, b"burst")));
            requests.push((who, pair.recv(who, Tag::new(mark), 5)));
        }
    }
    for (who, request) in requests {
        pair.wait(who, request).expect("done");
    }
}

#[test]
fn matched_messages_flow_while_unexpected_ones_are_held_back() {
    let mut pair = World::pair(&[("unexpected_limit", "1MiB"), ("credits", "64")]);
    let mut sends: Vec<_> = (0..140).map(|_| pair.send(0, 1, &pattern(8000, 0))).collect();
    pair.steps(10_000);
    // Receives that were posted before their messages take no memory: their credits come back.
    for mark in 0..40 {
        let receive = pair.recv(1, Tag::new(100 + mark), 10);
        sends.push(pair.send(0, 100 + mark, b"expected"));
        pair.expect(1, receive, b"expected");
    }
}

/// Vbufs of 256 bytes would do for a buffer of a page too, and those of a page would never come back to their own queue.
#[test]
fn memory_that_is_given_back_is_given_out_again() {
    let mut pair = World::pair(&[("receive_queues", "P,256,8:P,4KiB,8"), ("arena_size", "16MiB")]);
    let round = |pair: &mut World| {
        let receive = pair.workers[1].recv_in_place(Pattern::new(0, TagMatch::Any)).expect("accepted");
        let send = pair.send(0, 1, &pattern(3000, 1));
        let done = pair.wait(1, receive).expect("received");
        pair.workers[1].give_back(done.buffer);
        let other = pair.workers[1].buffer(4096).expect("memory");
        pair.workers[1].give_back(other);
        pair.workers[1].take_turn();
        pair.wait(0, send).expect("sent");
    };
    round(&mut pair);
    let free = pair.workers[1].free_bytes();
    (0..100).for_each(|_| round(&mut pair));
    assert_eq!(pair.workers[1].free_bytes(), free);
}

#[test]
fn a_message_that_was_claimed_of_a_peer_that_is_gone_ends_by_name() {
    for protocol in ["r3", "rget", "rput", "pipeline"] {
        let mut pair = World::pair(&[("retry_limit", "4"), ("rndv_protocol", protocol)]);
        pair.connect_all();
        let _send = pair.send(0, 1, &pattern(100_000, 0));
        pair.until("it is announced", |pair| pair.workers[1].stats().rx_unexpected == 1);
        let message = pair.workers[1].claim(Pattern::new(0, Tag::new(1))).expect("it is there");
        pair.cut(0);
        let other = pair.send(1, 2, b"into nothing");
        pair.until("the peer is lost", |pair| !pair.workers[1].is_connected(0));
        let buffer = pair.workers[1].buffer(100_000).expect("memory");
        let receive = pair.workers[1].recv_message(message, buffer).expect("accepted");
        // Either end may find out first, and tells the other.
        let error = pair.wait(1, receive).map(|done| done.len).expect_err("it is gone");
        let by_name = matches!(error, OpError::PeerGone { peer, .. } | OpError::GivenUp { peer, .. } if peer == 0);
        assert!(by_name, "{protocol}: {error}");
        let _ = pair.wait(1, other);
    }
}

/// A series of 20 vbufs where there may be 16, and one of more than a send queue holds.
#[test]
fn a_series_longer_than_there_are_vbufs_goes_as_a_rendezvous() {
    for (most, len) in [("16", 4_000), ("4096", 100_000)] {
        let settings = [("vbuf_size", "256"), ("credits", "4096"), ("eager_threshold", "200000"), ("vbuf_max", most)];
        let mut pair = World::pair(&settings);
        let receive = pair.recv(1, Tag::new(1), len);
        let send = pair.send(0, 1, &pattern(len, 1));
        pair.expect(1, receive, &pattern(len, 1));
        pair.wait(0, send).expect("sent");
    }
}

/// All vbufs are on their way to one peer when another connects.
#[test]
fn a_connection_waits_for_a_vbuf_like_any_message() {
    let settings = [("vbuf_max", "16"), ("credits", "64"), ("ack_timeout_us", "1000")];
    let mut world = World::of(&[&settings[..]; 3]);
    let mut requests = Vec::new();
    requests.push((0, world.send_with(0, 1, 1, b"first", SendOptions::default())));
    world.until("two are connected", |world| world.workers[0].is_connected(1));
    // Rank 1 does not make progress, and acknowledges nothing.
    requests.extend((0..40).map(|_| (0, world.send_with(0, 1, 1, b"more", SendOptions::default()))));
    requests.push((0, world.send_with(0, 2, 1, b"other", SendOptions::default())));
    for _ in 0..2_000 {
        world.clock.advance(1_000);
        world.workers[0].progress();
        world.workers[2].progress();
    }
    requests.push((2, world.recv_from(2, Source::from(0), Tag::new(1), 5)));
    for (who, request) in requests {
        world.wait(who, request).expect("in time");
    }
}

#[test]
fn who_waits_for_several_gets_the_ends_of_all() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let sends = [1, 2, 3].map(|tag| pair.send(0, tag, &pattern(10, tag as usize)));
    let receives = [(1, 10), (2, 9), (3, 10)].map(|(tag, room)| pair.recv(1, Tag::new(tag), room));
    pair.steps(100);
    assert_eq!(pair.workers[0].wait_all(sends).expect("all are sent").len(), 3);
    let failed = pair.workers[1].wait_all(receives).expect_err("one does not fit");
    assert!(failed.to_string().starts_with("1 of 3 operations failed, the first: a message of 10 bytes"), "{failed}");
    let [Ok(first), Err(OpError::Truncated(second)), Ok(third)] = &failed.outcomes[..] else { panic!("{failed}") };
    assert!(*first.buffer == *pattern(10, 1) && *third.buffer == *pattern(10, 3) && second.buffer.is_some());
    assert!(matches!(OpError::from(failed), OpError::Truncated(_)));
}
