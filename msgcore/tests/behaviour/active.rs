//! Active messages: handlers run once each, replies come back, and nothing deadlocks however few credits there are.

use std::sync::{Arc, Mutex};

use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId, ReplyError};
use roci_msgcore::{CallError, OpError, PeerId, Request};
use roci_testkit::World as _;

use super::common::{World, pattern};

const FAULTS: &str = "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=9";

type Log = Arc<Mutex<Vec<(PeerId, Vec<u64>, Vec<u8>)>>>;

/// Registers a handler that notes what comes.
fn note(world: &mut World, who: usize, name: &str) -> Log {
    let log = Log::default();
    let ours = log.clone();
    let handler = Box::new(move |_: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
        ours.lock().expect("no panic").push((message.source, message.arguments.to_vec(), message.payload.to_vec()));
    });
    world.workers[who].register_handler(name, handler).expect("free");
    log
}

/// Registers a handler that replies with the sum of its arguments and its payload backwards.
fn sum(world: &mut World, who: usize) {
    let handler = |context: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
        let backwards: Vec<u8> = message.payload.iter().rev().copied().collect();
        context.reply(&[message.arguments.iter().sum(), 1], &backwards).expect("a request");
    };
    world.workers[who].register_handler("sum", Box::new(handler)).expect("free");
}

fn ask(world: &mut World, who: usize, to: usize, arguments: &[u64], payload: &[u8]) -> Request {
    world.workers[who].request_active(to.into(), HandlerId::of("sum"), arguments, payload).expect("accepted")
}

#[test]
fn messages_of_every_length_run_their_handler_once() {
    for queues in ["", "P,256,64,16,8:S,1024,64,48:S,65536,16,8"] {
        let settings: &[(&str, &str)] = &[("faults", FAULTS), ("receive_queues", queues)];
        let settings = if queues.is_empty() { &settings[..1] } else { settings };
        let mut world = World::pair(settings);
        // In another order at the other end: a handler is found by its name.
        let (_, ours) = (note(&mut world, 0, "first"), note(&mut world, 0, "second"));
        let (second, first) = (note(&mut world, 1, "second"), note(&mut world, 1, "first"));
        let most = world.workers[0].max_active();
        let lengths = [0, 1, 8, 100, 215, 216, 217, 1000, most - 1, most];
        for (round, len) in lengths.into_iter().enumerate() {
            for (name, arguments) in [("first", &[][..]), ("second", &[round as u64, u64::MAX, 3])] {
                let sent = world.workers[0].send_active(1.into(), HandlerId::of(name), arguments, &pattern(len, round));
                sent.expect("accepted");
            }
        }
        world.until("all have run", |_| {
            [&first, &second].iter().all(|log| log.lock().expect("no panic").len() == lengths.len())
        });
        let mut firsts = first.lock().expect("no panic").clone();
        firsts.sort_by_key(|(_, _, payload)| payload.len());
        let expected: Vec<_> =
            lengths.into_iter().enumerate().map(|(round, len)| (0.into(), vec![], pattern(len, round))).collect();
        assert_eq!(firsts, expected);
        let mut seconds = second.lock().expect("no panic").clone();
        seconds.sort_by_key(|(_, arguments, _)| arguments[0]);
        let arguments: Vec<_> = seconds.iter().map(|(_, arguments, _)| arguments.clone()).collect();
        assert_eq!(arguments, (0..lengths.len() as u64).map(|round| vec![round, u64::MAX, 3]).collect::<Vec<_>>());
        let refused = world.workers[0].send_active(1.into(), HandlerId::of("first"), &[], &vec![0; most + 1]);
        assert!(matches!(refused, Err(CallError::TooLongForActive { len, limit }) if (len, limit) == (most + 1, most)));
        let refused = world.workers[0].send_active(1.into(), HandlerId::of("first"), &[0; 4], &[]);
        assert!(matches!(refused, Err(CallError::Arguments(4))));
        assert!(ours.lock().expect("no panic").is_empty());
    }
}

