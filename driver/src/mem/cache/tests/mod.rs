//! The cache over a registrar and a monitor that the test plays.

mod model;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use memmap2::MmapMut;

use super::super::board::WatchTable;
use super::super::registrar::{RegisterError, Registrar};
use super::super::watch::{MonitorChoice, Watch};
use super::{AdoptError, Cache, CacheLimits, CachedRegion, REAPED_AT_ONCE};

const PAGE: usize = 4096;
/// Pages that the tests play with.
const PAGES: usize = 48;

/// A device that knows which memory was where when it was registered.
#[derive(Default, Debug)]
struct Device {
    live: BTreeMap<u64, (Range<usize>, Vec<u32>)>,
    /// How often the memory of each page was replaced.
    versions: Vec<u32>,
    base: usize,
    next: u64,
    places: usize,
    failure: Option<RegisterError>,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Device>>);

impl Registrar for Shared {
    fn register(&mut self, base: usize, len: usize) -> Result<u64, RegisterError> {
        let mut device = self.0.lock().expect("no panic");
        assert!(base.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0);
        if let Some(failure) = device.failure.clone() {
            return Err(failure);
        }
        if device.live.len() == device.places {
            return Err(RegisterError::NoSlot);
        }
        device.next += 1;
        let (token, versions) = (device.next, device.versions_of(&(base..base + len)));
        device.live.insert(token, (base..base + len, versions));
        Ok(token)
    }

    fn unregister(&mut self, token: u64, is_gone: bool) {
        let mut device = self.0.lock().expect("no panic");
        let (range, versions) = device.live.remove(&token).expect("it is registered");
        assert_eq!(is_gone, device.versions_of(&range) != versions);
    }
}

impl Device {
    fn versions_of(&self, range: &Range<usize>) -> Vec<u32> {
        self.versions[(range.start - self.base) / PAGE..(range.end - self.base) / PAGE].to_vec()
    }

    /// Whether a transfer by this registration finds the memory that the application sees.
    fn is_fresh(&self, token: u64) -> bool {
        self.live.get(&token).is_some_and(|(range, versions)| self.versions_of(range) == *versions)
    }
}

struct Scene {
    cache: Cache<Shared>,
    device: Arc<Mutex<Device>>,
    board: Arc<WatchTable>,
    map: MmapMut,
}

impl Scene {
    fn new(limits: CacheLimits) -> Self {
        Self::on(Arc::new(WatchTable::new().expect("memory")), limits)
    }

    fn on(board: Arc<WatchTable>, limits: CacheLimits) -> Self {
        let map = MmapMut::map_anon(PAGES * PAGE).expect("memory");
        let device = Device { base: map.as_ptr().addr(), versions: vec![0; PAGES], places: 1000, ..Device::default() };
        let device = Arc::new(Mutex::new(device));
        let watch = Watch::new(board.clone(), MonitorChoice::UnsafeNone).expect("it needs no monitor");
        Self { cache: Cache::new(Shared(device.clone()), watch, limits), device, board, map }
    }

    fn of_pages(regions: usize, pages: usize) -> Self {
        Self::new(CacheLimits { regions, bytes: pages * PAGE })
    }

    fn base(&self) -> usize {
        self.map.as_ptr().addr()
    }

    /// Some bytes that begin and end within these pages.
    fn bytes(&self, pages: &Range<usize>) -> Range<usize> {
        self.base() + pages.start * PAGE + 5..self.base() + pages.end * PAGE - 5
    }

    fn acquire(&mut self, pages: Range<usize>) -> Option<Arc<CachedRegion>> {
        let range = self.bytes(&pages);
        let region = self.cache.acquire(range.clone()).expect("the memory is there")?;
        assert!(region.range.start <= range.start && range.end <= region.range.end);
        assert!(self.device.lock().expect("no panic").is_fresh(region.token), "a stale registration was served");
        Some(region)
    }

    fn pages_of(&self, region: &CachedRegion) -> Range<usize> {
        (region.range.start - self.base()) / PAGE..(region.range.end - self.base()) / PAGE
    }

