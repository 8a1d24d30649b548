//! Acknowledgements of messages that do not ask for one (without AckReq): when they are sent.

use roci_driver::link::sim::NetConfig;
use roci_driver::{Dialect, QpParams, SendWr};
use roci_testkit::World;

use crate::common::Wire;

/// Well below the sender's timeout, and well above what the engine lets an acknowledgement wait.
const LONG_NS: u64 = 180_000;

/// Between two polls: so many of them that find nothing fit in [`LONG_NS`] that only time makes one due.
const STEP_NS: u64 = 5_000;

/// Two ends that know each other, with a few receives at the second; nothing waits for an acknowledgement.
fn wire() -> Wire {
    wire_with_room(8)
}

/// The same, with receives of this length.
fn wire_with_room(len: usize) -> Wire {
    let params = QpParams { dialect: Dialect::Rocinante, end_to_end_credits: false, ..QpParams::default() };
    let mut wire = Wire::over(NetConfig::default(), None, [params.clone(), params]);
    for mark in [100, 101] {
        wire.post_recv(1, 8);
        send(&mut wire, mark, true);
        assert_eq!(wire.wait(1).buffer[0], mark);
        assert_eq!(wire.wait(0).wr_id, mark.into());
    }
    (0..40).for_each(|_| wire.post_recv(1, len));
    wire
}

fn send(wire: &mut Wire, mark: u8, ack_req: bool) {
    let payload = wire.buffer(0, &[mark; 8]);
    wire.post(0, SendWr::send(mark.into(), payload).with_ack_req(ack_req));
}

/// Lets both ends work for so long.
fn pass(wire: &mut Wire, ns: u64) {
    let end = wire.clock.now() + ns;
    while wire.clock.now() < end {
        wire.run();
        wire.clock.advance(STEP_NS);
    }
    wire.run();
}

/// The messages that have arrived, and those that are acknowledged.
fn arrived_and_acknowledged(wire: &mut Wire) -> [Vec<u8>; 2] {
    [1, 0].map(|who| {
        let end = &mut wire.ends[who];
        std::iter::from_fn(|| end.engine.poll_cq(end.cq)).map(|done| done.buffer[0]).collect()
    })
}

fn acks_sent(wire: &Wire) -> u64 {
    wire.ends[1].engine.stats().queue_pairs.tx_acks
}

#[test]
fn who_does_not_ask_is_acknowledged_after_a_while_once_for_all() {
    let mut wire = wire();
    let before = acks_sent(&wire);
    (1..=3).for_each(|mark| send(&mut wire, mark, false));
    pass(&mut wire, 10_000);
    assert_eq!(arrived_and_acknowledged(&mut wire), [vec![1, 2, 3], vec![]]);
    pass(&mut wire, LONG_NS);
    assert_eq!(arrived_and_acknowledged(&mut wire), [vec![], vec![1, 2, 3]]);
    assert_eq!(acks_sent(&wire) - before, 1);
    assert_eq!(wire.ends[0].engine.stats().queue_pairs.retransmitted_packets, 0);
}

#[test]
fn who_asks_is_acknowledged_at_once_with_all_before_it() {
    let mut wire = wire();
    let before = acks_sent(&wire);
    send(&mut wire, 1, false);
    pass(&mut wire, 5_000);
    send(&mut wire, 2, true);
    pass(&mut wire, 10_000);
    assert_eq!(arrived_and_acknowledged(&mut wire), [vec![1, 2], vec![1, 2]]);
    pass(&mut wire, LONG_NS);
    assert_eq!(acks_sent(&wire) - before, 1, "what has waited was acknowledged with it");
}

#[test]
fn what_comes_after_one_that_asked_waits_as_long() {
    let mut wire = wire();
    send(&mut wire, 1, false);
    pass(&mut wire, 90_000);
    send(&mut wire, 2, true);
    pass(&mut wire, 10_000);
    send(&mut wire, 3, false);
    pass(&mut wire, 90_000);
    assert_eq!(arrived_and_acknowledged(&mut wire), [vec![1, 2, 3], vec![1, 2]]);
    let before = acks_sent(&wire);
    pass(&mut wire, LONG_NS - 90_000);
    assert_eq!(arrived_and_acknowledged(&mut wire), [vec![], vec![3]]);
    assert_eq!(acks_sent(&wire) - before, 1);
}

#[test]
fn sixteen_that_do_not_ask_are_acknowledged_at_once() {
    let mut wire = wire();
    (1..=16).for_each(|mark| send(&mut wire, mark, false));
    pass(&mut wire, 10_000);
    let all = (1..=16).collect::<Vec<_>>();
    assert_eq!(arrived_and_acknowledged(&mut wire), [all.clone(), all]);
}

#[test]
fn who_finds_nothing_for_long_or_says_that_it_rests_acknowledges() {
    for rests in [false, true] {
        let mut wire = wire();
        send(&mut wire, 1, false);
        pass(&mut wire, 5_000);
        assert_eq!(arrived_and_acknowledged(&mut wire), [vec![1], vec![]]);
        if rests {
            wire.ends[1].engine.acknowledge_now();
        } else {
            (0..64).for_each(|_| wire.run());
        }
        pass(&mut wire, 5_000);
        assert_eq!(arrived_and_acknowledged(&mut wire)[1], [1], "far earlier than by time");
    }
}

/// A message of several packets is not taken by the fast path.
#[test]
fn a_long_message_that_does_not_ask_is_acknowledged_after_a_while() {
    let long = vec![9; 3_000];
    let mut wire = wire_with_room(long.len());
    let payload = wire.buffer(0, &long);
    wire.post(0, SendWr::send(9, payload).with_ack_req(false));
    pass(&mut wire, 12_000);
    assert_eq!(arrived_and_acknowledged(&mut wire), [vec![9], vec![]]);
    pass(&mut wire, LONG_NS);
    assert_eq!(arrived_and_acknowledged(&mut wire)[1], [9]);
}

#[test]
fn who_leaves_acknowledges_what_it_has_taken() {
    let mut wire = wire();
    send(&mut wire, 1, false);
    pass(&mut wire, 5_000);
    let far = &mut wire.ends[1];
    far.engine.destroy_qp(far.qp);
    pass(&mut wire, LONG_NS);
    assert_eq!(arrived_and_acknowledged(&mut wire)[1], [1]);
}