#[test]
fn a_reply_is_its_requests_outcome_here_and_at_oneself() {
    for to in [0, 1] {
        let mut world = World::pair(&[("faults", FAULTS)]);
        sum(&mut world, to);
        for len in [0, 1, 100, 5000, world.workers[0].max_active()] {
            let payload = pattern(len, len);
            let request = ask(&mut world, 0, to, &[40, 1, 1], &payload);
            let done = world.wait(0, request).expect("a reply");
            assert_eq!((done.data, done.len, done.peer), (Some(42), len, to.into()));
            assert!(done.buffer.iter().eq(payload.iter().rev()));
        }
        let request = world.workers[0].request_active(to.into(), HandlerId::of("unknown"), &[], &[]).expect("accepted");
        assert_eq!(world.wait(0, request).expect_err("no handler"), OpError::Unanswered { peer: to.into() });
        world.workers[0].send_active(to.into(), HandlerId::of("unknown"), &[], &[]).expect("accepted");
        world.until("it is counted", |world| world.workers[to].stats().rx_active_unknown == 2);
    }
}

#[test]
fn a_handler_that_does_not_reply_or_may_not() {
    let mut world = World::pair(&[]);
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let ours = outcomes.clone();
    let handler = move |context: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
        if message.arguments[0] > 0 {
            let too_many = context.reply(&[0; 4], &[]);
            ours.lock().expect("no panic").push((too_many, context.reply(&[message.arguments[0]], &[])));
        }
    };
    world.workers[1].register_handler("sum", Box::new(handler)).expect("free");
    let request = ask(&mut world, 0, 1, &[0], &[]);
    let done = world.wait(0, request).expect("a reply all the same");
    assert_eq!((done.data, done.len), (None, 0));
    world.workers[0].send_active(1.into(), HandlerId::of("sum"), &[5], &[]).expect("accepted");
    let request = ask(&mut world, 0, 1, &[6], &[]);
    assert_eq!(world.wait(0, request).expect("a reply").data, Some(6));
    let outcomes = outcomes.lock().expect("no panic");
    let none = Err(ReplyError::NoRequest);
    assert_eq!(outcomes[..], [(none, none), (Err(ReplyError::Arguments(4)), Ok(()))]);
    let taken = world.workers[1].register_handler("sum", Box::new(|_, _| {}));
    assert!(matches!(taken, Err(CallError::HandlerTaken(name)) if name == "sum"));
}

/// Both ends ask each other as fast as they may, and both answer with as much as there may be.
#[test]
fn requests_and_long_replies_both_ways_do_not_deadlock_however_few_credits_there_are() {
    for settings in [&[("credits", "3")][..], &[("faults", FAULTS)], &[("receive_queues", "S,8192,16,8")]] {
        let mut world = World::pair(settings);
        (0..2).for_each(|who| sum(&mut world, who));
        let (mut open, mut left, mut over) = ([Vec::new(), Vec::new()], [600; 2], 0);
        let payload = pattern(3000, 1);
        while over < 1200 {
            for who in 0..2 {
                while left[who] > 0 {
                    match world.workers[who].request_active(
                        (1 - who).into(),
                        HandlerId::of("sum"),
                        &[left[who]],
                        &payload,
                    ) {
                        Ok(request) => open[who].push((request, left[who])),
                        Err(CallError::TooMany(most)) => {
                            assert!(most >= 256);
                            break;
                        }
                        Err(other) => panic!("{other}"),
                    }
                    left[who] -= 1;
                }
                let (worker, before) = (&mut world.workers[who], open[who].len());
                open[who].retain(|&(request, argument)| match worker.test(request) {
                    None => true,
                    Some(outcome) => {
                        // A dedicated worker's engine refuses what is beyond the window.
                        let refused = |error: &OpError| matches!(error, OpError::Refused(_));
                        if let Err(error) = &outcome {
                            assert!(worker.is_dedicated() && refused(error), "{error}");
                        } else {
                            let done = outcome.expect("just so");
                            assert_eq!((done.data, done.len), (Some(argument), payload.len()));
                        }
                        false
                    }
                });
                over += before - open[who].len();
            }
            world.steps(10);
        }
        for worker in &world.workers {
            worker.inside().check_invariants().expect("sound");
        }
    }
}

