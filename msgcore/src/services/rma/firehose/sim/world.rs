//! The world: events in the order of virtual time, until there are none.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_protocol::Rkey;

use super::broken::{BrokenPromise, BrokenWorld};
use super::costs;
use super::oracle::{check_around, check_landing, check_sums};
use super::plan::{Death, Plan};
use super::station::{Landing, Station};
use crate::Rank;
use crate::services::rma::firehose::{Bucket, FirehoseStats};

/// Something that happens to a rank.
enum What {
    /// It begins.
    Begin,
    /// A message arrives.
    Message { from: Rank, bytes: Vec<u8> },
    /// An RDMA reaches its memory.
    Land { from: Rank, transfer: u64, bucket: Bucket, key: Rkey },
    /// An RDMA of its own is acknowledged.
    Acknowledged { transfer: u64 },
    /// It fails.
    Die,
    /// It hears that a peer is gone.
    Gone { peer: Rank },
}

/// Something that happens, ordered by time, and then by the order in which it was caused.
struct SimulatedEvent {
    at: u64,
    serial: u64,
    who: Rank,
    what: What,
}

impl Ord for SimulatedEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl PartialOrd for SimulatedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SimulatedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for SimulatedEvent {}

/// What a run was like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Report {
    /// What happened, and when: the same in each run.
    pub trace: u64,
    /// Counters of all ranks together.
    pub stats: FirehoseStats,
    /// Transfers that are complete.
    pub complete: u64,
    /// Transfers that failed: memory was refused, or the peer was gone.
    pub failed: u64,
    /// Messages that overtook an earlier one on the same way.
    pub overtaken: u64,
    /// What was measured after the warm-up.
    pub measure: Measure,
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measure {
    /// Of acquires, those that were hits.
    pub hit_rate: f64,
    /// Registrations for each transfer.
    pub pins: f64,
    /// Transfers per second, of all ranks together.
    pub rate: f64,
}

/// A world, which runs once.
pub struct FirehoseWorld {
    plan: Plan,
    stations: Vec<Station>,
    events: BinaryHeap<Reverse<SimulatedEvent>>,
    serial: u64,
    now: u64,
    dice: StdRng,
    dead: Option<Rank>,
    /// The latest arrival of a message on each way so far.
    latest: BTreeMap<(Rank, Rank), u64>,
    overtaken: u64,
    trace: u64,
    warm: Option<(u64, FirehoseStats, u64)>,
}

impl FirehoseWorld {
    /// A world that is to be run.
    pub fn new(plan: Plan) -> Self {
        let stations = (0..plan.ranks).map(|rank| Station::new(plan, rank)).collect();
        let dice = StdRng::seed_from_u64(!plan.seed);
        let (events, latest) = (BinaryHeap::new(), BTreeMap::new());
        let mut world = Self {
            plan,
            stations,
            events,
            serial: 0,
            now: 0,
            dice,
            dead: None,
            latest,
            overtaken: 0,
            trace: plan.seed,
            warm: None,
        };
        (0..plan.ranks).for_each(|rank| world.at(0, rank, What::Begin));
        if let Some(Death { rank, at }) = plan.death {
            world.at(at, rank, What::Die);
        }
        world
    }

    /// Runs it until nothing happens any more; says what went wrong.
    pub fn run(mut self) -> Result<Report, Box<BrokenWorld>> {
        self.drive().map_err(|promise| BrokenWorld { promise, at: self.now, plan: self.plan })?;
        Ok(self.report())
    }

    #[cfg(test)]
    pub(in crate::services::rma::firehose) fn engines(
        &mut self,
    ) -> impl Iterator<Item = &mut crate::services::rma::firehose::FirehoseEngine> {
        self.stations.iter_mut().map(|station| &mut station.engine)
    }

    fn drive(&mut self) -> Result<(), BrokenPromise> {
        while let Some(Reverse(SimulatedEvent { at, serial, who, what })) = self.events.pop() {
            self.now = at;
            if self.dead == Some(who) {
                continue;
            }
            self.trace = mix(self.trace ^ mix(at ^ mix(serial ^ (who as u64) << 48)));
            self.happen(who, what)?;
            self.drain(who)?;
            if self.plan.is_watched && self.dead != Some(who) {
                check_around(&self.stations, who, |peer| self.dead == Some(peer))?;
            }
            self.note_warmth();
        }
        for rank in (0..self.stations.len()).filter(|&rank| self.dead != Some(rank)) {
            self.stations[rank].check_end()?;
            check_sums(&self.stations, rank)?;
        }
        Ok(())
    }

