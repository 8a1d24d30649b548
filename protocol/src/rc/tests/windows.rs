//! Memory windows: bound and ended in the order of the send queue, ended by the peer's SEND.

use super::*;
use crate::wire::Ieth;

const WINDOW: Rkey = Rkey(0x77);

fn bind(region: Rkey) -> SendOp {
    SendOp::BindWindow { window: WINDOW, region, va: 0, len: 8, access: Access::REMOTE_WRITE }
}

fn invalidating(opcode: Opcode, psn: u32, rkey: Rkey) -> Headers {
    let mut headers = request(opcode, psn);
    headers.ext.ieth = Some(Ieth(rkey));
    headers
}

#[test]
fn a_window_is_bound_once_all_before_it_is_done() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    post(&mut qp, 2, bind(KEY), 0);
    send(&mut qp, 3, 1);
    pump(&mut qp, &mut script);
    assert_eq!((script.sent.len(), script.windows.len()), (1, 0));
    feed(&mut qp, &mut script, answer(100, ACK), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendOnly, 100), (Opcode::RcSendOnly, 101)]);
    assert_eq!(script.windows, [WINDOW]);
    assert_eq!(script.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(script.done[1].operation, Operation::BindWindow);
}

#[test]
fn a_bind_that_fails_ends_the_queue_pair() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    post(&mut qp, 1, bind(Rkey(1)), 0);
    send(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::MwBindErr), (2, WcStatus::WrFlushErr)]);
    assert!(script.sent.is_empty());
}

#[test]
fn ending_a_window_that_is_none_is_an_error_of_the_queue_pair() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    post(&mut qp, 1, bind(KEY), 0);
    post(&mut qp, 2, SendOp::LocalInvalidate { rkey: WINDOW }, 0);
    post(&mut qp, 3, SendOp::LocalInvalidate { rkey: WINDOW }, 0);
    pump(&mut qp, &mut script);
    use WcStatus::{LocQpOpErr, Success};
    assert_eq!(script.statuses(), [(1, Success), (2, Success), (3, LocQpOpErr)]);
}

#[test]
fn a_send_with_invalidate_carries_the_key_in_its_last_packet() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    post(&mut qp, 1, SendOp::SendInvalidate { rkey: WINDOW }, MTU + 1);
    post(&mut qp, 2, SendOp::SendInvalidate { rkey: WINDOW }, 1);
    pump(&mut qp, &mut script);
    use Opcode::{RcSendFirst, RcSendLastInvalidate, RcSendOnlyInvalidate};
    assert_eq!(script.opcodes(), [(RcSendFirst, 100), (RcSendLastInvalidate, 101), (RcSendOnlyInvalidate, 102)]);
    let keys: Vec<_> = script.sent.iter().map(|(headers, _)| headers.ext.ieth).collect();
    assert_eq!(keys, [None, Some(Ieth(WINDOW)), Some(Ieth(WINDOW))]);
}

#[test]
fn the_peer_ends_a_window_and_the_receiver_is_notified() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    script.windows.push(WINDOW);
    receive(&mut qp, 1, 4096);
    feed(&mut qp, &mut script, request(Opcode::RcSendFirst, 500), MTU);
    feed(&mut qp, &mut script, invalidating(Opcode::RcSendLastInvalidate, 501, WINDOW), 1);
    assert_eq!(script.done[0].invalidated, Some(WINDOW));
    assert!(script.windows.is_empty());
}

#[test]
fn ending_what_is_no_window_is_denied_and_nothing_is_placed() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, 4096);
    feed(&mut qp, &mut script, invalidating(Opcode::RcSendOnlyInvalidate, 500, WINDOW), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::RemoteAccess), 500)));
    assert!(script.placed.is_empty());
    assert_eq!(script.statuses(), [(1, WcStatus::LocAccessErr)]);
}
