//! Captures from real peers: every packet parses, every ICRC verifies, and what is emitted again is equal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pcap_parser::{Block, Capture, PcapBlock, PcapCapture};
use roci_protocol::wire::{Frame, Malformed, Opcode, icrc};

/// Frames that were made to be refused: file, index, reason.
const HOSTILE: [(&str, usize, Malformed); 2] =
    [("host_tver.pcap", 0, Malformed::TransportVersion), ("host_unknown_opcode.pcap", 0, Malformed::UnknownOpcode)];

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rxe")
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).expect("a readable capture");
    let capture = PcapCapture::from_file(&bytes).expect("a classic capture");
    let frame = |block: &PcapBlock| match block {
        PcapBlock::Legacy(block) => Some(block.data.to_vec()),
        PcapBlock::NG(Block::EnhancedPacket(_) | _) | PcapBlock::LegacyHeader(_) => None,
    };
    capture.iter().filter_map(|block| frame(&block)).collect()
}

struct Row {
    file: String,
    packets: usize,
    opcodes: BTreeMap<String, usize>,
}

fn index() -> Vec<Row> {
    let text = fs::read_to_string(vectors().join("INDEX.tsv")).expect("the index");
    text.lines().skip(1).map(row).collect()
}

fn row(line: &str) -> Row {
    let mut columns = line.split('\t');
    let mut column = || columns.next().expect("four columns");
    let (file, packets) = (column().to_owned(), column().parse().expect("a count"));
    let opcodes = column().split(',').map(|item| match item.rsplit_once('x') {
        Some((name, count)) if count.parse::<usize>().is_ok() => (name.to_owned(), count.parse().expect("a count")),
        _ => (item.to_owned(), 1),
    });
    Row { file, packets, opcodes: opcodes.collect() }
}

/// Calls `check` with every good frame of every capture.
fn for_each_good_frame(mut check: impl FnMut(&str, usize, &[u8], &Frame<'_>)) {
    let mut checked = 0;
    for row in index() {
        for (at, bytes) in frames(&vectors().join(&row.file)).iter().enumerate() {
            match Frame::parse(bytes) {
                Ok(frame) => check(&row.file, at, bytes, &frame),
                Err(reason) => assert!(HOSTILE.contains(&(&row.file, at, reason)), "{} {at}: {reason}", row.file),
            }
            checked += 1;
        }
    }
    assert!(checked > 400, "only {checked} packets were there");
}

#[test]
fn captures_hold_the_packets_that_the_index_names() {
    for row in index() {
        let frames = frames(&vectors().join(&row.file));
        assert_eq!(frames.len(), row.packets, "{}", row.file);
        let mut seen = BTreeMap::new();
        for frame in frames.iter().filter_map(|bytes| Frame::parse(bytes).ok()) {
            *seen.entry(frame.packet.headers.bth.opcode.name().to_owned()).or_insert(0) += 1;
        }
        let known = |name: &str| Opcode::ALL.iter().any(|opcode| opcode.name() == name);
        let hostile = HOSTILE.iter().filter(|(file, ..)| *file == row.file).count();
        let expected: usize = row.opcodes.values().sum();
        let named: usize = seen.values().sum();
        assert_eq!(named + hostile, expected, "{}", row.file);
        for (name, count) in seen {
            assert!(known(&name) && row.opcodes.get(&name).is_some_and(|n| *n >= count), "{}: {name}", row.file);
        }
    }
}

#[test]
fn every_icrc_verifies_hostile_frames_included() {
    for row in index() {
        for (at, bytes) in frames(&vectors().join(&row.file)).iter().enumerate() {
            assert_eq!(icrc::verify_frame(bytes), Ok(()), "{} {at}", row.file);
        }
    }
}

#[test]
fn emitting_what_was_parsed_gives_the_same_bytes() {
    for_each_good_frame(|file, at, bytes, frame| assert_eq!(frame.to_bytes(), bytes, "{file} {at}"));
}

#[test]
fn every_covered_bit_breaks_the_icrc_and_the_others_do_not() {
    for_each_good_frame(|file, at, bytes, frame| {
        let start = frame.ethernet.wire_len();
        let is_v4 = frame.ip.wire_len() == 20;
        // Every bit of what is short; of a long payload, which is like itself all along, every 61st.
        let (short, all) = ((start + 100).min(bytes.len()) * 8, bytes.len() * 8);
        let stride = if bytes.len() > 400 { 61 } else { 1 };
        for bit in (start * 8..short).chain((short..all).step_by(stride)) {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let verdict = icrc::verify(&bytes[start..]);
            let expected_ok = is_masked(bit / 8 - start, bit % 8, is_v4);
            assert_eq!(verdict.is_ok(), expected_ok, "{file} {at}: bit {} of byte {}", bit % 8, bit / 8);
        }
    });
}

/// Whether the ICRC ignores this bit, `byte` counted from the IP header, `bit` from the low end.
fn is_masked(byte: usize, bit: usize, is_v4: bool) -> bool {
    let udp = if is_v4 { 20 } else { 40 };
    let in_ip =
        if is_v4 { matches!(byte, 1 | 8 | 10 | 11) } else { matches!((byte, bit), (0, 0..=3) | (1..=3 | 7, _)) };
    in_ip || byte == udp + 6 || byte == udp + 7 || byte == udp + 8 + 4
}

#[test]
fn truncation_anywhere_is_an_error_and_never_a_panic() {
    for_each_good_frame(|file, at, bytes, _| {
        for len in 0..bytes.len() {
            assert!(Frame::parse(&bytes[..len]).is_err(), "{file} {at}: cut to {len}");
        }
    });
}
