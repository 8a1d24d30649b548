//! The UDP source ports of flows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{FrameReport, Rule};
use crate::Qpn;
use crate::wire::Frame;

/// The UDP source port that each queue pair uses towards another one.
#[derive(Default)]
pub(super) struct UdpPorts(BTreeMap<PortKey, u16>);

/// A direction between two queue pairs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PortKey {
    from: IpAddr,
    to: IpAddr,
    destination: Qpn,
    /// Of datagrams, which come from many: a connection's destination has one peer.
    source: Option<Qpn>,
}

impl UdpPorts {
    pub(super) fn check(&mut self, frame: &Frame<'_>, report: &mut FrameReport) {
        let headers = &frame.packet.headers;
        let flow = PortKey {
            from: frame.ip.source(),
            to: frame.ip.destination(),
            destination: headers.bth.dest_qpn,
            source: headers.ext.deth.map(|deth| deth.source_qpn),
        };
        let port = frame.udp.source;
        let first = *self.0.entry(flow).or_insert(port);
        if port != first {
            let expected = format!("source port {first:#x}, as before to {}", headers.bth.dest_qpn);
            report.broken(Rule::PortOfFlow, expected, format!("{port:#x}"));
        }
    }
}
