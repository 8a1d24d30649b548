//! Every rule fires for its own violation, and for nothing else.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{End, Lint, Opening, Rule};
use crate::wire::icrc::{self, Register};
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Flow, Headers, ImmDt, Ip, MacAddr, NakCode, Opcode, Reth, Syndrome,
};
use crate::{Msn, Mtu, Nanos, Pkey, Psn, Qpn, Rkey};

const MTU: usize = 256;
/// Near the wrap.
const FIRST: u32 = 0xff_fffe;
const RECEIVES: u32 = 6;
const IPS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
const QPNS: [u32; 2] = [0x11, 0x22];
const STEP_NS: Nanos = 10_000_000;
/// Ethernet, IPv4, UDP.
const TRANSPORT_AT: usize = 14 + 20 + 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Requester,
    Responder,
}

/// A frame of a conversation.
#[derive(Clone)]
struct Said {
    who: Who,
    headers: Headers,
    payload: Vec<u8>,
    port: u16,
    /// How long after the one before it.
    after: Nanos,
    /// What is done to its bytes before the ICRC is made.
    damage: fn(&mut Vec<u8>),
    /// What is done to its bytes after that.
    late_damage: fn(&mut Vec<u8>),
}

fn said(who: Who, opcode: Opcode, psn: u32, len: usize) -> Said {
    let destination = QPNS[1 - who as usize];
    let headers = Headers::plain(Bth::new(opcode, Qpn::new(destination), Psn::new(FIRST.wrapping_add(psn))));
    let payload = (0..len).map(|at| (at * 3 + psn as usize) as u8).collect();
    Said { who, headers, payload, port: 0xc123, after: STEP_NS, damage: |_| {}, late_damage: |_| {} }
}

/// A request; `psn` counts from the connection's first one.
fn asks(opcode: Opcode, psn: u32, len: usize) -> Said {
    said(Who::Requester, opcode, psn, len)
}

/// The same, the last packet of its message.
fn ends(opcode: Opcode, psn: u32, len: usize) -> Said {
    let mut last = asks(opcode, psn, len);
    last.headers.bth.ack_req = true;
    last
}

fn write(mut request: Said, len: u32) -> Said {
    request.headers.ext.reth = Some(Reth { va: 0x1000, rkey: Rkey(9), len });
    request
}

fn with_imm(mut request: Said) -> Said {
    request.headers.ext.imm = Some(ImmDt(7));
    request
}

/// A READ of so many bytes from an offset on.
fn reads(psn: u32, offset: u64, len: u32) -> Said {
    let mut request = asks(Opcode::RcReadRequest, psn, 0);
    request.headers.ext.reth = Some(Reth { va: 0x1000 + offset, rkey: Rkey(9), len });
    request
}

fn adds(psn: u32) -> Said {
    let mut request = asks(Opcode::RcFetchAdd, psn, 0);
    request.headers.ext.atomic = Some(AtomicEth { va: 8, rkey: Rkey(9), swap_or_add: 1, compare: 0 });
    request
}

fn answers(opcode: Opcode, psn: u32, syndrome: Syndrome, msn: u32, len: usize) -> Said {
    let mut answer = said(Who::Responder, opcode, psn, len);
    answer.headers.ext.aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
    answer
}

fn acknowledges(psn: u32, msn: u32, credit: u8) -> Said {
    answers(Opcode::RcAck, psn, Syndrome::Ack { credit }, msn, 0)
}

fn finds(psn: u32, msn: u32, original: u64) -> Said {
    let mut answer = answers(Opcode::RcAtomicAck, psn, Syndrome::Ack { credit: 4 }, msn, 0);
    answer.headers.ext.atomic_ack = Some(AtomicAckEth { original });
    answer
}

