//! One mapping, cut into buffers.
//!
//! A [`Buffer`] owns its bytes alone: it moves into a work request and returns in the completion, so neither the
//! compiler nor a peer can reach it twice. Huge pages of the kernel's pools are there from the beginning; ordinary
//! memory is reserved whole and filled by the kernel as it is touched.
//!
//! Buffers may travel between threads: an engine and the application's threads exchange them, and each returns its
//! range from wherever it is dropped. Only the list of free ranges is shared, behind a lock that is held for one
//! look at that list and nothing else. Where a process is forked in such a moment the lock is never released in the
//! child, so what is dropped there is forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use thiserror::Error;

use super::pages::{BASE_PAGE as PAGE, Mapping, PageChoice, Pages, PassedOver, Placement};
use crate::lasting::Lasting;

/// Small buffers start on a cache line,
/// and buffers of at least a page on a page.
pub(super) const LINE: usize = 64;

/// What an arena is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArenaConfig {
    /// How long, at least; it is rounded up to a page.
    pub bytes: usize,
    /// Of which pages.
    pub pages: PageChoice,
    /// The NUMA node to allocate on, that of the port; `None` where it is unknown.
    pub node: Option<u32>,
}

/// Why there is no memory.
#[derive(Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The kernel gave none, or not of the pages that were insisted on.
    #[error("cannot map {bytes} bytes for the arena: {} (ROCI_ARENA_SIZE, ROCI_ARENA_PAGES)", list(.passed_over))]
    Map {
        /// What was asked for.
        bytes: usize,
        /// What was tried, and why it was not had.
        passed_over: Vec<PassedOver>,
    },
    /// Not even a page, by which a forked child knows that an engine is its parent's.
    #[error("cannot map a page: {0}")]
    Page(std::io::Error),
    /// This process was forked from the one that opened the engine: the arena may be of memory that both share, and which
    /// parts of it are free only the parent knows.
    #[error("this process was forked from the engine's: open an engine of its own")]
    Forked,
    /// No free range is long enough.
    #[error("the arena has no {asked} bytes in one piece ({free} of {size} are free): raise ROCI_ARENA_SIZE")]
    Exhausted {
        /// What was asked for.
        asked: usize,
        /// Free bytes, in any number of pieces.
        free: usize,
        /// The arena's size.
        size: usize,
    },
}

/// A mapping that buffers are cut from. Buffers hold it by `Arc`, so it lives as long as the last of them.
pub struct Arena {
    map: Mapping,
    /// Free ranges, offset to length; no two of them touch.
    free: Mutex<BTreeMap<usize, usize>>,
    /// The process that made it.
    process: u32,
}

impl Arena {
    /// Maps `bytes`, rounded up to a page, of the largest pages that can be had.
    pub fn new(bytes: usize) -> Result<Arc<Self>, ArenaError> {
        Self::with(ArenaConfig { bytes, ..ArenaConfig::default() })
    }

    /// Maps memory as it is asked for.
    pub fn with(config: ArenaConfig) -> Result<Arc<Self>, ArenaError> {
        let ArenaConfig { bytes, pages, node } = config;
        let map = Mapping::new(bytes, pages, node);
        let map = map.map_err(|passed_over| ArenaError::Map { bytes, passed_over })?;
        let free = Mutex::new(BTreeMap::from([(0, map.len())]));
        Ok(Arc::new(Self { map, free, process: std::process::id() }))
    }

    /// The pages that it is made of.
    pub fn pages(&self) -> &Pages {
        &self.map.pages
    }

    /// Where its pages are taken from.
    pub fn placement(&self) -> &Placement {
        &self.map.placement
    }

    /// Larger pages that could not be had, or were not worth it, and why.
    pub fn passed_over(&self) -> &[PassedOver] {
        &self.map.passed_over
    }

    /// Takes room for `len` bytes; returns where it begins, and how long it is.
    pub(super) fn allocate(&self, len: usize) -> Result<(usize, usize), ArenaError> {
        if len > self.map.len() {
            return Err(self.exhausted(len));
        }
        let align = if len < PAGE { LINE } else { PAGE };
        // No overflow: the mapping is far from the end of the address space.
        let room = len.max(1).next_multiple_of(align);
        let offset = self.take(room, align).ok_or_else(|| self.exhausted(len))?;
        Ok((offset, room))
    }

    /// Free bytes, in any number of pieces.
    pub fn free_bytes(&self) -> usize {
        self.ranges().values().sum()
    }

    /// The free ranges. A panic while they were locked can only be the assert below, which changes nothing: they are
    /// good after it.
    pub(super) fn ranges(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, but for a forked child whose parent was looking at them on another thread: `None`.
    fn ranges_of_ours(&self) -> Option<MutexGuard<'_, BTreeMap<usize, usize>>> {
        match self.free.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => (self.process == std::process::id()).then(|| self.ranges()),
        }
    }

    fn exhausted(&self, asked: usize) -> ArenaError {
        ArenaError::Exhausted { asked, free: self.free_bytes(), size: self.map.len() }
    }

    /// First fit: low addresses stay in use, so that the arena touches few pages.
    fn take(&self, room: usize, align: usize) -> Option<usize> {
        let mut free = self.ranges();
        let fits = |(&start, &len): (&usize, &usize)| {
            let at = start.next_multiple_of(align);
            (at + room <= start + len).then_some((start, len, at))
        };
        let (start, len, at) = free.iter().find_map(fits)?;
        free.remove(&start);
        if at > start {
            free.insert(start, at - start);
        }
        if at + room < start + len {
            free.insert(at + room, start + len - at - room);
        }
        Some(at)
    }

    /// Where the mapping begins. It is never unmapped or moved before the last `Arc` goes, and its bytes are
    /// initialised: the kernel zeroes fresh pages.
    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.map.base()
    }

    /// Takes a range back, whole or a piece of what was cut; neighbours that are free become one range with it.
    pub(super) fn give_back(&self, mut start: usize, mut len: usize) {
        if len == 0 {
            return;
        }
        let Some(mut free) = self.ranges_of_ours() else { return };
        let before = free.range(..start).next_back().map(|(&before, &before_len)| (before, before_len));
        assert!(before.is_none_or(|(before, before_len)| before + before_len <= start), "a buffer was freed twice");
        if let Some(after) = free.remove(&(start + len)) {
            len += after;
        }
        if let Some((before, before_len)) = before.filter(|(before, before_len)| before + before_len == start) {
            start = before;
            len += before_len;
        }
        free.insert(start, len);
    }
}

