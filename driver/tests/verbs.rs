//! The verbs beyond SEND, WRITE and READ, over a simulated wire with and without faults.

mod common;

use common::Wire;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::neighbour::{Interface, Resolution};
use roci_driver::{
    Access, Destination, Engine, Event, MemoryRegion, Notify, Operation, PortConfig, PostError, SendWr, WcStatus,
    WindowView,
};
use roci_protocol::sim::Faults;
use roci_protocol::ud::GRH_LEN;
use roci_testkit::{World, poll_and_check};

fn faults(seed: u64) -> Faults {
    Faults { loss: 0.1, dup: 0.1, reorder: 0.1, corrupt: 0.05, seed }
}

fn region(wire: &mut Wire, len: usize, access: Access) -> MemoryRegion {
    let buffer = wire.buffer(1, &vec![0; len]);
    let peer = &mut wire.ends[1];
    peer.engine.register(peer.pd, buffer, access).expect("a free key")
}

fn word(wire: &Wire, region: MemoryRegion, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    let peer = &wire.ends[1];
    peer.engine.read_region(peer.pd, region, offset, &mut bytes).expect("inside");
    u64::from_ne_bytes(bytes)
}

#[test]
fn atomics_happen_once_whatever_the_network_does() {
    for seed in 0..30 {
        let mut wire = Wire::new(Some(faults(seed)));
        let region = region(&mut wire, 64, Access::REMOTE_ATOMIC);
        for round in 0..20 {
            let result = wire.buffer(0, &[0xff; 8]);
            wire.post(0, SendWr::fetch_add(round, result, region.rkey(), 8, 3));
            let done = wire.wait(0);
            assert_eq!((done.status, done.operation), (WcStatus::Success, Operation::FetchAdd));
            assert_eq!(u64::from_ne_bytes(done.buffer[..].try_into().expect("8 bytes")), round * 3, "seed {seed}");
        }
        let result = wire.buffer(0, &[0; 8]);
        wire.post(0, SendWr::compare_swap(1, result, region.rkey(), 8, 60, 7));
        assert_eq!(wire.wait(0).status, WcStatus::Success);
        assert_eq!(word(&wire, region, 8), 7);
    }
}

#[test]
fn atomics_need_the_right_to_them() {
    let mut wire = Wire::new(None);
    let region = region(&mut wire, 64, Access::REMOTE_WRITE);
    let result = wire.buffer(0, &[0; 8]);
    wire.post(0, SendWr::fetch_add(1, result, region.rkey(), 0, 1));
    assert_eq!(wire.wait(0).status, WcStatus::RemAccessErr);
    assert_eq!(word(&wire, region, 0), 0);
}

#[test]
fn a_window_opens_its_part_until_the_peer_shuts_it() {
    let mut wire = Wire::new(None);
    let region = region(&mut wire, 100, Access::WINDOW_BIND);
    let peer = &mut wire.ends[1];
    let mut window = peer.engine.alloc_window(peer.pd).expect("a free key");
    let view = WindowView { region, va: 10, len: 20, access: Access::REMOTE_WRITE };
    peer.engine.bind_window(peer.qp, 9, &mut window, view).expect("accepted");
    let bound = wire.wait(1);
    assert_eq!((bound.operation, bound.status, bound.wr_id), (Operation::BindWindow, WcStatus::Success, 9));

    let payload = wire.buffer(0, b"twenty bytes exactly");
    wire.post(0, SendWr::write(1, payload, window.rkey(), 10));
    assert_eq!(wire.wait(0).status, WcStatus::Success);

    wire.post_recv(1, 4);
    let payload = wire.buffer(0, b"done");
    wire.post(0, SendWr::send_with_invalidate(2, payload, window.rkey()));
    assert_eq!(wire.wait(1).invalidated, Some(window.rkey()));
    assert_eq!(wire.wait(0).status, WcStatus::Success);

    let payload = wire.buffer(0, b"late");
    wire.post(0, SendWr::write(3, payload, window.rkey(), 10));
    assert_eq!(wire.wait(0).status, WcStatus::RemAccessErr, "the window is shut");
    assert!(wire.ends[1].engine.dealloc_window(window));
}

