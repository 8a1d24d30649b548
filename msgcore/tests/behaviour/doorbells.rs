//! Short messages that wait for company leave with the next call that waits, asks or makes progress, though the sender makes none
//! after that.

use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::{Request, SendOptions, Tag};
use roci_testkit::World as _;

use super::common::World;

/// More than go together.
const MESSAGES: u64 = 20;
/// How long messages are that share packets, and how many of these have left before anything is called: the first at once, and then
/// two batches, or none of a packet that is not full.
const CASES: [(&str, u64); 2] = [("0", 17), ("8", 1)];

/// Two workers that are connected and have nothing to do, with messages that share packets up to this length.
fn quiet_pair(coalesce_threshold: &str) -> World {
    let mut pair = World::pair(&[("coalesce_threshold", coalesce_threshold)]);
    pair.connect_all();
    pair.steps(1_000);
    pair
}

fn inject(pair: &mut World) {
    for tag in 0..MESSAGES {
        pair.workers[0].inject(1.into(), Tag::new(tag), &[7; 8], SendOptions::default()).expect("accepted");
    }
}

/// Messages that have come to rank 1 though rank 0 does nothing.
fn arrived(pair: &mut World) -> u64 {
    (0..1_000).for_each(|_| _ = pair.workers[1].progress());
    pair.workers[1].stats().rx_unexpected
}

#[test]
fn whatever_a_sender_calls_next_has_the_last_of_its_messages_leave() {
    type Call = fn(&mut World);
    let calls: [(&str, Call); 5] = [
        ("ring_doorbell", |pair| pair.workers[0].ring_doorbell()),
        ("progress", |pair| _ = pair.workers[0].progress()),
        ("wait_completion", |pair| assert!(pair.workers[0].wait_completion().is_err(), "none is to come")),
        ("test", |pair| {
            let receive = pair.recv(0, Tag::new(0), 8);
            assert!(pair.workers[0].test(receive).is_none());
        }),
        ("wait", |pair| {
            // It is over already: no progress is made for it.
            let send = pair.send(0, 99, &[]);
            pair.workers[0].wait(send).expect("it is sent");
        }),
    ];
    for ((coalesce_threshold, left_at_once), (name, call)) in
        CASES.into_iter().flat_map(|case| calls.map(|call| (case, call)))
    {
        let mut pair = quiet_pair(coalesce_threshold);
        inject(&mut pair);
        assert_eq!(arrived(&mut pair), left_at_once, "before {name}");
        call(&mut pair);
        assert_eq!(arrived(&mut pair), MESSAGES + u64::from(name == "wait"), "after {name}");
    }
}

/// A program keeps a window of sends open, and asks for the oldest. Each is over at once; only what it sees to be over must have left.
#[test]
fn who_asks_for_a_send_that_has_left_does_not_ring_and_who_asks_for_one_that_waits_does() {
    type End = fn(&mut World, Request);
    let ends: [(&str, End); 3] = [
        ("wait", |pair, send| _ = pair.workers[0].wait(send).expect("sent")),
        ("test", |pair, send| _ = pair.workers[0].test(send).expect("it is over").expect("sent")),
        ("poll_completion", |pair, send| {
            pair.workers[0].queue_completion(send, 3).expect("it is there");
            assert_eq!(pair.workers[0].poll_completion().expect("it is over").context, 3);
        }),
    ];
    for ((coalesce_threshold, left_at_once), (name, end)) in
        CASES.into_iter().flat_map(|case| ends.map(|end| (case, end)))
    {
        let mut pair = quiet_pair(coalesce_threshold);
        let sends: Vec<_> = (0..MESSAGES).map(|tag| pair.send(0, tag, &[7; 8])).collect();
        let (left, waiting) = sends.split_at(left_at_once as usize);
        for &send in left {
            end(&mut pair, send);
        }
        assert_eq!(arrived(&mut pair), left_at_once, "{name} of what has left");
        end(&mut pair, waiting[0]);
        assert_eq!(arrived(&mut pair), MESSAGES, "{name} of what waits");
    }
}

/// As for who writes to a socket.
#[test]
fn what_is_put_to_a_stream_has_left_when_the_call_returns() {
    let mut pair = quiet_pair("8");
    pair.find("both ends are open", |pair| {
        let mut is_open = |who: usize| pair.workers[who].stream(1 - who).expect("it opens").is_open();
        ([is_open(0), is_open(1)] == [Ok(true), Ok(true)]).then_some(())
    });
    pair.steps(1_000);
    inject(&mut pair);
    for mark in 0..4 {
        assert_eq!(pair.workers[0].stream(1).expect("it is open").put(&[mark]).expect("it is there"), 1);
    }
    let (mut got, mut bytes) = (0, [0; 4]);
    for _ in 0..1_000 {
        got += pair.workers[1].stream(0).expect("it is open").get(&mut bytes[got..]).expect("it is there");
    }
    assert_eq!((got, bytes), (4, [0, 1, 2, 3]));
}

/// What a worker sends while it makes progress has left when that is done.
#[test]
fn replies_leave_with_the_progress_that_ran_their_handlers() {
    let mut pair = quiet_pair("8");
    let handler = |context: &mut HandlerContext<'_>, _: ActiveMessage<'_>| context.reply(&[7], &[]).expect("a request");
    pair.workers[0].register_handler("seven", Box::new(handler)).expect("free");
    let seven = HandlerId::of("seven");
    let ask = |_| pair.workers[1].request_active(0.into(), seven, &[], &[]).expect("accepted");
    let requests: Vec<_> = (0..MESSAGES).map(ask).collect();
    pair.workers[1].ring_doorbell();
    pair.workers[0].progress();
    arrived(&mut pair);
    let replies = requests.iter().filter(|request| pair.workers[1].test(**request).is_some()).count();
    assert_eq!(replies as u64, MESSAGES);
}
