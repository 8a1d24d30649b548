//! Atomics: executed exactly once, answered as often as asked.

use super::*;
use crate::wire::AtomicAckEth;

const ADD_5: AtomicOperation = AtomicOperation::FetchAdd { add: 5 };

fn atomic(opcode: Opcode, psn: u32, va: u64) -> Headers {
    let mut headers = request(opcode, psn);
    headers.ext.atomic = Some(AtomicEth { va, rkey: KEY, swap_or_add: 5, compare: 0 });
    headers
}

fn fetch_add(psn: u32) -> Headers {
    atomic(Opcode::RcFetchAdd, psn, 8)
}

fn result(psn: u32, original: u64) -> Headers {
    let mut headers = answer(psn, ACK);
    headers.bth.opcode = Opcode::RcAtomicAck;
    headers.ext.atomic_ack = Some(AtomicAckEth { original });
    headers
}

fn post_add(qp: &mut RcQueuePair<u32>, wr_id: u64) {
    post(qp, wr_id, SendOp::Atomic { remote: Remote { va: 8, rkey: KEY }, operation: ADD_5 }, 8);
}

fn results(script: &Script) -> Vec<(u32, u64)> {
    let sent = script.sent.iter().map(|(headers, _)| headers);
    sent.filter_map(|headers| Some((headers.bth.psn.get(), headers.ext.atomic_ack?.original))).collect()
}

#[test]
fn the_value_before_comes_back_and_no_other_acknowledgement() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, fetch_add(500), 0);
    feed(&mut qp, &mut script, atomic(Opcode::RcCompareSwap, 501, 8), 0);
    pump(&mut qp, &mut script);
    assert_eq!(results(&script), [(500, 0), (501, 5)]);
    assert_eq!((script.word, script.sent.len()), (5, 2), "the comparison failed");
}

#[test]
fn a_duplicate_is_answered_with_the_stored_result_and_not_executed() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    for psn in [500, 501, 500, 501, 500] {
        feed(&mut qp, &mut script, fetch_add(psn), 0);
        pump(&mut qp, &mut script);
    }
    assert_eq!(results(&script), [(500, 0), (501, 5), (500, 0), (501, 5), (500, 0)]);
    assert_eq!((script.word, script.atomics), (10, 2));
}

#[test]
fn a_duplicate_that_differs_from_what_was_executed_is_dropped() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, fetch_add(500), 0);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, atomic(Opcode::RcFetchAdd, 500, 16), 0);
    feed(&mut qp, &mut script, atomic(Opcode::RcCompareSwap, 500, 8), 0);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 8), 0);
    pump(&mut qp, &mut script);
    assert_eq!((script.sent.len(), qp.stats().duplicate_dropped), (1, 3));
}

#[test]
fn a_forgotten_duplicate_is_dropped() {
    let (mut qp, mut script) = (connected(|config| config.max_dest_rd_atomic = 1), Script::default());
    for psn in [500, 501, 500] {
        feed(&mut qp, &mut script, fetch_add(psn), 0);
        pump(&mut qp, &mut script);
    }
    assert_eq!((results(&script).len(), script.atomics, qp.stats().duplicate_dropped), (2, 2, 1));
}

#[test]
fn more_atomics_than_granted_are_refused_before_they_are_executed() {
    let (mut qp, mut script) = (connected(|config| config.max_dest_rd_atomic = 1), Script::default());
    feed(&mut qp, &mut script, fetch_add(500), 0);
    feed(&mut qp, &mut script, fetch_add(501), 0);
    assert_eq!((script.atomics, qp.state()), (1, State::Error));
}

#[test]
fn a_misaligned_address_and_missing_rights_are_invalid_and_a_bad_key_is_denied() {
    use NakCode::{InvalidRequest, RemoteAccess};
    let all = Config::default().access;
    let cases = [(9, all, InvalidRequest), (8, Access::REMOTE_READ, InvalidRequest), (REGION, all, RemoteAccess)];
    for (va, access, code) in cases {
        let (mut qp, mut script) = (connected(|config| config.access = access), Script::default());
        feed(&mut qp, &mut script, atomic(Opcode::RcFetchAdd, 500, va), 0);
        pump(&mut qp, &mut script);
        assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(code), 500)));
        assert_eq!((script.atomics, qp.state()), (0, State::Error));
    }
}

#[test]
fn an_atomic_with_a_payload_or_within_a_message_is_invalid() {
    let first = (request(Opcode::RcSendFirst, 500), MTU);
    for packets in [vec![(fetch_add(500), 8)], vec![first, (fetch_add(501), 0)]] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        receive(&mut qp, 1, 1000);
        let psn = 499 + packets.len() as u32;
        for (headers, len) in packets {
            feed(&mut qp, &mut script, headers, len);
        }
        pump(&mut qp, &mut script);
        assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::InvalidRequest), psn)));
        assert_eq!((script.atomics, qp.state()), (0, State::Error));
    }
}

#[test]
fn a_result_fills_the_buffer_and_acknowledges_what_came_before() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    post_add(&mut qp, 2);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendOnly, 100), (Opcode::RcFetchAdd, 101)]);
    feed(&mut qp, &mut script, result(101, 7), 0);
    assert_eq!(script.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(script.placed, [(0, 8)]);
}

#[test]
fn an_ack_beyond_an_unanswered_atomic_asks_again_for_its_result() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    post_add(&mut qp, 1);
    send(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes()[2], (Opcode::RcFetchAdd, 100));
    assert!(script.done.is_empty());
}

#[test]
fn a_response_of_another_kind_ends_the_connection() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    post_add(&mut qp, 1);
    pump(&mut qp, &mut script);
    let mut wrong = answer(100, ACK);
    wrong.bth.opcode = Opcode::RcReadResponseOnly;
    feed(&mut qp, &mut script, wrong, 8);
    assert_eq!(script.statuses(), [(1, WcStatus::BadRespErr)]);
}

#[test]
fn atomics_count_against_the_reads_in_flight_and_against_fences() {
    let (mut qp, mut script) = (connected(|config| config.max_rd_atomic = 1), Script::default());
    post_add(&mut qp, 1);
    post_add(&mut qp, 2);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
    feed(&mut qp, &mut script, result(100, 0), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 2);
}

#[test]
fn an_atomic_takes_a_buffer_of_eight_bytes() {
    let mut qp = connected(|_| ());
    let op = SendOp::Atomic { remote: Remote { va: 8, rkey: KEY }, operation: ADD_5 };
    let short =
        SendRequest { wr_id: 1, op, buffer: 0, len: 4, signaled: true, solicited: false, fence: false, ack_req: true };
    assert_eq!(qp.post_send(short).expect_err("short").reason, RcPostError::BufferLength(8));
}