#[test]
fn a_window_is_shut_by_its_owner_too() {
    let mut wire = Wire::new(None);
    let region = region(&mut wire, 100, Access::WINDOW_BIND);
    let peer = &mut wire.ends[1];
    let mut window = peer.engine.alloc_window(peer.pd).expect("a free key");
    let view = WindowView { region, va: 0, len: 100, access: Access::REMOTE_READ };
    for round in 0..3 {
        peer.engine.bind_window(peer.qp, round, &mut window, view).expect("accepted");
        peer.engine.invalidate_window(peer.qp, round, window).expect("accepted");
    }
    let outcomes: Vec<_> = std::iter::from_fn(|| wire.ends[1].engine.poll_cq(wire.ends[1].cq)).collect();
    assert!(outcomes.len() == 6 && outcomes.iter().all(|done| done.status.is_success()));
}

#[test]
fn a_send_queue_drains_and_goes_on() {
    let mut wire = Wire::new(None);
    wire.post_recv(1, 4);
    wire.post_recv(1, 4);
    let payload = wire.buffer(0, b"1st.");
    wire.post(0, SendWr::send(1, payload));
    let end = &mut wire.ends[0];
    assert!(end.engine.drain_qp(end.qp));
    let payload = wire.buffer(0, b"2nd.");
    wire.post(0, SendWr::send(2, payload));
    assert_eq!(wire.wait(0).wr_id, 1);
    let end = &mut wire.ends[0];
    assert_eq!(end.engine.poll_event(), Some(Event::SendQueueDrained(end.qp)));
    assert!(end.engine.resume_qp(end.qp));
    assert_eq!(wire.wait(0).wr_id, 2);
}

#[test]
fn only_a_solicited_message_wakes_who_waits_for_one() {
    let mut wire = Wire::new(None);
    wire.post_recv(1, 4);
    wire.post_recv(1, 4);
    let (cq, payload) = (wire.ends[1].cq, wire.buffer(0, b"calm"));
    wire.ends[1].engine.request_notify(cq, Notify::Solicited);
    wire.post(0, SendWr::send(1, payload));
    wire.wait(1);
    assert_eq!(wire.ends[1].engine.poll_event(), None);
    let payload = wire.buffer(0, b"wake");
    wire.post(0, SendWr::send(2, payload).solicited());
    wire.wait(1);
    assert_eq!(wire.ends[1].engine.poll_event(), Some(Event::Completion(cq)));
}

#[test]
fn what_was_received_is_acknowledged_though_its_queue_pair_goes_at_once() {
    for ends in [
        |wire: &mut Wire| wire.ends[1].engine.destroy_qp(wire.ends[1].qp),
        |wire: &mut Wire| {
            wire.ends[1].engine.fail_qp(wire.ends[1].qp, WcStatus::WrFlushErr);
        },
    ] {
        let mut wire = Wire::new(None);
        wire.post_recv(1, 64);
        let buffer = wire.buffer(0, b"the last word");
        wire.post(0, SendWr::send(1, buffer));
        assert_eq!(wire.wait(1).status, WcStatus::Success);
        ends(&mut wire);
        assert_eq!(wire.wait(0).status, WcStatus::Success);
    }
}

/// Two hosts with their neighbours, connected by nothing but addresses.
struct Hosts {
    clock: Clock,
    engines: [Engine<SimLink>; 2],
}

impl Hosts {
    fn new(address: [&str; 2], vlan: Option<u16>) -> Self {
        let clock = Clock::default();
        let (near, far) = SimLink::pair(&clock);
        let mut links = [near, far].into_iter();
        let engines = address.map(|ip| {
            let mut engine = Engine::new(1 << 20).expect("memory");
            let ip = ip.parse().expect("an address");
            let config = PortConfig { interfaces: vec![Interface { ip, prefix: 24, vlan }], ..PortConfig::default() };
            engine.add_port_with(links.next().expect("two ends"), config).expect("a good configuration");
            engine
        });
        Self { clock, engines }
    }

    fn station_of(&mut self, who: usize, ip: &str) -> Resolution {
        let ip = ip.parse().expect("an address");
        self.find("an answer", |hosts| {
            Some(hosts.engines[who].resolve(0, 0, ip)).filter(|known| *known != Resolution::Pending)
        })
    }
}

impl World for Hosts {
    /// Questions are asked again after seconds.
    const STEP_NS: u64 = 1_000_000;

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.engines.iter_mut().for_each(poll_and_check);
    }
}

