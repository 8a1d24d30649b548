//! Registration by the kernel: pages are locked, so that no transfer waits for one to come back.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::{mlock, munlock};
use rustix::process::{Resource, getrlimit};

use super::{RegisterError, Registrar};

/// Locks pages. Locks do not nest (mlock(2)), so it keeps count of who else wants them.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    locked: BTreeMap<u64, Range<usize>>,
    next: u64,
}

impl Pinned {
    /// The parts of `range` that no registration needs.
    fn unneeded(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut needed: Vec<_> =
            self.locked.values().filter(|other| other.start < range.end && range.start < other.end).collect();
        needed.sort_unstable_by_key(|other| other.start);
        let mut parts = Vec::new();
        let mut at = range.start;
        for other in needed {
            if other.start > at {
                parts.push(at..other.start);
            }
            at = at.max(other.end);
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }

    /// Of failures of a part nothing is to be done: what is not mapped is not locked.
    fn unlock(&self, range: Range<usize>) {
        for part in self.unneeded(range) {
            // SAFETY: only whether pages may be swapped out changes, not what they hold.
            let _ = unsafe { munlock(std::ptr::without_provenance_mut(part.start), part.len()) };
        }
    }
}

impl Registrar for Pinned {
    fn register(&mut self, base: usize, len: usize) -> Result<u64, RegisterError> {
        // SAFETY: as in `unlock`.
        if let Err(error) = unsafe { mlock(std::ptr::without_provenance_mut(base), len) } {
            // A part may have been locked before the failure.
            self.unlock(base..base + len);
            return Err(why_not(error, len));
        }
        self.next += 1;
        self.locked.insert(self.next, base..base + len);
        Ok(self.next)
    }

    /// What was unmapped is unlocked by that. What lies there now may be locked by the application: it is left alone,
    /// and so is the rest of a range that is gone in part, until it is unmapped too.
    fn unregister(&mut self, token: u64, is_gone: bool) {
        let Some(range) = self.locked.remove(&token) else { return };
        if !is_gone {
            self.unlock(range);
        }
    }
}

fn why_not(error: Errno, len: usize) -> RegisterError {
    let limit = getrlimit(Resource::Memlock).current;
    match (error, limit) {
        (Errno::NOMEM | Errno::AGAIN | Errno::PERM, Some(limit)) => RegisterError::NoMemory(format!(
            "cannot lock {len} bytes more, {limit} may be locked in all: raise the limit by 'ulimit -l' (RLIMIT_MEMLOCK)"
        )),
        (Errno::NOMEM | Errno::AGAIN, None) => {
            RegisterError::NoMemory(format!("cannot lock {len} bytes more: memory is short"))
        }
        _ => RegisterError::Refused(format!("cannot lock {len} bytes: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    const PAGE: usize = 4096;

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
        let mut pinned = Pinned::default();
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
    fn what_is_gone_is_left_as_it_is() {
        let map = MmapMut::map_anon(PAGE).expect("memory");
        let mut pinned = Pinned::default();
        let token = pinned.register(map.as_ptr().addr(), PAGE).expect("within the limit");
        pinned.unregister(token, true);
        assert_eq!(locked_pages(&map), [true]);
    }

    #[test]
    fn a_refusal_names_the_limit_and_leaves_nothing_locked() {
        let mut pinned = Pinned::default();
        let error = pinned.register(1 << 46, PAGE).expect_err("nothing is mapped there").to_string();
        assert!(error.contains("cannot lock 4096 bytes"), "{error}");
        assert!(pinned.locked.is_empty());
        assert!(why_not(Errno::INVAL, 1).to_string().starts_with("cannot lock 1 bytes:"));
    }
}
