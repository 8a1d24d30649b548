//! Writes the corpora: `cargo run -p roci-fuzz --example seeds`.
//!
//! The frames are those that Linux's rxe sent and got (`protocol/tests/vectors/rxe`), as actions of the target, with
//! numbers and keys of zero, which the target takes for the first of its own.

use std::error::Error;
use std::fs;
use std::path::Path;

use pcap_parser::{Capture, PcapBlock, PcapCapture};
use roci_protocol::wire::{Frame, Opcode, Transport};

/// Captures, and what the victim has posted before: receives, and one send of a kind (`frames/victim.rs`).
const CAPTURES: [(&str, &[u8]); 17] = [
    ("rc_send_first_mid_last", &[]),
    ("rc_send_imm", &[]),
    ("rc_send_inv", &[]),
    ("rc_write_only", &[]),
    ("rc_write_multi", &[]),
    ("rc_write_imm_multi", &[]),
    ("rc_read3_multi", &[]),
    ("host_read_dup", &[]),
    ("host_dup_fadd", &[]),
    ("host_cas", &[]),
    ("host_psn_gap", &[]),
    ("guest_send_hostack", &[10, 0, 0, 0, 100, 0]),
    ("guest_send_seqnak", &[10, 0, 0, 2, 20, 0]),
    ("guest_send_rnr", &[10, 0, 0, 0, 100, 0]),
    ("guest_read_hostresp", &[10, 0, 4, 2, 20, 0]),
    ("guest_fadd_hostresp", &[10, 0, 6, 0]),
    ("ud_send_imm", &[9, 1, 0, 0]),
];

/// Two engines: connected, with regions and receives, then one of each work request; drained; with datagrams.
const CALLS: [(&str, &[u8]); 4] = [
    (
        "verbs",
        &[
            0, 0, 0, 0x9f, 0, 3, 3, 0, 1, 1, 0, 0, 9, 9, // lossless, connected
            0x82, 1, 2, 1, 0, 0, 0x82, 1, 2, 1, 0, 0, 0x87, 1, 2, 1, 200,
            0x0f, // the far host's receives, a region
            4, 0, 0, 2, 0, 100, 0, 0, 0, 13, 10, 7, 4, 0, 0, 2, 0, 100, 3, 0, 0, 13, 10, 7, // SEND, WRITE
            4, 0, 0, 2, 0, 100, 5, 0, 0, 13, 10, 7, 4, 0, 0, 2, 0, 100, 6, 0, 0, 13, 10, 7, // READ, FETCH_ADD
            12, 0x8c, 1, 0, 0,
        ],
    ),
    (
        "windows",
        &[
            0, 0, 0, 0x9f, 0, 3, 3, 0, 1, 1, 0, 0, 9, 9, // connected
            0x87, 1, 2, 1, 200, 0x0f, 0x88, 0, 0, 0x88, 1, 0, 0, 0, 0, 0, 10, 0, 20, // a region, a window, bound
            0x82, 1, 2, 1, 0, 0, 4, 1, 0, 2, 0, 8, 2, 0, 0, 13, 10, 7, // ended by the peer
            0x88, 2, 0, 0, 0, 13, 10, 7, 12, 0x8c, 0x88, 3, 0, 0,
        ],
    ),
    (
        "drain",
        &[
            1, 0, 0, 0x9f, 0, 3, 3, 0, 1, 1, 4, 4, 9, 9, // lossy, shared receives
            0x82, 0, 2, 1, 0, 0, 1, 4, 0, 0, 2, 0, 100, 0x20, 0, 0, 9, 0, 1, 4, 0, 0, 2, 0, 100, 0x28, 0, 0, //
            13, 15, 7, 9, 0, 4, 13, 15, 7, 12, 0x8c, 0x81, 0, 0, 13, 15, 7, 13, 15, 7, 13, 15, 7, 13, 15, 7, 12,
        ],
    ),
    (
        "datagrams",
        &[
            0, 10, 0, 0, 0x8a, 0, 0, 10, 2, 0x8a, 4, 0, 2, 1, 0, // a queue pair each, an address, a receive
            11, 0, 0, 0, 0, 0, 5, 0, 13, 10, 7, 12, 0x8c, 10, 3, 0, 0, 0x8a, 1, 0, 0,
        ],
    ),
];