#[test]
fn hosts_find_each_other_and_exchange_datagrams() {
    for (addresses, vlan) in
        [(["10.0.0.1", "10.0.0.2"], None), (["10.0.0.1", "10.0.0.2"], Some(7)), (["fd00::1", "fd00::2"], None)]
    {
        let mut hosts = Hosts::new(addresses, vlan);
        let Resolution::Known(mac) = hosts.station_of(0, addresses[1]) else { panic!("the peer answers") };
        let [near, far] = &mut hosts.engines;
        let (near_cq, far_cq) = (near.create_cq(8), far.create_cq(8));
        let sender = near.create_datagram_qp((0, 0), near_cq, 5, 4).expect("room");
        let receiver = far.create_datagram_qp((0, 0), far_cq, 0x1111, 4).expect("room");
        let buffer = far.buffer(GRH_LEN + 5).expect("memory");
        far.post_datagram_recv(receiver, 3, buffer).expect("accepted");

        let handle = near.create_ah((0, 0), addresses[1].parse().expect("an address"), mac).expect("room");
        let to = Destination { qpn: receiver.qpn(), qkey: 0x1111 };
        let mut message = near.buffer(5).expect("memory");
        message.copy_from_slice(b"hello");
        let wr = SendWr::send(4, message).with_imm(9);
        near.post_datagram(sender, handle, to, wr).expect("accepted");
        assert_eq!(near.poll_cq(near_cq).map(|done| (done.wr_id, done.status)), Some((4, WcStatus::Success)));
        hosts.steps(3);

        let far = &mut hosts.engines[1];
        let done = far.poll_cq(far_cq).expect("it arrived");
        assert_eq!((done.wr_id, done.len, done.imm, done.source_qpn), (3, GRH_LEN + 5, Some(9), Some(sender.qpn())));
        assert_eq!(&done.buffer[GRH_LEN..], b"hello");
        let version = done.buffer[if addresses[0].contains(':') { 0 } else { 20 }] >> 4;
        assert_eq!(version, if addresses[0].contains(':') { 6 } else { 4 });
        assert!(far.stats().is_balanced());
    }
}

#[test]
fn no_station_answers_on_another_vlan_and_off_the_link() {
    let mut hosts = Hosts::new(["10.0.0.1", "10.0.0.2"], None);
    assert!(matches!(hosts.station_of(0, "10.0.0.3"), Resolution::Unreachable(_)));
    assert!(matches!(hosts.station_of(0, "192.168.0.1"), Resolution::Unreachable(_)));
}

#[test]
fn a_datagram_is_no_longer_than_a_packet() {
    let mut hosts = Hosts::new(["10.0.0.1", "10.0.0.2"], None);
    let Resolution::Known(mac) = hosts.station_of(0, "10.0.0.2") else { panic!("the peer answers") };
    let near = &mut hosts.engines[0];
    let cq = near.create_cq(8);
    let qp = near.create_datagram_qp((0, 0), cq, 5, 4).expect("room");
    let handle = near.create_ah((0, 0), "10.0.0.2".parse().expect("an address"), mac).expect("room");
    let long = near.buffer(9000).expect("memory");
    let to = Destination { qpn: qp.qpn(), qkey: 5 };
    let refused = near.post_datagram(qp, handle, to, SendWr::send(1, long)).expect_err("too long");
    assert!(matches!(refused.why, PostError::DatagramTooLong(_)));
    near.destroy_ah(handle);
    let short = near.buffer(9).expect("memory");
    let refused = near.post_datagram(qp, handle, to, SendWr::send(1, short)).expect_err("no handle");
    assert_eq!(refused.why, PostError::NoAddressHandle);
    near.destroy_datagram_qp(qp);
    let short = near.buffer(9).expect("memory");
    assert!(near.post_datagram(qp, handle, to, SendWr::send(1, short)).is_err());
}