    /// The memory of these pages is replaced, and the monitor says so.
    fn replace(&mut self, pages: Range<usize>) {
        let range = self.base() + pages.start * PAGE..self.base() + pages.end * PAGE;
        self.device.lock().expect("no panic").versions[pages].iter_mut().for_each(|version| *version += 1);
        self.board.begin().mark(&range);
    }

    fn check(&mut self) {
        let stats = self.cache.stats();
        let device = self.device.lock().expect("no panic");
        assert_eq!(stats.regions as usize, device.live.len());
        assert_eq!(stats.registrations - stats.deregistrations, stats.regions);
        assert_eq!(stats.bytes_registered as usize, device.live.values().map(|(range, _)| range.len()).sum::<usize>());
        assert!(stats.regions as usize <= self.cache.limits.regions);
        assert!(stats.bytes_registered as usize <= self.cache.limits.bytes);
        let ranges: Vec<_> = self.cache.index.all().map(|index| self.cache.index.get(index).range.clone()).collect();
        assert!(ranges.is_sorted_by(|left, right| left.end <= right.start), "regions overlap: {ranges:x?}");
    }
}

#[test]
fn the_second_use_is_a_hit_and_the_third_a_fast_one() {
    let mut scene = Scene::of_pages(4, 8);
    let first = scene.acquire(0..2).expect("room");
    drop(scene.acquire(0..1));
    drop(scene.acquire(1..2));
    drop(scene.acquire(1..2));
    let stats = scene.cache.stats();
    assert_eq!((stats.misses, stats.hits_fast, stats.hits_slow), (1, 2, 1));
    assert_eq!(scene.pages_of(&first), 0..2);
}

#[test]
fn what_overlaps_is_merged_and_what_is_in_use_stays_registered_until_its_end() {
    let mut scene = Scene::of_pages(4, 16);
    let used = scene.acquire(0..2).expect("room");
    drop(scene.acquire(3..5).expect("room"));
    let whole = scene.acquire(1..4).expect("room");
    assert_eq!(scene.pages_of(&whole), 0..5);
    let stats = scene.cache.stats();
    assert_eq!((stats.merges, stats.regions, stats.deregistrations), (2, 2, 1));
    assert!(scene.device.lock().expect("no panic").is_fresh(used.token));
    drop(used);
    scene.cache.tend();
    assert_eq!(scene.cache.stats().regions, 1);
    scene.check();
}

#[test]
fn the_least_recently_used_goes_first_and_what_is_used_never() {
    let mut scene = Scene::of_pages(3, PAGES);
    let used = scene.acquire(0..1).expect("room");
    for pages in [2..3, 4..5] {
        drop(scene.acquire(pages).expect("room"));
    }
    drop(scene.acquire(2..3));
    drop(scene.acquire(6..7).expect("room"));
    let misses = scene.cache.stats().misses;
    drop(scene.acquire(2..3).expect("room"));
    drop(scene.acquire(0..1).expect("room"));
    assert_eq!(scene.cache.stats().misses, misses, "4..5 was the oldest unused one");
    drop(used);
    scene.check();
}

#[test]
fn limits_that_are_in_use_mean_no_registration_and_not_a_longer_list() {
    let mut scene = Scene::of_pages(2, 4);
    assert!(scene.acquire(0..5).is_none(), "it is longer than all that may be registered");
    let kept = [scene.acquire(0..2).expect("room"), scene.acquire(4..6).expect("room")];
    assert!(scene.acquire(8..9).is_none());
    drop(kept);
    assert!(scene.acquire(8..9).is_some());
    assert_eq!(scene.cache.stats().unregistered, 2);
    scene.check();
}

#[test]
fn replaced_memory_is_registered_anew_and_use_of_it_is_counted() {
    let mut scene = Scene::of_pages(4, 16);
    let used = scene.acquire(0..4).expect("room");
    scene.replace(3..9);
    let fresh = scene.acquire(0..4).expect("room");
    assert_ne!(fresh.token, used.token);
    let stats = scene.cache.stats();
    assert_eq!((stats.invalidations, stats.unmapped_in_use, stats.misses), (1, 1, 2));
    scene.replace(0..1);
    drop(fresh);
    scene.cache.tend();
    assert_eq!(scene.cache.stats().unmapped_in_use, 1, "it was over before anybody looked");
    drop(used);
    scene.cache.tend();
    assert_eq!(scene.cache.stats().regions, 0);
}