/// A connection from its first message on: every kind of message, and the three answers that request a retransmission.
/// Three of six receives are taken.
fn conversation() -> Vec<Said> {
    use Opcode as O;
    let [four, three] = [4, 3].map(|credit| Syndrome::Ack { credit });
    vec![
        asks(O::RcSendFirst, 0, MTU),
        asks(O::RcSendMiddle, 1, MTU),
        ends(O::RcSendLast, 2, 10),
        acknowledges(2, 1, 4),
        write(asks(O::RcWriteFirst, 3, MTU), 300),
        with_imm(ends(O::RcWriteLastImm, 4, 44)),
        reads(5, 0, 600),
        adds(8),
        acknowledges(4, 4, 4),
        answers(O::RcReadResponseFirst, 5, four, 4, MTU),
        said(Who::Responder, O::RcReadResponseMiddle, 6, MTU),
        answers(O::RcReadResponseLast, 7, four, 4, 88),
        finds(8, 4, 7),
        with_imm(ends(O::RcSendOnlyImm, 9, 5)),
        answers(O::RcAck, 9, Syndrome::Rnr { timer: 14 }, 4, 0),
        with_imm(ends(O::RcSendOnlyImm, 9, 5)),
        acknowledges(9, 5, 3),
        reads(10, 0, 600),
        answers(O::RcReadResponseFirst, 10, three, 6, MTU),
        reads(11, 256, 344),
        answers(O::RcReadResponseFirst, 11, three, 6, MTU),
        answers(O::RcReadResponseLast, 12, three, 6, 88),
        write(ends(O::RcWriteOnly, 13, 16), 16),
        answers(O::RcAck, 13, Syndrome::Nak(NakCode::PsnSequence), 6, 0),
        write(ends(O::RcWriteOnly, 13, 16), 16),
        acknowledges(13, 7, 3),
    ]
}

const LAST: usize = 25;

impl Said {
    fn bth(&mut self) -> &mut Bth {
        &mut self.headers.bth
    }

    fn aeth(&mut self) -> &mut Aeth {
        self.headers.ext.aeth.as_mut().expect("it is an answer with an AETH")
    }

    fn reth(&mut self) -> &mut Reth {
        self.headers.ext.reth.as_mut().expect("it has a RETH")
    }

    fn frame(&self) -> Vec<u8> {
        let [source, destination] = [self.who as usize, 1 - self.who as usize].map(|end| IPS[end].into());
        let ip = Ip::between(source, destination).expect("one version");
        let mut flow = Flow::new(MacAddr([2; 6]), MacAddr([4; 6]), None, ip, self.port);
        let mut bytes = vec![0; flow.frame_len(&self.headers, self.payload.len())];
        flow.emit(&mut bytes, &self.headers, self.payload.len(), |room| room.copy_from_slice(&self.payload));
        (self.damage)(&mut bytes);
        seal(&mut bytes);
        (self.late_damage)(&mut bytes);
        bytes
    }
}

fn seal(bytes: &mut [u8]) {
    let (register, _) = Register::after_udp(&bytes[14..]).expect("IPv4 and UDP");
    let end = bytes.len() - icrc::LEN;
    let icrc = register.finish(&bytes[TRANSPORT_AT..end]);
    bytes[end..].copy_from_slice(&icrc);
}

fn knowing_lint() -> Lint {
    let mut lint = Lint::default();
    let ends = [0, 1].map(|end| End { ip: IPS[end].into(), qpn: Qpn::new(QPNS[end]) });
    lint.open(&Opening { ends, first_psns: [Psn::new(FIRST), Psn::new(5)], mtu: Mtu::Mtu256 });
    lint.post_receives(ends[1], RECEIVES);
    lint
}

/// The rules that a conversation breaks.
fn broken(mut lint: Lint, conversation: &[Said]) -> BTreeSet<Rule> {
    let mut at = 0;
    let mut rules = BTreeSet::new();
    for said in conversation {
        at += said.after;
        rules.extend(lint.look(at, &said.frame()).into_iter().map(|finding| finding.rule));
    }
    rules
}