#[test]
fn many_queue_pairs_share_receives_and_hear_when_they_run_low() {
    let clock = Clock::default();
    let (near, far) = SimLink::pair(&clock);
    let (mut client, mut server) = (Engine::new(1 << 20).expect("memory"), Engine::new(1 << 20).expect("memory"));
    client.add_port(near, [10, 0, 0, 1].into(), true);
    server.add_port(far, [10, 0, 0, 2].into(), true);
    let params = roci_driver::QpParams { min_rnr_timer: 1, ..Default::default() };
    let (client_pd, server_pd) = (client.alloc_pd(), server.alloc_pd());
    let (client_cq, server_cq) = (client.create_cq(64), server.create_cq(64));
    let srq = server.create_srq(8, server_cq);
    let qps: Vec<_> = (0..4)
        .map(|_| {
            let ours = client.create_qp(0, client_pd, client_cq).expect("room");
            let mut theirs = server.create_qp(0, server_pd, server_cq).expect("room");
            server.share_receives(&mut theirs, srq).expect("one completion queue");
            let (near, far) = (client.address_of(&ours, &params), server.address_of(&theirs, &params));
            server.connect(theirs, &near, &params).expect("one IP version");
            client.connect(ours, &far, &params).expect("one IP version")
        })
        .collect();
    let post = |server: &mut Engine<SimLink>, wr_id| {
        let buffer = server.buffer(8).expect("memory");
        server.post_srq_recv(srq, wr_id, buffer).map_err(|refused| refused.why)
    };
    (0..3).for_each(|wr_id| post(&mut server, wr_id).expect("room"));
    server.arm_srq(srq, 2);
    assert_eq!(server.poll_event(), None);
    for &qp in &qps {
        let message = client.buffer(8).expect("memory");
        client.post_send(qp, SendWr::send(1, message)).expect("accepted");
    }
    let run = |client: &mut Engine<SimLink>, server: &mut Engine<SimLink>| {
        (0..200).for_each(|_| {
            clock.advance(10_000);
            client.poll();
            server.poll();
        });
    };
    run(&mut client, &mut server);
    assert_eq!(std::iter::from_fn(|| server.poll_cq(server_cq)).count(), 3, "the fourth finds no receive");
    assert_eq!(server.poll_event(), Some(Event::SharedReceivesLow(srq)));
    post(&mut server, 4).expect("room");
    run(&mut client, &mut server);
    assert_eq!(std::iter::from_fn(|| server.poll_cq(server_cq)).count(), 1);
    assert_eq!(server.srq_len(srq), 0);
    // One of them fails: it takes no more receives, and gives none of the others' back.
    post(&mut server, 5).expect("room");
    let message = client.buffer(8).expect("memory");
    let nowhere = SendWr::write(2, message, roci_protocol::Rkey(0xdead), 0);
    client.post_send(qps[0], nowhere).expect("accepted");
    run(&mut client, &mut server);
    let Some(Event::QueuePairFailed(failed)) = server.poll_event() else { panic!("it has failed") };
    assert_eq!(server.poll_event(), Some(Event::LastReceiveTaken(failed)));
    assert_eq!((server.poll_event(), server.srq_len(srq)), (None, 1));
    assert_eq!(client.poll_event(), Some(Event::QueuePairFailed(qps[0])), "it shares no receives");
    assert_eq!(client.poll_event(), None);
}

#[test]
fn a_list_is_posted_in_order_up_to_the_first_that_is_refused() {
    for seed in 0..10 {
        let mut wire = Wire::new(Some(faults(seed)));
        // Those that are clear to go leave as they are posted, or all of them together.
        wire.ends[0].engine.set_fast_path(seed % 2 == 0);
        for _ in 0..40 {
            wire.post_recv(1, 8);
        }
        // Its completion queue has places for 64.
        let mut list: Vec<_> =
            (0..70).map(|number| SendWr::send(number, wire.buffer(0, &number.to_ne_bytes()))).collect();
        let end = &mut wire.ends[0];
        let refused = end.engine.post_sends(end.qp, &mut list.drain(..40)).map_err(|refused| refused.why);
        assert_eq!(refused, Ok(()), "seed {seed}");
        let mut rest = list.into_iter();
        let refused = end.engine.post_sends(end.qp, &mut rest).expect_err("there are 64 places");
        assert_eq!((refused.why, rest.len()), (PostError::CompletionQueueFull, 5), "seed {seed}");
        for number in 0..40_u64 {
            let done = wire.wait(1);
            assert_eq!((done.status, &done.buffer[..]), (WcStatus::Success, &number.to_ne_bytes()[..]), "seed {seed}");
        }
        assert!((0..40).all(|number| wire.wait(0).wr_id == number), "seed {seed}");
    }
}
