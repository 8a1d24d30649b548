//! What the send queue takes, and when its packets leave.

use super::*;
use crate::rc::congestion::{Algorithm, CongestionControl as _};

fn selective(config: &mut Config) {
    config.dialect = Dialect::Rocinante;
}

/// The PSNs of what is sent at `now`.
fn sent_at(now: Nanos, qp: &mut RcQueuePair<u32>, script: &mut Script) -> Vec<u32> {
    script.sent.clear();
    let _ = qp.pump_requests(now, &mut unlimited(), script);
    script.sent.iter().map(|(headers, _)| headers.bth.psn.get()).collect()
}

fn reason(qp: &mut RcQueuePair<u32>, op: SendOp, len: u32) -> Option<RcPostError> {
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
        (write, 1 << 31, (1 << 31) + 1, RcPostError::TooLong),
        (atomic, 8, 4, RcPostError::BufferLength(8)),
        (bind, 0, 8, RcPostError::BufferLength(0)),
        (SendOp::LocalInvalidate { rkey: KEY }, 0, 1, RcPostError::BufferLength(0)),
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
    assert_eq!(reason(&mut qp, op, 0), Some(RcPostError::QueueFull));
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
    assert_eq!(sent_at(0, &mut qp, &mut script), []);
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
fn an_rnr_nak_that_arrives_twice_spends_one_retry() {
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
    let (mut now, spacing) = (0, (MTU + quantum::HEADER_BYTES) as u64);
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

#[test]
fn a_read_waits_for_room_for_the_answers_to_a_whole_part() {
    let narrow = |config: &mut Config| {
        selective(config);
        config.window = 16;
    };
    let (mut qp, mut script) = (connected(narrow), Script::default());
    send(&mut qp, 1, 7 * MTU);
    read(&mut qp, 2, 16 * MTU);
    pump(&mut qp, &mut script);
    // A part is six packets. There is room for nine, then for three, for five, and for six.
    assert_eq!(script.opcodes()[7..], [(Opcode::RcReadRequest, 107)]);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    assert_eq!(sent_at(0, &mut qp, &mut script), []);
    feed(&mut qp, &mut script, answer(102, ACK), 0);
    assert_eq!(sent_at(0, &mut qp, &mut script), [113]);
}

#[test]
fn a_fence_holds_back_the_beginning_of_a_read_and_not_its_parts() {
    let (mut qp, mut script) = (connected(selective), Script::default());
    read(&mut qp, 1, 1);
    let op = SendOp::Read { remote: Remote { va: 0, rkey: KEY } };
    let len = 2 * 48 * MTU as u32;
    qp.post_send(SendRequest { op, len, fence: true, ..rejected_send() }).expect("the queue has room");
    assert_eq!(sent_at(0, &mut qp, &mut script), [100]);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseOnly, 100), 1);
    assert_eq!(sent_at(0, &mut qp, &mut script), [101, 149]);
}

#[test]
fn acknowledgements_are_asked_for_four_times_a_window_but_not_more_rarely_than_every_32_packets() {
    for (window, asks) in [
        (4, vec![100, 101, 102, 103]),
        (9, vec![101, 103, 105, 107, 108]),
        (128, vec![127, 159, 191, 223, 227]),
        (150, vec![127, 159, 191, 223, 229]),
    ] {
        let (mut qp, mut script) = (connected(|config| config.window = window), Script::default());
        send(&mut qp, 1, 130 * MTU);
        pump(&mut qp, &mut script);
        let asking = script.sent.iter().filter(|(headers, _)| headers.bth.ack_req);
        assert_eq!(asking.map(|(headers, _)| headers.bth.psn.get()).collect::<Vec<_>>(), asks, "window {window}");
    }
}

#[test]
fn an_acknowledgement_is_asked_for_once_enough_time_has_passed() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 9 * MTU);
    for (now, asks) in [(124_999, false), (125_000, true), (249_999, false), (250_000, true)] {
        script.room = Some(1);
        sent_at(now, &mut qp, &mut script);
        assert_eq!(script.sent[0].0.bth.ack_req, asks, "at {now}");
    }
}