// SAFETY: the mapping, which the arena owns and never moves, has at least `len` bytes from `base` on, and is unmapped
// when the arena is dropped.
unsafe impl Lasting for Arena {
    fn base(&self) -> *const u8 {
        self.map.base()
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn page_size(&self) -> usize {
        self.map.pages.size()
    }

    fn is_pinned(&self) -> bool {
        self.map.pages.is_of_a_pool()
    }
}

fn list(passed_over: &[PassedOver]) -> String {
    passed_over.iter().map(PassedOver::to_string).collect::<Vec<_>>().join("; ")
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} of {} bytes free)", self.free_bytes(), self.map.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::HugePage;
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_return_whole() {
        let arena = Arena::new(1 << 16).expect("memory");
        let mut buffers: Vec<_> = [1, 64, 65, 4096, 5000, 0].map(|len| arena.buffer(len).expect("room")).into();
        for (mark, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(mark as u8);
        }
        for (mark, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| byte == mark as u8));
        }
        while buffers.len() > 1 {
            buffers.swap_remove(buffers.len() / 2);
        }
        buffers.clear();
        assert_eq!(*arena.ranges(), BTreeMap::from([(0, 1 << 16)]));
    }

    #[test]
    fn buffers_dropped_on_other_threads_return_whole_while_more_are_cut() {
        let arena = Arena::new(1 << 20).expect("memory");
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (sender, receiver) = std::sync::mpsc::sync_channel::<crate::mem::Buffer>(8);
                let arena = &arena;
                scope.spawn(move || {
                    for round in 0..500 {
                        let mut buffer = arena.buffer(1 + round * 17 % 9000).expect("room");
                        buffer.fill(thread);
                        sender.send(buffer).expect("the other thread listens");
                    }
                });
                scope.spawn(move || {
                    for buffer in receiver {
                        assert!(buffer.iter().all(|&byte| byte == thread), "somebody else wrote");
                    }
                });
            }
        });
        assert_eq!(*arena.ranges(), BTreeMap::from([(0, 1 << 20)]));
    }

    #[test]
    fn a_panic_under_the_lock_does_not_take_the_arena_along() {
        let arena = Arena::new(1 << 16).expect("memory");
        let freed_twice = std::panic::catch_unwind(|| arena.give_back(64, 64));
        assert!(freed_twice.is_err() && arena.free.is_poisoned());
        assert_eq!(*arena.ranges(), BTreeMap::from([(0, 1 << 16)]));
        assert!(arena.buffer(100).is_ok());
    }

    #[test]
    fn a_child_that_was_forked_while_the_ranges_were_locked_drops_its_buffers() {
        let arena = Arena::new(1 << 16).expect("memory");
        let buffer = arena.buffer(100).expect("room");
        let locked = arena.ranges();
        // SAFETY: the child drops a buffer, which frees nothing, and ends without running anybody's destructors. Were it
        // to wait for the lock the alarm would end it.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: it changes nothing but the child's own timer.
            unsafe { libc::alarm(10) };
            drop(buffer);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(0) };
        }
        drop(locked);
        let mut status = 0;
        // SAFETY: the child is ours, and has not been waited for.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "it was waiting when signal {} came", libc::WTERMSIG(status));
        drop(buffer);
        assert_eq!(*arena.ranges(), BTreeMap::from([(0, 1 << 16)]));
    }

    #[test]
    fn pages_that_cannot_be_had_are_an_error_that_names_the_knob_and_what_makes_them() {
        let config = ArenaConfig { bytes: 1 << 46, pages: PageChoice::Huge(HugePage::Size2M), node: None };
        let error = Arena::with(config).expect_err("64 TiB of huge pages").to_string();
        assert!(error.starts_with("cannot map 70368744177664 bytes for the arena: 2 MiB pages"), "{error}");
        assert!(error.contains("roci hugepages set") && error.contains("ROCI_ARENA_PAGES"), "{error}");
    }

    #[test]
    fn buffers_of_a_large_arena_are_whole_on_whatever_pages_there_are() {
        let arena = Arena::new(4 << 20).expect("memory");
        eprintln!("runs on {}, {}", arena.pages(), arena.placement());
        let mut whole = arena.buffer(4 << 20).expect("room");
        whole.fill(0x3c);
        assert!(whole.iter().all(|&byte| byte == 0x3c));
    }

    #[test]
    fn exhaustion_is_an_error_that_names_the_knob() {
        let arena = Arena::new(PAGE).expect("memory");
        let kept = arena.buffer(100).expect("room");
        let error = arena.buffer(PAGE).expect_err("there is no room").to_string();
        assert!(error.contains("ROCI_ARENA_SIZE"), "{error}");
        drop(kept);
        assert!(arena.buffer(PAGE).is_ok());
        for absurd in [usize::MAX, usize::MAX - PAGE + 1, usize::MAX / 2] {
            assert!(arena.buffer(absurd).is_err(), "{absurd}");
        }
    }
}
