//! Multi-receives: one stays posted, and messages lie in its buffer one behind the other, whatever carries them.

use roci_msgcore::{Buffer, Completion, Done, OpError, Pattern, PeerId, Request, SendOptions, Source, Tag, TagMatch};
use roci_testkit::World as _;

use super::common::{TestWorker, World, pattern};

const FAULTS: &str = "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=5";
const QUICK: (&str, &str) = ("ack_timeout_us", "100");
/// Both ends of a job notice soon that a cable was pulled.
const MORTAL: [(&str, &str); 3] = [("retry_limit", "3"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "200")];
/// What the tests name multi-receives by.
const CONTEXT: u64 = 1 << 40;

fn post(world: &mut World, who: usize, pattern: Pattern, (len, least): (usize, usize), context: u64) -> Request {
    let buffer = world.workers[who].buffer(len).expect("memory");
    let request = world.workers[who].recv_multi(pattern, buffer, least, context).expect("accepted");
    world.workers[who].take_turn();
    request
}

fn anything() -> Pattern {
    Pattern::new(Source::Any, TagMatch::Any)
}

/// Lets time pass until a worker has a completion. What must hold is verified at every step.
fn next(world: &mut World, who: usize) -> Completion {
    world.find("a completion", |world| {
        world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
        world.workers[who].poll_completion()
    })
}

/// The same, of a message that was received.
fn message(world: &mut World, who: usize, context: u64) -> Done {
    let Completion { context: its, outcome, is_last } = next(world, who);
    assert_eq!((its, is_last), (context, false));
    outcome.unwrap_or_else(|error| panic!("{error}: {}", world.counters()))
}

/// The same, of the end of a multi-receive.
fn end(world: &mut World, who: usize, context: u64) -> Result<Done, OpError> {
    let Completion { context: its, outcome, is_last } = next(world, who);
    assert_eq!((its, is_last), (context, true));
    if let Ok(done) = &outcome {
        assert_eq!((done.len, done.tag, done.data), (0, Tag::new(0), None));
    }
    outcome
}

/// Waits until sends of a worker are over.
fn all_sent(world: &mut World, who: usize, sends: impl IntoIterator<Item = Request>) {
    for send in sends {
        drop(world.wait(who, send).expect("sent"));
    }
}

/// What is left of a multi-receive that no message can come for.
fn rest_of(outcome: Result<Done, OpError>) -> (OpError, Buffer) {
    match outcome {
        Err(OpError::MultiReceive(failed)) => (failed.why, failed.rest.expect("what is left")),
        other => panic!("{other:?}"),
    }
}

/// Puts pieces of a buffer together again, which must lie one behind the other.
fn join(pieces: impl IntoIterator<Item = Buffer>) -> Buffer {
    let whole = pieces.into_iter().reduce(|mut whole, piece| {
        whole.set_len(whole.capacity());
        whole.join(piece).expect("it lies behind the one before");
        whole
    });
    whole.expect("there are some")
}

/// Sizes of messages around everything that changes with them.
const SIZES: [usize; 13] = [1, 100_000, 63, 64, 0, 65, 8_152, 30_000, 8_153, 0, 1_000, 50_000, 5];

/// Messages of all sizes meet one multi-receive, the first ones before it is posted.
fn carry(settings: &[(&str, &str)], early: usize) -> World {
    let mut pair = World::pair(settings);
    pair.connect_all();
    let before: Vec<_> = pair.workers.iter().map(TestWorker::memory).collect();
    let total: usize = SIZES.iter().map(|len| len.next_multiple_of(64)).sum();
    let mut sends = Vec::new();
    let mut send = |pair: &mut World, which: usize| {
        let options = SendOptions::default().with_data(which as u64 + 100);
        sends.push(pair.send_with(0, 1, which as u64, &pattern(SIZES[which], which), options));
    };
    (0..early).for_each(|which| send(&mut pair, which));
    pair.steps(500);
    let of_peer = Pattern::new(Source::from(0), TagMatch::Any);
    let _ = post(&mut pair, 1, of_peer, (total + 128, 129), CONTEXT);
    (early..SIZES.len()).for_each(|which| send(&mut pair, which));
    let mut pieces: Vec<_> = (0..SIZES.len()).map(|_| message(&mut pair, 1, CONTEXT)).collect();
    let rest = end(&mut pair, 1, CONTEXT).expect("used up");
    assert!(!rest.is_cancelled && rest.buffer.len() == 128);
    pieces.sort_by_key(|done| done.tag.get());
    for (which, done) in pieces.iter().enumerate() {
        let label = (done.tag.get(), done.data, done.len, done.peer, done.is_cancelled);
        assert_eq!(label, (which as u64, Some(which as u64 + 100), SIZES[which], PeerId::from(0), false));
        assert!(*done.buffer == *pattern(SIZES[which], which), "message {which} is another");
    }
    // Those of no length lie anywhere.
    let pieces = pieces.into_iter().filter(|done| done.len > 0).map(|done| done.buffer);
    let whole = join(pieces.chain([rest.buffer]));
    assert_eq!(whole.len(), total + 128);
    drop(whole);
    all_sent(&mut pair, 0, sends);
    pair.until("all memory is back", |pair| pair.workers.iter().zip(&before).all(|(w, &before)| w.memory() == before));
    pair
}