#[test]
fn requests_count_against_the_quantum_with_their_headers_and_their_data() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, MTU);
    read(&mut qp, 2, 4 * MTU);
    send(&mut qp, 3, MTU);
    let spent = (3 * quantum::HEADER_BYTES + 2 * MTU).cast_signed();
    let mut left = Quantum::new(spent - 1);
    qp.pump_requests(0, &mut left, &mut script).expect("the link takes all");
    assert_eq!((script.sent.len(), left.left(), left.is_left()), (3, -1, false));
    send(&mut qp, 4, MTU);
    for (quantum, packets) in [(-1, 3), (0, 3), (1, 4)] {
        qp.pump_requests(0, &mut Quantum::new(quantum), &mut script).expect("the link takes all");
        assert_eq!(script.sent.len(), packets);
    }
    assert_eq!(qp.stats().tx_requests, 4);
}

#[test]
fn of_two_that_share_a_quantum_the_second_has_what_the_first_leaves() {
    for (whole, half) in [(7, 4), (8, 4), (-7, -4), (0, 0)] {
        let whole = Quantum::new(whole);
        assert_eq!((whole.half(), whole.half().left()), (Quantum::new(half), half));
        assert_eq!(whole.after_half(Quantum::new(-3)).left(), whole.left() - half - 3);
        assert_eq!(whole.after_half(whole.half()), whole, "the first has sent nothing");
    }
}

#[test]
fn the_answers_to_a_read_are_spaced_as_a_write_is_where_both_ends_listen_to_the_delay() {
    use Algorithm::{Dcqcn, Delay};
    let remote = Remote { va: 0, rkey: KEY };
    let (read, write) = (SendOp::Read { remote }, SendOp::Write { remote, imm: None });
    for (dialect, congestion, is_equal) in
        [(Dialect::Rocinante, Delay, true), (Dialect::Rocinante, Dcqcn, false), (Dialect::Verbs, Delay, false)]
    {
        let spacing = |op| {
            let change = |config: &mut Config| {
                (config.dialect, config.congestion, config.mtu) = (dialect, congestion, Mtu::Mtu4096);
                config.link_rate = 8_000_000_000;
            };
            let (mut qp, mut script) = (connected(change), Script::default());
            post(&mut qp, 1, op, 4096);
            send(&mut qp, 2, 0);
            let mut quantum = Quantum::new(1);
            let _ = qp.pump_requests(0, &mut quantum, &mut script);
            let first = qp.requester.congestion.release_at();
            if dialect == Dialect::Rocinante {
                // A repair is spaced likewise.
                let _ = qp.pump_requests(first, &mut unlimited(), &mut script);
                let before = qp.requester.congestion.release_at();
                feed(&mut qp, &mut script, answer(100, Syndrome::Nak(NakCode::PsnSequence)), 0);
                let _ = qp.pump_requests(before, &mut Quantum::new(1), &mut script);
                assert_eq!(script.opcodes().last().map(|&(_, psn)| psn), Some(100));
                assert_eq!(qp.requester.congestion.release_at() - before, first, "{op:?}");
            }
            first
        };
        let (of_read, of_write) = (spacing(read), spacing(write));
        assert!(of_write > 0);
        assert_eq!(of_read == of_write, is_equal, "{dialect:?} {congestion:?}: {of_read} and {of_write}");
    }
}

