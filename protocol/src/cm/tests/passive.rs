//! The side that is connected to.

use super::*;
use crate::Pkey;
use crate::wire::cm::{IP_CM_LEN, TransportType};

fn refusal_of(message: Req) -> (RejReason, Vec<(&'static str, u64)>) {
    let mut passive = Pair::new().passive;
    hand(&mut passive, 0, back(), CmMessage::Req(message));
    let rej = only_rej(&mut passive);
    assert_eq!((rej.local_comm_id, rej.remote_comm_id, rej.subject), (0, message.local_comm_id, Subject::Req));
    assert!(passive.is_empty() && passive.poll_event().is_none());
    (rej.reason, counted(&passive))
}

#[test]
fn what_cannot_be_served_is_refused_by_ibtas_reason() {
    let unserved = Req { service_id: ServiceId(SERVICE.0 + 1), ..req(1) };
    assert_eq!(refusal_of(unserved), (RejReason::INVALID_SERVICE_ID, vec![("req_no_service", 1)]));
    let datagram = Req { transport: TransportType::Uc, ..req(1) };
    assert_eq!(refusal_of(datagram), (RejReason::INVALID_TRANSPORT_TYPE, vec![("req_wrong_transport", 1)]));
    let elsewhere = Req { pkey: Pkey(0x8123), ..req(1) };
    assert_eq!(refusal_of(elsewhere), (RejReason::UNSUPPORTED, vec![("req_wrong_partition", 1)]));
    for path_mtu in [0, 6, 15] {
        let odd = Req { path_mtu, ..req(1) };
        assert_eq!(refusal_of(odd), (RejReason::INVALID_MTU, vec![("req_wrong_mtu", 1)]));
    }
    let bare = Req { private_data: [0; 92], ..req(1) };
    assert_eq!(refusal_of(bare), (RejReason::UNSUPPORTED, vec![("req_bad_addressing", 1)]));
    for at in [19, IP_CM_LEN - 1] {
        let mut liar = req(1);
        liar.private_data[at] ^= 4;
        assert_eq!(refusal_of(liar), (RejReason::INVALID_GID, vec![("req_wrong_address", 1)]));
    }
}

#[test]
fn a_service_that_is_no_port_needs_no_addressing_header() {
    let mut passive = Manager::new(config(2));
    passive.listen(ServiceId(7)).expect("a free service");
    let message = Req { service_id: ServiceId(7), private_data: [9; 92], ..req(1) };
    hand(&mut passive, 0, back(), CmMessage::Req(message));
    let [ConnectionEvent::Request { source: None, private_data, remote, .. }] = events(&mut passive)[..] else {
        panic!("a request");
    };
    assert_eq!((&private_data[..], remote.mtu), (&[9; 92][..], Some(Mtu::Mtu4096)));
}

#[test]
fn a_repeated_req_gets_what_its_state_calls_for() {
    let mut passive = Pair::new().passive;
    let req = CmMessage::Req(req(0x11));
    hand(&mut passive, 0, back(), req);
    let [ConnectionEvent::Request { id, .. }] = events(&mut passive)[..] else { panic!("a request") };
    assert!(sent(&mut passive).is_empty());
    // Undecided: asked for time.
    hand(&mut passive, 0, back(), req);
    let CmMessage::Mra(mra) = only(&mut passive) else { panic!("an MRA") };
    assert_eq!((mra.local_comm_id, mra.subject, mra.service_timeout), (id.comm_id(), Subject::Req, 24));
    // Granted: the REP again.
    passive.accept(0, id, offer(0x22), b"").expect("a request");
    let rep = only(&mut passive);
    hand(&mut passive, 0, back(), req);
    assert_eq!(only(&mut passive), rep);
    // Established: settled.
    passive.on_communication_established(0, id);
    hand(&mut passive, 0, back(), req);
    assert!(sent(&mut passive).is_empty());
    assert_eq!(events(&mut passive), [ConnectionEvent::Established { id }]);
    assert_eq!(passive.stats().rx_duplicate, 3);
}

#[test]
fn nothing_is_kept_of_a_req_that_was_refused() {
    let mut passive = Pair::new().passive;
    let req = CmMessage::Req(req(0x11));
    hand(&mut passive, 0, back(), req);
    let [ConnectionEvent::Request { id, .. }] = events(&mut passive)[..] else { panic!("a request") };
    passive.reject(0, id, RejReason::NO_RESOURCES, b"full").expect("a request");
    assert_eq!(only_rej(&mut passive).private_data[..4], *b"full");
    assert_eq!((events(&mut passive), passive.len()), (vec![ConnectionEvent::TimewaitExit { id }], 0));
    // It missed the refusal: it is a new one.
    hand(&mut passive, 0, back(), req);
    assert!(matches!(events(&mut passive)[..], [ConnectionEvent::Request { .. }]));
}

#[test]
fn a_req_of_an_ended_connection_is_stale() {
    let mut pair = Pair::new();
    let (ours, _) = pair.established();
    pair.active.disconnect(0, ours, b"").expect("a connection");
    pair.settle(0);
    let again = Req { local_comm_id: ours.comm_id(), ..req(0x11) };
    hand(&mut pair.passive, 0, back(), CmMessage::Req(again));
    assert_eq!(only_rej(&mut pair.passive).reason, RejReason::STALE_CONN);
}

#[test]
fn a_queue_pair_that_asks_anew_has_forgotten_its_connection() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.established();
    let mut reborn = Manager::new(CmConfig { seed: 4711, ..config(1) });
    reborn.connect(0, there(), request(0x11)).expect("a connection");
    let again = only(&mut reborn);
    hand(&mut pair.passive, 0, back(), again);
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::Disconnected { id: theirs, ending: Ending::Stale }]);
    let said: Vec<_> = sent(&mut pair.passive).iter().map(|mad| mad.message).collect();
    let [CmMessage::Dreq(dreq), CmMessage::Rej(rej)] = said[..] else { panic!("DREQ and REJ: {said:?}") };
    assert_eq!((dreq.remote_comm_id, rej.reason), (ours.comm_id(), RejReason::STALE_CONN));
    // The reborn peer knows nothing of the old connection and confirms its end; then there is room for the new one.
    for message in said {
        hand(&mut reborn, 0, there(), message);
    }
    assert!(matches!(events(&mut reborn)[..], [ConnectionEvent::Rejected { reason: RejReason::STALE_CONN, .. }]));
    hand(&mut pair.passive, 0, back(), only(&mut reborn));
    pair.passive.on_timer(10_000 * MS);
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::TimewaitExit { id: theirs }]);
    reborn.connect(0, there(), request(0x11)).expect("a connection");
    let again = only(&mut reborn);
    hand(&mut pair.passive, 0, back(), again);
    assert!(matches!(events(&mut pair.passive)[..], [ConnectionEvent::Request { .. }]));
}

