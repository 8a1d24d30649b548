//! Packets that are lost, one by one, in either direction.

use roci_driver::{QpParams, SendWr};
use roci_protocol::wire::Opcode;

use super::connected::expect;
use crate::LabError;
use crate::lab::{GuestPair, Lab, PairTerms, number, pattern};
use crate::wire::FrameDirection;

/// Returns whether the scenario loses packets with this opcode.
type OpcodeFilter = fn(Opcode) -> bool;
/// Packets of a long message.
const PACKETS: usize = 16;
const MTU: usize = 1024;
const LEN: usize = PACKETS * MTU - 100;

/// Short timeouts on both sides: a lost packet that nothing follows is only missed by them.
pub(super) fn hasty() -> PairTerms {
    let terms = PairTerms::default();
    let params = QpParams { ack_timeout_ns: 40_000_000, ack_timeout_max_ns: 200_000_000, ..terms.params.clone() };
    // For rxe 7 retries are no limit.
    PairTerms { params, theirs: "timeout=14 retry=7".into(), ..terms }
}

/// Loses the packet of kind `is_kind` with this index, once.
fn lose_nth(lab: &Lab, way: FrameDirection, index: usize, is_kind: OpcodeFilter) {
    let mut seen = 0;
    lab.lose(Box::new(move |going, packet| {
        if going != way || !is_kind(packet.headers.bth.opcode) {
            return false;
        }
        seen += 1;
        seen == index + 1
    }));
}

/// Runs a transfer with each of the packets lost in turn, and makes sure that it was.
fn each_packet(
    lab: &mut Lab,
    way: FrameDirection,
    is_kind: OpcodeFilter,
    transfer: fn(&mut Lab, GuestPair) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let pair = lab.connect(&hasty())?;
    for index in 0..PACKETS {
        lose_nth(lab, way, index, is_kind);
        let before = lab.script.borrow().lost;
        transfer(lab, pair).map_err(|failure| format!("without packet {index}: {failure}"))?;
        expect("the number of packets lost", lab.script.borrow().lost - before, 1)?;
    }
    Ok(())
}

fn is_write(opcode: Opcode) -> bool {
    use Opcode::{RcWriteFirst, RcWriteLast, RcWriteMiddle, RcWriteOnly};
    matches!(opcode, RcWriteFirst | RcWriteMiddle | RcWriteLast | RcWriteOnly)
}

fn is_read_response(opcode: Opcode) -> bool {
    use Opcode::{RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly};
    matches!(opcode, RcReadResponseFirst | RcReadResponseMiddle | RcReadResponseLast | RcReadResponseOnly)
}

pub(super) fn write_ours(lab: &mut Lab) -> Result<(), LabError> {
    each_packet(lab, FrameDirection::Out, is_write, |lab, pair| {
        let target = lab.remote(LEN)?;
        let payload = lab.buffer(&pattern(5, LEN))?;
        lab.post(pair, SendWr::write(1, payload, target.rkey, target.addr))?;
        lab.wait_ok()?;
        lab.ask(&format!("check mr={} off=0 len={LEN} seed=5", target.mr))?;
        Ok(())
    })
}

pub(super) fn write_theirs(lab: &mut Lab) -> Result<(), LabError> {
    each_packet(lab, FrameDirection::In, is_write, |lab, pair| {
        let source = lab.remote(LEN)?;
        lab.ask(&format!("fill mr={} off=0 len={LEN} seed=6", source.mr))?;
        let region = lab.region(&vec![0; LEN])?;
        let to = format!("mr={} off=0 len={LEN} raddr=0 rkey={}", source.mr, region.rkey().0);
        lab.ask(&format!("send qp={} wr=8 op=write {to}", pair.theirs))?;
        lab.they_succeed()?;
        expect("our memory", lab.content(region)? == pattern(6, LEN), true)
    })
}

