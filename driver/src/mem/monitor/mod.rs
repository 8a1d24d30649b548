//! The monitor: it hears from the kernel when memory that is watched is unmapped, moved or discarded, by whatever means,
//! and says so in the [`WatchTable`] before the call that did it returns.
//!
//! One serves all engines of a process, because a mapping has one userfaultfd. Watched memory is registered with
//! `UFFDIO_REGISTER_MODE_WP` and never write-protected, so that no access faults; what counts is the events.
//!
//! # Who waits for whom
//! A thread that unmaps watched memory waits, holding whatever locks its caller holds, until the event is read. So the
//! reader takes no lock, allocates and frees nothing in its loop, and runs no signal handler; it waits for events
//! alone. Threads that watch and unwatch hold a lock meanwhile (`ioctls`) for which the reader never waits, and the
//! kernel does not wait for events in those calls. An engine that looks at the board in the middle of the reader's work
//! waits for its end, and no thread waits for the engine. So the order is: application, engine, reader; and nothing
//! leads back.
//!
//! The reader declares the epoch odd *before* it reads, because the kernel lets the other thread go as soon as the event
//! is read, not when it has been dealt with.
//!
//! # What no event reports
//! mprotect(2), which changes no page; guard regions (madvise(2), `MADV_GUARD_INSTALL`, since
//! Linux 6.13), which locked memory refuses and an application must not put into other memory that it sends from; a
//! System V segment that is attached over watched memory (shmat(2), `SHM_REMAP`), which only a question to the kernel
//! at each hit would find out; files and System V segments themselves, which so are not cached (see `maps`); fork(2),
//! after which a child has no engine, while the parent's pages stay its own as long as they are pinned (Linux 5.12).
//!
//! # The moment in between
//! The kernel unmaps first and sends the event afterwards (`userfaultfd_unmap_complete`). For that moment, microseconds
//! as a rule, another thread may be given the same addresses for new memory, and if it sends from them before the first
//! thread's call has returned, it may still find the registration of the old. To close this a hit would have to ask the
//! kernel. What happens then: a device that reads memory itself sends what the old pages held. The processor always
//! reads the new.
//!
//! Applications read of both under "Memory" in the crate's documentation.

mod reader;
mod uffd;

use std::io;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use thiserror::Error;

use super::board::{Mark, WatchTable};
use reader::Reader;
#[cfg(all(loom, test))]
pub(super) use reader::tell;
use uffd::Userfaultfd;

/// Why there is no monitor.
#[derive(Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The kernel gives no userfaultfd, or one without the events that are needed.
    #[error(
        "userfaultfd is not to be had: {0} (a container's seccomp profile has to allow it; before Linux 5.11 vm.unprivileged_userfaultfd=1 has, for all but root)"
    )]
    Userfaultfd(io::Error),
    /// No thread, or no memory.
    #[error("the memory monitor cannot be started: {0}")]
    Start(io::Error),
}

/// The monitor of a process.
#[derive(Debug)]
pub(crate) struct Monitor {
    board: Arc<WatchTable>,
    /// `None` once it is being shut down.
    uffd: Option<Userfaultfd>,
    reader: Option<Reader>,
    /// Set by the reader when it can read no more: everything is marked then, and nothing may be cached.
    is_lost: Arc<AtomicBool>,
    /// Locked while a thread watches or unwatches, so that no thread unwatches what another has just watched.
    ioctls: Mutex<()>,
}

/// The board and the monitor of this process, while anybody has them.
static CURRENT: Mutex<Current> = Mutex::new(Current { board: Weak::new(), monitor: Weak::new() });

struct Current {
    board: Weak<WatchTable>,
    monitor: Weak<Monitor>,
}

impl Current {
    /// A child must not open an engine where another thread of its parent opened one in the moment of the fork: as
    /// POSIX has it, nearly nothing may be called there.
    fn lock() -> MutexGuard<'static, Self> {
        CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&mut self) -> io::Result<Arc<WatchTable>> {
        if let Some(board) = self.board.upgrade().filter(|board| !board.is_forked()) {
            return Ok(board);
        }
        let board = Arc::new(WatchTable::new()?);
        self.board = Arc::downgrade(&board);
        Ok(board)
    }
}

/// The board that all engines of this process share.
pub(super) fn board() -> io::Result<Arc<WatchTable>> {
    Current::lock().board()
}

impl Monitor {
    /// The monitor that all engines of this process share; it is started for the first of them.
    pub(super) fn shared() -> Result<SharedMonitor, MonitorError> {
        let mut current = Current::lock();
        if let Some(monitor) = current.monitor.upgrade().filter(|monitor| !monitor.board.is_forked()) {
            return Ok(SharedMonitor(Some(monitor)));
        }
        let board = current.board().map_err(MonitorError::Start)?;
        let monitor = Arc::new(Self::start(board)?);
        current.monitor = Arc::downgrade(&monitor);
        Ok(SharedMonitor(Some(monitor)))
    }

    fn start(board: Arc<WatchTable>) -> Result<Self, MonitorError> {
        let uffd = Userfaultfd::open().map_err(MonitorError::Userfaultfd)?;
        let is_lost = Arc::new(AtomicBool::new(false));
        let events = uffd.try_clone().map_err(MonitorError::Start)?;
        let reader = Reader::start(events, board.clone(), is_lost.clone()).map_err(MonitorError::Start)?;
        Ok(Self { board, uffd: Some(uffd), reader: Some(reader), is_lost, ioctls: Mutex::new(()) })
    }

