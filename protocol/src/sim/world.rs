//! The world's loop: post work, move time to the next event, check what completes.

use std::fmt;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{FaultInjector, Faults};
use super::network::{Network, Partitions};
use super::node::{Node, READ_KEY, READABLE, WORD_KEY, WORDS, WRITABLE, WRITE_KEY};
use super::oracle::Oracle;
use crate::rc::congestion::Algorithm;
use crate::rc::{AtomicOperation, Config, Dialect, Operation, RecvRequest, Remote, SendOp, SendRequest, State, Stats};
use crate::{Access, Mtu, Nanos, Psn, Qpn, Rkey};

/// Requests that each node posts.
const REQUESTS: u64 = 150;
/// Virtual time after which a run that has not finished has stalled.
const STALL_NS: Nanos = 600 * 1_000_000_000;
/// The longest message, in full packets.
const MAX_PACKETS: usize = 6;

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// A hash over every frame that arrived and when: equal for two runs of one seed.
    pub trace: u32,
    /// How long it took in virtual time.
    pub finished_ns: Nanos,
    /// Frames that arrived.
    pub frames: u64,
    /// Frames dropped as malformed.
    pub dropped: u64,
    /// Both queue pairs' counters, added up.
    pub stats: Stats,
}

/// A broken promise, with the seed that replays it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// When, in virtual time.
    pub at_ns: Nanos,
    /// Which node.
    pub node: usize,
    /// What was broken.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at_ns, node, what } = self;
        write!(f, "seed {seed}: node {node} at {at_ns} ns: {what}")
    }
}

impl std::error::Error for Violation {}

/// Runs the world of one seed to its end.
///
/// `faults` overrides the plan that the seed would choose for itself (a swarm: each seed exaggerates
/// some faults and leaves others out).
pub fn run(seed: u64, faults: Option<Faults>) -> Result<Report, Violation> {
    let mut world = World::new(seed, faults);
    world.run()
}

struct World {
    seed: u64,
    dice: StdRng,
    now: Nanos,
    network: Network,
    nodes: [Node; 2],
    /// `oracles[n]` judges what node n requested.
    oracles: [Oracle; 2],
    posted: [u64; 2],
    /// Each node's window that will be valid once all it posted is done.
    bound: [Option<Rkey>; 2],
    mtu: Mtu,
    trace: crc32fast::Hasher,
    frames: u64,
}

