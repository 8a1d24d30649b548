//! `roci decode`: one line a packet, with the ICRC's verdict and the protocol's complaint.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use roci_protocol::wire::{Frame, Malformed, Syndrome, icrc, pretty};
use serde_json::{Map, Value, json};

use crate::failure::{Context, Failure};
use crate::options::DecodeOptions;
use crate::output;

/// More than any frame of a capture.
const READER_CAPACITY: usize = 1 << 20;

pub(crate) fn run(options: &DecodeOptions) -> Result<ExitCode, Failure> {
    let mut index = 0u64;
    let mut found = 0u64;
    for_each_frame(&options.file, |frame| {
        let line = if options.json { json_line(index, frame).to_string() } else { text_line(index, frame) };
        index += 1;
        found += u64::from(is_roce(frame));
        output::line(line).map_err(Failure::from)
    })?;
    if found == 0 {
        let file = options.file.display();
        return Err(Failure::new(format!("{file}: none of its {index} frames is a RoCEv2 packet")));
    }
    Ok(ExitCode::SUCCESS)
}

fn for_each_frame(path: &Path, mut action: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let name = path.display();
    let file = File::open(path).context(format!("cannot read {name}"))?;
    let not_a_capture = |error| match error {
        PcapError::ReadError => Failure::new(format!("cannot read {name}")),
        _ => Failure::new(format!("{name} is not a pcap or pcapng capture")),
    };
    let mut reader = create_reader(READER_CAPACITY, file).map_err(not_a_capture)?;
    let mut linktypes = Vec::new();
    loop {
        let incomplete = match reader.next() {
            Ok((offset, block)) => {
                let frame = frame_of(&block, &mut linktypes).map_err(|what| Failure::new(format!("{name}: {what}")))?;
                frame.map_or(Ok(()), &mut action)?;
                reader.consume(offset);
                continue;
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(error) => matches!(error, PcapError::Incomplete(_)),
        };
        if !incomplete || reader.reader_exhausted() {
            return Err(Failure::new(format!("{name}: the capture is truncated or damaged")));
        }
        reader.refill().map_err(|error| Failure::new(format!("cannot read {name}: {error:?}")))?;
    }
}

/// The frame in a block, if it is one that holds a frame.
fn frame_of<'a>(block: &'a PcapBlockOwned<'_>, linktypes: &mut Vec<Linktype>) -> Result<Option<&'a [u8]>, String> {
    let (data, linktype, len) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            linktypes.push(header.network);
            return check_linktype(header.network).map(|()| None);
        }
        PcapBlockOwned::Legacy(packet) => (packet.data, linktypes.first(), packet.caplen),
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            linktypes.clear();
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            linktypes.push(interface.linktype);
            return check_linktype(interface.linktype).map(|()| None);
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            (packet.data, linktypes.get(packet.if_id as usize), packet.caplen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => (packet.data, linktypes.first(), packet.origlen),
        PcapBlockOwned::NG(_) => return Ok(None),
    };
    let linktype = *linktype.ok_or("a packet without an interface")?;
    check_linktype(linktype)?;
    data.get(..len as usize).map(Some).ok_or_else(|| "a damaged packet".into())
}

fn check_linktype(linktype: Linktype) -> Result<(), String> {
    match linktype {
        Linktype::ETHERNET => Ok(()),
        other => Err(format!("link type {other} is not Ethernet")),
    }
}

/// Whether the frame goes to the RoCEv2 port, whatever else is wrong with it.
fn is_roce(frame: &[u8]) -> bool {
    use Malformed::{Alignment, Icrc, Pad, TransportVersion, UnknownOpcode};
    match Frame::parse(frame) {
        Ok(_) => true,
        Err(reason) => matches!(reason, Alignment | Icrc | Pad | TransportVersion | UnknownOpcode),
    }
}

fn icrc_verdict(frame: &[u8]) -> &'static str {
    if icrc::verify_frame(frame).is_ok() { "ok" } else { "BAD" }
}

fn text_line(index: u64, bytes: &[u8]) -> String {
    match Frame::parse(bytes) {
        Ok(frame) => {
            let route = format!("{} > {}", frame.ip.source(), frame.ip.destination());
            format!("{index} {} {route} len={} icrc {}", frame.packet, bytes.len(), icrc_verdict(bytes))
        }
        Err(reason) if is_roce(bytes) => {
            format!("{index} UNKNOWN len={} icrc {} complaint={reason}", bytes.len(), icrc_verdict(bytes))
        }
        Err(reason) => format!("{index} NOT_ROCE len={} complaint={reason}", bytes.len()),
    }
}

fn json_line(index: u64, bytes: &[u8]) -> Value {
    let mut row = Map::new();
    row.insert("index".into(), json!(index));
    row.insert("frame_len".into(), json!(bytes.len()));
    if is_roce(bytes) {
        row.insert("icrc".into(), json!(icrc_verdict(bytes)));
    }
    match Frame::parse(bytes) {
        Ok(frame) => describe(&frame, &mut row),
        Err(reason) => {
            row.insert("opcode".into(), Value::Null);
            row.insert("complaint".into(), json!(reason.to_string()));
        }
    }
    Value::Object(row)
}

fn describe(frame: &Frame<'_>, row: &mut Map<String, Value>) {
    let bth = &frame.packet.headers.bth;
    let ext = &frame.packet.headers.ext;
    let mut put = |name: &str, value: Value| drop(row.insert(name.into(), value));
    put("opcode", json!(bth.opcode.name()));
    put("source", json!(frame.ip.source().to_string()));
    put("destination", json!(frame.ip.destination().to_string()));
    if let Some(vlan) = frame.ethernet.vlan {
        put("vlan", json!(vlan & 0xfff));
    }
    put("dest_qpn", json!(bth.dest_qpn.get()));
    put("psn", json!(bth.psn.get()));
    put("pkey", json!(bth.pkey));
    put("payload_len", json!(frame.packet.payload.len()));
    put("pad", json!(bth.pad));
    put("flags", json!(pretty::flags(&frame.packet).collect::<Vec<_>>()));
    if let Some(deth) = ext.deth {
        put("qkey", json!(deth.qkey));
        put("source_qpn", json!(deth.source_qpn.get()));
    }
    if let Some(reth) = ext.reth {
        put("reth", json!({"va": reth.va, "rkey": reth.rkey.0, "len": reth.len}));
    }
    if let Some(atomic) = ext.atomic {
        let (va, rkey) = (atomic.va, atomic.rkey.0);
        put("atomic", json!({"va": va, "rkey": rkey, "swap_add": atomic.swap_or_add, "compare": atomic.compare}));
    }
    if let Some(aeth) = ext.aeth {
        put("syndrome", json!(aeth.syndrome.to_wire()));
        put("syndrome_name", json!(aeth.syndrome.to_string()));
        put("msn", json!(aeth.msn.get()));
        if let Syndrome::Ack { credit } = aeth.syndrome {
            put("credit", json!(credit));
        }
    }
    if let Some(ack) = ext.atomic_ack {
        put("original", json!(ack.original));
    }
    if let Some(imm) = ext.imm {
        put("imm", json!(imm.0));
    }
    if let Some(ieth) = ext.ieth {
        put("invalidate_rkey", json!(ieth.0.0));
    }
}
