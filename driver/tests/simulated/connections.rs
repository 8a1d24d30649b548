//! Connections by RDMA-CM between two engines over a simulated wire.

use std::net::SocketAddr;

use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::neighbour::Interface;
use roci_driver::{
    CmCallError, CmChannel, CmEvent, CompletionQueue, ConnId, ConnectError, Dialect, Engine, PdId, Pkey, PortConfig,
    PortConfigError, PortSpace, QpParams, QueuePair, RejReason, SendWr, ServiceId, State, WcStatus,
};
use roci_protocol::Mtu;
use roci_protocol::sim::Faults;
use roci_testkit::{Swarm, World, poll_and_check};

const PORT: u16 = 4000;

struct Host {
    engine: Engine<Faulty<SimLink>>,
    pd: PdId,
    cq: CompletionQueue,
}

struct Hosts {
    clock: Clock,
    ends: [Host; 2],
    params: [QpParams; 2],
}

impl Hosts {
    fn new(faults: Option<Faults>, address: [&str; 2]) -> Self {
        Self::in_partitions(faults, address, [Pkey::DEFAULT; 2])
    }

    fn in_partitions(faults: Option<Faults>, address: [&str; 2], pkeys: [Pkey; 2]) -> Self {
        let clock = Clock::default();
        Self::over(SimLink::pair(&clock), clock, faults, address, pkeys)
    }

    fn over(
        (near, far): (SimLink, SimLink),
        clock: Clock,
        faults: Option<Faults>,
        address: [&str; 2],
        pkeys: [Pkey; 2],
    ) -> Self {
        let mut links = [near, far].into_iter();
        let mut pkeys = pkeys.into_iter();
        let ends = address.map(|ip| {
            let seed = faults.map_or(0, |faults| faults.seed);
            let host = ip.as_bytes().last().expect("an address");
            let mut engine = roci_testkit::engine(1 << 20, seed << 8 | u64::from(*host));
            let link = Faulty::new(links.next().expect("two ends"), faults, (*host).into());
            let interfaces = vec![Interface { ip: ip.parse().expect("an address"), prefix: 24, vlan: None }];
            let pkey = pkeys.next().expect("two keys");
            let config = PortConfig { interfaces, pkey, ..PortConfig::default() };
            engine.add_port_with(link, config).expect("a good configuration");
            let (pd, cq) = (engine.alloc_pd(), engine.create_cq(64));
            Host { engine, pd, cq }
        });
        let params = [QpParams::default(), QpParams::default()];
        let mut hosts = Self { clock, ends, params };
        hosts.ends[1].engine.cm_listen(service()).expect("room");
        hosts
    }

    fn event(&mut self, who: usize) -> CmEvent {
        self.find("an event of the connection manager", |hosts| hosts.ends[who].engine.poll_cm())
    }

    fn event_on(&mut self, who: usize, channel: CmChannel) -> CmEvent {
        self.find("an event of a channel", |hosts| hosts.ends[who].engine.poll_cm_on(channel))
    }

    fn connect(&mut self, peer: &str) -> ConnId {
        self.connect_on(CmChannel::default(), SocketAddr::new(peer.parse().expect("an address"), PORT))
    }

    fn connect_on(&mut self, channel: CmChannel, peer: SocketAddr) -> ConnId {
        let params = self.params[0].clone();
        let Host { engine, pd, cq } = &mut self.ends[0];
        let mut qp = engine.create_qp(0, *pd, *cq).expect("room").reporting_to(channel);
        loop {
            let end = &mut self.ends[0];
            match end.engine.cm_connect(qp, peer, &params, b"from here") {
                Ok(id) => return id,
                // A bad network may lose every question: a new attempt begins after a while.
                Err((CmCallError::Resolving | CmCallError::Unreachable(_), again)) => qp = again,
                Err((error, _)) => panic!("{error}"),
            }
            self.step();
        }
    }

