//! The end.

use super::*;

#[test]
fn either_side_ends_in_two_messages() {
    for active_ends in [true, false] {
        let mut pair = Pair::new();
        let (ours, theirs) = pair.established();
        let Pair { active, passive } = &mut pair;
        let (first, id, way, second, other, back_way, qpn) = if active_ends {
            (active, ours, there(), passive, theirs, back(), 0x22)
        } else {
            (passive, theirs, back(), active, ours, there(), 0x11)
        };
        first.disconnect(0, id, b"bye").expect("a connection");
        let dreq = sent(first)[0];
        let CmMessage::Dreq(said) = dreq.message else { panic!("a DREQ") };
        assert_eq!((said.remote_qpn.get(), &said.private_data[..4]), (qpn, &b"bye\0"[..]));
        second.on_mad(0, back_way, &dreq.emit());
        assert_eq!(events(second), [ConnectionEvent::Disconnected { id: other, ending: Ending::ByPeer }]);
        let drep = sent(second)[0];
        assert_eq!(drep.header.tid, dreq.header.tid);
        first.on_mad(0, way, &drep.emit());
        assert_eq!(events(first), [ConnectionEvent::Disconnected { id, ending: Ending::Confirmed }]);
        for (manager, id) in [(first, id), (second, other)] {
            let due = manager.deadline().expect("TIMEWAIT ends");
            manager.on_timer(due - 1);
            assert_eq!((events(manager), manager.len(), manager.connections.indexed()), (vec![], 1, 2));
            manager.on_timer(due);
            assert_eq!(manager.connections.indexed(), 0);
            assert_eq!(
                (events(manager), manager.len(), manager.deadline()),
                (vec![ConnectionEvent::TimewaitExit { id }], 0, None)
            );
        }
    }
}

#[test]
fn ends_that_cross_meet() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.established();
    pair.active.disconnect(0, ours, b"").expect("a connection");
    pair.passive.disconnect(0, theirs, b"").expect("a connection");
    pair.settle(0);
    assert_eq!(events(&mut pair.active), [ConnectionEvent::Disconnected { id: ours, ending: Ending::ByPeer }]);
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::Disconnected { id: theirs, ending: Ending::ByPeer }]);
    assert_eq!([pair.active.state(ours), pair.passive.state(theirs)], [CmState::Timewait; 2]);
}

#[test]
fn a_lost_drep_is_said_again_in_timewait_and_after_it() {
    let mut pair = Pair::new();
    let (ours, _) = pair.established();
    pair.active.disconnect(0, ours, b"").expect("a connection");
    let dreq = only(&mut pair.active);
    hand(&mut pair.passive, 0, back(), dreq);
    let drep = only(&mut pair.passive);
    hand(&mut pair.passive, 0, back(), dreq);
    assert_eq!(only(&mut pair.passive), drep);
    pair.passive.on_timer(10_000 * MS);
    assert!(pair.passive.is_empty());
    hand(&mut pair.passive, 0, back(), dreq);
    assert_eq!(only(&mut pair.passive), drep);
}

#[test]
fn a_dreq_for_another_queue_pair_ends_nothing() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.established();
    let (local_comm_id, remote_comm_id) = (ours.comm_id(), theirs.comm_id());
    let dreq = Dreq { local_comm_id, remote_comm_id, remote_qpn: Qpn::new(0x23), ..Dreq::default() };
    hand(&mut pair.passive, 0, back(), CmMessage::Dreq(dreq));
    assert_eq!((pair.passive.state(theirs), counted(&pair.passive)), (CmState::Established, vec![("rx_wrong_qpn", 1)]));
    assert!(sent(&mut pair.passive).is_empty());
}

#[test]
fn an_open_connection_that_the_peer_refuses_is_over() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.established();
    let (local_comm_id, remote_comm_id) = (ours.comm_id(), theirs.comm_id());
    let reason = RejReason::TIMEOUT;
    let rej = Rej { local_comm_id, remote_comm_id, subject: Subject::Other, reason, ..Rej::default() };
    hand(&mut pair.passive, 0, back(), CmMessage::Rej(rej));
    let ending = Ending::Rejected(reason);
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::Disconnected { id: theirs, ending }]);
    hand(&mut pair.passive, 0, back(), CmMessage::Rej(rej));
    assert_eq!(events(&mut pair.passive), []);
}

#[test]
fn a_grant_that_the_granter_ends_is_over_before_it_opened() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.replied();
    pair.passive.disconnect(0, theirs, b"").expect("a grant");
    pair.settle(0);
    assert_eq!(events(&mut pair.active), [ConnectionEvent::Disconnected { id: ours, ending: Ending::ByPeer }]);
    assert_eq!(events(&mut pair.passive), [ConnectionEvent::Disconnected { id: theirs, ending: Ending::Confirmed }]);
    assert_eq!(pair.active.confirm(0, ours), Err(CmError::WrongState(CmState::Timewait)));
}