#[test]
fn one_with_a_merged_past_that_is_unmapped_in_use_is_counted_once() {
    let mut scene = Scene::of_pages(4, 16);
    let used = scene.acquire(0..2).expect("room");
    drop(scene.acquire(1..4).expect("room"));
    scene.replace(0..1);
    scene.cache.tend();
    scene.replace(0..1);
    scene.cache.tend();
    let stats = scene.cache.stats();
    assert_eq!((stats.invalidations, stats.unmapped_in_use), (1, 1));
    drop(used);
}

#[test]
fn a_device_without_a_place_gets_neighbours_as_one() {
    let mut scene = Scene::of_pages(100, PAGES);
    scene.device.lock().expect("no panic").places = 3;
    for pages in [0..1, 2..3, 10..11] {
        drop(scene.acquire(pages).expect("room"));
    }
    let whole = scene.acquire(1..2).expect("neighbours make room");
    assert_eq!(scene.pages_of(&whole), 0..3);
    let stats = scene.cache.stats();
    assert_eq!((stats.regions, stats.merges, stats.evictions), (2, 2, 0));
    drop(scene.acquire(20..21).expect("a place"));
    let used = [scene.acquire(0..1), scene.acquire(10..11), scene.acquire(20..21)];
    assert!(scene.acquire(30..31).is_none(), "all places are in use");
    assert_eq!(scene.cache.last_failure(), Some(&RegisterError::NoSlot));
    drop(used);
    assert!(scene.acquire(30..31).is_some());
    scene.check();
}

#[test]
fn what_cannot_be_locked_evicts_all_once_and_is_seldom_asked_for_again() {
    let mut scene = Scene::of_pages(100, PAGES);
    for page in 0..4 {
        drop(scene.acquire(2 * page..2 * page + 1).expect("room"));
    }
    let no_memory = RegisterError::NoMemory("the limit is small".into());
    scene.device.lock().expect("no panic").failure = Some(no_memory.clone());
    assert!(scene.acquire(10..20).is_none());
    assert_eq!((scene.cache.stats().evictions, scene.cache.last_failure()), (4, Some(&no_memory)));
    scene.device.lock().expect("no panic").failure = None;
    drop(scene.acquire(0..1).expect("it is shorter"));
    scene.replace(0..1);
    drop(scene.acquire(0..1).expect("room"));
    assert!(scene.acquire(10..20).is_none(), "it was too long for an empty cache, which has not become emptier");
    assert_eq!(scene.cache.stats().evictions, 4, "nothing was given up for it");
    // The limit may have been raised since, or memory freed: no event reports that.
    assert!((0..1024).any(|_| scene.acquire(10..20).is_some()));
}

#[test]
fn what_could_not_be_locked_is_asked_for_again_when_another_engine_has_ended_something() {
    let mut scene = Scene::of_pages(100, PAGES);
    let mut other = Scene::on(scene.board.clone(), scene.cache.limits);
    drop(other.acquire(0..4).expect("room"));
    scene.device.lock().expect("no panic").failure = Some(RegisterError::NoMemory("the process has a limit".into()));
    assert!(scene.acquire(10..20).is_none());
    scene.device.lock().expect("no panic").failure = None;
    assert!(scene.acquire(10..20).is_none(), "nothing has changed");
    drop(other);
    assert!(scene.acquire(10..20).is_some());
}

#[test]
fn a_refusal_does_not_affect_other_regions() {
    let mut scene = Scene::of_pages(100, PAGES);
    drop(scene.acquire(0..1).expect("room"));
    scene.device.lock().expect("no panic").failure = Some(RegisterError::Refused("not this one".into()));
    assert!(scene.acquire(4..5).is_none());
    assert_eq!((scene.cache.stats().evictions, scene.cache.stats().regions), (0, 1));
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let mut scene = Scene::of_pages(4, 4);
    let gone = 1 << 60..(1 << 60) + 100;
    assert!(matches!(scene.cache.acquire(gone), Err(AdoptError::Memory(_))));
    let past_the_end = usize::MAX - 10..usize::MAX;
    assert!(matches!(scene.cache.acquire(past_the_end), Err(AdoptError::Memory(_))));
    scene.check();
}

