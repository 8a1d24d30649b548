//! The thread that reads the kernel's events.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Barrier};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::super::board::{Telling, WatchTable};
use super::uffd::{MESSAGE, UffdEvent};

/// Messages read at once.
const BATCH: usize = 16;
/// Until a reader that failed tries again.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The running thread.
#[derive(Debug)]
pub(super) struct Reader {
    thread: JoinHandle<()>,
    stop: Arc<OwnedFd>,
}

impl Reader {
    /// Starts it. When this returns, the thread has allocated all that it ever will.
    pub(super) fn start(events: OwnedFd, board: Arc<WatchTable>, is_lost: Arc<AtomicBool>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let is_up = Arc::new(Barrier::new(2));
        let body = {
            let (stop, is_up) = (stop.clone(), is_up.clone());
            move || {
                run_anywhere();
                is_up.wait();
                read_until_stopped(&events, &stop, &board, &is_lost);
                // Before anything of this thread is freed, and perhaps unmapped: there is no reader any more.
                drop(events);
            }
        };
        // A handler that ran on the thread might unmap what is watched, and would wait for ever.
        let thread = without_signals(|| Builder::new().name("roci-monitor".into()).spawn(body))?;
        is_up.wait();
        Ok(Self { thread, stop })
    }

    /// Lets it end, and waits for it.
    pub(super) fn stop(self) {
        // An eventfd takes a first 1 always.
        let _ = write(&*self.stop, &1u64.to_ne_bytes());
        // It does not panic; and if it had, nothing would follow from it here.
        let _ = self.thread.join();
    }

    /// Leaves it to the process that it runs in.
    pub(super) fn forget(self) {
        std::mem::forget(self.thread);
    }
}

/// Lets the thread run on any processor of the process, with ordinary priority. The thread that opened the engine may
/// be bound to one processor and poll there, or keep others off it by a real-time priority: the reader inherits both,
/// and threads that unmap memory wait for it. Where the kernel refuses, nothing changes.
fn run_anywhere() {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives through the call, which changes this thread alone.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out what there is not, and what the process's cpuset does not allow.
    let _ = sched_setaffinity(None, &all);
}

/// Reads events and marks them on the board until `stop` is written to. This takes no lock, and allocates and frees
/// nothing.
fn read_until_stopped(events: &OwnedFd, stop: &OwnedFd, board: &WatchTable, is_lost: &AtomicBool) {
    while !is_stopped(Some(events), stop, None) {
        let has_read = tell(board, is_lost, |messages| read(events, messages));
        // It goes on, slowly: should reading work again, then no thread waits for ever.
        if !has_read && is_stopped(None, stop, Some(&PAUSE)) {
            return;
        }
    }
}

/// Marks all pending events on the board; `false` where they cannot be read. The epoch is odd all the while, from
/// before the first event is read: the thread that caused an event may go on before the event is marked.
pub(in super::super) fn tell(
    board: &WatchTable,
    is_lost: &AtomicBool,
    read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> bool {
    let mut telling = board.begin();
    let is_read = drain(read, &mut telling).is_ok();
    if !is_read {
        is_lost.store(true, Release);
        telling.mark_all();
    }
    is_read
}

/// Waits until there is news of `events`, or of `stop`, or enough time has gone by, and says whether it was `stop`.
fn is_stopped(events: Option<&OwnedFd>, stop: &OwnedFd, patience: Option<&Timespec>) -> bool {
    let of_stop = PollFd::new(stop, PollFlags::IN);
    let mut fds = [of_stop.clone(), events.map_or(of_stop, |events| PollFd::new(events, PollFlags::IN))];
    // An interrupted wait is one without news.
    poll(&mut fds, patience).is_ok() && !fds[0].revents().is_empty()
}

/// Reads what there is.
fn drain(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>, telling: &mut Telling<'_>) -> io::Result<()> {
    let mut messages = [0u8; BATCH * MESSAGE];
    loop {
        let count = match read(&mut messages) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in messages[..count].as_chunks::<MESSAGE>().0 {
            match UffdEvent::parse(message) {
                UffdEvent::Changed(range) => telling.mark(&range),
                UffdEvent::Unknown => telling.mark_all(),
            }
        }
    }
}

/// Runs `spawn` with all signals blocked, which the new thread inherits.
fn without_signals<T>(spawn: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets live through the calls; the first is filled before it is used, and the second is filled by the
    // call that blocks.
    let is_blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = spawn();
    if is_blocked {
        // SAFETY: the set was filled above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::thread::{Pid, gettid, sched_getaffinity};

    use super::*;

    /// The threads of that name.
    fn readers() -> BTreeSet<i32> {
        let threads = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
        let is_reader = |thread: &std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "roci-monitor")
        };
        threads.filter(is_reader).filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
    }

    /// Binds this thread to its first processor, and makes it one of a policy that is inherited and that everybody may
    /// have.
    fn bind() {
        let before = sched_getaffinity(None).expect("a set");
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).expect("it runs somewhere"));
        sched_setaffinity(None, &one).expect("it may run there");
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameter lives through the call.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) }, 0);
    }

    /// How many processors a thread may run on, and its policy; `None` where it has ended.
    fn schedule(thread: Pid) -> Option<(u32, i32)> {
        // SAFETY: only asks.
        let policy = unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) };
        Some((sched_getaffinity(Some(thread)).ok()?.count(), policy))
    }

    #[test]
    fn the_reader_runs_anywhere_though_its_opener_is_bound() {
        let (all, _) = schedule(gettid()).expect("it runs");
        let run = || {
            bind();
            assert_eq!(schedule(gettid()), Some((1, libc::SCHED_BATCH)));
            let board = Arc::new(WatchTable::new().expect("memory"));
            // It sends no event.
            let events = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
            let others = readers();
            let reader = Reader::start(events, board, Arc::default()).expect("a thread");
            // Other tests may start some, too.
            let fresh =
                readers().difference(&others).filter_map(|&id| schedule(Pid::from_raw(id)?)).collect::<Vec<_>>();
            reader.stop();
            fresh
        };
        let fresh = std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
        assert!(fresh.iter().any(|&(count, policy)| count >= all && policy == libc::SCHED_OTHER), "{fresh:?}");
    }
}
