//! Looking before receiving: probes, and messages that are claimed.

use roci_msgcore::{CallError, Envelope, OpError, Pattern, SendOptions, Source, Tag, TagMatch};
use roci_testkit::World as _;

use super::common::{TestWorker, World, pattern};

fn any() -> Pattern {
    Pattern::new(Source::Any, TagMatch::Any)
}

#[test]
fn a_probe_says_what_a_receive_would_take_and_takes_nothing() {
    for len in [0, 10, 100_000] {
        let mut pair = World::pair(&[]);
        pair.connect_all();
        assert_eq!(pair.workers[1].probe(any()), None);
        let sends = [4, 5].map(|tag| pair.send(0, tag, &pattern(len, tag as usize)));
        pair.steps(300);
        for _ in 0..2 {
            let envelope = pair.workers[1].probe(any()).expect("it has come");
            assert_eq!((envelope.source, envelope.tag, envelope.len), (0.into(), Tag::new(4), len));
            let envelope = pair.workers[1].probe(Pattern::new(0, Tag::new(5))).expect("it has come");
            assert_eq!(envelope.tag, Tag::new(5));
        }
        for (tag, send) in [4, 5].into_iter().zip(sends) {
            let receive = pair.recv(1, TagMatch::Any, len);
            pair.expect(1, receive, &pattern(len, tag as usize));
            pair.wait(0, send).expect("sent");
        }
    }
}

#[test]
fn what_is_claimed_is_taken_out_of_the_order_and_nothing_else() {
    for (len, vbuf) in [(10, "8192"), (2000, "256"), (100_000, "8192")] {
        let mut pair = World::pair(&[("vbuf_size", vbuf), ("eager_threshold", "2000")]);
        pair.connect_all();
        let sends: Vec<_> = (0..4).map(|mark| pair.send(0, 7, &pattern(len, mark))).collect();
        pair.steps(300);
        let first = pair.workers[1].claim(any()).expect("it has come");
        assert_eq!((first.envelope().tag, first.envelope().len), (Tag::new(7), len));
        // The second overtakes the one that is claimed, and no other.
        let second = pair.recv(1, Tag::new(7), len);
        pair.expect(1, second, &pattern(len, 1));
        let third = pair.workers[1].claim(Pattern::new(0, Tag::new(7))).expect("it has come");
        let fourth = pair.recv(1, TagMatch::Any, len);
        pair.expect(1, fourth, &pattern(len, 3));
        assert!(pair.workers[1].claim(any()).is_none());
        for (message, mark) in [(third, 2), (first, 0)] {
            let buffer = pair.workers[1].buffer(len).expect("memory");
            let receive = pair.workers[1].recv_message(message, buffer).expect("accepted");
            pair.expect(1, receive, &pattern(len, mark));
        }
        for send in sends {
            pair.wait(0, send).expect("sent");
        }
    }
}

#[test]
fn a_claim_ends_a_synchronous_send() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let send = pair.send_with(0, 1, 1, b"claimed", SendOptions::default().synchronous());
    pair.steps(200);
    let message = pair.workers[1].claim(any()).expect("it has come");
    pair.wait(0, send).expect("matched");
    let buffer = pair.workers[1].buffer(7).expect("memory");
    let receive = pair.workers[1].recv_message(message, buffer).expect("accepted");
    pair.expect(1, receive, b"claimed");
}

#[test]
fn a_claim_of_another_worker_is_handed_back() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let send = pair.send(0, 1, b"one");
    pair.steps(200);
    let message = pair.workers[1].claim(any()).expect("it has come");
    let buffer = pair.workers[0].buffer(3).expect("memory");
    let refused = pair.workers[0].recv_message(message, buffer).expect_err("it is none of its own");
    assert!(matches!(refused.why, CallError::NoMessage), "{refused}");
    let (message, buffer) = refused.given;
    let receive = pair.workers[1].recv_message(message, buffer).expect("accepted");
    pair.expect(1, receive, b"one");
    pair.wait(0, send).expect("sent");
}

