//! What the responder says: acknowledgements, reports of gaps and of marks, responses; and when they may leave.

use super::*;
use crate::rc::congestion::Algorithm;
use crate::rc::recovery::{SACK_MAP_LEN, SPAN};
use crate::rc::responder::{ECHO_LEN, Owed};

fn unasked(psn: u32) -> Headers {
    let mut headers = request(Opcode::RcSendOnly, psn);
    headers.bth.ack_req = false;
    headers
}

#[test]
fn an_acknowledgement_waits_for_the_responses_before_it_and_is_sent_once() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    assert!(!qp.owes_responses());
    receive(&mut qp, 1, 1);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1), 0);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    assert!(qp.owes_responses() && !qp.owes_acknowledgement(1));
    qp.pump_acknowledgement(0, &mut script).expect("the link takes all");
    assert_eq!((script.sent.len(), qp.stats().tx_acks), (0, 0));
    // At any time: where nothing is paced, the clock does not matter.
    qp.pump_responses(7, &mut unlimited(), &mut script).expect("the link takes all");
    assert!(!qp.owes_responses() && qp.owes_acknowledgement(1));
    for _ in 0..2 {
        qp.pump_acknowledgement(7, &mut script).expect("the link takes all");
        assert_eq!(script.opcodes(), [(Opcode::RcReadResponseOnly, 500), (Opcode::RcAck, 501)]);
        assert_eq!((qp.stats().tx_read_responses, qp.stats().tx_acks), (1, 1));
    }
}

#[test]
fn what_does_not_ask_is_acknowledged_at_once_where_a_report_has_become_untrue() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    receive(&mut qp, 1, 1);
    receive(&mut qp, 2, 1);
    feed(&mut qp, &mut script, unasked(500), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 0);
    assert!(qp.owes_acknowledgement_later());
    feed(&mut qp, &mut script, unasked(502), 1);
    feed(&mut qp, &mut script, unasked(501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 501)));
}

#[test]
fn what_does_not_ask_is_acknowledged_once_sixteen_wait_or_as_soon_as_it_is_hastened() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    for n in 0..16 {
        receive(&mut qp, n, 1);
        assert_eq!(script.sent.len(), 0);
        feed(&mut qp, &mut script, unasked(500 + n as u32), 1);
        pump(&mut qp, &mut script);
    }
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 515)));
    receive(&mut qp, 16, 1);
    feed(&mut qp, &mut script, unasked(516), 1);
    assert!(qp.owes_acknowledgement_later() && !qp.owes_acknowledgement(1));
    qp.hasten_acknowledgement();
    assert!(qp.owes_acknowledgement(1) && !qp.owes_acknowledgement_later());
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 516)));
}

#[test]
fn a_packet_within_a_message_is_owed_nothing_where_it_does_not_ask() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    let mtu = qp.config().mtu.bytes();
    receive(&mut qp, 1, mtu as u32 + 1);
    let mut first = request(Opcode::RcSendFirst, 500);
    first.bth.ack_req = false;
    feed(&mut qp, &mut script, first, mtu);
    assert!(!qp.owes_acknowledgement_later() && !qp.owes_acknowledgement(1));
}

#[test]
fn as_long_as_something_is_missing_the_gap_is_reported_instead_of_an_acknowledgement() {
    let (mut qp, mut script) =
        (connected(|config| config.dialect = Dialect::Rocinante), Script { keeps: 8, ..Script::default() });
    receive(&mut qp, 1, 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 502), 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::PsnSequence), 501)));
    assert_eq!(script.maps, [[1 << 2], [1 << 1]]);
    // What waits for a receive says so, whatever is kept behind it.
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Rnr { timer: 12 }, 501)));
}

#[test]
fn an_acknowledgement_says_how_long_it_waited_only_where_both_ends_measure_delay() {
    use Algorithm::{Delay, Unlimited};
    for (dialect, congestion, echo) in [
        (Dialect::Rocinante, Delay, vec![[0, 0, 1, 0xf4]]),
        (Dialect::Rocinante, Unlimited, vec![]),
        (Dialect::Verbs, Delay, vec![]),
    ] {
        let change = |config: &mut Config| (config.dialect, config.congestion) = (dialect, congestion);
        let (mut qp, mut script) = (connected(change), Script::default());
        receive(&mut qp, 1, 1);
        qp.on_packet(1000, &Packet { headers: request(Opcode::RcSendOnly, 500), payload: &[0] }, &mut script);
        let _ = qp.pump_replies(1500, &mut unlimited(), &mut script);
        assert_eq!(script.maps, echo, "{dialect:?} {congestion:?}");
        assert_eq!(script.sent[0].1, 4 * echo.len());
    }
}

