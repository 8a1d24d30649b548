//! A packet as a JSON object.

use roci_protocol::wire::cm::{CmMessage, IpCm, Mad, Rep, Req, ServiceId};
use roci_protocol::wire::{Frame, Packet, Syndrome, pretty};
use serde_json::{Map, Value, json};

use super::packet::{CapturedPacket, dialect_of, name_of_unread};

pub(super) fn line(seen: &CapturedPacket<'_>) -> Value {
    let &CapturedPacket { index, at, bytes, frame, icrc, mark } = seen;
    let mut row = Map::new();
    row.insert("index".into(), json!(index));
    if let Some(at) = at {
        row.insert("time_ns".into(), json!(at));
    }
    row.insert("frame_len".into(), json!(bytes.len()));
    if let Some(mark) = mark {
        row.insert("mark".into(), json!(mark.name()));
    }
    if seen.is_roce() {
        row.insert("icrc".into(), json!(icrc));
    }
    match frame {
        Ok(frame) => describe(&frame, &mut row),
        Err(reason) => {
            let name = if seen.is_roce() { json!(name_of_unread(bytes)) } else { Value::Null };
            row.insert("opcode".into(), name);
            row.insert("complaint".into(), json!(reason.to_string()));
        }
    }
    Value::Object(row)
}

fn describe(frame: &Frame<'_>, row: &mut Map<String, Value>) {
    let bth = &frame.packet.headers.bth;
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
    describe_extensions(&frame.packet, row);
    let mut put = |name: &str, value: Value| drop(row.insert(name.into(), value));
    if let Some(dialect) = dialect_of(&frame.packet) {
        put("rocinante", json!({"kept": dialect.kept, "reported": dialect.reported, "waited_ns": dialect.waited_ns}));
    }
    match Mad::of_packet(&frame.packet) {
        Some(Ok(mad)) => put("cm", describe_cm(&mad)),
        Some(Err(reason)) => put("complaint", json!(reason.to_string())),
        None => {}
    }
}

/// The headers behind the BTH.
fn describe_extensions(packet: &Packet<'_>, row: &mut Map<String, Value>) {
    let ext = &packet.headers.ext;
    let mut put = |name: &str, value: Value| drop(row.insert(name.into(), value));
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
