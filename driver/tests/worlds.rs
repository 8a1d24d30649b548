//! Two engines and everything that queue pairs do, several of them side by side, over networks that are near or far, quick or
//! slow, and bad. Queue pairs go under their traffic, and others come; ends do not poll for a while. Some ends have no fast path, and
//! some requests wait for the doorbell. A seed decides everything, and every seed runs twice. `ROCI_SEEDS=A..B` runs other seeds than the usual ones.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use common::Wire;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use roci_driver::link::sim::NetConfig;
use roci_driver::{
    Access, CompletionQueue, Dialect, MemoryRegion, Mtu, Operation, QpParams, QueuePair, SendWr, WcStatus,
    WorkCompletion,
};
use roci_protocol::sim::Faults;
use roci_protocol::wire::Malformed;
use roci_testkit::{Swarm, World as _, poll_and_check};

const SEEDS: Range<u64> = 0..500;
/// Work requests of each end of a lane, and how many of them at a time.
const REQUESTS: u64 = 30;
const OUTSTANDING: usize = 8;
/// The longest message.
const LONGEST: usize = 6000;
/// Places in a peer's region, each as long as the longest message; behind them is a counter.
const SLOTS: usize = 4;
const SLOT: usize = LONGEST.next_multiple_of(8);
const COUNTER: usize = SLOTS * SLOT;
const RECEIVES: usize = 2 * OUTSTANDING;
/// For how many steps an end does not poll, at most.
const LONGEST_NAP: u64 = 300;
/// How often queue pairs go under their traffic, at most: the work of others is to end.
const MOST_DESTROYED: u64 = 6;
const PATIENCE: usize = 1_000_000;

/// What a run was like.
#[derive(PartialEq, Debug)]
struct Report {
    /// What the network carried, and when.
    frames: Option<u64>,
    ended_ns: u64,
    retransmitted: u64,
    missed: u64,
    corrupt: u64,
    destroyed: u64,
    flushed: u64,
    naps: u64,
}

/// What an end has asked of its peer and must get.
#[derive(Default)]
struct Oracle {
    posted: u64,
    /// What the peer receives next.
    sent: VecDeque<Vec<u8>>,
    /// What lies in each slot of the peer's once all is done that was posted.
    slots: [Vec<u8>; SLOTS],
    adds: u64,
    /// What READs and atomics return.
    fetches: BTreeMap<u64, Vec<u8>>,
    outstanding: usize,
}

/// A queue pair at each end, connected with the other.
struct Lane {
    qps: [QueuePair; 2],
    cqs: [CompletionQueue; 2],
    regions: [MemoryRegion; 2],
    oracles: [Oracle; 2],
    /// It is to go under its traffic.
    is_doomed: bool,
}