impl World {
    fn new(seed: u64, faults: Option<Faults>) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let is_swarm = faults.is_none();
        let faults = faults.unwrap_or_else(|| swarm(&mut dice));
        let mtu = Mtu::ALL[dice.random_range(0..3)];
        // Half of the runs start just before the wrap.
        let psn = |dice: &mut StdRng| {
            if dice.random() { 0xff_fff0 + dice.random_range(0..16) } else { dice.random_range(0..1 << 24) }
        };
        let psns = [Psn::new(psn(&mut dice)), Psn::new(psn(&mut dice))];
        let window = 1 << dice.random_range(0..8);
        let (shared_receives, end_to_end_credits) = (dice.random_bool(0.2), dice.random());
        let dialect = if dice.random() { Dialect::Rocinante } else { Dialect::Verbs };
        let congestion = [Algorithm::Unlimited, Algorithm::Dcqcn, Algorithm::Delay][dice.random_range(0..3)];
        let config = |node: usize| Config {
            dest_qpn: Qpn::new(0x11 + node as u32),
            mtu,
            sq_psn: psns[node],
            rq_psn: psns[1 - node],
            sq_depth: 16,
            rq_depth: 16,
            window,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ack_timeout_ns: 50_000,
            ack_timeout_max_ns: 800_000,
            retry_limit: 60,
            min_rnr_timer: 2,
            shared_receives,
            end_to_end_credits,
            dialect,
            congestion,
            ..Config::default()
        };
        let mut nodes = [0, 1].map(|node| Node::new(node, config(node)));
        for node in &mut nodes {
            for state in [State::Rtr, State::Rts] {
                node.qp.modify(state).expect("the way up is in the table");
            }
        }
        let jitter_ns = if faults.reorder > 0.0 { 3_000 } else { 0 };
        let capacity = dice.random_range(4..200);
        let partitions = if is_swarm { partitions(&mut dice) } else { None };
        let injector = FaultInjector::new(faults, seed);
        let network = Network::new(injector, seed, jitter_ns, capacity).with_partitions(partitions);
        let oracles = [Oracle::new(), Oracle::new()];
        let trace = crc32fast::Hasher::new();
        Self { seed, dice, now: 0, network, nodes, oracles, posted: [0; 2], bound: [None; 2], mtu, trace, frames: 0 }
    }

    fn run(&mut self) -> Result<Report, Violation> {
        while !self.is_done() {
            for node in 0..2 {
                self.post_work(node);
                self.nodes[node].pump(self.now, &mut self.network);
            }
            self.step()?;
            for node in 0..2 {
                self.check(node)?;
            }
        }
        for node in 0..2 {
            let verdict = self.oracles[node].check_image(&self.nodes[1 - node].host);
            verdict.map_err(|what| self.violation(1 - node, what))?;
        }
        Ok(self.report())
    }

    fn is_done(&self) -> bool {
        self.posted == [REQUESTS; 2] && self.oracles.iter().all(Oracle::is_satisfied)
    }

    /// Moves time to the next event and lets it happen.
    fn step(&mut self) -> Result<(), Violation> {
        let timers = self.nodes.iter().filter_map(|node| node.qp.deadline());
        let next = timers.chain(self.network.next_arrival()).min();
        // Nothing in flight and no timer: only the world's own posting can go on, and it may dawdle.
        self.now = next.unwrap_or(self.now + 1_000).max(self.now);
        if self.now > STALL_NS {
            return Err(self.violation(0, "no progress: the connection stalled".into()));
        }
        while let Some(arrival) = self.network.take(self.now) {
            self.frames += 1;
            self.trace.update(&self.now.to_le_bytes());
            self.trace.update(&[arrival.node as u8]);
            self.trace.update(&arrival.frame);
            self.nodes[arrival.node].receive(self.now, &arrival.frame, &mut self.network);
        }
        for node in &mut self.nodes {
            if node.qp.deadline().is_some_and(|at| at <= self.now) {
                node.on_timeout(self.now, &mut self.network);
            }
        }
        Ok(())
    }

    fn post_work(&mut self, node: usize) {
        // Receives come late now and then, so that RNR NAKs happen.
        let due = self.oracles[1 - node].receives_due();
        let posted = self.nodes[node].qp.receives_posted() + self.nodes[node].host.shared.len();
        if posted < due.min(8) && self.dice.random_bool(0.7) {
            self.post_recv(node);
        }
        while self.posted[node] < REQUESTS && self.nodes[node].qp.sends_outstanding() < 16 {
            if self.dice.random_bool(0.3) {
                break;
            }
            self.post_send(node);
        }
    }

    fn post_recv(&mut self, node: usize) {
        let len = self.mtu.bytes() * MAX_PACKETS;
        let request = RecvRequest { wr_id: 0, buffer: vec![0; len], len: len as u32 };
        let Node { qp, host } = &mut self.nodes[node];
        if qp.config().shared_receives {
            host.shared.push_back(request);
        } else {
            qp.post_recv(request).expect("fewer than the depth are posted");
        }
    }

    fn post_send(&mut self, node: usize) {
        let wr_id = self.posted[node];
        self.posted[node] += 1;
        let len = self.message_len();
        let imm = self.dice.random_bool(0.3).then(|| self.dice.random());
        let (op, buffer) = match self.dice.random_range(0..16) {
            0..4 => {
                let bytes = self.random_bytes(len);
                self.oracles[node].expect_send(wr_id, &bytes, imm, None);
                (SendOp::Send { imm }, bytes)
            }
            4 => {
                let bytes = self.random_bytes(len);
                let rkey = Rkey(wr_id as u32);
                self.nodes[1 - node].host.windows.insert(rkey.0);
                self.oracles[node].expect_send(wr_id, &bytes, None, Some(rkey));
                (SendOp::SendInvalidate { rkey }, bytes)
            }
            5 => (self.bind_or_end_a_window(node, wr_id), Vec::new()),
            6..8 => (self.atomic(node, wr_id), vec![0; 8]),
            8..12 => {
                let va = self.dice.random_range(0..=WRITABLE - len) as u64;
                let bytes = self.random_bytes(len);
                self.oracles[node].expect_write(wr_id, va, &bytes, imm);
                (SendOp::Write { remote: Remote { va, rkey: WRITE_KEY }, imm }, bytes)
            }
            _ => {
                let va = self.dice.random_range(0..=READABLE - len);
                self.oracles[node].expect_read(wr_id, &self.nodes[1 - node].host.readable[va..va + len]);
                (SendOp::Read { remote: Remote { va: va as u64, rkey: READ_KEY } }, vec![0; len])
            }
        };
        let fence = self.dice.random_bool(0.1);
        let len = buffer.len() as u32;
        let request = SendRequest { wr_id, op, buffer, len, signaled: true, solicited: false, fence };
        self.nodes[node].qp.post_send(request).expect("fewer than the depth are outstanding");
    }

    fn atomic(&mut self, node: usize, wr_id: u64) -> SendOp {
        let index = self.dice.random_range(0..WORDS);
        let operation = if self.dice.random() {
            AtomicOperation::FetchAdd { add: self.dice.random() }
        } else {
            // Half of the swaps meet the value that they compare with.
            let compare = if self.dice.random() { self.oracles[node].word(index) } else { self.dice.random() };
            AtomicOperation::CompareSwap { compare, swap: self.dice.random() }
        };
        self.oracles[node].expect_atomic(wr_id, index, operation);
        SendOp::Atomic { remote: Remote { va: index as u64 * 8, rkey: WORD_KEY }, operation }
    }

    /// Binds a window of the node's own, or ends the one that was bound before.
    fn bind_or_end_a_window(&mut self, node: usize, wr_id: u64) -> SendOp {
        const OWN: u32 = 0x8000_0000;
        let bound = &mut self.bound[node];
        let (op, operation) = match bound.take() {
            Some(rkey) => (SendOp::LocalInvalidate { rkey }, Operation::LocalInvalidate),
            None => {
                let window = Rkey(OWN | wr_id as u32);
                *bound = Some(window);
                let bind =
                    SendOp::BindWindow { window, region: WRITE_KEY, va: 0, len: 8, access: Access::REMOTE_WRITE };
                (bind, Operation::BindWindow)
            }
        };
        self.oracles[node].expect_local(wr_id, operation);
        op
    }

    /// Lengths around the edges of packets are the interesting ones.
    fn message_len(&mut self) -> usize {
        let mtu = self.mtu.bytes();
        match self.dice.random_range(0..8) {
            0 => 0,
            1 => self.dice.random_range(1..5),
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            _ => self.dice.random_range(0..=mtu * MAX_PACKETS),
        }
    }

    fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.dice.fill(&mut bytes[..]);
        bytes
    }

    fn check(&mut self, node: usize) -> Result<(), Violation> {
        for done in std::mem::take(&mut self.nodes[node].host.completions) {
            let verdict = match done.operation {
                Operation::Recv | Operation::RecvRdmaWithImm => self.oracles[1 - node].check_recv(&done),
                _ => self.oracles[node].check_send(&done),
            };
            verdict.map_err(|what| self.violation(node, what))?;
        }
        Ok(())
    }

    fn violation(&self, node: usize, what: String) -> Violation {
        Violation { seed: self.seed, at_ns: self.now, node, what }
    }

    fn report(&self) -> Report {
        let mut stats = Stats::default();
        self.nodes.iter().for_each(|node| stats.add(node.qp.stats()));
        Report {
            trace: self.trace.clone().finalize(),
            finished_ns: self.now,
            frames: self.frames,
            dropped: self.nodes.iter().map(|node| node.host.dropped).sum(),
            stats,
        }
    }
}

/// Swarm testing: a seed picks for itself which faults happen, and how often.
fn swarm(dice: &mut StdRng) -> Faults {
    let mut pick = |most: f64| if dice.random() { dice.random_range(0.0..most) } else { 0.0 };
    Faults { loss: pick(0.3), dup: pick(0.2), reorder: pick(0.2), corrupt: pick(0.1), seed: dice.random() }
}

/// A third of the swarm is cut off now and then, in one direction or in both, for less than a connection's patience.
fn partitions(dice: &mut StdRng) -> Option<Partitions> {
    let towards = [None, Some(0), Some(1)][dice.random_range(0..3)];
    let lasting = dice.random_range(1_000..5_000_000);
    // Between two cuts there is time for the longest wait.
    let works = dice.random_range(2_000_000..4_000_000);
    let phase = dice.random_range(0..works);
    dice.random_bool(0.33).then_some(Partitions { every: works + lasting, lasting, phase, towards })
}
