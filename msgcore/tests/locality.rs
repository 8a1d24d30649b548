//! Peers on the same host, which get a memif port of their own beside the sockets that all others are reached over. Real devices: DPDK
//! has one table of ports in a process, so the tests take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_msgcore::config::Origin;
use roci_msgcore::{Config, PeerId, Source, Tag, WireupError, Worker};

static TURN: Mutex<()> = Mutex::new(());
const PATIENCE: Duration = Duration::from_secs(30);
const METHODS: [&str; 2] = ["rdma_cm", "oob"];

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker alone, on a socket of its own at an address of the loopback interface.
fn worker(address: &str, settings: &[(&str, &str)]) -> Worker {
    let mut config = Config::default();
    let device = format!("udp:{address}");
    let common = [("device", device.as_str()), ("arena_size", "64MiB"), ("peers", "8"), ("connect_timeout_s", "20")];
    for &(name, value) in common.iter().chain(settings) {
        config.set(name, value, Origin::Environment).expect("a good value");
    }
    Worker::open_alone(&config).expect("the loopback interface is up")
}

/// The first learns the address of the second.
fn introduce(ends: &mut [Worker; 2]) -> PeerId {
    let address = ends[1].address();
    ends[0].insert(address).expect("room")
}

/// Carries the texts of exchanges to and fro, where connections are made so, and makes progress at both ends.
fn step(ends: &mut [Worker; 2]) {
    for from in 0..2 {
        ends[from].progress();
        while let Some((_, text)) = ends[from].next_exchange() {
            // Who means an endpoint that is gone is refused.
            let _ = ends[1 - from].deliver_exchange(&text);
        }
    }
}

/// Sends so many messages of so many bytes from the first to the second, and checks them.
fn send(ends: &mut [Worker; 2], to: PeerId, (count, len): (u8, usize)) {
    let deadline = Instant::now() + PATIENCE;
    for number in 0..count {
        let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(number) ^ (at >> 8) as u8).collect();
        let mut payload = ends[0].buffer(len).expect("room");
        payload.copy_from_slice(&bytes);
        let sent = ends[0].send(to, Tag::new(number.into()), payload).expect("taken");
        let room = ends[1].buffer(len).expect("room");
        let received = ends[1].recv(Source::Any, Tag::new(number.into()), room).expect("taken");
        let (mut sent, mut outcome) = (Some(sent), None);
        while sent.is_some() || outcome.is_none() {
            assert!(Instant::now() < deadline, "message {number}");
            step(ends);
            if let Some(end) = sent.and_then(|sent| ends[0].test(sent)) {
                end.unwrap_or_else(|error| panic!("message {number}: {error}"));
                sent = None;
            }
            outcome = outcome.or_else(|| ends[1].test(received));
        }
        let done = outcome.expect("it is there").expect("it arrives");
        assert!(done.buffer[..] == bytes[..], "message {number} of {len} bytes");
    }
}

/// Frames that have left over the socket.
fn over_network(worker: &Worker) -> u64 {
    worker.link().expect("a worker alone has one").stats().tx_frames
}

#[test]
fn a_worker_alone_is_on_a_socket_where_no_device_is_named() {
    let _turn = turn();
    let mut config = Config::default();
    for (name, value) in [("arena_size", "64MiB"), ("peers", "8")] {
        config.set(name, value, Origin::Environment).expect("a good value");
    }
    let worker = Worker::open_alone(&config).expect("any interface is up");
    assert_eq!(worker.address().to_string().parse(), Ok(worker.address()));
    config.set("device", "memif", Origin::Environment).expect("a good value");
    assert!(matches!(Worker::open_alone(&config), Err(WireupError::NeedsOneHost(_))), "what is named is taken");
}

#[test]
fn peers_of_one_host_meet_over_a_port_of_their_own_and_the_network_carries_nothing_of_it() {
    let _turn = turn();
    for method in METHODS {
        let settings = [("connect_method", method), ("local", "memif")];
        let mut ends = [worker("127.71.0.1", &settings), worker("127.71.0.2", &settings)];
        let to = introduce(&mut ends);
        send(&mut ends, to, (1, 8));
        assert_eq!(ends.each_ref().map(|end| end.stats().local_ports_opened), [1, 1], "{method}");
        let before = ends.each_ref().map(over_network);
        send(&mut ends, to, (50, 100_000));
        assert_eq!(ends.each_ref().map(over_network), before, "{method}");
    }
}

