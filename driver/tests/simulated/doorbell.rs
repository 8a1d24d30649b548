//! When posted sends reach the device: over a wire that carries nothing before the doorbell rings.

use roci_driver::link::Link as _;
use roci_driver::{SendWr, WcStatus};

use crate::common::Wire;

/// Bytes of a send of several packets.
const LONG: usize = 10_000;

/// A wire whose far end has receives for `messages`, and has said so with an acknowledgement.
fn quiet_wire(messages: usize) -> Wire {
    let mut wire = Wire::new(None);
    // An acknowledgement promises as many as a power of two, or half as many again (IBTA 9.7.7.2).
    (0..=messages.next_power_of_two()).for_each(|_| wire.post_recv(1, LONG));
    queue(&mut wire, 1);
    wire.wait(0);
    assert_eq!(arrived(&mut wire), 1);
    wire.ends[0].engine.poll();
    wire
}

fn queue(wire: &mut Wire, messages: usize) {
    for _ in 0..messages {
        let message = wire.buffer(0, &[7; 8]);
        let end = &mut wire.ends[0];
        end.engine.queue_send(end.qp, SendWr::send(1, message)).expect("accepted");
    }
}

/// What has come to the far end, while the near one does nothing.
fn arrived(wire: &mut Wire) -> usize {
    let far = &mut wire.ends[1];
    while far.engine.poll() > 0 {}
    std::iter::from_fn(|| far.engine.poll_cq(far.cq)).count()
}

/// Bursts of the near end but the first.
fn bursts(wire: &Wire) -> u64 {
    wire.ends[0].engine.link(0).stats().tx_bursts - 1
}

#[test]
fn each_posted_send_rings() {
    let mut wire = quiet_wire(20);
    for sent in 1..=20 {
        let message = wire.buffer(0, &[7; 8]);
        wire.post(0, SendWr::send(1, message));
        assert_eq!((arrived(&mut wire), bursts(&wire)), (1, sent));
    }
}

#[test]
fn queued_sends_go_by_batches_and_the_rest_when_the_doorbell_rings() {
    let mut wire = quiet_wire(20);
    queue(&mut wire, 1);
    assert_eq!(arrived(&mut wire), 1, "a message alone does not wait");
    queue(&mut wire, 7);
    assert_eq!(arrived(&mut wire), 0);
    queue(&mut wire, 12);
    assert_eq!((arrived(&mut wire), bursts(&wire)), (16, 3));
    wire.ends[0].engine.ring_doorbell();
    assert_eq!((arrived(&mut wire), bursts(&wire)), (3, 4));
    wire.ends[0].engine.ring_doorbell();
    assert_eq!(bursts(&wire), 4, "nothing waits");
}

#[test]
fn a_poll_rings_before_it_looks_and_the_next_send_goes_at_once_again() {
    let mut wire = quiet_wire(6);
    queue(&mut wire, 5);
    assert_eq!(arrived(&mut wire), 1);
    wire.ends[0].engine.poll();
    assert_eq!(arrived(&mut wire), 4);
    queue(&mut wire, 1);
    assert_eq!(arrived(&mut wire), 1);
}

#[test]
fn a_long_send_takes_those_before_it_along() {
    let mut wire = quiet_wire(4);
    queue(&mut wire, 3);
    let long = wire.buffer(0, &[7; LONG]);
    let end = &mut wire.ends[0];
    end.engine.queue_send(end.qp, SendWr::send(2, long)).expect("accepted");
    assert_eq!(arrived(&mut wire), 4);
}

#[test]
fn an_engine_that_is_dropped_rings() {
    let mut wire = quiet_wire(5);
    queue(&mut wire, 5);
    assert_eq!(arrived(&mut wire), 1);
    let Wire { ends: [near, mut far], .. } = wire;
    drop(near);
    while far.engine.poll() > 0 {}
    assert_eq!(
        std::iter::from_fn(|| far.engine.poll_cq(far.cq)).filter(|done| done.status == WcStatus::Success).count(),
        4
    );
}
