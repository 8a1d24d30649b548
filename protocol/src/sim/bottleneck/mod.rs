//! A bottleneck: senders that share one link, to see how congestion control divides it.
//!
//! Each sender is a queue pair behind a port of its own, as fast as the shared link, and writes to a queue pair of its
//! own at the other end, or is read from by it. No frame is made and no byte is copied: only headers and lengths travel, so that a virtual
//! millisecond costs about one of ours. The way back carries acknowledgements and notifications and is never congested.
//! The dice come from a seed; a run replays exactly.

mod host;
mod link;

pub use link::Marking;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::rc::congestion::Algorithm;
use crate::rc::{Config, Dialect, Remote, SendOp, State, Stats};
use crate::{Mtu, Nanos, Qpn, Rkey};
use host::{FlowEnd, SimPacket, Work};
use link::{BottleneckLink, Passage};

/// The operation that moves the data over the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransferOp {
    /// Senders write.
    #[default]
    Write,
    /// Receivers read.
    Read,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    /// Who asks for the data to move.
    pub transfer: TransferOp,
    /// Queue pairs that send.
    pub senders: usize,
    /// What controls them.
    pub algorithm: Algorithm,
    /// How they recover from loss.
    pub dialect: Dialect,
    /// The probability that a packet is lost on the link, however long the queue is.
    pub loss: f64,
    /// The same for the way back.
    pub loss_back: f64,
    /// Bits per second of the shared link and of each sender's port.
    pub rate: u64,
    /// The time that light takes, each way.
    pub propagation_ns: Nanos,
    /// From some time on the light takes so much longer, each way.
    pub longer_from: Option<(Nanos, Nanos)>,
    /// Bytes that wait for the shared link at most; what comes then is dropped.
    pub buffer: u64,
    /// When packets that may be marked are.
    pub marking: Marking,
    /// The path MTU.
    pub mtu: Mtu,
    /// The window of each queue pair, in packets.
    pub window: u32,
    /// The length of each RDMA WRITE or READ.
    pub message: u32,
    /// Bytes that each flow moves, and then is done.
    pub total: u64,
    /// Senders begin at random within this time.
    pub start_within_ns: Nanos,
    /// Virtual time; goodput counts from its half on.
    pub duration_ns: Nanos,
    /// The seed of the dice.
    pub seed: u64,
}

impl Default for Bottleneck {
    fn default() -> Self {
        Self {
            transfer: TransferOp::Write,
            senders: 1,
            algorithm: Algorithm::Unlimited,
            dialect: Dialect::Rocinante,
            loss: 0.0,
            loss_back: 0.0,
            rate: 10_000_000_000,
            propagation_ns: 5_000,
            longer_from: None,
            buffer: 300_000,
            marking: Marking::default(),
            mtu: Mtu::Mtu1024,
            window: 128,
            message: 64 << 10,
            total: u64::MAX,
            start_within_ns: 100_000,
            duration_ns: 40_000_000,
            seed: 1,
        }
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Shares {
    /// Bits per second that each receiver executed in the second half.
    pub goodput: Vec<f64>,
    /// Their sum as a part of the link's rate; headers keep it below 1.
    pub utilisation: f64,
    /// Jain's index of fairness: 1 where all are equal, 1/n where one has everything.
    pub jain: f64,
    /// The longest queue, in bytes.
    pub max_queue: u64,
    /// Packets that found the buffer full.
    pub overflows: u64,
    /// Packets that the link lost.
    pub lost: u64,
    /// Bytes of payload and headers that were sent over the link, lost ones included.
    pub offered: u64,
    /// When the last flow was done; `None` where one is not.
    pub finished_ns: Option<Nanos>,
    /// All queue pairs' counters, added up.
    pub stats: Stats,
}

/// An event of the simulation; ordered by time, then by the order in which it was planned.
struct SimEvent {
    at: Nanos,
    serial: u64,
    flow: usize,
    what: EventKind,
}

/// What happens at an event.
enum EventKind {
    /// A packet has left its sender's port and reaches the shared link.
    Queue(SimPacket),
    /// A packet reaches the end with this index; whether it was marked.
    Receive(usize, SimPacket, bool),
    /// The port or a timer of the end with this index wants to be looked at.
    Wake(usize),
}

/// The end of a flow that its data comes from, and the one that it goes to.
const SOURCE: usize = 0;
const TARGET: usize = 1;

impl PartialEq for SimEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SimEvent {}

impl PartialOrd for SimEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SimEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

#[derive(Default)]
struct Agenda {
    events: BinaryHeap<Reverse<SimEvent>>,
    serial: u64,
}

impl Agenda {
    fn plan(&mut self, at: Nanos, flow: usize, what: EventKind) {
        self.serial += 1;
        self.events.push(Reverse(SimEvent { at, serial: self.serial, flow, what }));
    }

    fn next(&mut self, until: Nanos) -> Option<SimEvent> {
        let is_due = self.events.peek().is_some_and(|Reverse(event)| event.at < until);
        if is_due { self.events.pop().map(|Reverse(event)| event) } else { None }
    }
}

impl Bottleneck {
    /// Runs it to its end.
    pub fn run(&self) -> Shares {
        let mut run = Run::new(self);
        let middle = self.duration_ns / 2;
        run.until(middle);
        let before: Vec<_> = run.flows.iter().map(|[_, target]| target.arrived()).collect();
        run.until(self.duration_ns);
        run.shares(&before, self.duration_ns - middle)
    }

    fn propagation(&self, at: Nanos) -> Nanos {
        self.propagation_ns + self.longer_from.filter(|&(from, _)| at >= from).map_or(0, |(_, by)| by)
    }

    fn ends(&self, flow: usize) -> [FlowEnd; 2] {
        let remote = Remote { va: 0, rkey: Rkey(1) };
        let op = match self.transfer {
            TransferOp::Write => SendOp::Write { remote, imm: None },
            TransferOp::Read => SendOp::Read { remote },
        };
        let work =
            |of: TransferOp| (of == self.transfer).then_some(Work { op, message: self.message, left: self.total });
        let config = self.config(flow);
        [
            FlowEnd::new(config.clone(), Some(self.rate), work(TransferOp::Write)),
            FlowEnd::new(config, None, work(TransferOp::Read)),
        ]
    }

    fn config(&self, own: usize) -> Config {
        const ACK_TIMEOUT_CODE: u8 = 8;
        let ack_timeout_ns = crate::rc::ack_timeout_ns(ACK_TIMEOUT_CODE);
        Config {
            dest_qpn: Qpn::new(own as u32),
            mtu: self.mtu,
            window: self.window,
            dialect: self.dialect,
            congestion: self.algorithm,
            link_rate: self.rate,
            ack_timeout_ns,
            ack_timeout_max_ns: 16 * ack_timeout_ns,
            ..Config::default()
        }
    }
}

struct Run<'a> {
    plan: &'a Bottleneck,
    agenda: Agenda,
    link: BottleneckLink,
    /// Loses packets on the way back.
    back: StdRng,
    flows: Vec<[FlowEnd; 2]>,
    done: Vec<Option<Nanos>>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Bottleneck) -> Self {
        let mut dice = StdRng::seed_from_u64(plan.seed);
        let mut agenda = Agenda::default();
        let requester = if plan.transfer == TransferOp::Write { SOURCE } else { TARGET };
        for flow in 0..plan.senders {
            agenda.plan(dice.random_range(0..=plan.start_within_ns), flow, EventKind::Wake(requester));
        }
        Self {
            plan,
            agenda,
            link: BottleneckLink::new(plan, dice),
            back: StdRng::seed_from_u64(!plan.seed),
            flows: (0..plan.senders).map(|flow| plan.ends(flow)).collect(),
            done: vec![None; plan.senders],
        }
    }

