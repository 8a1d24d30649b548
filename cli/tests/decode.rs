//! `roci decode` on good, bad and foreign captures.

mod common;

use std::fs;
use std::path::Path;

use common::{roci, vector};
use serde_json::Value;

fn decode(bytes: &[u8]) -> common::Ended {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), bytes).expect("room on the disk");
    roci(&["decode", file.path().to_str().expect("UTF-8")])
}

fn capture(name: &str) -> Vec<u8> {
    fs::read(vector(name)).expect("a vector")
}

#[test]
fn every_golden_capture_is_named_and_every_icrc_is_right() {
    for entry in fs::read_dir(vector("")).expect("the vectors") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        let text = roci(&["decode", path.to_str().expect("UTF-8")]);
        assert!(!text.stdout.contains("BAD"), "{name}: {}", text.stdout);
        let json = roci(&["decode", path.to_str().expect("UTF-8"), "--json"]).succeeded();
        assert_eq!(text.succeeded().stdout.lines().count(), json.stdout.lines().count(), "{name}");
        for (index, line) in json.stdout.lines().enumerate() {
            let row: Value = serde_json::from_str(line).expect("an object");
            assert_eq!((row["index"].as_u64(), &row["icrc"]), (Some(index as u64), &"ok".into()), "{name}: {line}");
            assert!(row["opcode"].is_string() || row["complaint"].is_string(), "{name}: {line}");
        }
    }
}

#[test]
fn a_line_shows_headers_and_syndromes() {
    let text = roci(&["decode", vector("rc_nak_seq_send.pcap").to_str().expect("UTF-8")]).succeeded().stdout;
    assert!(text.starts_with("0 0.000000000 RC_SEND_FIRST dest_qpn=0x2ea psn=0x001000 payload=1024 pad=0"), "{text}");
    assert!(text.contains("aeth[nak psn_sequence_error"), "{text}");
}

#[test]
fn messages_of_the_communication_manager_are_described() {
    let file = vector("cm_rping.pcap");
    let text = roci(&["decode", file.to_str().expect("UTF-8")]).succeeded().stdout;
    let request = " cm[REQ tid=0x29e9da616 local=0x16a69d9e service=tcp:7174 qpn=0x44 psn=0x955a2a transport=rc ";
    assert!(text.contains(request), "{text}");
    assert!(text.contains(" ip[10.77.0.1 port=37729 > 10.77.0.2]] 10.77.0.1 > 10.77.0.2"), "{text}");
    assert!(text.contains(" cm[DREP tid=0x29e9da616 local=0x8d19e0b1 remote=0x16a69d9e] "), "{text}");
    assert_eq!((text.matches(" cm[").count(), text.matches("complaint").count()), (5, 0), "{text}");

    let json = roci(&["decode", vector("cm_reject.pcap").to_str().expect("UTF-8"), "--json"]).succeeded().stdout;
    let rows: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [request, refusal] = [0, 1].map(|at| &rows[at]["cm"]);
    assert_eq!((&request["message"], &request["service"]), (&"REQ".into(), &"tcp:7999".into()), "{json}");
    assert_eq!((&request["qpn"], &request["ip_cm"]["source"]), (&0x46.into(), &"10.77.0.1".into()), "{json}");
    assert_eq!((&refusal["message"], &refusal["reason_name"]), (&"REJ".into(), &"invalid_service_id".into()), "{json}");
    assert_eq!(refusal["remote_comm_id"], request["local_comm_id"], "{json}");
}

#[test]
fn a_management_datagram_of_something_else_is_a_complaint() {
    let mut bytes = capture("cm_reject.pcap");
    // The class version, behind two capture headers, Ethernet, IPv4, UDP, BTH, DETH and two bytes of the datagram.
    bytes[24 + 16 + 14 + 20 + 8 + 12 + 8 + 2] = 1;
    let text = decode(&bytes).succeeded().stdout;
    let complaint = "complaint=communication management of a class version other than 2";
    let first = text.lines().next().expect("a line");
    assert!(first.ends_with(complaint) && !first.contains(" cm["), "{text}");
    assert_eq!((text.matches("complaint").count(), text.matches(" cm[").count()), (1, 1), "{text}");
}

#[test]
fn a_flipped_bit_is_bad_and_the_rest_is_not() {
    let mut bytes = capture("rc_send_only.pcap");
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    let text = decode(&bytes).succeeded().stdout;
    assert_eq!(text.matches("icrc BAD").count(), 1, "{text}");
    assert_eq!(text.matches("icrc ok").count(), text.lines().count() - 1, "{text}");
}

