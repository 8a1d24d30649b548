//! Messages of Linux are answered as Linux answers them.

use std::fs;
use std::path::Path;

use pcap_parser::{Capture, PcapBlock, PcapCapture};
use roci_protocol::cm::{ConnId, ConnectRequest, ConnectionEvent, Ending};
use roci_protocol::wire::Frame;
use roci_protocol::wire::cm::{CmMessage, Mad, Rep, Req};
use roci_protocol::{Mtu, Psn, Qpn};

use super::{Manager, SERVICE, back, events, manager, offer, there};

/// The datagrams to queue pair 1 in a capture.
fn mads(file: &str) -> Vec<Mad> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rxe").join(file);
    let bytes = fs::read(path).expect("a readable capture");
    let capture = PcapCapture::from_file(&bytes).expect("a classic capture");
    let mad = |block: PcapBlock| match block {
        PcapBlock::Legacy(block) => Mad::of_packet(&Frame::parse(block.data).ok()?.packet)?.ok(),
        PcapBlock::NG(_) | PcapBlock::LegacyHeader(_) => None,
    };
    capture.iter().filter_map(mad).collect()
}

fn req_of(mad: &Mad) -> Req {
    match mad.message {
        CmMessage::Req(req) => req,
        other => panic!("a REQ: {other:?}"),
    }
}

fn rep_of(mad: &Mad) -> Rep {
    match mad.message {
        CmMessage::Rep(rep) => rep,
        other => panic!("a REP: {other:?}"),
    }
}

fn sent(manager: &mut Manager) -> Mad {
    let (_, datagram) = manager.poll_transmit().expect("a datagram");
    Mad::parse(&datagram).expect("a datagram of ours")
}

/// Feeds rping's REQ to a listener; the connection that it asks for.
fn asked(passive: &mut Manager, captured: &[Mad]) -> ConnId {
    passive.listen(SERVICE).expect("a free service");
    passive.on_mad(0, back(), &captured[0].emit());
    let req = req_of(&captured[0]);
    let [ConnectionEvent::Request { id, service, remote, source, destination, private_data }] = events(passive)[..]
    else {
        panic!("a request");
    };
    assert_eq!((service, source, destination), (SERVICE, Some((there().0, 0x9361)), there().1));
    assert_eq!((remote.qpn, remote.starting_psn), (Qpn::new(0x44), req.starting_psn));
    assert_eq!((remote.responder_resources, remote.initiator_depth), (1, 1));
    assert_eq!((remote.mtu, remote.ack_timeout, remote.hop_limit), (Some(Mtu::Mtu4096), 19, 64));
    assert_eq!((remote.retry_count, remote.rnr_retry_count), (req.retry_count, req.rnr_retry_count));
    assert_eq!((private_data.len(), &private_data[..]), (56, &req.private_data[36..]));
    id
}

#[test]
fn a_listener_answers_rpings_messages_as_linux_does() {
    let captured = mads("cm_rping.pcap");
    let (mut passive, theirs) = (manager(0xfe_0000_0b00_0000, 1), rep_of(&captured[1]));
    let id = asked(&mut passive, &captured);
    passive
        .accept(0, id, roci_protocol::cm::Offer { qpn: theirs.qpn, starting_psn: theirs.starting_psn, ..offer(0) }, &[])
        .expect("a request");
    let rep = sent(&mut passive);
    // But for our name, all is what Linux said.
    let like_theirs = Rep { local_comm_id: theirs.local_comm_id, ca_guid: theirs.ca_guid, ..rep_of(&rep) };
    assert_eq!((like_theirs, rep.header), (theirs, captured[1].header));
    let renamed = |at: usize| {
        let mut mad = captured[at];
        match &mut mad.message {
            CmMessage::Rtu(rtu) => rtu.remote_comm_id = id.comm_id(),
            CmMessage::Dreq(dreq) => dreq.remote_comm_id = id.comm_id(),
            other => panic!("RTU or DREQ: {other:?}"),
        }
        mad.emit()
    };
    passive.on_mad(0, back(), &renamed(2));
    passive.on_mad(0, back(), &renamed(3));
    assert_eq!(
        events(&mut passive),
        [ConnectionEvent::Established { id }, ConnectionEvent::Disconnected { id, ending: Ending::ByPeer }]
    );
    let (drep, CmMessage::Drep(theirs)) = (sent(&mut passive), captured[4].message) else { panic!("a DREP") };
    let CmMessage::Drep(ours) = drep.message else { panic!("a DREP") };
    assert_eq!((ours.remote_comm_id, drep.header), (theirs.remote_comm_id, captured[4].header));
}

#[test]
fn our_req_differs_from_rpings_in_what_was_drawn_by_lot() {
    let captured = mads("cm_rping.pcap");
    let (mut active, theirs) = (manager(req_of(&captured[0]).ca_guid, 1), req_of(&captured[0]));
    let offer = roci_protocol::cm::Offer {
        starting_psn: theirs.starting_psn,
        retry_count: theirs.retry_count,
        rnr_retry_count: theirs.rnr_retry_count,
        ..offer(0x44)
    };
    let request =
        ConnectRequest { service: SERVICE, source_port: 0x9361, offer, private_data: &theirs.private_data[36..] };
    let id = active.connect(0, there(), request).expect("a connection");
    let ours = req_of(&sent(&mut active));
    assert_eq!(Req { local_comm_id: theirs.local_comm_id, ..ours }, theirs);
    assert_eq!(ours.local_comm_id, id.comm_id());
}

#[test]
fn linuxs_grant_makes_a_connection_and_its_refusal_does_not() {
    let captured = mads("cm_rping.pcap");
    let request = ConnectRequest { service: SERVICE, source_port: 1, offer: offer(0x44), private_data: &[] };
    let mut active = manager(7, 1);
    let id = active.connect(0, there(), request).expect("a connection");
    let req = sent(&mut active);
    let mut rep =
        Mad { message: CmMessage::Rep(Rep { remote_comm_id: id.comm_id(), ..rep_of(&captured[1]) }), ..captured[1] };
    rep.header.tid = req.header.tid;
    active.on_mad(0, there(), &rep.emit());
    let [ConnectionEvent::Reply { id: replied, remote, private_data }] = events(&mut active)[..] else {
        panic!("a reply")
    };
    assert_eq!((replied, remote.qpn, remote.starting_psn), (id, Qpn::new(0x300), Psn::new(0x5e_1306)));
    assert_eq!((remote.ack_timeout, remote.rnr_retry_count, private_data.len()), (19, 7, 196));
    active.confirm(0, id).expect("a reply");
    let rtu = sent(&mut active);
    assert_eq!(rtu.header.tid, req.header.tid);
    assert_eq!(rtu.message.comm_ids(), Some((id.comm_id(), rep_of(&captured[1]).local_comm_id)));

    let refused = active.connect(0, there(), request).expect("a connection");
    let CmMessage::Rej(mut rej) = mads("cm_reject.pcap")[1].message else { panic!("a REJ") };
    rej.remote_comm_id = refused.comm_id();
    events(&mut active);
    active.on_mad(0, there(), &Mad::new(1, CmMessage::Rej(rej)).emit());
    assert!(
        matches!(events(&mut active)[..], [ConnectionEvent::Rejected { id, reason, .. }] if id == refused && reason.0 == 8)
    );
}

#[test]
fn a_port_without_a_listener_is_refused_to_the_byte() {
    let captured = mads("cm_reject.pcap");
    let mut passive = manager(7, 1);
    passive.on_mad(0, back(), &captured[0].emit());
    assert_eq!(sent(&mut passive), captured[1]);
}
