//! Selective repeat between two peers of our own, and the notifications of congestion.

use super::*;

const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequence);

pub(super) fn selective(change: impl FnOnce(&mut Config)) -> RcQueuePair<u32> {
    connected(|config| {
        config.dialect = Dialect::Rocinante;
        change(config);
    })
}

/// A report of a gap at `psn`, with a map of the packets that follow it by these distances.
pub(super) fn gap(qp: &mut RcQueuePair<u32>, script: &mut Script, psn: u32, kept: &[u32]) {
    let mut map = vec![0; if kept.is_empty() { 0 } else { 32 }];
    for &distance in kept {
        map[distance as usize / 8] |= 1 << (distance % 8);
    }
    qp.on_packet(0, &Packet { headers: answer(psn, GAP), payload: &map }, script);
}

fn psns(script: &Script) -> Vec<u32> {
    script.sent.iter().map(|(headers, _)| headers.bth.psn.get()).collect()
}

#[test]
fn only_what_is_missing_is_sent_again() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..8).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    script.sent.clear();
    gap(&mut qp, &mut script, 102, &[1, 3]);
    pump(&mut qp, &mut script);
    assert_eq!(psns(&script), [102, 104], "103 and 105 are kept; what follows them may be on its way");
    assert_eq!((qp.stats().tx_requests, qp.stats().retransmitted_packets), (10, 2));
    assert_eq!(script.done.len(), 2, "100 and 101 were executed before the gap");
    gap(&mut qp, &mut script, 102, &[1, 3]);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 2, "once a round trip");
}

#[test]
fn what_the_peer_keeps_is_not_done() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..4).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 100, &[1, 2, 3]);
    pump(&mut qp, &mut script);
    assert!(script.done.is_empty());
    feed(&mut qp, &mut script, answer(103, ACK), 0);
    assert_eq!(script.done.len(), 4);
}

#[test]
fn a_repair_that_is_lost_too_is_sent_again_once_something_later_has_arrived() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..3).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 100, &[1, 2]);
    pump(&mut qp, &mut script);
    send(&mut qp, 3, 1);
    pump(&mut qp, &mut script);
    script.sent.clear();
    gap(&mut qp, &mut script, 100, &[1, 2, 3]);
    pump(&mut qp, &mut script);
    assert_eq!(psns(&script), [100]);
}

#[test]
fn a_gap_behind_everything_sent_acknowledges_it() {
    // Somebody has forged a packet of the future, and the peer keeps it: it reports that gap instead of an acknowledgement.
    let (mut qp, mut script) = (selective(|config| config.end_to_end_credits = true), Script::default());
    for wr_id in 0..4 {
        send(&mut qp, wr_id, 1);
        pump(&mut qp, &mut script);
        let psn = 101 + wr_id as u32;
        let mut headers = answer(psn, GAP);
        headers.ext.aeth = Some(Aeth { syndrome: GAP, msn: Msn::new(1 + wr_id as u32) });
        let mut map = [0; 32];
        map[3] = 1;
        qp.on_packet(0, &Packet { headers, payload: &map }, &mut script);
        assert_eq!(script.done.len() as u64, wr_id + 1, "and gives the credit for one more message");
    }
    assert_eq!((script.sent.len(), qp.stats().ghost_ack), (4, 0));
}

#[test]
fn a_read_whose_answers_are_lost_is_repaired_as_soon_as_the_peer_has_spoken() {
    for word in [ACK, GAP] {
        let (mut qp, mut script) = (selective(|_| ()), Script::default());
        read(&mut qp, 1, 1);
        send(&mut qp, 2, 1);
        pump(&mut qp, &mut script);
        qp.on_timeout(1 << 40, &mut script);
        pump(&mut qp, &mut script);
        script.sent.clear();
        // Everything was executed: so says an acknowledgement of the last packet, or a gap behind it.
        let psn = if word == ACK { 101 } else { 102 };
        feed(&mut qp, &mut script, answer(psn, word), 0);
        pump(&mut qp, &mut script);
        assert_eq!(script.opcodes(), [(Opcode::RcReadRequest, 100)], "{word:?}");
    }
}

#[test]
fn a_gap_without_a_map_asks_for_its_first_packet() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..3).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    script.sent.clear();
    gap(&mut qp, &mut script, 101, &[]);
    pump(&mut qp, &mut script);
    assert_eq!(psns(&script), [101]);
    feed(&mut qp, &mut script, answer(101, ACK), 0);
    pump(&mut qp, &mut script);
    assert_eq!(psns(&script), [101, 102], "the answer to a repair has no map: nothing is kept");
}

