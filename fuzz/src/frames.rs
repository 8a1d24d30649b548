//! Frames of a hostile peer, against an engine that has work of its own under way.
//!
//! The input is a list of actions: mostly a frame, made of literal bytes that a flag puts into a valid envelope with the
//! right ICRC, and that another flag addresses to a queue pair of the victim, with a PSN that it may be waiting for
//! and a key that it has; or work of the victim's own, or time that passes.
//!
//! Never may memory change that was not granted to the peer, nor a work request end that was not posted, or twice.

mod victim;

use roci_driver::link::Link;
use roci_protocol::wire::icrc::Register;
use roci_protocol::wire::{Headers, Opcode, Transport};
use roci_protocol::{Pkey, Rkey};

use crate::tape::Tape;
use victim::{MTU, Victim};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut tape = Tape::new(bytes);
    let mut victim = Victim::new();
    while !tape.is_empty() {
        match tape.byte() % 16 {
            0..=8 => frame(&mut tape, &mut victim),
            9 => victim.post_receive(&mut tape),
            10..=11 => victim.post_send(&mut tape),
            12 => victim.change(&mut tape),
            13 => victim.pass(1 << (tape.byte() % 24)),
            _ => victim.pass(1000),
        }
    }
    victim.end();
}

const IN_ENVELOPE: u8 = 1;
const ADDRESSED: u8 = 2;
const FILL: u8 = 4;
const SHORT: u8 = 8;
const POLL: u8 = 16;
const TORN: u8 = 32;

/// One frame: flags, a length, so many bytes.
fn frame(tape: &mut Tape<'_>, victim: &mut Victim) {
    let flags = tape.byte();
    let len = tape.byte();
    let literal = tape.take(len.into());
    let mut frame = match flags & (IN_ENVELOPE | ADDRESSED) {
        IN_ENVELOPE => enveloped(literal, victim),
        0 => literal.to_vec(),
        _ => addressed(literal, flags, victim),
    };
    if flags & TORN != 0 && !frame.is_empty() {
        let at = usize::from(tape.byte()) % frame.len();
        frame[at] ^= tape.byte();
    }
    // A full wire is the peer's own loss.
    let _ = victim.wire.transmit(frame.len(), |bytes| bytes.copy_from_slice(&frame));
    if flags & POLL != 0 {
        victim.pass(100);
    }
}

/// The bytes as a packet, whatever they are, with lengths and an ICRC that fit.
fn enveloped(literal: &[u8], victim: &mut Victim) -> Vec<u8> {
    const TEMPLATE: usize = 12;
    let padded = literal.len().max(TEMPLATE).next_multiple_of(4);
    let headers = Headers::plain(roci_protocol::wire::Bth::new(
        Opcode::RcSendOnly,
        victim.qps[0].qpn(),
        roci_protocol::Psn::default(),
    ));
    let mut frame = vec![0; victim.flow.frame_len(&headers, padded - TEMPLATE)];
    victim.flow.emit(&mut frame, &headers, padded - TEMPLATE, |payload| payload.fill(0));
    let packet = 14 + 20 + 8;
    frame[packet..packet + literal.len()].copy_from_slice(literal);
    let (register, at) = Register::after_udp(&frame[14..]).expect("a flow's own headers");
    let end = frame.len() - 4;
    let icrc = register.finish(&frame[14 + at..end]);
    frame[end..].copy_from_slice(&icrc);
    frame
}

/// The bytes as headers and payload, with numbers and keys that mean something.
fn addressed(literal: &[u8], flags: u8, victim: &mut Victim) -> Vec<u8> {
    let mut bytes = literal.to_vec();
    bytes.resize(literal.len().max(48), 0);
    if Opcode::from_wire(bytes[0]).is_none() {
        bytes[0] = Opcode::ALL[usize::from(bytes[0]) % Opcode::ALL.len()] as u8;
    }
    bytes[1] &= 0xf0;
    let (mut headers, _) = Headers::parse(&bytes).expect("a known opcode with room for its headers");
    let payload = literal.get(headers.wire_len()..).unwrap_or_default();
    let len = match flags & (FILL | SHORT) {
        0 => payload.len(),
        FILL => MTU,
        SHORT => payload.len().min(20),
        _ => MTU + 4,
    };
    address(&mut headers, len, victim);
    let mut frame = vec![0; victim.flow.frame_len(&headers, len)];
    victim.flow.emit(&mut frame, &headers, len, |bytes| {
        let copied = payload.len().min(bytes.len());
        bytes[..copied].copy_from_slice(&payload[..copied]);
    });
    frame
}

fn address(headers: &mut Headers, len: usize, victim: &mut Victim) {
    let low = headers.bth.psn.get();
    let target =
        if headers.bth.opcode.transport() == Transport::Ud { 2 } else { headers.bth.dest_qpn.get() as usize % 8 };
    headers.bth.dest_qpn = victim.qpn(target);
    if headers.bth.pkey != Pkey(0x1234) {
        headers.bth.pkey = Pkey::DEFAULT;
    }
    let key = |key: Rkey| victim.keys()[key.0 as usize % victim.keys().len()];
    if let Some(reth) = &mut headers.ext.reth {
        (reth.va, reth.rkey, reth.len) = (tame(reth.va), key(reth.rkey), reth.len & 0x7ff);
        if headers.bth.opcode == Opcode::RcWriteOnly || headers.bth.opcode == Opcode::RcWriteOnlyImm {
            reth.len = len as u32 + (reth.len == 0x7ff) as u32;
        }
    }
    if let Some(atomic) = &mut headers.ext.atomic {
        // Mostly aligned: another address ends the connection.
        let va = if atomic.va & 7 == 7 { atomic.va } else { tame(atomic.va) & !7 };
        (atomic.va, atomic.rkey) = (va, key(atomic.rkey));
    }
    if let Some(ieth) = &mut headers.ext.ieth {
        ieth.0 = key(ieth.0);
    }
    if let Some(deth) = &mut headers.ext.deth
        && deth.qkey & 3 != 0
    {
        deth.qkey = victim::QKEY;
    }
    headers.bth.psn = victim.psn(headers, target % 2, low);
}

/// An address that is mostly inside a region, and often about where the window is.
fn tame(va: u64) -> u64 {
    match va & 7 {
        0..=3 => va >> 3 & 0x3f,
        4..=5 => va & 0x1f8,
        6 => va & 0x7ff,
        _ => va,
    }
}
