//! The requester and its completer.

use super::*;
use crate::rc::congestion::Algorithm;

#[test]
fn a_message_is_cut_at_the_mtu_and_asks_for_an_ack_at_its_end() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 2 * MTU + 1);
    send(&mut qp, 2, 0);
    pump(&mut qp, &mut script);
    use Opcode::{RcSendFirst, RcSendLast, RcSendMiddle, RcSendOnly};
    assert_eq!(script.opcodes(), [(RcSendFirst, 100), (RcSendMiddle, 101), (RcSendLast, 102), (RcSendOnly, 103)]);
    assert_eq!(script.sent.iter().map(|(_, len)| *len).collect::<Vec<_>>(), [MTU, MTU, 1, 0]);
    let asks: Vec<_> = script.sent.iter().map(|(headers, _)| headers.bth.ack_req).collect();
    assert_eq!(asks, [false, false, true, true]);
}

#[test]
fn one_ack_completes_everything_before_it() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    (1..=3).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    assert_eq!(script.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    feed(&mut qp, &mut script, answer(102, ACK), 0);
    assert_eq!(script.done.len(), 3);
    assert_eq!(qp.deadline(), None, "nothing is outstanding");
}

#[test]
fn a_full_window_asks_for_an_ack_and_waits_for_it() {
    let (mut qp, mut script) = (connected(|config| config.window = 2), Script::default());
    send(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 2);
    assert!(script.sent[1].0.bth.ack_req, "or the window would never open");
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 4);
}

#[test]
fn a_sequence_nak_goes_back_and_acknowledges_what_came_before() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    (1..=3).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(101, Syndrome::Nak(NakCode::PsnSequence)), 0);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
    script.sent.clear();
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendOnly, 101), (Opcode::RcSendOnly, 102)]);
    assert_eq!(qp.stats().retransmitted_packets, 2);
}

#[test]
fn a_late_ack_after_going_back_moves_the_cursor_forward_again() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    qp.on_timeout(1000, &mut script);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    script.sent.clear();
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendMiddle, 102), (Opcode::RcSendLast, 103)]);
}

#[test]
fn after_a_timeout_only_the_oldest_packet_is_sent_until_the_peer_answers() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    script.sent.clear();
    qp.on_timeout(1000, &mut script);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendFirst, 100)]);
    assert!(script.sent[0].0.bth.ack_req);
    feed(&mut qp, &mut script, answer(103, ACK), 0);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn silence_doubles_the_wait_and_ends_with_retry_exceeded_and_flushes() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    send(&mut qp, 2, 1);
    receive(&mut qp, 3, 10);
    pump(&mut qp, &mut script);
    let mut waits = Vec::new();
    let mut now = 0;
    while let Some(deadline) = qp.deadline() {
        assert!(waits.len() < 4, "three retries were granted");
        waits.push(deadline - now);
        now = deadline;
        qp.on_timeout(now, &mut script);
        let _ = qp.pump_requests(now, &mut unlimited(), &mut script);
    }
    let within = |(wait, due): (&u64, u64)| (due..=due + due / 4).contains(wait);
    assert!(waits.iter().zip([1000, 2000, 4000, 4000]).all(within) && waits.len() == 4, "{waits:?}");
    assert_ne!(waits[2], waits[3], "timeouts of one length would fall into step with what else is periodic");
    use WcStatus::{RetryExcErr, WrFlushErr};
    assert_eq!(script.statuses(), [(1, RetryExcErr), (2, WrFlushErr), (3, WrFlushErr)]);
    assert_eq!(qp.state(), State::Error);
    let stats = qp.stats();
    assert_eq!((stats.local_ack_timeout_err, stats.tail_loss_probes, stats.retry_exceeded_err), (4, 0, 1));
}