    /// Takes the request that is on its way.
    fn accept(&mut self) -> (ConnId, QueuePair) {
        let CmEvent::Request { id, place, private_data, .. } = self.event(1) else { panic!("a request is due") };
        assert_eq!(&private_data[..9], b"from here");
        let Host { engine, pd, cq } = &mut self.ends[1];
        let qp = engine.create_qp(place.0, *pd, *cq).expect("room");
        let qp = engine.cm_prepare(id, qp, &self.params[1]).expect("a good queue pair");
        self.receive(1, qp);
        self.ends[1].engine.cm_accept(id, b"from there").expect("prepared");
        (id, qp)
    }

    fn receive(&mut self, who: usize, qp: QueuePair) {
        let engine = &mut self.ends[who].engine;
        let buffer = engine.buffer(64).expect("memory");
        engine.post_recv(qp, 1, buffer).expect("accepted");
    }

    fn send(&mut self, who: usize, qp: QueuePair) {
        let engine = &mut self.ends[who].engine;
        let buffer = engine.buffer(64).expect("memory");
        engine.post_send(qp, SendWr::send(2, buffer)).expect("accepted");
    }

    fn completes(&mut self, who: usize) -> (u64, WcStatus) {
        self.find("a completion", |hosts| {
            let end = &mut hosts.ends[who];
            end.engine.poll_cq(end.cq).map(|done| (done.wr_id, done.status))
        })
    }
}

impl World for Hosts {
    /// Messages of the connection manager are sent again after seconds.
    const STEP_NS: u64 = 1_000_000;

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.ends.iter_mut().for_each(|end| poll_and_check(&mut end.engine));
    }
}

fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, PORT)
}

/// Connects, exchanges a message each way, and disconnects from either side.
fn whole_life(faults: Option<Faults>, addresses: [&str; 2], who_ends: usize) {
    live(&mut Hosts::new(faults, addresses), addresses, who_ends);
}

fn live(hosts: &mut Hosts, addresses: [&str; 2], who_ends: usize) {
    let ours = hosts.connect(addresses[1]);
    let (theirs, far) = hosts.accept();
    let CmEvent::Replied { id, qp: near, private_data } = hosts.event(0) else { panic!("a reply is due") };
    assert_eq!((id, &private_data[..10]), (ours, &b"from there"[..]));
    hosts.receive(0, near);
    hosts.ends[0].engine.cm_confirm(ours).expect("granted");
    assert_eq!(hosts.event(0), CmEvent::Established { id: ours, qp: near });
    hosts.send(0, near);
    assert_eq!(hosts.completes(1), (1, WcStatus::Success));
    assert_eq!(hosts.event(1), CmEvent::Established { id: theirs, qp: far });
    hosts.send(1, far);
    assert_eq!(hosts.completes(0).1, WcStatus::Success);
    assert_eq!(hosts.completes(0).1, WcStatus::Success);

    let ids = [ours, theirs];
    hosts.ends[who_ends].engine.cm_disconnect(ids[who_ends], &[]).expect("open");
    for who in [0, 1] {
        assert!(matches!(hosts.event(who), CmEvent::Disconnected { id, .. } if id == ids[who]));
        assert_eq!(hosts.event(who), CmEvent::TimewaitExit { id: ids[who] });
        assert_eq!(hosts.ends[who].engine.qp_state([near, far][who]), Some(State::Error));
        assert!(hosts.ends[who].engine.stats().is_balanced());
    }
}

#[test]
fn a_connection_lives_and_ends_from_either_side() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        whole_life(None, addresses, 0);
        whole_life(None, addresses, 1);
    }
}

#[test]
fn a_connection_lives_in_the_partition_of_its_hosts() {
    let addresses = ["10.0.0.1", "10.0.0.2"];
    for pkeys in [[0x8123, 0x8123], [0x8123, 0x0123], [0x0123, 0x8123]] {
        live(&mut Hosts::in_partitions(None, addresses, pkeys.map(Pkey)), addresses, 0);
    }
}

