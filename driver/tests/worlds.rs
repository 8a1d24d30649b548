//! Two engines and everything that queue pairs do, over networks that are near or far, quick or slow, and bad. A seed decides
//! everything, and every seed runs twice. `ROCI_SEEDS=A..B` runs other seeds than the usual ones.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use common::Wire;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use roci_driver::link::Link;
use roci_driver::link::sim::NetConfig;
use roci_driver::{Access, Dialect, MemoryRegion, Mtu, Operation, QpParams, SendWr, WcStatus, WorkCompletion};
use roci_protocol::sim::Faults;
use roci_testkit::{Swarm, World as _};

const SEEDS: Range<u64> = 0..500;
/// Work requests of each end, and how many of them at a time.
const REQUESTS: u64 = 40;
const OUTSTANDING: usize = 8;
/// The longest message.
const LONGEST: usize = 6000;
/// Places in a peer's region, each as long as the longest message; behind them is a counter.
const SLOTS: usize = 4;
const COUNTER: usize = SLOTS * LONGEST.next_multiple_of(8);
const RECEIVES: usize = 2 * OUTSTANDING;

/// What a run was like.
#[derive(PartialEq, Debug)]
struct Report {
    /// What the network carried, and when.
    frames: Option<u32>,
    ended_ns: u64,
    retransmitted: u64,
    missed: u64,
    corrupt: u64,
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

struct Scene {
    wire: Wire,
    dice: StdRng,
    regions: [MemoryRegion; 2],
    oracles: [Oracle; 2],
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let (net, faults, params) = (net(&mut dice, seed), faults(&mut dice, seed), params(&mut dice));
        let mut wire = Wire::over(net, Some(faults), params);
        wire.net().record();
        let all = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
        let regions = wire.ends.each_mut().map(|end| {
            let mut buffer = end.engine.buffer(COUNTER + 8).expect("memory");
            buffer.fill(0);
            end.engine.register(end.pd, buffer, all).expect("a free key")
        });
        for who in [0, 1] {
            (0..RECEIVES).for_each(|_| wire.post_recv(who, LONGEST));
        }
        Self { wire, dice, regions, oracles: Default::default() }
    }

    fn run(mut self) -> Report {
        let is_done = |oracle: &Oracle| oracle.posted == REQUESTS && oracle.outstanding == 0 && oracle.sent.is_empty();
        for _ in 0..1_000_000 {
            if self.oracles.iter().all(is_done) {
                return self.report();
            }
            for who in [0, 1] {
                self.post(who);
                self.judge(who);
            }
            self.wire.step();
        }
        panic!("no end in sight");
    }

    /// Posts a request of any kind, where there is room for it.
    fn post(&mut self, who: usize) {
        let oracle = &mut self.oracles[who];
        if oracle.posted == REQUESTS || oracle.outstanding == OUTSTANDING || oracle.sent.len() == OUTSTANDING {
            return;
        }
        let (number, rkey) = (oracle.posted, self.regions[1 - who].rkey());
        let slot = self.dice.random_range(0..SLOTS);
        let va = (slot * LONGEST.next_multiple_of(8)) as u64;
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
        self.wire.post(who, wr);
    }

    /// Looks at all that has ended at one end.
    fn judge(&mut self, who: usize) {
        while let Some(done) = {
            let end = &mut self.wire.ends[who];
            end.engine.poll_cq(end.cq)
        } {
            assert_eq!(done.status, WcStatus::Success, "{:?} {}", done.operation, done.wr_id);
            if done.operation == Operation::Recv {
                let expected = self.oracles[1 - who].sent.pop_front().expect("something was sent");
                assert!(done.buffer[..done.len] == *expected, "another message than the one that was sent");
                self.wire.post_recv(who, LONGEST);
            } else {
                self.oracles[who].check(&done);
            }
        }
    }

    fn report(&self) -> Report {
        let Self { wire, oracles, regions, .. } = self;
        for (who, oracle) in oracles.iter().enumerate() {
            let peer = &wire.ends[1 - who];
            for (slot, expected) in oracle.slots.iter().enumerate() {
                let mut bytes = vec![0; expected.len()];
                let at = slot * LONGEST.next_multiple_of(8);
                peer.engine.read_region(peer.pd, regions[1 - who], at, &mut bytes).expect("inside");
                assert!(bytes == *expected, "slot {slot} holds something else");
            }
        }
        let stats = wire.ends.each_ref().map(|end| end.engine.stats());
        let of_queue_pairs = stats.iter().map(|stats| stats.queue_pairs.retransmitted_packets);
        let corrupt = stats.iter().map(|stats| stats.malformed(roci_protocol::wire::Malformed::Icrc));
        Report {
            frames: wire.net().trace(),
            ended_ns: wire.clock.now(),
            retransmitted: of_queue_pairs.sum(),
            missed: wire.ends.iter().map(|end| end.engine.link(0).stats().rx_missed).sum(),
            corrupt: corrupt.sum(),
        }
    }
}

impl Oracle {
    fn check(&mut self, done: &WorkCompletion) {
        self.outstanding -= 1;
        if let Some(expected) = self.fetches.remove(&done.wr_id) {
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
        retry_limit: 100,
        ..QpParams::default()
    })
}

#[test]
fn engines_keep_their_promises_over_every_network_and_every_world_replays() {
    let swarm = Swarm::new("roci-driver", "worlds", SEEDS);
    let reports = swarm.run(|seed| Scene::new(seed).run());
    let counts: [fn(&Report) -> u64; 3] =
        [|report| report.retransmitted, |report| report.missed, |report| report.corrupt];
    let sums = counts.map(|count| reports.iter().map(count).sum::<u64>());
    assert!(!swarm.is_usual() || !sums.contains(&0), "the worlds were hard ones: {sums:?}");
}