#[test]
fn a_timeout_between_two_ends_of_ours_follows_the_round_trip() {
    const MS: Nanos = 1_000_000;
    let patient = |config: &mut Config| {
        selective(config);
        (config.ack_timeout_ns, config.ack_timeout_max_ns, config.retry_limit) = (100 * MS, 100 * MS, 0);
    };
    let (mut qp, mut script) = (connected(patient), Script::default());
    // As RFC 6298 has it: the round trip and four times its variation, each of them smoothed.
    let rounds = [(100 * MS, MS), (3 * MS, 2 * MS), (3_625_000, 3_625_000 + MS), (3_625_000, MS)];
    for (round, (timeout, took)) in (0..).zip(rounds) {
        let now = 200 * MS * u64::from(round);
        send(&mut qp, round.into(), 1);
        assert_eq!(sent_at(now, &mut qp, &mut script), [100 + round]);
        assert_eq!(qp.deadline(), Some(now + timeout), "round {round}");
        if took > timeout {
            // The packet is sent again, and it is unknown which copy is answered.
            qp.on_timeout(now + timeout - 1, &mut script);
            assert_eq!(sent_at(now + timeout - 1, &mut qp, &mut script), []);
            qp.on_timeout(now + timeout, &mut script);
            assert_eq!(sent_at(now + timeout, &mut qp, &mut script), [100 + round]);
        }
        let headers = answer(100 + round, ACK);
        qp.on_packet(now + took, &Packet { headers, payload: &[] }, &mut script);
    }
    assert_eq!((qp.stats().tail_loss_probes, qp.stats().local_ack_timeout_err), (1, 0));
    // What is shorter than the connection's timeout costs no retry, of which there is none.
    send(&mut qp, 9, 1);
    let mut now = 1000 * MS;
    for _ in 0..6 {
        assert_eq!(qp.state(), State::Rts);
        sent_at(now, &mut qp, &mut script);
        now = qp.deadline().expect("something is outstanding");
        qp.on_timeout(now, &mut script);
    }
    assert_eq!((qp.stats().tail_loss_probes, qp.stats().local_ack_timeout_err), (6, 1));
    assert_eq!((qp.stats().retry_exceeded_err, script.done.len()), (1, 5));
}

#[test]
fn an_idle_queue_pair_is_not_pumped() {
    for change in [|_: &mut Config| (), selective] {
        let (mut qp, mut script) = (connected(change), Script::default());
        assert!(!qp.wants_pump(), "nothing is posted");
        (1..=2).for_each(|wr_id| send(&mut qp, wr_id, 1));
        assert!(qp.wants_pump());
        pump(&mut qp, &mut script);
        assert!(!qp.wants_pump(), "it waits for an answer, and the timer runs");
        feed(&mut qp, &mut script, answer(100, Syndrome::Nak(NakCode::PsnSequence)), 0);
        assert!(qp.wants_pump(), "a packet is missing");
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, answer(101, ACK), 0);
        assert!(!qp.wants_pump(), "all is done");
        qp.modify(State::Sqd).expect("legal");
        assert!(qp.wants_pump(), "it has to hear that it drains");
        qp.modify(State::Rts).expect("legal");
        qp.fail(WcStatus::LocQpOpErr, &mut script);
        assert!(qp.wants_pump(), "what is posted has to be flushed");
    }
}

#[test]
fn who_polls_hears_what_was_sent_and_who_receives_is_woken_by_the_last_packet() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    let op = SendOp::Send { imm: Some(3) };
    for wr_id in 1..=2 {
        let asked = SendRequest { wr_id, op, buffer: 4, len: MTU as u32 + 1, solicited: true, ..rejected_send() };
        qp.post_send(asked).expect("the queue has room");
    }
    send(&mut qp, 3, 0);
    pump(&mut qp, &mut script);
    let flags: Vec<_> = script.sent.iter().map(|(headers, _)| (headers.bth.solicited, headers.ext.imm)).collect();
    let (first, last) = ((false, None), (true, Some(ImmDt(3))));
    assert_eq!(flags, [first, last, first, last, (false, None)]);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    qp.fail(WcStatus::RetryExcErr, &mut script);
    let done = |status: WcStatus, wr_id| RcCompletion {
        wr_id,
        status,
        operation: Operation::Send,
        len: MTU as u32 + 1,
        imm: None,
        invalidated: None,
        solicited: !status.is_success(),
        signaled: true,
        buffer: 4,
    };
    assert_eq!(script.done[..2], [done(WcStatus::Success, 1), done(WcStatus::RetryExcErr, 2)]);
}
