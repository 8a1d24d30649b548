//! The side that connects.

use super::*;
use crate::Pkey;
use crate::wire::cm::{IpCm, TransportType, gid_of};

#[test]
fn a_req_says_what_the_application_offers_and_who_asks() {
    let mut active = Manager::new(config(1));
    let id = active.connect(0, there(), request(0x11)).expect("a connection");
    assert_eq!(active.state(id), CmState::ReqSent);
    let CmMessage::Req(req) = only(&mut active) else { panic!("a REQ") };
    assert_eq!((req.local_comm_id, req.ca_guid, req.service_id), (id.comm_id(), 1, SERVICE));
    assert_eq!((req.qpn.get(), req.starting_psn.get(), req.transport), (0x11, 0xabd1, TransportType::Rc));
    assert_eq!((req.responder_resources, req.initiator_depth), (4, 3));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout, req.max_cm_retries), (20, 20, 15));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.path_mtu, req.pkey), (7, 6, 5, Pkey::DEFAULT));
    let path = req.primary_path;
    assert_eq!((path.local_gid, path.remote_gid), (gid_of(ip(1)), gid_of(ip(2))));
    assert_eq!((path.local_lid, path.remote_lid, path.ack_timeout), (0xffff, 0xffff, 19));
    let (header, data) = IpCm::parse(&req.private_data).expect("an addressing header");
    assert_eq!((header.source(), header.source_port, header.destination()), (ip(1), 999, ip(2)));
    assert_eq!((&data[..6], data.len()), (&b"hello\0"[..], 56));
}

#[test]
fn what_no_req_can_say_is_refused() {
    let mut active = Manager::new(config(1));
    let long = [0; 57];
    let connect = |active: &mut Manager, request| active.connect(0, there(), request);
    let refused = connect(&mut active, ConnectRequest { private_data: &long, ..request(1) });
    assert_eq!(refused, Err(CmError::PrivateData { len: 57, limit: 56 }));
    let big = Offer { mtu: Mtu::Mtu8192, ..offer(1) };
    assert_eq!(connect(&mut active, ConnectRequest { offer: big, ..request(1) }), Err(CmError::Mtu));
    let mixed = active.connect(0, (ip(1), [0u16; 8].into()), request(1));
    assert_eq!(mixed, Err(CmError::IpVersion));
    // A service that is no port has no addressing header, and so more room.
    let bare = ConnectRequest { service: ServiceId(7), private_data: &[9; 92], ..request(1) };
    assert!(connect(&mut active, bare).is_ok());
    assert!(matches!(only(&mut active), CmMessage::Req(Req { private_data, .. }) if private_data == [9; 92]));
}

#[test]
fn three_messages_make_a_connection_in_one_transaction() {
    let mut pair = Pair::new();
    let ours = pair.active.connect(0, there(), request(0x11)).expect("a connection");
    let req = sent(&mut pair.active)[0];
    pair.passive.on_mad(0, back(), &req.emit());
    let [ConnectionEvent::Request { id: theirs, service, remote, source, destination, private_data }] =
        events(&mut pair.passive)[..]
    else {
        panic!("a request");
    };
    assert_eq!((service, source, destination), (SERVICE, Some((ip(1), 999)), ip(2)));
    assert_eq!((&private_data[..6], private_data.len()), (&b"hello\0"[..], 56));
    assert_eq!((remote.qpn.get(), remote.mtu, remote.ack_timeout), (0x11, Some(Mtu::Mtu4096), 19));
    pair.passive.accept(0, theirs, offer(0x22), b"welcome").expect("a request");
    let rep = sent(&mut pair.passive)[0];
    pair.active.on_mad(0, there(), &rep.emit());
    let [ConnectionEvent::Reply { id, remote, private_data }] = events(&mut pair.active)[..] else { panic!("a reply") };
    assert_eq!((id, &private_data[..8], private_data.len()), (ours, &b"welcome\0"[..], 196));
    assert_eq!((remote.qpn.get(), remote.starting_psn.get(), remote.rnr_retry_count), (0x22, 0xabe2, 6));
    assert_eq!((remote.retry_count, remote.mtu, remote.end_to_end_credits), (7, Some(Mtu::Mtu4096), true));
    pair.active.confirm(0, ours).expect("a reply");
    let rtu = sent(&mut pair.active)[0];
    assert!(matches!(rtu.message, CmMessage::Rtu(Rtu { local_comm_id, remote_comm_id, .. })
        if local_comm_id == ours.comm_id() && remote_comm_id == theirs.comm_id()));
    assert_eq!([rep.header.tid, rtu.header.tid], [req.header.tid; 2]);
    pair.passive.on_mad(0, back(), &rtu.emit());
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::Established { id: theirs }]);
    assert_eq!((pair.active.deadline(), pair.passive.deadline()), (None, None));
}

#[test]
fn a_repeated_rep_is_answered_once_the_application_confirmed() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.requested(0x11);
    pair.passive.accept(0, theirs, offer(0x22), b"").expect("a request");
    let rep = only(&mut pair.passive);
    hand(&mut pair.active, 0, there(), rep);
    hand(&mut pair.active, 0, there(), rep);
    assert_eq!((events(&mut pair.active).len(), sent(&mut pair.active).len()), (1, 0));
    pair.active.confirm(0, ours).expect("a reply");
    let rtu = only(&mut pair.active);
    hand(&mut pair.active, 0, there(), rep);
    assert_eq!(only(&mut pair.active), rtu);
    assert_eq!(counted(&pair.active), [("rx_duplicate", 2), ("tx_repeated", 1)]);
}

