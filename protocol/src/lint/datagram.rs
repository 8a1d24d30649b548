//! Rules that a frame keeps by itself.

use super::part::Part;
use super::{FrameReport, Rule, is_foreign};
use crate::Pkey;
use crate::wire::{Bth, Frame, Malformed, Transport, icrc, mad, udp};

/// The shortest Ethernet frame without its FCS: a shorter one is filled up.
const SHORTEST_FRAME: usize = 60;
/// The first of the dynamic ports.
const DYNAMIC_PORTS: u16 = 0xc000;
/// The queue pair of subnet management, which RoCE has not.
const SUBNET_MANAGEMENT: u32 = 0;

/// Checks what can be said of a frame without those before it, but for the opcode's place in a message.
pub(super) fn check(bytes: &[u8], frame: &Frame<'_>, pkeys: &[Pkey], report: &mut FrameReport) {
    check_icrc(frame, report);
    check_end(bytes, frame, report);
    check_pad(frame, report);
    if frame.udp.source < DYNAMIC_PORTS {
        let expected = format!("a source port of {DYNAMIC_PORTS:#x} or more");
        report.broken(Rule::UdpPorts, expected, format!("{:#x}", frame.udp.source));
    }
    check_bth(&frame.packet.headers.bth, report);
    check_pkey(frame.packet.headers.bth.pkey, pkeys, report);
    check_destination(frame, report);
}

/// Says which rule a frame broke that could not be parsed.
pub(super) fn check_malformed(bytes: &[u8], reason: Malformed, report: &mut FrameReport) {
    use Malformed as M;
    let rule = match reason {
        // Whose ICRC is right is a RoCEv2 packet, wherever it goes.
        M::NotRoce if icrc::verify_frame(bytes).is_ok() => {
            report.broken(Rule::UdpPorts, format!("destination port {}", udp::ROCE_PORT), "another one");
            return;
        }
        _ if is_foreign(reason) => return,
        M::Truncated | M::IpLength | M::UdpLength | M::IpChecksum | M::IpHeader | M::IpFragment => {
            if !goes_to_roce(bytes) {
                return;
            }
            Rule::Lengths
        }
        M::Pad | M::Alignment => Rule::Pad,
        M::TransportVersion => Rule::Version,
        M::UnknownOpcode => Rule::Opcode,
        _ => Rule::Icrc,
    };
    report.broken(rule, "a packet that can be read", reason.to_string());
}

/// Whether a frame that cannot be read looks like one to the RoCEv2 port.
fn goes_to_roce(bytes: &[u8]) -> bool {
    const UDP_AT: [(u16, usize); 2] = [(0x0800, 14 + 20), (0x86dd, 14 + 40)];
    let word = |at: usize| bytes.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let tag = if word(12) == Some(0x8100) { 4 } else { 0 };
    UDP_AT.iter().any(|&(kind, at)| word(12 + tag) == Some(kind) && word(at + tag + 2) == Some(udp::ROCE_PORT))
}

fn check_icrc(frame: &Frame<'_>, report: &mut FrameReport) {
    if frame.verify_icrc().is_err() {
        let what = if frame.omits_icrc() { "the mark of an ICRC left out" } else { "another one" };
        report.broken(Rule::Icrc, "the ICRC of the packet", what);
    }
}

/// Nothing follows the IP datagram but what fills the shortest frame up.
fn check_end(bytes: &[u8], frame: &Frame<'_>, report: &mut FrameReport) {
    let used = frame.ethernet.wire_len() + frame.datagram.len();
    if bytes.len() > used.max(SHORTEST_FRAME) {
        let expected = format!("a frame of {used} bytes, as IP says");
        report.broken(Rule::Lengths, expected, format!("{} bytes", bytes.len()));
    }
}

fn check_pad(frame: &Frame<'_>, report: &mut FrameReport) {
    let transport = frame.transport();
    let end = transport.len() - icrc::LEN;
    let pad = &transport[end - usize::from(frame.packet.headers.bth.pad)..end];
    if pad.iter().any(|&byte| byte != 0) {
        report.broken(Rule::Pad, "zero bytes of pad", format!("{pad:02x?}"));
    }
}

fn check_bth(header: &Bth, report: &mut FrameReport) {
    for (bits, name) in [(header.reserved_6, "beside FECN and BECN"), (header.reserved_7, "beside AckReq")] {
        if bits != 0 {
            report.broken(Rule::Reserved, format!("zero {name}"), format!("{bits:#x}"));
        }
    }
    if !header.mig_req {
        report.broken(Rule::MigReq, "MigReq 1", "0");
    }
    let part = Part::of(header.opcode);
    // Of datagrams every packet takes a receive.
    let may_solicit = header.opcode.transport() == Transport::Ud || part.is_some_and(Part::may_solicit);
    if header.solicited && !may_solicit && header.opcode.transport() != Transport::Uc {
        report.broken(Rule::Solicited, format!("none of a {}", header.opcode.name()), "a solicited event");
    }
}

fn check_pkey(seen: Pkey, allowed: &[Pkey], report: &mut FrameReport) {
    if !allowed.contains(&seen) {
        let expected: Vec<_> = allowed.iter().map(Pkey::to_string).collect();
        report.broken(Rule::PartitionKey, expected.join(" or "), seen.to_string());
    }
}

fn check_destination(frame: &Frame<'_>, report: &mut FrameReport) {
    let headers = &frame.packet.headers;
    let destination = headers.bth.dest_qpn.get();
    if destination == SUBNET_MANAGEMENT {
        report.broken(Rule::Destination, "a queue pair other than 0", "queue pair 0");
    }
    let Some(deth) = headers.ext.deth else {
        if destination == mad::QPN {
            report.broken(Rule::Destination, "datagrams to queue pair 1", headers.bth.opcode.name());
        }
        return;
    };
    if deth.reserved != 0 {
        report.broken(Rule::Reserved, "zero before the DETH's queue pair", format!("{:#x}", deth.reserved));
    }
    if destination == mad::QPN && (deth.qkey != mad::QKEY || frame.packet.payload.len() != mad::LEN) {
        let expected = format!("a management datagram of {} bytes with Q_Key {:#x}", mad::LEN, mad::QKEY);
        let seen = format!("{} bytes with Q_Key {:#x}", frame.packet.payload.len(), deth.qkey);
        report.broken(Rule::Destination, expected, seen);
    }
}
