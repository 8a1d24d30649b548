//! The measurements. Each is the median of rounds; a round of something quick is many of it.

use std::error::Error;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

use memmap2::MmapMut;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_driver::link::sim::SimLink;
use roci_driver::{Engine, MonitorChoice, Pin, RegistrationConfig, UserMemory};

const PAGE: usize = 4096;
const ROUNDS: usize = 51;
const QUICK: usize = 1000;
/// What may be locked is often 8 MiB.
pub(crate) const SIZES: [usize; 11] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Regions that the cache of the last measurement holds.
pub(crate) const PLACES: usize = 64;
/// Working sets, in quarters of that.
const QUARTERS: [usize; 9] = [1, 2, 3, 4, 5, 6, 8, 12, 16];

/// Nanoseconds for one size.
pub(crate) struct Costs {
    pub(crate) bytes: usize,
    /// From the application's memory to the arena, both in the processor's caches as far as they fit.
    pub(crate) copy: f64,
    /// Registered for this use, and ended after it.
    pub(crate) each_use: f64,
    /// Not found in the cache, because the memory was unmapped: the old registration ends, a new one begins.
    pub(crate) miss: f64,
    /// Found.
    pub(crate) hit: f64,
    /// munmap of memory that no registration has seen, of memory that is registered, and of memory that is watched.
    pub(crate) unmap: [f64; 3],
}

/// Of uses of as many buffers, the share that found theirs registered.
pub(crate) struct HitRate {
    /// Buffers, as a multiple of the cache's places.
    pub(crate) working_set: f64,
    pub(crate) at_random: f64,
    pub(crate) in_turn: f64,
}

pub(crate) struct Results {
    pub(crate) costs: Vec<Costs>,
    pub(crate) rates: Vec<HitRate>,
}

pub(crate) fn all() -> Result<Results, Box<dyn Error>> {
    // A first run warms the allocator and the monitor.
    costs(SIZES[0])?;
    let costs = SIZES.into_iter().map(costs).collect::<Result<_, _>>()?;
    let rates = QUARTERS.into_iter().map(hit_rate).collect::<Result<_, _>>()?;
    Ok(Results { costs, rates })
}

fn engine(config: RegistrationConfig) -> Result<Engine<SimLink>, Box<dyn Error>> {
    let mut engine = Engine::new(16 << 20)?;
    engine.configure_registration(RegistrationConfig { pin: Pin::Lock, ..config })?;
    Ok(engine)
}

fn watched() -> RegistrationConfig {
    RegistrationConfig { monitor: MonitorChoice::Userfaultfd, ..RegistrationConfig::default() }
}

/// Fresh pages, touched.
fn pages(bytes: usize) -> Result<MmapMut, Box<dyn Error>> {
    let mut map = MmapMut::map_anon(bytes)?;
    map.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Ok(map)
}

/// Adopts all of it, and drops the buffer at once; an error where it was not registered.
fn adopt(engine: &mut Engine<SimLink>, map: &mut MmapMut) -> Result<(), Box<dyn Error>> {
    // SAFETY: the buffer is dropped before this ends, and nothing else uses the mapping meanwhile.
    let memory = unsafe { UserMemory::new(NonNull::from(&mut map[..]).cast(), map.len()) };
    let is_registered = black_box(engine.adopt(memory)?).registration().is_some();
    if is_registered { Ok(()) } else { Err(format!("not registered: {:?}", engine.registration_info()).into()) }
}

fn costs(bytes: usize) -> Result<Costs, Box<dyn Error>> {
    Ok(Costs {
        bytes,
        copy: copy(bytes)?,
        each_use: each_use(bytes)?,
        miss: miss(bytes)?,
        hit: hit(bytes)?,
        unmap: [
            unmap(bytes, None)?,
            unmap(bytes, Some(RegistrationConfig { cache: false, ..watched() }))?,
            unmap(bytes, Some(watched()))?,
        ],
    })
}

fn copy(bytes: usize) -> Result<f64, Box<dyn Error>> {
    let engine = engine(watched())?;
    let (map, mut buffer) = (pages(bytes)?, engine.buffer(bytes)?);
    let times = (0..ROUNDS).map(|_| timed(|| black_box(&mut buffer).copy_from_slice(black_box(&map))));
    Ok(median(times.collect()))
}

