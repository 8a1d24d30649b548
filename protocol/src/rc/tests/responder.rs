//! The responder.

use super::*;

#[test]
fn a_message_lands_in_one_receive_and_is_acknowledged_once() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, 1000);
    feed(&mut qp, &mut script, request(Opcode::RcSendFirst, 500), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcSendMiddle, 501), MTU);
    let mut last = request(Opcode::RcSendLastImm, 502);
    last.ext.imm = Some(ImmDt(9));
    feed(&mut qp, &mut script, last, 3);
    assert_eq!(script.placed, [(0, MTU), (MTU, MTU), (2 * MTU, 3)]);
    assert_eq!((script.done[0].len, script.done[0].imm), (2 * MTU as u32 + 3, Some(9)));
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 502)));
}

#[test]
fn a_gap_is_reported_once_and_the_late_packet_heals_it() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, 10);
    for psn in [501, 502, 503] {
        feed(&mut qp, &mut script, request(Opcode::RcSendOnly, psn), 1);
        pump(&mut qp, &mut script);
    }
    assert_eq!(script.sent.len(), 1);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::PsnSequence), 500)));
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 500)));
}

#[test]
fn a_duplicate_is_not_executed_but_acknowledged_at_once() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, 10);
    receive(&mut qp, 2, 10);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    assert!(qp.owes_acknowledgement(1), "the peer has not received the first");
    assert_eq!((qp.stats().rx_requests, qp.stats().duplicate_request), (1, 1));
    pump(&mut qp, &mut script);
    assert_eq!(script.done.len(), 1);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 1 }, 500)));
    assert_eq!(script.sent.len(), 2);
}

#[test]
fn no_acknowledgement_follows_a_response_that_says_the_same() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 500, 0, 8), 8);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 64), 0);
    pump(&mut qp, &mut script);
    script.sent.clear();
    // Both are asked for again, and later something follows that no response speaks for.
    feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 500, 0, 8), 8);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 64), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcReadResponseOnly, 501)]);
    feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 502, 0, 8), 8);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 64), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes()[1..], [(Opcode::RcReadResponseOnly, 501), (Opcode::RcAck, 502)]);
}

#[test]
fn an_acknowledgement_never_names_a_request_that_data_answers() {
    for fetch in [with_reth(Opcode::RcReadRequest, 501, 0, 64), add_one(501)] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 500, 0, 8), 8);
        feed(&mut qp, &mut script, fetch, 0);
        pump(&mut qp, &mut script);
        script.sent.clear();
        feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 500, 0, 8), 8);
        pump(&mut qp, &mut script);
        assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 500)), "{:?}", fetch.bth.opcode);
    }
}

#[test]
fn a_duplicate_from_before_the_first_send_or_write_has_no_answer() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 64), 0);
    pump(&mut qp, &mut script);
    script.sent.clear();
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 499), 1);
    assert!(!qp.owes_acknowledgement(1));
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), []);
}

#[test]
fn what_was_written_half_of_all_psns_ago_is_not_acknowledged_again() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 500, 0, 8), 8);
    let mut psn = 501;
    while psn < 501 + (1 << 23) {
        feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, psn, 0, REGION as u32), 0);
        pump(&mut qp, &mut script);
        psn += REGION as u32 / MTU as u32;
    }
    script.sent.clear();
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, psn - 1), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [], "its number would mean a packet of the future");
}

#[test]
fn without_a_receive_the_sender_gets_an_rnr_nak_and_nothing_is_skipped() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1, "what follows the refused packet is dropped in silence");
    assert_eq!(script.last_syndrome(), Some((Syndrome::Rnr { timer: 12 }, 500)));
    assert_eq!((qp.stats().out_of_buffer, qp.stats().out_of_sequence), (1, 1));
    receive(&mut qp, 1, 10);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn requests_that_break_the_framing_are_refused_as_invalid() {
    type Bad = &'static [(Opcode, usize)];
    let scripts: [Bad; 8] = [
        &[(Opcode::RcSendMiddle, MTU)],
        &[(Opcode::RcSendFirst, MTU), (Opcode::RcSendOnly, 1)],
        &[(Opcode::RcSendFirst, MTU), (Opcode::RcWriteMiddle, MTU)],
        &[(Opcode::RcSendFirst, MTU - 1)],
        &[(Opcode::RcSendFirst, MTU), (Opcode::RcSendLast, 0)],
        &[(Opcode::RcSendOnly, MTU + 1)],
        &[(Opcode::RcSendFirst, MTU), (Opcode::RcReadRequest, 0)],
        &[(Opcode::RcFetchAdd, 0)],
    ];
    for packets in scripts {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        receive(&mut qp, 1, 1000);
        for (psn, &(opcode, len)) in (500..).zip(packets) {
            feed(&mut qp, &mut script, with_reth(opcode, psn, 0, 1), len);
        }
        pump(&mut qp, &mut script);
        let psn = 499 + packets.len() as u32;
        assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::InvalidRequest), psn)), "{packets:?}");
        assert_eq!(qp.state(), State::Error);
        assert!(script.done.iter().all(|done| !done.status.is_success()));
    }
}

#[test]
fn a_message_longer_than_its_receive_is_a_length_error_here_and_invalid_there() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, MTU as u32);
    receive(&mut qp, 2, MTU as u32);
    assert_eq!(qp.receives_posted(), 2);
    feed(&mut qp, &mut script, request(Opcode::RcSendFirst, 500), MTU);
    assert_eq!(qp.receives_posted(), 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendLast, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(script.done.iter().map(|done| done.len).collect::<Vec<_>>(), [MTU as u32, 0], "what has arrived");
    assert_eq!(qp.receives_posted(), 0);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::InvalidRequest), 501)));
}