    /// Whether it hears nothing any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Acquire)
    }

    /// Claims a slot for `range`, and has the kernel tell what happens to it: from here on, nothing is missed. `None`
    /// where all slots are taken, or the kernel does not watch this memory.
    pub(super) fn watch(&self, range: &Range<usize>) -> Option<Mark> {
        let _guard = self.ioctls();
        let mark = self.board.claim(range)?;
        let is_watched = self.uffd.as_ref().is_some_and(|uffd| uffd.register(range).is_ok());
        if !is_watched {
            self.board.release(&mark);
            return None;
        }
        Some(mark)
    }

    /// Ends what `watch` began. Memory of which another slot has a part stays watched. So does memory to which something
    /// happened: what is there now may have another userfaultfd.
    pub(super) fn unwatch(&self, mark: &Mark, range: &Range<usize>) {
        let _guard = self.ioctls();
        if !self.board.is_marked(mark) && !self.board.is_shared(mark, range) {
            // Where that fails the memory stays watched, which costs time when it is unmapped, and nothing else.
            let _ = self.uffd.as_ref().map(|uffd| uffd.unregister(range));
        }
        self.board.release(mark);
    }

    fn ioctls(&self) -> MutexGuard<'_, ()> {
        self.ioctls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One engine's part in the monitor. The last one ends it, and while that lasts no other is started: it would watch what
/// this one lets go of.
#[derive(Debug)]
pub(crate) struct SharedMonitor(Option<Arc<Monitor>>);

impl Deref for SharedMonitor {
    type Target = Monitor;

    fn deref(&self) -> &Monitor {
        self.0.as_deref().expect("it is taken only when this is dropped")
    }
}

impl Drop for SharedMonitor {
    fn drop(&mut self) {
        // In a child the lock may be another thread's that is not there.
        let _current = (!self.board.is_forked()).then(Current::lock);
        drop(self.0.take());
    }
}

impl Drop for Monitor {
    /// The order matters. First nothing must be watched any more, while the reader still reads: a child that was forked
    /// may hold the userfaultfd open for long, and then it would not end with this process's descriptors. The reader
    /// closes its own before anything else may unmap.
    fn drop(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        if self.board.is_forked() {
            // The thread is the parent's.
            return reader.forget();
        }
        if let Some(uffd) = self.uffd.take() {
            uffd.unregister_all();
        }
        reader.stop();
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;
    use rustix::mm::{Advice, madvise};

    use super::*;

    const PAGE: usize = 4096;

    fn range(map: &[u8]) -> Range<usize> {
        map.as_ptr().addr()..map.as_ptr().addr() + map.len()
    }

    /// A monitor that goes lets go of what others watch, too, before Linux 6.15.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared monitor, or `None` with the reason printed where this machine forbids it.
    fn monitor() -> Option<SharedMonitor> {
        Monitor::shared().inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    #[test]
    fn what_is_unmapped_is_marked_when_the_call_returns() {
        let _alone = alone();
        let Some(monitor) = monitor() else { return };
        for _ in 0..200 {
            let map = MmapMut::map_anon(4 * PAGE).expect("memory");
            let mark = monitor.watch(&range(&map)).expect("it is private memory");
            assert!(!monitor.board.is_marked(&mark));
            let range = range(&map);
            drop(map);
            let _ = monitor.board.settled();
            assert!(monitor.board.is_marked(&mark));
            monitor.unwatch(&mark, &range);
        }
    }

    #[test]
    fn memory_of_two_regions_stays_watched_until_both_are_gone() {
        let _alone = alone();
        let Some(monitor) = monitor() else { return };
        let map = MmapMut::map_anon(4 * PAGE).expect("memory");
        let [left, right] = [range(&map[..3 * PAGE]), range(&map[2 * PAGE..])];
        let [first, second] = [&left, &right].map(|range| monitor.watch(range).expect("it is private memory"));
        monitor.unwatch(&first, &left);
        let discard = |page: usize| {
            let at = std::ptr::without_provenance_mut(map.as_ptr().addr() + page * PAGE);
            // SAFETY: nothing reads what was there.
            unsafe { madvise(at, PAGE, Advice::LinuxDontNeed) }.expect("it is ours");
            monitor.board.settled()
        };
        discard(3);
        assert!(monitor.board.is_marked(&second));
        monitor.unwatch(&second, &right);
        let third = monitor.watch(&left).expect("it can be watched again");
        discard(0);
        assert!(monitor.board.is_marked(&third));
        monitor.unwatch(&third, &left);
    }

    #[test]
    fn a_monitor_that_goes_lets_go_of_everything() {
        let _alone = alone();
        let board = Arc::new(WatchTable::new().expect("memory"));
        let Ok(monitor) = Monitor::start(board.clone()).inspect_err(|error| eprintln!("skipped: {error}")) else {
            return;
        };
        let map = MmapMut::map_anon(4 * PAGE).expect("memory");
        let mark = monitor.watch(&range(&map)).expect("it is private memory");
        // As in a child: somebody still has the userfaultfd.
        let kept = monitor.uffd.as_ref().expect("it runs").try_clone().expect("a descriptor");
        drop(monitor);
        // Without a reader this would wait for ever if it were still watched.
        drop(map);
        assert!(!board.is_marked(&mark));
        drop(kept);
    }
}
