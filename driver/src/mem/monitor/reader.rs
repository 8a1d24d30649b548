//! The thread that reads what the kernel tells.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Barrier};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};

use super::super::board::{Board, Telling};
use super::uffd::{Event, MESSAGE};

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
    pub(super) fn start(events: OwnedFd, board: Arc<Board>, is_lost: Arc<AtomicBool>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let is_up = Arc::new(Barrier::new(2));
        let body = {
            let (stop, is_up) = (stop.clone(), is_up.clone());
            move || {
                is_up.wait();
                read_until_stopped(&events, &stop, &board, &is_lost);
                // Before anything of this thread is freed, and perhaps unmapped: nobody reads any more.
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

/// Reads events and tells of them until somebody writes to `stop`. This takes no lock, and allocates and frees nothing.
fn read_until_stopped(events: &OwnedFd, stop: &OwnedFd, board: &Board, is_lost: &AtomicBool) {
    while !is_stopped(Some(events), stop, None) {
        let mut telling = board.begin();
        if drain(events, &mut telling).is_err() {
            is_lost.store(true, Release);
            telling.mark_all();
            drop(telling);
            // It goes on, slowly: should reading work again, then nobody waits for ever.
            if is_stopped(None, stop, Some(&PAUSE)) {
                return;
            }
        }
    }
}

/// Waits until there is news of `events`, or of `stop`, or enough time has gone by, and says whether it was `stop`.
fn is_stopped(events: Option<&OwnedFd>, stop: &OwnedFd, patience: Option<&Timespec>) -> bool {
    let of_stop = PollFd::new(stop, PollFlags::IN);
    let mut fds = [of_stop.clone(), events.map_or(of_stop, |events| PollFd::new(events, PollFlags::IN))];
    // An interrupted wait is one without news.
    poll(&mut fds, patience).is_ok() && !fds[0].revents().is_empty()
}

/// Reads what there is. The epoch is odd all the while: a thread whose event was read may go on before it is told.
fn drain(events: impl AsFd, telling: &mut Telling<'_>) -> io::Result<()> {
    let mut messages = [0u8; BATCH * MESSAGE];
    loop {
        let count = match read(&events, &mut messages) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in messages[..count].as_chunks::<MESSAGE>().0 {
            match Event::parse(message) {
                Event::Changed(range) => telling.mark(&range),
                Event::Unknown => telling.mark_all(),
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
