//! One line for all packets from one host to one queue pair of another.

use serde_json::json;

use super::flows::{FlowKey, Flows, PacketFlow};
use crate::failure::Failure;
use crate::output;

/// The columns behind the route, and how wide they are.
const COLUMNS: [(&str, usize); 8] = [
    ("packets", 9),
    ("payload B", 12),
    ("acks", 8),
    ("naks", 6),
    ("again", 7),
    ("late", 6),
    ("bad icrc", 8),
    ("seconds", 12),
];

pub(super) fn print(flows: &Flows, as_json: bool) -> Result<(), Failure> {
    let all = flows.sorted();
    if as_json {
        return all.iter().try_for_each(|(key, flow)| Ok(output::line(object(key, flow))?));
    }
    let routes: Vec<_> = all.iter().map(|(key, _)| route(key)).collect();
    let width = routes.iter().map(String::len).max().unwrap_or(0);
    let line = |name: &str, cells: [String; COLUMNS.len()]| {
        let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!(" {cell:>width$}"));
        format!("{name:<width$}{}", cells.collect::<String>())
    };
    output::line(line("from > to queue pair", COLUMNS.map(|(name, _)| name.to_owned())))?;
    all.iter().zip(&routes).try_for_each(|((_, flow), route)| Ok(output::line(line(route, cells(flow)))?))
}

fn route(key: &FlowKey) -> String {
    format!("{} > {} {}", key.source, key.destination, key.dest_qpn)
}

fn cells(flow: &PacketFlow) -> [String; COLUMNS.len()] {
    let [packets, payload, acks, naks, again, late, bad] =
        [flow.packets, flow.payload, flow.acks, flow.naks, flow.retransmitted, flow.out_of_order, flow.bad_icrc]
            .map(|count| count.to_string());
    let seconds = seconds(flow).map_or_else(String::new, |seconds| format!("{seconds:.6}"));
    [packets, payload, acks, naks, again, late, bad, seconds]
}

fn seconds(flow: &PacketFlow) -> Option<f64> {
    Some(flow.last?.saturating_sub(flow.first?) as f64 / 1e9)
}

fn object(key: &FlowKey, flow: &PacketFlow) -> serde_json::Value {
    json!({
        "source": key.source.to_string(),
        "destination": key.destination.to_string(),
        "dest_qpn": key.dest_qpn.get(),
        "packets": flow.packets,
        "payload_bytes": flow.payload,
        "acks": flow.acks,
        "naks": flow.naks,
        "retransmitted": flow.retransmitted,
        "out_of_order": flow.out_of_order,
        "bad_icrc": flow.bad_icrc,
        "seconds": seconds(flow),
    })
}
