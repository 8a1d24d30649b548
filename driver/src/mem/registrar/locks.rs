//! Who has locked which pages. Locks do not nest (mlock(2)): the first munlock(2) of a process ends what all its engines
//! have locked, so they keep count together.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::{mlock, munlock};

/// Ranges that engines of the process have locked, by name. It is behind a mutex, for the length of the kernel's calls
/// too: else one engine might unlock what another has just found locked. Neither call waits for the monitor.
#[derive(Debug, Default)]
pub(in crate::mem) struct Locks {
    ranges: BTreeMap<u64, Range<usize>>,
    last: u64,
}

impl Locks {
    /// Locks a range, until its name is given to `unlock` or `forget`.
    pub(super) fn lock(&mut self, range: Range<usize>) -> Result<u64, Errno> {
        // SAFETY: only whether pages may be swapped out changes, not what they hold.
        if let Err(error) = unsafe { mlock(std::ptr::without_provenance_mut(range.start), range.len()) } {
            // A part may have been locked before the failure.
            self.release(range);
            return Err(error);
        }
        self.last += 1;
        self.ranges.insert(self.last, range);
        Ok(self.last)
    }

    pub(super) fn unlock(&mut self, name: u64) {
        if let Some(range) = self.forget(name) {
            self.release(range);
        }
    }

    /// Forgets a range and leaves its memory as it is, because it may have another owner now.
    pub(super) fn forget(&mut self, name: u64) -> Option<Range<usize>> {
        self.ranges.remove(&name)
    }

    /// Of failures of a part nothing is to be done: what is not mapped is not locked.
    fn release(&self, range: Range<usize>) {
        for part in self.unneeded(range) {
            // SAFETY: as in `lock`.
            let _ = unsafe { munlock(std::ptr::without_provenance_mut(part.start), part.len()) };
        }
    }

    /// Returns the parts of `range` that no registration has locked.
    fn unneeded(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut needed: Vec<_> =
            self.ranges.values().filter(|other| other.start < range.end && range.start < other.end).collect();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_needs_is_left_out() {
        let mut locks = Locks::default();
        assert_eq!(locks.unneeded(10..20), [10..20; 1]);
        locks.ranges.extend([(1, 12..14), (2, 13..16), (3, 18..30), (4, 20..21)]);
        assert_eq!(locks.unneeded(10..20), [10..12, 16..18]);
        assert!(locks.unneeded(12..16).is_empty());
    }
}