/// What has come in full can be received after its sender has gone; what had not ends by name.
#[test]
fn a_claimed_message_outlives_its_sender_or_ends_by_name() {
    let series = [("vbuf_size", "256"), ("eager_threshold", "40000"), ("window", "8"), ("credits", "512")];
    let rget = [("rndv_protocol", "rget")];
    let r3 = [("rndv_protocol", "r3")];
    for (settings, len, is_there) in [
        (&rget[..], 10, true),
        (&series, 40_000, true),
        (&series, 40_000, false),
        (&rget, 50_000, false),
        (&r3, 50_000, false),
    ] {
        let settings =
            [settings, &[("retry_limit", "3"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "200")]].concat();
        let mut pair = World::pair(&settings);
        pair.connect_all();
        let _send = pair.send(0, 1, &pattern(len, 1));
        let mut message = None;
        while message.is_none() {
            pair.step();
            message = pair.workers[1].claim(any());
        }
        if is_there {
            pair.steps(200);
        }
        pair.cut(0);
        let probe = pair.send_with(1, 0, 9, b"is anybody there?", SendOptions::default().synchronous());
        pair.until("the peer is gone", |pair| pair.workers[1].stats().peers_gone == 1);
        assert!(pair.wait(1, probe).is_err());
        let buffer = pair.workers[1].buffer(len).expect("memory");
        let receive = pair.workers[1].recv_message(message.expect("it came"), buffer).expect("accepted");
        let outcome = pair.wait(1, receive);
        assert_eq!(outcome.is_ok(), is_there, "{len}");
        match outcome {
            Ok(done) => assert!(*done.buffer == *pattern(len, 1)),
            Err(error) => assert!(matches!(error, OpError::PeerGone { peer, .. } if peer == 0), "{error}"),
        }
    }
}

#[test]
fn a_claimed_message_that_finds_no_room_for_a_request_stays_claimed_and_comes_back() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let send = pair.send(0, 1, &pattern(100_000, 1));
    pair.steps(300);
    let message = pair.workers[1].claim(any()).expect("it has come");
    let mut receives: Vec<_> = std::iter::from_fn(|| pair.workers[1].recv_in_place(any()).ok()).collect();
    let mut buffer = pair.workers[1].buffer(100_000).expect("memory");
    buffer[0] = 0xa5;
    let refused = pair.workers[1].recv_message(message, buffer).expect_err("no room");
    assert!(matches!(refused.why, CallError::TooMany(_)), "{refused}");
    let (message, buffer) = refused.given;
    assert_eq!((message.envelope().len, buffer.len(), buffer[0]), (100_000, 100_000, 0xa5));
    let one = receives.pop().expect("some were accepted");
    pair.workers[1].cancel(one);
    assert!(pair.wait(1, one).expect("taken back").is_cancelled);
    let receive = pair.workers[1].recv_message(message, buffer).expect("there is room again");
    pair.expect(1, receive, &pattern(100_000, 1));
    pair.wait(0, send).expect("sent");
}

#[test]
fn names_of_another_worker_are_none_of_its_own() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let sends = [(0, 1), (1, 2)].map(|(who, tag)| pair.send(who, tag, &pattern(10, who)));
    pair.steps(300);
    let [ours, theirs] = [0, 1].map(|who| pair.workers[who].claim(any()).expect("it has come"));
    let buffer = pair.workers[0].buffer(10).expect("memory");
    let refused = pair.workers[0].recv_message(theirs, buffer).expect_err("it is the other's");
    assert!(matches!(refused.why, CallError::NoMessage), "{refused}");
    for (who, message) in [(0, ours), (1, refused.given.0)] {
        let buffer = pair.workers[who].buffer(10).expect("memory");
        let receive = pair.workers[who].recv_message(message, buffer).expect("accepted");
        pair.expect(who, receive, &pattern(10, 1 - who));
    }
    assert_eq!(pair.workers[1].test(sends[0]).expect("refused").expect_err("it is the other's"), OpError::NoRequest);
    for (who, send) in sends.into_iter().enumerate() {
        pair.wait(who, send).expect("sent");
    }
}

/// Nobody else lets the receiver make progress: who asks until a message has come must hear of it.
#[test]
fn a_probe_and_a_claim_make_progress() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let come = |pair: &mut World, look: fn(&mut TestWorker) -> Option<Envelope>| {
        let send = pair.send(0, 1, b"come");
        let found = (0..1000).find_map(|_| {
            pair.clock.advance(1000);
            pair.workers[0].progress();
            look(&mut pair.workers[1])
        });
        assert_eq!(found.expect("it has come").len, 4);
        pair.wait(0, send).expect("sent");
    };
    come(&mut pair, |worker| worker.probe(any()));
    assert_eq!(pair.workers[1].wait_probe(any()).expect("it is there").len, 4);
    let message = pair.workers[1].wait_claim(any()).expect("it is there");
    come(&mut pair, |worker| worker.claim(any()).map(|message| message.envelope()));
    let buffer = pair.workers[1].buffer(4).expect("memory");
    let receive = pair.workers[1].recv_message(message, buffer).expect("accepted");
    pair.expect(1, receive, b"come");
    let error = pair.workers[1].wait_probe(Pattern::new(2, Tag::new(1))).expect_err("no such rank").to_string();
    assert_eq!(error, "rank 2 is not in this job of 2");
}

