//! Who is behind a local port of one endpoint speaks over it to that endpoint alone: to another endpoint of the domain it may not
//! speak there in the name of that one's peers.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use roci_driver::link::Link as _;
use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::neighbour::Interface;
use roci_driver::{Engine, PortConfig, QpParams};
use roci_msgcore::ports::{LocalMeans, LocalPortError, LocalPorts, MeetingPoint, PendingPort};
use roci_msgcore::{Config, Domain, EndpointAddress, Ports, Source, Tag, TagMatch, Worker, WorkerEvent};
use roci_protocol::wire::MacAddr;

use super::common::config;

type Link = Faulty<SimLink>;

/// The wire of one local port: a switch, on which the two ends of the port are the first two stations.
struct LocalWire {
    links: Vec<SimLink>,
    stations: Vec<MacAddr>,
    directory: tempfile::TempDir,
    sockets: Vec<UnixListener>,
    clock: Clock,
}

/// Opens the port's ends.
struct WirePorts(Rc<RefCell<LocalWire>>);

struct WireEnd(SimLink, PortConfig);

// SAFETY: the test has one thread.
unsafe impl Send for WirePorts {}
// SAFETY: the same.
unsafe impl Send for WireEnd {}

fn host(is_server: bool) -> IpAddr {
    [169, 254, 77, if is_server { 1 } else { 2 }].into()
}

impl WirePorts {
    fn end(&self, is_server: bool) -> WireEnd {
        let mut wire = self.0.borrow_mut();
        let link = wire.links.remove(0);
        let other = wire.stations[usize::from(link.mac() == wire.stations[0])];
        let interfaces = vec![Interface { ip: host(is_server), prefix: 30, vlan: None }];
        let neighbours = vec![(host(!is_server), other)];
        WireEnd(link, PortConfig { interfaces, neighbours, is_point_to_point: true, ..PortConfig::default() })
    }
}

impl LocalPorts<Link> for WirePorts {
    fn serve(&mut self) -> Result<(Box<dyn PendingPort<Link>>, MeetingPoint), LocalPortError> {
        let end = self.end(true);
        let mut wire = self.0.borrow_mut();
        let path = wire.directory.path().join("socket");
        wire.sockets.push(UnixListener::bind(&path).expect("a socket"));
        let file = path.symlink_metadata().expect("it is there");
        Ok((Box::new(end), MeetingPoint { path, file: (file.dev(), file.ino()) }))
    }

    fn join(&mut self, _: &MeetingPoint) -> Result<Box<dyn PendingPort<Link>>, LocalPortError> {
        Ok(Box::new(self.end(false)))
    }

    fn closed(&self) -> Link {
        let clock = self.0.borrow_mut().clock.clone();
        Link::new(SimLink::pair(&clock).0, None, 0)
    }
}

impl PendingPort<Link> for WireEnd {
    fn is_up(&mut self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<(Link, PortConfig), LocalPortError> {
        Ok((Link::new(self.0, None, 1), self.1))
    }
}

/// A domain, of which a neighbour shares a local port with the first endpoint, and a partner is connected with the second.
struct Street {
    clock: Clock,
    domain: Domain<Link>,
    neighbour: Worker<Link>,
    partner: Worker<Link>,
    /// The first station of the local wire, and the link of a third, which no end has.
    server: MacAddr,
    intruder: Option<SimLink>,
}

impl Street {
    fn new() -> Self {
        let clock = Clock::default();
        let config = config(&[("connect_method", "rdma_cm"), ("peers", "8"), ("ack_timeout_us", "200")]);
        let mut local = SimLink::switch(&clock, 3);
        let stations: Vec<_> = local.iter().map(SimLink::mac).collect();
        let (server, intruder) = (stations[0], local.pop());
        let directory = tempfile::tempdir().expect("a directory");
        let wire = LocalWire { links: local, stations, directory, sockets: Vec::new(), clock: clock.clone() };
        let wire = Rc::new(RefCell::new(wire));
        let mut links = SimLink::switch(&clock, 3).into_iter();
        let mut ports = |number: u8| ports(&config, links.next().expect("three"), number);
        let with_wire = |ports: Ports<Link>| {
            let means = LocalMeans::new(&ports.addresses[0]).expect("a socket of its own");
            Ports { local: Some(means.with_ports(Box::new(WirePorts(wire.clone())), 4)), ..ports }
        };
        let assemble = |ports| Worker::assemble(ports, &config).unwrap_or_else(|error| panic!("{error}"));
        // The lower address is the server's.
        let first = assemble(with_wire(ports(1)));
        let mut domain = Domain::of(first, &config).unwrap_or_else(|error| panic!("{error}"));
        let (neighbour, partner) = (assemble(with_wire(ports(2))), assemble(ports(3)));
        domain.open_endpoint().unwrap_or_else(|error| panic!("{error}"));
        Self { clock, domain, neighbour, partner, server, intruder }
    }

