//! Wake-ups: who sleeps because a ring is empty is woken by who fills it. A thread sleeps parked, or on a descriptor that it
//! has armed.
//!
//! The sleeper says that it sleeps and looks once more; the other side fills the ring and looks whether it sleeps. A
//! fence stands between the two steps at both sides, so at least one of them sees the other. Waking costs a fence
//! and a load while no thread sleeps. A descriptor is written once for each time that it is armed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::sync::{AtomicU8, EventFd, Mutex, Thread, current, fence, park_timeout};

/// A thread is parked, or about to be.
const PARKED: u8 = 1;
/// The next wake-up is to make the descriptor readable.
const ARMED: u8 = 2;

/// Wakes one side.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    /// Who wants to be woken: [`PARKED`], [`ARMED`].
    waiters: AtomicU8,
    /// Who sleeps. Locked to fall asleep and to be woken, never by a message.
    sleeper: Mutex<Option<Thread>>,
    wait_fd: Option<Arc<EventFd>>,
}

impl Wakeup {
    /// One that can be armed.
    pub(super) fn with_wait_fd(wait_fd: Arc<EventFd>) -> Self {
        Self { wait_fd: Some(wait_fd), ..Self::default() }
    }

    /// Sleeps until somebody wakes it, but not for long, and not at all if there is something to do. May wake early.
    pub(super) fn sleep(&self, at_most: Duration, has_work: impl Fn() -> bool) {
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(current());
        self.waiters.fetch_or(PARKED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            park_timeout(at_most);
        }
        self.waiters.fetch_and(!PARKED, Ordering::Relaxed);
    }

    /// Has the next wake-up make the descriptor readable. Who sleeps on it looks for work in between.
    pub(super) fn arm(&self) {
        assert!(self.wait_fd.is_some(), "only a wakeup with a descriptor is armed");
        self.waiters.fetch_or(ARMED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the arming back: there is work. The descriptor is read only where there was a wake-up since.
    pub(super) fn disarm(&self) {
        if !self.take_arming() {
            self.clear();
        }
    }

    /// Takes the arming back and makes the descriptor unreadable. A wake-up that is just being made may still write it, so that
    /// the next sleep ends early.
    pub(super) fn acknowledge(&self) {
        self.take_arming();
        self.clear();
    }

    /// There is something to do.
    #[inline]
    pub(super) fn wake(&self) {
        self.wake_those(PARKED | ARMED);
    }

    /// There is something to do for a thread that waits inside a call.
    #[inline]
    pub(super) fn wake_parked(&self) {
        self.wake_those(PARKED);
    }

    /// There is something to do for who sleeps on the descriptor, and not for who waits inside a call.
    #[inline]
    pub(super) fn wake_armed(&self) {
        self.wake_those(ARMED);
    }

    #[inline]
    fn wake_those(&self, whom: u8) {
        fence(Ordering::SeqCst);
        let waiters = self.waiters.load(Ordering::Relaxed) & whom;
        if waiters != 0 {
            self.wake_now(waiters);
        }
    }

    #[cold]
    fn wake_now(&self, waiters: u8) {
        if waiters & PARKED != 0 {
            let sleeper = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(sleeper) = sleeper.as_ref() {
                sleeper.unpark();
            }
        }
        // Who arms may have taken it back meanwhile.
        if waiters & ARMED != 0
            && self.take_arming()
            && let Some(wait_fd) = &self.wait_fd
        {
            wait_fd.signal();
        }
    }

    /// Returns whether it was armed, which it is no longer.
    fn take_arming(&self) -> bool {
        self.waiters.fetch_and(!ARMED, Ordering::AcqRel) & ARMED != 0
    }

    fn clear(&self) {
        if let Some(wait_fd) = &self.wait_fd {
            wait_fd.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Who is not woken sleeps for longer than any test runs.
    const FOR_EVER: Duration = Duration::from_hours(1);
    const ROUNDS: u32 = 10_000;

    #[test]
    fn no_wakeup_is_lost_however_it_meets_the_falling_asleep() {
        let (ball, wakeups) = (AtomicU32::new(0), [Wakeup::default(), Wakeup::default()]);
        thread::scope(|scope| {
            for side in 0..2 {
                let (ball, wakeups) = (&ball, &wakeups);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let ours = 2 * round + side;
                        while ball.load(Ordering::SeqCst) != ours {
                            wakeups[side as usize].sleep(FOR_EVER, || ball.load(Ordering::SeqCst) == ours);
                        }
                        ball.store(ours + 1, Ordering::SeqCst);
                        wakeups[1 - side as usize].wake();
                    }
                });
            }
        });
        assert_eq!(ball.into_inner(), 2 * ROUNDS);
    }

    /// Sleeps on the descriptor until there is work, and fails rather than sleep on.
    fn sleep_on(wakeup: &Wakeup, wait_fd: &EventFd, has_work: impl Fn() -> bool) {
        wakeup.arm();
        if has_work() {
            return wakeup.disarm();
        }
        let at_most = Timespec { tv_sec: 20, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(wait_fd, PollFlags::IN)], Some(&at_most));
        assert_eq!(woken, Ok(1), "the wakeup was lost");
        wakeup.acknowledge();
    }

    #[test]
    fn no_wakeup_is_lost_however_it_meets_the_falling_asleep_on_a_descriptor() {
        let wait_fds = [(); 2].map(|()| Arc::new(EventFd::new().expect("a descriptor")));
        let wakeups = wait_fds.clone().map(Wakeup::with_wait_fd);
        let ball = AtomicU32::new(0);
        thread::scope(|scope| {
            for side in 0..2 {
                let (ball, wakeups, wait_fds) = (&ball, &wakeups, &wait_fds);
                scope.spawn(move || {
                    for round in 0..10 * ROUNDS {
                        let ours = 2 * round + side;
                        let has_ball = || ball.load(Ordering::SeqCst) == ours;
                        // Now and then it is there before the arming, or comes in the middle of it.
                        (0..round % 50).for_each(|_| std::hint::spin_loop());
                        while !has_ball() {
                            sleep_on(&wakeups[side as usize], &wait_fds[side as usize], has_ball);
                        }
                        ball.store(ours + 1, Ordering::SeqCst);
                        wakeups[1 - side as usize].wake();
                    }
                });
            }
        });
        assert_eq!(ball.into_inner(), 20 * ROUNDS);
    }

    #[test]
    fn an_armed_descriptor_is_written_by_one_wakeup_and_read_where_the_arming_is_taken_back() {
        let wait_fd = Arc::new(EventFd::new().expect("a descriptor"));
        let wakeup = Wakeup::with_wait_fd(wait_fd.clone());
        wakeup.wake();
        wakeup.arm();
        wakeup.wake_parked();
        assert!(!wait_fd.clear(), "neither was for it");
        wakeup.wake();
        assert!(wait_fd.clear());
        wakeup.wake();
        assert!(!wait_fd.clear(), "it was armed once");
        wakeup.arm();
        wakeup.wake_armed();
        wakeup.disarm();
        assert!(!wait_fd.clear(), "it is read, or the next sleep would end at once");
        wakeup.arm();
        wakeup.disarm();
        wakeup.wake();
        wakeup.arm();
        wakeup.acknowledge();
        wakeup.wake();
        assert!(!wait_fd.clear(), "it is not armed any more");
    }
}