    fn until(&mut self, end: Nanos) {
        while let Some(event) = self.agenda.next(end) {
            self.happen(event);
        }
    }

    fn happen(&mut self, SimEvent { at: now, flow, what, .. }: SimEvent) {
        match what {
            EventKind::Queue(parcel) => {
                if let Passage::Arrives { at, is_marked } = self.link.pass(now, parcel.wire_bytes()) {
                    self.agenda.plan(
                        at + self.plan.propagation(at),
                        flow,
                        EventKind::Receive(TARGET, parcel, is_marked),
                    );
                }
            }
            EventKind::Receive(end, parcel, is_marked) => {
                self.flows[flow][end].receive(now, &parcel, is_marked);
                self.let_work(now, flow, end);
            }
            EventKind::Wake(end) => {
                if self.flows[flow][end].is_due(now) {
                    self.let_work(now, flow, end);
                }
            }
        }
    }

    fn let_work(&mut self, now: Nanos, flow: usize, end: usize) {
        let host = &mut self.flows[flow][end];
        for (at, parcel) in host.work(now) {
            if end == SOURCE {
                self.agenda.plan(at, flow, EventKind::Queue(parcel));
            } else if self.back.random::<f64>() >= self.plan.loss_back {
                self.agenda.plan(at + self.plan.propagation(at), flow, EventKind::Receive(SOURCE, parcel, false));
            }
        }
        if let Some(at) = host.next_wake(now) {
            self.agenda.plan(at, flow, EventKind::Wake(end));
        }
        if self.done[flow].is_none() && self.flows[flow].iter().all(FlowEnd::is_done) {
            self.done[flow] = Some(now);
        }
    }

    fn shares(&self, before: &[u64], during: Nanos) -> Shares {
        let arrived = self.flows.iter().zip(before).map(|([_, target], before)| target.arrived() - before);
        let goodput: Vec<_> = arrived.map(|bytes| bytes as f64 * 8e9 / during as f64).collect();
        let mut stats = Stats::default();
        for end in self.flows.iter().flatten() {
            debug_assert_eq!(end.state(), State::Rts, "no loss here lasts longer than the retries");
            stats.add(end.stats());
        }
        Shares {
            utilisation: goodput.iter().sum::<f64>() / self.plan.rate as f64,
            jain: jain(&goodput),
            goodput,
            max_queue: self.link.max_queue,
            overflows: self.link.overflows,
            lost: self.link.lost,
            offered: self.link.offered,
            finished_ns: self.done.iter().copied().collect::<Option<Vec<_>>>().and_then(|done| done.into_iter().max()),
            stats,
        }
    }
}

/// The square of the sum over the sum of the squares, by their number (Jain, Chiu and Hawe, DEC-TR-301, 1984).
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (squares * shares.len() as f64) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_replays_exactly() {
        let plan = Bottleneck { senders: 3, loss: 0.01, duration_ns: 2_000_000, ..Bottleneck::default() };
        assert_eq!(plan.run(), plan.run());
    }

    #[test]
    fn one_sender_alone_fills_the_link_and_queues_nothing() {
        let plan = Bottleneck { duration_ns: 2_000_000, ..Bottleneck::default() };
        let shares = plan.run();
        let headers = 1.0 - 1024.0 / 1106.0;
        assert!((shares.utilisation + headers - 1.0).abs() < 0.01, "{shares:?}");
        assert!(shares.max_queue < 2_400 && shares.stats.retransmitted_packets == 0, "{shares:?}");
    }

    #[test]
    fn fairness_is_one_for_equals_and_the_nth_part_for_a_monopoly() {
        assert!((jain(&[3.0, 3.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
        assert!((jain(&[0.0]) - 1.0).abs() < 1e-9);
    }
}
