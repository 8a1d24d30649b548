//! Two engines over a simulated wire: verbs, keys, a cut wire, stray and hostile frames.

use roci_driver::link::Link;
use roci_driver::link::sim::SimLink;
use roci_driver::{Access, Algorithm, Dialect, Operation, PostError, Rkey, SendWr, State, WcStatus};
use roci_protocol::sim::Faults;
use roci_protocol::wire::Malformed;
use roci_testkit::World as _;

use crate::common::{Wire, pattern};

fn run_every_verb(wire: &mut Wire) {
    let bytes = pattern(10_001);
    let region_buffer = wire.buffer(1, &vec![0; 20_000]);
    let peer = &mut wire.ends[1];
    let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
    let region = peer.engine.register(peer.pd, region_buffer, access).expect("a free key");

    wire.post_recv(1, 10_001);
    let payload = wire.buffer(0, &bytes);
    wire.post(0, SendWr::send(1, payload).with_imm(77));
    let received = wire.wait(1);
    assert_eq!((received.operation, received.imm, received.len), (Operation::Recv, Some(77), 10_001));
    assert_eq!(received.buffer[..], bytes[..]);
    assert_eq!(wire.wait(0).operation, Operation::Send);

    let payload = wire.buffer(0, &bytes);
    wire.post(0, SendWr::write(2, payload, region.rkey(), 100));
    let fetched = wire.buffer(0, &vec![0; 10_001]);
    wire.post(0, SendWr::read(3, fetched, region.rkey(), 100));
    assert_eq!(wire.wait(0).operation, Operation::Write);
    let read = wire.wait(0);
    assert_eq!((read.operation, read.wr_id, read.status), (Operation::Read, 3, WcStatus::Success));
    assert_eq!(read.buffer[..], bytes[..]);

    wire.post_recv(1, 0);
    let payload = wire.buffer(0, b"tail");
    wire.post(0, SendWr::write(4, payload, region.rkey(), 19_996).with_imm(5));
    let received = wire.wait(1);
    assert_eq!((received.operation, received.imm, received.len), (Operation::RecvRdmaWithImm, Some(5), 4));
    assert_eq!(wire.wait(0).status, WcStatus::Success);
    let peer = &mut wire.ends[1];
    let mut tail = [0; 4];
    peer.engine.read_region(peer.pd, region, 19_996, &mut tail).expect("inside");
    assert_eq!(&tail, b"tail");
    assert!(peer.engine.deregister(region).is_some());
    assert!(peer.engine.deregister(region).is_none());
}

#[test]
fn every_verb_moves_the_right_bytes() {
    run_every_verb(&mut Wire::new(None));
}

#[test]
fn every_verb_survives_every_fault() {
    for seed in 0..50 {
        let faults = Faults { loss: 0.1, dup: 0.1, reorder: 0.1, corrupt: 0.1, seed };
        let mut wire = Wire::new(Some(faults));
        run_every_verb(&mut wire);
        for end in &wire.ends {
            assert!(end.engine.stats().is_balanced());
        }
    }
}

#[test]
fn every_verb_survives_every_fault_in_our_own_dialect_under_every_congestion_control() {
    let mut kept = 0;
    for (seed, congestion) in
        (0..45).zip([Algorithm::Unlimited, Algorithm::Dcqcn, Algorithm::Delay].into_iter().cycle())
    {
        let faults = Faults { loss: 0.1, dup: 0.1, reorder: 0.1, corrupt: 0.1, seed };
        let mut wire = Wire::with(Some(faults), Dialect::Rocinante, congestion);
        run_every_verb(&mut wire);
        for end in &wire.ends {
            assert!(end.engine.stats().is_balanced());
            kept += end.engine.stats().queue_pairs.rx_held;
        }
    }
    assert!(kept > 0, "nothing ever came early");
}

#[test]
fn a_dead_key_is_refused_and_both_sides_hear_of_it_by_name() {
    let mut wire = Wire::new(None);
    wire.post_recv(0, 10);
    let fetched = wire.buffer(0, &[0; 10]);
    wire.post(0, SendWr::read(1, fetched, Rkey(0x1234_5678), 0));
    assert_eq!(wire.wait(0).status, WcStatus::RemAccessErr);
    assert_eq!(wire.wait(0).status, WcStatus::WrFlushErr);
    let [near, far] = &wire.ends;
    assert_eq!(near.engine.qp_state(near.qp), Some(State::Error));
    assert_eq!(far.engine.qp_state(far.qp), Some(State::Error));
    assert_eq!(far.engine.stats().queue_pairs.resp_remote_access_errors, 1);
}

#[test]
fn another_domains_memory_is_out_of_reach() {
    let mut wire = Wire::new(None);
    let buffer = wire.buffer(1, &[1; 10]);
    let peer = &mut wire.ends[1];
    let other = peer.engine.alloc_pd();
    let region = peer.engine.register(other, buffer, Access::REMOTE_READ).expect("a free key");
    let fetched = wire.buffer(0, &[0; 10]);
    wire.post(0, SendWr::read(1, fetched, region.rkey(), 0));
    assert_eq!(wire.wait(0).status, WcStatus::RemAccessErr);
}