#[test]
fn a_refused_reply_ends_both_sides_and_is_refused_again() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.requested(0x11);
    pair.passive.accept(0, theirs, offer(0x22), b"").expect("a request");
    let rep = only(&mut pair.passive);
    hand(&mut pair.active, 0, there(), rep);
    events(&mut pair.active);
    pair.active.refuse(0, ours, RejReason::NO_QP, b"sorry").expect("a reply");
    let rej = only_rej(&mut pair.active);
    assert_eq!((rej.subject, rej.reason), (Subject::Rep, RejReason::NO_QP));
    hand(&mut pair.active, 0, there(), rep);
    assert_eq!(only_rej(&mut pair.active), rej);
    hand(&mut pair.passive, 0, back(), CmMessage::Rej(rej));
    let [ConnectionEvent::Rejected { id, reason, private_data }] = events(&mut pair.passive)[..] else {
        panic!("a refusal")
    };
    assert_eq!((id, reason, &private_data[..6]), (theirs, RejReason::NO_QP, &b"sorry\0"[..]));
    pair.active.on_timer(3_000 * MS);
    assert_eq!(events(&mut pair.active), [ConnectionEvent::TimewaitExit { id: ours }]);
}

#[test]
fn a_refused_request_says_why() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.requested(0x11);
    pair.passive.reject(0, theirs, RejReason::CONSUMER_DEFINED, b"no").expect("a request");
    pair.settle(0);
    let [ConnectionEvent::Rejected { id, reason, private_data }] = events(&mut pair.active)[..] else {
        panic!("a refusal")
    };
    assert_eq!((id, reason, &private_data[..3]), (ours, RejReason::CONSUMER_DEFINED, &b"no\0"[..]));
    assert_eq!(private_data.len(), 148);
    assert_eq!(pair.active.state(ours), CmState::Timewait);
}

#[test]
fn a_rep_that_answers_nothing_is_refused() {
    let mut active = Manager::new(config(1));
    let rep = Rep { local_comm_id: 5, remote_comm_id: 6, ..Rep::default() };
    hand(&mut active, 0, there(), CmMessage::Rep(rep));
    let rej = only_rej(&mut active);
    assert_eq!((rej.local_comm_id, rej.remote_comm_id, rej.subject), (6, 5, Subject::Rep));
    assert_eq!(rej.reason, RejReason::INVALID_COMM_ID);
    assert_eq!(counted(&active), [("rx_unknown_connection", 1)]);
}

#[test]
fn answers_from_elsewhere_are_dropped() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.requested(0x11);
    let elsewhere = (ip(1), ip(3));
    let ids = (theirs.comm_id(), ours.comm_id());
    let rep = Rep { local_comm_id: ids.0, remote_comm_id: ids.1, ..Rep::default() };
    let rej = Rej { remote_comm_id: ids.1, ..Rej::default() };
    let mra = Mra { remote_comm_id: ids.1, ..Mra::default() };
    let dreq = Dreq { local_comm_id: ids.0, remote_comm_id: ids.1, ..Dreq::default() };
    for message in [CmMessage::Rep(rep), CmMessage::Rej(rej), CmMessage::Mra(mra), CmMessage::Dreq(dreq)] {
        hand(&mut pair.active, 0, elsewhere, message);
    }
    assert_eq!((events(&mut pair.active), sent(&mut pair.active)), (vec![], vec![]));
    assert_eq!(counted(&pair.active), [("rx_foreign_route", 4)]);
    assert_eq!(pair.active.state(ours), CmState::ReqSent);
}

#[test]
fn a_grant_by_a_queue_pair_that_we_are_connected_to_ends_both() {
    let mut pair = Pair::new();
    let (old, _) = pair.established();
    let new = pair.active.connect(0, there(), request(0x12)).expect("a connection");
    sent(&mut pair.active);
    let rep =
        Rep { local_comm_id: 9, remote_comm_id: new.comm_id(), qpn: Qpn::new(0x22), ca_guid: 2, ..Rep::default() };
    hand(&mut pair.active, 0, there(), CmMessage::Rep(rep));
    let reported = events(&mut pair.active);
    assert!(matches!(reported[..], [ConnectionEvent::Disconnected { id, ending: Ending::Stale },
        ConnectionEvent::Rejected { id: refused, reason: RejReason::STALE_CONN, .. }] if id == old && refused == new));
    let names: Vec<_> = sent(&mut pair.active).iter().map(|mad| mad.message.name()).collect();
    assert_eq!(names, ["DREQ", "REJ"]);
}

#[test]
fn an_abandoned_request_is_taken_back() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.requested(0x11);
    pair.active.abandon(0, ours).expect("an unanswered request");
    // The peer's name of the connection is unknown here; it is found by ours.
    pair.settle(0);
    let [ConnectionEvent::Rejected { id, reason, .. }] = events(&mut pair.passive)[..] else { panic!("a refusal") };
    assert_eq!((id, reason), (theirs, RejReason::TIMEOUT));
    assert_eq!(pair.passive.accept(0, theirs, offer(2), b""), Err(CmError::WrongState(CmState::Timewait)));
}

#[test]
fn names_cannot_be_guessed_from_one_another_and_differ_by_seed() {
    let mut names = Vec::new();
    for seed in 0..4 {
        let mut active = Manager::new(CmConfig { seed, ..config(1) });
        for qpn in 0..50 {
            names.push(active.connect(0, there(), request(qpn)).expect("a connection").comm_id());
        }
    }
    let near = names.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 12).count();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), near), (200, 0));
}
