//! How a range finds its registration, or gets one.

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::super::board::{FORKED, Mark};
use super::super::maps::MemoryError;
use super::super::registrar::{RegisterError, Registrar};
use super::{Cache, CachedRegion, Leaving, whole_pages};

/// Why the application's memory cannot be used.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// It is not there, or not to be written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// This process was forked from the one that opened the engine, whose ports and connections stay with it.
    #[error("this process was forked from the engine's: open an engine of its own")]
    Forked,
}

/// How long a registration lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Term {
    Cached,
    Once,
}

impl<R: Registrar> Cache<R> {
    /// The registration that holds `range`, which is not empty, for as long as the result lives. `None` where there can
    /// be none: then the CPU has to copy.
    #[inline]
    pub(crate) fn acquire(&mut self, range: Range<usize>) -> Result<Option<Arc<CachedRegion>>, AdoptError> {
        // One load: the region was good at this epoch, so it is. A forked child's epoch is no line's, so that it finds
        // nothing here and is refused below.
        let epoch = self.watch.board().epoch();
        match self.recent.find(&range, epoch) {
            Some(index) => {
                self.stats.hits_fast += 1;
                Ok(Some(self.index.use_of(index).clone()))
            }
            None => self.acquire_slowly(&range),
        }
    }

    #[cold]
    fn acquire_slowly(&mut self, range: &Range<usize>) -> Result<Option<Arc<CachedRegion>>, AdoptError> {
        // What happens from here on moves the epoch, so that what is remembered under this one is not found again.
        let epoch = self.watch.board().settled();
        if epoch == FORKED {
            return Err(AdoptError::Forked);
        }
        self.tend();
        if let Some(index) = self.index.holding(range).filter(|&index| self.is_good(self.index.get(index))) {
            self.stats.hits_slow += 1;
            let region = self.index.use_of(index).clone();
            self.recent.remember(range.start, &region.range, epoch, index);
            return Ok(Some(region));
        }
        self.stats.misses += 1;
        let region = self.register(range, epoch)?;
        self.stats.unregistered += u64::from(region.is_none());
        Ok(region)
    }

    fn register(&mut self, range: &Range<usize>, epoch: u64) -> Result<Option<Arc<CachedRegion>>, AdoptError> {
        let mapped = self.maps.look(range)?;
        let range = whole_pages(range, mapped.page);
        let may_cache = mapped.is_private && self.watch.may_cache();
        let cached = if may_cache { self.cached(&range, epoch) } else { None };
        Ok(cached.or_else(|| self.once(range)))
    }

    /// A region of the cache for `range`, with all that overlap it, as far as there is room.
    fn cached(&mut self, range: &Range<usize>, epoch: u64) -> Option<Arc<CachedRegion>> {
        let mut whole = range.clone();
        let merged = self.index.overlapping(range);
        for &index in &merged {
            let other = &self.index.get(index).range;
            whole = whole.start.min(other.start)..whole.end.max(other.end);
        }
        if whole.len() > self.limits.bytes || self.hopeless.covers(whole.len()) {
            whole = range.clone();
        }
        for &index in &merged {
            self.retire(index);
        }
        let region = match self.register_whole(whole.clone(), Term::Cached) {
            None if whole != *range => self.register_whole(range.clone(), Term::Cached),
            region => region,
        }?;
        self.stats.merges += merged.len() as u64;
        let region = Arc::new(region);
        let index = self.index.insert(region.clone());
        self.recent.remember(range.start, &region.range, epoch, index);
        Some(region)
    }

    /// A registration that ends with its use.
    fn once(&mut self, range: Range<usize>) -> Option<Arc<CachedRegion>> {
        let region = Arc::new(self.register_whole(range, Term::Once)?);
        self.stats.registered_once += 1;
        self.leaving.push(Leaving { region: region.clone(), is_counted: false });
        Some(region)
    }

    /// Registers whole pages. Regions that had their last use make room, then idle ones, one by one, until it works or
    /// there is none left.
    fn register_whole(&mut self, mut range: Range<usize>, term: Term) -> Option<CachedRegion> {
        if self.hopeless.refuses(range.len(), self.ended_by_others()) {
            return None;
        }
        if !self.has_room(range.len()) {
            self.reap(usize::MAX);
        }
        loop {
            if !self.has_room(range.len()) {
                if self.evict_one() {
                    continue;
                }
                return None;
            }
            let error = match self.attempt(&range, term)? {
                Ok(region) => return Some(region),
                Err(error) => error,
            };
            self.stats.register_failures += 1;
            let has_no_place = error == RegisterError::NoSlot && term == Term::Cached;
            let is_refused = matches!(error, RegisterError::Refused(_));
            let is_alone = self.stats.bytes_registered == 0;
            if is_alone && matches!(error, RegisterError::NoMemory(_)) {
                self.hopeless.learn(range.len(), self.ended_by_others());
            }
            self.last_failure = Some(error);
            if is_refused || !(self.reap(usize::MAX) || has_no_place && self.absorb(&mut range) || self.evict_one()) {
                return None;
            }
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        let regions = self.index.len() + self.leaving.len();
        let free = self.limits.bytes.checked_sub(self.stats.bytes_registered as usize);
        regions < self.limits.regions && free.is_some_and(|free| bytes <= free)
    }

    /// Tries once. `None` where the memory must not be cached: it is not watched, or not all of it is private.
    fn attempt(&mut self, range: &Range<usize>, term: Term) -> Option<Result<CachedRegion, RegisterError>> {
        // First it is watched, then looked at and registered: what happens between marks it.
        let mark = match term {
            Term::Cached => Some(self.watch_private(range)?),
            Term::Once => None,
        };
        let token = match self.registrar.register(range.start, range.len()) {
            Ok(token) => token,
            Err(error) => {
                if let Some(mark) = &mark {
                    self.watch.end(mark, range);
                }
                return Some(Err(error));
            }
        };
        self.stats.registrations += 1;
        self.stats.regions += 1;
        self.stats.bytes_registered += range.len() as u64;
        Some(Ok(CachedRegion { range: range.clone(), token, number: self.stats.registrations, mark }))
    }

    fn watch_private(&mut self, range: &Range<usize>) -> Option<Mark> {
        let mark = self.watch.begin(range)?;
        if self.maps.look(range).is_ok_and(|mapped| mapped.is_private) {
            return Some(mark);
        }
        self.watch.end(&mark, range);
        None
    }

    /// Where a device has no place left, neighbours become one: ends those that are idle and touch `range`, and takes
    /// their bytes to it.
    fn absorb(&mut self, range: &mut Range<usize>) -> bool {
        let neighbours = self.index.touching(range);
        let mut has_any = false;
        for index in neighbours {
            let other = self.index.get(index).range.clone();
            let whole = range.start.min(other.start)..range.end.max(other.end);
            if self.index.is_idle(index) && whole.len() <= self.limits.bytes {
                self.retire(index);
                *range = whole;
                self.stats.merges += 1;
                has_any = true;
            }
        }
        has_any
    }
}
