//! Every messy case: random steps over one area, and each way to lose memory by itself.

use std::ops::Range;

use proptest::prelude::*;
use roci_driver::link::sim::SimLink;
use roci_driver::{Buffer, Engine, MonitorChoice};

use super::areas::{Area, How, WAYS};
use super::oracle::{Oracle, Verdict};
use super::{alone, engine, watched};

const PAGES: usize = 40;

#[derive(Clone, Debug)]
enum Step {
    /// Adopts these pages, and keeps the buffer.
    Adopt(Range<usize>),
    /// Gives back.
    Drop(prop::sample::Index),
    /// Replaces these pages, as far as they are not adopted.
    Replace(Range<usize>, How),
}

fn pages(most: usize) -> impl Strategy<Value = Range<usize>> {
    (0..PAGES, 1..=most).prop_map(|(start, len)| start..(start + len).min(PAGES))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => pages(8).prop_map(Step::Adopt),
        5 => any::<prop::sample::Index>().prop_map(Step::Drop),
        3 => (pages(4), prop::sample::select(WAYS.as_slice())).prop_map(|(pages, how)| Step::Replace(pages, how)),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Runs the steps, and returns how often a stale registration was served.
fn stale_hits(engine: &mut Engine<SimLink>, steps: Vec<Step>) -> usize {
    let area = Area::new(PAGES);
    let mut oracle = Oracle::new(&area);
    let mut adopted: Vec<(Range<usize>, Buffer)> = Vec::new();
    let overlap = |one: &Range<usize>, other: &Range<usize>| one.start < other.end && other.start < one.end;
    for step in steps {
        match step {
            Step::Adopt(pages) if adopted.iter().all(|(other, _)| !overlap(other, &pages)) => {
                let mut buffer = engine.adopt(area.user_memory(&pages)).expect("it is mapped");
                oracle.judge(&pages, &buffer);
                // The memory is there, and is written.
                buffer.fill(7);
                adopted.push((pages, buffer));
            }
            Step::Drop(index) if !adopted.is_empty() => drop(adopted.swap_remove(index.index(adopted.len()))),
            Step::Replace(pages, how) if adopted.iter().all(|(other, _)| !overlap(other, &pages)) => {
                oracle.replace(&pages, how);
            }
            _ => {}
        }
        let stats = engine.registration_stats();
        assert_eq!(stats.registrations - stats.deregistrations, stats.regions);
    }
    oracle.stale
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_registration_outlives_its_memory(steps in steps()) {
        let _alone = alone();
        let Some(mut engine) = watched() else { return Ok(()) };
        prop_assert_eq!(stale_hits(&mut engine, steps), 0);
    }

    #[test]
    fn without_a_cache_none_is_stale_either(steps in steps()) {
        let _alone = alone();
        let mut engine = engine(MonitorChoice::None);
        prop_assert_eq!(stale_hits(&mut engine, steps), 0);
        let stats = engine.registration_stats();
        prop_assert_eq!(stats.hits_fast + stats.hits_slow, 0);
    }
}

/// Adopts two overlapping ranges, replaces pages in the middle, adopts again.
fn verdict_after(engine: &mut Engine<SimLink>, how: How) -> (Verdict, bool) {
    let area = Area::new(16);
    let mut oracle = Oracle::new(&area);
    let sees_frames = oracle.sees_frames();
    for pages in [2..9, 6..14, 2..14] {
        let buffer = engine.adopt(area.user_memory(&pages)).expect("it is mapped");
        assert_eq!(oracle.judge(&pages, &buffer), Verdict::Fresh);
    }
    let again = engine.adopt(area.user_memory(&(2..14))).expect("it is mapped");
    assert_eq!(oracle.judge(&(2..14), &again), Verdict::Fresh);
    drop(again);
    oracle.replace(&(7..8), how);
    let whole = engine.adopt(area.user_memory(&(2..14))).expect("it is mapped");
    let verdict = oracle.judge(&(2..14), &whole);
    (verdict, oracle.stale_frames > 0 || !sees_frames)
}

#[test]
fn each_way_to_lose_memory_is_noticed_and_without_a_monitor_the_oracle_complains() {
    let _alone = alone();
    let Some(mut watched) = watched() else { return };
    for how in WAYS {
        assert_eq!(verdict_after(&mut watched, how).0, Verdict::Fresh, "{how:?}");
    }
    let stats = watched.registration_stats();
    // Once by each, and once as each one's area went, but for the last, which was not looked up yet.
    assert_eq!(stats.invalidations, 2 * WAYS.len() as u64 - 1);
    for how in WAYS {
        let mut blind = engine(MonitorChoice::UnsafeNone);
        let (verdict, _) = verdict_after(&mut blind, how);
        assert_eq!(verdict, Verdict::Stale, "{how:?}: the oracle finds nothing");
    }
}

#[test]
fn page_frames_bear_the_oracle_out() {
    let _alone = alone();
    let area = Area::new(4);
    let oracle = Oracle::new(&area);
    area.replace(&(0..4), How::MapOver);
    if !oracle.sees_frames() {
        return eprintln!("skipped: only root sees page frames");
    }
    // A frame may serve again at once, so that one replacement alone proves nothing.
    let moved = WAYS.into_iter().filter(|&how| {
        let mut blind = engine(MonitorChoice::UnsafeNone);
        let (verdict, has_moved) = verdict_after(&mut blind, how);
        verdict == Verdict::Stale && has_moved
    });
    assert!(moved.count() > 0, "no frame has moved");
}

#[test]
fn of_thousands_of_regions_those_that_are_gone_are_missed_and_no_others() {
    const REGIONS: usize = 1500;
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let config = super::config(MonitorChoice::Userfaultfd);
    engine
        .configure_registration(roci_driver::RegistrationConfig { regions: 2 * REGIONS, ..config })
        .expect("there was one before");
    let area = Area::new(2 * REGIONS);
    for region in 0..REGIONS {
        let buffer = engine.adopt(area.user_memory(&(2 * region..2 * region + 1))).expect("it is mapped");
        assert!(buffer.registration().is_some(), "{:?}", engine.registration_info());
    }
    assert_eq!(engine.registration_stats().regions, REGIONS as u64);
    let is_replaced = |region: usize| region.is_multiple_of(3);
    for region in (0..REGIONS).filter(|&region| is_replaced(region)) {
        area.replace(&(2 * region..2 * region + 1), WAYS[region % WAYS.len()]);
    }
    for region in 0..REGIONS {
        let misses = engine.registration_stats().misses;
        drop(engine.adopt(area.user_memory(&(2 * region..2 * region + 1))).expect("it is mapped"));
        assert_eq!(engine.registration_stats().misses > misses, is_replaced(region), "{region}");
    }
    assert_eq!(engine.registration_stats().invalidations, REGIONS.div_ceil(3) as u64);
}

#[test]
fn memory_that_is_unmapped_while_it_is_adopted_is_counted_and_never_served_again() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let area = Area::new(8);
    let adopted = engine.adopt(area.user_memory(&(0..4))).expect("it is mapped");
    area.replace(&(1..2), How::Unmap);
    let fresh = engine.adopt(area.user_memory(&(0..4))).expect("it is mapped");
    assert_ne!(adopted.registration(), fresh.registration());
    assert_eq!(engine.registration_stats().unmapped_in_use, 1);
    area.unmap(&(0..8));
    assert!(engine.adopt(area.user_memory(&(0..4))).is_err(), "there is nothing");
    area.replace(&(0..8), How::MapOver);
}