#[test]
fn hosts_of_different_partitions_do_not_hear_each_other() {
    let addresses = ["10.0.0.1", "10.0.0.2"];
    for pkeys in [[0xffff, 0x8123], [0x8123, 0xffff], [0x0123, 0x0123]] {
        let mut hosts = Hosts::in_partitions(None, addresses, pkeys.map(Pkey));
        let id = hosts.connect(addresses[1]);
        assert_eq!(hosts.event(0), CmEvent::Unreachable { id });
        assert!(hosts.ends[1].engine.stats().rx_bad_management > 0, "they are counted");
    }
}

#[test]
fn a_partition_that_is_none_is_refused() {
    let (link, _) = SimLink::pair(&Clock::default());
    let mut engine = Engine::new(1 << 20).expect("memory");
    let interfaces = vec![Interface { ip: [10, 0, 0, 1].into(), prefix: 24, vlan: None }];
    let config = PortConfig { interfaces, pkey: Pkey(0x8000), ..PortConfig::default() };
    assert_eq!(engine.add_port_with(link, config), Err(PortConfigError::Pkey(Pkey(0x8000))));
}

#[test]
fn a_connection_survives_a_bad_network_and_its_life_replays() {
    Swarm::new("roci-driver", "connections", 0..500).run(|seed| {
        let faults = Faults { loss: 0.1, dup: 0.1, reorder: 0.1, corrupt: 0.05, seed };
        let addresses = ["10.0.0.1", "10.0.0.2"];
        let mut hosts = Hosts::new(Some(faults), addresses);
        let net = hosts.ends[0].engine.link(0).inner().net();
        net.record();
        live(&mut hosts, addresses, seed as usize % 2);
        (net.trace(), hosts.clock.now())
    });
}

#[test]
fn the_dialect_is_ours_only_where_both_ask_for_it() {
    use Dialect::{Rocinante, Verbs};
    for dialects in [[Verbs, Verbs], [Verbs, Rocinante], [Rocinante, Verbs], [Rocinante, Rocinante]] {
        let (hosts, qps) = agreed(dialects.map(|dialect| QpParams { dialect, ..QpParams::default() }));
        let due = dialects[0].with(dialects[1]);
        let spoken = qps.map(|(who, qp)| hosts.ends[who].engine.dialect_of(qp));
        assert_eq!(spoken, [Some(due); 2], "{dialects:?}");
    }
}

#[test]
fn the_icrc_is_left_out_only_where_both_ask_for_it_whatever_the_dialect() {
    use Dialect::{Rocinante, Verbs};
    for dialects in [[Verbs, Verbs], [Verbs, Rocinante], [Rocinante, Rocinante]] {
        for icrcs in [[true, true], [true, false], [false, true], [false, false]] {
            let params = [0, 1].map(|who| QpParams { dialect: dialects[who], icrc: icrcs[who], ..QpParams::default() });
            let (hosts, qps) = agreed(params);
            let due = Some((dialects[0].with(dialects[1]), icrcs[0] || icrcs[1]));
            let agreed = qps.map(|(who, qp)| {
                let engine = &hosts.ends[who].engine;
                engine.dialect_of(qp).zip(engine.has_icrc(qp))
            });
            assert_eq!(agreed, [due; 2], "{dialects:?} {icrcs:?}");
        }
    }
}

/// Hosts connected with these parameters, and the queue pair of each.
fn agreed(params: [QpParams; 2]) -> (Hosts, [(usize, QueuePair); 2]) {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    hosts.params = params;
    let ours = hosts.connect("10.0.0.2");
    let (_, far) = hosts.accept();
    // The tag is no business of the application's.
    let CmEvent::Replied { qp: near, private_data, .. } = hosts.event(0) else { panic!("a reply is due") };
    assert_eq!(&private_data[..10], b"from there");
    hosts.ends[0].engine.cm_confirm(ours).expect("granted");
    (hosts, [(0, near), (1, far)])
}