fn each_use(bytes: usize) -> Result<f64, Box<dyn Error>> {
    let mut engine = engine(RegistrationConfig { cache: false, ..watched() })?;
    let mut map = pages(bytes)?;
    adopt(&mut engine, &mut map)?;
    // Each use ends the one before.
    let mut time = || timed_result(|| adopt(&mut engine, &mut map));
    Ok(median((0..ROUNDS).map(|_| time()).collect::<Result<_, _>>()?))
}

fn miss(bytes: usize) -> Result<f64, Box<dyn Error>> {
    let mut engine = engine(watched())?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut map = pages(bytes)?;
        times.push(timed_result(|| adopt(&mut engine, &mut map))?);
    }
    Ok(median(times))
}

fn hit(bytes: usize) -> Result<f64, Box<dyn Error>> {
    let mut engine = engine(watched())?;
    let mut map = pages(bytes)?;
    adopt(&mut engine, &mut map)?;
    let mut round = || timed_result(|| (0..QUICK).try_for_each(|_| adopt(&mut engine, &mut map)));
    let times: Vec<f64> = (0..ROUNDS).map(|_| round()).collect::<Result<_, _>>()?;
    let stats = engine.registration_stats();
    if (stats.misses, stats.hits_slow) != (1, 0) {
        return Err(format!("hits are not fast: {stats:?}").into());
    }
    Ok(median(times) / QUICK as f64)
}

fn unmap(bytes: usize, config: Option<RegistrationConfig>) -> Result<f64, Box<dyn Error>> {
    let mut engine = config.map(engine).transpose()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut map = pages(bytes)?;
        if let Some(engine) = &mut engine {
            // Without a cache the registration ends when the engine next looks, and there is no monitor.
            adopt(engine, &mut map)?;
        }
        times.push(timed(|| drop(map)));
    }
    Ok(median(times))
}

fn hit_rate(quarters: usize) -> Result<HitRate, Box<dyn Error>> {
    let buffers = quarters * PLACES / 4;
    let mut dice = StdRng::seed_from_u64(7);
    let uses = 20 * buffers.max(PLACES);
    let random: Vec<usize> = (0..uses).map(|_| dice.random_range(0..buffers)).collect();
    Ok(HitRate {
        working_set: quarters as f64 / 4.0,
        at_random: share_of_hits(buffers, &random)?,
        in_turn: share_of_hits(buffers, &(0..uses).map(|number| number % buffers).collect::<Vec<_>>())?,
    })
}

/// Uses these buffers, of a page each and apart, after each was used once.
fn share_of_hits(buffers: usize, order: &[usize]) -> Result<f64, Box<dyn Error>> {
    let mut engine = engine(RegistrationConfig { regions: PLACES, ..watched() })?;
    // Between any two lies a page that is never adopted, so that they are not one.
    let mut maps = (0..buffers).map(|_| pages(2 * PAGE)).collect::<Result<Vec<_>, _>>()?;
    let mut use_of = |engine: &mut Engine<SimLink>, number: usize| -> Result<(), Box<dyn Error>> {
        let part = NonNull::from(&mut maps[number][..PAGE]).cast();
        // SAFETY: as in `adopt`.
        drop(engine.adopt(unsafe { UserMemory::new(part, PAGE) })?);
        Ok(())
    };
    (0..buffers).try_for_each(|number| use_of(&mut engine, number))?;
    let before = engine.registration_stats();
    order.iter().try_for_each(|&number| use_of(&mut engine, number))?;
    let after = engine.registration_stats();
    let hits = after.hits_fast + after.hits_slow - before.hits_fast - before.hits_slow;
    Ok(hits as f64 / order.len() as f64)
}

/// Nanoseconds.
fn timed(action: impl FnOnce()) -> f64 {
    let start = Instant::now();
    action();
    start.elapsed().as_nanos() as f64
}

fn timed_result<E>(action: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let mut outcome = Ok(());
    let time = timed(|| outcome = action());
    outcome.map(|()| time)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