struct Scene {
    wire: Wire,
    dice: StdRng,
    params: [QpParams; 2],
    lanes: Vec<Lane>,
    /// How often queue pairs go, and ends stop to poll.
    disturbance: f64,
    /// Steps until an end polls again.
    naps: [u64; 2],
    report: Report,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let (net, faults, params) = (net(&mut dice, seed), faults(&mut dice, seed), params(&mut dice));
        let mut wire = Wire::over(net, Some(faults), params.clone());
        for end in &mut wire.ends {
            end.engine.set_fast_path(dice.random_bool(0.7));
        }
        wire.net().record();
        let disturbance = if dice.random() { 0.002 } else { 0.0 };
        let (lanes, naps) = (Vec::new(), [0; 2]);
        let count = dice.random_range(1..=4);
        let report = Report {
            frames: None,
            ended_ns: 0,
            retransmitted: 0,
            missed: 0,
            corrupt: 0,
            destroyed: 0,
            flushed: 0,
            naps: 0,
        };
        let mut scene = Self { wire, dice, params, lanes, disturbance, naps, report };
        for _ in 0..count {
            let lane = scene.connect();
            scene.lanes.push(lane);
        }
        scene
    }

    fn connect(&mut self) -> Lane {
        let params = &self.params;
        let mut number = 0;
        let made = self.wire.ends.each_mut().map(|end| {
            let cq = end.engine.create_cq(64);
            let qp = end.engine.create_qp(0, end.pd, cq).expect("room");
            let address = end.engine.address_of(&qp, &params[number]);
            number += 1;
            (qp, cq, address)
        });
        let [(near, near_cq, here), (far, far_cq, there)] = made;
        let near = self.wire.ends[0].engine.connect(near, &there, &params[0]).expect("one IP version");
        let far = self.wire.ends[1].engine.connect(far, &here, &params[1]).expect("one IP version");
        let all = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
        let regions = self.wire.ends.each_mut().map(|end| {
            let mut buffer = end.engine.buffer(COUNTER + 8).expect("memory");
            buffer.fill(0);
            end.engine.register(end.pd, buffer, all).expect("a free key")
        });
        let (oracles, is_doomed) = (Default::default(), false);
        let lane = Lane { qps: [near, far], cqs: [near_cq, far_cq], regions, oracles, is_doomed };
        for who in [0, 1] {
            (0..RECEIVES).for_each(|_| self.post_recv(&lane, who));
        }
        lane
    }

    fn run(mut self) -> Report {
        for _ in 0..PATIENCE {
            if self.lanes.iter().all(Lane::is_done) {
                return self.end();
            }
            for number in 0..self.lanes.len() {
                let mut lane = self.lanes.swap_remove(number);
                for who in [0, 1] {
                    self.post(&mut lane, who);
                    self.judge(&mut lane, who);
                }
                let lane = if lane.is_doomed { self.replace(lane) } else { lane };
                self.lanes.push(lane);
                let last = self.lanes.len() - 1;
                self.lanes.swap(number, last);
            }
            self.disturb();
            self.step();
        }
        panic!("no end in sight");
    }

    /// Lets a moment pass, at the ends that poll.
    fn step(&mut self) {
        self.wire.clock.advance(Wire::STEP_NS);
        for (end, nap) in self.wire.ends.iter_mut().zip(&mut self.naps) {
            if *nap > 0 {
                *nap -= 1;
            } else {
                poll_and_check(&mut end.engine);
            }
        }
    }

    fn disturb(&mut self) {
        if self.disturbance == 0.0 || !self.dice.random_bool(self.disturbance) {
            return;
        }
        if self.dice.random() && self.report.destroyed < MOST_DESTROYED {
            let which = self.dice.random_range(0..self.lanes.len());
            self.lanes[which].is_doomed = true;
        } else {
            let who = self.dice.random_range(0..2);
            self.naps[who] = self.dice.random_range(0..LONGEST_NAP);
            self.report.naps += 1;
        }
    }

    /// Both queue pairs of a lane go under their traffic: whatever is under way has ended, well or flushed, and another lane
    /// takes its place.
    fn replace(&mut self, mut lane: Lane) -> Lane {
        let first = self.dice.random_range(0..2);
        for who in [first, 1 - first] {
            self.wire.ends[who].engine.destroy_qp(lane.qps[who]);
            self.judge(&mut lane, who);
            assert_eq!(lane.oracles[who].outstanding, 0, "each work request has ended");
            let end = &mut self.wire.ends[who];
            end.engine.deregister(lane.regions[who]).expect("it was registered");
        }
        self.report.destroyed += 1;
        self.connect()
    }

    /// Posts a request of any kind, where there is room for it.
    fn post(&mut self, lane: &mut Lane, who: usize) {
        let (rkey, oracle) = (lane.regions[1 - who].rkey(), &mut lane.oracles[who]);
        if oracle.posted == REQUESTS || oracle.outstanding == OUTSTANDING || oracle.sent.len() == OUTSTANDING {
            return;
        }
        let number = oracle.posted;
        let slot = self.dice.random_range(0..SLOTS);
        let va = (slot * SLOT) as u64;
        let mut bytes = vec![0; self.dice.random_range(0..=LONGEST)];
        self.dice.fill(&mut bytes[..]);
        oracle.posted += 1;
        oracle.outstanding += 1;
        let wr = match self.dice.random_range(0..4) {
            0 => {
                oracle.sent.push_back(bytes.clone());
                SendWr::send(number, self.wire.buffer(who, &bytes))
            }
            1 => {
                oracle.slots[slot].clone_from(&bytes);
                // A READ that is still answered, or answered again, must not see it (IBTA 10.8.3.3).
                SendWr::write(number, self.wire.buffer(who, &bytes), rkey, va).fenced()
            }
            2 => {
                let expected = oracle.slots[slot].clone();
                let room = self.wire.buffer(who, &vec![0; expected.len()]);
                oracle.fetches.insert(number, expected);
                SendWr::read(number, room, rkey, va)
            }
            _ => {
                oracle.fetches.insert(number, oracle.adds.to_ne_bytes().to_vec());
                oracle.adds += 3;
                SendWr::fetch_add(number, self.wire.buffer(who, &[0; 8]), rkey, COUNTER as u64, 3)
            }
        };
        let rings = self.dice.random();
        let engine = &mut self.wire.ends[who].engine;
        let posted = if rings { engine.post_send(lane.qps[who], wr) } else { engine.queue_send(lane.qps[who], wr) };
        posted.expect("accepted");
    }

    fn post_recv(&mut self, lane: &Lane, who: usize) {
        let buffer = self.wire.buffer(who, &[0; LONGEST]);
        let engine = &mut self.wire.ends[who].engine;
        engine.post_recv(lane.qps[who], 0, buffer).expect("accepted");
    }

    /// Looks at all that has ended at one end of a lane.
    fn judge(&mut self, lane: &mut Lane, who: usize) {
        while let Some(done) = self.wire.ends[who].engine.poll_cq(lane.cqs[who]) {
            let is_flushed = lane.is_doomed && done.status == WcStatus::WrFlushErr;
            self.report.flushed += u64::from(is_flushed);
            assert!(is_flushed || done.status == WcStatus::Success, "{:?} {:?}", done.operation, done.status);
            if done.operation != Operation::Recv {
                lane.oracles[who].check(&done);
            } else if !is_flushed {
                let expected = lane.oracles[1 - who].sent.pop_front().expect("something was sent");
                assert!(done.buffer[..done.len] == *expected, "another message than the one that was sent");
                if !lane.is_doomed {
                    self.post_recv(lane, who);
                }
            }
        }
    }

    fn end(self) -> Report {
        let Self { wire, lanes, report, .. } = self;
        for lane in &lanes {
            for (who, oracle) in lane.oracles.iter().enumerate() {
                let (peer, region) = (&wire.ends[1 - who], lane.regions[1 - who]);
                for (slot, expected) in oracle.slots.iter().enumerate() {
                    let mut bytes = vec![0; expected.len()];
                    peer.engine.read_region(peer.pd, region, slot * SLOT, &mut bytes).expect("inside");
                    assert!(bytes == *expected, "slot {slot} holds something else");
                }
            }
        }
        let stats = wire.ends.each_ref().map(|end| end.engine.stats());
        let sum = |count: fn(&roci_driver::EngineStats) -> u64| stats.iter().map(count).sum();
        Report {
            frames: wire.net().trace(),
            ended_ns: wire.clock.now(),
            missed: wire.net().missed(),
            retransmitted: sum(|stats| stats.queue_pairs.retransmitted_packets),
            corrupt: sum(|stats| stats.malformed(Malformed::Icrc)),
            ..report
        }
    }
}

