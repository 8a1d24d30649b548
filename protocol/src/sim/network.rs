//! The wire between the two nodes: frames in flight, ordered by the virtual time of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{FaultInjector, Verdict};
use crate::Nanos;

/// The fastest that a frame crosses.
const LATENCY_NS: Nanos = 1_000;

/// A wire that is cut now and then, and heals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Partitions {
    /// From the start of one cut to the start of the next.
    pub(super) every: Nanos,
    /// How long a cut lasts.
    pub(super) lasting: Nanos,
    /// How far the first cut is brought forward.
    pub(super) phase: Nanos,
    /// Frames to this node are lost, or to both.
    pub(super) towards: Option<usize>,
}

impl Partitions {
    fn cuts(&self, now: Nanos, node: usize) -> bool {
        (now + self.phase) % self.every >= self.every - self.lasting && self.towards.is_none_or(|cut| cut == node)
    }
}

/// A frame that is to arrive; ordered by time, then by the order of sending.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival {
    pub(super) at: Nanos,
    serial: u64,
    pub(super) node: usize,
    pub(super) frame: Vec<u8>,
}

pub(super) struct Network {
    injector: FaultInjector,
    jitter: StdRng,
    jitter_ns: Nanos,
    in_flight: BinaryHeap<Reverse<Arrival>>,
    capacity: usize,
    partitions: Option<Partitions>,
    serial: u64,
}

impl Network {
    pub(super) fn new(injector: FaultInjector, seed: u64, jitter_ns: Nanos, capacity: usize) -> Self {
        let jitter = StdRng::seed_from_u64(seed);
        Self { injector, jitter, jitter_ns, in_flight: BinaryHeap::new(), capacity, partitions: None, serial: 0 }
    }

    /// The same wire, cut now and then.
    pub(super) fn with_partitions(self, partitions: Option<Partitions>) -> Self {
        Self { partitions, ..self }
    }

    /// Whether another frame can be sent now.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < self.capacity
    }

    /// Sends a frame to `node`; the dice decide what becomes of it.
    pub(super) fn send(&mut self, now: Nanos, node: usize, mut frame: Vec<u8>) {
        if self.partitions.is_some_and(|partitions| partitions.cuts(now, node)) {
            return;
        }
        match self.injector.throw() {
            Verdict::Lose => {}
            Verdict::Pass => self.deliver(now, 0, node, frame),
            Verdict::Duplicate => {
                self.deliver(now, 0, node, frame.clone());
                self.deliver(now, self.jitter_ns, node, frame);
            }
            Verdict::Hold(frames) => self.deliver(now, Nanos::from(frames) * 2 * LATENCY_NS, node, frame),
            Verdict::Corrupt(bit) => {
                let bit = bit as usize % (frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                self.deliver(now, 0, node, frame);
            }
        }
    }

    fn deliver(&mut self, now: Nanos, extra: Nanos, node: usize, frame: Vec<u8>) {
        let jitter = if self.jitter_ns == 0 { 0 } else { self.jitter.random_range(0..self.jitter_ns) };
        self.serial += 1;
        self.in_flight.push(Reverse(Arrival {
            at: now + LATENCY_NS + jitter + extra,
            serial: self.serial,
            node,
            frame,
        }));
    }

    /// When the next frame arrives.
    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        self.in_flight.peek().map(|Reverse(arrival)| arrival.at)
    }

    /// Takes the next frame, if it arrives by `now`.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Arrival> {
        if self.next_arrival()? > now {
            return None;
        }
        self.in_flight.pop().map(|Reverse(arrival)| arrival)
    }
}
