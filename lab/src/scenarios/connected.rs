//! Reliable connections: every operation, every length, both roles.

use std::cell::Cell;
use std::rc::Rc;

use roci_driver::{Access, Mtu, Operation, SendWr, WindowView};
use roci_protocol::Rkey;

use crate::LabError;
use crate::lab::{GidRoute, GuestPair, Lab, PairTerms, V6, VLAN, all_access, number, pattern};
use crate::wire::{FrameDirection, ZERO_COPY_FROM};

const MTUS: [Mtu; 5] = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096];
const LARGE: usize = 1 << 20;

/// Lengths around the edges of packets.
fn lengths(mtu: Mtu) -> [usize; 6] {
    let full = mtu.bytes();
    [0, 1, full - 1, full, full + 1, 3 * full + 5]
}

/// Runs `action` for every MTU, on a connection of its own, and every length.
fn each_length(
    lab: &mut Lab,
    mut action: impl FnMut(&mut Lab, GuestPair, usize) -> Result<(), LabError>,
) -> Result<(), LabError> {
    for mtu in MTUS {
        let pair = lab.connect(&PairTerms { mtu, ..PairTerms::default() })?;
        for len in lengths(mtu) {
            action(lab, pair, len).map_err(|failure| format!("MTU {}, {len} bytes: {failure}", mtu.bytes()))?;
        }
        lab.engine.destroy_qp(pair.qp);
        lab.ask(&format!("destroy qp={}", pair.theirs))?;
    }
    Ok(())
}

pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, due: T) -> Result<(), LabError> {
    if got == due { Ok(()) } else { Err(format!("{what} is {got:?} and not {due:?}").into()) }
}

fn send_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let target = lab.remote(len)?;
    lab.ask(&format!("recv qp={} wr=5 mr={} off=0 len={len}", pair.theirs, target.mr))?;
    let message = lab.buffer(&pattern(9, len))?;
    lab.post(pair, SendWr::send(1, message))?;
    lab.wait_ok()?;
    let done = lab.they_succeed()?;
    expect("the received length", number(&done, "len")? as usize, len)?;
    lab.ask(&format!("check mr={} off=0 len={len} seed=9", target.mr))?;
    Ok(())
}

fn receive_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let source = lab.remote(len)?;
    lab.post_recv(pair, 3, len)?;
    lab.ask(&format!("fill mr={} off=0 len={len} seed=11", source.mr))?;
    lab.ask(&format!("send qp={} wr=6 op=send mr={} off=0 len={len}", pair.theirs, source.mr))?;
    let done = lab.wait_ok()?;
    expect("the received length", done.len, len)?;
    expect("the message", done.buffer[..len] == pattern(11, len), true)?;
    lab.they_succeed()?;
    Ok(())
}

pub(super) fn send_ours(lab: &mut Lab) -> Result<(), LabError> {
    each_length(lab, send_once)
}

pub(super) fn send_theirs(lab: &mut Lab) -> Result<(), LabError> {
    each_length(lab, receive_once)
}

fn write_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let target = lab.remote(len)?;
    let payload = lab.buffer(&pattern(21, len))?;
    lab.post(pair, SendWr::write(1, payload, target.rkey, target.addr))?;
    lab.wait_ok()?;
    lab.ask(&format!("check mr={} off=0 len={len} seed=21", target.mr))?;
    Ok(())
}

fn write_with_imm_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let target = lab.remote(len)?;
    lab.ask(&format!("recv qp={} wr=7", pair.theirs))?;
    let payload = lab.buffer(&pattern(22, len))?;
    lab.post(pair, SendWr::write(2, payload, target.rkey, target.addr).with_imm(0x1234_5678))?;
    lab.wait_ok()?;
    let done = lab.they_succeed()?;
    expect("the operation", done["opcode"].as_str(), "RECV_RDMA_WITH_IMM")?;
    expect("the immediate data", number(&done, "imm")?, 0x1234_5678)?;
    lab.ask(&format!("check mr={} off=0 len={len} seed=22", target.mr))?;
    Ok(())
}

pub(super) fn write_ours(lab: &mut Lab) -> Result<(), LabError> {
    each_length(lab, |lab, pair, len| {
        write_once(lab, pair, len)?;
        write_with_imm_once(lab, pair, len)
    })
}