fn carry_all(settings: &[(&str, &str)], is_used: impl Fn(&World) -> bool) {
    for (faults, early) in [("", 0), ("", 6), ("", SIZES.len()), (FAULTS, 0), (FAULTS, 7)] {
        let settings = [settings, &[("faults", faults), QUICK]].concat();
        assert!(is_used(&carry(&settings, early)), "{settings:?}");
    }
}

#[test]
fn eager_messages_lie_one_behind_the_other() {
    carry_all(&[("eager_threshold", "7000")], |pair| pair.workers[0].stats().tx_eager > 5);
}

#[test]
fn series_of_vbufs_lie_one_behind_the_other() {
    carry_all(&[("eager_threshold", "60000"), ("credits", "64")], |pair| pair.workers[0].stats().tx_eager == 12);
}

#[test]
fn messages_by_r3_lie_one_behind_the_other() {
    carry_all(&[("rndv_protocol", "r3"), ("eager_threshold", "60")], |pair| pair.workers[0].stats().tx_r3 > 5);
}

#[test]
fn messages_by_rget_lie_one_behind_the_other() {
    carry_all(&[("rndv_protocol", "rget"), ("eager_threshold", "60")], |pair| pair.workers[0].stats().tx_rget > 5);
}

#[test]
fn messages_by_rput_lie_one_behind_the_other() {
    carry_all(&[("rndv_protocol", "rput"), ("eager_threshold", "60")], |pair| pair.workers[0].stats().tx_rput > 5);
}

#[test]
fn messages_by_pipeline_lie_one_behind_the_other() {
    let settings = [("rndv_protocol", "pipeline"), ("eager_threshold", "60"), ("pipeline_chunk", "4KiB")];
    carry_all(&settings, |pair| pair.workers[0].stats().tx_pipeline > 5);
}

/// As MPICH does it: some buffers are posted, and one that is used up is posted again.
#[test]
fn a_stream_of_messages_goes_through_few_buffers() {
    for settings in
        [&[][..], &[("receive_queues", "S,8KiB,64")], &[("rndv_protocol", "rput"), ("eager_threshold", "300")]]
    {
        let mut pair = World::pair(settings);
        pair.connect_all();
        let before = pair.workers[1].memory();
        for context in 0..3 {
            let _ = post(&mut pair, 1, anything(), (4096, 600), context);
        }
        let (mut received, mut open, mut sent) = (Vec::new(), 3, 0);
        while received.len() < 500 {
            if sent < 500 && sent < received.len() + 40 {
                let send = pair.send(0, 9, &pattern(sent % 600, sent));
                pair.workers[0].detach(send);
                sent += 1;
            }
            pair.step();
            while let Some(Completion { context, outcome, is_last }) = pair.workers[1].poll_completion() {
                let done = outcome.expect("it is good");
                if !is_last {
                    received.push(done);
                    continue;
                }
                assert!(done.buffer.len() < 600);
                drop(done);
                let _ = post(&mut pair, 1, anything(), (4096, 600), context);
                open += 1;
            }
            pair.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
        }
        let total: usize = received.iter().map(|done| done.len.next_multiple_of(64)).sum();
        assert!(open >= total / 4096, "{open} buffers for {total} bytes");
        // The eager ones have arrived in the order in which they were sent.
        let is_eager = |done: &&Done| settings.len() < 2 || done.len <= 300;
        let mut last = None;
        for done in received.iter().filter(is_eager) {
            let which = (0..500).find(|&which| which % 600 == done.len && *done.buffer == *pattern(done.len, which));
            assert!(which.is_some() && which > last, "{which:?} after {last:?}");
            last = which;
        }
        drop(received);
        let unposted = before - pair.workers[1].memory();
        assert!(unposted <= 3 * 4096, "{unposted} bytes are missing");
    }
}

