//! What a seed decides before anything happens: the terms of both ends, the wire, who disturbs it, and how it ends.

use rand::Rng;
use rand::rngs::StdRng;

use super::ending::VictimFault;
use super::faults::Faults;
use super::network::Partitions;
use crate::rc::congestion::Algorithm;
use crate::rc::{Config, Dialect};
use crate::{Mtu, Nanos, Psn, Qpn};

/// READs and atomics that one end keeps in flight, at most.
const FETCHES: usize = 8;

/// Waits in a row, few enough that who never gets on is found out.
const RETRIES: u32 = 60;
/// A third of the time may be left of a wire that is cut, and half of the frames: then as many waits are in vain now and then.
const RETRIES_OF_A_CUT_WIRE: u32 = 250;

/// Everything that a seed decides once.
pub(super) struct SimPlan {
    pub(super) configs: [Config; 2],
    pub(super) faults: Faults,
    pub(super) partitions: Option<Partitions>,
    pub(super) latency_ns: Nanos,
    pub(super) jitter_ns: Nanos,
    /// Frames that the wire holds.
    pub(super) capacity: usize,
    /// How often a switch marks a frame.
    pub(super) marks: f64,
    /// How often somebody off the path forges a frame beside a genuine one.
    pub(super) forgeries: f64,
    /// How often an end stops polling for a while.
    pub(super) naps: f64,
    /// How often an end drains its send queue, or goes on.
    pub(super) drains: f64,
    /// How often a host gives back what came early.
    pub(super) expiries: f64,
    pub(super) ending: VictimFault,
}

impl SimPlan {
    /// `faults` overrides those that the seed would choose, and then nothing else disturbs.
    pub(super) fn draw(dice: &mut StdRng, faults: Option<Faults>) -> Self {
        let is_swarm = faults.is_none();
        let faults = faults.unwrap_or_else(|| swarm(dice));
        // Between the shortest timeout that a round trip may lead to and the connection's there is time for probes.
        let (latency_ns, ack_timeout_ns) =
            [(1_000, 50_000), (1_000, 1_000_000), (40_000, 1_000_000)][dice.random_range(0..3)];
        let mut sometimes =
            |most: f64| if is_swarm && dice.random_bool(0.3) { dice.random_range(0.0..most) } else { 0.0 };
        let (marks, forgeries, naps) = (sometimes(0.1), sometimes(0.05), sometimes(0.002));
        let (drains, expiries) = (sometimes(0.05), sometimes(0.01));
        let ending = if is_swarm { VictimFault::draw(dice) } else { VictimFault::Peace };
        let mut configs = terms(dice, ack_timeout_ns, ending);
        let partitions = if is_swarm { partitions(dice) } else { None };
        if partitions.is_some() {
            for config in &mut configs {
                config.retry_limit = RETRIES_OF_A_CUT_WIRE;
            }
        }
        Self {
            configs,
            partitions,
            faults,
            latency_ns,
            jitter_ns: if faults.reorder > 0.0 { 3_000 } else { 0 },
            // A long wire holds more.
            capacity: dice.random_range(4..200) + (latency_ns / 250) as usize,
            marks,
            forgeries,
            naps,
            drains,
            expiries,
            ending,
        }
    }

    /// Whether an answer that is sent once arrives: every frame arrives, and what refuses the rest of a READ does not
    /// come before the data in front of it, which would be asked for again, and in vain.
    pub(super) fn hears_refusals(&self) -> bool {
        let Faults { loss, corrupt, reorder, .. } = self.faults;
        let arrives = loss == 0.0 && corrupt == 0.0 && self.naps == 0.0 && self.partitions.is_none();
        arrives && (reorder == 0.0 || self.ending != VictimFault::Revoked)
    }

    /// The dimensions that this plan has.
    pub(super) fn dimensions(&self) -> Vec<&'static str> {
        DIMENSIONS.iter().filter(|(_, has)| has(self)).map(|&(name, _)| name).collect()
    }
}

/// What may set one world apart from another, by name.
pub fn dimensions() -> impl Iterator<Item = &'static str> {
    DIMENSIONS.iter().map(|&(name, _)| name)
}