#[test]
fn no_timeout_passes_without_a_packet_that_could_be_answered() {
    let paced = |config: &mut Config| {
        config.congestion = Algorithm::Delay;
        config.retry_limit = 60;
    };
    let (mut qp, mut script) = (connected(paced), Script::default());
    send(&mut qp, 1, MTU);
    pump(&mut qp, &mut script);
    let mut now = 10_000;
    qp.on_packet(now, &Packet { headers: answer(100, ACK), payload: &[] }, &mut script);
    send(&mut qp, 2, MTU);
    for timeouts in 0..60 {
        let _ = qp.pump_requests(now, &mut unlimited(), &mut script);
        assert_eq!(script.sent.len(), timeouts + 2, "each silence makes the path slower, and the probe goes out");
        now += 10_000;
        qp.on_timeout(now, &mut script);
    }
}

#[test]
fn an_rnr_nak_waits_for_the_coded_time_and_is_counted() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(100, Syndrome::Rnr { timer: 1 }), 0);
    assert_eq!(qp.deadline(), Some(10_000));
    script.sent.clear();
    pump(&mut qp, &mut script);
    assert!(script.sent.is_empty(), "it waits");
    qp.on_timeout(10_000, &mut script);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendOnly, 100)]);
    feed(&mut qp, &mut script, answer(100, Syndrome::Rnr { timer: 1 }), 0);
    assert_eq!(script.statuses(), [(1, WcStatus::RnrRetryExcErr)], "one retry was granted");
    assert_eq!((qp.stats().rnr_nak, qp.stats().rnr_nak_retry_err), (2, 1));
}

#[test]
fn each_request_has_the_rnr_retries_of_its_own() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    for psn in 100..103 {
        send(&mut qp, psn, 1);
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, answer(psn as u32, Syndrome::Rnr { timer: 1 }), 0);
        qp.on_timeout(10_000, &mut script);
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, answer(psn as u32, Syndrome::Ack { credit: 31 }), 0);
    }
    assert_eq!(
        script.statuses(),
        [100, 101, 102].map(|wr_id| (wr_id, WcStatus::Success)),
        "one retry was granted, to each"
    );
}

#[test]
fn a_peer_that_answers_rnr_is_not_silent() {
    let (mut qp, mut script) = (connected(|config| config.rnr_retry_limit = None), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    for _ in 0..20 {
        feed(&mut qp, &mut script, answer(100, Syndrome::Rnr { timer: 1 }), 0);
        qp.on_timeout(1 << 40, &mut script);
        pump(&mut qp, &mut script);
        qp.on_timeout(1 << 41, &mut script);
        pump(&mut qp, &mut script);
    }
    assert!(script.done.is_empty(), "each wait was followed by an answer");
}

#[test]
fn more_packets_than_psns_can_tell_apart_are_not_taken() {
    let mut qp = connected(|_| ());
    let long = |wr_id| SendRequest { wr_id, len: 1 << 31, ..rejected_send() };
    assert_eq!(qp.post_send(long(1)).expect_err("2^23 packets").reason, RcPostError::TooLong);
    send(&mut qp, 1, (1 << 31) - MTU);
    let one_more = SendRequest { len: 1, ..rejected_send() };
    assert_eq!(qp.post_send(one_more).expect_err("2^23 packets").reason, RcPostError::QueueFull);
}

#[test]
fn fatal_naks_have_their_verbs_names() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccess, WcStatus::RemAccessErr),
        (NakCode::RemoteOperational, WcStatus::RemOpErr),
    ] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        (1..=3).for_each(|wr_id| send(&mut qp, wr_id, 1));
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, answer(101, Syndrome::Nak(code)), 0);
        assert_eq!(script.statuses(), [(1, WcStatus::Success), (2, status), (3, WcStatus::WrFlushErr)]);
        assert_eq!(qp.stats().remote_errors, 1);
    }
}

