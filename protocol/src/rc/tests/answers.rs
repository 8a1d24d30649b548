//! What the requester hears: which answers it believes, and what the others are counted as.

use super::*;
use crate::rc::congestion::{Algorithm, CongestionControl as _};
use crate::wire::AtomicAckEth;
use Opcode::{RcAtomicAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly};

fn selective(config: &mut Config) {
    config.dialect = Dialect::Rocinante;
}

fn message(psn: u32, syndrome: Syndrome, msn: u32) -> Headers {
    let mut headers = answer(psn, syndrome);
    headers.ext.aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
    headers
}

fn atomic_answer(psn: u32) -> Headers {
    let mut headers = message(psn, ACK, 1);
    headers.bth.opcode = RcAtomicAck;
    headers.ext.atomic_ack = Some(AtomicAckEth { original: 0 });
    headers
}

/// The PSNs of what is sent now.
fn sent(qp: &mut RcQueuePair<u32>, script: &mut Script) -> Vec<u32> {
    script.sent.clear();
    pump(qp, script);
    script.sent.iter().map(|(headers, _)| headers.bth.psn.get()).collect()
}

#[test]
fn responses_that_answer_nothing_are_counted_and_not_placed() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    read(&mut qp, 2, MTU + 1);
    send(&mut qp, 3, 1);
    pump(&mut qp, &mut script);
    let cases = [
        (RcReadResponseOnly, 100, 1, "a SEND before the READ"),
        (RcReadResponseMiddle, 101, 2, "the middle without a beginning"),
        (RcReadResponseFirst, 101, 2, ""),
        (RcReadResponseFirst, 101, 3, "what was answered"),
        (RcReadResponseOnly, 102, 4, "a beginning in the middle"),
        (RcReadResponseLast, 102, 4, ""),
        (RcReadResponseOnly, 103, 5, "a SEND, and no READ is left"),
    ];
    for (opcode, psn, stale, why) in cases {
        let len = if psn == 102 { 1 } else { MTU };
        let is_of_use = qp.on_packet(0, &Packet { headers: request(opcode, psn), payload: &vec![0; len] }, &mut script);
        assert_eq!((is_of_use, qp.stats().stale_response), (why.is_empty(), stale), "{opcode:?} {psn} {why}");
    }
    assert_eq!(script.placed, [(0, MTU), (MTU, 1)], "and the last one is as long as what is left");
    assert_eq!(script.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!((qp.stats().bad_response, qp.stats().implied_nak_seq_err), (0, 0));
}

#[test]
fn a_gap_in_the_responses_is_counted_once_until_something_was_answered() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    read(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    let respond = |qp: &mut RcQueuePair<u32>, script: &mut Script, psn| {
        let opcode = if psn == 100 { RcReadResponseFirst } else { RcReadResponseMiddle };
        feed(qp, script, request(opcode, psn), MTU);
        (qp.stats().implied_nak_seq_err, qp.stats().stale_response)
    };
    assert_eq!(respond(&mut qp, &mut script, 101), (1, 0));
    assert_eq!(respond(&mut qp, &mut script, 102), (1, 1));
    assert_eq!(sent(&mut qp, &mut script), [100]);
    assert_eq!(respond(&mut qp, &mut script, 103), (1, 2), "it belongs to the first request");
    assert_eq!(sent(&mut qp, &mut script), []);
    assert_eq!(respond(&mut qp, &mut script, 100), (1, 2));
    assert_eq!(respond(&mut qp, &mut script, 102), (2, 2));
    // What is to be asked for again after a timeout is not missed before that has been done.
    qp.on_timeout(1 << 40, &mut script);
    assert_eq!(respond(&mut qp, &mut script, 103), (2, 3));
    assert_eq!(sent(&mut qp, &mut script), [101]);
}

#[test]
fn answers_that_mean_nothing_are_counted_and_change_nothing() {
    for change in [|_: &mut Config| (), selective] {
        let (mut qp, mut script) = (connected(change), Script::default());
        read(&mut qp, 1, 1);
        send(&mut qp, 2, 1);
        pump(&mut qp, &mut script);
        let mut refused = message(100, Syndrome::Nak(NakCode::RemoteAccess), 1);
        refused.bth.opcode = RcReadResponseOnly;
        let deadline = qp.deadline();
        for (headers, bad) in [(refused, 1), (answer(101, Syndrome::Reserved(0x40)), 2)] {
            assert!(!qp.on_packet(500, &Packet { headers, payload: &[] }, &mut script));
            assert_eq!((qp.stats().bad_response, qp.stats().remote_errors), (bad, 0));
        }
        assert_eq!((qp.deadline(), qp.state(), script.done.len()), (deadline, State::Rts, 0));
    }
}

#[test]
fn an_answer_of_the_wrong_kind_ends_the_connection() {
    let operation = AtomicOperation::FetchAdd { add: 1 };
    let remote = Remote { va: 0, rkey: KEY };
    let (read, atomic) = (SendOp::Read { remote }, SendOp::Atomic { remote, operation });
    for (op, headers, len) in [
        (read, atomic_answer(100), 0),
        (read, request(RcReadResponseFirst, 100), 8),
        (read, request(RcReadResponseOnly, 100), 7),
        (read, request(RcReadResponseOnly, 100), 9),
        (atomic, atomic_answer(100), 4),
        (atomic, request(RcReadResponseOnly, 100), 8),
    ] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        post(&mut qp, 1, op, 8);
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, headers, len);
        assert_eq!(script.statuses(), [(1, WcStatus::BadRespErr)], "{op:?}: {:?}", headers.bth.opcode);
        assert_eq!((script.placed.len(), qp.stats().bad_response), (0, 1));
    }
}

