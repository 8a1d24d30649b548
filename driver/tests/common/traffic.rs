//! Two engines on two threads that exchange messages, and look at every byte.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use roci_driver::link::Link;
use roci_driver::{Address, CompletionQueue, Engine, Operation, QpParams, QueuePair, SendWr, WcStatus};

/// Polls without any completion after which a test gives up, with a yield to the other thread between them.
pub(crate) const POLLS_MAX: u64 = 100_000_000;

/// What goes each way.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    /// Receives, and so messages in flight; no message waits for a receive.
    pub(crate) depth: u64,
    pub(crate) len: usize,
}

/// The ends' way to each other.
pub(crate) struct Exchange<'a> {
    pub(crate) to: &'a Sender<Address>,
    pub(crate) from: &'a Receiver<Address>,
}

impl Exchange<'_> {
    pub(crate) fn of(&self, ours: Address) -> Address {
        self.to.send(ours).expect("the other end is there");
        self.from.recv().expect("the other end is there")
    }
}

/// One end, on the thread of its engine.
pub(crate) struct Talker<L: Link> {
    pub(crate) engine: Engine<L>,
    cq: CompletionQueue,
    qp: QueuePair,
    traffic: Traffic,
    /// Receives that are posted while nothing is exchanged.
    receives: u64,
}

impl<L: Link> Talker<L> {
    /// Connects to the end whose address `exchange` returns.
    pub(crate) fn connect(mut engine: Engine<L>, traffic: Traffic, exchange: impl FnOnce(Address) -> Address) -> Self {
        // As long as the kernel may run neither the peer nor DPDK's interrupt thread.
        let params = QpParams { retry_limit: 1000, ..QpParams::default() };
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(4 * traffic.depth as usize));
        let ours = engine.create_qp(0, pd, cq).expect("room");
        let theirs = exchange(engine.address_of(&ours, &params));
        let qp = engine.connect(ours, &theirs, &params).expect("one IP version");
        Self { engine, cq, qp, traffic, receives: 0 }
    }

    fn post_recv(&mut self, number: u64) {
        let buffer = self.engine.buffer(self.traffic.len).expect("memory");
        self.engine.post_recv(self.qp, number, buffer).expect("accepted");
    }

    fn post_send(&mut self, number: u64, side: u8) {
        let mut buffer = self.engine.buffer(self.traffic.len).expect("memory");
        buffer.copy_from_slice(&message(number, side, self.traffic.len));
        let send = SendWr::send(number, buffer);
        self.engine.post_send(self.qp, send).expect("accepted");
    }

    /// Sends and receives all messages, and looks at every byte.
    pub(crate) fn exchange(&mut self, side: u8, ready: &Barrier) {
        let Traffic { messages, depth, .. } = self.traffic;
        (self.receives..depth).for_each(|number| self.post_recv(number));
        self.receives = depth;
        ready.wait();
        let (mut posted, mut sent, mut received, mut idle) = (0, 0, 0, 0);
        while sent < messages || received < messages {
            // What was received has made room for as much, and half of it may be on its way to be said so.
            while posted < messages && posted < sent + depth / 2 && posted < received + depth / 2 {
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
                let expected = message(received, 1 - side, self.traffic.len);
                assert_eq!(done.buffer[..done.len], expected, "message {received}");
                received += 1;
                self.post_recv(received);
            } else {
                sent += 1;
            }
        }
    }

    /// Polls until both ends are here: they may miss an acknowledgement yet.
    pub(crate) fn settle(&mut self, done: &AtomicUsize) {
        done.fetch_add(1, Ordering::AcqRel);
        while done.load(Ordering::Acquire) < 2 {
            self.engine.poll();
            std::thread::yield_now();
        }
        assert!(self.engine.stats().is_balanced());
    }
}

fn message(number: u64, side: u8, len: usize) -> Vec<u8> {
    let mut bytes: Vec<_> = (0..len as u64).map(|at| (at * 7 + number * 13) as u8 ^ side).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}