#[test]
fn acknowledgements_of_the_past_and_of_the_future_change_nothing() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    for psn in [99, 101, 5000, 0xff_ff00] {
        for syndrome in [ACK, Syndrome::Nak(NakCode::RemoteAccess), Syndrome::Rnr { timer: 1 }] {
            feed(&mut qp, &mut script, answer(psn, syndrome), 0);
        }
    }
    assert!(script.done.is_empty());
    assert_eq!(qp.stats().stale_ack + qp.stats().ghost_ack, 12);
}

#[test]
fn a_missing_read_response_is_asked_for_once() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    read(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseFirst, 100), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseMiddle, 102), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseLast, 103), MTU);
    script.sent.clear();
    pump(&mut qp, &mut script);
    let (headers, _) = script.sent[0];
    assert_eq!(script.opcodes(), [(Opcode::RcReadRequest, 101)]);
    assert_eq!(headers.ext.reth, Some(Reth { va: MTU as u64, rkey: KEY, len: 3 * MTU as u32 }));
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseFirst, 101), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseMiddle, 102), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseLast, 103), MTU);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(script.placed, [(0, MTU), (MTU, MTU), (2 * MTU, MTU), (3 * MTU, MTU)]);
}

#[test]
fn answers_to_a_read_count_while_it_waits_to_be_asked_for_again() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    read(&mut qp, 1, 4 * MTU);
    read(&mut qp, 2, MTU);
    pump(&mut qp, &mut script);
    let busy = |script: &mut Script| script.room = Some(0);
    busy(&mut script);
    // They overtake one another, and nothing can be sent in between.
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseMiddle, 101), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseFirst, 100), MTU);
    assert_eq!(script.placed, [(0, MTU)]);
    script.room = None;
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseMiddle, 102), MTU);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes()[2..], [(Opcode::RcReadRequest, 101), (Opcode::RcReadRequest, 104)]);
    // From the middle it begins with FIRST, which is not what a timeout makes stale.
    busy(&mut script);
    qp.on_timeout(1 << 40, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseFirst, 101), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseFirst, 102), MTU);
    assert_eq!(script.placed, [(0, MTU), (MTU, MTU)], "none was asked for from 102 on");
}

#[test]
fn an_ack_beyond_an_unanswered_read_implies_that_its_responses_are_lost() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    read(&mut qp, 2, 1);
    send(&mut qp, 3, 1);
    pump(&mut qp, &mut script);
    script.sent.clear();
    feed(&mut qp, &mut script, answer(102, ACK), 0);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcReadRequest, 101), (Opcode::RcSendOnly, 102)]);
    assert_eq!(qp.stats().implied_nak_seq_err, 1);
}

#[test]
fn a_read_response_of_the_wrong_length_ends_the_connection() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    read(&mut qp, 1, MTU + 10);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseFirst, 100), MTU - 4);
    assert_eq!(script.statuses(), [(1, WcStatus::BadRespErr)]);
    assert!(script.placed.is_empty());
}

#[test]
fn a_fence_waits_for_earlier_reads_and_reads_wait_for_their_limit() {
    let (mut qp, mut script) = (connected(|config| config.max_rd_atomic = 1), Script::default());
    read(&mut qp, 1, 1);
    read(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    read(&mut qp, 1, 1);
    let fenced = SendRequest {
        wr_id: 2,
        op: SendOp::Send { imm: None },
        buffer: 0,
        len: 1,
        signaled: true,
        solicited: false,
        fence: true,
        ack_req: true,
    };
    qp.post_send(fenced).expect("room");
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
    feed(&mut qp, &mut script, request(Opcode::RcReadResponseOnly, 100), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes()[1], (Opcode::RcSendOnly, 101));
}

#[test]
fn a_busy_link_loses_nothing() {
    let (mut qp, mut script) = (connected(|_| ()), Script { room: Some(1), ..Script::default() });
    send(&mut qp, 1, 3 * MTU);
    assert_eq!(qp.pump_requests(0, &mut unlimited(), &mut script), Err(TxError::Busy));
    script.room = None;
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes().iter().map(|(_, psn)| *psn).collect::<Vec<_>>(), [100, 101, 102]);
}
