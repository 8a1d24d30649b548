//! What goes the fast path, and what does not: then nothing has changed.

use super::*;
use crate::rc::congestion::Algorithm;
use crate::wire::icrc;

fn request_of(op: SendOp, len: usize) -> SendRequest<u32> {
    SendRequest { op, len: len as u32, ..rejected_send() }
}

const SEND: SendOp = SendOp::Send { imm: None };
const WRITE: SendOp = SendOp::Write { remote: Remote { va: 8, rkey: KEY }, imm: Some(3) };

fn is_clear(qp: &RcQueuePair<u32>, op: SendOp, len: usize) -> bool {
    qp.is_clear_for(0, &request_of(op, len))
}

#[test]
fn what_is_one_packet_leaves_at_once_as_it_would_by_the_queue() {
    for op in
        [SEND, SendOp::Send { imm: Some(5) }, WRITE, SendOp::Write { remote: Remote { va: 8, rkey: KEY }, imm: None }]
    {
        let (mut by_queue, mut at_once) = (Script::default(), Script::default());
        let (mut one, mut other) = (connected(|_| {}), connected(|_| {}));
        for now in [60_000, 61_000, 62_000] {
            post(&mut one, 9, op, MTU);
            one.pump_requests(now, &mut unlimited(), &mut by_queue).expect("the link takes all");
            assert!(other.is_clear_for(now, &request_of(op, MTU)));
            let before = other.deadline();
            let starts = other.send_at_once(now, request_of(op, MTU), &mut at_once).expect("the link takes all");
            assert_eq!(starts, other.deadline() != before, "who is not woken anew waits for what it waited for");
        }
        for (qp, script) in [(&mut one, &mut by_queue), (&mut other, &mut at_once)] {
            // So soon after the last one none of its packets but the last asks for an acknowledgement.
            post(qp, 9, op, 3 * MTU);
            qp.pump_requests(100_000, &mut unlimited(), script).expect("the link takes all");
        }
        assert_eq!(by_queue.sent, at_once.sent);
        assert_eq!(
            (one.stats(), one.deadline(), one.requester.queue.next_psn()),
            (other.stats(), other.deadline(), other.requester.queue.next_psn())
        );
        for (qp, script) in [(&mut one, &mut by_queue), (&mut other, &mut at_once)] {
            feed(qp, script, answer(105, ACK), 0);
            qp.check();
        }
        assert_eq!(by_queue.done, at_once.done);
        assert_eq!(at_once.done.len(), 4);
    }
}

/// Which of so many SENDs, one each microsecond, ask for an acknowledgement, where it is not asked of them.
fn asking(count: u64, by_queue: bool, change: impl FnOnce(&mut Config)) -> Vec<u64> {
    let (mut qp, mut script) = (connected(change), Script::default());
    for n in 0..count {
        let (now, request) = (n * 1_000, SendRequest { ack_req: false, ..request_of(SEND, 8) });
        if by_queue {
            qp.post_send(request).expect("the queue has room");
            qp.pump_requests(now, &mut unlimited(), &mut script).expect("the link takes all");
        } else {
            qp.send_at_once(now, request, &mut script).expect("the link takes all");
        }
    }
    let asks = script.sent.iter().enumerate().filter(|(_, (headers, _))| headers.bth.ack_req);
    asks.map(|(n, _)| n as u64).collect()
}

#[test]
fn who_does_not_ask_asks_before_it_needs_an_answer() {
    for by_queue in [false, true] {
        let ours = |config: &mut Config| {
            *config = Config { dialect: Dialect::Rocinante, end_to_end_credits: false, window: 128, ..config.clone() };
        };
        assert_eq!(asking(40, by_queue, ours), (31..40).collect::<Vec<_>>(), "a quarter of the window is in flight");
        let short = |config: &mut Config| {
            ours(config);
            config.sq_depth = 8;
        };
        assert_eq!(asking(4, by_queue, short), [1, 2, 3], "a quarter of the places are taken");
        let wide = |config: &mut Config| {
            ours(config);
            (config.window, config.sq_depth) = (1 << 10, 1 << 10);
        };
        assert_eq!(asking(255, by_queue, wide), [125, 250], "125 us have passed since it asked last");
        assert_eq!(asking(3, by_queue, |_| ()), [0, 1, 2], "a verbs peer is always asked");
        let counting = |config: &mut Config| {
            ours(config);
            config.end_to_end_credits = true;
        };
        assert_eq!(asking(1, by_queue, counting), [0], "its credits come with acknowledgements");
    }
}