#[test]
fn refusals_carry_their_reason() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let ours = hosts.connect("10.0.0.2");
    let CmEvent::Request { id, .. } = hosts.event(1) else { panic!("a request is due") };
    hosts.ends[1].engine.cm_reject(id, RejReason::CONSUMER_DEFINED, b"no").expect("undecided");
    let CmEvent::Rejected { id, reason, private_data } = hosts.event(0) else { panic!("a refusal is due") };
    assert_eq!((id, reason, &private_data[..2]), (ours, RejReason::CONSUMER_DEFINED, &b"no"[..]));

    assert!(hosts.ends[1].engine.cm_unlisten(service()));
    while hosts.event(0) != (CmEvent::TimewaitExit { id: ours }) {}
    hosts.connect("10.0.0.2");
    let CmEvent::Rejected { reason, .. } = hosts.event(0) else { panic!("a refusal is due") };
    assert_eq!(reason, RejReason::INVALID_SERVICE_ID);
}

/// A REP has no word for another MTU (IBTA 12.6.8).
#[test]
fn a_request_for_longer_packets_than_the_port_carries_is_refused_and_a_shorter_one_is_granted() {
    let clock = Clock::default();
    let (near, far) = SimLink::pair(&clock);
    let links = (near, far.with_max_frame(1514));
    let mut hosts = Hosts::over(links, clock, None, ["10.0.0.1", "10.0.0.2"], [Pkey::DEFAULT; 2]);
    for mtu in [Mtu::Mtu4096, Mtu::Mtu2048] {
        hosts.params[0].mtu = mtu;
        let ours = hosts.connect("10.0.0.2");
        let CmEvent::Rejected { id, reason, .. } = hosts.event(0) else { panic!("a refusal is due") };
        assert_eq!((id, reason), (ours, RejReason::INVALID_MTU));
        while hosts.event(0) != (CmEvent::TimewaitExit { id: ours }) {}
    }
    hosts.params[0].mtu = Mtu::Mtu1024;
    hosts.connect("10.0.0.2");
    let (_, far) = hosts.accept();
    let CmEvent::Replied { qp, .. } = hosts.event(0) else { panic!("a reply is due") };
    let mtus = [hosts.ends[0].engine.path_mtu(qp), hosts.ends[1].engine.path_mtu(far)];
    assert_eq!(mtus, [Some(Mtu::Mtu1024); 2]);
}

#[test]
fn a_window_that_nothing_fits_through_is_refused_before_anybody_is_asked() {
    for window in [0, 1 << 23, u32::MAX] {
        let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
        // The peer's station is known from now on.
        hosts.connect("10.0.0.2");
        let Host { engine, pd, cq } = &mut hosts.ends[0];
        let params = QpParams { window, ..QpParams::default() };
        let qp = engine.create_qp(0, *pd, *cq).expect("room");
        let address = engine.address_of(&qp, &params);
        assert_eq!(engine.connect(qp, &address, &params), Err(ConnectError::Window(window)));
        let qp = engine.create_qp(0, *pd, *cq).expect("room");
        let peer = SocketAddr::new([10, 0, 0, 2].into(), PORT);
        let Err((error, _)) = engine.cm_connect(qp, peer, &params, &[]) else { panic!("it is asked") };
        assert_eq!(error, CmCallError::Connect(ConnectError::Window(window)));
    }
}

#[test]
fn calls_at_the_wrong_time_are_refused_by_name() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let ours = hosts.connect("10.0.0.2");
    assert!(matches!(hosts.ends[0].engine.cm_confirm(ours), Err(CmCallError::Cm(_))));
    assert_eq!(hosts.ends[0].engine.cm_accept(ours, &[]), Err(CmCallError::NotPrepared));
    let CmEvent::Request { id, .. } = hosts.event(1) else { panic!("a request is due") };
    assert_eq!(hosts.ends[1].engine.cm_accept(id, &[]), Err(CmCallError::NotPrepared));
    let far = &mut hosts.ends[1];
    let qp = far.engine.create_qp(0, far.pd, far.cq).expect("room");
    far.engine.cm_prepare(id, qp, &QpParams::default()).expect("a good queue pair");
    let qp = far.engine.create_qp(0, far.pd, far.cq).expect("room");
    assert_eq!(far.engine.cm_prepare(id, qp, &QpParams::default()), Err(CmCallError::NotPrepared));
}

