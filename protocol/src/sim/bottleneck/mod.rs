//! A bottleneck: senders that share one link, to see how congestion control divides it.
//!
//! Each sender is a queue pair behind a port of its own, as fast as the shared link, and writes to a queue pair of its
//! own at the other end. No frame is made and no byte is copied: only headers and lengths travel, so that a virtual
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
use crate::rc::{Config, Dialect, State, Stats};
use crate::{Mtu, Nanos, Qpn};
use host::{Parcel, Receiver, Sender};
use link::{Link, Passage};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    /// Queue pairs that send.
    pub senders: usize,
    /// What controls them.
    pub algorithm: Algorithm,
    /// How they recover from loss.
    pub dialect: Dialect,
    /// The probability that a packet is lost on the link, however long the queue is.
    pub loss: f64,
    /// Bits per second of the shared link and of each sender's port.
    pub rate: u64,
    /// The time that light takes, each way.
    pub propagation_ns: Nanos,
    /// Bytes that wait for the shared link at most; what comes then is dropped.
    pub buffer: u64,
    /// When packets that may be marked are.
    pub marking: Marking,
    /// The path MTU.
    pub mtu: Mtu,
    /// The window of each queue pair, in packets.
    pub window: u32,
    /// The length of each RDMA WRITE.
    pub message: u32,
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
            senders: 1,
            algorithm: Algorithm::Unlimited,
            dialect: Dialect::Rocinante,
            loss: 0.0,
            rate: 10_000_000_000,
            propagation_ns: 5_000,
            buffer: 300_000,
            marking: Marking::default(),
            mtu: Mtu::Mtu1024,
            window: 128,
            message: 64 << 10,
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
    /// All queue pairs' counters, added up.
    pub stats: Stats,
}

/// Something that is to happen; ordered by time, then by the order in which it was planned.
struct Event {
    at: Nanos,
    serial: u64,
    flow: usize,
    what: What,
}

enum What {
    /// A packet has left its sender's port and reaches the shared link.
    Queue(Parcel),
    /// A packet reaches the receiver; whether it was marked.
    Receive(Parcel, bool),
    /// An answer reaches the sender.
    Answer(Parcel),
    /// A sender's port or timer wants to be looked at.
    Wake,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

#[derive(Default)]
struct Agenda {
    events: BinaryHeap<Reverse<Event>>,
    serial: u64,
}

impl Agenda {
    fn plan(&mut self, at: Nanos, flow: usize, what: What) {
        self.serial += 1;
        self.events.push(Reverse(Event { at, serial: self.serial, flow, what }));
    }

    fn next(&mut self, until: Nanos) -> Option<Event> {
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
        let before: Vec<_> = run.receivers.iter().map(Receiver::executed).collect();
        run.until(self.duration_ns);
        run.shares(&before, self.duration_ns - middle)
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
    link: Link,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Bottleneck) -> Self {
        let mut dice = StdRng::seed_from_u64(plan.seed);
        let mut agenda = Agenda::default();
        for flow in 0..plan.senders {
            agenda.plan(dice.random_range(0..=plan.start_within_ns), flow, What::Wake);
        }
        let config = |flow| plan.config(flow);
        Self {
            plan,
            agenda,
            link: Link::new(plan, dice),
            senders: (0..plan.senders).map(|flow| Sender::new(config(flow), plan)).collect(),
            receivers: (0..plan.senders).map(|flow| Receiver::new(config(flow))).collect(),
        }
    }

    fn until(&mut self, end: Nanos) {
        while let Some(event) = self.agenda.next(end) {
            self.happen(event);
        }
    }

    fn happen(&mut self, Event { at: now, flow, what, .. }: Event) {
        match what {
            What::Queue(parcel) => {
                if let Passage::Arrives { at, is_marked } = self.link.pass(now, parcel.wire_bytes()) {
                    self.agenda.plan(at + self.plan.propagation_ns, flow, What::Receive(parcel, is_marked));
                }
            }
            What::Receive(parcel, is_marked) => {
                for answer in self.receivers[flow].receive(now, parcel, is_marked) {
                    self.agenda.plan(now + self.plan.propagation_ns, flow, What::Answer(answer));
                }
            }
            What::Answer(parcel) => {
                self.senders[flow].hear(now, &parcel);
                self.let_send(now, flow);
            }
            What::Wake => {
                if self.senders[flow].is_due(now) {
                    self.let_send(now, flow);
                }
            }
        }
    }

    fn let_send(&mut self, now: Nanos, flow: usize) {
        let sender = &mut self.senders[flow];
        for (at, parcel) in sender.work(now) {
            self.agenda.plan(at, flow, What::Queue(parcel));
        }
        if let Some(at) = sender.next_wake(now) {
            self.agenda.plan(at, flow, What::Wake);
        }
    }

    fn shares(&self, before: &[u64], during: Nanos) -> Shares {
        let executed = self.receivers.iter().zip(before).map(|(receiver, before)| receiver.executed() - before);
        let goodput: Vec<_> = executed.map(|bytes| bytes as f64 * 8e9 / during as f64).collect();
        let mut stats = Stats::default();
        for sender in &self.senders {
            debug_assert_eq!(sender.state(), State::Rts, "no loss here lasts longer than the retries");
            stats.add(sender.stats());
        }
        self.receivers.iter().for_each(|receiver| stats.add(receiver.stats()));
        Shares {
            utilisation: goodput.iter().sum::<f64>() / self.plan.rate as f64,
            jain: jain(&goodput),
            goodput,
            max_queue: self.link.max_queue,
            overflows: self.link.overflows,
            lost: self.link.lost,
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
