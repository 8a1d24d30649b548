//! Selective repeat: which repairs are under way still, and what is said of packets that came early.

use super::selective::{gap, selective};
use super::*;

const fn middle(psn: u32) -> Headers {
    Headers::plain(Bth::new(Opcode::RcReadResponseMiddle, Qpn::new(1), Psn::new(psn)))
}

/// The first PSN and the length, in packets, of each READ that is sent now; of other requests the length is 0.
fn asked(qp: &mut RcQueuePair<u32>, script: &mut Script) -> Vec<(u32, u32)> {
    script.sent.clear();
    pump(qp, script);
    qp.check();
    let len = |headers: &Headers| headers.ext.reth.map_or(0, |reth| reth.len / MTU as u32);
    script.sent.iter().map(|(headers, _)| (headers.bth.psn.get(), len(headers))).collect()
}

#[test]
fn while_answers_to_a_repair_come_no_others_are_asked_for() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, middle(103), MTU);
    assert_eq!(asked(&mut qp, &mut script), [(100, 3)]);
    feed(&mut qp, &mut script, middle(100), MTU);
    assert_eq!(asked(&mut qp, &mut script), [], "101 and 102 may be on their way");
    feed(&mut qp, &mut script, middle(102), MTU);
    assert_eq!(asked(&mut qp, &mut script), [(101, 1)], "answers come in order: this one was lost");
}

#[test]
fn a_lost_read_is_asked_for_under_its_own_number_while_an_earlier_one_is_in_repair() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, MTU);
    read(&mut qp, 2, 3 * MTU);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, middle(102), MTU);
    assert_eq!(asked(&mut qp, &mut script), [(100, 1), (101, 1)]);
}

#[test]
fn a_read_that_a_gap_or_silence_asks_for_is_repeated_as_a_whole() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    read(&mut qp, 1, MTU);
    read(&mut qp, 2, 3 * MTU);
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 101, &[]);
    assert_eq!(asked(&mut qp, &mut script), [(101, 3), (100, 1)]);
    gap(&mut qp, &mut script, 101, &[]);
    assert_eq!(asked(&mut qp, &mut script), [], "once a round trip");
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    read(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    qp.on_timeout(1000, &mut script);
    assert_eq!(asked(&mut qp, &mut script), [(100, 4)]);
}

#[test]
fn a_repair_of_a_read_is_lost_only_once_something_sent_later_has_arrived() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    read(&mut qp, 1, MTU);
    send(&mut qp, 2, 1);
    send(&mut qp, 3, 1);
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 100, &[1]);
    assert_eq!(asked(&mut qp, &mut script), [(100, 1)]);
    gap(&mut qp, &mut script, 100, &[1, 2]);
    assert_eq!(asked(&mut qp, &mut script), [], "102 had left before it");
}

#[test]
fn a_repair_that_the_peer_keeps_shows_that_an_earlier_one_is_lost() {
    // A SEND, four answers' worth of a READ, and two more SENDs.
    let lost = |kept: &[u32]| {
        let (mut qp, mut script) = (selective(|_| ()), Script::default());
        send(&mut qp, 1, 1);
        read(&mut qp, 2, 4 * MTU);
        send(&mut qp, 3, 1);
        send(&mut qp, 4, 1);
        pump(&mut qp, &mut script);
        gap(&mut qp, &mut script, 100, &[6]);
        assert_eq!(asked(&mut qp, &mut script), [(100, 0), (101, 4), (105, 0)]);
        gap(&mut qp, &mut script, 100, kept);
        asked(&mut qp, &mut script)
    };
    assert_eq!(lost(&[1, 6]), [(100, 0)], "the READ was kept, though not executed");
    assert_eq!(lost(&[1, 5, 6]), [(100, 0)], "both were");
    assert_eq!(lost(&[5, 6]), [(100, 0), (101, 4)]);
}