fn be_written_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let source = lab.remote(len)?;
    lab.ask(&format!("fill mr={} off=0 len={len} seed=31", source.mr))?;
    let region = lab.region(&vec![0; len])?;
    let to = format!("mr={} off=0 len={len} raddr=0 rkey={}", source.mr, region.rkey().0);
    lab.ask(&format!("send qp={} wr=8 op=write {to}", pair.theirs))?;
    lab.they_succeed()?;
    expect("our memory", lab.content(region)? == pattern(31, len), true)?;

    lab.ask(&format!("fill mr={} off=0 len={len} seed=32", source.mr))?;
    lab.post_recv(pair, 4, 0)?;
    lab.ask(&format!("send qp={} wr=9 op=write_imm imm=0xabcdef01 {to}", pair.theirs))?;
    let done = lab.wait_ok()?;
    expect("the operation", done.operation, Operation::RecvRdmaWithImm)?;
    expect("the immediate data", done.imm, Some(0xabcd_ef01))?;
    expect("the length", done.len, len)?;
    lab.they_succeed()?;
    expect("our memory", lab.content(region)? == pattern(32, len), true)
}

pub(super) fn write_theirs(lab: &mut Lab) -> Result<(), LabError> {
    each_length(lab, be_written_once)
}

fn read_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let source = lab.remote(len)?;
    lab.ask(&format!("fill mr={} off=0 len={len} seed=41", source.mr))?;
    let target = lab.buffer(&vec![0; len])?;
    lab.post(pair, SendWr::read(1, target, source.rkey, source.addr))?;
    let done = lab.wait_ok()?;
    expect("what was read", done.buffer[..len] == pattern(41, len), true)
}

pub(super) fn read_ours(lab: &mut Lab) -> Result<(), LabError> {
    each_length(lab, read_once)
}

fn be_read_once(lab: &mut Lab, pair: GuestPair, len: usize) -> Result<(), LabError> {
    let target = lab.remote(len)?;
    let region = lab.region(&pattern(51, len))?;
    let from = format!("mr={} off=0 len={len} raddr=0 rkey={}", target.mr, region.rkey().0);
    lab.ask(&format!("send qp={} wr=8 op=read {from}", pair.theirs))?;
    lab.they_succeed()?;
    lab.ask(&format!("check mr={} off=0 len={len} seed=51", target.mr))?;
    Ok(())
}

pub(super) fn read_theirs(lab: &mut Lab) -> Result<(), LabError> {
    each_length(lab, be_read_once)
}

pub(super) fn atomics_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let target = lab.remote(64)?;
    let (rkey, va) = (target.rkey, target.addr + 8);
    lab.ask(&format!("poke mr={} off=8 hex=6400000000000000", target.mr))?;
    let result = |lab: &mut Lab| -> Result<u64, LabError> {
        let done = lab.wait_ok()?;
        Ok(u64::from_le_bytes(done.buffer[..8].try_into()?))
    };
    let buffer = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::fetch_add(1, buffer, rkey, va, 5))?;
    expect("FETCH_ADD's result", result(lab)?, 100)?;
    let buffer = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::compare_swap(2, buffer, rkey, va, 105, 7))?;
    expect("COMPARE_SWAP's result", result(lab)?, 105)?;
    let buffer = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::compare_swap(3, buffer, rkey, va, 105, 9))?;
    expect("the missing COMPARE_SWAP's result", result(lab)?, 7)?;
    let peek = lab.ask(&format!("peek mr={} off=8 len=8", target.mr))?;
    expect("the guest's word", peek["hex"].as_str(), "0700000000000000")
}