type Plant = (Rule, &'static str, fn(&mut Vec<Said>));

/// What may be wrong, and the rule that says so.
const PLANTS: &[Plant] = &[
    (Rule::Icrc, "a bit of the ICRC is wrong", |c| c[LAST].late_damage = |bytes| *end(bytes) ^= 1),
    (Rule::Lengths, "a byte follows the packet", |c| c[2].late_damage = |bytes| bytes.push(0)),
    (Rule::Lengths, "UDP says less than IP", |c| c[LAST].late_damage = |bytes| bytes[14 + 20 + 5] -= 4),
    (Rule::Lengths, "the IPv4 header's checksum is wrong", |c| c[LAST].late_damage = |bytes| bytes[14 + 10] ^= 1),
    (Rule::UdpPorts, "the source port is 0", |c| c.iter_mut().for_each(|said| said.port = 0)),
    (Rule::UdpPorts, "the destination port is another", |c| c[LAST].damage = |bytes| bytes[14 + 20 + 3] ^= 1),
    (Rule::PortOfFlow, "the source port changes", |c| c[13].port += 1),
    (Rule::Version, "the version is 1", |c| c[LAST].damage = |bytes| bytes[TRANSPORT_AT + 1] |= 1),
    (Rule::Opcode, "the opcode is unknown", |c| c[LAST].damage = |bytes| bytes[TRANSPORT_AT] = 0x1f),
    (Rule::Reserved, "a bit beside AckReq is set", |c| c[0].bth().reserved_7 = 1),
    (Rule::Reserved, "a bit beside FECN is set", |c| c[3].bth().reserved_6 = 1),
    (Rule::Pad, "the pad is not zero", |c| c[13].damage = |bytes| *before_icrc(bytes) = 1),
    (Rule::Pad, "the pad is longer than the payload", |c| c[LAST].damage = |bytes| bytes[TRANSPORT_AT + 1] |= 0x30),
    (Rule::MigReq, "MigReq is 0", |c| c.iter_mut().for_each(|said| said.bth().mig_req = false)),
    (Rule::PartitionKey, "the membership is limited", |c| c[0].bth().pkey = Pkey(0x7fff)),
    (Rule::Destination, "an acknowledgement goes to queue pair 1", |c| c[LAST].bth().dest_qpn = Qpn::new(1)),
    (Rule::Destination, "an acknowledgement goes to queue pair 0", |c| c[LAST].bth().dest_qpn = Qpn::new(0)),
    (Rule::Solicited, "a WRITE without immediate data is solicited", |c| c[22].bth().solicited = true),
    (Rule::MessageOrder, "a WRITE begins with MIDDLE", |c| {
        c[4] = asks(Opcode::RcWriteMiddle, 3, MTU);
    }),
    (Rule::MessageOrder, "a READ comes into a SEND", |c| {
        c.truncate(2);
        c.push(reads(2, 0, 10));
    }),
    (Rule::MessageOrder, "a SEND goes on as a WRITE", |c| {
        c.truncate(1);
        c.push(asks(Opcode::RcWriteMiddle, 1, MTU));
    }),
    (Rule::Payload, "a packet in the middle is not full", |c| c[1].payload.truncate(200)),
    (Rule::Payload, "a READ request has a payload", |c| c[6].payload = vec![0; 4]),
    (Rule::Payload, "an acknowledgement has a payload", |c| c[LAST].payload = vec![0; 4]),
    (Rule::Payload, "a READ response is short", |c| c[11].payload.truncate(84)),
    (Rule::Payload, "an immediate value stands where the opcode has none", |c| c[1].payload.extend([0; 4])),
    (Rule::WriteLength, "a WRITE has a byte less than its RETH says", |c| c[4].reth().len = 301),
    (Rule::WriteLength, "a WRITE has more than its RETH says before its end", |c| c[4].reth().len = 200),
    (Rule::WriteLength, "a WRITE of one packet is shorter than its RETH says", |c| {
        c.truncate(22);
        c.push(write(ends(Opcode::RcWriteOnly, 13, 15), 16));
    }),
    (Rule::Psn, "a PSN is left out", |c| {
        c[22..].iter_mut().for_each(|said| said.headers.bth.psn = said.headers.bth.psn.plus(1));
    }),
    (Rule::Psn, "a READ takes fewer PSNs than it has responses", |c| {
        c.truncate(7);
        c.push(adds(9));
    }),
    (Rule::Psn, "a PSN lies before the first one", |c| c.push(ends(Opcode::RcSendOnly, u32::MAX, 1))),
    (Rule::InFlight, "a READ of 2^23 packets", |c| c.push(reads(14, 0, 1 << 31))),
    (Rule::Repeat, "a repeated WRITE has other bytes", |c| c[24].payload[3] ^= 1),
    (Rule::Repeat, "a repeated WRITE goes elsewhere", |c| c[24].reth().va += 8),
    (Rule::Repeat, "a repeated WRITE is a SEND", |c| c[24] = ends(Opcode::RcSendOnly, 13, 16)),
    (Rule::Repeat, "a READ's rest begins elsewhere", |c| c[19].reth().va += 8),
    (Rule::Repeat, "a READ's rest is too long", |c| c[19].reth().len += 8),
    (Rule::Repeat, "a repeated atomic adds something else", |c| {
        let mut again = adds(8);
        again.headers.ext.atomic.as_mut().expect("an atomic").swap_or_add = 2;
        c.insert(13, again);
    }),
    (Rule::AckReq, "a SEND's last packet does not ask", |c| c[2].bth().ack_req = false),
    (Rule::AckReq, "an acknowledgement asks for one", |c| c[3].bth().ack_req = true),
    (Rule::RnrWait, "a packet comes again before its time", |c| c[15].after = 1_000_000),
    (Rule::RnrPlace, "an RNR NAK for a WRITE", |c| c[23].aeth().syndrome = Syndrome::Rnr { timer: 1 }),
    (Rule::ResponsePsn, "an atomic's result under a WRITE's PSN", |c| c[12].bth().psn = Psn::new(FIRST + 4)),
    (Rule::ResponsePsn, "a response beyond what was sent", |c| c[12].bth().psn = Psn::new(FIRST + 9)),
    (Rule::ResponseOrder, "LAST in the middle", |c| {
        c[10] = answers(Opcode::RcReadResponseLast, 6, Syndrome::Ack { credit: 4 }, 4, MTU);
    }),
    (Rule::ResponseOrder, "a response is left out", |c| drop(c.remove(10))),
    (Rule::ResponseOrder, "the rest of a READ begins with MIDDLE", |c| {
        c.remove(18);
        c[19] = said(Who::Responder, Opcode::RcReadResponseMiddle, 11, MTU);
    }),
    (Rule::AtomicReplay, "an atomic is executed twice", |c| {
        c.insert(13, adds(8));
        c.insert(14, finds(8, 4, 8));
    }),
    (Rule::Syndrome, "a reserved syndrome", |c| c[LAST].aeth().syndrome = Syndrome::Reserved(0x45)),
    (Rule::Syndrome, "a NAK beside data", |c| c[11].aeth().syndrome = Syndrome::Nak(NakCode::RemoteAccess)),
    (Rule::Syndrome, "a NAK of reliable datagrams", |c| {
        c[LAST].aeth().syndrome = Syndrome::Nak(NakCode::InvalidRdRequest);
    }),
    (Rule::AckPsn, "an acknowledgement of the future", |c| c[LAST].bth().psn = Psn::new(FIRST + 14)),
    (Rule::AckPsn, "an acknowledgement of what was before the first", |c| c[LAST].bth().psn = Psn::new(FIRST - 1)),
    (Rule::AckOfData, "an acknowledgement with a READ's PSN", |c| c[8].bth().psn = Psn::new(FIRST + 5)),
    (Rule::AckOrder, "an acknowledgement goes back", |c| c[LAST].bth().psn = Psn::new(FIRST + 4)),
    (Rule::Msn, "the MSN stands still", |c| {
        let answers = c.iter_mut().filter_map(|said| said.headers.ext.aeth.as_mut());
        answers.for_each(|aeth| aeth.msn = Msn::default());
    }),
    (Rule::Msn, "the MSN counts a message that is not there", |c| c[3].aeth().msn = Msn::new(2)),
    (Rule::Msn, "a NAK's MSN counts the message that is missing", |c| c[23].aeth().msn = Msn::new(7)),
    (Rule::Msn, "the MSN goes back", |c| {
        c[18].aeth().msn = Msn::new(5);
        c[20].aeth().msn = Msn::new(4);
    }),
    (Rule::Credits, "there are never any credits", |c| {
        let answers = c.iter_mut().filter_map(|said| said.headers.ext.aeth.as_mut());
        answers.for_each(|aeth| {
            if let Syndrome::Ack { credit } = &mut aeth.syndrome {
                *credit = 0;
            }
        });
    }),
    (Rule::Credits, "more credits than receives", |c| c[3].aeth().syndrome = Syndrome::Ack { credit: 5 }),
    (Rule::Credits, "no limit, though receives are the queue pair's own", |c| {
        c[3].aeth().syndrome = Syndrome::Ack { credit: 31 };
    }),
];

fn end(bytes: &mut [u8]) -> &mut u8 {
    bytes.last_mut().expect("a frame")
}

fn before_icrc(bytes: &mut [u8]) -> &mut u8 {
    let at = bytes.len() - icrc::LEN - 1;
    &mut bytes[at]
}

#[test]
fn a_good_conversation_breaks_no_rule() {
    assert_eq!(broken(knowing_lint(), &conversation()), BTreeSet::new());
}

#[test]
fn every_plant_is_found_by_its_rule_alone() {
    for (rule, what, plant) in PLANTS {
        let mut planted = conversation();
        plant(&mut planted);
        assert_eq!(broken(knowing_lint(), &planted), BTreeSet::from([*rule]), "{what}");
    }
}

#[test]
fn every_rule_has_a_plant() {
    let planted: BTreeSet<_> = PLANTS.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(planted, Rule::ALL.iter().copied().collect());
}

#[test]
fn an_unannounced_conversation_breaks_no_rule_wherever_it_is_joined() {
    for from in 0..conversation().len() {
        assert_eq!(broken(Lint::default(), &conversation()[from..]), BTreeSet::new(), "from {from} on");
    }
}

#[test]
fn who_answers_whom_is_found_out_and_then_judged() {
    for (at, rule) in [(8, Rule::AckOfData), (10, Rule::ResponseOrder)] {
        let mut planted = conversation();
        let (_, _, plant) = PLANTS.iter().find(|(planted, ..)| *planted == rule).expect("every rule has one");
        plant(&mut planted);
        assert_eq!(broken(Lint::default(), &planted), BTreeSet::from([rule]), "{at}");
    }
}

#[test]
fn of_two_refusals_of_a_packet_that_was_sent_twice_the_first_one_says_how_long_to_wait() {
    let mut twice = conversation();
    let mut refusal = answers(Opcode::RcAck, 9, Syndrome::Rnr { timer: 14 }, 4, 0);
    refusal.after = 1_000_000;
    twice.insert(15, refusal);
    // 1.4 ms after the first one, which asks for 1.28 ms, and 0.4 ms after the second.
    twice[16].after = 400_000;
    assert_eq!(broken(knowing_lint(), &twice), BTreeSet::new());
    twice[16].after = 200_000;
    assert_eq!(broken(knowing_lint(), &twice), BTreeSet::from([Rule::RnrWait]));
}

#[test]
fn a_shared_queue_advertises_no_credits() {
    let mut lint = knowing_lint();
    lint.share_receives(End { ip: IPS[1].into(), qpn: Qpn::new(QPNS[1]) });
    assert_eq!(broken(lint, &conversation()), BTreeSet::from([Rule::Credits]));
}

#[test]
fn a_finding_is_a_sentence() {
    let mut lint = knowing_lint();
    let mut first = asks(Opcode::RcSendFirst, 0, MTU);
    first.bth().pkey = Pkey(0x7fff);
    let text = lint.look(0, &first.frame())[0].to_string();
    assert_eq!(text, "frame 0 breaks p-key (IBTA 10.9.1): expected 0xffff, seen 0x7fff");
}

#[test]
fn a_partition_has_keys_of_its_own() {
    let [full, limited, other] = [Pkey(0x8001), Pkey(0x0001), Pkey::DEFAULT];
    let mut packet = asks(Opcode::RcSendFirst, 0, MTU);
    for (pkey, found) in [(full, false), (limited, false), (other, true)] {
        packet.bth().pkey = pkey;
        let findings = Lint::with_pkeys([full, limited]).look(0, &packet.frame());
        assert_eq!(findings.iter().any(|finding| finding.rule == Rule::PartitionKey), found, "{findings:?}");
    }
}

#[test]
fn other_protocols_are_not_judged() {
    let mut lint = Lint::default();
    let mut other = asks(Opcode::RcSendOnly, 0, 8).frame();
    other[14 + 20 + 2..14 + 20 + 4].copy_from_slice(&53_u16.to_be_bytes());
    for bytes in [&other[..], &[0; 60], &[], &[0xff; 14]] {
        assert!(lint.look(0, bytes).is_empty());
    }
}

#[test]
fn no_frames_make_it_panic_whatever_their_bytes_and_their_order() {
    for seed in 0..3000 {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut lint = if seed % 2 == 0 { knowing_lint() } else { Lint::default() };
        let conversation = conversation();
        for at in 0..40 {
            let mut bytes = conversation[dice.random_range(0..conversation.len())].frame();
            for _ in 0..dice.random_range(0..3) {
                let byte = dice.random_range(TRANSPORT_AT..bytes.len().min(TRANSPORT_AT + 40));
                bytes[byte] = dice.random();
            }
            seal(&mut bytes);
            lint.look(at, &bytes);
        }
    }
}
