//! Domains on real devices: several endpoints on one socket, which reach another process's as they reach each other, over the socket or
//! a local port. DPDK has one table of ports in a process, so the tests take turns.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_msgcore::config::Origin;
use roci_msgcore::dedicated::Arming;
use roci_msgcore::{
    Config, DedicatedWorker, Domain, DomainError, EndpointAddress, EndpointId, PeerId, Request, Source, Tag, TagMatch,
    Worker, WorkerEvent,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Of who is dropped before it is connected: it takes as long as the kernel does not run its peer.
fn lingering(address: &str) -> Config {
    let mut config = config(address, "off");
    config.set("linger_ms", "60000", Origin::Environment).expect("a good value");
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
        let closing = thread::spawn(move || domain.close().map(|_| ()).map_err(|error| error.to_string()));
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
    let mut domain = Domain::open_alone(&lingering("127.84.0.1")).expect("the loopback interface is up");
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
    let dropping = thread::spawn(move || drop(domain));
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

fn dedicated(address: &str, local: &str) -> DedicatedWorker {
    DedicatedWorker::open_alone(&config(address, local)).expect("the loopback interface is up")
}

/// Sends to all of these, themselves not, and receives from all what they have sent.
fn exchange_with_all(worker: &mut DedicatedWorker, all: &[EndpointAddress]) {
    let own = worker.address();
    for (round, len) in LENS.into_iter().enumerate() {
        let others = || all.iter().filter(|address| **address != own);
        let mark = |from: EndpointAddress, to: EndpointAddress| {
            let of = |address: EndpointAddress| usize::from(address.service) * 3 + usize::from(address.udp_port);
            pattern(len, of(from) * 7 + of(to) * 11 + round)
        };
        let mut receives = Vec::new();
        for &from in others() {
            let peer = worker.insert(from).expect("there is room");
            let room = worker.buffer(len).expect("memory");
            receives.push((from, worker.recv(peer, Tag::new(round as u64), room).expect("accepted")));
        }
        let sends: Vec<_> = others()
            .map(|&to| {
                let peer = worker.insert(to).expect("there is room");
                let mut payload = worker.buffer(len).expect("memory");
                payload.copy_from_slice(&mark(own, to));
                worker.send(peer, Tag::new(round as u64), payload).expect("accepted")
            })
            .collect();
        for (from, receive) in receives {
            let done = worker.wait(receive).unwrap_or_else(|error| panic!("{own} from {from}: {error}"));
            assert!(done.buffer[..] == mark(from, own)[..], "{own} has another message than that from {from}");
        }
        for send in sends {
            worker.wait(send).unwrap_or_else(|error| panic!("{own}: {error}"));
        }
    }
}

/// Threads of an application have a handle each, and one thread serves them all.
#[test]
fn handles_of_one_engine_are_used_by_threads_of_their_own() {
    let _turn = turn();
    for (host, local) in [("127.91.0", "off"), ("127.92.0", "memif")] {
        let mut first = dedicated(&format!("{host}.1"), local);
        let more: Vec<_> = (0..3).map(|_| first.open_endpoint().expect("there is room")).collect();
        let other = dedicated(&format!("{host}.2"), local);
        let handles: Vec<_> = more.into_iter().chain([first, other]).collect();
        let addresses: Vec<_> = handles.iter().map(DedicatedWorker::address).collect();
        let meeting = Barrier::new(handles.len());
        thread::scope(|scope| {
            for mut handle in handles {
                let (addresses, meeting) = (&addresses, &meeting);
                scope.spawn(move || {
                    exchange_with_all(&mut handle, addresses);
                    meeting.wait();
                    assert_eq!(handle.close().unwrap_or_else(|error| panic!("{error}")).sends, 0, "{local}");
                });
            }
        });
    }
}

/// A handle that closes, flushes or is dropped while its peer does not answer holds up no other handle of its thread.
#[test]
fn a_handle_that_waits_for_a_silent_peer_holds_up_no_other() {
    let _turn = turn();
    let mut silent = Worker::open_alone(&config("127.93.0.2", "off")).expect("the loopback interface is up");
    let mut config = config("127.93.0.1", "off");
    config.set("connect_timeout_s", "3600", Origin::Environment).expect("a good value");
    let mut first = DedicatedWorker::open_alone(&config).expect("the loopback interface is up");
    let mut partner = dedicated("127.93.0.3", "off");
    let meet = |handle: &mut DedicatedWorker, silent: &mut Worker| {
        let peer = handle.insert(silent.address()).expect("there is room");
        handle.connect(peer).expect("it is known");
        let deadline = Instant::now() + PATIENCE;
        while !handle.is_connected(peer).expect("it lives") {
            assert!(Instant::now() < deadline, "it is not connected");
            silent.progress();
        }
        peer
    };
    let mut flushes = first.open_endpoint().expect("there is room");
    let mut closes = first.open_endpoint().expect("there is room");
    let peer = meet(&mut flushes, &mut silent);
    let other = meet(&mut closes, &mut silent);
    let mut more = first.open_endpoint().expect("there is room");
    let another = meet(&mut more, &mut silent);
    // None of them is acknowledged.
    for (handle, peer) in [(&mut flushes, peer), (&mut closes, other), (&mut more, another)] {
        for _ in 0..20 {
            let send = handle.send_bytes(peer, Tag::new(1), &[1; 100]).expect("accepted");
            handle.detach(send);
        }
    }
    let flushing = thread::spawn(move || drop(flushes.flush(Some(peer), Duration::from_hours(1))));
    let closing = thread::spawn(move || drop(closes.close()));
    let addresses = [first.address(), partner.address()];
    let exchanging = thread::spawn(move || {
        for _ in 0..20 {
            exchange_with_all(&mut partner, &addresses);
        }
    });
    for _ in 0..20 {
        exchange_with_all(&mut first, &addresses);
    }
    exchanging.join().expect("it ends well");
    assert!(!flushing.is_finished() && !closing.is_finished(), "its peer has not answered");
    let dropping = thread::spawn(move || drop(more));
    // Once it answers all of them go.
    serve(&mut silent, &dropping);
    serve(&mut silent, &closing);
    serve(&mut silent, &flushing);
    for ending in [dropping, closing, flushing] {
        ending.join().expect("it ends well");
    }
}

/// Sends a message to a handle, and waits for the handle's event that they are connected, which may come after the message.
fn meet(partner: &mut DedicatedWorker, handle: &mut DedicatedWorker) -> PeerId {
    let peer = partner.insert(handle.address()).expect("there is room");
    let send = partner.send_bytes(peer, Tag::new(0), &[]).expect("accepted");
    let receive = handle.recv(Source::Any, Tag::new(0), handle.buffer(0).expect("memory")).expect("accepted");
    handle.wait(receive).expect("it arrives");
    partner.wait(send).expect("it has arrived");
    let deadline = Instant::now() + PATIENCE;
    while !matches!(handle.poll_event(), Some(WorkerEvent::Connected { .. })) {
        assert!(Instant::now() < deadline, "no word that they are connected");
    }
    peer
}

/// Each handle has a descriptor of its own, which what comes for its endpoint makes readable, and nothing else.
#[test]
fn a_descriptor_is_one_endpoints() {
    let _turn = turn();
    let mut handles = vec![dedicated("127.94.0.1", "off")];
    let second = handles[0].open_endpoint().expect("there is room");
    handles.push(second);
    let mut partner = dedicated("127.94.0.2", "off");
    let peers = [0, 1].map(|at| meet(&mut partner, &mut handles[at]));
    for round in 0..20 {
        let [for_whom, other] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let peer = peers[for_whom];
        let receives = [0, 1].map(|at| {
            let room = handles[at].buffer(100).expect("memory");
            handles[at].recv(Source::Any, TagMatch::Any, room).expect("accepted")
        });
        for handle in &mut handles {
            while handle.arm().expect("it lives") == Arming::Pending {
                while handle.poll_event().is_some() {}
            }
        }
        let send = partner.send_bytes(peer, Tag::new(1), &[round; 100]).expect("accepted");
        let is_readable = |handle: &DedicatedWorker, seconds| {
            let at_most = Timespec { tv_sec: seconds, tv_nsec: 0 };
            poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&at_most)).expect("a descriptor") == 1
        };
        assert!(is_readable(&handles[for_whom], 20), "{round}");
        assert!(!is_readable(&handles[other], 0), "{round}");
        handles.iter_mut().for_each(DedicatedWorker::acknowledge);
        let done = handles[for_whom].wait(receives[for_whom]).expect("it arrives");
        assert_eq!(done.buffer[..], [round; 100]);
        partner.wait(send).expect("it has arrived");
        handles[other].cancel(receives[other]);
        handles[other].wait(receives[other]).expect("it is taken back");
    }
}