/// Whom each of these messages meets is MPI's order of all receives that would take it.
#[test]
fn multi_receives_and_others_are_met_in_the_order_of_posting() {
    for early in [false, true] {
        let mut pair = World::pair(&[]);
        pair.connect_all();
        let send = |pair: &mut World, tag: u64, what: u8| {
            let send = pair.send(0, tag, &[what; 60]);
            pair.wait(0, send).expect("sent");
            pair.steps(100);
        };
        if early {
            send(&mut pair, 5, 0);
            send(&mut pair, 5, 1);
        }
        let single = pair.recv_from(1, Source::from(0), Tag::new(5), 64);
        let masked = TagMatch::Masked { tag: Tag::new(4), ignore: 3 };
        let _ = post(&mut pair, 1, Pattern::new(Source::Any, masked), (192, 64), 1);
        let behind = pair.recv(1, Tag::new(6), 64);
        let _ = post(&mut pair, 1, Pattern::new(Source::from(0), Tag::new(6)), (128, 64), 2);
        let _ = post(&mut pair, 1, anything(), (64, 64), 3);
        pair.workers[1].take_turn();
        if !early {
            send(&mut pair, 5, 0);
            send(&mut pair, 5, 1);
        }
        pair.expect(1, single, &[0; 60]);
        // The mask takes two more, then the receive behind it, then the exact one, then who takes anything.
        for (what, tag) in [(2, 6), (3, 7), (4, 6), (5, 6), (6, 6), (7, 6)] {
            send(&mut pair, tag, what);
        }
        pair.expect(1, behind, &[4; 60]);
        for (context, whats) in [(1, &[1, 2, 3][..]), (2, &[5, 6]), (3, &[7])] {
            for &what in whats {
                assert_eq!(*message(&mut pair, 1, context).buffer, [what; 60]);
            }
            assert_eq!(end(&mut pair, 1, context).expect("used up").buffer.len(), 0);
        }
        assert!(pair.workers[1].poll_completion().is_none());
    }
}

#[test]
fn a_message_that_is_too_long_is_truncated_and_takes_nothing_of_the_buffer() {
    let rput = [("rndv_protocol", "rput"), ("eager_threshold", "60")];
    let r3 = [("rndv_protocol", "r3"), ("eager_threshold", "60")];
    let rget = [("rndv_protocol", "rget"), ("eager_threshold", "60")];
    let pipeline = [("rndv_protocol", "pipeline"), ("eager_threshold", "60")];
    let series = [("eager_threshold", "60000"), ("credits", "64")];
    for (settings, early) in
        [&[][..], &rput, &r3, &rget, &pipeline, &series].into_iter().flat_map(|s| [(s, false), (s, true)])
    {
        let mut pair = World::pair(settings);
        pair.connect_all();
        let send_all = |pair: &mut World| {
            let sends = [100, 25_000, 30, 1_000].map(|len| pair.send(0, len as u64, &pattern(len, len)));
            pair.steps(500);
            sends
        };
        let sends = early.then(|| send_all(&mut pair));
        let _ = post(&mut pair, 1, anything(), (1024, 1), CONTEXT);
        let sends = sends.unwrap_or_else(|| send_all(&mut pair));
        let (mut lens, mut long) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let Completion { context, outcome, is_last } = next(&mut pair, 1);
            assert_eq!((context, is_last), (CONTEXT, false));
            match outcome {
                Ok(done) => lens.push(done.len),
                Err(OpError::Truncated(truncated)) => {
                    assert!(truncated.buffer.is_none());
                    long.push((truncated.envelope.len, truncated.room));
                }
                Err(other) => panic!("{other}"),
            }
        }
        lens.sort_unstable();
        assert_eq!(
            (&lens[..], &long[..]),
            (&[30, 100][..], &[(25_000, 896), (1_000, 832)][..]),
            "{settings:?} {early}"
        );
        all_sent(&mut pair, 0, sends);
        let send = pair.send(0, 1, &pattern(832, 7));
        assert_eq!(*message(&mut pair, 1, CONTEXT).buffer, pattern(832, 7)[..]);
        assert_eq!(end(&mut pair, 1, CONTEXT).expect("used up").buffer.capacity(), 0);
        pair.wait(0, send).expect("sent");
    }
}

