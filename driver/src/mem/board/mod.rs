//! What the monitor says about registered memory, and where the owners of registrations read it.
//!
//! There is no queue between them that could overflow: each watched region has a slot with its range and a generation,
//! and what happens to the memory is a step of that generation. A word beside the slots, the *epoch*, shows with one
//! load whether any region was touched: it is even while the monitor is idle, odd while it works, and another even
//! number afterwards if that work touched a region. Its page is wiped in a forked child, which therefore reads 0.
//!
//! The monitor takes no lock here, and allocates nothing: a thread that unmaps memory waits for it, and may hold any
//! lock.

mod epoch;
#[cfg(all(loom, test))]
mod models;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use epoch::Epoch;

use super::common::Common;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, fence, yield_now};

/// Regions that all engines of a process watch at most; a model can do with few.
pub(super) const SLOTS: usize = if cfg!(all(loom, test)) { 2 } else { 16_384 };
/// The epoch in a forked child.
pub(super) const FORKED: u64 = 0;
const FIRST_EPOCH: u64 = 2;
/// Looks at an odd epoch until the processor is yielded.
const SPINS: u32 = if cfg!(all(loom, test)) { 0 } else { 200 };

/// The slots of all watched regions, and the epoch.
pub(crate) struct WatchTable {
    epoch: Epoch,
    slots: Box<[WatchSlot]>,
    /// Slots from here on were never used.
    high: AtomicUsize,
    /// Steps of any generation.
    marks: AtomicU64,
    pub(super) common: Common,
    /// Free slots, the lowest last. Room for all is reserved, so that nothing is allocated under the lock.
    free: Mutex<Vec<u32>>,
}

/// The slot of one watched region.
#[derive(Default)]
struct WatchSlot {
    /// The range that is watched; both are 0 where none is.
    start: AtomicUsize,
    end: AtomicUsize,
    generation: AtomicU32,
}

/// A slot that its holder reads.
#[derive(Debug)]
pub(crate) struct Mark {
    index: u32,
    generation: u32,
}

impl WatchTable {
    /// A board without regions.
    pub(crate) fn new() -> io::Result<Self> {
        let free = (0..SLOTS as u32).rev().collect();
        let slots = (0..SLOTS).map(|_| WatchSlot::default()).collect();
        Ok(Self {
            epoch: Epoch::new(FIRST_EPOCH)?,
            slots,
            high: AtomicUsize::new(0),
            marks: AtomicU64::new(0),
            common: Common::default(),
            free: Mutex::new(free),
        })
    }

    /// Returns the epoch, by one load: equal epochs, if even, mean that watched memory was not changed in between.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.word().load(Acquire)
    }

    /// Whether this process is a child that was forked after the board was made.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        self.epoch() == FORKED
    }

    /// The epoch once the monitor is done with what it is doing, or [`FORKED`]. The monitor does not wait for any other
    /// thread, so this ends.
    pub(super) fn settled(&self) -> u64 {
        let mut looks = 0;
        loop {
            let epoch = self.epoch();
            if epoch.is_multiple_of(2) {
                return epoch;
            }
            looks += 1;
            if looks < SPINS { std::hint::spin_loop() } else { yield_now() }
        }
    }

    /// Steps of any generation so far: where it moved, some region may be marked.
    pub(super) fn marks(&self) -> u64 {
        self.marks.load(Acquire)
    }

    /// A slot for `range`, which is not empty; `None` where all are taken. What happens to the range after this call,
    /// and is seen by a monitor, marks the slot.
    pub(crate) fn claim(&self, range: &Range<usize>) -> Option<Mark> {
        let index = self.free().pop()?;
        let slot = &self.slots[index as usize];
        let generation = slot.generation.load(Acquire);
        // Between these two stores the range is empty.
        slot.start.store(range.start, Relaxed);
        slot.end.store(range.end, Release);
        self.high.fetch_max(index as usize + 1, Release);
        // The slot is there before the range is watched, which the caller sees to next.
        fence(SeqCst);
        Some(Mark { index, generation })
    }

    /// Gives a slot back, once.
    pub(crate) fn release(&self, mark: &Mark) {
        let slot = &self.slots[mark.index as usize];
        slot.end.store(0, Release);
        slot.start.store(0, Release);
        self.free().push(mark.index);
    }

    /// Whether something happened to the range since it was claimed.
    #[inline]
    pub(crate) fn is_marked(&self, mark: &Mark) -> bool {
        self.slots[mark.index as usize].generation.load(Acquire) != mark.generation
    }

    /// Whether a slot besides `mark` has a part of `range`.
    pub(super) fn is_shared(&self, mark: &Mark, range: &Range<usize>) -> bool {
        let others = self.used().enumerate().filter(|(index, _)| *index != mark.index as usize);
        others.into_iter().any(|(_, slot)| slot.touches(range))
    }

    /// Begins to tell what happened. Only one thread may do so at a time: the monitor's.
    pub(crate) fn begin(&self) -> Telling<'_> {
        // In one step: loom remembers of each word who touched it last, and would overlook a reader behind a load of our own.
        let epoch = self.epoch.word().fetch_or(1, SeqCst);
        Telling { board: self, epoch, has_marked: false }
    }

    fn used(&self) -> impl Iterator<Item = &WatchSlot> {
        self.slots[..self.high.load(Acquire)].iter()
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing panics while it is locked.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WatchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board(epoch {}, {} marks)", self.epoch(), self.marks())
    }
}

