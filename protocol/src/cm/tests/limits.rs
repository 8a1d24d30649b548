//! Every queue and table ends somewhere, by name.

use super::*;

fn passive(limits: CmConfig) -> Manager {
    let mut passive = Manager::new(limits);
    passive.listen(SERVICE).expect("a free service");
    passive
}

fn ask(passive: &mut Manager, qpn: u32) {
    hand(passive, 0, back(), CmMessage::Req(req(qpn)));
}

#[test]
fn a_listener_has_only_so_many_undecided_requests() {
    let mut passive = passive(CmConfig { max_pending_requests: 2, ..config(2) });
    (1..=3).for_each(|qpn| ask(&mut passive, qpn));
    assert_eq!(only_rej(&mut passive).reason, RejReason::NO_RESOURCES);
    assert_eq!(counted(&passive), [("req_backlog_full", 1)]);
    let [ConnectionEvent::Request { id, .. }, ConnectionEvent::Request { .. }] = events(&mut passive)[..] else {
        panic!("two requests")
    };
    passive.accept(0, id, offer(9), b"").expect("a request");
    sent(&mut passive);
    ask(&mut passive, 4);
    assert!(matches!(events(&mut passive)[..], [ConnectionEvent::Request { .. }]));
}

#[test]
fn a_manager_has_only_so_many_connections() {
    let mut passive = passive(CmConfig { max_connections: 1, reserved_connections: 0, ..config(2) });
    (1..=2).for_each(|qpn| ask(&mut passive, qpn));
    assert_eq!(only_rej(&mut passive).reason, RejReason::NO_RESOURCES);
    assert_eq!(counted(&passive), [("req_no_resources", 1)]);
    assert_eq!(passive.connect(0, back(), request(3)), Err(CmError::TooManyConnections));
    assert_eq!(passive.sidr_resolve(0, back(), SERVICE, 1, b""), Err(CmError::TooManyConnections));
}

#[test]
fn an_address_has_no_more_connections_than_are_left_for_others_and_ours_have_places() {
    let mut passive = passive(CmConfig { max_connections: 12, reserved_connections: 4, ..config(2) });
    (1..=12).for_each(|qpn| ask(&mut passive, qpn));
    assert_eq!((passive.len(), passive.stats().req_no_resources), (4, 8), "half of those that are not ours");
    let stranger = (ip(2), ip(99));
    (101..=112).for_each(|qpn| hand(&mut passive, 0, stranger, CmMessage::Req(req_from(stranger.1, qpn))));
    assert_eq!(passive.len(), 6, "half of what is left");
    for qpn in 1..=6 {
        passive.connect(0, back(), request(200 + qpn)).expect("places are kept for our own");
    }
    assert_eq!(passive.connect(0, back(), request(300)), Err(CmError::TooManyConnections));
}

#[test]
fn requests_wait_for_an_application_that_takes_no_events() {
    let mut passive = passive(CmConfig { max_queued_events: 1, ..config(2) });
    (1..=2).for_each(|qpn| ask(&mut passive, qpn));
    assert_eq!((sent(&mut passive).len(), counted(&passive)), (0, vec![("req_events_full", 1)]));
    assert_eq!(passive.connect(0, back(), request(3)), Err(CmError::EventsFull));
    assert_eq!(events(&mut passive).len(), 1);
    ask(&mut passive, 2);
    assert_eq!(events(&mut passive).len(), 1);
}

#[test]
fn datagrams_that_are_not_fetched_are_lost_and_counted() {
    let mut active = Manager::new(CmConfig { max_queued_datagrams: 1, ..config(1) });
    active.connect(0, there(), request(1)).expect("a connection");
    active.connect(0, there(), request(2)).expect("a connection");
    assert_eq!((sent(&mut active).len(), counted(&active)), (1, vec![("tx_queue_full", 1)]));
    active.on_timer(250 * MS);
    assert_eq!(sent(&mut active).len(), 1);
}

#[test]
fn a_service_has_one_listener_and_a_manager_so_many() {
    let mut passive = Manager::new(CmConfig { max_listeners: 1, ..config(2) });
    assert_eq!(passive.listen(SERVICE), Ok(()));
    assert_eq!(passive.listen(SERVICE), Err(ListenError::InUse));
    assert_eq!(passive.listen(ServiceId(7)), Err(ListenError::TooManyListeners));
    assert!(passive.unlisten(SERVICE) && !passive.unlisten(SERVICE));
    ask(&mut passive, 1);
    assert_eq!(only_rej(&mut passive).reason, RejReason::INVALID_SERVICE_ID);
}

#[test]
fn requests_of_a_closed_listener_can_still_be_decided() {
    let mut passive = passive(config(2));
    ask(&mut passive, 1);
    let [ConnectionEvent::Request { id, .. }] = events(&mut passive)[..] else { panic!("a request") };
    passive.unlisten(SERVICE);
    assert_eq!(passive.accept(0, id, offer(2), b""), Ok(()));
    assert_eq!(passive.listeners.pending(SERVICE), 0);
}

#[test]
fn what_is_no_message_is_counted_by_its_reason() {
    let mut passive = passive(config(2));
    passive.on_mad(0, back(), &[0; 255]);
    let mut path = Mad::new(1, CmMessage::Rtu(Rtu::default())).emit();
    passive.on_mad(0, back(), &path);
    path[17] = 0x19;
    passive.on_mad(0, back(), &path);
    path[3] = 9;
    passive.on_mad(0, back(), &path);
    let expected = [("rx_mad_length", 1), ("rx_mad_method", 1), ("rx_alternate_path", 1), ("rx_unknown_connection", 1)];
    assert_eq!(counted(&passive), expected);
}