#[test]
fn where_one_end_wants_none_or_has_no_place_they_meet_over_the_network() {
    let _turn = turn();
    for method in METHODS {
        for settings in [("local", "off"), ("local_ports", "0")] {
            let ours = [("connect_method", method), ("local", "memif")];
            for is_first in [true, false] {
                let theirs = [("connect_method", method), settings];
                let (first, second) = if is_first { (theirs, ours) } else { (ours, theirs) };
                let mut ends = [worker("127.72.0.1", &first), worker("127.72.0.2", &second)];
                let to = introduce(&mut ends);
                send(&mut ends, to, (5, 10_000));
                assert_eq!(ends.each_ref().map(|end| end.stats().local_ports_opened), [0, 0], "{settings:?}");
            }
        }
    }
}

#[test]
fn ports_are_given_back_with_their_peers_and_are_not_more_than_there_may_be() {
    let _turn = turn();
    for method in METHODS {
        let settings = [("connect_method", method), ("local_ports", "2")];
        let mut hub = worker("127.73.0.1", &settings);
        // More than DPDK has places, one after the other; two of them stay, so that there is a place for one at a time, or none.
        let mut stay = Vec::new();
        for round in 0..40 {
            let other = worker("127.73.0.2", &settings);
            let to = hub.insert(other.address()).expect("room");
            let mut ends = [hub, other];
            send(&mut ends, to, (2, 5_000));
            let [mut again, other] = ends;
            if round == 3 {
                stay.push(other);
            } else {
                again.remove(to).expect("it is there");
                again.progress();
                drop(other);
            }
            hub = again;
        }
        let stats = hub.stats();
        assert_eq!((stats.local_ports_opened, stats.local_ports_missed), (40, 0), "{method}");
    }
}

#[test]
fn who_finds_no_place_left_is_reached_over_the_network() {
    let _turn = turn();
    for method in METHODS {
        let settings = [("connect_method", method), ("local_ports", "1")];
        let hub = worker("127.74.0.1", &settings);
        let [first, second] = ["127.74.0.2", "127.74.0.3"].map(|address| worker(address, &settings));
        let mut ends = [hub, first];
        let to = introduce(&mut ends);
        send(&mut ends, to, (3, 5_000));
        let [hub, first] = ends;
        let mut ends = [hub, second];
        let to = introduce(&mut ends);
        send(&mut ends, to, (3, 5_000));
        let stats = ends[0].stats();
        assert_eq!((stats.local_ports_opened, stats.local_ports_missed), (1, 1), "{method}");
        assert_eq!((first.stats().local_ports_opened, ends[1].stats().local_ports_opened), (1, 0), "{method}");
    }
}

#[test]
fn two_that_ask_at_once_meet_once() {
    let _turn = turn();
    for method in METHODS {
        let settings = [("connect_method", method)];
        let mut ends = [worker("127.75.0.1", &settings), worker("127.75.0.2", &settings)];
        let addresses = ends.each_ref().map(Worker::address);
        let names = [0, 1].map(|who| ends[who].insert(addresses[1 - who]).expect("room"));
        for who in [0, 1] {
            let sent = ends[who].send_bytes(names[who], Tag::new(100), b"at once").expect("taken");
            ends[who].detach(sent);
        }
        send(&mut ends, names[0], (20, 20_000));
        ends.reverse();
        send(&mut ends, names[1], (20, 20_000));
        assert_eq!(ends.each_ref().map(|end| end.stats().local_ports_opened), [1, 1], "{method}");
    }
}

#[test]
fn a_peer_that_was_removed_and_is_inserted_again_is_reached_at_once() {
    let _turn = turn();
    for method in METHODS {
        let settings = [("connect_method", method)];
        let mut ends = [worker("127.76.0.1", &settings), worker("127.76.0.2", &settings)];
        let address = ends[1].address();
        for _ in 0..5 {
            let to = ends[0].insert(address).expect("room");
            send(&mut ends, to, (3, 5_000));
            ends[0].remove(to).expect("it is there");
        }
        // None has waited in vain for an answer.
        assert_eq!(ends[0].stats().local_ports_missed, 0, "{method}");
    }
}

/// Processes of one host have one address and ports of their own: all else of their addresses is the same.
#[test]
fn two_at_one_address_have_ports_of_their_own_and_meet() {
    let _turn = turn();
    for local in ["off", "memif"] {
        let settings = [("local", local)];
        let mut ends = [worker("127.77.0.1", &settings), worker("127.77.0.1", &settings)];
        let [first, second] = ends.each_ref().map(Worker::address);
        assert_eq!((first.ip, first.service), (second.ip, second.service));
        let to = introduce(&mut ends);
        send(&mut ends, to, (3, 5_000));
    }
}