#[test]
fn a_datagram_service_is_found_by_its_port() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let datagrams = ServiceId::of_port(PortSpace::Udp, PORT);
    let far = &mut hosts.ends[1];
    let qp = far.engine.create_datagram_qp((0, 0), far.cq, 77, 4).expect("room");
    far.engine.cm_offer_service(datagrams, qp.qpn(), 77).expect("room");
    let peer = SocketAddr::new("10.0.0.2".parse().expect("an address"), PORT);
    let ours = loop {
        match hosts.ends[0].engine.cm_find_service((0, 0), peer, &[]) {
            Ok(id) => break id,
            Err(CmCallError::Resolving) => hosts.step(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(hosts.event(0), CmEvent::ServiceResolved { id: ours, qpn: qp.qpn(), qkey: 77 });
}

#[test]
fn destroying_a_connected_queue_pair_ends_its_connection() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let ours = hosts.connect("10.0.0.2");
    let (theirs, _) = hosts.accept();
    let CmEvent::Replied { qp, .. } = hosts.event(0) else { panic!("a reply is due") };
    hosts.ends[0].engine.cm_confirm(ours).expect("granted");
    assert!(matches!(hosts.event(0), CmEvent::Established { .. }));
    assert!(matches!(hosts.event(1), CmEvent::Established { .. }));
    hosts.ends[0].engine.destroy_qp(qp);
    assert!(matches!(hosts.event(1), CmEvent::Disconnected { id, .. } if id == theirs));
    assert!(matches!(hosts.event(0), CmEvent::Disconnected { id, .. } if id == ours));
}

#[test]
fn an_engine_that_goes_ends_its_connections_and_refuses_who_asks() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let open = hosts.connect("10.0.0.2");
    hosts.accept();
    assert!(matches!(hosts.event(0), CmEvent::Replied { .. }));
    hosts.ends[0].engine.cm_confirm(open).expect("granted");
    assert!(matches!(hosts.event(0), CmEvent::Established { .. }));
    assert!(matches!(hosts.event(1), CmEvent::Established { .. }));
    let undecided = hosts.connect("10.0.0.2");
    assert!(matches!(hosts.event(1), CmEvent::Request { .. }));
    let gone = std::mem::replace(&mut hosts.ends[1].engine, Engine::new(1 << 20).expect("memory"));
    drop(gone);
    let mut ended = [hosts.event(0), hosts.event(0)];
    ended.sort_by_key(|event| matches!(event, CmEvent::Rejected { .. }));
    assert!(matches!(ended[0], CmEvent::Disconnected { id, .. } if id == open), "{ended:?}");
    assert!(matches!(ended[1], CmEvent::Rejected { id, .. } if id == undecided), "{ended:?}");
}

#[test]
fn ending_all_connections_is_over_when_every_peer_knows() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let ours = hosts.connect("10.0.0.2");
    hosts.accept();
    assert!(matches!(hosts.event(0), CmEvent::Replied { .. }));
    hosts.ends[0].engine.cm_confirm(ours).expect("granted");
    assert!(matches!(hosts.event(0), CmEvent::Established { .. }));
    assert_eq!(hosts.ends[0].engine.cm_disconnecting(), 0);
    hosts.ends[0].engine.cm_disconnect_all();
    assert_eq!(hosts.ends[0].engine.cm_disconnecting(), 1);
    assert!(matches!(hosts.event(0), CmEvent::Disconnected { .. }));
    assert_eq!(hosts.ends[0].engine.cm_disconnecting(), 0);
}

#[test]
fn an_attempt_can_be_given_up_before_and_after_the_reply() {
    for after_reply in [false, true] {
        let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
        let ours = hosts.connect("10.0.0.2");
        if after_reply {
            hosts.accept();
            assert!(matches!(hosts.event(0), CmEvent::Replied { .. }));
        }
        hosts.ends[0].engine.cm_disconnect(ours, &[]).expect("it can be given up");
        assert_eq!(hosts.event(0), CmEvent::TimewaitExit { id: ours });
    }
}

