//! What the send queue takes, and when its packets leave.

use super::*;
use crate::rc::congestion::{Algorithm, CongestionControl as _};

fn selective(config: &mut Config) {
    config.dialect = Dialect::Rocinante;
}

/// The PSNs of what is sent at `now`.
fn sent_at(now: Nanos, qp: &mut QueuePair<u32>, script: &mut Script) -> Vec<u32> {
    script.sent.clear();
    let _ = qp.pump_requests(now, &mut unlimited(), script);
    script.sent.iter().map(|(headers, _)| headers.bth.psn.get()).collect()
}

fn reason(qp: &mut QueuePair<u32>, op: SendOp, len: u32) -> Option<PostError> {
    Some(qp.post_send(SendRequest { op, len, ..rejected_send() }).err()?.reason)
}

#[test]
fn only_lengths_that_the_operation_can_have_are_taken() {
    let mut qp = connected(|config| config.mtu = Mtu::Mtu4096);
    let remote = Remote { va: 0, rkey: KEY };
    let write = SendOp::Write { remote, imm: None };
    let atomic = SendOp::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } };
    let bind = SendOp::BindWindow { window: KEY, region: KEY, va: 0, len: 8, access: Access::REMOTE_WRITE };
    for (op, right, wrong, error) in [
        (write, 1 << 31, (1 << 31) + 1, PostError::TooLong),
        (atomic, 8, 4, PostError::BufferLength(8)),
        (bind, 0, 8, PostError::BufferLength(0)),
        (SendOp::LocalInvalidate { rkey: KEY }, 0, 1, PostError::BufferLength(0)),
    ] {
        assert_eq!(reason(&mut qp, op, wrong), Some(error), "{op:?}");
        assert_eq!(reason(&mut qp, op, right), None, "{op:?}");
    }
    assert_eq!(qp.sends_outstanding(), 4);
}

#[test]
fn the_psns_of_what_is_done_are_free_again() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    let op = SendOp::Send { imm: None };
    let most = (1 << 31) - MTU as u32;
    assert_eq!(reason(&mut qp, op, most), None);
    assert_eq!(reason(&mut qp, op, 0), Some(PostError::QueueFull));
    qp.fail(WcStatus::LocQpOpErr, &mut script);
    assert_eq!(qp.sends_outstanding(), 0);
    assert_eq!(reason(&mut qp, op, most), None);
    assert_eq!(qp.sends_outstanding(), 1);
}

#[test]
fn while_the_peer_has_no_receive_nothing_is_sent_and_it_is_asked_to_repeat_nothing() {
    let (mut qp, mut script) = (connected(selective), Script::default());
    read(&mut qp, 1, 1);
    send(&mut qp, 2, 1);
    assert_eq!(sent_at(0, &mut qp, &mut script), [100, 101]);
    feed(&mut qp, &mut script, answer(101, Syndrome::Rnr { timer: 1 }), 0);
    send(&mut qp, 3, 1);
    assert_eq!(sent_at(0, &mut qp, &mut script), []);
    // Neither the answer to the READ nor the same word again makes the peer ready.
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseOnly, 100), 1);
    feed(&mut qp, &mut script, answer(101, Syndrome::Rnr { timer: 1 }), 0);
    assert_eq!(sent_at(0, &mut qp, &mut script), []);
    assert_eq!((qp.deadline(), qp.stats().rnr_nak), (Some(10_000), 2));
    qp.on_timeout(9_999, &mut script);
    assert_eq!(sent_at(9_999, &mut qp, &mut script), []);
    qp.on_timeout(10_000, &mut script);
    assert_eq!(sent_at(10_000, &mut qp, &mut script), [101, 102]);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn an_rnr_nak_that_is_heard_twice_spends_one_retry() {
    for change in [|_: &mut Config| (), selective] {
        let (mut qp, mut script) = (connected(change), Script::default());
        send(&mut qp, 1, 1);
        pump(&mut qp, &mut script);
        (0..3).for_each(|_| feed(&mut qp, &mut script, answer(100, Syndrome::Rnr { timer: 1 }), 0));
        assert_eq!((qp.state(), qp.stats().rnr_nak), (State::Rts, 3));
        assert!(script.done.is_empty(), "one retry was granted");
    }
}

#[test]
fn an_acknowledgement_ends_the_wait_for_a_receive() {
    for change in [|_: &mut Config| (), selective] {
        let (mut qp, mut script) = (connected(change), Script::default());
        (1..=2).for_each(|wr_id| send(&mut qp, wr_id, 1));
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, answer(100, Syndrome::Rnr { timer: 1 }), 0);
        // A second copy of it has found a receive.
        feed(&mut qp, &mut script, answer(101, ACK), 0);
        assert_eq!((qp.deadline(), script.done.len()), (None, 2));
        send(&mut qp, 3, 1);
        assert_eq!(sent_at(0, &mut qp, &mut script), [102]);
    }
}

