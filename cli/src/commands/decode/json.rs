//! `roci decode`: one line a packet, with the ICRC's verdict and the protocol's complaint.

use std::process::ExitCode;

use roci_protocol::wire::cm::{CmMessage, IpCm, Mad, Rep, Req, ServiceId};
use roci_protocol::wire::{Frame, FrameLayers, Malformed, Syndrome, icrc, opcode, pretty};
use serde_json::{Map, Value, json};

use crate::capture::for_each_frame;
use crate::failure::Failure;
use crate::options::DecodeOptions;
use crate::output;

pub(crate) fn run(options: &DecodeOptions) -> Result<ExitCode, Failure> {
    let mut index = 0u64;
    let mut found = 0u64;
    for_each_frame(&options.file, |_, frame| {
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

/// Whether the frame goes to the RoCEv2 port, whatever else is wrong with it.
pub(super) fn is_roce(frame: &[u8]) -> bool {
    use Malformed::{Alignment, Icrc, Pad, TransportVersion, UnknownOpcode};
    match Frame::parse(frame) {
        Ok(_) => true,
        Err(reason) => matches!(reason, Alignment | Icrc | Pad | TransportVersion | UnknownOpcode),
    }
}

/// Whether a connection has agreed to go without, a capture does not say: the mark does, if it is the right one.
fn icrc_verdict(frame: &[u8]) -> &'static str {
    // Short frames have Ethernet's padding behind the packet: a frame that can be read knows where it ends.
    let parsed = Frame::parse(frame);
    match parsed.map_or_else(|_| icrc::verify_frame(frame), |frame| frame.verify_icrc()) {
        Ok(()) => "ok",
        Err(_) if parsed.is_ok_and(|frame| frame.omits_icrc()) => "off",
        Err(_) => "BAD",
    }
}

fn text_line(index: u64, bytes: &[u8]) -> String {
    match Frame::parse(bytes) {
        Ok(frame) => {
            let route = format!("{} > {}", frame.ip.source(), frame.ip.destination());
            let complaint = match Mad::of_packet(&frame.packet) {
                Some(Err(reason)) => format!(" complaint={reason}"),
                _ => String::new(),
            };
            format!("{index} {} {route} len={} icrc {}{complaint}", frame.packet, bytes.len(), icrc_verdict(bytes))
        }
        Err(reason) if is_roce(bytes) => {
            let name = name_of_unread(bytes);
            format!("{index} {name} len={} icrc {} complaint={reason}", bytes.len(), icrc_verdict(bytes))
        }
        Err(reason) => format!("{index} NOT_ROCE len={} complaint={reason}", bytes.len()),
    }
}

/// The name of a packet that could not be read as a whole, by the first byte of its transport header.
fn name_of_unread(bytes: &[u8]) -> String {
    let code = FrameLayers::parse(bytes).ok().and_then(|layers| layers.transport.first().copied());
    code.map_or_else(|| "UNKNOWN".into(), opcode::name_of)
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
            let name = if is_roce(bytes) { json!(name_of_unread(bytes)) } else { Value::Null };
            row.insert("opcode".into(), name);
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
    put("pkey", json!(bth.pkey.0));
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
    match Mad::of_packet(&frame.packet) {
        Some(Ok(mad)) => put("cm", describe_cm(&mad)),
        Some(Err(reason)) => put("complaint", json!(reason.to_string())),
        None => {}
    }
}

fn describe_cm(mad: &Mad) -> Value {
    let mut row = match &mad.message {
        CmMessage::Req(m) => describe_req(m),
        CmMessage::Mra(m) => {
            json!({"message_mraed": m.subject.name(), "service_timeout": m.service_timeout})
        }
        CmMessage::Rej(m) => {
            json!({"message_rejected": m.subject.name(), "reason": m.reason.0, "reason_name": m.reason.name()})
        }
        CmMessage::Rep(m) => describe_rep(m),
        CmMessage::Dreq(m) => json!({"remote_qpn": m.remote_qpn.get()}),
        CmMessage::SidrReq(m) => {
            let (service, ip) = (m.service_id.to_string(), ip_cm(m.service_id, &m.private_data));
            json!({"request_id": m.request_id, "service": service, "pkey": m.pkey.0, "ip_cm": ip})
        }
        CmMessage::SidrRep(m) => {
            let (id, service) = (m.request_id, m.service_id.to_string());
            json!({"request_id": id, "service": service, "status": m.status, "qpn": m.qpn.get(), "qkey": m.qkey})
        }
        CmMessage::Rtu(_) | CmMessage::Drep(_) | CmMessage::Other { .. } => json!({}),
    };
    row["message"] = json!(mad.message.name());
    row["tid"] = json!(mad.header.tid);
    if let Some((local, remote)) = mad.message.comm_ids() {
        row["local_comm_id"] = json!(local);
        row["remote_comm_id"] = json!(remote);
    }
    row
}

fn describe_req(req: &Req) -> Value {
    let path = &req.primary_path;
    json!({
        "service": req.service_id.to_string(),
        "service_id": req.service_id.0,
        "ca_guid": req.ca_guid,
        "qpn": req.qpn.get(),
        "starting_psn": req.starting_psn.get(),
        "responder_resources": req.responder_resources,
        "initiator_depth": req.initiator_depth,
        "remote_response_timeout": req.remote_response_timeout,
        "local_response_timeout": req.local_response_timeout,
        "transport": req.transport.name(),
        "end_to_end_flow_control": req.end_to_end_flow_control,
        "retry_count": req.retry_count,
        "rnr_retry_count": req.rnr_retry_count,
        "max_cm_retries": req.max_cm_retries,
        "path_mtu": req.path_mtu,
        "pkey": req.pkey.0,
        "srq": req.srq,
        "local_gid": path.local_gid.to_string(),
        "remote_gid": path.remote_gid.to_string(),
        "flow_label": path.flow_label,
        "traffic_class": path.traffic_class,
        "hop_limit": path.hop_limit,
        "ack_timeout": path.ack_timeout,
        "ip_cm": ip_cm(req.service_id, &req.private_data),
    })
}

fn describe_rep(rep: &Rep) -> Value {
    json!({
        "ca_guid": rep.ca_guid,
        "qpn": rep.qpn.get(),
        "starting_psn": rep.starting_psn.get(),
        "responder_resources": rep.responder_resources,
        "initiator_depth": rep.initiator_depth,
        "target_ack_delay": rep.target_ack_delay,
        "failover_accepted": rep.failover_accepted,
        "end_to_end_flow_control": rep.end_to_end_flow_control,
        "rnr_retry_count": rep.rnr_retry_count,
        "srq": rep.srq,
    })
}

/// The addressing header, where the service is a port and the header is one.
fn ip_cm(service: ServiceId, private_data: &[u8]) -> Value {
    match (service.port(), IpCm::parse(private_data)) {
        (Some(_), Ok((ip, _))) => {
            let (source, destination) = (ip.source().to_string(), ip.destination().to_string());
            json!({"source": source, "source_port": ip.source_port, "destination": destination})
        }
        _ => Value::Null,
    }
}
