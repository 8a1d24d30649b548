//! Transfers from and into the application's memory, while threads unmap what is not adopted just then.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use roci_driver::{Access, MonitorChoice, SendWr, WcStatus};
use roci_testkit::World as _;

use super::areas::{Area, PAGE, WAYS};
use super::common::{Wire, pattern};
use super::{alone, config, watched};

const SLOTS: usize = 12;
/// Pages of a slot.
const SLOT: usize = 2;
const TRANSFERS: usize = 600;
const THREADS: usize = 2;

/// Looks at slots that others have.
const PATIENCE: usize = 10_000_000;

/// A slot's state: adopted or being replaced, or how often it was replaced.
const BUSY: u32 = u32::MAX;

struct Slots {
    area: Area,
    versions: [AtomicU32; SLOTS],
}

impl Slots {
    fn new() -> Self {
        Self { area: Area::new(SLOTS * SLOT), versions: std::array::from_fn(|_| AtomicU32::new(0)) }
    }

    fn try_take(&self, slot: usize) -> Option<u32> {
        let version = self.versions[slot].load(Relaxed);
        let is_taken = version != BUSY && self.versions[slot].compare_exchange(version, BUSY, Acquire, Relaxed).is_ok();
        is_taken.then_some(version)
    }

    /// Takes two neighbours, when both are free.
    fn take_two(&self, first: usize) -> Option<[u32; 2]> {
        let one = self.try_take(first)?;
        let Some(other) = self.try_take(first + 1) else {
            self.give(first, one);
            return None;
        };
        Some([one, other])
    }

    fn wait_for_two(&self, first: usize) -> [u32; 2] {
        for _ in 0..PATIENCE {
            if let Some(versions) = self.take_two(first) {
                return versions;
            }
            std::thread::yield_now();
        }
        panic!("slots {first} and {} are never free", first + 1);
    }

    fn give(&self, slot: usize, version: u32) {
        self.versions[slot].store(version, Release);
    }

    /// A thread's work: replaces slot after slot, those that are free.
    fn replace_until(&self, is_over: &AtomicBool, thread: usize) {
        let mut round = thread;
        while !is_over.load(Acquire) {
            round += 1;
            self.replace(round * 7 % SLOTS, round);
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Replaces a slot that is free, in one of the ways.
    fn replace(&self, slot: usize, way: usize) {
        if let Some(version) = self.try_take(slot) {
            self.area.replace(&Self::pages(slot..slot + 1), WAYS[way % WAYS.len()]);
            self.give(slot, version + 1);
        }
    }

    fn pages(slots: Range<usize>) -> Range<usize> {
        slots.start * SLOT..slots.end * SLOT
    }
}

/// What a registration must agree with: the versions of all slots when it was first seen.
struct Seen(BTreeMap<u64, BTreeMap<usize, u32>>);

impl Seen {
    /// Whether a registration was served whose slots were replaced since it was first seen to hold them.
    fn is_stale(&mut self, number: u64, first: usize, versions: [u32; 2]) -> bool {
        let then = self.0.entry(number).or_default();
        versions.into_iter().enumerate().any(|(at, version)| *then.entry(first + at).or_insert(version) != version)
    }
}

/// Set when it goes, also by a panic.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

/// Sends from user memory into user memory, each time from other slots; returns how many stale registrations were used.
fn exchange(monitor: MonitorChoice) -> usize {
    let mut transfers = Transfers::new(monitor);
    let slots = Slots::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (slots, is_over) = (&slots, &is_over);
            scope.spawn(move || slots.replace_until(is_over, thread));
        }
        let _until_the_end = Flag(&is_over);
        for number in 0..TRANSFERS {
            transfers.transfer(&slots, number);
        }
    });
    // Beside the threads, chance decides whether a registration is found again, or found stale. Alone it is certain.
    transfers.transfer(&slots, 0);
    let before = transfers.hits();
    transfers.transfer(&slots, 0);
    assert_eq!(transfers.hits(), before + 1, "what was just registered has not been replaced");
    slots.replace(0, 0);
    transfers.transfer(&slots, 0);
    transfers.stale
}

struct Transfers {
    wire: Wire,
    into: Area,
    seen: Seen,
    stale: usize,
}

impl Transfers {
    fn new(monitor: MonitorChoice) -> Self {
        let mut wire = Wire::new(None);
        for end in &mut wire.ends {
            end.engine.configure_registration(config(monitor)).expect("such a monitor");
        }
        Self { wire, into: Area::new(2 * SLOT), seen: Seen(BTreeMap::new()), stale: 0 }
    }

