//! Taking operations back, in every state that they can be in.

use roci_msgcore::{Buffer, Done, OpError, Pattern, Request, SendOptions, Source, Tag, TagMatch};
use roci_testkit::World as _;

use super::common::{World, pattern};

const PROTOCOLS: [&str; 4] = ["r3", "rget", "rput", "pipeline"];
const SERIES: [(&str, &str); 2] = [("vbuf_size", "256"), ("eager_threshold", "8000")];

fn any() -> Pattern {
    Pattern::new(Source::Any, TagMatch::Any)
}

fn connected(settings: &[(&str, &str)]) -> World {
    let mut pair = World::pair(settings);
    pair.connect_all();
    pair.steps(10);
    pair
}

fn synchronous() -> SendOptions {
    SendOptions::default().synchronous()
}

/// Cancels what `who` does, and waits for its end.
fn cancel(pair: &mut World, who: usize, request: Request) -> Done {
    pair.workers[who].cancel(request);
    pair.wait(who, request).expect("it ends without an error")
}

/// A send to the other was taken back: the payload is there, the peer has nothing, and both go on.
fn assert_taken_back(pair: &mut World, done: &Done, bytes: &[u8]) {
    assert!(done.is_cancelled && done.len == 0);
    assert!(*done.buffer == *bytes, "the payload comes back as it was");
    pair.steps(200);
    assert_eq!(pair.workers[1].probe(any()), None);
    assert_eq!(pair.workers[1].inside().unexpected_bytes(), 0);
    assert_alive(pair);
}

fn assert_alive(pair: &mut World) {
    for who in [0, 1] {
        let receive = pair.recv(1 - who, Tag::new(99), 50_000);
        let send = pair.send(who, 99, &pattern(50_000, 99));
        pair.expect(1 - who, receive, &pattern(50_000, 99));
        pair.wait(who, send).expect("sent");
    }
}

#[test]
fn a_receive_that_has_met_nothing_is_taken_back_with_its_buffer() {
    let mut pair = connected(&[]);
    let receive = pair.recv(1, Tag::new(1), 77);
    let done = cancel(&mut pair, 1, receive);
    assert_eq!((done.is_cancelled, done.len, done.buffer.len(), done.peer), (true, 0, 77, 1.into()));
    let receive = pair.workers[1].recv_in_place(any()).expect("accepted");
    let done = cancel(&mut pair, 1, receive);
    assert!(done.is_cancelled && done.buffer.is_empty());
    assert_eq!(pair.workers[1].stats().cancelled, 2);
    // The message that it would have met meets the next one.
    let send = pair.send(0, 1, b"late");
    let receive = pair.recv(1, Tag::new(1), 4);
    pair.expect(1, receive, b"late");
    pair.wait(0, send).expect("sent");
}

#[test]
fn a_receive_that_has_met_its_message_is_not_taken_back() {
    for protocol in PROTOCOLS {
        let mut pair = connected(&[("rndv_protocol", protocol)]);
        for (len, steps) in [(10, 10), (50_000, 3), (50_000, 300)] {
            let receive = pair.recv(1, Tag::new(1), len);
            let send = pair.send(0, 1, &pattern(len, 1));
            pair.steps(steps);
            pair.workers[1].cancel(receive);
            pair.expect(1, receive, &pattern(len, 1));
            pair.wait(0, send).expect("sent");
        }
        assert_eq!(pair.workers[1].stats().cancelled, 0);
    }
}

#[test]
fn a_send_that_waits_for_credits_is_taken_back_out_of_its_queue() {
    let mut pair = connected(&[("credits", "2")]);
    let sends: Vec<_> = (0..5).map(|tag| pair.send(0, tag, &pattern(10, tag as usize))).collect();
    let done = cancel(&mut pair, 0, sends[3]);
    assert!(done.is_cancelled && *done.buffer == *pattern(10, 3));
    for tag in [0, 1, 2, 4] {
        let receive = pair.recv(1, TagMatch::Any, 10);
        pair.expect(1, receive, &pattern(10, tag));
    }
    for send in [0, 1, 2, 4].map(|index: usize| sends[index]) {
        pair.wait(0, send).expect("sent");
    }
    pair.steps(100);
    assert_eq!(pair.workers[1].probe(any()), None);
}

#[test]
fn a_send_is_taken_back_before_the_connection_is_up() {
    for steps in [0, 1, 5] {
        let mut pair = World::pair(&[]);
        let sends = [1, 2].map(|tag| pair.send(0, tag, &pattern(10, tag as usize)));
        pair.steps(steps);
        assert!(!pair.workers[0].is_connected(1));
        let done = cancel(&mut pair, 0, sends[0]);
        assert!(done.is_cancelled && *done.buffer == *pattern(10, 1));
        let receive = pair.recv(1, TagMatch::Any, 10);
        pair.expect(1, receive, &pattern(10, 2));
        pair.wait(0, sends[1]).expect("sent");
    }
}