#[test]
fn what_silence_asked_for_is_not_sent_again_if_it_is_acknowledged_meanwhile() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    qp.on_timeout(1000, &mut script);
    feed(&mut qp, &mut script, answer(100, ACK), 0);
    send(&mut qp, 2, 1);
    assert_eq!(asked(&mut qp, &mut script), [(101, 0)]);
}

#[test]
fn a_report_restarts_the_timer_only_if_it_covers_more() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..4).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    for (now, map, deadline) in [(500, 0b0010, 1500), (600, 0b0010, 1500), (700, 0b0110, 1700), (800, 0b0100, 1700)] {
        let headers = answer(100, Syndrome::Nak(NakCode::PsnSequence));
        qp.on_packet(now, &Packet { headers, payload: &[map, 0, 0, 0, 0, 0, 0, 0] }, &mut script);
        assert_eq!(qp.deadline(), Some(deadline), "at {now}");
    }
}

#[test]
fn a_gap_ends_the_fast_start_of_the_controller() {
    let change = |config: &mut Config| (config.congestion, config.mtu) = (congestion::Algorithm::Delay, Mtu::Mtu4096);
    let (mut qp, mut script) = (selective(change), Script::default());
    (0..64).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    assert!(script.sent.len() < 64, "the controller's window is full");
    gap(&mut qp, &mut script, 101, &[1]);
    assert_eq!(
        asked(&mut qp, &mut script),
        [(101, 0)],
        "one packet was executed, and yet none but the repair finds room"
    );
}

#[test]
fn towards_a_peer_that_keeps_nothing_there_are_no_repairs() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    // So it is half of all PSNs after the first one: nothing here has followed what was acknowledged.
    qp.requester.scoreboard.executed_before(Psn::new(1000));
    read(&mut qp, 1, MTU);
    assert_eq!(asked(&mut qp, &mut script), [(100, 1)]);
    assert_eq!(asked(&mut qp, &mut script), []);
}

#[test]
fn a_response_to_what_is_no_read_is_stale() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, MTU);
    send(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, middle(101), MTU);
    assert_eq!((qp.stats().stale_response, qp.stats().rx_held), (1, 0));
}

#[test]
fn of_two_early_responses_that_disagree_neither_is_believed() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, 2 * MTU);
    pump(&mut qp, &mut script);
    let counts = |qp: &RcQueuePair<u32>| (qp.stats().rx_held, qp.stats().stale_response, qp.stats().rx_held_conflicts);
    feed(&mut qp, &mut script, middle(101), MTU);
    assert_eq!(counts(&qp), (1, 0, 0));
    feed(&mut qp, &mut script, middle(101), MTU);
    assert_eq!(counts(&qp), (1, 1, 0), "it came twice");
    script.disagrees = true;
    feed(&mut qp, &mut script, middle(101), MTU);
    assert_eq!(counts(&qp), (1, 1, 1));
    assert_eq!(script.released, [Held::Response(101)]);
    feed(&mut qp, &mut script, middle(100), MTU);
    assert_eq!(qp.take_held(), None);
}

#[test]
fn responses_that_were_given_back_are_asked_for_again_and_requests_are_not() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, 3 * MTU);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    qp.give_back_held();
    let _ = qp.pump_replies(0, &mut unlimited(), &mut script);
    assert_eq!(asked(&mut qp, &mut script), []);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    let _ = qp.pump_replies(0, &mut unlimited(), &mut script);
    feed(&mut qp, &mut script, middle(102), MTU);
    qp.give_back_held();
    assert_eq!(qp.stats().rx_held_expired, 3);
    assert_eq!(asked(&mut qp, &mut script), [(100, 3)]);
}

#[test]
fn an_early_packet_is_of_use_once_and_after_an_rnr_nak_no_gap_is_reported() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    let early = Packet { headers: request(Opcode::RcSendOnly, 501), payload: &[] };
    assert!(qp.on_packet(0, &early, &mut script));
    assert!(!qp.on_packet(0, &early, &mut script));
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    assert!(matches!(script.last_syndrome(), Some((Syndrome::Rnr { .. }, 500))));
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
}