#[test]
fn without_a_watch_each_use_is_registered_by_itself() {
    let mut scene = Scene::of_pages(4, 16);
    scene.cache.watch = Watch::new(scene.board.clone(), MonitorChoice::None).expect("it needs no monitor");
    for _ in 0..3 {
        drop(scene.acquire(0..2).expect("room"));
    }
    let stats = scene.cache.stats();
    assert_eq!((stats.misses, stats.registered_once, stats.hits_fast + stats.hits_slow), (3, 3, 0));
    scene.cache.tend();
    assert_eq!(scene.cache.stats().regions, 0);
}

/// A poll looks after registrations: what many of them cost it must not grow with their number.
#[test]
fn of_many_regions_in_use_a_few_are_looked_at_in_each_call() {
    let mut scene = Scene::of_pages(30, PAGES);
    scene.cache.watch = Watch::new(scene.board.clone(), MonitorChoice::None).expect("it needs no monitor");
    let mut used: Vec<_> = (0..30).map(|page| scene.acquire(page..page + 1).expect("room")).collect();
    let before = scene.cache.next_leaving;
    scene.cache.tend();
    assert_eq!(scene.cache.next_leaving, (before + REAPED_AT_ONCE) % 30);
    drop(used.remove(17));
    (0..=30 / REAPED_AT_ONCE).for_each(|_| scene.cache.tend());
    assert_eq!(scene.cache.stats().regions, 29, "all had their turn");
    let last = scene.acquire(40..41).expect("there is a place");
    drop(used);
    let more = scene.acquire(41..42).expect("who needs a place looks at all of them");
    scene.check();
    drop((last, more));
}

/// Regions of so many pages, from the first on, that are in use and have left the cache. The next call looks at the
/// latter half of them.
fn leaving_in_use(scene: &mut Scene) -> Vec<Arc<CachedRegion>> {
    let pages = REAPED_AT_ONCE * 2;
    let used = (0..pages).map(|page| scene.acquire(page..page + 1).expect("room")).collect();
    scene.replace(0..pages);
    scene.cache.tend();
    assert_eq!((scene.cache.leaving.len(), scene.cache.next_leaving), (pages, REAPED_AT_ONCE));
    used
}

/// It has its place, although its turn to be looked at has not come, before an idle region has to go.
#[test]
fn what_had_its_last_use_makes_room_before_an_idle_region_does() {
    let mut scene = Scene::of_pages(REAPED_AT_ONCE * 2 + 1, PAGES);
    drop(scene.acquire(40..41));
    let mut used = leaving_in_use(&mut scene);
    drop(used.drain(..REAPED_AT_ONCE));
    drop(scene.acquire(42..43).expect("there are places"));
    let stats = scene.cache.stats();
    assert_eq!((stats.evictions, stats.regions as usize), (0, REAPED_AT_ONCE + 2));
    drop(scene.acquire(40..41));
    assert_eq!(scene.cache.stats().misses, stats.misses, "the idle one is there still");
}

/// The same where it is the device that has no place: nothing idle has to go, nor to become one with its neighbour.
#[test]
fn a_device_without_a_place_takes_that_of_what_had_its_last_use() {
    let mut scene = Scene::of_pages(100, PAGES);
    scene.device.lock().expect("no panic").places = REAPED_AT_ONCE * 2 + 1;
    drop(scene.acquire(41..42));
    let mut used = leaving_in_use(&mut scene);
    drop(used.drain(..REAPED_AT_ONCE));
    let next = scene.acquire(40..41).expect("there are places");
    let stats = scene.cache.stats();
    assert_eq!((stats.evictions, stats.merges, stats.regions as usize), (0, 0, REAPED_AT_ONCE + 2));
    assert_eq!(scene.pages_of(&next), 40..41);
}

#[test]
fn a_cache_that_goes_leaves_nothing_registered() {
    let mut scene = Scene::of_pages(4, 16);
    let used = scene.acquire(0..2).expect("room");
    let merged = scene.acquire(1..3).expect("room");
    drop(scene.acquire(8..9));
    let Scene { cache, device, .. } = scene;
    drop(cache);
    assert!(device.lock().expect("no panic").live.is_empty());
    drop((used, merged));
}