#[test]
fn a_pcapng_is_read_too() {
    let legacy = capture("rc_send_only.pcap");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < legacy.len() {
        let len = u32::from_le_bytes(legacy[at + 8..at + 12].try_into().expect("four bytes")) as usize;
        frames.push(&legacy[at + 16..at + 16 + len]);
        at += 16 + len;
    }
    let mut bytes = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let total = (padded + 12) as u32;
        bytes.extend(kind.to_le_bytes());
        bytes.extend(total.to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len() + padded - body.len(), 0);
        bytes.extend(total.to_le_bytes());
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    block(1, &words(&[1, 0]));
    for frame in &frames {
        let len = frame.len() as u32;
        block(6, &[words(&[0, 0, 0, len, len]), frame.to_vec()].concat());
    }
    let text = decode(&bytes).succeeded().stdout;
    let expected = roci(&["decode", vector("rc_send_only.pcap").to_str().expect("UTF-8"), "--time", "none"]);
    // The stamps of these blocks are all 0.
    assert_eq!(text.replace(" 0.000000000 ", " "), expected.succeeded().stdout);
}

#[test]
fn times_are_those_of_the_capture_as_they_are_asked_for() {
    let file = vector("rc_nak_seq_send.pcap");
    let times = |which| {
        let text = roci(&["decode", file.to_str().expect("UTF-8"), "--time", which]).succeeded().stdout;
        let seconds = |line: &str| line.split(' ').nth(1).and_then(|word| word.parse::<f64>().ok());
        text.lines().map(seconds).collect::<Vec<_>>()
    };
    let [relative, delta, absolute] = ["relative", "delta", "absolute"].map(times);
    assert!(times("none").iter().all(Option::is_none));
    assert_eq!((relative[0], delta[0]), (Some(0.0), Some(0.0)));
    let (first, last) = (absolute[0].expect("a time"), absolute.len() - 1);
    assert!(first > 1e9, "seconds since 1970: {first}");
    let since_first = absolute[last].expect("a time") - first;
    let sum: f64 = delta.iter().flatten().sum();
    assert!((relative[last].expect("a time") - since_first).abs() < 1e-5, "{relative:?}");
    assert!((sum - since_first).abs() < 1e-5 && since_first > 0.0, "{delta:?}");
}