    /// Transfer `number`, from two slots that it takes.
    fn transfer(&mut self, slots: &Slots, number: usize) {
        let first = number * 5 % (SLOTS - 1);
        let versions = slots.wait_for_two(first);
        let payload = pattern(2 * SLOT * PAGE - 6 - number);
        let [near, far] = &mut self.wire.ends;
        let mut buffer =
            near.engine.adopt(slots.area.user_memory(&Slots::pages(first..first + 2))).expect("it is mapped");
        let registration = buffer.registration().expect("it is registered");
        self.stale += usize::from(self.seen.is_stale(registration, first, versions));
        buffer.set_len(payload.len());
        buffer.copy_from_slice(&payload);
        let room = far.engine.adopt(self.into.user_memory(&(0..2 * SLOT))).expect("it is mapped");
        far.engine.post_recv(far.qp, 1, room).expect("accepted");
        self.wire.post(0, SendWr::send(2, buffer));
        let received = self.wire.wait(1);
        assert_eq!(received.status, WcStatus::Success);
        assert!(received.buffer[..received.len] == *payload, "transfer {number} has other bytes");
        assert!(received.buffer.is_users());
        let sent = self.wire.wait(0);
        assert_eq!((sent.status, sent.buffer.registration()), (WcStatus::Success, Some(registration)));
        drop((sent, received));
        slots.give(first, versions[0]);
        slots.give(first + 1, versions[1]);
    }

    fn hits(&self) -> u64 {
        let stats = self.wire.ends[0].engine.registration_stats();
        stats.hits_fast + stats.hits_slow
    }
}

#[test]
fn transfers_find_the_memory_that_is_there_while_threads_replace_what_is_not_adopted() {
    let _alone = alone();
    if watched().is_some() {
        assert_eq!(exchange(MonitorChoice::Userfaultfd), 0);
    }
}

#[test]
fn the_same_transfers_without_a_monitor_use_stale_registrations() {
    let _alone = alone();
    assert!(exchange(MonitorChoice::UnsafeNone) > 0, "the oracle finds nothing");
}

#[test]
fn peers_write_and_read_the_applications_memory() {
    let _alone = alone();
    let mut wire = Wire::new(None);
    for end in &mut wire.ends {
        end.engine.configure_registration(config(MonitorChoice::Auto)).expect("a monitor, or none");
    }
    let (near, far) = (Area::new(4), Area::new(4));
    let bytes = pattern(3 * PAGE);
    let target = wire.ends[1].engine.adopt(far.user_memory(&(0..4))).expect("it is mapped");
    let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ);
    let end = &mut wire.ends[1];
    let region = end.engine.register(end.pd, target, access).expect("a key");
    let mut source = wire.ends[0].engine.adopt(near.user_memory(&(0..4))).expect("it is mapped");
    source.set_len(bytes.len());
    source.copy_from_slice(&bytes);
    wire.post(0, SendWr::write(1, source, region.rkey(), 64));
    drop(wire.wait(0));
    let mut back = wire.ends[0].engine.adopt(near.user_memory(&(0..4))).expect("it is mapped");
    back.fill(0);
    back.set_len(bytes.len());
    wire.post(0, SendWr::read(2, back, region.rkey(), 64));
    assert!(*wire.wait(0).buffer == *bytes);
    let target = wire.ends[1].engine.deregister(region).expect("it is open");
    assert!(target[64..64 + bytes.len()] == *bytes);
}

#[test]
fn a_free_in_the_middle_of_the_engines_own_loop_does_not_block() {
    let _alone = alone();
    if watched().is_none() {
        return;
    }
    let mut wire = Wire::new(None);
    for end in &mut wire.ends {
        end.engine.configure_registration(config(MonitorChoice::Userfaultfd)).expect("there was one before");
    }
    for number in 0..50 {
        let area = Area::new(8);
        let mut buffer = wire.ends[0].engine.adopt(area.user_memory(&(0..8))).expect("it is mapped");
        buffer.fill(number);
        wire.post_recv(1, 8 * PAGE);
        wire.post(0, SendWr::send(1, buffer));
        wire.step();
        assert_eq!(wire.wait(1).buffer[5], number);
        drop(wire.wait(0));
        // The engine's own thread unmaps what its cache still has.
        drop(area);
    }
    let stats = wire.ends[0].engine.registration_stats();
    assert_eq!((stats.invalidations + stats.regions, stats.unmapped_in_use), (50, 0));
}
