//! Domains on real devices: several endpoints on one socket, which reach another process's as they reach each other, over the socket or
//! a local port. DPDK has one table of ports in a process, so the tests take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_msgcore::config::Origin;
use roci_msgcore::{Config, Domain, DomainError, EndpointId, PeerId, Request, Source, Tag, TagMatch, Worker};
use static_assertions::assert_impl_all;

// Several threads may share a domain behind a lock.
assert_impl_all!(Domain: Send);

static TURN: Mutex<()> = Mutex::new(());
const PATIENCE: Duration = Duration::from_secs(30);
const LENS: [usize; 4] = [0, 8, 9_000, 300_000];

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(address: &str, local: &str) -> Config {
    let mut config = Config::default();
    let device = format!("udp:{address}");
    let settings = [("device", device.as_str()), ("arena_size", "128MiB"), ("peers", "8"), ("local", local)];
    for (name, value) in settings {
        config.set(name, value, Origin::Environment).expect("a good value");
    }
    config
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(seed as u8 | 1) ^ (at >> 8) as u8).collect()
}

/// A domain, and a worker of its own engine.
struct Pair {
    domain: Domain,
    worker: Worker,
}

/// Who has an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Of(EndpointId),
    Worker,
}

impl Pair {
    fn end(&mut self, end: End) -> &mut Worker {
        match end {
            End::Of(id) => self.domain.endpoint(id).expect("it is open"),
            End::Worker => &mut self.worker,
        }
    }

    /// One end inserts another.
    fn insert(&mut self, from: End, to: End) -> PeerId {
        let address = self.end(to).address();
        self.end(from).insert(address).expect("there is room")
    }

    fn send(&mut self, from: End, to: PeerId, bytes: &[u8]) -> Request {
        let mut payload = self.end(from).buffer(bytes.len()).expect("memory");
        payload.copy_from_slice(bytes);
        self.end(from).send(to, Tag::new(7), payload).expect("accepted")
    }

    /// Waits until an end has received these bytes.
    fn expect(&mut self, end: End, receive: Request, bytes: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.end(end).test(receive) {
                let done = done.unwrap_or_else(|error| panic!("{end:?}: {error}"));
                assert!(done.buffer[..done.len] == *bytes, "{end:?} has another message");
                return;
            }
            assert!(Instant::now() < deadline, "nothing has come to {end:?}");
            self.domain.progress();
            self.worker.progress();
        }
    }

    /// All send to all others, themselves not, and all receive what was for them.
    fn exchange(&mut self, ends: &[End]) {
        for (round, len) in LENS.into_iter().enumerate() {
            for &from in ends {
                for &to in ends.iter().filter(|&&to| to != from) {
                    let peer = self.insert(from, to);
                    let back = self.insert(to, from);
                    let bytes = pattern(len, round + 1);
                    let room = self.end(to).buffer(len).expect("memory");
                    let receive = self.end(to).recv(Source::Peer(back), TagMatch::Any, room).expect("accepted");
                    let send = self.send(from, peer, &bytes);
                    self.expect(to, receive, &bytes);
                    self.end(from).detach(send);
                }
            }
        }
    }
}

/// Lets a worker answer until a thread has ended.
fn serve<T>(worker: &mut Worker, thread: &JoinHandle<T>) {
    let deadline = Instant::now() + PATIENCE;
    while !thread.is_finished() {
        assert!(Instant::now() < deadline, "it does not end");
        worker.progress();
    }
}

#[test]
fn endpoints_reach_each_other_and_others_over_the_socket_and_local_ports() {
    let _turn = turn();
    for (host, local) in [("127.81.0", "off"), ("127.82.0", "memif")] {
        let mut domain =
            Domain::open_alone(&config(&format!("{host}.1"), local)).expect("the loopback interface is up");
        let first = domain.at_hand();
        let second = domain.open_endpoint().expect("there is room");
        let worker = Worker::open_alone(&config(&format!("{host}.2"), local)).expect("the loopback interface is up");
        let mut pair = Pair { domain, worker };
        let ends = [End::Of(first), End::Of(second), End::Worker];
        pair.exchange(&ends);
        let ports = ends.map(|end| pair.end(end).stats().local_ports_opened);
        assert_eq!(ports, if local == "off" { [0; 3] } else { [2; 3] }, "{local}");
        let before = pair.worker.link().expect("a socket").stats().tx_frames;
        pair.exchange(&ends);
        let has_sent = pair.worker.link().expect("a socket").stats().tx_frames > before;
        assert_eq!(has_sent, local == "off", "{local}");
        let Pair { domain, mut worker } = pair;
        let closing = std::thread::spawn(move || domain.close().map(|_| ()).map_err(|error| error.to_string()));
        serve(&mut worker, &closing);
        assert_eq!(closing.join().expect("it ends"), Ok(()), "{local}");
        worker.close().unwrap_or_else(|error| panic!("{local}: {error}"));
    }
}

