//! The registration cache (MR cache, rcache): registering memory costs microseconds, so a registration outlives its use, until its place is
//! needed or its memory is gone.
//!
//! It follows what MVICH's dreg began (lazy deregistration, eviction of the least recently used, and again until it
//! works), what Wyckoff and Wu added (a word that the kernel's news change, and that a hit reads), and how UCX merges
//! what overlaps. Regions are whole pages and do not overlap. One that overlaps others takes their place and their
//! bytes; those that are in use end with their last use.
//!
//! All calls come from the thread that has the engine. Others only drop what they hold.

mod acquire;
mod hopeless;
mod index;
mod recent;
mod region;
mod stats;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use super::maps::Maps;
use super::registrar::{RegisterError, Registrar};
use super::watch::Watch;
use hopeless::Hopeless;
use index::Index;
use recent::Recent;

pub use acquire::AdoptError;
pub(crate) use region::CachedRegion;
pub use stats::RegistrationStats;

/// How much may be registered at once, in use or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheLimits {
    pub(crate) regions: usize,
    pub(crate) bytes: usize,
}

/// Regions in use that have left the cache, and are looked at in each call: there may be as many as buffers.
const REAPED_AT_ONCE: usize = 8;

/// The cache over a registrar.
#[derive(Debug)]
pub(crate) struct Cache<R: Registrar> {
    registrar: R,
    watch: Watch,
    maps: Maps,
    limits: CacheLimits,
    recent: Recent,
    index: Index,
    /// Registered regions that are not in the index any more, or never were, and end with their last use.
    leaving: Vec<Leaving>,
    /// Which of those is looked at next.
    next_leaving: usize,
    /// The board's marks when they were last looked at.
    marks_seen: u64,
    hopeless: Hopeless,
    /// Why the last registration failed.
    last_failure: Option<RegisterError>,
    stats: RegistrationStats,
}

#[derive(Debug)]
struct Leaving {
    region: Arc<CachedRegion>,
    /// It was counted as unmapped.
    is_counted: bool,
}

impl<R: Registrar> Cache<R> {
    pub(crate) fn new(registrar: R, watch: Watch, limits: CacheLimits) -> Self {
        let marks_seen = watch.board().marks();
        Self {
            registrar,
            watch,
            maps: Maps::new(),
            limits,
            recent: Recent::new(),
            index: Index::default(),
            leaving: Vec::new(),
            next_leaving: 0,
            marks_seen,
            hopeless: Hopeless::nothing(),
            last_failure: None,
            stats: RegistrationStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> RegistrationStats {
        self.stats
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Why memory was last not registered.
    pub(crate) fn last_failure(&self) -> Option<&RegisterError> {
        self.last_failure.as_ref()
    }

    /// Ends what has become invalid, and what has been used for the last time. Cheap where there is nothing to do.
    pub(crate) fn tend(&mut self) {
        if self.watch.board().is_forked() {
            return;
        }
        self.sweep();
        if !self.leaving.is_empty() {
            self.reap(REAPED_AT_ONCE);
        }
    }

    /// Takes out what the monitor has marked.
    fn sweep(&mut self) {
        let marks = self.watch.board().marks();
        if marks == self.marks_seen {
            return;
        }
        self.marks_seen = marks;
        let stale: Vec<u32> = self.index.all().filter(|&index| !self.is_good(self.index.get(index))).collect();
        for index in stale {
            self.stats.invalidations += 1;
            let is_in_use = !self.retire(index);
            if is_in_use {
                self.stats.unmapped_in_use += 1;
                self.leaving.last_mut().expect("it was just put there").is_counted = true;
            }
        }
        self.count_unmapped_among_leaving();
    }

    /// What has left the index may be unmapped in use as well.
    fn count_unmapped_among_leaving(&mut self) {
        let board = self.watch.board();
        for leaving in self.leaving.iter_mut().filter(|leaving| !leaving.is_counted) {
            let is_marked = leaving.region.mark.as_ref().is_some_and(|mark| board.is_marked(mark));
            if is_marked && Arc::get_mut(&mut leaving.region).is_none() {
                leaving.is_counted = true;
                self.stats.unmapped_in_use += 1;
            }
        }
    }

    /// Looks at so many regions that have left the cache, by turns, and ends those that have no other owner any more. Returns whether
    /// there were any.
    fn reap(&mut self, most: usize) -> bool {
        let before = self.leaving.len();
        for _ in 0..most.min(before) {
            if self.next_leaving >= self.leaving.len() {
                self.next_leaving = 0;
            }
            let at = self.next_leaving;
            if Arc::get_mut(&mut self.leaving[at].region).is_some() {
                let Leaving { region, .. } = self.leaving.swap_remove(at);
                self.unregister(&region);
            } else {
                self.next_leaving += 1;
            }
        }
        self.leaving.len() < before
    }

    /// Whether nothing has happened to the region.
    fn is_good(&self, region: &CachedRegion) -> bool {
        region.mark.as_ref().is_some_and(|mark| !self.watch.board().is_marked(mark))
    }

    /// Takes a region out of the index, and ends it, if it is idle: then `true`.
    fn retire(&mut self, index: u32) -> bool {
        let is_idle = self.index.is_idle(index);
        self.recent.forget(index);
        let region = self.index.remove(index);
        if is_idle {
            self.unregister(&region);
        } else {
            self.leaving.push(Leaving { region, is_counted: false });
        }
        is_idle
    }

    /// Makes room by one region.
    fn evict_one(&mut self) -> bool {
        let Some(index) = self.index.oldest_idle() else { return false };
        self.stats.evictions += 1;
        self.retire(index)
    }

    /// Registrations that the other engines of the process have ended so far.
    fn ended_by_others(&self) -> u64 {
        // A cache before this one, of the same engine, is another's.
        self.watch.board().common.ended() - self.stats.deregistrations
    }

    /// Ends a registration.
    fn unregister(&mut self, region: &CachedRegion) {
        let is_gone = region.mark.as_ref().is_some_and(|mark| self.watch.board().is_marked(mark));
        self.registrar.unregister(region.token, is_gone);
        if let Some(mark) = &region.mark {
            self.watch.end(mark, &region.range);
        }
        self.watch.board().common.end_one();
        self.stats.deregistrations += 1;
        self.stats.regions -= 1;
        self.stats.bytes_registered -= region.range.len() as u64;
    }
}

impl<R: Registrar> Drop for Cache<R> {
    /// Ends all, also what is in use: the device goes with the engine, and what buffers hold is only a number then. In a
    /// forked child nothing is ended: all of it is the parent's.
    fn drop(&mut self) {
        if self.watch.board().is_forked() {
            return;
        }
        let indexed: Vec<u32> = self.index.all().collect();
        let indexed: Vec<_> = indexed.into_iter().map(|index| self.index.remove(index)).collect();
        let leaving = std::mem::take(&mut self.leaving).into_iter().map(|leaving| leaving.region);
        for region in indexed.into_iter().chain(leaving) {
            self.unregister(&region);
        }
    }
}

/// The smallest range of whole pages that holds `range`. At the very end of the address space there is no memory.
fn whole_pages(range: &Range<usize>, page: usize) -> Range<usize> {
    let end = range.end.checked_next_multiple_of(page).unwrap_or(range.end & !(page - 1));
    range.start & !(page - 1)..end
}
