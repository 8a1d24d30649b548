//! Datagram services.

use super::*;
use crate::wire::cm::SidrRep;

const DATAGRAMS: ServiceId = ServiceId::of_port(PortSpace::Udp, 53);

fn asked(pair: &mut Pair) -> SidrId {
    let id = pair.active.sidr_resolve(0, there(), DATAGRAMS, 5353, b"?").expect("a question");
    pair.settle(0);
    id
}

#[test]
fn a_service_names_its_queue_pair_and_key() {
    let mut pair = Pair::new();
    pair.passive.sidr_listen(DATAGRAMS, Qpn::new(0x99), 0x1111_2222).expect("a free service");
    let id = asked(&mut pair);
    assert_eq!(
        events(&mut pair.active),
        [ConnectionEvent::SidrResolved { id, qpn: Qpn::new(0x99), qkey: 0x1111_2222 }]
    );
    assert!(pair.active.is_empty() && pair.active.deadline().is_none() && pair.passive.is_empty());
    assert_eq!(pair.passive.sidr_listen(DATAGRAMS, Qpn::new(1), 1), Err(ListenError::InUse));
    assert!(pair.passive.sidr_unlisten(DATAGRAMS) && !pair.passive.sidr_unlisten(DATAGRAMS));
}

#[test]
fn a_service_without_a_listener_is_unsupported() {
    let mut pair = Pair::new();
    let id = asked(&mut pair);
    assert_eq!(events(&mut pair.active), [ConnectionEvent::SidrFailed { id, failure: SidrFailure::Refused(1) }]);
    assert_eq!(counted(&pair.passive), [("sidr_refused", 1)]);
}

#[test]
fn a_peer_that_lies_about_addresses_is_refused() {
    let mut pair = Pair::new();
    pair.passive.sidr_listen(DATAGRAMS, Qpn::new(0x99), 7).expect("a free service");
    pair.active.sidr_resolve(0, there(), DATAGRAMS, 5353, b"?").expect("a question");
    hand(&mut pair.passive, 0, (ip(2), ip(3)), only(&mut pair.active));
    assert!(matches!(only(&mut pair.passive), CmMessage::SidrRep(SidrRep { status: 2, qkey: 0, .. })));
}

#[test]
fn questions_are_asked_again_and_given_up() {
    let mut active = Manager::new(CmConfig { max_retries: 3, ..config(1) });
    let id = active.sidr_resolve(0, there(), DATAGRAMS, 5353, b"?").expect("a question");
    let mut asked = Vec::new();
    while let Some(due) = active.deadline() {
        asked.append(&mut sent(&mut active));
        active.on_timer(due);
    }
    assert!(asked.len() == 4 && asked.iter().all(|mad| *mad == asked[0]));
    assert_eq!(events(&mut active), [ConnectionEvent::SidrFailed { id, failure: SidrFailure::Unreachable }]);
    assert_eq!(counted(&active), [("tx_retransmissions", 3), ("sidr_exhausted", 1)]);
}

#[test]
fn only_an_answer_to_the_question_counts() {
    let mut active = Manager::new(config(1));
    let id = active.sidr_resolve(0, there(), DATAGRAMS, 5353, b"?").expect("a question");
    let CmMessage::SidrReq(req) = only(&mut active) else { panic!("a SIDR_REQ") };
    let rep = SidrRep { request_id: req.request_id, service_id: DATAGRAMS, ..SidrRep::default() };
    hand(&mut active, 0, (ip(1), ip(3)), CmMessage::SidrRep(rep));
    hand(&mut active, 0, there(), CmMessage::SidrRep(SidrRep { request_id: !req.request_id, ..rep }));
    hand(&mut active, 0, there(), CmMessage::SidrRep(SidrRep { service_id: SERVICE, ..rep }));
    assert_eq!(counted(&active), [("rx_foreign_route", 1), ("rx_unknown_connection", 2)]);
    assert_eq!((events(&mut active), active.len()), (vec![], 1));
    assert!(active.sidr_abandon(id) && !active.sidr_abandon(id));
    assert_eq!(active.deadline(), None);
}