/// What an endpoint had of DPDK and of the engine is the next one's. DPDK has 32 ports.
#[test]
fn endpoints_come_and_go_with_their_local_ports() {
    let _turn = turn();
    let domain = Domain::open_alone(&config("127.86.0.1", "memif")).expect("the loopback interface is up");
    let worker = Worker::open_alone(&config("127.86.0.2", "memif")).expect("the loopback interface is up");
    let first = End::Of(domain.at_hand());
    let mut pair = Pair { domain, worker };
    for round in 0..12 {
        let id = pair.domain.open_endpoint().unwrap_or_else(|error| panic!("{round}: {error}"));
        let ends = [first, End::Of(id), End::Worker];
        pair.exchange(&ends);
        assert_eq!(pair.end(End::Of(id)).stats().local_ports_opened, 2, "{round}");
        let peers = [first, End::Worker].map(|end| (end, pair.insert(end, End::Of(id)), pair.insert(End::Of(id), end)));
        let deadline = Instant::now() + PATIENCE;
        while !peers.iter().all(|&(_, _, there)| pair.end(End::Of(id)).is_flushed(there)) {
            assert!(Instant::now() < deadline, "{round}: it is not acknowledged");
            pair.domain.progress();
            pair.worker.progress();
        }
        pair.domain.close_endpoint(id).unwrap_or_else(|error| panic!("{round}: {error}"));
        for (end, here, _) in peers {
            pair.end(end).remove(here).expect("it is known");
        }
    }
}

/// An endpoint waits in a blocking call for what another endpoint of its own domain has sent: the wait serves both.
#[test]
fn a_wait_at_one_endpoint_serves_the_others() {
    let _turn = turn();
    let mut domain = Domain::open_alone(&config("127.83.0.1", "off")).expect("the loopback interface is up");
    let first = domain.at_hand();
    let second = domain.open_endpoint().expect("there is room");
    let address = domain.endpoint(second).expect("it is open").address();
    for len in LENS {
        let bytes = pattern(len, 3);
        let worker = domain.endpoint(first).expect("it is open");
        let peer = worker.insert(address).expect("there is room");
        let mut payload = worker.buffer(len).expect("memory");
        payload.copy_from_slice(&bytes);
        let send = worker.send(peer, Tag::new(7), payload).expect("accepted");
        let worker = domain.endpoint(second).expect("it is open");
        let receive = worker.recv(Source::Any, TagMatch::Any, worker.buffer(len).expect("memory")).expect("accepted");
        let done = worker.wait(receive).expect("it arrives");
        assert!(done.buffer[..] == bytes[..]);
        domain.endpoint(first).expect("it is open").wait(send).expect("it has arrived");
    }
}

/// Dropping a domain lingers for all of its endpoints, whichever was used last.
#[test]
fn a_domain_that_is_dropped_lingers_for_all_endpoints() {
    let _turn = turn();
    let mut worker = Worker::open_alone(&config("127.84.0.2", "off")).expect("the loopback interface is up");
    let mut domain = Domain::open_alone(&config("127.84.0.1", "off")).expect("the loopback interface is up");
    for _ in 0..2 {
        domain.open_endpoint().expect("there is room");
    }
    let address = worker.address();
    let receives: Vec<_> = domain
        .endpoints()
        .into_iter()
        .zip(0..)
        .flat_map(|(id, mark)| {
            let endpoint = domain.endpoint(id).expect("it is open");
            let peer = endpoint.insert(address).expect("there is room");
            (0..20).for_each(|_| {
                let send = endpoint.send_bytes(peer, Tag::new(mark), &[mark as u8; 100]).expect("accepted");
                endpoint.detach(send);
            });
            [mark; 20]
        })
        .map(|mark| {
            let room = worker.buffer(100).expect("memory");
            (mark, worker.recv(Source::Any, Tag::new(mark), room).expect("accepted"))
        })
        .collect();
    let dropping = std::thread::spawn(move || drop(domain));
    for (mark, receive) in receives {
        let done = worker.wait(receive).unwrap_or_else(|error| panic!("a message of endpoint {mark}: {error}"));
        assert_eq!(done.buffer[..done.len], [mark as u8; 100]);
    }
    serve(&mut worker, &dropping);
    dropping.join().expect("it ends");
}

#[test]
fn there_are_no_more_endpoints_than_may_be_and_each_has_a_place_of_its_own() {
    let _turn = turn();
    let mut config = config("127.85.0.1", "off");
    for (name, value) in [("arena_size", "1GiB"), ("peers", "1"), ("receive_queues", "S,1KiB,64"), ("vbuf_pool", "1")] {
        config.set(name, value, Origin::Environment).expect("a good value");
    }
    let mut domain = Domain::open_alone(&config).expect("the loopback interface is up");
    let more = std::iter::from_fn(|| match domain.open_endpoint() {
        Ok(_) => Some(()),
        Err(DomainError::TooMany) => None,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(more.count(), 63);
    let mut places: Vec<_> = domain
        .endpoints()
        .into_iter()
        .map(|id| {
            let address = domain.endpoint(id).expect("it is open").address();
            (address.ip, address.udp_port, address.service)
        })
        .collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 64);
    domain.close().unwrap_or_else(|error| panic!("{error}"));
}
