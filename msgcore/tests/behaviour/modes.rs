//! The modes of sending, receives without a buffer, probes and claims, truncation: one scene for each promise.

use roci_msgcore::{
    Buffer, CallError, Context, Done, Envelope, OpError, Pattern, Refused, Request, SendOptions, Source, Tag, TagMatch,
};
use roci_testkit::World as _;

use super::common::{TestWorker, World, pattern};

const ANY: (Source, TagMatch) = (Source::Any, TagMatch::Any);
const PROTOCOLS: [&str; 4] = ["r3", "rget", "rput", "pipeline"];
const VBUF: usize = 8192;

fn any() -> Pattern {
    Pattern::new(ANY.0, ANY.1)
}

fn test(pair: &mut World, who: usize, request: Request) -> Option<Result<Done, OpError>> {
    pair.workers[who].test_in_turn(request)
}

fn is_over(pair: &mut World, who: usize, request: Request) -> bool {
    test(pair, who, request).is_some()
}

fn recv_in(pair: &mut World, who: usize, pattern: Pattern, room: usize) -> Request {
    let buffer = pair.workers[who].buffer(room).expect("memory");
    pair.workers[who].recv_with(pattern, buffer).expect("accepted")
}

fn receive_without_buffer(pair: &mut World, who: usize) -> Request {
    pair.workers[who].recv_in_place(any()).expect("accepted")
}

/// Whether nothing of an arena's free memory has gone astray, once all is over.
fn settle(pair: &mut World) -> [usize; 2] {
    pair.steps(500);
    [0, 1].map(|who| pair.workers[who].free_bytes())
}

#[test]
fn a_synchronous_send_ends_only_when_a_receive_has_met_it() {
    for (len, vbuf) in [(0, "8192"), (100, "8192"), (1500, "256"), (100_000, "8192")] {
        let mut pair = World::pair(&[("vbuf_size", vbuf), ("eager_threshold", "2000")]);
        let bytes = pattern(len, 1);
        let send = pair.send_with(0, 1, 1, &bytes, SendOptions::default().synchronous());
        pair.steps(1000);
        assert!(!is_over(&mut pair, 0, send), "{len} bytes: nobody has received it");
        let receive = pair.recv(1, Tag::new(1), len);
        pair.expect(1, receive, &bytes);
        let done = pair.wait(0, send).expect("matched");
        assert!(!done.is_cancelled && *done.buffer == *bytes);

        let receive = pair.recv(1, Tag::new(2), len);
        let send = pair.send_with(0, 1, 2, &bytes, SendOptions::default().synchronous());
        pair.expect(1, receive, &bytes);
        pair.wait(0, send).expect("matched");
    }
}

#[test]
fn a_synchronous_send_to_oneself_waits_for_its_receive() {
    let mut pair = World::pair(&[]);
    for len in [3, 100_000] {
        let bytes = pattern(len, 5);
        let send = pair.send_with(0, 0, 1, &bytes, SendOptions::default().synchronous());
        assert!(!is_over(&mut pair, 0, send));
        let receive = pair.recv(0, Tag::new(1), len);
        let done = test(&mut pair, 0, receive).expect("at once").expect("it fits");
        assert!(*done.buffer == *bytes && done.peer == 0);
        assert_eq!(test(&mut pair, 0, send).expect("at once").expect("sent").len, len);
    }
}

#[test]
fn a_long_message_to_oneself_waits_and_a_short_one_is_copied() {
    let mut pair = World::pair(&[]);
    for (len, is_copied) in [(VBUF - 40, true), (VBUF - 39, false)] {
        let send = pair.send_with(0, 0, 1, &pattern(len, 5), SendOptions::default());
        assert_eq!(is_over(&mut pair, 0, send), is_copied);
        let receive = pair.recv(0, Tag::new(1), len);
        let done = test(&mut pair, 0, receive).expect("at once").expect("it fits");
        assert!(*done.buffer == *pattern(len, 5));
        if !is_copied {
            assert_eq!(test(&mut pair, 0, send).expect("at once").expect("sent").len, len);
        }
    }
}

