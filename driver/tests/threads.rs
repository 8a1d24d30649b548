//! Several engines in one process, each on its own thread with its own DPDK ports.
//!
//! The tests of this file share one DPDK, as the engines of an application would.

mod common;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::traffic::{Exchange, POLLS_MAX, Talker, Traffic};
use roci_driver::link::LinkState;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, EalError, PortError};
use roci_driver::{Address, Engine};
use tempfile::TempDir;

const TRAFFIC: Traffic = Traffic { messages: 10_000, depth: 32, len: 512 };
const PATIENCE: Duration = Duration::from_mins(1);

/// Opens one end of the port at `socket`, on the thread that it stays on, and connects it to the end that is at the other
/// side of the channels.
fn open(socket: &Path, side: u8, to: &Sender<Address>, from: &Receiver<Address>) -> Talker<DpdkLink> {
    let end = Attachment::pair(Device::Memif, socket, side == 0, [2, 0, 0, 0, 0, side + 1]);
    let mut links = DpdkLink::open_all(&[end], PATIENCE, &mut || false).expect("the ends find each other");
    let mut engine = Engine::new(1 << 20).expect("memory");
    engine.add_port(links.remove(0), IpAddr::from([10, 0, 0, side + 1]), true);
    Talker::connect(engine, TRAFFIC, |ours| Exchange { to, from }.of(ours))
}

/// Opens both ends, one of them on another thread, which ends.
fn open_both(directory: &TempDir) -> [Talker<DpdkLink>; 2] {
    let socket = &directory.path().join("s");
    let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
    std::thread::scope(|scope| {
        let far = scope.spawn(move || open(socket, 1, &to_near, &from_near));
        [open(socket, 0, &to_far, &from_far), far.join().expect("it opens")]
    })
}

/// Two threads, each with an engine of its own, over one memif pair.
fn pair_exchanges(directory: &TempDir) {
    let socket = directory.path().join("s");
    let (ready, done) = (Barrier::new(2), AtomicUsize::new(0));
    let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
    std::thread::scope(|scope| {
        let sides = [(0, to_far, from_far), (1, to_near, from_near)];
        for (side, to, from) in sides {
            let (socket, ready, done) = (&socket, &ready, &done);
            scope.spawn(move || {
                let mut end = open(socket, side, &to, &from);
                end.exchange(side, ready);
                end.settle(done);
            });
        }
    });
}

#[test]
fn two_engines_on_two_threads_exchange_every_byte_and_so_do_their_successors() {
    for _ in 0..3 {
        pair_exchanges(&TempDir::new().expect("a directory"));
    }
}

/// Every exchange is on two other threads than the one before, and the ends go on a third.
#[test]
fn engines_move_from_thread_to_thread() {
    let directory = TempDir::new().expect("a directory");
    let mut ends = open_both(&directory);
    for _ in 0..4 {
        let (ready, done) = (Barrier::new(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for (side, end) in (0..).zip(&mut ends) {
                let (ready, done) = (&ready, &done);
                scope.spawn(move || {
                    end.exchange(side, ready);
                    end.settle(done);
                });
            }
        });
    }
    std::thread::spawn(move || drop(ends)).join().expect("they go");
    pair_exchanges(&directory);
}

/// Threads that have ports of their own are DPDK's, and have a cache in every pool: none of them may keep what the next one needs.
#[test]
fn engines_that_visit_threads_of_dpdk_do_not_starve() {
    const VISITS: usize = 24;
    let directory = TempDir::new().expect("a directory");
    let mut ends = open_both(&directory);
    let gates: [_; VISITS] = std::array::from_fn(|_| (Barrier::new(2), AtomicUsize::new(0)));
    let end_of_visits = Barrier::new(2 * VISITS + 1);
    std::thread::scope(|scope| {
        for (ready, done) in &gates {
            let (to_main, back) = channel();
            for (side, mut end) in (0..).zip(ends) {
                let (to_main, end_of_visits) = (to_main.clone(), &end_of_visits);
                scope.spawn(move || {
                    DpdkLink::open_all(&[], PATIENCE, &mut || false).expect("no port");
                    end.exchange(side, ready);
                    end.settle(done);
                    to_main.send((side, end)).unwrap_or_else(|_| panic!("the test waits"));
                    // While it lives it keeps its place among DPDK's threads, and its caches.
                    end_of_visits.wait();
                });
            }
            let mut returned = [back.recv().expect("one"), back.recv().expect("two")];
            returned.sort_by_key(|(side, _)| *side);
            ends = returned.map(|(_, end)| end);
        }
        end_of_visits.wait();
    });
}

#[test]
fn pairs_that_come_and_go_do_not_disturb_each_other() {
    let directories = [(); 3].map(|()| TempDir::new().expect("a directory"));
    std::thread::scope(|scope| {
        for directory in &directories {
            scope.spawn(move || pair_exchanges(directory));
        }
    });
}

#[test]
fn an_end_that_goes_takes_the_link_down_at_the_other_thread() {
    let directory = TempDir::new().expect("a directory");
    let socket = directory.path().join("s");
    let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
    std::thread::scope(|scope| {
        let far = &socket;
        scope.spawn(move || drop(open(far, 1, &to_near, &from_near)));
        let mut end = open(&socket, 0, &to_far, &from_far);
        let mut polls = 0;
        while end.engine.link_state(0) == LinkState::Up || polls == 0 {
            end.engine.poll();
            std::thread::yield_now();
            polls += 1;
            assert!(polls < POLLS_MAX, "the link stays up");
        }
    });
}

#[test]
fn a_device_that_dpdk_must_start_with_is_refused_once_it_runs() {
    pair_exchanges(&TempDir::new().expect("a directory"));
    for device in ["pci:0000:00:04.0".parse().expect("a device"), Device::Eal("--vdev net_null0".into())] {
        let opened = DpdkLink::open_all(&[Attachment::shared(device)], PATIENCE, &mut || false);
        assert_eq!(opened.err(), Some(PortError::Eal(EalError::AlreadyStarted)));
    }
}