/// Sends under a tag and drops the handle at once; the partner receives all of it.
fn send_and_drop(mut handle: DedicatedWorker, partner: &mut DedicatedWorker, tag: u64) {
    let peer = handle.insert(partner.address()).expect("there is room");
    let receives: Vec<_> = (0..20)
        .map(|_| {
            let room = partner.buffer(100).expect("memory");
            partner.recv(Source::Any, Tag::new(tag), room).expect("accepted")
        })
        .collect();
    for _ in 0..20 {
        let send = handle.send_bytes(peer, Tag::new(tag), &[tag as u8; 100]).expect("accepted");
        handle.detach(send);
    }
    drop(handle);
    for receive in receives {
        assert_eq!(partner.wait(receive).expect("it arrives").buffer[..], [tag as u8; 100]);
    }
}

/// A handle that is dropped lingers, and the thread goes on for the others until the last one goes.
#[test]
fn a_handle_that_is_dropped_loses_nothing_and_ends_nothing_else() {
    let _turn = turn();
    let mut partner = dedicated("127.95.0.2", "off");
    let mut last = DedicatedWorker::open_alone(&lingering("127.95.0.1")).expect("the loopback interface is up");
    for round in 0..10 {
        let next = last.open_endpoint().expect("there is room");
        let first = std::mem::replace(&mut last, next);
        send_and_drop(first, &mut partner, round);
    }
    send_and_drop(last, &mut partner, 10);
}