impl WatchSlot {
    fn touches(&self, range: &Range<usize>) -> bool {
        self.start.load(Acquire) < range.end && range.start < self.end.load(Acquire)
    }
}

/// The monitor at work: the epoch is odd until this is dropped.
pub(crate) struct Telling<'a> {
    board: &'a WatchTable,
    epoch: u64,
    has_marked: bool,
}

impl Telling<'_> {
    /// Something happened to `range`.
    pub(crate) fn mark(&mut self, range: &Range<usize>) {
        for slot in self.board.used().filter(|slot| slot.touches(range)) {
            slot.generation.fetch_add(1, Release);
            self.has_marked = true;
        }
    }

    /// Anything may have happened: to everybody rather than to somebody.
    pub(super) fn mark_all(&mut self) {
        self.mark(&(0..usize::MAX));
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if self.has_marked {
            self.board.marks.fetch_add(1, Release);
        }
        // Where no region was touched, what was valid still is.
        let next = if self.has_marked { self.epoch + 2 } else { self.epoch };
        self.board.epoch.word().store(next, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_marked_and_the_epoch_moves_on() {
        let board = WatchTable::new().expect("memory");
        let [low, high] = [0x1000..0x3000, 0x3000..0x5000].map(|range| board.claim(&range).expect("room"));
        let epoch = board.epoch();
        board.begin().mark(&(0x2fff..0x3000));
        assert_eq!([&low, &high].map(|mark| board.is_marked(mark)), [true, false]);
        assert_eq!((board.epoch(), board.marks()), (epoch + 2, 1));
        board.begin().mark_all();
        assert!(board.is_marked(&high));
    }

    #[test]
    fn a_change_outside_all_regions_leaves_the_epoch_as_it_was() {
        let board = WatchTable::new().expect("memory");
        let mark = board.claim(&(0x1000..0x2000)).expect("room");
        let epoch = board.epoch();
        let mut telling = board.begin();
        assert_eq!(board.epoch() % 2, 1, "meanwhile no region counts as valid");
        telling.mark(&(0x2000..0x9000));
        telling.mark(&(0..0x1000));
        drop(telling);
        assert!(!board.is_marked(&mark));
        assert_eq!((board.epoch(), board.marks()), (epoch, 0));
    }

    #[test]
    fn a_slot_that_is_given_back_hears_nothing_and_serves_again_unmarked() {
        let board = WatchTable::new().expect("memory");
        let range = 0x1000..0x2000;
        let mark = board.claim(&range).expect("room");
        board.begin().mark(&range);
        let index = mark.index;
        board.release(&mark);
        board.begin().mark(&range);
        assert_eq!(board.marks(), 1);
        let again = board.claim(&range).expect("room");
        assert!(again.index == index && !board.is_marked(&again));
    }

    #[test]
    fn slots_run_out_and_come_back() {
        let board = WatchTable::new().expect("memory");
        let range = 0x1000..0x2000;
        let mut marks: Vec<_> = (0..SLOTS).map(|_| board.claim(&range).expect("room")).collect();
        assert!(board.claim(&range).is_none());
        assert!(board.is_shared(&marks[0], &range) && !board.is_shared(&marks[0], &(0x2000..0x3000)));
        board.release(&marks.pop().expect("there are many"));
        assert!(board.claim(&range).is_some());
    }

    #[test]
    fn a_look_while_the_monitor_works_waits_for_its_end() {
        let board = WatchTable::new().expect("memory");
        let mark = board.claim(&(0x1000..0x2000)).expect("room");
        let mut telling = board.begin();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (board.settled(), board.is_marked(&mark)));
            telling.mark(&(0..usize::MAX));
            drop(telling);
            assert_eq!(waiting.join().expect("no panic"), (FIRST_EPOCH + 2, true));
        });
    }
}