#[test]
fn an_unexpected_message_is_taken_back_however_it_travels() {
    let mut scenes: Vec<_> = PROTOCOLS.map(|protocol| (vec![("rndv_protocol", protocol)], 50_000)).into();
    scenes.extend([(vec![], 0), (vec![], 100), (SERIES.into(), 5000)]);
    for (settings, len) in scenes {
        let mut pair = connected(&settings);
        for steps in [0, 1, 2, 3, 100] {
            for options in [SendOptions::default(), synchronous()] {
                let bytes = pattern(len, steps);
                let send = pair.send_with(0, 1, 1, &bytes, options);
                pair.steps(steps);
                let done = cancel(&mut pair, 0, send);
                assert_taken_back(&mut pair, &done, &bytes);
            }
        }
        assert_eq!(pair.workers[0].stats().cancelled, 10);
    }
}

#[test]
fn a_message_that_was_met_is_not_taken_back() {
    let mut scenes: Vec<_> = PROTOCOLS.map(|protocol| (vec![("rndv_protocol", protocol)], 50_000)).into();
    scenes.extend([(vec![], 0), (vec![], 100), (SERIES.into(), 5000)]);
    for (settings, len) in scenes {
        let mut pair = connected(&settings);
        for (steps, options) in [(0, SendOptions::default()), (300, SendOptions::default()), (0, synchronous())] {
            let bytes = pattern(len, steps);
            let receive = pair.recv(1, Tag::new(1), len);
            let send = pair.send_with(0, 1, 1, &bytes, options);
            pair.steps(steps);
            let done = cancel(&mut pair, 0, send);
            assert!(!done.is_cancelled && done.len == len && *done.buffer == *bytes);
            pair.expect(1, receive, &bytes);
            assert_alive(&mut pair);
        }
        assert_eq!(pair.workers[0].stats().cancelled, 0);
    }
}

