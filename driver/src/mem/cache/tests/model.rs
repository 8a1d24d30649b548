//! Random steps, against a model that is a plain list, and with failures at any moment.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::super::registrar::RegisterError;
use super::super::CachedRegion;
use super::{PAGES, Scene};

/// The cache as a list, of pages instead of bytes.
struct Model {
    /// Ranges, which use of them was the last, and the holders.
    cached: Vec<(Range<usize>, u64, Vec<u64>)>,
    leaving: Vec<(Range<usize>, Vec<u64>)>,
    uses: u64,
    regions: usize,
    pages: usize,
}

impl Model {
    fn acquire(&mut self, pages: &Range<usize>, holder: u64) -> (bool, Option<Range<usize>>) {
        self.uses += 1;
        self.leaving.retain(|(_, holders)| !holders.is_empty());
        let holds = |range: &Range<usize>| range.start <= pages.start && pages.end <= range.end;
        if let Some(entry) = self.cached.iter_mut().find(|(range, ..)| holds(range)) {
            entry.1 = self.uses;
            entry.2.push(holder);
            return (true, Some(entry.0.clone()));
        }
        let overlaps = |range: &Range<usize>| range.start < pages.end && pages.start < range.end;
        let merged: Vec<_> = self.cached.extract_if(.., |(range, ..)| overlaps(range)).collect();
        let start = merged.iter().map(|(range, ..)| range.start).chain([pages.start]).min().expect("one at least");
        let end = merged.iter().map(|(range, ..)| range.end).chain([pages.end]).max().expect("one at least");
        self.leaving.extend(merged.into_iter().map(|(range, _, holders)| (range, holders)));
        self.leaving.retain(|(_, holders)| !holders.is_empty());
        let whole = if end - start > self.pages { pages.clone() } else { start..end };
        let place = [whole, pages.clone()].into_iter().find(|range| self.makes_room(range.len()));
        // One that must not be cached, for want of room, has none outside the cache either.
        self.cached.extend(place.clone().map(|range| (range, self.uses, vec![holder])));
        (false, place)
    }

    fn makes_room(&mut self, pages: usize) -> bool {
        loop {
            let all = self.cached.iter().map(|(range, ..)| range).chain(self.leaving.iter().map(|(range, _)| range));
            let (count, sum) = all.fold((0, 0), |(count, sum), range| (count + 1, sum + range.len()));
            if count < self.regions && sum + pages <= self.pages {
                return true;
            }
            let idle = self.cached.iter().enumerate().filter(|(_, (.., holders))| holders.is_empty());
            let Some((oldest, _)) = idle.min_by_key(|(_, (_, used, _))| *used) else { return false };
            self.cached.remove(oldest);
        }
    }

    fn release(&mut self, holder: u64) {
        let cached = self.cached.iter_mut().map(|(.., holders)| holders);
        cached
            .chain(self.leaving.iter_mut().map(|(_, holders)| holders))
            .for_each(|holders| holders.retain(|who| *who != holder));
    }

    fn replace(&mut self, pages: &Range<usize>) {
        let overlaps = |range: &Range<usize>| range.start < pages.end && pages.start < range.end;
        let stale: Vec<_> = self.cached.extract_if(.., |(range, ..)| overlaps(range)).collect();
        self.leaving.extend(stale.into_iter().map(|(range, _, holders)| (range, holders)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(Range<usize>),
    Release(prop::sample::Index),
    Replace(Range<usize>),
    Tend,
}

fn some_pages(most: usize) -> impl Strategy<Value = Range<usize>> {
    (0..PAGES, 1..=most).prop_map(|(start, len)| start..(start + len).min(PAGES))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => some_pages(6).prop_map(Step::Acquire),
        5 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => some_pages(3).prop_map(Step::Replace),
        1 => Just(Step::Tend),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn the_cache_does_what_a_list_does(steps in steps(), regions in 1usize..12, pages in 2usize..40) {
        let mut scene = Scene::of_pages(regions, pages);
        let mut model = Model { cached: Vec::new(), leaving: Vec::new(), uses: 0, regions, pages };
        let mut held: Vec<(u64, Arc<CachedRegion>)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let holder = number as u64;
            match step {
                Step::Acquire(range) => {
                    let misses = scene.cache.stats().misses;
                    let region = scene.acquire(range.clone());
                    let is_hit = scene.cache.stats().misses == misses;
                    let got = region.as_ref().map(|region| scene.pages_of(region));
                    prop_assert_eq!((is_hit, got), model.acquire(&range, holder));
                    held.extend(region.map(|region| (holder, region)));
                }
                Step::Release(index) if !held.is_empty() => {
                    let (holder, region) = held.swap_remove(index.index(held.len()));
                    drop(region);
                    model.release(holder);
                }
                Step::Replace(range) => {
                    scene.replace(range.clone());
                    model.replace(&range);
                }
                Step::Release(_) | Step::Tend => scene.cache.tend(),
            }
            scene.check();
            for (_, region) in &held {
                prop_assert!(scene.device.lock().expect("no panic").live.contains_key(&region.token), "ended in use");
            }
        }
        held.clear();
        // Two turns, of eight each, see all of the eleven that there may be.
        scene.cache.tend();
        scene.cache.tend();
        prop_assert!(scene.cache.leaving.is_empty());
    }

    #[test]
    fn failures_at_any_moment_break_nothing(steps in steps(), failing in 0u64..u64::MAX, places in 0usize..8) {
        let mut scene = Scene::of_pages(10, PAGES);
        scene.device.lock().expect("no panic").places = places;
        let mut held = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let kind = failing >> (number % 60);
            scene.device.lock().expect("no panic").failure = (kind & 3 == 3).then(|| {
                if kind & 4 == 0 { RegisterError::Refused("no".into()) } else { RegisterError::NoMemory("no".into()) }
            });
            match step {
                Step::Acquire(range) => held.extend(scene.acquire(range)),
                Step::Release(index) if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                Step::Replace(range) => scene.replace(range),
                Step::Release(_) | Step::Tend => scene.cache.tend(),
            }
            scene.check();
            for region in &held {
                prop_assert!(scene.device.lock().expect("no panic").live.contains_key(&region.token), "ended in use");
            }
        }
        let Scene { cache, device, .. } = scene;
        drop(cache);
        prop_assert!(device.lock().expect("no panic").live.is_empty());
    }
}
