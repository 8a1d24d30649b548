//! Registration by the kernel: pages are locked, so that no transfer waits for one to come back.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::super::board::WatchTable;
use super::limit::MemlockLimit;
use super::locks::Locks;
use super::{RegisterError, Registrar};

/// Locks pages, together with the other engines of the process.
#[derive(Debug)]
pub(crate) struct Pinned {
    board: Arc<WatchTable>,
}

impl Pinned {
    pub(crate) const fn new(board: Arc<WatchTable>) -> Self {
        Self { board }
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        // Nothing panics while it is locked.
        self.board.common.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for Pinned {
    fn register(&mut self, base: usize, len: usize) -> Result<u64, RegisterError> {
        let locked = self.locks().lock(base..base + len);
        locked.map_err(|error| MemlockLimit::now().why_not(error, len))
    }

    /// What was unmapped is unlocked by that. What lies there now may be locked by the application: it is left alone,
    /// and so is the rest of a range that is gone in part, until it is unmapped too.
    fn unregister(&mut self, token: u64, is_gone: bool) {
        let mut locks = self.locks();
        if is_gone {
            locks.forget(token);
        } else {
            locks.unlock(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    const PAGE: usize = 4096;

    fn board() -> Arc<WatchTable> {
        Arc::new(WatchTable::new().expect("memory"))
    }

    /// Kilobytes of the mapping that are locked, by page.
    fn locked_pages(map: &MmapMut) -> Vec<bool> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
        let mut pages = vec![false; map.len() / PAGE];
        let mut here = 0..0;
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-') {
                let hex = |text| usize::from_str_radix(text, 16).expect("an address");
                here = hex(from)..hex(to);
            } else if first == "VmFlags:" && line.split_whitespace().any(|flag| flag == "lo") {
                let base = map.as_ptr().addr();
                let inside = |page: &usize| here.contains(&(base + page * PAGE));
                (0..pages.len()).filter(inside).for_each(|page| pages[page] = true);
            }
        }
        pages
    }

    #[test]
    fn pages_stay_locked_until_the_last_registration_that_needs_them_ends() {
        let map = MmapMut::map_anon(6 * PAGE).expect("memory");
        let base = map.as_ptr().addr();
        let mut pinned = Pinned::new(board());
        let left = pinned.register(base, 3 * PAGE).expect("within the limit");
        let right = pinned.register(base + 2 * PAGE, 3 * PAGE).expect("within the limit");
        assert_eq!(locked_pages(&map), [true, true, true, true, true, false]);
        pinned.unregister(left, false);
        assert_eq!(locked_pages(&map), [false, false, true, true, true, false]);
        pinned.unregister(left, false);
        pinned.unregister(right, false);
        assert_eq!(locked_pages(&map), [false; 6]);
    }

    #[test]
    fn what_two_engines_have_locked_stays_so_until_both_have_ended_it() {
        let map = MmapMut::map_anon(3 * PAGE).expect("memory");
        let base = map.as_ptr().addr();
        let board = board();
        let [mut one, mut other] = [Pinned::new(board.clone()), Pinned::new(board)];
        let left = one.register(base, 2 * PAGE).expect("within the limit");
        let right = other.register(base + PAGE, 2 * PAGE).expect("within the limit");
        one.unregister(left, false);
        assert_eq!(locked_pages(&map), [false, true, true]);
        other.unregister(right, false);
        assert_eq!(locked_pages(&map), [false; 3]);
    }

    #[test]
    fn what_is_gone_is_left_as_it_is() {
        let map = MmapMut::map_anon(PAGE).expect("memory");
        let mut pinned = Pinned::new(board());
        let token = pinned.register(map.as_ptr().addr(), PAGE).expect("within the limit");
        pinned.unregister(token, true);
        assert_eq!(locked_pages(&map), [true]);
    }

    #[test]
    fn a_refusal_says_what_is_wrong_and_leaves_nothing_locked() {
        let mut pinned = Pinned::new(board());
        let error = pinned.register(1 << 46, PAGE).expect_err("nothing is mapped there").to_string();
        assert!(error.contains("cannot lock 4096 bytes") && error.contains("not there"), "{error}");
        assert_eq!(pinned.locks().forget(1), None);
    }
}