pub(super) fn atomics_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let result = lab.remote(8)?;
    let mut bytes = [0; 64];
    bytes[8..16].copy_from_slice(&100_u64.to_le_bytes());
    let region = lab.region(&bytes)?;
    let request = |lab: &mut Lab, words: &str, due: u64| -> Result<(), LabError> {
        let at = format!("mr={} off=0 raddr=8 rkey={}", result.mr, region.rkey().0);
        lab.ask(&format!("send qp={} wr=1 {words} {at}", pair.theirs))?;
        lab.they_succeed()?;
        let peek = lab.ask(&format!("peek mr={} off=0 len=8", result.mr))?;
        let due: String = due.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        expect("the result", peek["hex"].clone(), due)
    };
    request(lab, "op=fadd add=5", 100)?;
    request(lab, "op=cas compare=105 swap=7", 105)?;
    request(lab, "op=cas compare=105 swap=9", 7)?;
    expect("our word", u64::from_le_bytes(lab.content(region)?[8..16].try_into()?), 7)
}

pub(super) fn imm_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    for len in [0, 5, 3000] {
        let target = lab.remote(len)?;
        lab.ask(&format!("recv qp={} wr=5 mr={} off=0 len={len}", pair.theirs, target.mr))?;
        let message = lab.buffer(&pattern(9, len))?;
        lab.post(pair, SendWr::send(1, message).with_imm(0xdead_beef).solicited())?;
        lab.wait_ok()?;
        expect("the immediate data", number(&lab.they_succeed()?, "imm")?, 0xdead_beef)?;
    }
    Ok(())
}

pub(super) fn imm_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    for len in [0, 5, 3000] {
        let source = lab.remote(len)?;
        lab.post_recv(pair, 3, len)?;
        let from = format!("mr={} off=0 len={len}", source.mr);
        lab.ask(&format!("send qp={} wr=6 op=send_imm imm=0x01020304 solicited=1 {from}", pair.theirs))?;
        expect("the immediate data", lab.wait_ok()?.imm, Some(0x0102_0304))?;
        lab.they_succeed()?;
    }
    Ok(())
}

pub(super) fn invalidate_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let target = lab.remote(4096)?;
    let window = number(&lab.ask("mw type=2")?, "mw")?;
    let bind = format!("bind qp={} wr=1 mw={window} mr={} off=0 len=4096 access=w", pair.theirs, target.mr);
    let rkey = Rkey(number(&lab.ask(&bind)?, "rkey")?);
    lab.they_succeed()?;
    let payload = lab.buffer(&pattern(1, 4096))?;
    lab.post(pair, SendWr::write(1, payload, rkey, target.addr))?;
    lab.wait_ok()?;
    lab.ask(&format!("recv qp={} wr=5 mr={} off=0 len=16", pair.theirs, target.mr))?;
    let message = lab.buffer(b"end of the lease")?;
    lab.post(pair, SendWr::send_with_invalidate(2, message, rkey))?;
    lab.wait_ok()?;
    expect("the key that ended", number(&lab.they_succeed()?, "inv")?, rkey.0)?;
    let payload = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::write(3, payload, rkey, target.addr))?;
    expect("a late WRITE's status", lab.wait()?.status.verbs_name(), "IBV_WC_REM_ACCESS_ERR")
}

pub(super) fn invalidate_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let source = lab.remote(4096)?;
    lab.ask(&format!("fill mr={} off=0 len=4096 seed=3", source.mr))?;
    let region = lab.region(&[0; 8192])?;
    let mut window = lab.engine.alloc_window(lab.pd).ok_or("no key is free")?;
    let view = WindowView { region, va: 4096, len: 4096, access: Access::REMOTE_WRITE };
    lab.engine.bind_window(pair.qp, 1, &mut window, view).map_err(|refused| refused.why)?;
    lab.wait_ok()?;
    let write = format!("op=write mr={} off=0 len=4096 raddr=4096 rkey={}", source.mr, window.rkey().0);
    lab.ask(&format!("send qp={} wr=8 {write}", pair.theirs))?;
    lab.they_succeed()?;
    expect("our memory", lab.content(region)?[4096..] == pattern(3, 4096), true)?;
    lab.post_recv(pair, 4, 16)?;
    let end = format!("op=send_inv inv={} mr={} off=0 len=16", window.rkey().0, source.mr);
    lab.ask(&format!("send qp={} wr=9 {end}", pair.theirs))?;
    expect("the key that ended", lab.wait_ok()?.invalidated, Some(window.rkey()))?;
    lab.they_succeed()?;
    lab.ask(&format!("send qp={} wr=10 {write}", pair.theirs))?;
    let late = lab.their_completions(1)?.remove(0);
    expect("a late WRITE's status", late["status"].as_str(), "IBV_WC_REM_ACCESS_ERR")
}