/// Two users share each engine: the events of one user's connections, from the request to the end, go to that user's channel alone.
#[test]
fn each_channel_has_the_events_of_its_own_connections() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let other = ServiceId::of_port(PortSpace::Tcp, PORT + 1);
    let [near, far] = [0, 1].map(|who| hosts.ends[who].engine.cm_create_channel());
    hosts.ends[1].engine.cm_listen_on(far, other).expect("room");
    assert!(hosts.ends[1].engine.cm_listen(other).is_err(), "a service has one listener");

    let to_other = SocketAddr::new("10.0.0.2".parse().expect("an address"), PORT + 1);
    let asked = hosts.connect_on(near, to_other);
    let CmEvent::Request { id, place, .. } = hosts.event_on(1, far) else { panic!("a request is due") };
    let Host { engine, pd, cq } = &mut hosts.ends[1];
    let qp = engine.create_qp(place.0, *pd, *cq).expect("room");
    engine.cm_prepare(id, qp, &hosts.params[1]).expect("a good queue pair");
    engine.cm_accept(id, b"").expect("prepared");
    let CmEvent::Replied { id: granted, qp, .. } = hosts.event_on(0, near) else { panic!("an answer is due") };
    assert_eq!(granted, asked);
    hosts.ends[0].engine.cm_confirm(granted).expect("granted");
    assert!(matches!(hosts.event_on(0, near), CmEvent::Established { id: its, .. } if its == asked));
    assert!(matches!(hosts.event_on(1, far), CmEvent::Established { id: its, .. } if its == id));
    // The other two have a connection of their own meanwhile.
    hosts.connect("10.0.0.2");
    let (plain, _) = hosts.accept();
    assert!(matches!(hosts.event(0), CmEvent::Replied { .. }));
    assert_eq!([0, 1].map(|who| hosts.ends[who].engine.poll_cm()), [None, None]);

    hosts.ends[1].engine.cm_destroy_channel(far);
    assert!(matches!(hosts.event_on(0, near), CmEvent::Disconnected { id, .. } if id == asked));
    assert_eq!(hosts.ends[0].engine.qp_state(qp), Some(State::Error));
    hosts.steps(10);
    assert_eq!([CmChannel::default(), far].map(|channel| hosts.ends[1].engine.poll_cm_on(channel)), [None, None]);
    hosts.ends[1].engine.cm_disconnect(plain, b"").expect("it goes on until now");
    hosts.connect_on(near, to_other);
    assert!(matches!(hosts.event_on(0, near), CmEvent::Rejected { reason: RejReason::INVALID_SERVICE_ID, .. }));
    hosts.ends[1].engine.cm_listen(other).expect("the service is free again");
}

/// An answer has come, and its channel is destroyed before the event is polled, which alone names the queue pair.
#[test]
fn an_answer_for_a_channel_that_is_gone_leaves_no_queue_pair() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let near = hosts.ends[0].engine.cm_create_channel();
    hosts.connect_on(near, SocketAddr::new("10.0.0.2".parse().expect("an address"), PORT));
    hosts.accept();
    hosts.steps(20);
    assert!(hosts.ends[0].engine.is_port_in_use(0));
    hosts.ends[0].engine.cm_destroy_channel(near);
    hosts.steps(20);
    assert!(!hosts.ends[0].engine.is_port_in_use(0));
}

/// A request has come, and its channel is destroyed before the event is polled: the request is refused.
#[test]
fn a_request_for_a_channel_that_is_gone_is_refused() {
    let mut hosts = Hosts::new(None, ["10.0.0.1", "10.0.0.2"]);
    let other = ServiceId::of_port(PortSpace::Tcp, PORT + 1);
    let far = hosts.ends[1].engine.cm_create_channel();
    hosts.ends[1].engine.cm_listen_on(far, other).expect("room");
    let to_other = SocketAddr::new("10.0.0.2".parse().expect("an address"), PORT + 1);
    hosts.connect_on(CmChannel::default(), to_other);
    hosts.steps(10);
    hosts.ends[1].engine.cm_destroy_channel(far);
    assert!(matches!(hosts.event(0), CmEvent::Rejected { .. }));
    assert_eq!(hosts.ends[1].engine.poll_cm_on(far), None);
}