#[test]
fn silence_is_broken_by_the_last_packet_and_then_by_the_oldest() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..3).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    script.sent.clear();
    let mut now = 0;
    for due in [102, 100, 100] {
        now = qp.deadline().expect("something is outstanding").max(now);
        qp.on_timeout(now, &mut script);
        let _ = qp.pump_requests(now, &mut unlimited(), &mut script);
        assert_eq!(psns(&script).last(), Some(&due));
    }
    assert_eq!(script.sent.len(), 3, "one packet at a time");
}

#[test]
fn early_packets_are_kept_and_executed_in_order_when_the_gap_closes() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    (0..3).for_each(|wr_id| receive(&mut qp, wr_id, 1));
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 502), 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((GAP, 500)));
    assert_eq!(script.maps, [[6]], "two packets beyond the gap");
    assert_eq!(qp.take_held(), None);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    for psn in [501, 502] {
        assert_eq!(qp.take_held(), Some(Held::Request(psn)));
        qp.on_held_packet(0, &Packet { headers: request(Opcode::RcSendOnly, psn), payload: &[0] }, &mut script);
    }
    assert_eq!(qp.take_held(), None);
    assert_eq!((script.done.len(), qp.stats().rx_held, qp.stats().rx_held_executed), (3, 2, 2));
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 0 }, 502)));
}

#[test]
fn a_packet_that_cannot_be_kept_is_reported_missing() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((GAP, 500)));
    assert!(script.maps.is_empty());
}

#[test]
fn packets_too_far_ahead_are_not_kept() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500 + recovery::SPAN), 1);
    assert_eq!((script.keeps, qp.stats().out_of_sequence), (8, 1));
}

#[test]
fn early_responses_are_kept_and_only_the_missing_ones_asked_for() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, 4 * MTU);
    pump(&mut qp, &mut script);
    let response = |psn| {
        let mut headers = request(Opcode::RcReadResponseMiddle, psn);
        headers.bth.ack_req = false;
        headers
    };
    feed(&mut qp, &mut script, response(102), MTU);
    pump(&mut qp, &mut script);
    let again = script.sent.last().expect("a repair").0;
    assert_eq!((again.bth.opcode, again.bth.psn), (Opcode::RcReadRequest, Psn::new(100)));
    assert_eq!(again.ext.reth.map(|reth| (reth.va, reth.len)), Some((0, 2 * MTU as u32)));
    feed(&mut qp, &mut script, response(100), MTU);
    feed(&mut qp, &mut script, response(101), MTU);
    assert_eq!(qp.take_held(), Some(Held::Response(102)));
    feed(&mut qp, &mut script, response(102), MTU);
    let mut last = request(Opcode::RcReadResponseLast, 103);
    last.ext.aeth = Some(Aeth { syndrome: ACK, msn: Msn::new(1) });
    feed(&mut qp, &mut script, last, MTU);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(script.placed.len(), 4);
}

#[test]
fn maps_from_a_peer_that_agreed_to_none_are_refused() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 100, &[1]);
    assert_eq!(qp.stats().bad_response, 1);
}

#[test]
fn a_map_that_names_packets_never_sent_changes_nothing() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 100, &[1, 5, 200]);
    pump(&mut qp, &mut script);
    assert!(script.done.is_empty());
    feed(&mut qp, &mut script, answer(100, ACK), 0);
    assert_eq!(script.done.len(), 1);
}

#[test]
fn marks_cause_notifications_now_and_then_and_notifications_take_effect() {
    let (mut qp, mut script) =
        (connected(|config| config.congestion = congestion::Algorithm::Dcqcn), Script::default());
    for now in [0, 10_000, 49_999, 50_000] {
        qp.on_congestion_mark(now, Psn::new(500));
        let _ = qp.pump_replies(now, &mut unlimited(), &mut script);
    }
    let notifications: Vec<_> = script.sent.iter().filter(|(headers, _)| headers.bth.opcode == Opcode::Cnp).collect();
    assert_eq!(notifications.len(), 2);
    assert!(notifications.iter().all(|(headers, len)| headers.bth.becn && *len == 16));
    let mut notification = Headers::plain(Bth::new(Opcode::Cnp, Qpn::new(1), Psn::new(0)));
    notification.bth.becn = true;
    feed(&mut qp, &mut script, notification, 16);
    assert_eq!(qp.stats().rp_cnp_handled, 1);
    (0..3).for_each(|wr_id| send(&mut qp, wr_id, 100));
    let _ = qp.pump_requests(1_000_000, &mut unlimited(), &mut script);
    assert!(qp.deadline().is_some());
}

