//! The wire between the two nodes: frames in flight, ordered by the virtual time of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{FaultInjector, Verdict};
use super::forger::Forger;
use crate::Nanos;
use crate::wire::{Frame, Opcode, Packet, seal, udp};

/// A copy of a frame comes so late at most, by a path of its own.
const LATE_NS: Nanos = 2_000_000;
/// "Congestion experienced" (RFC 3168).
pub(super) const MARKED: u8 = 0b11;

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

/// The network between the nodes, with its faults.
pub(super) struct SimNetwork {
    injector: FaultInjector,
    jitter: StdRng,
    jitter_ns: Nanos,
    /// The fastest that a frame crosses.
    latency_ns: Nanos,
    in_flight: BinaryHeap<Reverse<Arrival>>,
    capacity: usize,
    partitions: Option<Partitions>,
    forger: Option<Forger>,
    /// How often a frame is marked.
    marks: f64,
    /// What the run's ending does to frames.
    tampering: Option<Tampering>,
    serial: u64,
}

/// What becomes of genuine frames in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tampering {
    /// None arrives any more.
    Cut,
    /// Requests to WRITE get an opcode that means nothing.
    ReserveOpcode,
    /// Answers to READs lose their last bytes.
    ShortenResponse,
}

impl Tampering {
    /// The frame that goes on, if any does.
    fn of(self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Ok(frame) = Frame::parse(&bytes) else { return Some(bytes) };
        let Packet { mut headers, payload } = frame.packet;
        match self {
            Self::Cut => return None,
            Self::ReserveOpcode if headers.bth.opcode == Opcode::RcWriteOnly => {
                const RESERVED: u8 = 0x1f;
                let start = frame.ethernet.wire_len();
                let transport = start + frame.ip.wire_len() + udp::LEN;
                bytes[transport] = RESERVED;
                seal(&mut bytes[start..]);
            }
            Self::ShortenResponse if headers.bth.opcode == Opcode::RcReadResponseOnly && payload.len() == 8 => {
                headers.bth.pad = 0;
                bytes = Frame { packet: Packet { headers, payload: &payload[..4] }, ..frame }.to_bytes();
            }
            _ => {}
        }
        Some(bytes)
    }
}

impl SimNetwork {
    pub(super) fn new(injector: FaultInjector, seed: u64, jitter_ns: Nanos, capacity: usize) -> Self {
        let jitter = StdRng::seed_from_u64(seed);
        let (in_flight, latency_ns) = (BinaryHeap::new(), 1_000);
        Self {
            injector,
            jitter,
            jitter_ns,
            latency_ns,
            in_flight,
            capacity,
            partitions: None,
            forger: None,
            marks: 0.0,
            tampering: None,
            serial: 0,
        }
    }

    /// The same wire, with somebody who forges.
    pub(super) fn with_forger(self, forger: Forger) -> Self {
        Self { forger: Some(forger), ..self }
    }

    /// The same wire, where a switch marks so many frames.
    pub(super) fn with_marks(self, marks: f64) -> Self {
        Self { marks, ..self }
    }

    pub(super) fn tamper(&mut self, tampering: Tampering) {
        self.tampering = Some(tampering);
    }

    /// The same wire, longer or shorter.
    pub(super) fn with_latency(self, latency_ns: Nanos) -> Self {
        Self { latency_ns, ..self }
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
    pub(super) fn send(&mut self, now: Nanos, node: usize, frame: Vec<u8>) {
        if self.partitions.is_some_and(|partitions| partitions.cuts(now, node)) {
            return;
        }
        if let Some(forged) = self.forger.as_mut().and_then(|forger| forger.throw(&frame)) {
            self.arrive_at(now + self.latency_ns, node, forged);
        }
        let tampered = match self.tampering {
            None => Some(frame),
            Some(tampering) => tampering.of(frame),
        };
        let Some(frame) = tampered else { return };
        let mut frame = if self.marks > 0.0 && self.jitter.random_bool(self.marks) { marked(&frame) } else { frame };

        match self.injector.throw() {
            Verdict::Lose => {}
            Verdict::Pass => self.deliver(now, 0, node, frame),
            Verdict::Duplicate => {
                self.deliver(now, 0, node, frame.clone());
                let late = self.jitter_ns > 0 && self.jitter.random_bool(0.1);
                let extra = if late { self.jitter.random_range(0..LATE_NS) } else { self.jitter_ns };
                self.deliver(now, extra, node, frame);
            }
            Verdict::Hold(frames) => self.deliver(now, Nanos::from(frames) * 2 * self.latency_ns, node, frame),
            Verdict::Corrupt(bit) => {
                let bit = bit as usize % (frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                self.deliver(now, 0, node, frame);
            }
        }
    }

    fn deliver(&mut self, now: Nanos, extra: Nanos, node: usize, frame: Vec<u8>) {
        let jitter = if self.jitter_ns == 0 { 0 } else { self.jitter.random_range(0..self.jitter_ns) };
        self.arrive_at(now + self.latency_ns + jitter + extra, node, frame);
    }

    fn arrive_at(&mut self, at: Nanos, node: usize, frame: Vec<u8>) {
        self.serial += 1;
        self.in_flight.push(Reverse(Arrival { at, serial: self.serial, node, frame }));
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

/// The frame as a switch leaves it whose queue is long; one that is no frame, as it was.
fn marked(bytes: &[u8]) -> Vec<u8> {
    let Ok(frame) = Frame::parse(bytes) else { return bytes.to_vec() };
    let ip = frame.ip.with_traffic_class(frame.ip.traffic_class() | MARKED);
    Frame { ip, ..frame }.to_bytes()
}