pub(super) fn read_ours(lab: &mut Lab) -> Result<(), LabError> {
    each_packet(lab, FrameDirection::In, is_read_response, |lab, pair| {
        let source = lab.remote(LEN)?;
        lab.ask(&format!("fill mr={} off=0 len={LEN} seed=7", source.mr))?;
        let target = lab.buffer(&vec![0; LEN])?;
        lab.post(pair, SendWr::read(1, target, source.rkey, source.addr))?;
        expect("what was read", lab.wait_ok()?.buffer[..LEN] == pattern(7, LEN), true)
    })
}

pub(super) fn read_theirs(lab: &mut Lab) -> Result<(), LabError> {
    each_packet(lab, FrameDirection::Out, is_read_response, |lab, pair| {
        let target = lab.remote(LEN)?;
        let region = lab.region(&pattern(8, LEN))?;
        let from = format!("mr={} off=0 len={LEN} raddr=0 rkey={}", target.mr, region.rkey().0);
        lab.ask(&format!("send qp={} wr=8 op=read {from}", pair.theirs))?;
        lab.they_succeed()?;
        lab.ask(&format!("check mr={} off=0 len={LEN} seed=8", target.mr))?;
        Ok(())
    })
}

pub(super) fn requests_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&hasty())?;
    let target = lab.remote(64)?;
    let cases: [(FrameDirection, OpcodeFilter); 3] = [
        (FrameDirection::Out, |opcode| opcode == Opcode::RcFetchAdd),
        (FrameDirection::In, |opcode| opcode == Opcode::RcAtomicAck),
        (FrameDirection::Out, |opcode| opcode == Opcode::RcReadRequest),
    ];
    for (round, (way, is_kind)) in cases.into_iter().enumerate() {
        lose_nth(lab, way, 0, is_kind);
        let buffer = lab.buffer(&[0; 8])?;
        lab.post(pair, SendWr::fetch_add(1, buffer, target.rkey, target.addr, 1))?;
        let before = u64::from_le_bytes(lab.wait_ok()?.buffer[..8].try_into()?);
        expect("FETCH_ADD's result", before, round as u64)?;
        let buffer = lab.buffer(&[0; 64])?;
        lab.post(pair, SendWr::read(2, buffer, target.rkey, target.addr))?;
        expect("the word", u64::from_le_bytes(lab.wait_ok()?.buffer[..8].try_into()?), round as u64 + 1)?;
    }
    expect("the packets lost", lab.script.borrow().lost, cases.len())
}

pub(super) fn requests_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&hasty())?;
    let local = lab.remote(64)?;
    let region = lab.region(&[0; 64])?;
    let cases: [(FrameDirection, OpcodeFilter); 3] = [
        (FrameDirection::In, |opcode| opcode == Opcode::RcFetchAdd),
        (FrameDirection::Out, |opcode| opcode == Opcode::RcAtomicAck),
        (FrameDirection::In, |opcode| opcode == Opcode::RcReadRequest),
    ];
    let at = format!("mr={} off=0 raddr=0 rkey={}", local.mr, region.rkey().0);
    for (round, (way, is_kind)) in cases.into_iter().enumerate() {
        lose_nth(lab, way, 0, is_kind);
        lab.ask(&format!("send qp={} wr=1 op=fadd add=1 {at}", pair.theirs))?;
        lab.they_succeed()?;
        lab.ask(&format!("send qp={} wr=2 op=read len=64 {at}", pair.theirs))?;
        lab.they_succeed()?;
        expect("our word", u64::from_le_bytes(lab.content(region)?[..8].try_into()?), round as u64 + 1)?;
    }
    expect("the packets lost", lab.script.borrow().lost, cases.len())
}