#[test]
fn a_peer_that_reports_the_same_gap_for_ever_is_given_up() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..3).for_each(|wr_id| send(&mut qp, wr_id, 1));
    let mut now = 0;
    for _ in 0..50 {
        let _ = qp.pump_requests(now, &mut unlimited(), &mut script);
        gap(&mut qp, &mut script, 100, &[1, 2]);
        let Some(deadline) = qp.deadline() else { break };
        now = now.max(deadline);
        qp.on_timeout(now, &mut script);
    }
    assert_eq!(qp.state(), State::Error);
    assert_eq!(script.statuses()[0], (0, WcStatus::RetryExcErr));
}

#[test]
fn what_was_kept_within_a_reads_answers_is_forgotten_and_the_read_served() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 502), 1);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 3 * MTU as u32), 0);
    assert_eq!((qp.state(), qp.stats().rx_held_conflicts), (State::Rts, 1));
    assert_eq!(script.released, [Held::Request(502)]);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 3);
    assert_eq!(qp.take_held(), None);
}

#[test]
fn of_two_early_packets_that_disagree_neither_is_believed() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    receive(&mut qp, 1, 1);
    receive(&mut qp, 2, 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    assert_eq!((qp.stats().rx_held, qp.stats().rx_held_conflicts), (1, 0), "it came twice");
    script.disagrees = true;
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    assert_eq!(qp.stats().rx_held_conflicts, 1);
    assert_eq!(script.released, [Held::Request(501)]);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    assert_eq!(qp.take_held(), None);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    assert_eq!(script.done.len(), 2, "the genuine one comes again");
}

#[test]
fn a_kept_packet_that_would_end_the_connection_is_forgotten_and_asked_for_again() {
    let kept = [
        (request(Opcode::RcSendOnly, 501), 9),
        (request(Opcode::RcSendMiddle, 501), MTU),
        (with_reth(Opcode::RcWriteOnly, 501, REGION, 1), 1),
        (with_reth(Opcode::RcReadRequest, 501, REGION, 1), 0),
    ];
    for (headers, len) in kept {
        let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
        receive(&mut qp, 1, 1);
        receive(&mut qp, 2, 1);
        feed(&mut qp, &mut script, headers, len);
        feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
        assert_eq!(qp.take_held(), Some(Held::Request(501)));
        let payload = vec![0; len];
        qp.on_held_packet(0, &Packet { headers, payload: &payload }, &mut script);
        assert_eq!((qp.state(), qp.stats().rx_held_refused), (State::Rts, 1), "{:?}", headers.bth.opcode);
        pump(&mut qp, &mut script);
        assert_eq!(script.last_syndrome(), Some((GAP, 501)));
        feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
        assert_eq!(script.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    }
}

#[test]
fn a_kept_packet_that_does_not_belong_there_leaves_the_message_in_progress_alone() {
    let forged = [request(Opcode::RcSendOnly, 502), with_reth(Opcode::RcReadRequest, 502, 0, 1)];
    let begun = [
        [request(Opcode::RcSendFirst, 500), request(Opcode::RcSendMiddle, 501), request(Opcode::RcSendMiddle, 502)],
        [
            with_reth(Opcode::RcWriteFirst, 500, 0, 4 * MTU as u32),
            request(Opcode::RcWriteMiddle, 501),
            request(Opcode::RcWriteMiddle, 502),
        ],
    ];
    for ([first, second, third], forged) in begun.into_iter().flat_map(|genuine| forged.map(|one| (genuine, one))) {
        let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
        receive(&mut qp, 1, 4 * MTU as u32);
        feed(&mut qp, &mut script, first, MTU);
        feed(&mut qp, &mut script, forged, 0);
        feed(&mut qp, &mut script, second, MTU);
        assert_eq!(qp.take_held(), Some(Held::Request(502)));
        qp.on_held_packet(0, &Packet { headers: forged, payload: &[] }, &mut script);
        feed(&mut qp, &mut script, third, MTU);
        assert_eq!((qp.state(), qp.stats().rx_requests), (State::Rts, 3), "{:?}", forged.bth.opcode);
    }
}

#[test]
fn what_the_peer_reports_missing_is_sent_again_though_it_was_reported_kept_before() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    (0..4).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    gap(&mut qp, &mut script, 100, &[1, 2, 3]);
    pump(&mut qp, &mut script);
    script.sent.clear();
    // It has executed 100, and given 101 up.
    gap(&mut qp, &mut script, 101, &[1, 2]);
    pump(&mut qp, &mut script);
    assert_eq!(psns(&script), [101]);
}

#[test]
fn a_read_that_reaches_half_around_all_psns_is_invalid() {
    for change in [(|_: &mut Config| ()) as fn(&mut Config), |config| config.dialect = Dialect::Rocinante] {
        let (mut qp, mut script) = (connected(change), Script::default());
        feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, 1 << 31), 0);
        assert_eq!((qp.state(), qp.stats().resp_invalid_request), (State::Error, 1));
        // One packet fewer would do: there it is the region that is too short.
        let (mut qp, mut script) = (connected(change), Script::default());
        feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 500, 0, (1 << 31) - MTU as u32), 0);
        let stats = qp.stats();
        assert_eq!((stats.resp_invalid_request, stats.resp_remote_access_errors), (0, 1));
    }
}