/// A receive of 767 bytes on the first queue pair, three times.
const RECEIVES: [u8; 12] = [9, 2, 0xff, 2, 9, 2, 0xff, 2, 9, 2, 0xff, 2];

fn main() -> Result<(), Box<dyn Error>> {
    for (name, before) in CAPTURES {
        let mut seed = [&RECEIVES[..], before, &[14]].concat();
        let mut responses = 0;
        captured(name)?.iter().for_each(|bytes| seed.extend(action(bytes, &mut responses)));
        write("frames", name, &seed)?;
    }
    for (name, calls) in CALLS {
        write("api", name, calls)?;
    }
    for name in ["cm_rping", "cm_reject"] {
        for (at, bytes) in captured(name)?.iter().enumerate() {
            let Ok(frame) = Frame::parse(bytes) else { continue };
            if frame.packet.headers.bth.opcode.transport() == Transport::Ud {
                write("mads", &format!("{name}_{at}"), frame.packet.payload)?;
            }
        }
    }
    Ok(())
}

/// A captured frame as an action: addressed to the victim, followed by a poll.
fn action(bytes: &[u8], responses: &mut u8) -> Vec<u8> {
    let Ok(frame) = Frame::parse(bytes) else { return Vec::new() };
    let mut packet = frame.datagram[frame.ip.wire_len() + 8..frame.datagram.len() - 4].to_vec();
    packet[5..8].fill(0);
    packet[9..12].fill(0);
    if frame.packet.headers.ext.reth.is_some() || frame.packet.headers.ext.atomic.is_some() {
        packet[20..24].fill(0);
    }
    if frame.packet.headers.ext.ieth.is_some() {
        packet[12..16].copy_from_slice(&[0, 0, 0, 2]);
    }
    let opcode = frame.packet.headers.bth.opcode;
    let name = opcode.name();
    if name.starts_with("RC_READ_RESP") {
        // The first, the second, the third after the request.
        packet[10] = *responses;
        *responses += 1;
    }
    if opcode == Opcode::RcWriteFirst {
        packet[24..28].copy_from_slice(&(2 * 256 + 20u32).to_be_bytes());
    }
    if opcode == Opcode::RcWriteOnly {
        // All that the window opens: 20 bytes at 10.
        packet[12..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 10 << 3, 0, 0, 0, 2]);
    }
    packet.truncate(255);
    // The target's path MTU is 256: first and middle packets fill it, and last ones are short.
    let flags = match name {
        _ if name.ends_with("FIRST") || name.ends_with("MIDDLE") => 2 | 4 | 16,
        _ if name.contains("LAST") || opcode == Opcode::RcWriteOnly => 2 | 8 | 16,
        _ => 2 | 16,
    };
    [&[0, flags, packet.len() as u8], &packet[..]].concat()
}

fn captured(name: &str) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let path = manifest().join(format!("../protocol/tests/vectors/rxe/{name}.pcap"));
    let bytes = fs::read(path)?;
    let capture = PcapCapture::from_file(&bytes).map_err(|error| format!("{name}: {error:?}"))?;
    let frames = capture.iter().filter_map(|block| match block {
        PcapBlock::Legacy(packet) => Some(packet.data.to_vec()),
        _ => None,
    });
    Ok(frames.collect())
}

fn write(target: &str, name: &str, seed: &[u8]) -> Result<(), Box<dyn Error>> {
    let folder = manifest().join(format!("tests/__fuzz__/{target}/corpus"));
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(name), seed)?)
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
