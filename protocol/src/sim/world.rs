//! The world's loop: post work, move time to the next event, check what completes.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use thiserror::Error;

use super::deviation::Deviation;
use super::ending::VictimFault;
use super::faults::{FaultInjector, Faults};
use super::forger::Forger;
use super::network::{SimNetwork, Tampering};
use super::node::{Node, READ_KEY, READABLE, WORD_KEY, WORDS, WRITABLE, WRITE_KEY};
use super::oracle::Oracle;
use super::plan::SimPlan;
use crate::rc::{AtomicOperation, Operation, RecvRequest, Remote, SendOp, SendRequest, State, Stats, WcStatus};
use crate::{Access, Nanos, Rkey};

/// Requests that each node posts.
const REQUESTS: u64 = 150;
/// Of so many packets that are kept, some are executed.
const MANY_HELD: u64 = 50;
/// Virtual time after which a run that has not finished has stalled.
const STALL_NS: Nanos = 600 * 1_000_000_000;
/// Most messages have no more full packets.
const MAX_PACKETS: usize = 6;
/// The longest message, in bytes.
const LONG: usize = 32 << 10;
/// How long an end does not poll, at most: less than the peer's patience.
const LONGEST_NAP_NS: Nanos = 5_000_000;

/// The result of a simulated run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimReport {
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
    /// Which of [`super::dimensions`] this world had.
    pub dimensions: Vec<&'static str>,
}

/// A broken promise, with the seed that replays it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("seed {seed}: node {node} at {at_ns} ns: {what}")]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// When, in virtual time.
    pub at_ns: Nanos,
    /// Which node.
    pub node: usize,
    /// What was broken.
    #[source]
    pub what: Deviation,
}

/// Runs the world of one seed to its end.
///
/// `faults` overrides the plan that the seed would choose for itself (a swarm: each seed exaggerates
/// some faults and leaves others out).
pub fn run(seed: u64, faults: Option<Faults>) -> Result<SimReport, Violation> {
    SimWorld::new(seed, faults, true).run()
}

/// The same with every packet parsed in full, and every request sent from the queue: nothing may be different.
pub fn run_without_fast_path(seed: u64, faults: Option<Faults>) -> Result<SimReport, Violation> {
    SimWorld::new(seed, faults, false).run()
}

/// What was posted on a node.
#[derive(Default)]
struct PostedWork {
    /// Requests, which is also the next one's name.
    requests: u64,
    /// Receives that are not complete.
    receives: usize,
    /// The node's window that will be valid once all it posted is done.
    bound: Option<Rkey>,
}

impl PostedWork {
    /// Counts a request, and names it.
    fn next_request(&mut self) -> u64 {
        let wr_id = self.requests;
        self.requests += 1;
        wr_id
    }
}

/// The frames that arrived.
struct ArrivalTrace {
    hash: crc32fast::Hasher,
    frames: u64,
}

impl ArrivalTrace {
    fn new() -> Self {
        Self { hash: crc32fast::Hasher::new(), frames: 0 }
    }

    fn add(&mut self, now: Nanos, node: usize, frame: &[u8]) {
        self.frames += 1;
        self.hash.update(&now.to_le_bytes());
        self.hash.update(&[node as u8]);
        self.hash.update(frame);
    }
}

/// Two nodes, and the network between them.
struct SimWorld {
    seed: u64,
    dice: StdRng,
    plan: SimPlan,
    now: Nanos,
    network: SimNetwork,
    nodes: [Node; 2],
    /// `oracles[n]` judges what node n requested.
    oracles: [Oracle; 2],
    /// By node.
    posted: [PostedWork; 2],
    mtu: usize,
    /// The work is done: only the nodes themselves disturb the end.
    is_ending: bool,
    /// When the region goes that the peer of the victim reads.
    revocation: Option<(Nanos, usize)>,
    trace: ArrivalTrace,
}