#[test]
fn a_kept_response_that_does_not_fit_is_asked_for_again() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    read(&mut qp, 1, 2 * MTU);
    pump(&mut qp, &mut script);
    let middle = |psn| request(Opcode::RcReadResponseMiddle, psn);
    feed(&mut qp, &mut script, middle(101), MTU - 4);
    feed(&mut qp, &mut script, middle(100), MTU);
    assert_eq!(qp.take_held(), Some(Held::Response(101)));
    let payload = [0; MTU - 4];
    qp.on_held_packet(0, &Packet { headers: middle(101), payload: &payload }, &mut script);
    assert_eq!((qp.stats().rx_held, qp.stats().rx_held_refused), (1, 1));
    script.sent.clear();
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcReadRequest, 101)]);
    feed(&mut qp, &mut script, middle(101), MTU);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn what_waits_too_long_is_given_back_and_may_come_again() {
    let (mut qp, mut script) = (selective(|_| ()), Script { keeps: 8, ..Script::default() });
    receive(&mut qp, 1, 1);
    receive(&mut qp, 2, 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    qp.give_back_held();
    assert_eq!(qp.stats().rx_held_expired, 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    assert_eq!(qp.take_held(), None);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    assert_eq!(script.done.len(), 2);
}

#[test]
fn a_long_read_is_asked_for_in_parts_that_fit_the_window() {
    let (mut qp, mut script) = (selective(|config| config.window = 16), Script::default());
    read(&mut qp, 1, 64 * MTU);
    pump(&mut qp, &mut script);
    let lens: Vec<_> = script.sent.iter().filter_map(|(headers, _)| Some(headers.ext.reth?.len / MTU as u32)).collect();
    assert_eq!((lens.len(), lens.iter().sum::<u32>()), (2, 12));
    assert_eq!(script.opcodes()[1], (Opcode::RcReadRequest, 106), "three eighths of the window each");
    script.sent.clear();
    for psn in 100..164 {
        feed(&mut qp, &mut script, request(Opcode::RcReadResponseMiddle, psn), MTU);
        pump(&mut qp, &mut script);
    }
    assert_eq!(script.sent.len(), 9);
    assert_eq!(script.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn a_notification_is_believed_only_of_what_was_sent_of_late() {
    const FIRST: [u32; 2] = [1 << 18, 1 << 20];
    let recent = RECENT as u32;
    for (dialect, of_nics) in [(Dialect::Verbs, 1), (Dialect::Rocinante, 0)] {
        let change = |config: &mut Config| {
            (config.dialect, config.congestion) = (dialect, congestion::Algorithm::Dcqcn);
            [config.sq_psn, config.rq_psn] = FIRST.map(Psn::new);
        };
        let (mut qp, mut script) = (connected(change), Script::default());
        send(&mut qp, 1, 1);
        pump(&mut qp, &mut script);
        let mut notify = |psn| {
            feed(&mut qp, &mut script, Headers::plain(Bth::new(Opcode::Cnp, Qpn::new(1), Psn::new(psn))), 16);
            (qp.stats().rp_cnp_handled, qp.stats().rp_cnp_ignored)
        };
        // What was sent ends at one, what is expected begins at the other.
        for (rounds, end) in (0..).zip([FIRST[0] + 1, FIRST[1]]) {
            assert_eq!(notify(end - 1), (3 * rounds + 1, 2 * rounds), "psn {end}");
            assert_eq!(notify(end - 2), (3 * rounds + 2, 2 * rounds));
            assert_eq!(notify(end - recent), (3 * rounds + 3, 2 * rounds));
            assert_eq!(notify(end - recent - 1), (3 * rounds + 3, 2 * rounds + 1));
            assert_eq!(notify(end), (3 * rounds + 3, 2 * rounds + 2));
        }
        assert_eq!(notify(0), (6 + of_nics, 5 - of_nics), "NICs name no packet");
    }
}

#[test]
fn after_an_rnr_wait_the_refused_packet_is_sent_even_if_an_earlier_read_is_not_answered() {
    let (mut qp, mut script) = (selective(|_| ()), Script::default());
    read(&mut qp, 1, 1);
    send(&mut qp, 2, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, answer(101, Syndrome::Rnr { timer: 1 }), 0);
    let until = qp.deadline().expect("it waits");
    script.sent.clear();
    qp.on_timeout(until, &mut script);
    let _ = qp.pump_requests(until, &mut unlimited(), &mut script);
    assert!(psns(&script).contains(&101), "{:?}", psns(&script));
}