#[test]
fn a_wait_for_a_message_ends_when_no_rank_is_left_to_send_it() {
    let mut pair = World::pair(&[("retry_limit", "3"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "200")]);
    pair.connect_all();
    pair.cut(0);
    let send = pair.send(1, 1, b"is anybody there?");
    pair.until("the peer is gone", |pair| pair.workers[1].stats().peers_gone == 1);
    assert!(matches!(pair.workers[1].wait_probe(any()), Err(CallError::Peer(OpError::NobodyLeft))));
    let gone = pair.workers[1].wait_claim(Pattern::new(0, Tag::new(1)));
    assert!(matches!(gone, Err(CallError::Peer(OpError::PeerGone { peer, .. })) if peer == 0));
    let _ = pair.wait(1, send);
}

/// Messages of every protocol, in one vbuf or several, from a peer and from oneself, are claimed and then discarded or dropped:
/// their senders' operations end, their memory and credits come back, and what follows them is received.
#[test]
fn claimed_messages_that_are_discarded_leave_nothing_behind() {
    let protocols: [&[(&str, &str)]; 5] = [
        &[],
        &[("vbuf_size", "256"), ("eager_threshold", "40000"), ("credits", "512")],
        &[("rndv_protocol", "rget")],
        &[("rndv_protocol", "rput")],
        &[("receive_queues", "S,8KiB,64"), ("rndv_protocol", "r3")],
    ];
    for settings in protocols {
        for is_dropped in [false, true] {
            let mut pair = World::pair(settings);
            pair.connect_all();
            pair.steps(2_000);
            let memory = pair.workers[1].memory();
            for round in 0..20 {
                let lens = [0, 10, 5_000, 39_000, 100_000];
                let sends = lens.map(|len| pair.send_with(0, 1, round, &pattern(len, 1), SendOptions::default()));
                let own = lens.map(|len| pair.send_with(1, 1, round, &pattern(len, 1), SendOptions::default()));
                for _ in 0..2 * lens.len() {
                    let message = pair.find("a message", |pair| pair.workers[1].claim(any()));
                    if is_dropped {
                        drop(message);
                    } else {
                        pair.workers[1].discard(message);
                    }
                }
                for (who, send) in sends.map(|send| (0, send)).into_iter().chain(own.map(|send| (1, send))) {
                    pair.wait(who, send).expect("it is over, as if it had been received");
                }
            }
            assert_eq!(pair.workers[1].inside().unexpected_bytes(), 0);
            let send = pair.send(0, 7, b"next");
            let receive = pair.recv(1, Tag::new(7), 4);
            pair.expect(1, receive, b"next");
            pair.wait(0, send).expect("sent");
            pair.until("all memory comes back", |pair| pair.workers[1].memory() == memory);
            let (ours, theirs) = (pair.workers[0].inside().credits_of(1), pair.workers[1].inside().credits_of(0));
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert_eq!(ours.available + theirs.kept, theirs.limit, "{settings:?}");
            }
            assert_eq!(pair.workers[1].stats().discarded, 200, "{settings:?}");
            pair.workers[1].inside().check_invariants().expect("what must hold");
        }
    }
}

/// What is claimed takes memory as before, and so it counts until it is received or dropped.
#[test]
fn claimed_messages_count_against_the_memory_of_unexpected_ones() {
    let mut pair = World::pair(&[("unexpected_limit", "1MiB")]);
    pair.connect_all();
    let sends: Vec<_> = (0..100).map(|mark| pair.send(0, 1, &pattern(5_000, mark))).collect();
    pair.find("all have come", |pair| (pair.workers[1].stats().rx_unexpected == 100).then_some(()));
    let bytes = pair.workers[1].inside().unexpected_bytes();
    let mut messages: Vec<_> = (0..100).map(|_| pair.workers[1].claim(any()).expect("it has come")).collect();
    assert_eq!(pair.workers[1].inside().unexpected_bytes(), bytes, "they wait still");
    drop(messages.pop());
    pair.until("one is discarded", |pair| pair.workers[1].stats().discarded == 1);
    assert!(pair.workers[1].inside().unexpected_bytes() < bytes);
    let last = messages.pop().expect("some");
    drop(messages);
    pair.until("their memory comes back", |pair| pair.workers[1].inside().unexpected_bytes() < bytes / 50);
    let buffer = pair.workers[1].buffer(5_000).expect("memory");
    let receive = pair.workers[1].recv_message(last, buffer).expect("accepted");
    pair.expect(1, receive, &pattern(5_000, 98));
    for send in sends {
        pair.wait(0, send).expect("sent");
    }
    assert_eq!(pair.workers[1].inside().unexpected_bytes(), 0);
}
