//! Packet scripts: one scenario each, against one side alone.

use super::*;
use crate::wire::{Aeth, Bth, Headers, ImmDt, NakCode, Reth, Syndrome};
use crate::{Access, Msn, Mtu, Psn, Qpn, Rkey};

const MTU: usize = 256;
const KEY: Rkey = Rkey(7);
const REGION: u64 = 4096;

/// A world that writes down what it is asked for.
#[derive(Default)]
struct Script {
    sent: Vec<(Headers, usize)>,
    placed: Vec<(usize, usize)>,
    written: Vec<(u64, usize)>,
    done: Vec<Completion<u32>>,
    /// Packets that the link still takes.
    room: Option<usize>,
    /// The region has gone.
    is_revoked: bool,
}

impl Env for Script {
    type Buffer = u32;

    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, u32>) -> Result<(), TxError> {
        if self.room == Some(0) {
            return Err(TxError::Busy);
        }
        self.room = self.room.map(|room| room - 1);
        let len = match payload {
            Payload::None => 0,
            Payload::Local { len, .. } => len,
            Payload::Remote { .. } if self.is_revoked => return Err(TxError::Denied),
            Payload::Remote { len, .. } => len,
        };
        self.sent.push((*headers, len));
        Ok(())
    }

    fn place(&mut self, _: &mut u32, offset: usize, bytes: &[u8]) {
        self.placed.push((offset, bytes.len()));
    }

    fn authorize(&self, rkey: Rkey, va: u64, len: u64, _: Access) -> Result<(), Denied> {
        if rkey == KEY && va + len <= REGION && !self.is_revoked { Ok(()) } else { Err(Denied) }
    }

    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.authorize(rkey, va, bytes.len() as u64, Access::REMOTE_WRITE)?;
        self.written.push((va, bytes.len()));
        Ok(())
    }

    fn complete(&mut self, completion: Completion<u32>) {
        self.done.push(completion);
    }
}

impl Script {
    fn opcodes(&self) -> Vec<(Opcode, u32)> {
        self.sent.iter().map(|(headers, _)| (headers.bth.opcode, headers.bth.psn.get())).collect()
    }

    fn statuses(&self) -> Vec<(u64, WcStatus)> {
        self.done.iter().map(|done| (done.wr_id, done.status)).collect()
    }

    fn last_syndrome(&self) -> Option<(Syndrome, u32)> {
        let (headers, _) = self.sent.last()?;
        Some((headers.ext.aeth?.syndrome, headers.bth.psn.get()))
    }
}

fn connected(change: impl FnOnce(&mut Config)) -> QueuePair<u32> {
    let mut config = Config {
        dest_qpn: Qpn::new(0x99),
        mtu: Mtu::Mtu256,
        sq_psn: Psn::new(100),
        rq_psn: Psn::new(500),
        ack_timeout_ns: 1000,
        ack_timeout_max_ns: 4000,
        retry_limit: 3,
        rnr_retry_limit: Some(1),
        ..Config::default()
    };
    change(&mut config);
    let mut qp = QueuePair::new(config);
    qp.modify(State::Rtr).expect("legal");
    qp.modify(State::Rts).expect("legal");
    qp
}

fn post(qp: &mut QueuePair<u32>, wr_id: u64, op: SendOp, len: usize) {
    let request = SendRequest { wr_id, op, buffer: 0, len: len as u32, signaled: true, solicited: false, fence: false };
    qp.post_send(request).expect("the queue has room");
}

fn send(qp: &mut QueuePair<u32>, wr_id: u64, len: usize) {
    post(qp, wr_id, SendOp::Send { imm: None }, len);
}

fn read(qp: &mut QueuePair<u32>, wr_id: u64, len: usize) {
    post(qp, wr_id, SendOp::Read { remote: Remote { va: 0, rkey: KEY } }, len);
}

fn receive(qp: &mut QueuePair<u32>, wr_id: u64, len: u32) {
    qp.post_recv(RecvRequest { wr_id, buffer: 0, len }).expect("the queue has room");
}

fn request(opcode: Opcode, psn: u32) -> Headers {
    let mut headers = Headers::plain(Bth::new(opcode, Qpn::new(1), Psn::new(psn)));
    headers.bth.ack_req = true;
    headers
}

fn with_reth(opcode: Opcode, psn: u32, va: u64, len: u32) -> Headers {
    let mut headers = request(opcode, psn);
    headers.ext.reth = Some(Reth { va, rkey: KEY, len });
    headers
}

fn answer(psn: u32, syndrome: Syndrome) -> Headers {
    let mut headers = Headers::plain(Bth::new(Opcode::RcAck, Qpn::new(1), Psn::new(psn)));
    headers.ext.aeth = Some(Aeth { syndrome, msn: Msn::new(0) });
    headers
}

const ACK: Syndrome = Syndrome::Ack { credit: 31 };

fn feed(qp: &mut QueuePair<u32>, script: &mut Script, headers: Headers, len: usize) {
    let payload = vec![0; len];
    qp.on_packet(0, &Packet { headers, payload: &payload }, script);
}

fn pump(qp: &mut QueuePair<u32>, script: &mut Script) {
    let _ = qp.pump_replies(script);
    let _ = qp.pump_requests(0, script);
}