#[test]
fn the_longest_map_leaves_room_for_the_time_that_was_waited() {
    let change = |config: &mut Config| (config.dialect, config.congestion) = (Dialect::Rocinante, Algorithm::Delay);
    let (mut qp, mut script) = (connected(change), Script { keeps: 1, ..Script::default() });
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500 + SPAN - 1), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent[0].1, SACK_MAP_LEN + ECHO_LEN);
}

#[test]
fn reads_and_atomics_are_counted_as_messages_for_verbs_peers_only() {
    for (dialect, msns) in [(Dialect::Verbs, [1, 2, 3]), (Dialect::Rocinante, [0, 0, 1])] {
        let (mut qp, mut script) = (connected(|config| config.dialect = dialect), Script::default());
        let (read, write) = (with_reth(Opcode::RcReadRequest, 500, 0, 1), with_reth(Opcode::RcWriteOnly, 502, 0, 0));
        for headers in [read, add_one(501), write] {
            feed(&mut qp, &mut script, headers, 0);
            pump(&mut qp, &mut script);
        }
        let counts: Vec<_> = script.sent.iter().filter_map(|(headers, _)| Some(headers.ext.aeth?.msn)).collect();
        assert_eq!(counts, msns.map(Msn::new), "{dialect:?}");
    }
}

#[test]
fn a_notification_names_the_marked_packet_to_peers_of_our_own_only() {
    for (dialect, named) in [(Dialect::Verbs, 0), (Dialect::Rocinante, 499)] {
        let (mut qp, mut script) = (connected(|config| config.dialect = dialect), Script::default());
        qp.on_congestion_mark(0, Psn::new(499));
        assert!(qp.owes_acknowledgement(1));
        pump(&mut qp, &mut script);
        pump(&mut qp, &mut script);
        assert_eq!(script.opcodes(), [(Opcode::Cnp, named)], "{dialect:?}");
        let stats = qp.stats();
        assert_eq!((stats.np_ecn_marked_roce_packets, stats.np_cnp_sent, stats.tx_acks), (1, 1, 0));
    }
}

#[test]
fn the_last_response_holds_what_is_left() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 2 * MTU as u32 + 3), 0);
    pump(&mut qp, &mut script);
    let lens: Vec<_> = script.sent.iter().map(|&(_, len)| len).collect();
    assert_eq!((lens, qp.stats().tx_read_responses), (vec![MTU, MTU, 3], 3));
}

/// What a READ of three packets is answered with after so many SENDs that do not ask, and what is said of those afterwards.
fn answered(dialect: Dialect, sends: u32, asks: bool) -> (Vec<Opcode>, Vec<Opcode>) {
    let (mut qp, mut script) = (connected(|config| config.dialect = dialect), Script::default());
    for psn in 500..500 + sends {
        receive(&mut qp, 1, 1);
        let mut send = unasked(psn);
        send.bth.ack_req = asks;
        feed(&mut qp, &mut script, send, 1);
    }
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500 + sends, 0, 3 * MTU as u32), 0);
    qp.pump_responses(0, &mut unlimited(), &mut script).expect("the link takes all");
    let answers = script.opcodes().iter().map(|&(opcode, _)| opcode).collect();
    script.sent.clear();
    qp.hasten_acknowledgement();
    pump(&mut qp, &mut script);
    (answers, script.opcodes().iter().map(|&(opcode, _)| opcode).collect())
}