    fn happen(&mut self, who: Rank, what: What) -> Result<(), BrokenPromise> {
        let now = self.now;
        let station = &mut self.stations[who];
        match what {
            What::Begin => Ok(()),
            // Its connection has ended.
            What::Message { from, .. } | What::Land { from, .. } if !station.knows(from) => Ok(()),
            What::Message { from, bytes } => {
                station.host.cost += costs::MESSAGE;
                let outcome = station.engine.on_message(&mut station.host, from.into(), &bytes);
                outcome.map_err(|breach| BrokenPromise::Breach { rank: who, from, breach })
            }
            What::Land { from, transfer, bucket, key } => {
                check_landing(station, from, bucket, key)?;
                let later = self.jitter();
                self.at(now + costs::RDMA + later, from, What::Acknowledged { transfer });
                Ok(())
            }
            What::Acknowledged { transfer } => station.acknowledged(transfer),
            What::Die => {
                self.dead = Some(who);
                for rank in (0..self.stations.len()).filter(|&rank| rank != who) {
                    let later = 1_000 + self.jitter();
                    self.at(now + later, rank, What::Gone { peer: who });
                }
                Ok(())
            }
            What::Gone { peer } => station.peer_gone(peer),
        }
    }

    /// Does what the rank's engine and application want, which is as many steps as it takes.
    fn drain(&mut self, who: Rank) -> Result<(), BrokenPromise> {
        let station = &mut self.stations[who];
        loop {
            station.begin()?;
            let ended = std::mem::take(&mut station.host.ended);
            if ended.is_empty() {
                break;
            }
            ended.into_iter().try_for_each(|(context, outcome)| station.go_on(context, outcome))?;
        }
        station.busy_until = station.busy_until.max(self.now) + std::mem::take(&mut station.host.cost);
        let done = station.busy_until;
        let (messages, landings) = (std::mem::take(&mut station.host.outbox), std::mem::take(&mut station.landings));
        for (peer, bytes) in messages {
            self.send(done, who, peer, bytes);
        }
        for Landing { peer, transfer, bucket, key } in landings {
            let at = done + costs::RDMA + self.jitter();
            self.at(at, peer, What::Land { from: who, transfer, bucket, key });
        }
        Ok(())
    }

    fn send(&mut self, at: u64, from: Rank, peer: Rank, bytes: Vec<u8>) {
        let at = at + costs::CROSSING + self.jitter();
        let latest = self.latest.entry((from, peer)).or_default();
        self.overtaken += u64::from(at < *latest);
        *latest = at.max(*latest);
        self.at(at, peer, What::Message { from, bytes });
    }

    fn at(&mut self, at: u64, who: Rank, what: What) {
        self.serial += 1;
        self.events.push(Reverse(SimulatedEvent { at, serial: self.serial, who, what }));
    }

    fn jitter(&mut self) -> u64 {
        if self.plan.jitter == 0 { 0 } else { self.dice.random_range(0..self.plan.jitter) }
    }

    /// The warm-up is over when all ranks together have done their share of it.
    fn note_warmth(&mut self) {
        let complete = self.complete();
        if self.warm.is_none() && complete >= self.plan.warm_up * self.plan.ranks as u64 {
            self.warm = Some((self.now, self.stats(), complete));
        }
    }

    fn complete(&self) -> u64 {
        self.stations.iter().map(|station| station.complete).sum()
    }

    fn stats(&self) -> FirehoseStats {
        let all = self.stations.iter().map(|station| station.engine.stats());
        all.fold(FirehoseStats::default(), |sum, stats| sum + stats)
    }

    fn report(&self) -> Report {
        let (complete, stats) = (self.complete(), self.stats());
        let failed = self.stations.iter().map(|station| station.failed).sum();
        let Self { trace, overtaken, .. } = *self;
        Report { trace, stats, complete, failed, overtaken, measure: self.measure(stats, complete) }
    }

    fn measure(&self, after: FirehoseStats, complete: u64) -> Measure {
        let (start, before, earlier) = self.warm.unwrap_or_default();
        let (transfers, time) = (complete - earlier, self.now - start);
        if transfers == 0 || time == 0 {
            return Measure::default();
        }
        let count = |of: fn(&FirehoseStats) -> u64| (of(&after) - of(&before)) as f64;
        let acquires = count(|stats| stats.hits + stats.pending_hits + stats.misses);
        Measure {
            hit_rate: count(|stats| stats.hits) / acquires,
            pins: count(|stats| stats.pins) / transfers as f64,
            rate: transfers as f64 * 1e9 / time as f64,
        }
    }
}

/// Spreads what differs in few bits over all of them (the end of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