/// The WRITE's acknowledgement and the first answer of what follows it are lost, so the guest sends both again. rxe takes
/// an acknowledgement with the second request's PSN for its answer, and would report success without data.
pub(super) fn repeated_write_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&hasty())?;
    let (source, target) = (lab.remote(8)?, lab.remote(64)?);
    let (written, word) = (lab.region(&[0; 8])?, lab.region(&[0; 64])?);
    for round in 0..REPEATED_WRITES {
        let seed = round as u8 + 1;
        let read = lab.region(&pattern(seed, 64))?;
        for (data, second) in [
            (Opcode::RcReadResponseOnly, format!("op=read len=64 rkey={}", read.rkey().0)),
            (Opcode::RcAtomicAck, format!("op=fadd add=1 rkey={}", word.rkey().0)),
        ] {
            lab.ask(&format!("fill mr={} off=0 len=64 seed=200", target.mr))?;
            lose_first_ack_and(lab, data);
            let write = format!("op=write mr={} off=0 len=8 raddr=0 rkey={}", source.mr, written.rkey().0);
            lab.ask(&format!("send qp={} wr=1 {write}", pair.theirs))?;
            lab.ask(&format!("send qp={} wr=2 mr={} off=0 raddr=0 {second}", pair.theirs, target.mr))?;
            lab.they_succeed()?;
            lab.they_succeed()?;
            if data == Opcode::RcAtomicAck {
                let found = lab.ask(&format!("peek mr={} off=0 len=8", target.mr))?;
                let due = format!("{:016x}", (round as u64).swap_bytes());
                expect("what FETCH_ADD found", found.get("hex").cloned().unwrap_or_default(), due)?;
            } else {
                lab.ask(&format!("check mr={} off=0 len=64 seed={seed}", target.mr))?;
            }
        }
    }
    Ok(())
}

const REPEATED_WRITES: usize = 10;

fn lose_first_ack_and(lab: &Lab, data: Opcode) {
    let mut due = vec![Opcode::RcAck, data];
    lab.lose(Box::new(move |going, packet| {
        let found = due.iter().position(|&opcode| going == FrameDirection::Out && opcode == packet.headers.bth.opcode);
        found.map(|at| due.swap_remove(at)).is_some()
    }));
}

/// Loses every second acknowledgement.
fn lose_acks(lab: &Lab, way: FrameDirection) {
    let mut seen = 0;
    lab.lose(Box::new(move |going, packet| {
        let is_ack = going == way && packet.headers.bth.opcode == Opcode::RcAck;
        seen += usize::from(is_ack);
        is_ack && seen % 2 == 1
    }));
}

const MESSAGES: usize = 32;

pub(super) fn acks_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&hasty())?;
    let target = lab.remote(MESSAGES * 100)?;
    for index in 0..MESSAGES {
        lab.ask(&format!("recv qp={} wr={index} mr={} off={} len=100", pair.theirs, target.mr, index * 100))?;
    }
    lose_acks(lab, FrameDirection::In);
    for index in 0..MESSAGES {
        let message = lab.buffer(&pattern(index as u8, 100))?;
        lab.post(pair, SendWr::send(index as u64, message))?;
        expect("the order", lab.wait_ok()?.wr_id, index as u64)?;
    }
    let received = lab.their_completions(MESSAGES)?;
    for (index, done) in received.iter().enumerate() {
        expect("the order", number(done, "wr")?, index as u32)?;
        lab.ask(&format!("check mr={} off={} len=100 seed={index}", target.mr, index * 100))?;
    }
    Ok(())
}

pub(super) fn acks_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&hasty())?;
    let source = lab.remote(100)?;
    lab.ask(&format!("fill mr={} off=0 len=100 seed=3", source.mr))?;
    for index in 0..MESSAGES {
        lab.post_recv(pair, index as u64, 100)?;
    }
    lose_acks(lab, FrameDirection::Out);
    for index in 0..MESSAGES {
        lab.ask(&format!("send qp={} wr={index} op=send mr={} off=0 len=100", pair.theirs, source.mr))?;
        lab.they_succeed()?;
    }
    for index in 0..MESSAGES {
        let done = lab.wait_ok()?;
        expect("the order", done.wr_id, index as u64)?;
        expect("the message", done.buffer[..100] == pattern(3, 100), true)?;
    }
    expect("that nothing came twice", lab.engine.poll_cq(lab.cq).is_none(), true)
}
