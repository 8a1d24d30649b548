//! READs that are asked for again: what is answered, how often, and what is forgotten.

use super::*;

const BYTES: u32 = MTU as u32;

/// The request for `packets` packets of a READ that began at `first` with address 0, from `psn` on.
fn again(first: u32, psn: u32, packets: u32) -> Headers {
    with_reth(Opcode::RcReadRequest, psn, u64::from((psn - first) * BYTES), packets * BYTES)
}

/// Asks for a READ of `packets` packets.
fn ask(qp: &mut RcQueuePair<u32>, script: &mut Script, psn: u32, packets: u32) {
    feed(qp, script, again(psn, psn, packets), 0);
}

/// The PSNs of what is sent now.
fn sent(qp: &mut RcQueuePair<u32>, script: &mut Script) -> Vec<u32> {
    script.sent.clear();
    pump(qp, script);
    script.sent.iter().map(|(headers, _)| headers.bth.psn.get()).collect()
}

#[test]
fn a_part_is_repeated_only_if_it_is_whole_packets_of_the_read() {
    // From the second of four packets on.
    let cases = [
        (2 * BYTES, vec![501, 502]),
        (3 * BYTES, vec![501, 502, 503]),
        (0, vec![]),
        (BYTES + 1, vec![]),
        (3 * BYTES - 1, vec![]),
        (3 * BYTES + 1, vec![]),
        (4 * BYTES, vec![]),
    ];
    for (len, expected) in cases {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        ask(&mut qp, &mut script, 500, 4);
        pump(&mut qp, &mut script);
        feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, MTU as u64, len), 0);
        let stats = *qp.stats();
        let dropped = u64::from(expected.is_empty());
        assert_eq!((stats.duplicate_request, stats.duplicate_dropped), (1, dropped), "{len} bytes");
        assert_eq!(sent(&mut qp, &mut script), expected, "{len} bytes");
    }
}

#[test]
fn a_read_that_is_asked_for_again_before_it_is_answered_in_full_starts_again_and_is_not_answered_twice() {
    let (mut qp, mut script) = (connected(|_| ()), Script { room: Some(1), ..Script::default() });
    ask(&mut qp, &mut script, 500, 3);
    assert_eq!(sent(&mut qp, &mut script), [500]);
    ask(&mut qp, &mut script, 500, 3);
    script.room = None;
    assert_eq!(sent(&mut qp, &mut script), [500, 501, 502]);
}

#[test]
fn a_read_that_is_asked_for_again_is_answered_before_a_later_one_that_waits() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    ask(&mut qp, &mut script, 500, 3);
    pump(&mut qp, &mut script);
    ask(&mut qp, &mut script, 503, 3);
    ask(&mut qp, &mut script, 500, 3);
    assert_eq!(sent(&mut qp, &mut script), (500..506).collect::<Vec<_>>());
}

#[test]
fn a_peer_that_asks_again_and_again_has_two_answers_waiting_for_each_read_that_it_may_have() {
    for limit in [1, 3] {
        let (mut qp, mut script) = (connected(|config| config.max_dest_rd_atomic = limit), Script::default());
        ask(&mut qp, &mut script, 500, 4);
        pump(&mut qp, &mut script);
        (0..10).for_each(|_| feed(&mut qp, &mut script, again(500, 501, 1), 0));
        assert_eq!(sent(&mut qp, &mut script), vec![501; 2 * limit]);
        assert_eq!(qp.stats().duplicate_dropped, 10 - 2 * limit as u64);
    }
}

#[test]
fn a_new_read_ends_the_replay_of_the_oldest_and_of_no_other() {
    let (mut qp, mut script) = (connected(|config| config.max_dest_rd_atomic = 2), Script::default());
    ask(&mut qp, &mut script, 500, 1);
    ask(&mut qp, &mut script, 501, 1);
    pump(&mut qp, &mut script);
    for psn in [500, 501, 502] {
        ask(&mut qp, &mut script, psn, 1);
    }
    assert_eq!(sent(&mut qp, &mut script), [501, 502]);
}