type Dimension = (&'static str, fn(&SimPlan) -> bool);

const DIMENSIONS: &[Dimension] = &[
    ("mtu 256", |plan| plan.configs[0].mtu == Mtu::Mtu256),
    ("mtu 512", |plan| plan.configs[0].mtu == Mtu::Mtu512),
    ("mtu 1024", |plan| plan.configs[0].mtu == Mtu::Mtu1024),
    ("PSNs wrap", |plan| plan.any(|config| config.sq_psn.get() >= 0xff_fff0)),
    ("go-back-N", |plan| plan.configs[0].dialect == Dialect::Verbs),
    ("selective repeat", |plan| plan.configs[0].dialect == Dialect::Rocinante),
    ("DCQCN", |plan| plan.any(|config| config.congestion == Algorithm::Dcqcn)),
    ("delay control", |plan| plan.any(|config| config.congestion == Algorithm::Delay)),
    ("no congestion control", |plan| plan.any(|config| config.congestion == Algorithm::Unlimited)),
    ("window of one", |plan| plan.any(|config| config.window == 1)),
    ("window over 128", |plan| plan.any(|config| config.window > 128)),
    ("one fetch in flight", |plan| plan.any(|config| config.max_rd_atomic == 1)),
    ("credits", |plan| {
        (0..2).any(|node| plan.configs[node].end_to_end_credits && !plan.configs[1 - node].shared_receives)
    }),
    ("shared receives", |plan| plan.any(|config| config.shared_receives)),
    ("unequal ends", |plan| plan.configs[0].window != plan.configs[1].window),
    ("40 us of wire", |plan| plan.latency_ns == 40_000),
    ("no time for probes", |plan| plan.configs[0].ack_timeout_ns == 50_000),
    ("loss", |plan| plan.faults.loss > 0.0),
    ("duplication", |plan| plan.faults.dup > 0.0),
    ("reordering", |plan| plan.faults.reorder > 0.0),
    ("corruption", |plan| plan.faults.corrupt > 0.0),
    ("a perfect wire", |plan| plan.faults == Faults { seed: plan.faults.seed, ..Faults::default() }),
    ("cuts in one direction", |plan| plan.partitions.is_some_and(|cuts| cuts.towards.is_some())),
    ("cuts in both", |plan| plan.partitions.is_some_and(|cuts| cuts.towards.is_none())),
    ("marks", |plan| plan.marks > 0.0),
    ("forgeries", |plan| plan.forgeries > 0.0),
    ("ends that do not poll", |plan| plan.naps > 0.0),
    ("drained send queues", |plan| plan.drains > 0.0),
    ("expired early packets", |plan| plan.expiries > 0.0 && plan.configs[0].dialect == Dialect::Rocinante),
    ("ends in peace", |plan| plan.ending == VictimFault::Peace),
    ("ends with a wrong key", |plan| matches!(plan.ending, VictimFault::WrongKey)),
    ("ends with a revoked key", |plan| plan.ending == VictimFault::Revoked),
    ("ends with a message too long", |plan| plan.ending == VictimFault::TooLong),
    ("ends with a reserved opcode", |plan| plan.ending == VictimFault::Reserved),
    ("ends in silence", |plan| plan.ending == VictimFault::Silence),
    ("ends without a receive", |plan| plan.ending == VictimFault::NotReady),
    ("ends with a bad response", |plan| plan.ending == VictimFault::BadResponse),
    ("ends with a window not bound", |plan| plan.ending == VictimFault::NotBound),
    ("ends by the peer's own fault", |plan| plan.ending == VictimFault::OwnFault),
];

impl SimPlan {
    fn any(&self, is_met: impl Fn(&Config) -> bool) -> bool {
        self.configs.iter().any(is_met)
    }
}

/// The terms of both ends: what they must agree on, and what each has for itself.
fn terms(dice: &mut StdRng, ack_timeout_ns: Nanos, ending: VictimFault) -> [Config; 2] {
    let mtu = Mtu::ALL[dice.random_range(0..3)];
    let psns = [first_psn(dice), first_psn(dice)];
    let dialect = if dice.random() { Dialect::Rocinante } else { Dialect::Verbs };
    let one = own_terms(dice);
    let other = if dice.random_bool(0.3) { own_terms(dice) } else { one.clone() };
    let own = [one, other];
    [0, 1].map(|node| Config {
        dest_qpn: Qpn::new(0x11 + node as u32),
        mtu,
        sq_psn: psns[node],
        rq_psn: psns[1 - node],
        max_dest_rd_atomic: own[1 - node].max_rd_atomic,
        ack_timeout_ns,
        ack_timeout_max_ns: 16 * ack_timeout_ns,
        rnr_retry_limit: (ending == VictimFault::NotReady).then_some(250),
        dialect,
        ..own[node].clone()
    })
}

fn own_terms(dice: &mut StdRng) -> Config {
    Config {
        sq_depth: 16,
        rq_depth: 16,
        window: 1 << dice.random_range(0..11),
        max_rd_atomic: dice.random_range(1..=FETCHES),
        retry_limit: RETRIES,
        min_rnr_timer: 2,
        shared_receives: dice.random_bool(0.2),
        end_to_end_credits: dice.random(),
        congestion: [Algorithm::Unlimited, Algorithm::Dcqcn, Algorithm::Delay][dice.random_range(0..3)],
        ..Config::default()
    }
}

/// Half of the runs start just before the wrap.
fn first_psn(dice: &mut StdRng) -> Psn {
    Psn::new(if dice.random() { 0xff_fff0 + dice.random_range(0..16) } else { dice.random_range(0..1 << 24) })
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
    let works = dice.random_range(2_000_000..4_000_000);
    let phase = dice.random_range(0..works);
    dice.random_bool(0.33).then_some(Partitions { every: works + lasting, lasting, phase, towards })
}