#[test]
fn of_what_was_never_sent_only_a_peer_of_our_own_reports_that_it_is_missing() {
    const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
    for (change, ghosts) in [
        (selective as fn(&mut Config), &[(101, ACK), (102, GAP), (101, Syndrome::Rnr { timer: 1 })][..]),
        (|_| (), &[(101, ACK), (101, GAP)]),
    ] {
        let (mut qp, mut script) = (connected(change), Script::default());
        send(&mut qp, 1, 1);
        pump(&mut qp, &mut script);
        for &(psn, syndrome) in ghosts {
            feed(&mut qp, &mut script, answer(psn, syndrome), 0);
        }
        let stats = qp.stats();
        assert_eq!((stats.ghost_ack, stats.packet_seq_err, script.done.len()), (ghosts.len() as u64, 0, 0));
    }
}

#[test]
fn an_old_acknowledgement_gives_credits_unless_it_is_very_old() {
    for (distance, is_used) in [(1, true), (RECENT as u32, true), (RECENT as u32 + 1, false)] {
        let credits = |config: &mut Config| config.end_to_end_credits = true;
        let (mut qp, mut script) = (connected(credits), Script::default());
        (1..=4).for_each(|wr_id| send(&mut qp, wr_id, 1));
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, message(100, Syndrome::Ack { credit: 0 }, 1), 0);
        assert_eq!(sent(&mut qp, &mut script), [101]);
        let old = Psn::new(101).plus((1 << 24) - distance).get();
        feed(&mut qp, &mut script, message(old, Syndrome::Ack { credit: 2 }, 1), 0);
        let expected: &[u32] = if is_used { &[102, 103] } else { &[] };
        assert_eq!(sent(&mut qp, &mut script), expected, "{distance} back");
        assert_eq!((qp.stats().stale_ack, script.done.len()), (1, 1));
    }
}

#[test]
fn a_peer_that_misses_the_same_packet_for_ever_is_given_up() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    for tries in 1..=4 {
        assert_eq!(sent(&mut qp, &mut script), [100]);
        feed(&mut qp, &mut script, answer(100, Syndrome::Nak(NakCode::PsnSequence)), 0);
        let stats = qp.stats();
        assert_eq!((stats.packet_seq_err, stats.retry_exceeded_err), (tries, u64::from(tries > 3)));
    }
    assert_eq!(script.statuses(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn a_report_may_end_in_the_time_that_the_peer_waited() {
    let delay = [0xff; 4];
    for (map, kept) in [([8, 0, 0, 0, 0, 0, 0, 0], 103), ([0, 0, 0, 0, 0, 1, 0, 0], 140)] {
        for payload in [map.to_vec(), [&map[..], &delay].concat()] {
            let (mut qp, mut script) = (connected(selective), Script::default());
            send(&mut qp, 1, 100 * MTU);
            pump(&mut qp, &mut script);
            let headers = answer(100, Syndrome::Nak(NakCode::PsnSequence));
            qp.on_packet(0, &Packet { headers, payload: &payload }, &mut script);
            assert_eq!(sent(&mut qp, &mut script), (100..kept).collect::<Vec<_>>(), "{} bytes", payload.len());
            assert_eq!(qp.stats().packet_seq_err, 1);
        }
    }
}

#[test]
fn what_the_peer_waited_with_its_answer_is_not_taken_for_a_queue() {
    let window_after = |waited: Option<u32>| {
        let change = |config: &mut Config| (config.dialect, config.congestion) = (Dialect::Rocinante, Algorithm::Delay);
        let (mut qp, mut script) = (connected(change), Script::default());
        let mut now = 0;
        for (round, (took, waited)) in [(20_000, None), (220_000, waited)].into_iter().enumerate() {
            send(&mut qp, 1, 1);
            let _ = qp.pump_requests(now, &mut unlimited(), &mut script);
            now += took;
            let payload = waited.map_or_else(Vec::new, |ns| ns.to_be_bytes().to_vec());
            let headers = answer(100 + round as u32, ACK);
            qp.on_packet(now, &Packet { headers, payload: &payload }, &mut script);
            now += 100_000;
        }
        qp.requester.congestion.window()
    };
    assert_eq!(window_after(Some(200_000)), 64 + 2 + 1, "it grows");
    assert!(window_after(None) < 64);
}

#[test]
fn what_the_peer_waited_with_one_answer_says_nothing_of_a_later_one() {
    let window_after = |waited: u32| {
        let change = |config: &mut Config| (config.dialect, config.congestion) = (Dialect::Rocinante, Algorithm::Delay);
        let (mut qp, mut script) = (connected(change), Script::default());
        let at = |now, qp: &mut RcQueuePair<u32>, script: &mut Script, headers, payload: &[u8]| {
            qp.on_packet(now, &Packet { headers, payload }, script);
        };
        // Both are acknowledged by themselves; the first is timed, the second is not.
        (1..=2).for_each(|wr_id| send(&mut qp, wr_id, 1));
        let _ = qp.pump_requests(0, &mut unlimited(), &mut script);
        at(20_000, &mut qp, &mut script, answer(100, ACK), &[0; 4]);
        at(220_000, &mut qp, &mut script, answer(101, ACK), &waited.to_be_bytes());
        // READs are timed, and their responses carry no word of a delay.
        for (round, psn) in (1..).zip(102..105) {
            let now = round * 1_000_000;
            read(&mut qp, 3, 1);
            let _ = qp.pump_requests(now, &mut unlimited(), &mut script);
            at(now + 20_000, &mut qp, &mut script, request(RcReadResponseOnly, psn), &[0]);
        }
        qp.requester.congestion.window()
    };
    assert_eq!(window_after(200_000), window_after(0));
}
