//! The classes of service that frames travel in: DSCP, 802.1p priority, flow label, and the notifications' own class.

use std::net::IpAddr;

use roci_driver::link::Link;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Address, Algorithm, Dialect, Mtu, QpParams, SendWr};
use roci_protocol::wire::{Bth, Flow, Frame, Headers, Ip, MacAddr, Opcode};
use roci_protocol::{Psn, Qpn};
use roci_testkit::ScriptedPeer;

const MARKED: u8 = 0b11;

/// The fields of a frame that carry its class: the tag, DSCP and ECN, and the flow label.
#[derive(PartialEq, Debug)]
struct Class {
    opcode: Opcode,
    tag: Option<u16>,
    service: u8,
    flow_label: u32,
}

/// The frames of an engine that sends a message, and is sent one that was marked.
fn classes(ips: [&str; 2], params: &QpParams) -> Vec<Class> {
    let ips: [IpAddr; 2] = ips.map(|ip| ip.parse().expect("an address"));
    let (wire, link) = SimLink::pair(&Clock::default());
    let mut wire = ScriptedPeer::new(wire);
    let mut engine = roci_testkit::engine(1 << 20, 1);
    let mac = link.mac();
    engine.add_port(link, ips[1], false);
    let (pd, cq) = (engine.alloc_pd(), engine.create_cq(64));
    let peer = Address {
        mac: wire.mac(),
        ip: ips[0],
        qpn: Qpn::new(0x123),
        psn: Psn::new(100),
        mtu: Mtu::Mtu1024,
        max_rd_atomic: 1,
        dialect: Dialect::Verbs,
        icrc: true,
    };
    let qp = engine.create_qp(0, pd, cq).expect("room");
    let qp = engine.connect(qp, &peer, params).expect("one IP version");
    let buffers = [(); 2].map(|()| engine.buffer(64).expect("memory"));
    let [receive, send] = buffers;
    engine.post_recv(qp, 1, receive).expect("accepted");
    engine.post_send(qp, SendWr::send(2, send)).expect("accepted");
    let message = marked_send([wire.mac(), mac], ips, qp.qpn());
    wire.send(&message);
    engine.poll();
    engine.poll();
    let mut seen = Vec::new();
    for bytes in wire.receive() {
        let Ok(frame) = Frame::parse(&bytes) else { continue };
        frame.verify_icrc().expect("a good frame");
        let flow_label = if let Ip::V6(header) = frame.ip { header.flow_label } else { 0 };
        let Headers { bth: Bth { opcode, .. }, .. } = frame.packet.headers;
        seen.push(Class { opcode, tag: frame.ethernet.vlan, service: frame.ip.traffic_class(), flow_label });
    }
    seen.sort_by_key(|class| class.opcode as u8);
    seen
}

fn marked_send(macs: [MacAddr; 2], ips: [IpAddr; 2], to: Qpn) -> Vec<u8> {
    let ip = Ip::between(ips[0], ips[1]).expect("one version").with_traffic_class(MARKED);
    let mut flow = Flow::new(macs[0], macs[1], None, ip, 0xc000);
    let mut headers = Headers::plain(Bth::new(Opcode::RcSendOnly, to, Psn::new(100)));
    headers.bth.ack_req = true;
    ScriptedPeer::packet(&mut flow, &headers, 0, 0)
}

#[test]
fn data_acknowledgements_and_notifications_have_the_classes_that_were_asked_for() {
    let params = QpParams { traffic_class: 26 << 2, cnp_traffic_class: 48 << 2, priority: 3, ..QpParams::default() };
    let class = |opcode, dscp: u8, priority: u16| Class {
        opcode,
        tag: Some(priority << 13),
        service: dscp << 2,
        flow_label: 0,
    };
    assert_eq!(
        classes(["10.0.0.1", "10.0.0.2"], &params),
        [class(Opcode::RcSendOnly, 26, 3), class(Opcode::RcAck, 26, 3), class(Opcode::Cnp, 48, 6)]
    );
}

#[test]
fn nothing_asked_for_is_nothing_said_but_that_notifications_are_urgent() {
    let params = QpParams { congestion: Algorithm::Dcqcn, flow_label: 0x12345, ..QpParams::default() };
    // ECT(0): switches may mark what DCQCN sends.
    let class = |opcode, service| Class { opcode, tag: None, service, flow_label: 0x12345 };
    assert_eq!(
        classes(["fd00::1", "fd00::2"], &params),
        [class(Opcode::RcSendOnly, 2), class(Opcode::RcAck, 2), class(Opcode::Cnp, 48 << 2)]
    );
}