#[test]
fn what_was_sent_again_is_marked_and_packets_are_chosen() {
    let file = vector("rc_nak_seq_send.pcap");
    let lines = |options: &[&str]| {
        let ended = roci(&[&["decode", file.to_str().expect("UTF-8")], options].concat()).succeeded();
        ended.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = lines(&[]);
    let again = lines(&["--only", "retransmitted"]);
    assert!(!again.is_empty() && again.iter().all(|line| line.ends_with("mark=retransmitted")), "{all:#?}");
    assert_eq!(again.len(), all.iter().filter(|line| line.contains("mark=retransmitted")).count());
    let naks = lines(&["--only", "nak"]);
    assert!(!naks.is_empty() && naks.iter().all(|line| line.contains("aeth[nak")), "{naks:#?}");
    let sends = lines(&["--opcode", "send_first,send_last"]);
    assert!(!sends.is_empty() && sends.iter().all(|line| line.contains("RC_SEND_")), "{sends:#?}");
    assert!(lines(&["--opcode", "atomic"]).is_empty());
    let to_it = lines(&["--qpn", "0x2ea"]);
    assert!(!to_it.is_empty() && to_it.iter().all(|line| line.contains("dest_qpn=0x2ea ")), "{to_it:#?}");
    assert_eq!(lines(&["--qpn", "746"]), to_it);
    assert_eq!(lines(&["--host", "10.77.0.1"]).len(), all.len());
    assert!(lines(&["--host", "192.0.2.1"]).is_empty());
    assert!(lines(&["--only", "bad"]).is_empty());
}

#[test]
fn conversations_add_up_to_the_capture() {
    let file = vector("rc_nak_seq_send.pcap");
    let file = file.to_str().expect("UTF-8");
    let packets = roci(&["decode", file, "--json"]).succeeded().stdout;
    let marked = packets.matches("\"retransmitted\"").count() as u64;
    let said = roci(&["decode", file, "--conversations", "--json"]).succeeded().stdout;
    let rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    assert_eq!((sum("packets"), sum("retransmitted")), (packets.lines().count() as u64, marked), "{said}");
    assert!(rows.len() == 2 && sum("naks") > 0 && sum("bad_icrc") == 0, "{said}");
    let text = roci(&["decode", file, "--conversations"]).succeeded().stdout;
    assert!(text.lines().count() == 3 && text.contains("10.77.0.1 > 10.77.0.2 0x2ea"), "{text}");
}

#[test]
fn the_dissector_is_printed() {
    let script = roci(&["decode", "--dissector"]).succeeded().stdout;
    assert!(script.contains("register_postdissector"), "{script}");
    // It names the kinds of messages that there are, by their numbers.
    let code = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/src/msg/mod.rs");
    let code = fs::read_to_string(code).expect("the messages");
    let kind = |line: &str| {
        let (name, number) = line.strip_prefix("const ")?.strip_suffix(';')?.split_once(": u8 = ")?;
        Some((name.to_owned(), number.parse::<u8>().ok()?))
    };
    let kinds: Vec<_> = code.lines().filter_map(kind).collect();
    assert!(kinds.len() >= 23, "{kinds:?}");
    for (name, number) in &kinds {
        assert!(script.contains(&format!("[{number}] = \"{name}\"")), "the dissector has no {name}");
    }
    assert!(!script.contains(&format!("[{}] = \"", kinds.len() + 1)), "the dissector has more than {kinds:?}");
}

#[test]
fn files_that_are_no_captures_are_refused_in_one_line() {
    let good = capture("rc_send_only.pcap");
    for (bytes, complaint) in [
        (&b""[..], "not a pcap"),
        (b"hello, world, this is text", "not a pcap"),
        (&good[..good.len() - 3], "truncated or damaged"),
        (&good[..30], "truncated or damaged"),
        (&good[..24], "none of its 0 frames"),
    ] {
        let line = decode(bytes).failed_with_one_line();
        assert!(line.contains(complaint), "{} bytes: {line}", bytes.len());
    }
    assert!(roci(&["decode", "/nonexistent"]).failed_with_one_line().contains("cannot read /nonexistent"));
    assert!(roci(&["decode", "/"]).failed_with_one_line().contains("cannot read /"));
}

#[test]
fn a_capture_of_something_else_is_said_to_be_that() {
    let mut bytes = capture("rc_send_only_0.pcap");
    // Another UDP port in every frame.
    let frame_start = 24 + 16;
    let len = u32::from_le_bytes(bytes[24 + 8..24 + 12].try_into().expect("four bytes")) as usize;
    bytes.truncate(frame_start + len);
    bytes[frame_start + 14 + 20 + 2] ^= 1;
    let ended = decode(&bytes);
    assert!(ended.stdout.contains("NOT_ROCE"), "{}", ended.stdout);
    assert!(ended.failed_with_one_line().contains("none of its 1 frames is a RoCEv2 packet"));
    // Another link type.
    let mut bytes = capture("rc_send_only_0.pcap");
    bytes[20] = 105;
    assert!(decode(&bytes).failed_with_one_line().contains("is neither Ethernet"));
}

/// A capture with other bytes in place of each frame's Ethernet header.
fn with_link_layer(linktype: u16, header: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let ethernet = capture("rc_send_only_0.pcap");
    let mut bytes = ethernet[..24].to_vec();
    bytes[20..22].copy_from_slice(&linktype.to_le_bytes());
    let mut rest = &ethernet[24..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let frame = [header(&rest[16 + 12..16 + 14]), rest[16 + 14..16 + len].to_vec()].concat();
        bytes.extend_from_slice(&rest[..8]);
        bytes.extend_from_slice(&[(frame.len() as u32).to_le_bytes(); 2].concat());
        bytes.extend_from_slice(&frame);
        rest = &rest[16 + len..];
    }
    bytes
}

#[test]
fn captures_without_ethernet_headers_are_read_too() {
    let cooked = with_link_layer(113, |ethertype| [&[0; 14], ethertype].concat());
    let cooked_2 = with_link_layer(276, |ethertype| [ethertype, &[0; 18]].concat());
    let raw = with_link_layer(101, |_| Vec::new());
    for bytes in [cooked, cooked_2, raw] {
        let ended = decode(&bytes);
        assert!(ended.stdout.contains("RC_SEND_ONLY") && ended.stdout.contains("icrc ok"), "{}", ended.stdout);
        assert!(!ended.stdout.contains("BAD"));
    }
}

#[test]
fn opcodes_that_this_stack_does_not_speak_are_named() {
    let mut bytes = capture("rc_send_only_0.pcap");
    let opcode = 24 + 16 + 14 + 20 + 8;
    for (code, name) in [(0x1d, "RC_ATOMIC_WRITE"), (0xa4, "XRC_SEND_ONLY"), (0x45, "RD_SEND_ONLY_IMM")] {
        bytes[opcode] = code;
        let ended = decode(&bytes);
        assert!(ended.stdout.contains(name), "{}", ended.stdout);
    }
}