// The requester.

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
    assert!(script.sent[1].0.bth.ack_req, "or nobody would ever open the window");
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
        waits.push(deadline - now);
        now = deadline;
        qp.on_timeout(now, &mut script);
        let _ = qp.pump_requests(now, &mut script);
    }
    assert_eq!(waits, [1000, 2000, 4000, 4000]);
    use WcStatus::{RetryExcErr, WrFlushErr};
    assert_eq!(script.statuses(), [(1, RetryExcErr), (2, WrFlushErr), (3, WrFlushErr)]);
    assert_eq!(qp.state(), State::Error);
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
    assert_eq!(qp.post_send(long(1)).expect_err("2^23 packets").reason, PostError::TooLong);
    send(&mut qp, 1, (1 << 31) - MTU);
    let one_more = SendRequest { len: 1, ..rejected_send() };
    assert_eq!(qp.post_send(one_more).expect_err("2^23 packets").reason, PostError::QueueFull);
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
    assert_eq!(qp.pump_requests(0, &mut script), Err(TxError::Busy));
    script.room = None;
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes().iter().map(|(_, psn)| *psn).collect::<Vec<_>>(), [100, 101, 102]);
}

// The responder.

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
    assert!(qp.owes_reply(1), "the peer has not heard");
    pump(&mut qp, &mut script);
    assert_eq!(script.done.len(), 1);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Ack { credit: 1 }, 500)));
    assert_eq!(script.sent.len(), 2);
}

#[test]
fn without_a_receive_the_sender_is_told_to_wait_and_nothing_is_skipped() {
    let (mut qp, mut script) = (connected(|_| ()), Script::default());
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 500), 1);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.sent.len(), 1, "what follows the refused packet is dropped in silence");
    assert_eq!(script.last_syndrome(), Some((Syndrome::Rnr { timer: 12 }, 500)));
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
    feed(&mut qp, &mut script, request(Opcode::RcSendFirst, 500), MTU);
    feed(&mut qp, &mut script, request(Opcode::RcSendLast, 501), 1);
    pump(&mut qp, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::LocLenErr)]);
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
        (Opcode::RcWriteFirst, 0, u32::MAX, MTU, access),
        (Opcode::RcReadRequest, 1, REGION as u32, 0, access),
    ] {
        let (mut qp, mut script) = (connected(|_| ()), Script::default());
        feed(&mut qp, &mut script, with_reth(opcode, 500, va, len), payload);
        pump(&mut qp, &mut script);
        assert!(script.written.is_empty());
        assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(code), 500)), "{opcode:?} {va} {len}");
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
    assert_eq!(qp.state(), State::Rts);
    feed(&mut qp, &mut script, with_reth(Opcode::RcReadRequest, 501, 0, 1), 0);
    pump(&mut qp, &mut script);
    assert_eq!(script.last_syndrome(), Some((Syndrome::Nak(NakCode::RemoteAccess), 501)));
}

// Both.

#[test]
fn packets_that_the_state_or_the_partition_does_not_take_are_dropped() {
    let (mut qp, mut script) = (QueuePair::new(Config::default()), Script::default());
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 0), 1);
    feed(&mut qp, &mut script, answer(0, ACK), 0);
    assert_eq!(qp.stats().rx_wrong_state, 2);
    let (mut qp, mut script2) = (connected(|_| ()), Script::default());
    let mut foreign = request(Opcode::RcSendOnly, 500);
    foreign.bth.pkey = 0x1234;
    feed(&mut qp, &mut script2, foreign, 1);
    feed(&mut qp, &mut script2, request(Opcode::UcSendOnly, 500), 1);
    assert_eq!((qp.stats().rx_bad_pkey, qp.stats().rx_wrong_transport), (1, 1));
    pump(&mut qp, &mut script2);
    assert!(script2.sent.is_empty() && script.sent.is_empty());
}

#[test]
fn full_queues_and_wrong_states_hand_the_request_back() {
    let mut qp = connected(|config| (config.sq_depth, config.rq_depth) = (1, 1));
    send(&mut qp, 1, 1);
    receive(&mut qp, 1, 1);
    let again = SendRequest {
        wr_id: 2,
        op: SendOp::Send { imm: None },
        buffer: 5,
        len: 1,
        signaled: true,
        solicited: false,
        fence: false,
    };
    let rejected = qp.post_send(again).expect_err("full");
    assert_eq!((rejected.reason, rejected.request.buffer), (PostError::QueueFull, 5));
    let rejected = qp.post_recv(RecvRequest { wr_id: 2, buffer: 6, len: 1 }).expect_err("full");
    assert_eq!((rejected.reason, rejected.request.buffer), (PostError::QueueFull, 6));
    let mut script = Script::default();
    qp.fail(WcStatus::LocQpOpErr, &mut script);
    assert_eq!(script.statuses(), [(1, WcStatus::WrFlushErr), (1, WcStatus::WrFlushErr)]);
    let rejected = qp.post_send(rejected_send()).expect_err("in error");
    assert_eq!(rejected.reason, PostError::State(State::Error));
}

fn rejected_send() -> SendRequest<u32> {
    let op = SendOp::Send { imm: None };
    SendRequest { wr_id: 9, op, buffer: 0, len: 0, signaled: true, solicited: false, fence: false }
}
