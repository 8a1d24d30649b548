//! A run: the world is driven until everything has ended, and is then looked at.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_msgcore::{Rank, Tag, WorkerEvent};

use crate::common::{TestWorker, World};
use crate::names::Names;
use crate::one_sided::{self, OneSidedTraffic};
use crate::oracle::{Oracle, Violation, ensure, mix};
use crate::plan::Plan;
use crate::programme::{Station, TAGS};
use crate::streams::{self, Streams};

/// A step while something happens, and the longest one while nothing does, in nanoseconds.
const STEP: u64 = 1_000;
const STRIDE: u64 = 20_000;
/// How long a station is cut off, at most, in nanoseconds: the patience of a connection is longer.
const LONGEST_PARTITION: u64 = 3_000_000;
/// Virtual time without an end of anything that is called a deadlock.
const PATIENCE: u64 = Duration::from_secs(8).as_nanos() as u64;

/// What a run was like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    /// What the applications saw, and when.
    pub(crate) trace: u64,
    pub(crate) ended: u64,
    pub(crate) cancelled: u64,
    pub(crate) faults: u64,
    pub(crate) stalls: u64,
    pub(crate) partitions: u64,
    pub(crate) deaths: u64,
    /// Frames that a queue had no place for.
    pub(crate) missed: u64,
    /// Bytes of streams.
    pub(crate) streamed: u64,
    /// One-sided operations, and active messages that were replied to.
    pub(crate) operations: u64,
    /// Workers whose engines are behind rings.
    pub(crate) dedicated: u64,
    /// Workers that are no ranks.
    pub(crate) strangers: u64,
    /// What the network carried, and when.
    pub(crate) frames: Option<u64>,
}

pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) world: World,
    pub(crate) names: Names,
    pub(crate) oracle: Oracle,
    pub(crate) dice: StdRng,
    pub(crate) streams: Streams,
    pub(crate) one_sided: OneSidedTraffic,
    stations: Vec<Station>,
    memory: Vec<usize>,
    stride: u64,
    trace: u64,
    ended: u64,
    last_end: u64,
    partitions: u64,
    /// When the network heals that is cut in two.
    heals_at: u64,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let plan = Plan::new(seed);
        let (mut world, names) = meet(&plan, seed);
        let one_sided = if plan.is_one_sided {
            OneSidedTraffic::open(&mut world, plan.opening, &names)
        } else {
            OneSidedTraffic::default()
        };
        let mut memory: Vec<_> = world.workers.iter().map(TestWorker::memory).collect();
        if plan.is_streaming {
            let rings = open_streams(&mut world, &names);
            for memory in &mut memory {
                *memory -= rings;
            }
        }
        if plan.configs[0].wireup == roci_msgcore::config::WireupTime::Static {
            let size = world.workers.len();
            for (who, worker) in world.workers.iter_mut().enumerate() {
                (0..size)
                    .filter(|&peer| peer != who)
                    .for_each(|peer| worker.connect(names.of(who, peer)).expect("it is there"));
            }
        }
        let stations = (0..world.workers.len()).map(Station::new).collect();
        let dice = StdRng::seed_from_u64(mix(seed));
        let oracle = Oracle::new(seed);
        Self {
            plan,
            world,
            names,
            oracle,
            dice,
            streams: Streams::default(),
            one_sided,
            stations,
            memory,
            stride: STEP,
            trace: seed,
            ended: 0,
            last_end: 0,
            partitions: 0,
            heals_at: 0,
        }
    }

    /// Runs it to its end; says what went wrong.
    pub(crate) fn finish(mut self) -> Result<Report, Violation> {
        let outcome = self.drive();
        Ok(outcome.map_err(|what| format!("{what}\nat {} ns\n{}", self.world.clock.now(), self.world.counters()))?)
    }

    fn drive(&mut self) -> Result<Report, Violation> {
        let actions = self.plan.actions;
        for action in 0..actions {
            self.kill(action);
            let who = self.dice.random_range(0..self.stations.len());
            if self.oracle.is_alive(who) {
                self.at_station(who, Station::act)?;
            }
            self.disturb(who);
            for _ in 0..self.dice.random_range(0..8) {
                self.step()?;
            }
            self.each(Station::look)?;
        }
        for tag in (0..TAGS).map(Tag::new).filter(|_| self.plan.is_selective).collect::<Vec<_>>() {
            let what = format!("all messages under tag {} come, whatever waits under others", tag.get());
            self.until(&what, |run| run.oracle.is_complete_under(tag), |station, run| station.receive_only(run, tag))?;
        }
        let is_complete = |run: &Self| {
            let is_alive = |rank| run.oracle.is_alive(rank);
            run.oracle.is_complete() && run.streams.are_drained(is_alive) && run.one_sided.is_idle(is_alive)
        };
        self.until("everything ends", is_complete, Station::drain)?;
        self.each(Station::cancel_all)?;
        self.until("nothing is left", |run| run.living().all(|who| run.stations[who].is_idle()), Station::look)?;
        self.oracle.check_order()?;
        one_sided::check(self)?;
        let outcome = self.until("all returns", |run| run.check_end().is_ok(), |_, _| Ok(()));
        outcome.map_err(|what| format!("{what}: {:?}", self.check_end()))?;
        Ok(self.report())
    }

    /// Lets a rank die whose last action was this one.
    fn kill(&mut self, action: usize) {
        if let Some((rank, last)) = self.plan.death
            && last == action
        {
            self.world.cut(rank);
            self.oracle.bury(rank);
        }
    }

    /// Cuts a station off for a while, now and then. Never again before the network has healed: by RDMA-CM a connection has
    /// no more than seven retries.
    fn disturb(&mut self, who: usize) {
        let is_whole = self.heals_at <= self.world.clock.now();
        if self.plan.partitions > 0.0 && self.dice.random_bool(self.plan.partitions) && is_whole {
            self.world.net.part(&[who]);
            self.partitions += 1;
            self.heals_at = self.world.clock.now() + self.dice.random_range(0..LONGEST_PARTITION);
        }
    }

    fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
        meanwhile: impl Fn(&mut Station, &mut Self) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        self.last_end = self.world.clock.now();
        while !is_so(self) {
            self.step()?;
            self.each(&meanwhile)?;
            let idle = self.world.clock.now() - self.last_end;
            ensure(idle < PATIENCE, || format!("never: {what}: {}", self.oracle.missing()))?;
        }
        Ok(())
    }

    fn each(&mut self, action: impl Fn(&mut Station, &mut Self) -> Result<(), Violation>) -> Result<(), Violation> {
        self.living().try_for_each(|who| self.at_station(who, &action))
    }

    fn living(&self) -> impl Iterator<Item = Rank> + use<> {
        let dead = self.oracle.dead();
        (0..self.stations.len()).filter(move |&who| Some(who) != dead)
    }

    fn at_station(
        &mut self,
        who: usize,
        action: impl Fn(&mut Station, &mut Self) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut station = std::mem::replace(&mut self.stations[who], Station::new(who));
        let outcome = action(&mut station, self);
        self.stations[who] = station;
        outcome
    }

    /// Time passes, quicker while nothing happens.
    fn step(&mut self) -> Result<(), Violation> {
        self.world.clock.advance(self.stride);
        if self.heals_at <= self.world.clock.now() {
            self.world.net.heal();
        }
        let mut happened = false;
        for who in self.living() {
            let worker = &mut self.world.workers[who];
            happened |= worker.progress();
            worker.inside().check_invariants().map_err(|violation| violation.to_string())?;
            if let Some(WorkerEvent::PeerGone { peer, error }) = worker.poll_event() {
                ensure(!self.oracle.is_alive(self.names.whom(who, peer)), || {
                    format!("rank {who} lost {peer}: {error}")
                })?;
            }
        }
        self.stride = if happened { STEP } else { (self.stride * 2).min(STRIDE) };
        Ok(())
    }

    /// An application has seen something end.
    pub(crate) fn note(&mut self, who: usize, what: u64) {
        self.ended += 1;
        self.last_end = self.world.clock.now();
        self.trace = mix(self.trace ^ mix(self.last_end ^ mix(who as u64 ^ mix(what))));
    }

    /// While nothing is under way, what one end may not send is what the other has not given back.
    fn check_credits(&self) -> Result<(), Violation> {
        let workers = &self.world.workers;
        for one in self.living() {
            for other in self.living() {
                let credits = |who: Rank, of| workers[who].inside().credits_of(self.names.of(who, of));
                let (here, there) = (credits(one, other), credits(other, one));
                for (lane, (ours, theirs)) in here.iter().zip(&there).enumerate() {
                    let is_whole = ours.available + theirs.kept == theirs.limit && ours.granted == theirs.limit;
                    ensure(is_whole, || format!("{one} to {other}, lane {lane}: {ours:?} and {theirs:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), Violation> {
        self.check_credits()?;
        for rank in self.living() {
            let (worker, memory) = (&self.world.workers[rank], self.memory[rank]);
            let now = worker.memory();
            ensure(worker.inside().unexpected_bytes() == 0, || format!("rank {rank} has unexpected messages left"))?;
            ensure(now == memory, || format!("rank {rank} had {memory} bytes, and has {now}"))?;
            let stats = worker.engine_stats().queue_pairs;
            let is_ready = !self.plan.is_per_peer || stats.out_of_buffer == 0;
            ensure(is_ready, || format!("rank {rank} ran out of receives"))?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let stats = self.world.workers.iter().map(TestWorker::stats);
        let (cancelled, stalls) = stats.fold((0, 0), |(cancelled, stalls), stats| {
            (cancelled + stats.cancelled, stalls + stats.credit_stalls + stats.buffer_stalls)
        });
        let faults = self.world.workers.iter().map(TestWorker::injected_faults).sum();
        let (partitions, missed, frames) = (self.partitions, self.world.net.missed(), self.world.net.trace());
        let deaths = self.oracle.dead().map_or(0, |_| 1);
        let (trace, ended, streamed, operations) =
            (self.trace, self.ended, self.streams.total(), self.one_sided.total());
        let strangers = if self.plan.are_strangers { self.living().count() as u64 } else { 0 };
        let dedicated = self.world.workers.iter().filter(|worker| worker.is_dedicated()).count() as u64;
        Report {
            trace,
            ended,
            cancelled,
            faults,
            stalls,
            partitions,
            deaths,
            missed,
            streamed,
            operations,
            dedicated,
            strangers,
            frames,
        }
    }
}

/// The workers of a plan, and what they call each other.
fn meet(plan: &Plan, seed: u64) -> (World, Names) {
    let is_dedicated = |who: usize| plan.are_dedicated[who];
    if plan.are_strangers {
        let mut world = World::of_both_strangers(plan.net, &plan.configs, seed, is_dedicated);
        let names = Names::of_strangers(&mut world);
        (world, names)
    } else {
        let world = World::of_both(plan.net, &plan.configs, seed, is_dedicated);
        (world, Names::of_ranks(plan.configs.len()))
    }
}

/// Sets the memory of all streams aside, and returns how much that is of each worker. Rank 0 is the first, so it has nothing else
/// to do meanwhile: the engines of the others may take their turns in these calls, and begin to connect.
fn open_streams(world: &mut World, names: &Names) -> usize {
    let size = world.workers.len();
    let mut rings = 0;
    for (who, worker) in world.workers.iter_mut().enumerate() {
        let before = worker.memory();
        worker.configure_streams(streams::CONFIG).expect("a configuration");
        for peer in (0..size).filter(|&peer| peer != who) {
            worker.stream(names.of(who, peer)).expect("memory");
        }
        if who == 0 {
            rings = before - worker.memory();
        }
    }
    rings
}