#[test]
fn one_that_is_taken_back_ends_behind_what_it_has_taken() {
    for protocol in ["r3", "rget", "rput", "pipeline"] {
        let mut pair = World::pair(&[("rndv_protocol", protocol)]);
        pair.connect_all();
        let before = pair.workers[1].memory();
        let multi = post(&mut pair, 1, anything(), (300_000, 1), CONTEXT);
        let sends = [pair.send(0, 1, b"short"), pair.send(0, 2, &pattern(100_000, 2))];
        assert_eq!(message(&mut pair, 1, CONTEXT).len, 5);
        pair.until("a long one is being received", |pair| pair.workers[1].stats().rx_expected == 2);
        pair.workers[1].cancel(multi);
        pair.workers[1].take_turn();
        let late = pair.send(0, 3, b"late");
        assert!(pair.workers[1].test(multi).is_none(), "a message is under way");
        assert_eq!(*message(&mut pair, 1, CONTEXT).buffer, pattern(100_000, 2)[..], "{protocol}");
        let done = end(&mut pair, 1, CONTEXT).expect("taken back");
        assert!(done.is_cancelled && done.buffer.len() == 300_000 - 64 - 100_032);
        drop(done);
        pair.steps(1_000);
        assert!(pair.workers[1].poll_completion().is_none());
        pair.workers[1].cancel(multi);
        let receive = pair.recv(1, Tag::new(3), 4);
        pair.expect(1, receive, b"late");
        all_sent(&mut pair, 0, sends);
        pair.wait(0, late).expect("sent");
        pair.until("all memory is back", |pair| pair.workers[1].memory() == before);
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_ends_its_messages_and_those_that_wait_for_it() {
    for (protocol, is_directed) in ["r3", "rget", "rput", "pipeline"].into_iter().flat_map(|p| [(p, true), (p, false)])
    {
        let settings = [("rndv_protocol", protocol), MORTAL[0], MORTAL[1], MORTAL[2]];
        let mut world = World::of(&[&settings, &settings, &settings]);
        world.connect_all();
        let before = world.workers[1].memory();
        let source = if is_directed { Source::from(0) } else { Source::Any };
        let multi = post(&mut world, 1, Pattern::new(source, TagMatch::Any), (1_000_000, 1), CONTEXT);
        let _ = world.send_with(0, 1, 1, b"short", SendOptions::default());
        let _ = world.send_with(0, 1, 2, &pattern(500_000, 2), SendOptions::default());
        world.until("a long one is being received", |world| world.workers[1].stats().rx_expected == 2);
        world.cut(0);
        // The end of a peer is noticed by who sends to it.
        let probe = world.send_with(1, 0, 1, b"?", SendOptions::default());
        assert_eq!(message(&mut world, 1, CONTEXT).len, 5);
        let lost = next(&mut world, 1);
        assert!(!lost.is_last && matches!(lost.outcome, Err(OpError::PeerGone { peer, .. }) if peer == 0), "{lost:?}");
        let left = 1_000_000 - 64 - 500_032;
        if is_directed {
            let (why, rest) = rest_of(end(&mut world, 1, CONTEXT));
            assert!(matches!(why, OpError::PeerGone { peer, .. } if peer == 0), "{why}");
            assert_eq!(rest.len(), left);
        } else {
            let send = world.send_with(2, 1, 3, b"others go on", SendOptions::default());
            assert_eq!(*message(&mut world, 1, CONTEXT).buffer, *b"others go on");
            world.wait(2, send).expect("sent");
            world.workers[1].cancel(multi);
            let done = end(&mut world, 1, CONTEXT).expect("taken back");
            assert!(done.is_cancelled && done.buffer.len() == left - 64);
        }
        drop(world.wait(1, probe));
        world.until("all memory is back", |world| world.workers[1].memory() == before);
    }
}

#[test]
fn a_wait_for_a_completion_ends_one_from_anybody_when_all_have_gone() {
    let mut pair = World::pair(&MORTAL);
    pair.connect_all();
    pair.cut(0);
    let send = pair.send(1, 1, b"is anybody there?");
    let early = post(&mut pair, 1, anything(), (640, 1), 1);
    drop(pair.wait(1, send));
    let (why, rest) = rest_of(end(&mut pair, 1, 1));
    assert_eq!((why, rest.len()), (OpError::NobodyLeft, 640), "it was posted before");
    assert_eq!(pair.workers[1].test(early).map(|outcome| outcome.map(|done| done.len)), Some(Err(OpError::NoRequest)));
    let _ = post(&mut pair, 1, anything(), (640, 1), 2);
    let completion = pair.workers[1].wait_completion().expect("it ends");
    assert_eq!((completion.context, completion.is_last), (2, true));
    assert_eq!(rest_of(completion.outcome).0, OpError::NobodyLeft);
    // By name it is not ended, as other receives are not.
    let named = post(&mut pair, 1, anything(), (640, 1), 3);
    let error = pair.workers[1].wait(named).map(|done| done.len).expect_err("no rank is left");
    assert!(
        matches!(&error, OpError::MultiReceive(failed) if failed.why == OpError::NobodyLeft)
            || error == OpError::NobodyLeft
    );
    let directed = post(&mut pair, 1, Pattern::new(Source::from(0), TagMatch::Any), (640, 1), 4);
    let error = pair.wait(1, directed).map(|done| done.len).expect_err("it is gone");
    assert!(matches!(error, OpError::MultiReceive(_)), "{error}");
}

#[test]
fn messages_to_oneself_are_taken_before_and_after_it_is_posted() {
    let mut pair = World::pair(&[("eager_threshold", "1000")]);
    let before = pair.workers[0].memory();
    let bytes = |which: usize| pattern([10, 0, 5_000, 300][which % 4], which);
    let send = |pair: &mut World, which: usize| {
        let options = if which == 3 { SendOptions::default().synchronous() } else { SendOptions::default() };
        pair.send_with(0, 0, which as u64, &bytes(which), options)
    };
    let mut sends: Vec<_> = (0..4).map(|which| send(&mut pair, which)).collect();
    pair.steps(10);
    assert!(pair.workers[0].test(sends[3]).is_none(), "it waits for its receive");
    let _ = post(&mut pair, 0, anything(), (12_000, 1_200), CONTEXT);
    sends.extend((4..8).map(|which| send(&mut pair, which)));
    for which in 0..8 {
        let done = message(&mut pair, 0, CONTEXT);
        assert_eq!((done.tag, &*done.buffer, done.peer), (Tag::new(which as u64), &bytes(which)[..], PeerId::from(0)));
    }
    assert!(!end(&mut pair, 0, CONTEXT).expect("used up").is_cancelled);
    all_sent(&mut pair, 0, sends);
    assert_eq!(pair.workers[0].memory(), before);
}

#[test]
fn synchronous_sends_end_when_they_are_taken_and_can_be_taken_back_until_then() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let synchronous = SendOptions::default().synchronous();
    let [early, back] = [1, 2].map(|tag| pair.send_with(0, 1, tag, b"early", synchronous));
    pair.steps(200);
    assert!(pair.workers[0].test(early).is_none());
    pair.workers[0].cancel(back);
    assert!(pair.wait(0, back).expect("taken back").is_cancelled);
    let _ = post(&mut pair, 1, anything(), (1_000, 1), CONTEXT);
    let late = pair.send_with(0, 1, 3, b"late", synchronous);
    for (send, tag) in [(early, 1), (late, 3)] {
        assert_eq!(message(&mut pair, 1, CONTEXT).tag, Tag::new(tag));
        assert!(!pair.wait(0, send).expect("matched").is_cancelled);
    }
}

#[test]
fn claimed_messages_are_not_its_and_probes_take_nothing_from_it() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let sends = [pair.send(0, 1, b"claimed"), pair.send(0, 2, b"probed")];
    let claimed = pair.find("a message", |pair| pair.workers[1].claim(Pattern::new(Source::Any, Tag::new(1))));
    pair.find("a message", |pair| pair.workers[1].probe(anything()));
    let _ = post(&mut pair, 1, anything(), (1_000, 1), CONTEXT);
    assert_eq!(*message(&mut pair, 1, CONTEXT).buffer, *b"probed");
    assert!(pair.workers[1].probe(anything()).is_none());
    let buffer = pair.workers[1].buffer(7).expect("memory");
    let receive = pair.workers[1].recv_message(claimed, buffer).expect("it is claimed");
    pair.expect(1, receive, b"claimed");
    assert!(pair.workers[1].poll_completion().is_none());
    all_sent(&mut pair, 0, sends);
}