#[test]
fn a_cut_wire_is_a_named_error_and_the_engine_lives_on() {
    let mut wire = Wire::new(None);
    wire.post_recv(0, 10);
    (wire.cut)();
    let payload = wire.buffer(0, b"lost");
    wire.post(0, SendWr::send(1, payload));
    assert_eq!(wire.wait(0).status, WcStatus::RetryExcErr);
    assert_eq!(wire.wait(0).status, WcStatus::WrFlushErr);
    let payload = wire.buffer(0, b"late");
    wire.post(0, SendWr::send(2, payload));
    let flushed = wire.wait(0);
    assert_eq!((flushed.wr_id, flushed.status, &flushed.buffer[..]), (2, WcStatus::WrFlushErr, &b"late"[..]));
    wire.post_recv(0, 10);
    assert_eq!(wire.wait(0).status, WcStatus::WrFlushErr, "a late receive is flushed too");
    let end = &mut wire.ends[0];
    end.engine.destroy_qp(end.qp);
    let buffer = end.engine.buffer(1).expect("memory");
    assert_eq!(end.engine.post_recv(end.qp, 1, buffer).expect_err("destroyed").why, PostError::NoQueuePair);
}

#[test]
fn a_silent_peer_is_given_up_within_the_retry_budget() {
    let mut wire = Wire::new(None);
    let payload = wire.buffer(0, b"anybody?");
    wire.post(0, SendWr::send(1, payload));
    for _ in 0..5_000 {
        wire.clock.advance(1000);
        wire.ends[0].engine.poll();
        let end = &mut wire.ends[0];
        if let Some(done) = end.engine.poll_cq(end.cq) {
            assert_eq!(done.status, WcStatus::RetryExcErr);
            return;
        }
    }
    panic!("the peer was never given up");
}

#[test]
fn a_full_completion_queue_is_back_pressure() {
    let mut wire = Wire::new(None);
    for _ in 0..64 {
        wire.post_recv(0, 1);
    }
    let buffer = wire.buffer(0, &[0]);
    let end = &mut wire.ends[0];
    let refused = end.engine.post_recv(end.qp, 1, buffer).expect_err("all places are reserved");
    assert_eq!(refused.why, PostError::CompletionQueueFull);
}

#[test]
fn stray_and_hostile_frames_are_counted_once_and_change_nothing() {
    let mut wire = Wire::new(None);
    let frames: [&[u8]; 4] = [&[], &[0xff; 13], &[0xff; 60], &[0x45; 1500]];
    for frame in frames {
        wire.ends[0].engine.link_mut(0).transmit(frame.len(), |bytes| bytes.copy_from_slice(frame)).expect("room");
    }
    for _ in 0..10 {
        wire.step();
    }
    let stats = wire.ends[1].engine.stats();
    assert_eq!((stats.rx_frames, stats.rx_delivered), (4, 0));
    assert_eq!((stats.malformed(Malformed::Truncated), stats.malformed(Malformed::NotIp)), (2, 2));
    assert!(stats.is_balanced());
    run_every_verb(&mut wire);
}

#[test]
fn a_captured_frame_from_another_address_is_refused() {
    let mut wire = Wire::new(None);
    wire.post_recv(1, 64);
    // The same numbers, but from a host that the connection is not with.
    let (qpn, clock) = (wire.ends[1].qp.qpn(), wire.clock.clone());
    let (impostor, _) = SimLink::pair(&clock);
    let ip = roci_protocol::wire::Ip::between([10, 0, 0, 9].into(), [10, 0, 0, 2].into()).expect("IPv4");
    let mut flow = roci_protocol::wire::Flow::new(impostor.mac(), impostor.mac(), None, ip, 0xc000);
    let bth = roci_protocol::wire::Bth::new(roci_protocol::wire::Opcode::RcSendOnly, qpn, roci_protocol::Psn::new(0));
    let headers = roci_protocol::wire::Headers::plain(bth);
    let len = flow.frame_len(&headers, 4);
    let link = wire.ends[0].engine.link_mut(0);
    link.transmit(len, |bytes| flow.emit(bytes, &headers, 4, |payload| payload.fill(1))).expect("room");
    wire.step();
    wire.step();
    assert_eq!(wire.ends[1].engine.stats().rx_wrong_address, 1);
}

/// A neighbour that keeps the engine busy must not keep it from acknowledging somebody else.
#[test]
fn an_acknowledgement_does_not_wait_for_an_idle_poll() {
    let mut wire = Wire::new(None);
    wire.post_recv(1, 10);
    let payload = wire.buffer(0, b"hello");
    wire.post(0, SendWr::send(1, payload));
    for _ in 0..20 {
        wire.ends[0].engine.link_mut(0).transmit(60, |bytes| bytes.fill(0)).expect("room");
        wire.ends[1].engine.poll();
    }
    assert_eq!(wire.ends[1].engine.stats().queue_pairs.tx_acks, 1);
}