#[test]
fn a_ready_send_is_counted_where_no_receive_is_posted() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    for len in [10, 100_000] {
        let ready = SendOptions::default().ready();
        let receive = pair.recv(1, Tag::new(1), len);
        let send = pair.send_with(0, 1, 1, &pattern(len, 1), ready);
        pair.expect(1, receive, &pattern(len, 1));
        pair.wait(0, send).expect("sent");
    }
    assert_eq!(pair.workers[1].stats().rx_ready_unmatched, 0);
    for (len, from) in [(10, 0), (100_000, 0), (10, 1), (100_000, 1)] {
        let before = pair.workers[1].stats().rx_ready_unmatched;
        let send = pair.send_with(from, 1, 1, &pattern(len, 1), SendOptions::default().ready());
        pair.steps(300);
        assert_eq!(pair.workers[1].stats().rx_ready_unmatched, before + 1);
        let receive = pair.recv_from(1, Source::from(from), Tag::new(1), len);
        assert!(*pair.wait(1, receive).expect("it waits like any other").buffer == *pattern(len, 1));
        pair.wait(from, send).expect("sent");
    }
}

#[test]
fn buffered_sends_are_refused_by_name_beyond_their_limit_and_return_their_memory() {
    let mut pair = World::pair(&[("buffered_limit", "250000")]);
    pair.connect_all();
    let free = settle(&mut pair);
    for _ in 0..3 {
        let standard = SendOptions::default();
        let mut sends = Vec::new();
        for tag in 0..2 {
            let bytes = pattern(100_000, tag as usize);
            let send = pair.workers[0].send_buffered(1.into(), Tag::new(tag), &bytes, standard).expect("there is room");
            sends.push(send);
        }
        let detached = sends.remove(0);
        pair.workers[0].detach(detached);
        let error =
            pair.workers[0].send_buffered(1.into(), Tag::new(9), &pattern(50_001, 0), standard).expect_err("too much");
        assert!(matches!(error, CallError::BufferFull { asked: 50_001, held: 200_000 }), "{error}");
        assert!(error.to_string().contains("ROCI_BUFFERED_LIMIT"), "{error}");
        for tag in 0..2 {
            let receive = pair.recv(1, Tag::new(tag), 100_000);
            pair.expect(1, receive, &pattern(100_000, tag as usize));
        }
        // The memory of the one that was detached is back already.
        let done = pair.wait(0, sends[0]).expect("sent");
        assert_eq!(done.buffer.len(), 100_000);
        drop(done);
        assert!(matches!(pair.workers[0].test(detached), Some(Err(OpError::NoRequest))));
        assert_eq!(settle(&mut pair), free);
    }
}

#[test]
fn a_short_buffered_send_holds_nothing_once_it_has_left() {
    let mut pair = World::pair(&[("buffered_limit", "100")]);
    pair.connect_all();
    for round in 0..10 {
        let send = pair.workers[0].send_buffered(1.into(), Tag::new(1), &pattern(100, round), SendOptions::default());
        pair.workers[0].detach(send.expect("room"));
        let receive = pair.recv(1, Tag::new(1), 100);
        pair.expect(1, receive, &pattern(100, round));
    }
    // To oneself a long one waits where it is.
    let send = pair.workers[0].send_buffered(0.into(), Tag::new(1), &pattern(100, 1), SendOptions::default());
    pair.workers[0].detach(send.expect("room"));
    let receive = pair.recv(0, Tag::new(1), 100);
    assert!(*pair.wait(0, receive).expect("it is there").buffer == *pattern(100, 1));
}

#[test]
fn contexts_do_not_mix() {
    for len in [10, 100_000] {
        let mut pair = World::pair(&[]);
        pair.connect_all();
        let contexts = [3, 0, u32::MAX].map(Context::new);
        let early = recv_in(&mut pair, 1, any().within(contexts[2]), len);
        let sends: Vec<_> = contexts
            .iter()
            .map(|&context| {
                let bytes = pattern(len, context.get() as usize);
                pair.send_with(0, 1, 7, &bytes, SendOptions::default().within(context))
            })
            .collect();
        pair.expect(1, early, &pattern(len, u32::MAX as usize));
        pair.steps(300);
        assert_eq!(pair.workers[1].probe(any().within(Context::new(4))), None);
        for context in [contexts[1], contexts[0]] {
            let receive = recv_in(&mut pair, 1, Pattern::new(0, Tag::new(7)).within(context), len);
            pair.expect(1, receive, &pattern(len, context.get() as usize));
        }
        for send in sends {
            pair.wait(0, send).expect("sent");
        }
    }
}

