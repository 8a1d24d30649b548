//! End-to-end credits and shared receives.

use super::*;

fn credit(psn: u32, msn: u32, code: u8) -> Headers {
    let mut headers = answer(psn, Syndrome::Ack { credit: code });
    headers.ext.aeth = Some(Aeth { syndrome: Syndrome::Ack { credit: code }, msn: Msn::new(msn) });
    headers
}

fn cautious() -> RcQueuePair<u32> {
    connected(|config| config.end_to_end_credits = true)
}

#[test]
fn before_the_peer_has_spoken_one_message_asks() {
    let (mut qp, mut script) = (cautious(), Script::default());
    (1..=4).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1);
    // It has taken one message and has two receives more: a third message may ask.
    feed(&mut qp, &mut script, credit(100, 1, 2), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 4);
}

#[test]
fn writes_and_reads_need_no_credit() {
    let (mut qp, mut script) = (cautious(), Script::default());
    send(&mut qp, 1, 1);
    post(&mut qp, 2, SendOp::Write { remote: Remote { va: 0, rkey: KEY }, imm: None }, 1);
    read(&mut qp, 3, 1);
    post(&mut qp, 4, SendOp::Write { remote: Remote { va: 0, rkey: KEY }, imm: Some(1) }, 1);
    pump(&mut qp, &mut script);
    let sent: Vec<_> = script.opcodes().into_iter().map(|(opcode, _)| opcode).collect();
    assert_eq!(sent, [Opcode::RcSendOnly, Opcode::RcWriteOnly, Opcode::RcReadRequest]);
}

#[test]
fn a_peer_that_does_not_count_is_never_waited_for_again() {
    let (mut qp, mut script) = (cautious(), Script::default());
    (1..=9).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, credit(100, 1, 31), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 9);
}

#[test]
fn what_was_sent_is_sent_again_whatever_the_credits() {
    let (mut qp, mut script) = (cautious(), Script::default());
    send(&mut qp, 1, 1);
    pump(&mut qp, &mut script);
    feed(&mut qp, &mut script, credit(100, 1, 1), 0);
    (2..=4).for_each(|wr_id| send(&mut qp, wr_id, 1));
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 3);
    feed(&mut qp, &mut script, answer(101, Syndrome::Nak(NakCode::PsnSequence)), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 5);
}

#[test]
fn acknowledgements_tell_how_many_receives_are_posted() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    (0..6).for_each(|wr_id| receive(&mut qp, wr_id, 1));
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 4 }, 500)), "five are left, the code says 4");
}

#[test]
fn shared_receives_are_taken_when_needed_and_never_advertised() {
    let (mut qp, mut script) = (connected(|config| config.shared_receives = true), Script::default());
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Rnr { timer: 12 }, 500)));
    script.shared.push(RecvRequest { wr_id: 3, buffer: 0, len: 1 });
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((ACK, 500)));
    assert_eq!(script.statuses(), [(3, WcStatus::Success)]);
    let own = RecvRequest { wr_id: 4, buffer: 0, len: 1 };
    assert_eq!(qp.post_recv(own).expect_err("shared").reason, RcPostError::SharedReceives);
}
