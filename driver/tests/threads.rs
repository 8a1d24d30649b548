//! Several engines in one process, each on its own thread with its own DPDK ports.
//!
//! The tests of this file share one DPDK, as the engines of an application would.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use roci_driver::link::LinkState;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, EalError, PortError};
use roci_driver::{Address, CompletionQueue, Engine, Operation, QpParams, QueuePair, SendWr, WcStatus};
use tempfile::TempDir;

const MESSAGES: u64 = 10_000;
/// Receives, and so messages in flight; no message waits for a receive.
const DEPTH: u64 = 32;
const LEN: usize = 512;
const PATIENCE: Duration = Duration::from_mins(1);
/// Polls without any completion after which a test gives up, with a yield to the other thread between them.
const POLLS_MAX: u64 = 100_000_000;

/// One end of a connection over memif, on the thread that opened it.
struct End {
    engine: Engine<DpdkLink>,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl End {
    /// Opens one end of the port at `socket`, and connects it to the end that is at the other side of the channels.
    fn open(socket: &Path, side: u8, to: &Sender<Address>, from: &Receiver<Address>) -> Self {
        let end = Attachment::pair(Device::Memif, socket, side == 0, [2, 0, 0, 0, 0, side + 1]);
        let mut links = DpdkLink::open_all(&[end], PATIENCE, &mut || false).expect("the ends find each other");
        let mut engine = Engine::new(1 << 20).expect("memory");
        engine.add_port(links.remove(0), IpAddr::from([10, 0, 0, side + 1]), true);
        let params = QpParams::default();
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(4 * DEPTH as usize));
        let ours = engine.create_qp(0, pd, cq).expect("room");
        to.send(engine.address_of(&ours, &params).expect("the link carries packets")).expect("the other end is there");
        let theirs = from.recv().expect("the other end is there");
        let qp = engine.connect(ours, &theirs, &params).expect("one IP version");
        Self { engine, cq, qp }
    }

    fn post_recv(&mut self, number: u64) {
        let buffer = self.engine.buffer(LEN).expect("memory");
        self.engine.post_recv(self.qp, number, buffer).map_err(|refused| refused.reason).expect("accepted");
    }

    fn post_send(&mut self, number: u64, side: u8) {
        let mut buffer = self.engine.buffer(LEN).expect("memory");
        buffer.copy_from_slice(&message(number, side));
        let send = SendWr::send(number, buffer);
        self.engine.post_send(self.qp, send).map_err(|refused| refused.reason).expect("accepted");
    }

    /// Sends and receives `MESSAGES` messages, and looks at every byte.
    fn exchange(&mut self, side: u8, ready: &Barrier) {
        (0..DEPTH).for_each(|number| self.post_recv(number));
        ready.wait();
        let (mut posted, mut sent, mut received, mut idle) = (0, 0, 0, 0);
        while sent < MESSAGES || received < MESSAGES {
            // What was received has made room for as much, and half of it may be on its way to be said so.
            while posted < MESSAGES && posted < sent + DEPTH / 2 && posted < received + DEPTH / 2 {
                self.post_send(posted, side);
                posted += 1;
            }
            self.engine.poll();
            let Some(done) = self.engine.poll_cq(self.cq) else {
                idle += 1;
                assert!(idle < POLLS_MAX, "stuck at {sent} sent and {received} received");
                std::thread::yield_now();
                continue;
            };
            idle = 0;
            assert_eq!(done.status, WcStatus::Success);
            if done.operation == Operation::Recv {
                assert_eq!(done.buffer[..done.len], message(received, 1 - side), "message {received}");
                received += 1;
                self.post_recv(received);
            } else {
                sent += 1;
            }
        }
    }

    /// Polls until all `ends` are here: they may miss an acknowledgement yet.
    fn settle(&mut self, done: &AtomicUsize, ends: usize) {
        done.fetch_add(1, Ordering::AcqRel);
        while done.load(Ordering::Acquire) < ends {
            self.engine.poll();
            std::thread::yield_now();
        }
    }
}

fn message(number: u64, side: u8) -> [u8; LEN] {
    let mut bytes = std::array::from_fn(|at| (at as u64 * 7 + number * 13) as u8 ^ side);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
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
                let mut end = End::open(socket, side, &to, &from);
                end.exchange(side, ready);
                end.settle(done, 2);
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
        scope.spawn(move || drop(End::open(far, 1, &to_near, &from_near)));
        let mut end = End::open(&socket, 0, &to_far, &from_far);
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