/// Lends a message; returns its end.
fn hand_over(pair: &mut World, bytes: &[u8], is_expected: bool) -> Done {
    let early = is_expected.then(|| receive_without_buffer(pair, 1));
    let send = pair.send(0, 1, bytes);
    pair.steps(100);
    let receive = early.unwrap_or_else(|| receive_without_buffer(pair, 1));
    let done = pair.wait(1, receive).expect("there is memory");
    assert!(done.buffer[..done.len] == *bytes);
    pair.wait(0, send).expect("sent");
    done
}

#[test]
fn a_message_in_one_vbuf_is_handed_over_without_a_copy() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    // A short one that had no receive is in a copy: a vbuf is worth more.
    let copied = hand_over(&mut pair, &pattern(100, 3), false).buffer;
    assert_eq!((copied.capacity(), copied.len()), (128, 100));
    for (is_expected, lens) in [(true, &[0, 1, 100, VBUF - 40][..]), (false, &[VBUF / 2, VBUF - 40])] {
        for &len in lens {
            let vbufs = pair.workers[1].stats().vbufs;
            let done = hand_over(&mut pair, &pattern(len, 3), is_expected);
            // A vbuf, whose view begins behind the header: no other buffer looks like that.
            assert_eq!((done.buffer.capacity(), done.buffer.len()), (VBUF - 40, len));
            assert_eq!(done.buffer.as_ptr() as usize % 64, 40);
            assert!(pair.workers[1].stats().vbufs + 1 >= vbufs);
            pair.workers[1].give_back(done.buffer);
        }
    }
}

#[test]
fn what_no_single_vbuf_holds_is_handed_over_in_memory_of_its_own() {
    let series = [("vbuf_size", "256"), ("eager_threshold", "8000")];
    let mut settings: Vec<Vec<(&str, &str)>> = PROTOCOLS.map(|protocol| vec![("rndv_protocol", protocol)]).into();
    settings.push(series.into());
    for settings in settings {
        let mut pair = World::pair(&settings);
        pair.connect_all();
        let len = if settings.len() == 2 { 5000 } else { 50_000 };
        for is_expected in [true, false] {
            let done = hand_over(&mut pair, &pattern(len, 9), is_expected);
            assert_eq!((done.buffer.len(), done.len), (len, len));
            pair.workers[1].give_back(done.buffer);
        }
    }
}

/// Rank 1's vbufs, and the free bytes, once all is over.
fn settled(pair: &mut World) -> (u64, [usize; 2]) {
    let free = settle(pair);
    (pair.workers[1].stats().vbufs, free)
}

/// With several receive queues every vbuf goes back to where it came from: nothing grows.
#[test]
fn what_is_given_back_is_used_again() {
    for queues in ["", "P,256,16:P,512,16:P,4KiB,8", "P,256,16:S,2KiB,32:S,8KiB,32"] {
        let mut pair = World::pair(&[("receive_queues", queues)]);
        pair.connect_all();
        let mut before = None;
        for round in 0..200 {
            for len in [100, 400, 2000, 3000] {
                let done = hand_over(&mut pair, &pattern(len, round), round % 2 == 0);
                pair.workers[1].give_back(done.buffer);
            }
            if round == 20 {
                before = Some(settled(&mut pair));
            }
        }
        assert_eq!(Some(settled(&mut pair)), before, "{queues}");
    }
}

#[test]
fn a_handed_over_message_without_memory_is_an_error_and_the_sender_ends() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let send = pair.send(0, 1, &pattern(1 << 20, 1));
    let rest = pair.workers[1].free_bytes();
    let hog: Vec<_> = (0..rest >> 19).filter_map(|_| pair.workers[1].buffer(1 << 19).ok()).collect();
    let receive = receive_without_buffer(&mut pair, 1);
    let error = pair.wait(1, receive).expect_err("no memory");
    assert_eq!(error, OpError::NoMemory { peer: 0.into(), len: 1 << 20 });
    assert!(error.to_string().contains("ROCI_ARENA_SIZE"));
    pair.wait(0, send).expect("the sender is not to blame");
    drop(hog);
    hand_over(&mut pair, &pattern(1 << 20, 2), true);
}

