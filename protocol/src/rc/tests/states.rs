//! States, full queues, and what is none of ours.

use super::*;
use crate::Pkey;

#[test]
fn packets_that_the_state_or_the_partition_does_not_take_are_dropped() {
    let (mut qp, mut script) = (RcQueuePair::new(Config::default()), Script::default());
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 0), 1);
    feed(&mut qp, &mut script, answer(0, ACK), 0);
    assert_eq!(qp.stats().rx_wrong_state, 2);
    let (mut qp, mut script2) = (connected(|_| ()), Script::default());
    let mut foreign = request(Opcode::RcSendOnly, 500);
    foreign.bth.pkey = Pkey(0x1234);
    feed(&mut qp, &mut script2, foreign, 1);
    feed(&mut qp, &mut script2, request(Opcode::UcSendOnly, 500), 1);
    assert_eq!((qp.stats().rx_bad_pkey, qp.stats().rx_wrong_transport), (1, 1));
    pump(&mut qp, &mut script2);
    assert!(script2.sent.is_empty() && script.sent.is_empty());
}

#[test]
fn full_queues_and_wrong_states_hand_the_request_back() {
    let mut qp = connected(|config| (config.sq_depth, config.rq_depth) = (1, 1));
    send(&mut qp, 1, 1);
    receive(&mut qp, 1, 1);
    let again = SendRequest {
        wr_id: 2,
        op: SendOp::Send { imm: None },
        buffer: 5,
        len: 1,
        signaled: true,
        solicited: false,
        fence: false,
        ack_req: true,
    };
    let rejected = qp.post_send(again).expect_err("full");
    assert_eq!((rejected.reason, rejected.request.buffer), (RcPostError::QueueFull, 5));
    let rejected = qp.post_recv(RecvRequest { wr_id: 2, buffer: 6, len: 1 }).expect_err("full");
    assert_eq!((rejected.reason, rejected.request.buffer), (RcPostError::QueueFull, 6));
    let mut script = Script::default();
    qp.fail(WcStatus::LocQpOpErr, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::WrFlushErr), (1, WcStatus::WrFlushErr)]);
    qp.modify(State::Reset).expect("always");
    let rejected = qp.post_send(rejected_send()).expect_err("reset");
    assert_eq!(rejected.reason, RcPostError::State(State::Reset));
    let rejected = qp.post_recv(RecvRequest { wr_id: 2, buffer: 6, len: 1 }).expect_err("reset");
    assert_eq!(rejected.reason, RcPostError::State(State::Reset));
}

#[test]
fn work_posted_in_the_error_state_is_flushed_in_order() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    qp.fail(WcStatus::RetryExcErr, &mut script);
    send(&mut qp, 1, 1);
    receive(&mut qp, 2, 1);
    send(&mut qp, 3, 1);
    pump(&mut qp, &mut script);
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(script.statuses(), [(2, flushed), (1, flushed), (3, flushed)]);
    assert!(script.sent.is_empty());
}

#[test]
fn work_posted_in_the_error_state_is_flushed_when_it_fails_again() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    qp.fail(WcStatus::RetryExcErr, &mut script);
    send(&mut qp, 1, 1);
    receive(&mut qp, 2, 1);
    qp.fail(WcStatus::RetryExcErr, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)]);
}

#[test]
fn a_fault_of_ours_is_reported_to_the_peer() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    qp.fail(WcStatus::LocQpOpErr, &mut script);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::RemoteOperational), 500)));
}

#[test]
fn a_draining_send_queue_finishes_what_it_began_and_starts_nothing() {
    let (mut qp, mut script) = (connected(|config| config.window = 1), Script::default());
    send(&mut qp, 1, 2 * MTU);
    send(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    qp.modify(State::Sqd).expect("legal");
    assert!(!qp.is_drained());
    feed(&mut qp, &mut script, answer(100, ACK), 0);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    pump(&mut qp, &mut script);
    assert!(qp.is_drained());
    assert_eq!(script.opcodes(), [(Opcode::RcSendFirst, 100), (Opcode::RcSendLast, 101)]);
    qp.modify(State::Rts).expect("legal");
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes().last(), Some(&(Opcode::RcSendOnly, 102)));
}

#[test]
fn a_message_that_has_begun_is_not_drained_because_all_of_it_so_far_is_acknowledged() {
    let (mut qp, mut script) = (connected(|config| config.window = 1), Script::default());
    send(&mut qp, 1, 2 * MTU);
    pump(&mut qp, &mut script);
    qp.modify(State::Sqd).expect("legal");
    feed(&mut qp, &mut script, answer(100, ACK), 0);
    assert!(!qp.is_drained());
}

#[test]
fn reads_that_the_peer_does_not_serve_are_not_taken() {
    let mut qp = connected(|config| config.max_rd_atomic = 0);
    let op = SendOp::Read { remote: Remote { va: 0, rkey: KEY } };
    let read =
        SendRequest { wr_id: 1, op, buffer: 0, len: 8, signaled: true, solicited: false, fence: false, ack_req: true };
    assert_eq!(qp.post_send(read).expect_err("it would wait for ever").reason, RcPostError::NoFetch);
}

#[test]
fn a_draining_send_queue_repeats_what_is_lost() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    qp.modify(State::Sqd).expect("legal");
    qp.on_timeout(1000, &mut script);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendOnly, 100), (Opcode::RcSendOnly, 100)]);
}

#[test]
fn a_reset_forgets_work_and_psns_and_keeps_counters_and_attributes() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    (1..=3).for_each(|wr_id| receive(&mut qp, wr_id, 1));
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    assert_eq!((qp.receives_posted(), qp.sends_outstanding()), (2, 1));
    qp.modify(State::Reset).expect("always");
    assert_eq!((qp.receives_posted(), qp.sends_outstanding(), qp.deadline()), (0, 0, None));
    assert_eq!((qp.stats().tx_requests, qp.stats().rx_requests), (1, 1));
    assert_eq!(qp.config().dest_qpn, Qpn::new(0x99));
    assert_eq!(script.statuses(), [(1, WcStatus::Success)], "no completions");
    for state in [State::Init, State::Rtr, State::Rts] {
        qp.modify(state).expect("legal");
    }
    send(&mut qp, 2, 1);
    receive(&mut qp, 4, 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    script.sent.clear();
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcAck, 500), (Opcode::RcSendOnly, 100)]);
}

#[test]
fn a_queue_pair_that_is_not_yet_ready_to_send_takes_no_requests() {
    let mut qp = RcQueuePair::new(Config::default());
    for state in [State::Init, State::Rtr] {
        qp.modify(state).expect("legal");
        assert_eq!(qp.post_send(rejected_send()).expect_err("not yet").reason, RcPostError::State(state));
    }
}
