//! Captures from real peers: every packet parses, every ICRC verifies, and what is emitted again is equal.

use roci_protocol::Pkey;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pcap_parser::{Block, Capture, PcapBlock, PcapCapture};
use roci_protocol::wire::cm::{CmMessage, IpCm, Mad, PortSpace, RejReason, Req, Subject, TransportType, gid_of};
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

/// The communication manager's datagrams in a capture; each is emitted again and compared.
fn mads(file: &str) -> Vec<Mad> {
    let mut mads = Vec::new();
    for (at, bytes) in frames(&vectors().join(file)).iter().enumerate() {
        let packet = Frame::parse(bytes).expect("a good frame").packet;
        if let Some(mad) = Mad::of_packet(&packet) {
            let mad = mad.unwrap_or_else(|reason| panic!("{file} {at}: {reason}"));
            assert_eq!(mad.emit(), packet.payload, "{file} {at}");
            assert_eq!(
                Mad::new(mad.header.tid, mad.message),
                mad,
                "{file} {at}: no field is set that we would not set"
            );
            mads.push(mad);
        }
    }
    mads
}

fn request(mad: &Mad) -> &Req {
    match &mad.message {
        CmMessage::Req(req) => req,
        other => panic!("{} is no REQ", other.name()),
    }
}

#[test]
fn a_connection_begins_and_ends_in_five_messages() {
    for (file, port, qpns) in [("cm_rping.pcap", 7174, [0x44, 0x300]), ("cm_ucmatose.pcap", 7175, [0x45, 0x301])] {
        let mads = mads(file);
        let names: Vec<_> = mads.iter().map(|mad| mad.message.name()).collect();
        assert_eq!(names, ["REQ", "REP", "RTU", "DREQ", "DREP"], "{file}");
        assert!(mads[..3].iter().all(|mad| mad.header.tid == mads[0].header.tid), "{file}");
        assert_eq!(mads[3].header.tid, mads[4].header.tid, "{file}");
        let req = request(&mads[0]);
        let [_, CmMessage::Rep(rep), CmMessage::Rtu(rtu), CmMessage::Dreq(dreq), CmMessage::Drep(drep)] =
            [0, 1, 2, 3, 4].map(|at| mads[at].message)
        else {
            panic!("{file}: the names were right");
        };
        let ids = [req.local_comm_id, rep.local_comm_id];
        assert_eq!([rep.remote_comm_id, rtu.remote_comm_id], ids, "{file}");
        assert_eq!([rtu.local_comm_id, dreq.local_comm_id], [ids[0], drep.remote_comm_id], "{file}");
        assert!(ids.contains(&dreq.local_comm_id) && ids.contains(&drep.local_comm_id), "{file}");
        assert_eq!([req.qpn.get(), rep.qpn.get()], qpns, "{file}");
        let asked = if dreq.remote_comm_id == ids[0] { req.qpn } else { rep.qpn };
        assert_eq!(dreq.remote_qpn, asked, "{file}: the queue pair of whom it is sent to");
        assert_eq!(req.service_id.port(), Some((PortSpace::Tcp, port)), "{file}");
        assert_eq!((rep.rnr_retry_count, rep.target_ack_delay, rep.srq), (7, 15, false), "{file}");
    }
}

#[test]
fn a_port_without_a_listener_is_refused_by_its_reason() {
    let mads = mads("cm_reject.pcap");
    let [CmMessage::Req(req), CmMessage::Rej(rej)] = [mads[0].message, mads[1].message] else {
        panic!("REQ and REJ: {mads:?}");
    };
    assert_eq!((mads.len(), mads[0].header.tid), (2, mads[1].header.tid));
    assert_eq!(req.service_id.port(), Some((PortSpace::Tcp, 7999)));
    assert_eq!((rej.reason, rej.subject, rej.info_len), (RejReason::INVALID_SERVICE_ID, Subject::Req, 0));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0, req.local_comm_id));
}

#[test]
fn a_request_says_what_librdmacm_was_asked_for() {
    for (file, retry_count, rnr_retry_count) in [("cm_rping.pcap", 7, 7), ("cm_ucmatose.pcap", 5, 0)] {
        let mads = mads(file);
        let (req, path) = (request(&mads[0]), &request(&mads[0]).primary_path);
        let (source, destination) = ([10, 77, 0, 1].into(), [10, 77, 0, 2].into());
        assert_eq!((path.local_gid, path.remote_gid), (gid_of(source), gid_of(destination)), "{file}");
        let (ip, rest) = IpCm::parse(&req.private_data).expect("an addressing header");
        assert_eq!((ip.source(), ip.destination()), (source, destination), "{file}");
        assert_eq!(rest.len(), 56, "{file}");
        assert_eq!((req.transport, req.end_to_end_flow_control, req.srq), (TransportType::Rc, false, false), "{file}");
        assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries), (retry_count, rnr_retry_count, 15));
        assert_eq!((req.remote_response_timeout, req.local_response_timeout, path.ack_timeout), (20, 20, 19), "{file}");
        assert_eq!(
            (req.responder_resources, req.initiator_depth, req.path_mtu, req.pkey),
            (1, 1, 5, Pkey::DEFAULT),
            "{file}"
        );
        assert_eq!((path.hop_limit, path.local_lid, path.remote_lid), (64, 0xffff, 0xffff), "{file}");
        assert_eq!(req.alternate_path, [0; 44], "{file}");
    }
}
