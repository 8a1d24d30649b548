//! Repetitions and the end of patience.

use super::*;

/// Lets time pass until no timer is set; how many messages of each kind were sent, none of which arrives.
fn to_the_end(manager: &mut Manager) -> Vec<(&'static str, usize)> {
    let mut said: Vec<(&'static str, usize)> = Vec::new();
    for _ in 0..100 {
        for mad in sent(manager) {
            match said.iter_mut().find(|(name, _)| *name == mad.message.name()) {
                Some((_, count)) => *count += 1,
                None => said.push((mad.message.name(), 1)),
            }
        }
        let Some(due) = manager.deadline() else { return said };
        manager.on_timer(due);
    }
    panic!("timers without end");
}

#[test]
fn a_req_is_repeated_ever_more_slowly_and_then_given_up() {
    let mut active = Manager::new(CmConfig { max_retries: 4, interval_ns: 1000 * MS, ..config(1) });
    let id = active.connect(0, there(), request(1)).expect("a connection");
    let req = only(&mut active);
    for due in [250, 750, 1750, 2750] {
        assert_eq!(active.deadline(), Some(due * MS));
        active.on_timer(due * MS - 1);
        assert!(sent(&mut active).is_empty());
        active.on_timer(due * MS);
        assert_eq!(only(&mut active), req);
    }
    active.on_timer(3750 * MS);
    let rej = only_rej(&mut active);
    assert_eq!((rej.reason, rej.subject, rej.info_len, rej.info[7]), (RejReason::TIMEOUT, Subject::Other, 8, 1));
    assert_eq!(events(&mut active), [ConnectionEvent::Unreachable { id }]);
    assert_eq!(counted(&active), [("tx_retransmissions", 4), ("req_exhausted", 1)]);
    assert_eq!(to_the_end(&mut active), []);
    assert_eq!((events(&mut active), active.len()), (vec![ConnectionEvent::TimewaitExit { id }], 0));
}

#[test]
fn a_rep_is_repeated_as_often_as_the_req_asks() {
    let mut passive = Pair::new().passive;
    hand(&mut passive, 0, back(), CmMessage::Req(Req { max_cm_retries: 2, ..req(1) }));
    let [ConnectionEvent::Request { id, .. }] = events(&mut passive)[..] else { panic!("a request") };
    assert_eq!(passive.deadline(), None);
    passive.accept(0, id, offer(2), b"").expect("a request");
    assert_eq!(to_the_end(&mut passive), [("REP", 3), ("REJ", 1)]);
    assert_eq!(events(&mut passive), [ConnectionEvent::Unreachable { id }, ConnectionEvent::TimewaitExit { id }]);
    assert_eq!(passive.stats().rep_exhausted, 1);
}

#[test]
fn an_unanswered_dreq_ends_the_connection_all_the_same() {
    let mut pair = Pair::new();
    let (ours, _) = pair.established();
    pair.active.disconnect(0, ours, b"").expect("a connection");
    assert_eq!(to_the_end(&mut pair.active), [("DREQ", 16)]);
    let ending = Ending::Unanswered;
    assert_eq!(
        events(&mut pair.active),
        [ConnectionEvent::Disconnected { id: ours, ending }, ConnectionEvent::TimewaitExit { id: ours }]
    );
    assert!(pair.active.is_empty());
}

#[test]
fn a_peer_gets_the_time_it_asks_for_once() {
    let mut active = Manager::new(config(1));
    let id = active.connect(0, there(), request(1)).expect("a connection");
    sent(&mut active);
    let mra = Mra { remote_comm_id: id.comm_id(), service_timeout: 18, ..Mra::default() };
    hand(&mut active, 100 * MS, there(), CmMessage::Mra(mra));
    let due = 100 * MS + 250 * MS + (4096 << 18);
    assert_eq!((active.state(id), active.deadline()), (CmState::MraReqRcvd, Some(due)));
    hand(&mut active, 200 * MS, there(), CmMessage::Mra(mra));
    assert_eq!((active.deadline(), counted(&active)), (Some(due), vec![("rx_duplicate", 1)]));
    active.on_timer(due);
    assert!(matches!(only(&mut active), CmMessage::Req(_)));
    assert_eq!(to_the_end(&mut active), [("REQ", 14), ("REJ", 1)]);
}

#[test]
fn no_peer_gets_hours() {
    let mut pair = Pair::new();
    let (ours, theirs) = pair.replied();
    let (local_comm_id, remote_comm_id) = (ours.comm_id(), theirs.comm_id());
    let mra = Mra { local_comm_id, remote_comm_id, subject: Subject::Rep, service_timeout: 31, ..Mra::default() };
    hand(&mut pair.passive, 0, back(), CmMessage::Mra(mra));
    assert_eq!(pair.passive.state(theirs), CmState::MraRepRcvd);
    assert_eq!(pair.passive.deadline(), Some(250 * MS + (4096 << 24)));
}

#[test]
fn the_end_of_time_is_no_reason_to_loop_or_overflow() {
    let mut active = Manager::new(config(1));
    let id = active.connect(Nanos::MAX - 5, there(), request(1)).expect("a connection");
    active.on_timer(Nanos::MAX);
    assert_eq!(events(&mut active), [ConnectionEvent::Unreachable { id }, ConnectionEvent::TimewaitExit { id }]);
}