/// A flood of messages without replies waits at its sender, to a limit, and all of it runs.
#[test]
fn a_flood_waits_at_its_sender_and_loses_nothing() {
    let mut world = World::pair(&[("credits", "3")]);
    let log = note(&mut world, 1, "note");
    let mut sent = 0_u64;
    while sent < 40_000 {
        match world.workers[0].send_active(1.into(), HandlerId::of("note"), &[sent], &[]) {
            Ok(()) => sent += 1,
            Err(CallError::TooMany(_)) => world.steps(100),
            Err(other) => panic!("{other}"),
        }
    }
    world.until("all have run", |_| log.lock().expect("no panic").len() == 40_000);
    let mut numbers: Vec<_> = log.lock().expect("no panic").iter().map(|(_, arguments, _)| arguments[0]).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..40_000));
}

#[test]
fn a_long_message_runs_when_its_bytes_are_there() {
    for (settings, to) in [(&[("faults", FAULTS)][..], 1), (&[("rdma", "off"), ("faults", FAULTS)], 1), (&[], 0)] {
        let mut world = World::pair(settings);
        let segment = world.workers[to].buffer(100_000).expect("memory");
        let segment = world.workers[to].expose(segment).expect("a key is left");
        let other = world.workers[to].buffer(10).expect("memory");
        let other = world.workers[to].expose(other).expect("a key is left");
        let (log, theirs) = (Arc::new(Mutex::new(Vec::new())), segment.key());
        let ours = log.clone();
        let handler = move |context: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
            let written = message.written.expect("a long one");
            assert_eq!(written.offset_in(other), None);
            let offset = written.offset_in(segment).expect("it is there");
            let mut bytes = vec![0; written.len as usize];
            context.read_segment(segment, offset, &mut bytes).expect("it is there");
            context.write_segment(segment, offset, &[0xee]).expect("it is there");
            ours.lock().expect("no panic").push((message.arguments.to_vec(), offset, bytes));
        };
        world.workers[to].register_handler("look", Box::new(handler)).expect("free");
        for (round, len) in [0, 1, 5000, 50_000].into_iter().enumerate() {
            let bytes = pattern(len, round);
            let mut buffer = world.workers[0].buffer(len).expect("memory");
            buffer.copy_from_slice(&bytes);
            let sent =
                world.workers[0].send_active_long(to.into(), HandlerId::of("look"), 8, buffer, theirs.at(7 + round));
            let done = world.wait(0, sent.expect("accepted")).expect("it arrives");
            assert!(done.buffer[..] == bytes[..]);
            world.until("it has run", |_| log.lock().expect("no panic").len() > round);
            assert_eq!(log.lock().expect("no panic")[round], (vec![8], 7 + round, bytes));
        }
    }
}

#[test]
fn requests_end_with_their_peer_and_others_go_on() {
    let settings: &[(&str, &str)] = &[("retry_limit", "4"), ("ack_timeout_us", "100")];
    let mut world = World::of(&[settings; 3]);
    (0..3).for_each(|who| sum(&mut world, who));
    world.connect_all();
    world.cut(2);
    let open: Vec<_> = (0..256).map(|round| ask(&mut world, 0, 2, &[round], &[])).collect();
    let other = ask(&mut world, 0, 1, &[2, 3], &[]);
    assert_eq!(world.wait(0, other).expect("a reply").data, Some(5));
    for request in open {
        assert!(matches!(world.wait(0, request), Err(OpError::PeerGone { peer, .. }) if peer == 2));
    }
    world.workers[0].inside().check_invariants().expect("sound");
}
