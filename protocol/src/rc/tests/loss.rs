//! Selective repeat and pacing under loss: what is sent again, how often, and which packets ask for an answer.

use super::*;
use crate::rc::congestion::Algorithm;

fn selective() -> RcQueuePair<u32> {
    connected(|config| config.dialect = Dialect::Rocinante)
}

/// A report that `psn` is missing and that the packets `kept` beyond it are kept.
fn report_gap(qp: &mut RcQueuePair<u32>, script: &mut Script, psn: u32, kept: &[u32]) {
    let mut map = vec![0; 8];
    for distance in kept.iter().map(|kept| (kept - psn) as usize) {
        map[distance / 8] |= 1 << (distance % 8);
    }
    let headers = answer(psn, Syndrome::Nak(NakCode::PsnSequence));
    qp.on_packet(0, &Packet { headers, payload: &map }, script);
}

/// The PSNs of what is sent where the link takes `room` packets.
fn sent(qp: &mut RcQueuePair<u32>, script: &mut Script, room: usize) -> Vec<u32> {
    script.sent.clear();
    script.room = Some(room);
    pump(qp, script);
    script.sent.iter().map(|(headers, _)| headers.bth.psn.get()).collect()
}

#[test]
fn a_repair_is_repeated_only_after_something_sent_later_than_itself_has_arrived() {
    let (mut qp, mut script) = (selective(), Script::default());
    send(&mut qp, 1, 20 * MTU);
    assert_eq!(sent(&mut qp, &mut script, 10), (100..110).collect::<Vec<_>>());
    report_gap(&mut qp, &mut script, 101, &[102]);
    assert_eq!(sent(&mut qp, &mut script, 3), [101, 110, 111]);
    report_gap(&mut qp, &mut script, 101, &[102, 103, 105]);
    assert_eq!(sent(&mut qp, &mut script, 2), [104, 112]);
    // 110 left after the repair of 101, and before that of 104.
    report_gap(&mut qp, &mut script, 101, &[102, 103, 105, 106, 107, 108, 109, 110]);
    assert_eq!(sent(&mut qp, &mut script, 2), [101, 113]);
    // 113 left after both.
    report_gap(&mut qp, &mut script, 101, &[102, 103, 105, 106, 107, 108, 109, 110, 111, 112, 113]);
    assert_eq!(sent(&mut qp, &mut script, 3), [101, 104, 114]);
}

#[test]
fn an_acknowledgement_that_was_under_way_before_the_probe_declares_nothing_lost() {
    let (mut qp, mut script) = (selective(), Script::default());
    (1..=4).for_each(|wr_id| send(&mut qp, wr_id, 1));
    assert_eq!(sent(&mut qp, &mut script, 9), [100, 101, 102, 103]);
    qp.on_timeout(1000, &mut script);
    assert_eq!(sent(&mut qp, &mut script, 9), [103]);
    feed(&mut qp, &mut script, answer(100, ACK), 0);
    assert_eq!(sent(&mut qp, &mut script, 9), []);
}

#[test]
fn the_answer_to_a_repair_shows_that_the_rest_of_the_flight_is_lost() {
    let (mut qp, mut script) = (selective(), Script::default());
    send(&mut qp, 1, 6 * MTU);
    sent(&mut qp, &mut script, 9);
    report_gap(&mut qp, &mut script, 101, &[102]);
    assert_eq!(sent(&mut qp, &mut script, 9), [101]);
    feed(&mut qp, &mut script, answer(102, ACK), 0);
    assert_eq!(sent(&mut qp, &mut script, 9), [103, 104, 105]);
}

#[test]
fn a_response_that_comes_before_the_answer_to_a_repair_hides_no_loss() {
    let (mut qp, mut script) = (selective(), Script::default());
    send(&mut qp, 1, 1);
    read(&mut qp, 2, 1);
    send(&mut qp, 3, 3);
    send(&mut qp, 4, 3);
    sent(&mut qp, &mut script, 9);
    // The peer was not ready for the first, kept two, and had no room for the last.
    feed(&mut qp, &mut script, answer(100, Syndrome::Rnr { timer: 1 }), 0);
    qp.on_timeout(10_000, &mut script);
    assert_eq!(sent(&mut qp, &mut script, 9), [100]);
    let mut response = request(Opcode::RcReadResponseOnly, 101);
    response.ext.aeth = Some(Aeth { syndrome: ACK, msn: Msn::new(0) });
    feed(&mut qp, &mut script, response, 1);
    feed(&mut qp, &mut script, answer(102, ACK), 0);
    assert_eq!(sent(&mut qp, &mut script, 9), [103]);
}

#[test]
fn a_window_of_the_controllers_that_is_full_asks_for_an_ack() {
    let (mut qp, mut script) =
        (connected(|config| (config.congestion, config.mtu) = (Algorithm::Delay, Mtu::Mtu4096)), Script::default());
    send(&mut qp, 1, 16 * 4096);
    pump(&mut qp, &mut script);
    assert!(script.sent.len() < 16);
    assert!(script.sent.last().is_some_and(|(headers, _)| headers.bth.ack_req), "or only a timeout would go on");
}

#[test]
fn a_sender_that_is_slowed_down_asks_for_an_ack_now_and_then() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 9 * MTU);
    for packet in 0..6 {
        script.room = Some(1);
        let _ = qp.pump_requests(packet * 50_000, &mut unlimited(), &mut script);
    }
    let asks: Vec<_> = script.sent.iter().map(|(headers, _)| headers.bth.ack_req).collect();
    assert_eq!(asks, [false, false, false, true, false, false]);
}