impl Lane {
    fn is_done(&self) -> bool {
        let is_done = |oracle: &Oracle| oracle.posted == REQUESTS && oracle.outstanding == 0 && oracle.sent.is_empty();
        self.oracles.iter().all(is_done)
    }
}

impl Oracle {
    fn check(&mut self, done: &WorkCompletion) {
        self.outstanding -= 1;
        let fetched = self.fetches.remove(&done.wr_id).filter(|_| done.status.is_success());
        if let Some(expected) = fetched {
            assert!(done.buffer[..] == *expected, "{:?} {} returned other bytes", done.operation, done.wr_id);
        }
    }
}

fn net(dice: &mut StdRng, seed: u64) -> NetConfig {
    let near = NetConfig { seed, ..NetConfig::default() };
    match dice.random_range(0..4) {
        0 => NetConfig { latency_ns: dice.random_range(1_000..300_000), ..near },
        1 => NetConfig { latency_ns: 5_000, jitter_ns: dice.random_range(1_000..50_000), ..near },
        2 => {
            NetConfig { rate: Some(dice.random_range(1..10) * 1_000_000_000), queue: dice.random_range(8..64), ..near }
        }
        _ => near,
    }
}

fn faults(dice: &mut StdRng, seed: u64) -> Faults {
    let mut some = |most: f64| if dice.random() { dice.random_range(0.0..most) } else { 0.0 };
    Faults { loss: some(0.1), dup: some(0.1), reorder: some(0.1), corrupt: some(0.05), seed }
}

fn params(dice: &mut StdRng) -> [QpParams; 2] {
    let dialect = if dice.random() { Dialect::Rocinante } else { Dialect::Verbs };
    let mtu = *[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096].choose(dice).expect("some");
    [(); 2].map(|()| QpParams {
        dialect,
        mtu,
        window: *[4, 32, 128].choose(dice).expect("some"),
        max_rd_atomic: *[1, 4, 16].choose(dice).expect("some"),
        ack_timeout_ns: dice.random_range(100_000..1_000_000),
        ack_timeout_max_ns: 8_000_000,
        retry_limit: 250,
        ..QpParams::default()
    })
}

/// What makes a world a hard one.
type Count = fn(&Report) -> u64;

#[test]
fn engines_keep_their_promises_over_every_network_and_every_world_replays() {
    let swarm = Swarm::new("roci-driver", "worlds", SEEDS);
    let reports = swarm.run(|seed| Scene::new(seed).run());
    let counts: [(&str, Count); 6] = [
        ("retransmitted", |report| report.retransmitted),
        ("missed", |report| report.missed),
        ("corrupt", |report| report.corrupt),
        ("destroyed", |report| report.destroyed),
        ("flushed", |report| report.flushed),
        ("naps", |report| report.naps),
    ];
    for (name, count) in counts {
        let sum: u64 = reports.iter().map(count).sum();
        assert!(!swarm.is_usual() || sum > 0, "the worlds were hard ones, and {name} is 0");
    }
}