impl SimWorld {
    fn new(seed: u64, faults: Option<Faults>, has_fast_path: bool) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let plan = SimPlan::draw(&mut dice, faults);
        let mut nodes = [0, 1].map(|node| Node::new(node, plan.configs[node].clone(), has_fast_path));
        for node in &mut nodes {
            for state in [State::Rtr, State::Rts] {
                node.qp.modify(state).expect("the way up is in the table");
            }
        }
        let injector = FaultInjector::new(plan.faults, seed);
        let network = SimNetwork::new(injector, seed, plan.jitter_ns, plan.capacity)
            .with_partitions(plan.partitions)
            .with_latency(plan.latency_ns)
            .with_forger(Forger::new(seed, plan.forgeries))
            .with_marks(plan.marks);
        Self {
            seed,
            dice,
            mtu: plan.configs[0].mtu.bytes(),
            plan,
            now: 0,
            network,
            nodes,
            oracles: [Oracle::new(), Oracle::new()],
            posted: [PostedWork::default(), PostedWork::default()],
            is_ending: false,
            revocation: None,
            trace: ArrivalTrace::new(),
        }
    }

    fn run(&mut self) -> Result<SimReport, Violation> {
        self.run_until_done()?;
        for node in 0..2 {
            let verdict = self.oracles[node].check_image(&self.nodes[1 - node].host);
            verdict.map_err(|what| self.violation(1 - node, what))?;
        }
        self.check_use_of_held()?;
        self.is_ending = true;
        self.end();
        self.run_until_done()?;
        Ok(self.report())
    }

    fn run_until_done(&mut self) -> Result<(), Violation> {
        while !self.is_done() {
            for node in 0..2 {
                if !self.is_ending {
                    self.post_work(node);
                    self.disturb(node);
                }
                if self.nodes[node].is_awake(self.now) {
                    self.nodes[node].pump(self.now, &mut self.network);
                }
            }
            self.step()?;
            for node in 0..2 {
                self.nodes[node].qp.check();
                self.check(node)?;
            }
        }
        Ok(())
    }

    /// Packets are kept to be executed: one that is forgotten comes again, which shows only on the wire. Forged ones
    /// are kept as well, until they expire.
    fn check_use_of_held(&self) -> Result<(), Violation> {
        for (number, node) in self.nodes.iter().enumerate() {
            let stats = node.qp.stats();
            let kept = stats.rx_held.saturating_sub(stats.rx_held_expired);
            if kept >= MANY_HELD && stats.rx_held_executed == 0 {
                return Err(self.violation(number, Deviation::KeptInVain(kept)));
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.posted.iter().all(|posted| posted.requests >= REQUESTS) && self.oracles.iter().all(Oracle::is_satisfied)
    }

    /// Moves time to the next event and lets it happen.
    fn step(&mut self) -> Result<(), Violation> {
        let events = self.nodes.iter().filter_map(|node| node.next_event(self.now));
        let revocation = self.revocation.map(|(at, _)| at);
        let next = events.chain(self.network.next_arrival()).chain(revocation).min();
        // Nothing in flight and no timer: only the world's own posting can go on, and it may dawdle.
        self.now = next.unwrap_or(self.now + 100_000).max(self.now);
        if self.now > STALL_NS {
            return Err(self.violation(0, Deviation::Stalled));
        }
        if let Some((_, node)) = self.revocation.take_if(|(at, _)| *at <= self.now) {
            self.nodes[node].host.is_revoked = true;
        }
        while let Some(arrival) = self.network.take(self.now) {
            self.trace.add(self.now, arrival.node, &arrival.frame);
            self.nodes[arrival.node].arrive(self.now, arrival.frame, &mut self.network);
        }
        for node in &mut self.nodes {
            node.wake(self.now, &mut self.network);
        }
        Ok(())
    }

    /// What an application and its host do to a queue pair under traffic.
    fn disturb(&mut self, node: usize) {
        let SimPlan { naps, drains, expiries, .. } = self.plan;
        let node = &mut self.nodes[node];
        if naps > 0.0 && self.dice.random_bool(naps) {
            node.sleep(self.now + self.dice.random_range(0..LONGEST_NAP_NS));
        }
        if drains > 0.0 && self.dice.random_bool(drains) {
            let next = if node.qp.state() == State::Sqd { State::Rts } else { State::Sqd };
            node.qp.modify(next).expect("both ways are in the table");
        }
        if expiries > 0.0 && self.dice.random_bool(expiries) {
            node.give_back_held();
        }
    }

    /// Posts the victim's last request, and what is flushed behind it.
    fn end(&mut self) {
        for node in &mut self.nodes {
            node.sleep(self.now);
            if node.qp.state() == State::Sqd {
                node.qp.modify(State::Rts).expect("the way back is in the table");
            }
        }
        let victim = self.dice.random_range(0..2);
        let peer = 1 - victim;
        let ending = self.plan.ending;
        let (op, len) = self.last_request(victim);
        match ending {
            VictimFault::Peace => return,
            VictimFault::Revoked => {
                self.revocation = Some((self.now + self.dice.random_range(0..4 * self.plan.latency_ns), peer));
            }
            VictimFault::TooLong => {
                self.post_recv_of(peer, len - 1);
                self.oracles[victim].expect_failed_receive(&[WcStatus::LocLenErr]);
            }
            VictimFault::Reserved => self.network.tamper(Tampering::ReserveOpcode),
            VictimFault::Silence => self.network.tamper(Tampering::Cut),
            VictimFault::BadResponse => self.network.tamper(Tampering::ShortenResponse),
            VictimFault::WrongKey | VictimFault::NotReady | VictimFault::NotBound | VictimFault::OwnFault => {}
        }
        self.post_last(victim, op, len);
        let sent = self.nodes[victim].qp.stats().tx_requests;
        self.nodes[victim].pump(self.now, &mut self.network);
        // The peer's word counts for nothing where the request has not left.
        let has_left = self.nodes[victim].qp.stats().tx_requests > sent || ending != VictimFault::OwnFault;
        self.oracles[victim].or_ends_with(ending.statuses(has_left && self.plan.hears_refusals()));
        if ending != VictimFault::Revoked {
            for _ in 0..2 {
                self.post_last(victim, SendOp::Write { remote: Remote { va: 0, rkey: WRITE_KEY }, imm: None }, 8);
                self.oracles[victim].or_ends_with(&[WcStatus::WrFlushErr]);
            }
        }
        if ending == VictimFault::OwnFault {
            self.nodes[peer].fail(self.now, &mut self.network);
        }
    }

    /// The request that the ending is about.
    fn last_request(&mut self, victim: usize) -> (SendOp, usize) {
        let remote = |va: usize, rkey| Remote { va: va as u64, rkey };
        let write = (SendOp::Write { remote: remote(0, WRITE_KEY), imm: None }, 8);
        match self.plan.ending {
            VictimFault::WrongKey => match self.dice.random_range(0..4) {
                0 => (SendOp::Read { remote: remote(READABLE - 4, READ_KEY) }, 8),
                1 => (SendOp::Read { remote: remote(0, Rkey(0xdead)) }, 8),
                2 => (SendOp::Write { remote: remote(0, READ_KEY), imm: None }, self.mtu + 1),
                _ => {
                    let operation = AtomicOperation::FetchAdd { add: 1 };
                    (SendOp::Atomic { remote: remote(0, WRITE_KEY), operation }, 8)
                }
            },
            VictimFault::Revoked => (SendOp::Read { remote: remote(0, READ_KEY) }, LONG),
            VictimFault::TooLong => (SendOp::Send { imm: None }, self.dice.random_range(2..3 * self.mtu)),
            VictimFault::NotReady => (SendOp::Send { imm: None }, 8),
            VictimFault::BadResponse => (SendOp::Read { remote: remote(0, READ_KEY) }, 8),
            VictimFault::NotBound => {
                let window = Rkey(0x7000_0000);
                self.nodes[victim].host.windows.insert(window.0);
                let access = Access::REMOTE_WRITE;
                (SendOp::BindWindow { window, region: WRITE_KEY, va: 0, len: 8, access }, 0)
            }
            _ => write,
        }
    }

    fn post_last(&mut self, node: usize, op: SendOp, len: usize) {
        let wr_id = self.posted[node].next_request();
        match op {
            SendOp::Read { remote } if self.plan.ending == VictimFault::Revoked => {
                let at = remote.va as usize;
                self.oracles[node].expect_read(wr_id, &self.nodes[1 - node].host.readable[at..at + len]);
            }
            _ => self.oracles[node].expect_local(wr_id, op.operation()),
        }
        let (buffer, len) = (vec![0; len], len as u32);
        let request =
            SendRequest { wr_id, op, buffer, len, signaled: true, solicited: false, fence: false, ack_req: true };
        self.nodes[node].qp.post_send(request).expect("nothing is outstanding");
    }

    fn post_work(&mut self, node: usize) {
        // Receives come late now and then, so that RNR NAKs happen.
        let due = self.oracles[1 - node].receives_due();
        if self.posted[node].receives < due.min(8) && self.dice.random_bool(0.7) {
            self.post_recv(node);
        }
        while self.posted[node].requests < REQUESTS && self.nodes[node].qp.sends_outstanding() < 16 {
            if self.dice.random_bool(0.3) {
                break;
            }
            self.post_send(node);
        }
    }

    /// Posts a receive, now and then just as long as the message that it waits for.
    fn post_recv(&mut self, node: usize) {
        let exact = self.oracles[1 - node].receive_len(self.posted[node].receives);
        let long = LONG.max(self.mtu * MAX_PACKETS);
        let len = exact.filter(|_| self.dice.random_bool(0.3)).unwrap_or(long);
        self.post_recv_of(node, len);
    }

    fn post_recv_of(&mut self, node: usize, len: usize) {
        self.posted[node].receives += 1;
        let request = RecvRequest { wr_id: 0, buffer: vec![0; len], len: len as u32 };
        let Node { qp, host, .. } = &mut self.nodes[node];
        if qp.config().shared_receives {
            host.shared.push_back(request);
        } else {
            qp.post_recv(request).expect("fewer than the depth are posted");
        }
    }

    fn post_send(&mut self, node: usize) {
        let wr_id = self.posted[node].next_request();
        let len = self.message_len();
        let imm = self.dice.random_bool(0.3).then(|| self.dice.random());
        let solicited = self.dice.random_bool(0.2);
        let (op, buffer) = match self.dice.random_range(0..16) {
            0..4 => {
                let bytes = self.random_bytes(len);
                self.oracles[node].expect_send(wr_id, &bytes, (imm, None), solicited);
                (SendOp::Send { imm }, bytes)
            }
            4 => {
                let bytes = self.random_bytes(len);
                let rkey = Rkey(wr_id as u32);
                self.nodes[1 - node].host.windows.insert(rkey.0);
                self.oracles[node].expect_send(wr_id, &bytes, (None, Some(rkey)), solicited);
                (SendOp::SendInvalidate { rkey }, bytes)
            }
            5 => (self.bind_or_end_a_window(node, wr_id), Vec::new()),
            6..8 => (self.atomic(node, wr_id), vec![0; 8]),
            8..12 => {
                let va = self.dice.random_range(0..=WRITABLE - len) as u64;
                let bytes = self.random_bytes(len);
                self.oracles[node].expect_write(wr_id, va, &bytes, imm, solicited);
                (SendOp::Write { remote: Remote { va, rkey: WRITE_KEY }, imm }, bytes)
            }
            _ => {
                let va = self.dice.random_range(0..=READABLE - len);
                self.oracles[node].expect_read(wr_id, &self.nodes[1 - node].host.readable[va..va + len]);
                (SendOp::Read { remote: Remote { va: va as u64, rkey: READ_KEY } }, vec![0; len])
            }
        };
        let fence = self.dice.random_bool(0.1);
        let ack_req = self.dice.random();
        let len = buffer.len() as u32;
        let request = SendRequest { wr_id, op, buffer, len, signaled: true, solicited, fence, ack_req };
        // Calls come singly, or in a list that is sent at its end.
        let node = &mut self.nodes[node];
        if self.dice.random() && node.is_awake(self.now) {
            node.post_and_send(self.now, request, &mut self.network);
        } else {
            node.qp.post_send(request).expect("fewer than the depth are outstanding");
        }
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
        let bound = &mut self.posted[node].bound;
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
        let mtu = self.mtu;
        match self.dice.random_range(0..8) {
            0 => 0,
            1 => self.dice.random_range(1..5),
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            5 => self.dice.random_range(0..=LONG),
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
                Operation::Recv | Operation::RecvRdmaWithImm => {
                    self.posted[node].receives -= 1;
                    self.oracles[1 - node].check_recv(&done, &self.nodes[node].host)
                }
                _ => self.oracles[node].check_send(&done, &self.nodes[1 - node].host),
            };
            verdict.map_err(|what| self.violation(node, what))?;
        }
        Ok(())
    }

    fn violation(&self, node: usize, what: Deviation) -> Violation {
        Violation { seed: self.seed, at_ns: self.now, node, what }
    }

    fn report(&self) -> SimReport {
        let mut stats = Stats::default();
        self.nodes.iter().for_each(|node| stats.add(node.qp.stats()));
        SimReport {
            trace: self.trace.hash.clone().finalize(),
            finished_ns: self.now,
            frames: self.trace.frames,
            dropped: self.nodes.iter().map(|node| node.host.dropped).sum(),
            stats,
            dimensions: self.plan.dimensions(),
        }
    }
}