/// The receive is posted while the question is on its way: either end may win, and both agree on which.
#[test]
fn a_receive_and_a_cancel_that_cross_agree() {
    let mut outcomes = [0; 2];
    let mut scenes: Vec<_> = PROTOCOLS.map(|protocol| (vec![("rndv_protocol", protocol)], 50_000)).into();
    scenes.extend([(vec![], 100), (SERIES.into(), 5000)]);
    for (settings, len) in scenes {
        for steps in 0..12 {
            let mut pair = connected(&settings);
            let bytes = pattern(len, steps);
            let send = pair.send(0, 1, &bytes);
            pair.steps(5);
            pair.workers[0].cancel(send);
            pair.steps(steps);
            let receive = pair.recv(1, TagMatch::Any, len);
            let done = pair.wait(0, send).expect("it ends");
            outcomes[usize::from(done.is_cancelled)] += 1;
            let bytes = if done.is_cancelled {
                let next = pair.send(0, 2, b"next");
                pair.wait(0, next).expect("sent");
                b"next".to_vec()
            } else {
                bytes
            };
            pair.expect(1, receive, &bytes);
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

#[test]
fn a_message_that_was_claimed_is_not_taken_back() {
    for len in [10, 50_000] {
        let mut pair = connected(&[]);
        let send = pair.send(0, 1, &pattern(len, 1));
        pair.steps(100);
        let message = pair.workers[1].claim(any()).expect("it has come");
        pair.workers[0].cancel(send);
        pair.steps(100);
        let buffer = pair.workers[1].buffer(len).expect("memory");
        let receive = pair.workers[1].recv_message(message, buffer).expect("accepted");
        pair.expect(1, receive, &pattern(len, 1));
        assert!(!pair.wait(0, send).expect("sent").is_cancelled);
    }
}

#[test]
fn to_cancel_twice_or_after_the_end_changes_nothing() {
    for (len, is_expected) in [(10, false), (10, true), (50_000, false), (50_000, true)] {
        let mut pair = connected(&[]);
        let receive = is_expected.then(|| pair.recv(1, Tag::new(1), len));
        let send = pair.send(0, 1, &pattern(len, 1));
        for _ in 0..4 {
            pair.workers[0].cancel(send);
            pair.workers[0].cancel(send);
            pair.steps(300);
        }
        let done = pair.wait(0, send).expect("it ends");
        assert_eq!(done.is_cancelled, !is_expected);
        assert_eq!(pair.workers[0].stats().cancelled, u64::from(!is_expected));
        pair.workers[0].cancel(send);
        if let Some(receive) = receive {
            pair.expect(1, receive, &pattern(len, 1));
            pair.workers[1].cancel(receive);
        }
        assert_alive(&mut pair);
        assert_eq!(pair.wait(0, send).expect_err("it was waited for"), OpError::NoRequest);
    }
}

#[test]
fn a_message_to_oneself_is_taken_back_until_it_is_received() {
    for len in [10, 50_000] {
        for options in [SendOptions::default(), synchronous()] {
            let mut pair = World::pair(&[]);
            let send = pair.send_with(0, 0, 1, &pattern(len, 1), options);
            let done = cancel(&mut pair, 0, send);
            assert!(done.is_cancelled && *done.buffer == *pattern(len, 1));
            assert_eq!(pair.workers[0].probe(any()), None);
            let send = pair.send_with(0, 0, 1, &pattern(len, 2), options);
            let receive = pair.recv(0, Tag::new(1), len);
            assert!(!cancel(&mut pair, 0, send).is_cancelled);
            assert!(*pair.wait(0, receive).expect("it fits").buffer == *pattern(len, 2));
            assert_eq!(pair.workers[0].stats().cancelled, 1);
        }
    }
}

#[test]
fn cancels_under_loss_end_all_the_same() {
    let faults = ("faults", "loss=0.1,dup=0.1,reorder=0.1,seed=3");
    for queues in ["", "P,256,8:P,2KiB,8:S,8KiB,32"] {
        let mut pair = connected(&[faults, ("ack_timeout_us", "100"), ("receive_queues", queues), ("credits", "8")]);
        let mut taken_back = 0;
        for round in 0..60 {
            let lens = [10, 1500, 5000, 50_000];
            let sends: Vec<_> = lens.map(|len| pair.send(0, round, &pattern(len, len))).into();
            pair.steps(round as usize % 7);
            for &send in &sends {
                pair.workers[0].cancel(send);
            }
            for (len, send) in lens.into_iter().zip(sends) {
                let done = pair.wait(0, send).unwrap_or_else(|error| panic!("{error}: {}", pair.counters()));
                taken_back += u64::from(done.is_cancelled);
                assert!(*done.buffer == *pattern(len, len));
            }
        }
        assert!(taken_back > 0);
        assert_eq!(pair.workers[0].stats().cancelled, taken_back);
        assert_eq!(taken_back, 240, "nobody has received anything: {queues}");
        assert_alive(&mut pair);
    }
}

/// Without a credit the question waits; what is sent after it over another queue pair overtakes it.
#[test]
fn a_cancel_that_is_overtaken_by_a_later_message_still_counts() {
    let mut pair = connected(&[("receive_queues", "P,256,4,3,1:P,2KiB,32")]);
    let first = pair.send(0, 1, &pattern(1000, 1));
    let small: Vec<_> = (0..10).map(|tag| pair.send_with(0, 1, 100 + tag, b"small", synchronous())).collect();
    pair.workers[0].cancel(first);
    for &send in &small {
        pair.workers[0].cancel(send);
    }
    let later: Vec<_> = (0..10).map(|tag| pair.send(0, 200 + tag, &pattern(1000, 2))).collect();
    for send in small.into_iter().chain([first]) {
        let done = pair.wait(0, send).unwrap_or_else(|error| panic!("{error}: {}", pair.counters()));
        assert!(done.is_cancelled);
    }
    for (tag, send) in (0..10).zip(later) {
        let receive = pair.recv(1, Tag::new(200 + tag), 1000);
        pair.expect(1, receive, &pattern(1000, 2));
        pair.wait(0, send).expect("sent");
    }
}

/// A receive without a buffer that is taken back hands over an empty buffer: where there is no memory for it, it stays.
#[test]
fn a_receive_without_a_buffer_is_taken_back_or_stays_where_there_is_no_memory() {
    let mut pair = connected(&[]);
    let receive = pair.workers[1].recv_in_place(any()).expect("accepted");
    let mut hog = Vec::new();
    for size in [1 << 20, 1 << 16, 1 << 12, 64] {
        hog.extend(std::iter::from_fn(|| pair.workers[1].buffer(size).ok()));
    }
    pair.workers[1].cancel(receive);
    pair.workers[1].take_turn();
    drop(hog);
    let send = pair.send(0, 1, b"met");
    pair.expect(1, receive, b"met");
    pair.wait(0, send).expect("sent");
}

/// Takes all memory of a worker until it is dropped.
fn hog(pair: &World, who: usize) -> Vec<Buffer> {
    let sizes = [1 << 20, 1 << 16, 1 << 13, 1 << 12, 256, 64];
    sizes.into_iter().flat_map(|size| std::iter::from_fn(move || pair.workers[who].buffer(size).ok())).collect()
}

fn assert_nobody_gave_up(pair: &World) {
    assert!(pair.workers.iter().all(|worker| worker.stats().peers_gone == 0), "{}", pair.counters());
}

/// Questions cost no credit where receives are shared: more of them than the peer may have to keep come before a message
/// that waits for a receive on another lane.
#[test]
fn any_number_of_cancels_behind_a_message_that_waits_is_answered() {
    let mut pair = connected(&[
        ("receive_queues", "S,256,16384,15000,2000,16000,1:S,8KiB,4,1,3,1,0"),
        ("vbuf_pool", "1"),
        ("vbuf_secondary_pool", "1"),
        ("unexpected_limit", "256MiB"),
    ]);
    let small: Vec<_> = (0..5000).map(|tag| pair.send(0, tag, b"x")).collect();
    pair.until("they have come", |pair| pair.workers[1].stats().rx_unexpected == 5000);
    let hog = hog(&pair, 1);
    let long = [5000, 5001].map(|tag| {
        let send = pair.send(0, tag, &pattern(5000, 1));
        pair.steps(500);
        send
    });
    assert_eq!(pair.workers[1].stats().rx_unexpected, 5001, "one finds no receive");
    for &send in &small {
        pair.workers[0].cancel(send);
    }
    pair.steps(5000);
    assert_nobody_gave_up(&pair);
    assert!(pair.workers[0].stats().cancel_stalls > 0);
    drop(hog);
    for send in small {
        assert!(pair.wait(0, send).unwrap_or_else(|error| panic!("{error}")).is_cancelled);
    }
    for (tag, send) in [5000, 5001].into_iter().zip(long) {
        let receive = pair.recv(1, Tag::new(tag), 5000);
        pair.expect(1, receive, &pattern(5000, 1));
        pair.wait(0, send).expect("sent");
    }
}

/// A peer without memory that has got so many small messages, at most, whose sends are returned; and its memory.
fn with_small(most: usize) -> (World, Vec<Request>, Vec<Buffer>, Buffer) {
    let queues = ("receive_queues", "S,256,64,1,64,1,0:P,2KiB,64");
    let mut pair = connected(&[queues, ("vbuf_pool", "1"), ("vbuf_secondary_pool", "1")]);
    let room = pair.workers[1].buffer(300).expect("memory");
    let hog = hog(&pair, 1);
    let mut small = Vec::new();
    while small.len() < most && pair.workers[1].stats().rx_unexpected == small.len() as u64 {
        small.push(pair.send(0, 1, b"x"));
        pair.steps(100);
    }
    (pair, small, hog, room)
}

/// A question finds no receive on one lane while more messages than a place in the sequence can tell apart want to pass
/// on another.
#[test]
fn a_cancel_that_is_late_holds_back_messages_before_its_place_is_ambiguous() {
    let there_is_room_for = with_small(usize::MAX).1.len() - 1;
    let (mut pair, small, hog, room) = with_small(there_is_room_for);
    pair.workers[0].cancel(small[0]);
    let mut room = Some(room);
    let mut held = None;
    for count in 0..40_000 {
        let receive = pair.workers[1].recv(0, Tag::new(2), room.take().expect("it came back")).expect("accepted");
        let send = pair.send(0, 2, &pattern(300, count));
        for _ in 0..100 {
            pair.step();
            if let Some(done) = pair.workers[1].test(receive) {
                room = Some(done.expect("it came").buffer);
                break;
            }
        }
        if room.is_none() {
            held = Some((receive, send, count));
            break;
        }
        pair.wait(0, send).expect("sent");
    }
    assert_nobody_gave_up(&pair);
    drop(hog);
    assert!(pair.wait(0, small[0]).expect("it ends").is_cancelled);
    let (receive, send, passed) = held.expect("messages wait for the answer");
    assert!(passed > 10_000, "it was not the answer that {passed} messages waited for");
    pair.wait(1, receive).expect("it comes");
    pair.wait(0, send).expect("sent");
    assert_alive(&mut pair);
}

/// Tens of thousands are cancelled, those that have left and those that have not, from the oldest on: each is found where it
/// is.
#[test]
fn tens_of_thousands_of_sends_are_taken_back() {
    const COUNT: u64 = 30_000;
    let mut pair = World::pair(&[]);
    let waiting: Vec<_> = (0..COUNT).map(|tag| pair.send(0, tag, b"waits for a connection")).collect();
    for &send in &waiting {
        pair.workers[0].cancel(send);
    }
    for send in waiting {
        assert!(pair.workers[0].test_in_turn(send).expect("at once").expect("taken back").is_cancelled);
    }
    let left: Vec<_> = (0..COUNT).map(|tag| pair.send(0, tag, b"has left")).collect();
    pair.until("all have come", |pair| pair.workers[1].stats().rx_unexpected == COUNT);
    for &send in &left {
        pair.workers[0].cancel(send);
    }
    for send in left {
        assert!(pair.wait(0, send).expect("taken back").is_cancelled);
    }
    assert_eq!(pair.workers[1].inside().unexpected_bytes(), 0);
    pair.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
}