#[test]
fn its_name_is_for_its_end_and_messages_stay_completions() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let before = pair.workers[1].memory();
    let named = post(&mut pair, 1, Pattern::new(0, Tag::new(1)), (256, 200), 1);
    let detached = post(&mut pair, 1, Pattern::new(0, Tag::new(2)), (256, 200), 2);
    pair.workers[1].detach(detached);
    let sends = [1, 2, 1].map(|tag| pair.send(0, tag, b"hello"));
    assert_eq!(pair.wait(1, named).expect("used up").buffer.len(), 192);
    for context in [1, 2] {
        assert_eq!(*message(&mut pair, 1, context).buffer, *b"hello");
    }
    pair.steps(200);
    assert!(pair.workers[1].poll_completion().is_none());
    assert_eq!(pair.workers[1].wait_completion().map(|completion| completion.context), Err(OpError::NoRequest));
    let receive = pair.recv(1, Tag::new(1), 5);
    pair.expect(1, receive, b"hello");
    all_sent(&mut pair, 0, sends);
    pair.until("all memory is back", |pair| pair.workers[1].memory() == before);
}

/// Messages of no length use up nothing, and come faster than their completions are taken. Nothing else waits for them.
#[test]
fn empty_messages_complete_one_by_one_and_starve_nothing() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let _ = post(&mut pair, 1, Pattern::new(0, Tag::new(1)), (64, 64), CONTEXT);
    let other = pair.recv(1, Tag::new(2), 2_000);
    pair.workers[1].queue_completion(other, 2).expect("it is under way");
    let (mut sent, mut received, mut is_there) = (0, 0, false);
    let send = pair.send(0, 2, &pattern(2_000, 1));
    for _ in 0..2_000 {
        for _ in 0..2 {
            let send = pair.send(0, 1, b"");
            pair.workers[0].detach(send);
            sent += 1;
        }
        pair.step();
        let completion = pair.workers[1].poll_completion();
        received += usize::from(completion.as_ref().is_some_and(|completion| completion.context == CONTEXT));
        is_there |= completion.is_some_and(|completion| completion.context == 2);
    }
    assert!(is_there && received > 1_000 && received < sent, "{is_there}, {received} of {sent}");
    while received < sent {
        assert_eq!(message(&mut pair, 1, CONTEXT).len, 0);
        received += 1;
    }
    let last = pair.send(0, 1, &[7; 64]);
    assert_eq!(*message(&mut pair, 1, CONTEXT).buffer, [7; 64]);
    assert_eq!(end(&mut pair, 1, CONTEXT).expect("used up").buffer.len(), 0);
    all_sent(&mut pair, 0, [send, last]);
}