pub(super) fn large_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { mtu: Mtu::Mtu4096, ..PairTerms::default() })?;
    write_once(lab, pair, LARGE)?;
    read_once(lab, pair, LARGE)
}

pub(super) fn large_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { mtu: Mtu::Mtu4096, ..PairTerms::default() })?;
    be_written_once(lab, pair, LARGE)?;
    be_read_once(lab, pair, LARGE)
}

/// Every packet of ours whose payload is long enough leaves in place, be it a request or a response.
pub(super) fn zero_copy_payloads(lab: &mut Lab) -> Result<(), LabError> {
    let long = count_long(lab);
    each_length(lab, |lab, pair, len| {
        for transfer in [send_once, write_once, be_read_once] {
            let before = (long.get(), lab.engine.link_stats(0).tx_zero_copy);
            transfer(lab, pair, len)?;
            let sent = long.get() - before.0;
            expect("whether there is a long payload", sent > 0, len >= ZERO_COPY_FROM)?;
            expect("the payloads that left in place", lab.engine.link_stats(0).tx_zero_copy - before.1, sent)?;
        }
        Ok(())
    })
}

/// Counts the packets of ours whose payloads are long enough to be sent without a copy, from here on.
fn count_long(lab: &Lab) -> Rc<Cell<u64>> {
    let long = Rc::new(Cell::new(0));
    let count = long.clone();
    lab.lose(Box::new(move |way, packet| {
        count.set(count.get() + u64::from(way == FrameDirection::Out && packet.payload.len() >= ZERO_COPY_FROM));
        false
    }));
    long
}

fn everything(lab: &mut Lab, route: GidRoute) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { route, ..PairTerms::default() })?;
    for len in [1, 5000] {
        send_once(lab, pair, len)?;
        receive_once(lab, pair, len)?;
        write_once(lab, pair, len)?;
        be_written_once(lab, pair, len)?;
        read_once(lab, pair, len)?;
        be_read_once(lab, pair, len)?;
    }
    Ok(())
}

pub(super) fn ipv6(lab: &mut Lab) -> Result<(), LabError> {
    everything(lab, V6)
}

pub(super) fn vlan(lab: &mut Lab) -> Result<(), LabError> {
    everything(lab, VLAN)
}

pub(super) fn psn_wrap(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { psns: [0xff_fff0, 0xff_fff4], ..PairTerms::default() })?;
    for round in 0..20 {
        let len = 100 * round;
        send_once(lab, pair, len)?;
        receive_once(lab, pair, len)?;
        read_once(lab, pair, len)?;
        be_read_once(lab, pair, len)?;
    }
    Ok(())
}

pub(super) fn shared_receives(lab: &mut Lab) -> Result<(), LabError> {
    let srq = lab.engine.create_srq(16, lab.cq);
    lab.ask("open gid=1")?;
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let theirs = lab.ask("qp type=rc")?;
        let terms = PairTerms::default();
        pairs.push(lab.connect_with(&terms, number(&theirs, "qp")?, number(&theirs, "qpn")?, Some(srq))?);
    }
    for wr_id in 0..8 {
        let buffer = lab.engine.buffer(3000)?;
        lab.engine.post_srq_recv(srq, wr_id, buffer).map_err(|refused| refused.why)?;
    }
    let source = lab.remote(3000)?;
    lab.ask(&format!("fill mr={} off=0 len=3000 seed=4", source.mr))?;
    for wr_id in 0..8_u64 {
        let pair = pairs[wr_id as usize % 2];
        lab.ask(&format!("send qp={} wr=1 op=send mr={} off=0 len=3000", pair.theirs, source.mr))?;
        let done = lab.wait_ok()?;
        expect("the receive", (done.wr_id, done.qp), (wr_id, pair.qp))?;
        expect("the message", done.buffer[..3000] == pattern(4, 3000), true)?;
        lab.they_succeed()?;
    }
    expect("what is left", lab.engine.srq_len(srq), 0)?;
    debug_assert!(all_access().allows(Access::WINDOW_BIND));
    Ok(())
}