#[test]
fn until_a_silent_peer_speaks_nothing_is_sent_but_the_probe() {
    let (mut qp, mut script) = (connected(selective), Script::default());
    read(&mut qp, 1, 1);
    send(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    assert_eq!(sent_at(0, &mut qp, &mut script), [100], "its answer is missing");
    send(&mut qp, 3, 1);
    qp.on_timeout(1000, &mut script);
    assert_eq!(sent_at(1000, &mut qp, &mut script), [101]);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    assert_eq!(sent_at(1000, &mut qp, &mut script), [100, 102]);
}

#[test]
fn without_a_timeout_the_oldest_packet_is_waited_for_for_ever() {
    for change in [|_: &mut Config| (), selective] {
        let forever = |config: &mut Config| {
            change(config);
            (config.ack_timeout_ns, config.ack_timeout_max_ns) = (0, 0);
        };
        let (mut qp, mut script) = (connected(forever), Script::default());
        send(&mut qp, 1, 1);
        pump(&mut qp, &mut script);
        assert_eq!(qp.deadline(), None);
        qp.on_timeout(1 << 40, &mut script);
        assert_eq!(sent_at(1 << 40, &mut qp, &mut script), []);
        assert_eq!(qp.stats().local_ack_timeout_err, 0);
    }
}

#[test]
fn requests_are_spaced_as_congestion_control_has_it() {
    // A nanosecond for each byte.
    let dcqcn = |config: &mut Config| {
        (config.congestion, config.link_rate) = (Algorithm::Dcqcn, 8_000_000_000);
        (config.ack_timeout_ns, config.ack_timeout_max_ns) = (1_000_000, 1_000_000);
    };
    let (mut qp, mut script) = (connected(dcqcn), Script::default());
    send(&mut qp, 1, 3 * MTU);
    let (mut now, spacing) = (0, (MTU + budget::HEADER_BYTES) as u64);
    for psn in 100..103 {
        assert!(qp.wants_pump());
        assert_eq!(sent_at(now, &mut qp, &mut script), [psn], "one at a time");
        assert_eq!(sent_at(now + spacing - 1, &mut qp, &mut script), []);
        let due = if psn < 102 { now + spacing } else { 1_000_000 };
        assert_eq!(qp.deadline(), Some(due));
        now += spacing;
        qp.on_timeout(now, &mut script);
    }
    assert!(!qp.wants_pump());
    // What has waited longer than for its turn is not held back.
    feed(&mut qp, &mut script, answer(102, ACK), 0);
    send(&mut qp, 2, 1);
    assert_eq!(sent_at(500_000, &mut qp, &mut script), [103]);
    assert_eq!(qp.deadline(), Some(1_500_000));
}

#[test]
fn one_silence_is_no_sign_of_congestion_and_two_are() {
    for change in [|_: &mut Config| (), selective] {
        let by_delay = |config: &mut Config| {
            change(config);
            config.congestion = Algorithm::Delay;
        };
        let (mut qp, mut script) = (connected(by_delay), Script::default());
        send(&mut qp, 1, 1);
        pump(&mut qp, &mut script);
        for window in [64, 32, 16] {
            qp.on_timeout(qp.deadline().expect("something is outstanding"), &mut script);
            assert_eq!(qp.requester.congestion.window(), window + 1);
        }
    }
}

#[test]
fn connections_that_fell_silent_together_do_not_speak_together() {
    const LONG: Nanos = 1 << 20;
    let extra = |sq_psn| {
        let change = |config: &mut Config| {
            config.sq_psn = Psn::new(sq_psn);
            (config.ack_timeout_ns, config.ack_timeout_max_ns) = (LONG, LONG);
        };
        let (mut qp, mut script) = (connected(change), Script::default());
        send(&mut qp, 1, 1);
        pump(&mut qp, &mut script);
        assert_eq!(qp.deadline(), Some(LONG));
        qp.on_timeout(LONG, &mut script);
        qp.deadline().expect("something is outstanding") - 2 * LONG
    };
    let extras: Vec<_> = (0..256).map(extra).collect();
    assert!(extras.iter().all(|&extra| extra < LONG / 4));
    for part in 0..4 {
        let within = extras.iter().filter(|&&extra| extra / (LONG / 16) == part).count();
        assert!((32..96).contains(&within), "{within} of 256 in part {part} of 4");
    }
}
