//! Everything at once: both ends request at the same time, while the wire loses, repeats and reorders packets both ways.
//!
//! A round is a connection. Each end draws a list of requests, posts it whole, and executes the other's. Every byte that
//! was to change is looked at afterwards, and so is what lies between.

mod known_faults;
mod ours;
mod plan;
mod theirs;

use std::fmt;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_driver::Mtu;
use roci_protocol::sim::Faults;
use roci_protocol::wire::Opcode;

use self::plan::MixedPlan;
use super::losses::hasty;
use crate::LabError;
use crate::faults::{Dice, Injected};
use crate::lab::{GuestPair, Lab, PairTerms};
use crate::wire::FrameDirection;

const MTUS: [Mtu; 3] = [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096];
/// Rounds of the short form.
const ROUNDS: u64 = 9;
/// Each direction's.
const FAULTS: Faults = Faults { loss: 0.02, dup: 0.02, reorder: 0.02, corrupt: 0.0, seed: 0 };
/// Of so many rounds, one may be spoilt by the guest.
const SPOILT_ONE_IN: u64 = 500;
/// The names of receives begin here, those of requests at 0.
const RECEIVES: u64 = 1000;

pub(super) fn mixed(lab: &mut Lab) -> Result<(), LabError> {
    let faults = Faults { seed: lab.form.seed, ..FAULTS };
    let is_old = lab.run("uname -r")?.starts_with("6.1.");
    lab.script.borrow_mut().dice = Some(Dice::new(faults, if is_old { |_, _| false } else { is_answer_to_the_guest }));
    let deadline = lab.form.time.map(|time| Instant::now() + time);
    let mut figures = MixedTotals::default();
    while deadline.map_or(figures.rounds < ROUNDS, |deadline| Instant::now() < deadline) {
        let number = figures.rounds;
        round(lab, number, is_old, &mut figures)
            .map_err(|failure| format!("round {number} of seed {}: {failure}; so far {figures}", lab.form.seed))?;
        if figures.spoilt > 1 + figures.rounds / SPOILT_ONE_IN {
            return Err(format!("too many rounds failed after a known fault of the guest: {figures}").into());
        }
        if deadline.is_some() && figures.rounds.is_multiple_of(50) {
            println!("        {figures}");
        }
    }
    println!("        {figures}");
    if figures.injected.iter().any(|way| way.lost == 0 || way.repeated == 0 || way.held_back == 0) {
        return Err("a kind of fault never came".into());
    }
    Ok(())
}

/// rxe of 6.12 takes an older acknowledgement between the responses to a READ for their end: what follows puts its queue
/// pair into the error state, while it reports success without the data. So no answer is overtaken on the way there.
fn is_answer_to_the_guest(way: FrameDirection, opcode: Opcode) -> bool {
    use Opcode::{
        RcAck, RcAtomicAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly,
    };
    let is_answer = matches!(
        opcode,
        RcAck | RcAtomicAck | RcReadResponseFirst | RcReadResponseMiddle | RcReadResponseLast | RcReadResponseOnly
    );
    way == FrameDirection::Out && is_answer
}

fn round(lab: &mut Lab, number: u64, is_old: bool, figures: &mut MixedTotals) -> Result<(), LabError> {
    let mut dice = StdRng::seed_from_u64(lab.form.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let mtu = MTUS[number as usize % MTUS.len()];
    // rxe of 6.12 refuses the correct duplicate of a READ after it has executed a READ or a WRITE of no bytes.
    let [ours, theirs] = [MixedPlan::draw(&mut dice, mtu, 1), MixedPlan::draw(&mut dice, mtu, 0)];
    lab.renew()?;
    let zero_copy = lab.engine.link_stats(0).tx_zero_copy;
    let retransmitted = lab.engine.stats().queue_pairs.retransmitted_packets;
    let terms = terms(mtu, [&ours, &theirs].map(|plan| psn_before_wrap(&mut dice, plan)));
    let pair = lab.connect(&terms)?;
    let is_spoilt = known_faults::watch(lab, pair, is_old);
    let outcome = exchange(lab, pair, &ours, &theirs);
    lab.disconnect(pair);
    figures.rounds += 1;
    if outcome.is_err() && is_spoilt.get() {
        figures.spoilt += 1;
        return Ok(());
    }
    outcome.map_err(|failure| format!("MTU {}: {failure}", mtu.bytes()))?;
    figures.requests += (ours.jobs.len() + theirs.jobs.len()) as u64;
    figures.bytes += ours.bytes() + theirs.bytes();
    figures.zero_copy += lab.engine.link_stats(0).tx_zero_copy - zero_copy;
    figures.retransmitted += lab.engine.stats().queue_pairs.retransmitted_packets - retransmitted;
    figures.injected = lab.script.borrow().dice.as_ref().map(|dice| dice.injected).unwrap_or_default();
    Ok(())
}

fn terms(mtu: Mtu, psns: [u32; 2]) -> PairTerms {
    PairTerms { mtu, psns, ..hasty() }
}

/// A first PSN from which the requests of `plan` reach beyond the largest PSN.
fn psn_before_wrap(dice: &mut StdRng, plan: &MixedPlan) -> u32 {
    (1 << 24) - dice.random_range(1..plan.psns())
}

fn exchange(lab: &mut Lab, pair: GuestPair, ours: &MixedPlan, theirs: &MixedPlan) -> Result<(), LabError> {
    let target = theirs::prepare_target(lab, pair, ours)?;
    let source = theirs::prepare_source(lab, theirs)?;
    let region = ours::prepare_region(lab, pair, theirs)?;
    let questions = theirs::requests(pair, theirs, source, region);
    // In two halves, so that requests of both ends are under way at the same time.
    let mut jobs = ours.jobs.iter().enumerate();
    for half in questions.chunks(questions.len().div_ceil(2)) {
        for (index, job) in jobs.by_ref().take(half.len()) {
            ours::post(lab, pair, index, job, target)?;
        }
        lab.ask_all(half)?;
    }
    ours::complete(lab, ours, theirs)?;
    theirs::complete(lab, ours, theirs)?;
    theirs::verify_target(lab, ours, target)?;
    theirs::verify_source(lab, theirs, source)?;
    ours::verify_region(lab, theirs, region)
}

/// The totals of all rounds.
#[derive(Default)]
struct MixedTotals {
    rounds: u64,
    /// Rounds of these that the guest has spoilt.
    spoilt: u64,
    requests: u64,
    bytes: u64,
    /// Packets of ours that were sent again.
    retransmitted: u64,
    /// Packets of ours whose payloads were sent without a copy.
    zero_copy: u64,
    /// Out, and in.
    injected: [Injected; 2],
}

impl fmt::Display for MixedTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, spoilt, requests, bytes, retransmitted, zero_copy, injected } = self;
        write!(f, "{rounds} rounds, {spoilt} of them spoilt by the guest; {requests} requests, {bytes} bytes; ")?;
        for (way, Injected { lost, repeated, held_back }) in ["out", "in"].iter().zip(injected) {
            write!(f, "{way}: {lost} lost, {repeated} repeated, {held_back} held back; ")?;
        }
        write!(f, "we sent {retransmitted} packets again and {zero_copy} payloads in place")
    }
}