#[test]
fn what_a_full_link_does_not_take_comes_back_and_is_queued() {
    let (mut qp, mut script) = (connected(|_| {}), Script { room: Some(0), ..Script::default() });
    let back = qp.send_at_once(0, request_of(SEND, 8), &mut script);
    assert_eq!(back, Err(request_of(SEND, 8)));
    assert_eq!((qp.sends_outstanding(), qp.stats().tx_requests, qp.deadline()), (0, 0, None));
    script.room = None;
    send(&mut qp, 9, 8);
    assert!(!is_clear(&qp, SEND, 8), "one stands before it");
    pump(&mut qp, &mut script);
    assert_eq!(script.opcodes(), [(Opcode::RcSendOnly, 100)]);
}

#[test]
fn other_kinds_and_longer_messages_go_by_the_queue() {
    let qp = connected(|_| {});
    let atomic =
        SendOp::Atomic { remote: Remote { va: 0, rkey: KEY }, operation: AtomicOperation::FetchAdd { add: 1 } };
    let read = SendOp::Read { remote: Remote { va: 0, rkey: KEY } };
    for op in [atomic, read, SendOp::SendInvalidate { rkey: KEY }, SendOp::LocalInvalidate { rkey: KEY }] {
        assert!(!is_clear(&qp, op, 8), "{op:?}");
    }
    assert!(is_clear(&qp, SEND, MTU) && !is_clear(&qp, SEND, MTU + 1));
}

/// A state in which nothing is clear to go.
type Unusual = (&'static str, fn() -> RcQueuePair<u32>);

const UNUSUAL: [Unusual; 11] = [
    ("the queue drains", || {
        let mut qp = connected(|_| {});
        qp.modify(State::Sqd).expect("legal");
        qp
    }),
    ("it has drained, and nothing was pumped since", || {
        let mut qp = connected(|_| {});
        qp.modify(State::Sqd).expect("legal");
        pump(&mut qp, &mut Script::default());
        qp.modify(State::Rts).expect("legal");
        qp
    }),
    ("the queue is full", || sent(connected(|config| config.sq_depth = 2), 2)),
    ("the window is full", || sent(connected(|config| config.window = 2), 2)),
    ("the peer has no receive", || sent(connected(|config| config.end_to_end_credits = true), 1)),
    ("a timeout has passed", || {
        let mut qp = sent(connected(|_| {}), 2);
        qp.on_timeout(1000, &mut Script::default());
        qp
    }),
    ("the peer was not ready", || {
        let mut qp = sent(connected(|_| {}), 2);
        feed(&mut qp, &mut Script::default(), answer(100, Syndrome::Rnr { timer: 1 }), 0);
        qp
    }),
    ("a probe is on its way", || {
        let mut qp = sent(connected(|config| config.dialect = Dialect::Rocinante), 2);
        qp.on_timeout(1000, &mut Script::default());
        pump(&mut qp, &mut Script::default());
        qp
    }),
    ("the peer was not ready, and keeps what follows", || {
        let mut qp = sent(connected(|config| config.dialect = Dialect::Rocinante), 2);
        feed(&mut qp, &mut Script::default(), answer(100, Syndrome::Rnr { timer: 1 }), 0);
        qp
    }),
    ("a packet is missing", || {
        let mut qp = sent(connected(|config| config.dialect = Dialect::Rocinante), 2);
        feed(&mut qp, &mut Script::default(), answer(100, Syndrome::Nak(NakCode::PsnSequence)), 0);
        qp
    }),
    ("the path is to rest", || {
        sent(connected(|config| (config.congestion, config.link_rate) = (Algorithm::Dcqcn, 1_000)), 1)
    }),
];

/// A queue pair that has sent so many packets, none of which is answered.
fn sent(mut qp: RcQueuePair<u32>, count: usize) -> RcQueuePair<u32> {
    for _ in 0..count {
        assert!(is_clear(&qp, SEND, 8));
        qp.send_at_once(0, request_of(SEND, 8), &mut Script::default()).expect("the link takes all");
    }
    qp
}

#[test]
fn nothing_leaves_at_once_where_something_is_unusual() {
    for (name, state) in UNUSUAL {
        let qp = state();
        assert!(!is_clear(&qp, SEND, 8), "{name}");
    }
}

#[test]
fn a_fenced_request_waits_for_reads() {
    let mut qp = connected(|_| {});
    read(&mut qp, 1, 8);
    pump(&mut qp, &mut Script::default());
    let fenced = SendRequest { fence: true, ..request_of(SEND, 8) };
    assert!(is_clear(&qp, SEND, 8) && !qp.is_clear_for(0, &fenced));
}

/// The packet as it comes, with four bytes in place of its ICRC.
fn bytes(headers: &Headers, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; headers.wire_len() + len + icrc::LEN];
    headers.emit(&mut bytes);
    bytes
}