#[test]
fn writes_outside_the_region_or_of_another_length_touch_nothing() {
    let access = NakCode::RemoteAccess;
    let invalid = NakCode::InvalidRequest;
    for (opcode, va, len, payload, code) in [
        (Opcode::RcWriteOnly, REGION, 1, 1, access),
        (Opcode::RcWriteOnly, REGION - 1, 2, 2, access),
        (Opcode::RcWriteOnly, 0, 2, 1, invalid),
        (Opcode::RcWriteOnly, 0, 1, 2, invalid),
        (Opcode::RcWriteFirst, 0, MTU as u32, MTU, invalid),
        (Opcode::RcWriteFirst, 0, 1 << 31, MTU, access),
        (Opcode::RcWriteFirst, 0, (1 << 31) + 1, MTU, invalid),
        (Opcode::RcReadRequest, 0, (1 << 31) + 1, 0, invalid),
        (Opcode::RcReadRequest, 1, REGION as u32, 0, access),
    ] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        feed(&mut qp, &mut script, with_reth(opcode, 500, va, len), payload);
        pump(&mut qp, &mut script);
        assert!(script.written.is_empty());
        assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(code), 500)), "{opcode:?} {va} {len}");
        let counts = if code == access { (1, 0) } else { (0, 1) };
        assert_eq!((qp.stats().resp_remote_access_errors, qp.stats().resp_invalid_request), counts);
    }
}

#[test]
fn a_write_of_several_packets_lands_where_it_said() {
    let len = 2 * MTU as u32 + 3;
    for (last, arrived) in [(Opcode::RcWriteLast, vec![]), (Opcode::RcWriteLastImm, vec![(len, Some(9))])] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        receive(&mut qp, 1, 0);
        feed(&mut qp, &mut script, with_reth(Opcode::RcWriteFirst, 500, 8, len), MTU);
        feed(&mut qp, &mut script, request(Opcode::RcWriteMiddle, 501), MTU);
        let mut last = request(last, 502);
        last.ext.imm = arrived.first().map(|_| ImmDt(9));
        feed(&mut qp, &mut script, last, 3);
        assert_eq!(script.written, [(8, MTU), (8 + MTU as u64, MTU), (8 + 2 * MTU as u64, 3)]);
        assert_eq!(script.done.iter().map(|done| (done.len, done.imm)).collect::<Vec<_>>(), arrived);
        pump(&mut qp, &mut script);
        assert!(matches!(script.last_syndrome(), Some((Syndrome::Ack { .. }, 502))));
    }
}

#[test]
fn rights_that_the_queue_pair_does_not_grant_are_refused() {
    let (mut qp, mut script) = (connected(|config| config.access = Access::LOCAL), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 500, 0, 1), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::InvalidRequest), 500)));
}

#[test]
fn a_zero_length_access_needs_no_valid_key() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    let mut headers = with_reth(Opcode::RcWriteOnly, 500, 1 << 60, 0);
    headers.ext.reth = headers.ext.reth.map(|reth| Reth { rkey: Rkey(0xbad), ..reth });
    feed(&mut qp, &mut script, headers, 0);
    pump(&mut qp, &mut script);
    assert!(matches!(script.last_syndrome(), Some((Syndrome::Ack { .. }, 500))));
}

#[test]
fn a_read_answers_before_a_later_send_is_acknowledged() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, 10);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 8, 3 * MTU as u32), 0);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 503), 1);
    pump(&mut qp, &mut script);
    use Opcode::{RcAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle};
    let expected = [(RcReadResponseFirst, 500), (RcReadResponseMiddle, 501), (RcReadResponseLast, 502), (RcAck, 503)];
    assert_eq!(script.opcodes(), expected);
}

#[test]
fn a_read_is_replayed_from_where_the_peer_asks() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 3 * MTU as u32), 0);
    pump(&mut qp, &mut script);
    script.sent.clear();
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, MTU as u64, 2 * MTU as u32), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcReadResponseFirst, 501), (Opcode::RcReadResponseLast, 502)]);
    script.sent.clear();
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 2 * MTU as u32), 0);
    pump(&mut qp, &mut script);
    assert!(script.sent.is_empty(), "another range than the one remembered");
    assert_eq!(qp.stats().duplicate_dropped, 1);
}

#[test]
fn a_late_replay_does_not_cost_a_new_read_its_place() {
    let (mut qp, mut script) = (connected(|config| config.max_dest_rd_atomic = 1), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 1), 0);
    assert_eq!(qp.state(), State::Rts, "the first READ was answered: the second is within the limit");
    let (mut qp, mut script) = (connected(|config| config.max_dest_rd_atomic = 1), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 1), 0);
    assert_eq!(qp.state(), State::Error, "two at once are more than were granted");
}

#[test]
fn a_read_whose_region_goes_is_refused_at_the_very_packet() {
    let (mut qp, mut script) = (connected(|_| ()), Script { room: Some(1), ..Script::default() });
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 3 * MTU as u32), 0);
    pump(&mut qp, &mut script);
    (script.is_revoked, script.room) = (true, None);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::RemoteAccess), 501)));
}

#[test]
fn a_read_before_a_refused_request_is_still_answered_and_answered_first() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    feed(&mut qp, &mut script, with_reth(Opcode::RcWriteOnly, 501, REGION, 1), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcReadResponseOnly, 500), (Opcode::RcAck, 501)]);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::RemoteAccess), 501)));
}

#[test]
fn a_late_duplicate_of_a_read_whose_region_has_gone_is_no_offence() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    pump(&mut qp, &mut script);
    script.is_revoked = true;
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    pump(&mut qp, &mut script);
    assert_eq!((qp.state(), qp.stats().duplicate_dropped), (State::Rts, 1));
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 1), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::RemoteAccess), 501)));
}