/// Ends a receive that is too short; returns what is free before and after.
fn truncate(pair: &mut World, from: usize, len: usize, is_expected: bool) -> [usize; 2] {
    let room = len - 1;
    let free = settle(pair)[1];
    let post = |pair: &mut World| {
        let mut buffer = pair.workers[1].buffer(room).expect("memory");
        buffer.fill(0xa5);
        // A wildcard: nobody but the error knows what met it.
        pair.workers[1].recv(Source::Any, TagMatch::Any, buffer).expect("accepted")
    };
    let early = is_expected.then(|| post(pair));
    let send = pair.send_with(from, 1, 3, &pattern(len, 1), SendOptions::default().synchronous());
    pair.steps(300);
    let receive = early.unwrap_or_else(|| post(pair));
    let error = pair.wait(1, receive).expect_err("it does not fit");
    let OpError::Truncated(truncated) = error else { panic!("{error}") };
    assert_eq!(truncated.envelope, Envelope { source: from.into(), tag: Tag::new(3), len, data: None });
    assert_eq!((truncated.context, truncated.room), (Context::default(), room));
    let buffer = truncated.buffer.expect("it comes back");
    assert!(buffer.len() == room && buffer.iter().all(|&byte| byte == 0xa5), "it was left alone");
    drop(buffer);
    let done = pair.wait(from, send).expect("the sender is not to blame");
    assert!(*done.buffer == *pattern(len, 1));
    drop(done);
    [free, settle(pair)[1]]
}

#[test]
fn a_message_that_does_not_fit_costs_its_receive_and_nothing_else() {
    let mut scenes: Vec<_> = PROTOCOLS.map(|protocol| (vec![("rndv_protocol", protocol)], 50_000, 0)).into();
    scenes.push((vec![("vbuf_size", "256"), ("eager_threshold", "8000")], 8000, 0));
    scenes.extend([(vec![], 100, 0), (vec![], 100, 1), (vec![], 50_000, 1)]);
    for (settings, len, from) in scenes {
        let mut pair = World::pair(&settings);
        pair.connect_all();
        for (round, is_expected) in [true, false, true, false].into_iter().enumerate() {
            let [before, after] = truncate(&mut pair, from, len, is_expected);
            // The first of each kind may make more vbufs.
            assert!(before == after || round < 2, "{settings:?} from {from}");
            assert_eq!(pair.workers[1].stats().rx_truncated, round as u64 + 1);
            let receive = pair.recv(1, Tag::new(4), len);
            let send = pair.send(0, 4, &pattern(len, 2));
            pair.expect(1, receive, &pattern(len, 2));
            pair.wait(0, send).expect("sent");
        }
    }
}

/// What was handed over is sent on by the protocol that cuts messages in pieces, which it cannot be.
#[test]
fn a_message_that_was_handed_over_can_be_sent_on_by_any_protocol() {
    for protocol in ["r3", "rget", "rput", "pipeline"] {
        let small = [("vbuf_size", "16KiB"), ("eager_threshold", "16KiB")];
        let on = [("vbuf_size", "16KiB"), ("eager_threshold", "0"), ("rndv_protocol", protocol)];
        let mut pair = World::of(&[&small, &on]);
        let send = pair.send(0, 1, &pattern(9000, 3));
        let receive = pair.workers[1].recv_in_place(Pattern::new(0, Tag::new(1))).expect("accepted");
        let buffer = pair.wait(1, receive).expect("it comes").buffer;
        pair.wait(0, send).expect("sent");
        let back = pair.recv(0, Tag::new(2), 9000);
        let send = pair.workers[1].send(0.into(), Tag::new(2), buffer).expect("accepted");
        pair.expect(0, back, &pattern(9000, 3));
        pair.wait(1, send).expect("sent");
    }
}

/// A receive's buffer is as long afterwards as it was before, whatever the message took of it and however it came.
#[test]
fn a_receives_buffer_comes_back_whole_from_every_protocol() {
    for protocol in ["r3", "rget", "rput", "pipeline"] {
        let mut pair = World::pair(&[("rndv_protocol", protocol)]);
        for len in [0, 100, 9_000, 100_000] {
            let receive = pair.recv(1, Tag::new(1), 200_000);
            let send = pair.send(0, 1, &pattern(len, 1));
            let done = pair.wait(1, receive).expect("it comes");
            assert_eq!((done.len, done.buffer.len()), (len, 200_000), "{protocol}");
            assert!(done.buffer[..len] == pattern(len, 1));
            pair.wait(0, send).expect("sent");
        }
    }
}