#[test]
fn a_worker_that_ends_gives_up_each_as_one_receive() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    for context in 0..3 {
        let _ = post(&mut pair, 1, Pattern::new(0, Tag::new(context)), (640, 1), context);
    }
    let sends = [0, 0, 1].map(|tag| pair.send(0, tag, &vec![tag as u8; 320 * (1 + tag as usize)]));
    for (context, is_last) in [(0, false), (0, false), (0, true), (1, false), (1, true)] {
        let completion = next(&mut pair, 1);
        assert_eq!((completion.context, completion.is_last), (context, is_last));
    }
    all_sent(&mut pair, 0, sends);
    let worker = pair.workers.pop().expect("two");
    assert_eq!(worker.abort().receives, 1, "two have ended");
}

#[test]
fn a_buffer_that_cannot_be_cut_comes_back() {
    let mut pair = World::pair(&[]);
    let mut buffer = pair.workers[0].buffer(100).expect("memory");
    buffer.skip_front(10);
    let refused = pair.workers[0].recv_multi(anything(), buffer, 1, CONTEXT).expect_err("it cannot be cut");
    assert_eq!(refused.given.len(), 90);
    let nowhere = Pattern::new(Source::from(7), TagMatch::Any);
    let refused = pair.workers[0].recv_multi(nowhere, refused.given, 1, CONTEXT).expect_err("there is none");
    assert_eq!(refused.given.len(), 90);
    assert!(pair.workers[0].poll_completion().is_none());
    assert_eq!(pair.workers[0].wait_completion().map(|completion| completion.context), Err(OpError::NoRequest));
}