#[test]
fn answers_between_two_of_ours_are_of_one_length_but_where_an_acknowledgement_is_due() {
    const FIRST: Opcode = Opcode::RcReadResponseFirst;
    const MIDDLE: Opcode = Opcode::RcReadResponseMiddle;
    const LAST: Opcode = Opcode::RcReadResponseLast;
    for sends in [0, 1, 15, 16] {
        assert_eq!(answered(Dialect::Verbs, sends, false), (vec![FIRST, MIDDLE, LAST], vec![]), "{sends} sends");
    }
    for sends in [0, 1, 15] {
        assert_eq!(answered(Dialect::Rocinante, sends, false), (vec![MIDDLE; 3], vec![]), "{sends} sends");
    }
    // The answer says how many receives are posted, and so it need not be said once more.
    for (sends, asks) in [(16, false), (1, true)] {
        assert_eq!(answered(Dialect::Rocinante, sends, asks), (vec![FIRST, MIDDLE, MIDDLE], vec![]), "{sends} sends");
    }
}

#[test]
fn an_acknowledgement_that_has_only_waited_or_that_no_answer_covers_makes_none_longer() {
    let middles = [500, 501, 502].map(|at| (Opcode::RcReadResponseMiddle, at + 1));
    let ours = |config: &mut Config| config.dialect = Dialect::Rocinante;
    let (mut qp, mut script) = (connected(ours), Script::default());
    receive(&mut qp, 1, 1);
    feed(&mut qp, &mut script, unasked(500), 1);
    qp.hasten_acknowledgement();
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 3 * MTU as u32), 0);
    qp.pump_replies(0, &mut unlimited(), &mut script).expect("the link takes all");
    assert_eq!(script.opcodes(), middles, "the answer says that it was executed");
    script.sent.clear();
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 504, 0, 3 * MTU as u32), 0);
    receive(&mut qp, 2, 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 507), 1);
    qp.pump_replies(0, &mut unlimited(), &mut script).expect("the link takes all");
    assert_eq!(script.opcodes()[..3], middles.map(|(opcode, psn)| (opcode, psn + 3)));
    assert_eq!(script.opcodes()[3..], [(Opcode::RcAck, 507)]);
}

#[test]
fn responses_count_against_the_quantum_with_their_headers_and_their_data() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, MTU as u32 + 3), 0);
    feed(&mut qp, &mut script, add_one(502), 0);
    let mut quantum = Quantum::new(1000);
    qp.pump_responses(0, &mut quantum, &mut script).expect("the link takes all");
    let spent = 3 * quantum::HEADER_BYTES + MTU + 3;
    assert_eq!((script.sent.len(), quantum), (3, Quantum::new(1000 - spent.cast_signed())));
}

#[test]
fn responses_are_spaced_as_congestion_control_has_it() {
    // A nanosecond for each byte.
    let dcqcn = |config: &mut Config| {
        (config.congestion, config.link_rate) = (Algorithm::Dcqcn, 8_000_000_000);
    };
    let (mut qp, mut script) = (connected(dcqcn), Script::default());
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 3 * MTU as u32), 0);
    let (mut now, spacing) = (0, (MTU + quantum::HEADER_BYTES) as u64);
    for psn in 500..503 {
        assert!(qp.owes_responses());
        let _ = qp.pump_replies(now, &mut unlimited(), &mut script);
        assert_eq!(script.opcodes().last().map(|&(_, last)| last), Some(psn), "one at a time");
        assert!(!qp.owes_responses(), "the next one, if any, may not leave yet");
        assert_eq!(qp.deadline(), (psn < 502).then_some(now + spacing));
        now += spacing;
        qp.on_timeout(now, &mut script);
    }
}

#[test]
fn an_opcode_that_means_nothing_is_refused_where_the_next_request_is_expected() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    for psn in [499, 501] {
        qp.on_unknown_opcode(Psn::new(psn), &mut script);
    }
    assert_eq!(qp.state(), State::Rts);
    qp.on_unknown_opcode(Psn::new(500), &mut script);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::InvalidRequest), 500)));
    assert_eq!((qp.state(), qp.stats().resp_invalid_request), (State::Error, 1));
    let (mut qp, mut script) = (RcQueuePair::new(Config::default()), Script::default());
    qp.on_unknown_opcode(Psn::default(), &mut script);
    assert_eq!(qp.state(), State::Init, "it takes no requests yet");
}

#[test]
#[should_panic(expected = "an acknowledgement of nothing is owed")]
fn the_check_of_a_queue_pair_looks_at_the_responder() {
    let mut qp = connected(|_| ());
    qp.check();
    qp.responder.acknowledgement.owe(Owed::Ack);
    qp.check();
}