fn take_whole(qp: &mut RcQueuePair<u32>, script: &mut Script, headers: &Headers, len: usize) -> bool {
    qp.on_whole(0, &bytes(headers, len), script).is_some()
}

#[test]
fn whole_messages_and_acknowledgements_are_taken_as_they_would_be_parsed() {
    let mut imm = request(Opcode::RcSendOnlyImm, 501);
    imm.ext.imm = Some(ImmDt(77));
    imm.bth.solicited = true;
    let mut write_imm = with_reth(Opcode::RcWriteOnlyImm, 503, 16, 8);
    write_imm.ext.imm = Some(ImmDt(78));
    let story = [
        (request(Opcode::RcSendOnly, 500), 8),
        (imm, 16),
        (with_reth(Opcode::RcWriteOnly, 502, 0, 8), 8),
        (write_imm, 8),
        (answer(101, ACK), 0),
    ];
    let (mut parsed, mut taken) = (Script::default(), Script::default());
    let (mut one, mut other) = (sent(connected(|_| {}), 2), sent(connected(|_| {}), 2));
    for (headers, len) in story {
        for qp in [&mut one, &mut other] {
            receive(qp, 7, 16);
        }
        feed(&mut one, &mut parsed, headers, len);
        assert!(take_whole(&mut other, &mut taken, &headers, len), "{:?}", headers.bth.opcode);
        one.check();
        other.check();
    }
    pump(&mut one, &mut parsed);
    pump(&mut other, &mut taken);
    assert_eq!((parsed.sent, parsed.placed, parsed.written), (taken.sent, taken.placed, taken.written));
    assert_eq!((&parsed.done, one.stats(), one.deadline()), (&taken.done, other.stats(), other.deadline()));
    assert_eq!(taken.done.len(), 5, "three receives and two sends");
}