#[test]
fn a_worker_closes_over_messages_to_itself_that_were_not_received() {
    let mut pair = World::pair(&[]);
    let worker = &mut pair.workers[0];
    let _long = worker.send_bytes(0.into(), Tag::new(1), &pattern(100_000, 1)).expect("accepted");
    let _short = worker.send_bytes(0.into(), Tag::new(1), &pattern(10, 1)).expect("accepted");
    let dropped = pair.workers.remove(0).close().expect("no rank is waited for");
    assert_eq!((dropped.sends, dropped.unexpected), (1, 2));
}

#[test]
fn a_call_that_is_refused_gives_the_buffer_back() {
    let mut pair = World::pair(&[]);
    let marked = |pair: &World| {
        let mut buffer = pair.workers[0].buffer(100).expect("memory");
        buffer.copy_from_slice(&pattern(100, 7));
        buffer
    };
    let assert_back = |refused: Refused<Buffer>| {
        assert!(matches!(refused.why, CallError::TooMany(_) | CallError::NoRank { .. }), "{refused}");
        assert!(*refused.given == *pattern(100, 7));
    };
    for to in [2, usize::MAX] {
        let buffer = marked(&pair);
        assert_back(pair.workers[0].send(to.into(), Tag::new(1), buffer).expect_err("no such rank"));
        let buffer = marked(&pair);
        assert_back(pair.workers[0].recv(to, Tag::new(1), buffer).expect_err("no such rank"));
    }
    let _receives: Vec<_> = std::iter::from_fn(|| pair.workers[0].recv_in_place(any()).ok()).collect();
    for to in [0, 1] {
        let buffer = marked(&pair);
        assert_back(pair.workers[0].send(to.into(), Tag::new(1), buffer).expect_err("too many requests"));
    }
    let buffer = marked(&pair);
    assert_back(pair.workers[0].recv(1, Tag::new(1), buffer).expect_err("too many requests"));
    let buffer = marked(&pair);
    let error: CallError = pair.workers[0].recv(1, Tag::new(1), buffer).expect_err("too many requests").into();
    assert!(error.to_string().ends_with("operations wait already: wait for some of them first"), "{error}");
}

#[test]
fn a_short_message_to_oneself_that_finds_no_memory_waits_in_place() {
    let mut pair = World::pair(&[]);
    let mut payload = pair.workers[0].buffer(100).expect("memory");
    payload.copy_from_slice(&pattern(100, 1));
    let room = pair.workers[0].buffer(100).expect("memory");
    let sizes = [1 << 20, 1 << 16, 1 << 13, 1 << 12, 256, 64];
    let hog: Vec<_> = sizes
        .iter()
        .flat_map(|&size| std::iter::from_fn(|| pair.workers[0].buffer(size).ok()).collect::<Vec<_>>())
        .collect();
    let send = pair.workers[0].send(0.into(), Tag::new(1), payload).expect("it needs no more memory");
    assert!(!is_over(&mut pair, 0, send));
    let receive = pair.workers[0].recv(0, Tag::new(1), room).expect("accepted");
    for request in [receive, send] {
        assert!(*pair.wait(0, request).expect("it is met").buffer == *pattern(100, 1));
    }
    drop(hog);
}

/// A probe and a claim see a message's data before it is received, a message to oneself has its own, and what was cancelled has none.
#[test]
fn data_is_seen_by_probes_and_goes_to_oneself_too() {
    let with_data = SendOptions::default().with_data(0xfedc_ba98_7654_3210);
    for (from, len) in [(0, 10), (0, 100_000), (1, 10), (1, 100_000)] {
        let mut pair = World::pair(&[]);
        pair.connect_all();
        let send = pair.send_with(from, 1, 7, &pattern(len, 1), with_data);
        pair.steps(300);
        let envelope = pair.workers[1].probe(any()).expect("it has come");
        assert_eq!((envelope.data, envelope.len), (Some(0xfedc_ba98_7654_3210), len));
        let claimed = pair.workers[1].claim(any()).expect("it has come");
        assert_eq!(claimed.envelope(), envelope);
        let buffer = pair.workers[1].buffer(len).expect("memory");
        let receive = pair.workers[1].recv_message(claimed, buffer).expect("accepted");
        assert_eq!(pair.wait(1, receive).expect("it comes").data, envelope.data);
        assert_eq!(pair.wait(from, send).expect("sent").data, envelope.data, "the sender sees what it sent");
        let receive = pair.recv(1, Tag::new(9), 10);
        pair.workers[1].cancel(receive);
        assert_eq!(pair.wait(1, receive).expect("taken back").data, None);
    }
}