#[test]
fn a_req_on_another_route_cannot_make_a_connection_stale() {
    let mut pair = Pair::new();
    let (_, theirs) = pair.established();
    let mut thief = Manager::new(CmConfig { seed: 4711, ..config(1) });
    thief.connect(0, (ip(3), ip(2)), request(0x11)).expect("a connection");
    hand(&mut pair.passive, 0, (ip(2), ip(3)), only(&mut thief));
    assert!(matches!(events(&mut pair.passive)[..], [ConnectionEvent::Request { .. }]));
    assert_eq!((pair.passive.state(theirs), sent(&mut pair.passive)), (CmState::Established, vec![]));
}

#[test]
fn first_data_is_as_good_as_an_rtu() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.replied();
    pair.passive.on_communication_established(0, theirs);
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::Established { id: theirs }]);
    assert_eq!(pair.passive.deadline(), None);
    pair.passive.on_communication_established(0, theirs);
    pair.active.confirm(0, ours).expect("a reply");
    pair.settle(0);
    assert_eq!((events(&mut pair.passive), counted(&pair.passive)), (vec![], vec![("rx_duplicate", 1)]));
}

#[test]
fn calls_that_the_state_does_not_take_change_nothing() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.established();
    let wrong = Err(CmError::WrongState(CmState::Established));
    assert_eq!(pair.passive.accept(0, theirs, offer(1), b""), wrong);
    assert_eq!(pair.passive.reject(0, theirs, RejReason::NO_QP, b""), wrong);
    assert_eq!(pair.active.confirm(0, ours), wrong);
    assert_eq!(pair.active.refuse(0, ours, RejReason::NO_QP, b""), wrong);
    assert_eq!(pair.active.abandon(0, ours), wrong);
    let long = [0; 221];
    assert_eq!(pair.active.disconnect(0, ours, &long), Err(CmError::PrivateData { len: 221, limit: 220 }));
    assert_eq!(pair.active.disconnect(0, ConnId(1), b""), Err(CmError::UnknownConnection));
    assert_eq!((pair.active.state(ours), sent(&mut pair.active)), (CmState::Established, vec![]));
}