/// A packet that is parsed: how the queue pair comes to that, and the packet.
type Parsed = (&'static str, fn() -> RcQueuePair<u32>, fn() -> (Headers, usize));

fn with_receive() -> RcQueuePair<u32> {
    let mut qp = sent(connected(|_| {}), 2);
    receive(&mut qp, 7, 8);
    qp
}

const PARSED: [Parsed; 16] = [
    ("one before the next", with_receive, || (request(Opcode::RcSendOnly, 499), 8)),
    ("one behind the next", with_receive, || (request(Opcode::RcSendOnly, 501), 8)),
    ("longer than its receive", with_receive, || (request(Opcode::RcSendOnly, 500), 12)),
    ("longer than the path allows", with_long_receive, || (request(Opcode::RcSendOnly, 500), MTU + 4)),
    ("no receive", || connected(|_| {}), || (request(Opcode::RcSendOnly, 500), 8)),
    ("a part of a message", with_receive, || (request(Opcode::RcSendFirst, 500), MTU)),
    ("within a message", in_message, || (request(Opcode::RcSendOnly, 501), 8)),
    ("another partition", with_receive, || {
        let mut headers = request(Opcode::RcSendOnly, 500);
        headers.bth.pkey = crate::Pkey(0x8001);
        (headers, 8)
    }),
    ("another length than the header says", with_receive, || (with_reth(Opcode::RcWriteOnly, 500, 0, 4), 8)),
    ("memory that is not open", with_receive, || (with_reth(Opcode::RcWriteOnly, 500, REGION, 8), 8)),
    (
        "immediate data and no receive",
        || connected(|_| {}),
        || {
            let mut headers = with_reth(Opcode::RcWriteOnlyImm, 500, 0, 8);
            headers.ext.imm = Some(ImmDt(1));
            (headers, 8)
        },
    ),
    ("immediate data, and memory that is not open", with_receive, || {
        let mut headers = with_reth(Opcode::RcWriteOnlyImm, 500, REGION, 8);
        headers.ext.imm = Some(ImmDt(1));
        (headers, 8)
    }),
    ("nothing, written where nothing is open", with_receive, || {
        (with_reth(Opcode::RcWriteOnly, 500, REGION + 8, 0), 0)
    }),
    ("an acknowledgement of what was never sent", with_receive, || (answer(102, ACK), 0)),
    ("an acknowledgement that is old", with_receive, || (answer(99, ACK), 0)),
    ("a refusal", with_receive, || (answer(100, Syndrome::Nak(NakCode::PsnSequence)), 0)),
];

fn with_long_receive() -> RcQueuePair<u32> {
    let mut qp = connected(|_| {});
    receive(&mut qp, 7, 4096);
    qp
}

fn in_message() -> RcQueuePair<u32> {
    let mut qp = connected(|_| {});
    receive(&mut qp, 7, 4096);
    receive(&mut qp, 7, 4096);
    feed(&mut qp, &mut Script::default(), request(Opcode::RcSendFirst, 500), MTU);
    qp
}

#[test]
fn what_is_unusual_is_parsed_and_was_not_touched_before() {
    for (name, state, packet) in PARSED {
        let (headers, len) = packet();
        let (mut parsed, mut tried) = (Script::default(), Script::default());
        let (mut one, mut other) = (state(), state());
        assert!(!take_whole(&mut other, &mut tried, &headers, len), "{name}");
        assert_eq!((tried.placed.len(), tried.written.len(), tried.done.len()), (0, 0, 0), "{name}");
        assert_eq!(one.receives_posted(), other.receives_posted(), "{name}");
        feed(&mut one, &mut parsed, headers, len);
        feed(&mut other, &mut tried, headers, len);
        pump(&mut one, &mut parsed);
        pump(&mut other, &mut tried);
        assert_eq!((parsed.sent, parsed.done), (tried.sent, tried.done), "{name}");
        assert_eq!((one.stats(), one.receives_posted()), (other.stats(), other.receives_posted()), "{name}");
    }
}

#[test]
fn what_a_peer_without_the_right_may_not_write_is_parsed() {
    let mut qp = connected(|config| config.access = Access::REMOTE_READ);
    assert!(!take_whole(&mut qp, &mut Script::default(), &with_reth(Opcode::RcWriteOnly, 500, 0, 8), 8));
}

#[test]
fn a_limited_member_of_the_partition_hears_no_other() {
    let limited = crate::Pkey(0x7fff);
    let mut qp = connected(|config| config.pkey = limited);
    receive(&mut qp, 7, 8);
    let mut headers = request(Opcode::RcSendOnly, 500);
    headers.bth.pkey = limited;
    assert!(!take_whole(&mut qp, &mut Script::default(), &headers, 8));
}

#[test]
fn what_came_early_is_looked_at_in_full() {
    let mut qp = connected(|config| config.dialect = Dialect::Rocinante);
    let mut script = Script { keeps: 1, ..Script::default() };
    receive(&mut qp, 7, 8);
    receive(&mut qp, 7, 8);
    feed(&mut qp, &mut script, request(Opcode::RcSendOnly, 501), 8);
    assert!(!take_whole(&mut qp, &mut script, &request(Opcode::RcSendOnly, 500), 8), "the next one is kept");
}