/// What was injected arrives in order with what was sent, whatever becomes of the caller's bytes and of packets; before there is a
/// connection too, and to oneself.
#[test]
fn what_is_injected_is_the_callers_again_at_once_and_arrives_in_order() {
    const COUNT: usize = 300;
    for faults in ["", "loss=0.05,dup=0.05,reorder=0.05,seed=3"] {
        let series = ("eager_threshold", "64KiB");
        let mut pair = World::pair(&[("faults", faults), ("ack_timeout_us", "100"), ("credits", "12"), series]);
        let memory = pair.workers.iter().map(TestWorker::memory).collect::<Vec<_>>();
        // Every fifth is a series, which waits for more credits than a short one would.
        let len = |at: usize| if at.is_multiple_of(5) { 30_000 } else { at * 37 % 2_000 };
        let receives: Vec<_> = (0..COUNT).map(|at| pair.recv(1, Tag::new(at as u64 % 2), len(at))).collect();
        for at in 0..COUNT {
            let (tag, mut bytes) = (Tag::new(at as u64 % 2), pattern(len(at), at));
            if at.is_multiple_of(5) {
                let send = pair.send_with(0, 1, tag.get(), &bytes, SendOptions::default());
                pair.workers[0].detach(send);
                continue;
            }
            let options = SendOptions::default().with_data(at as u64);
            pair.workers[0].inject(1.into(), tag, &bytes, options).expect("it is short");
            bytes.fill(0);
            if at % 50 == 0 {
                pair.steps(20);
            }
        }
        for (at, receive) in receives.into_iter().enumerate() {
            let done = pair.wait(1, receive).expect("it comes");
            assert_eq!((done.len, done.data), (len(at), (at % 5 > 0).then_some(at as u64)));
            assert!(*done.buffer == *pattern(len(at), at), "message {at} differs");
        }
        let receive = pair.recv(0, Tag::new(9), 10);
        pair.workers[0].inject(0.into(), Tag::new(9), b"myself", SendOptions::default()).expect("it is short");
        assert_eq!(pair.wait(0, receive).expect("it comes").len, 6);
        pair.steps(10_000);
        for (worker, memory) in pair.workers.iter().zip(memory) {
            worker.inside().check_invariants().expect("what must hold");
            let now = worker.memory();
            assert!(now + (64 << 10) >= memory, "{faults}: {} bytes are missing", memory - now);
        }
    }
}

#[test]
fn what_cannot_be_injected_is_refused_by_name() {
    let mut pair = World::pair(&[("ack_timeout_us", "100"), ("retry_limit", "5")]);
    pair.connect_all();
    let limit = pair.workers[0].inject_size();
    assert_eq!(limit, 8192 - 40);
    let long = vec![0; limit + 1];
    let error = pair.workers[0].inject(1.into(), Tag::new(1), &long, SendOptions::default()).expect_err("too long");
    assert!(matches!(error, CallError::TooLongToInject { len, limit: 8152 } if len == limit + 1), "{error}");
    pair.workers[0].inject(1.into(), Tag::new(1), &long[1..], SendOptions::default()).expect("it fits");
    assert!(
        pair.workers[0].inject(2.into(), Tag::new(1), b"x", SendOptions::default()).is_err(),
        "there is no such rank"
    );
    let receive = pair.recv(1, Tag::new(1), limit);
    pair.wait(1, receive).expect("it comes");
    pair.cut(1);
    let send = pair.send(0, 1, b"x");
    pair.workers[0].detach(send);
    pair.steps(400_000);
    if !pair.workers[0].is_dedicated() {
        let error =
            pair.workers[0].inject(1.into(), Tag::new(1), b"x", SendOptions::default()).expect_err("it is gone");
        assert!(matches!(error, CallError::Peer(OpError::PeerGone { peer, .. }) if peer == 1), "{error}");
    }
}