    fn run(&mut self, steps: usize, mut also: impl FnMut()) {
        for _ in 0..steps {
            self.clock.advance(1_000);
            self.domain.progress();
            self.neighbour.progress();
            self.partner.progress();
            also();
        }
    }
}

fn ports(config: &Config, link: SimLink, number: u8) -> Ports<Link> {
    let mut engine: Engine<Link> = roci_testkit::engine(config.arena_size, number.into());
    engine.add_port(Link::new(link, None, number.into()), [10, 0, 0, number].into(), false);
    // Its socket has a name that no other test's has.
    let incarnation = u64::from(std::process::id()) << 16 | u64::from(number) << 8;
    Ports::alone(engine, config, incarnation)
}

/// The private data of a request, as `lane_request.rs` has it: an end at a service, of an incarnation, in a new session.
fn request(from: EndpointAddress, to: EndpointAddress) -> [u8; 44] {
    let mut data = [0; 44];
    data[..8].copy_from_slice(&[b'R', b'O', b'C', b'I', 2, 0, 1, 0]);
    data[8..10].copy_from_slice(&from.service.to_be_bytes());
    data[12..20].copy_from_slice(&from.incarnation.to_be_bytes());
    data[20..28].copy_from_slice(&to.incarnation.to_be_bytes());
    data[28..36].copy_from_slice(&u64::from(u32::MAX).to_be_bytes());
    data
}

#[test]
fn who_shares_a_local_port_with_one_endpoint_is_no_peer_of_another() {
    let mut street = Street::new();
    let ids = street.domain.endpoints();
    let [first, second] = [0, 1].map(|at| street.domain.endpoint(ids[at]).expect("it is open").address());
    let receives = [0, 1].map(|at| {
        let endpoint = street.domain.endpoint(ids[at]).expect("it is open");
        endpoint.recv(Source::Any, TagMatch::Any, endpoint.buffer(8).expect("memory")).expect("accepted")
    });
    let to_first = street.neighbour.insert(first).expect("there is room");
    let to_second = street.partner.insert(second).expect("there is room");
    for (worker, peer) in [(&mut street.neighbour, to_first), (&mut street.partner, to_second)] {
        let send = worker.send_bytes(peer, Tag::new(1), b"hello").expect("accepted");
        worker.detach(send);
    }
    street.run(20_000, || {});
    for (&id, receive) in ids.iter().zip(receives) {
        let endpoint = street.domain.endpoint(id).expect("it is open");
        endpoint.test(receive).expect("it has come").expect("it arrives");
        assert!(matches!(endpoint.poll_event(), Some(WorkerEvent::Connected { .. })));
        assert_eq!(endpoint.stats().local_ports_opened, u64::from(id == ids[0]));
    }

    // A third station on the wire of the port says what the neighbour might say there.
    let partner = street.partner.address();
    let mut intruder: Engine<Link> = roci_testkit::engine(1 << 20, 77);
    let interfaces = vec![Interface { ip: partner.ip, prefix: 0, vlan: None }];
    let neighbours = vec![(host(true), street.server)];
    let link = Link::new(street.intruder.take().expect("one"), None, 9);
    let port = PortConfig { interfaces, neighbours, ..PortConfig::default() };
    intruder.add_port_with(link, port).expect("a host");
    let (pd, cq) = (intruder.alloc_pd(), intruder.create_cq(64));
    let qp = intruder.create_qp(0, pd, cq).expect("room");
    let to = SocketAddr::new(host(true), second.service);
    let asked = intruder.cm_connect(qp, to, &QpParams::default(), &request(partner, second));
    asked.map_err(|(why, _)| why).expect("the way is known");
    street.run(5_000, || {
        intruder.poll();
    });
    assert!(intruder.poll_cm().is_some(), "it has its answer");
    assert_eq!(street.domain.endpoint(ids[1]).expect("it is open").poll_event(), None, "it has lost its peer");
}
