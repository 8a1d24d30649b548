//! Doorbells: a thread that sleeps because its ring is empty is woken by who fills it.
//!
//! The sleeper says that it sleeps and looks once more; the other side fills the ring and looks whether it sleeps. A
//! fence stands between the two steps at both sides, so at least one of them sees the other. Ringing costs a fence
//! and a load while no thread sleeps.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sync::{AtomicBool, Mutex, Thread, current, fence, park_timeout};

/// One side's bell.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    is_asleep: AtomicBool,
    /// Who sleeps. Locked to fall asleep and to be woken, never by a message.
    sleeper: Mutex<Option<Thread>>,
}

impl Doorbell {
    /// Sleeps until somebody rings, but not for long, and not at all if there is something to do. May wake early.
    pub(super) fn sleep(&self, at_most: Duration, has_work: impl Fn() -> bool) {
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(current());
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            park_timeout(at_most);
        }
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// There is something to do.
    #[inline]
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let sleeper = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sleeper) = sleeper.as_ref() {
            sleeper.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    /// Who is not woken sleeps for longer than any test runs.
    const FOR_EVER: Duration = Duration::from_hours(1);
    const ROUNDS: u32 = 10_000;

    #[test]
    fn no_ring_is_lost_however_it_meets_the_falling_asleep() {
        let (ball, bells) = (AtomicU32::new(0), [Doorbell::default(), Doorbell::default()]);
        thread::scope(|scope| {
            for side in 0..2 {
                let (ball, bells) = (&ball, &bells);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let ours = 2 * round + side;
                        while ball.load(Ordering::SeqCst) != ours {
                            bells[side as usize].sleep(FOR_EVER, || ball.load(Ordering::SeqCst) == ours);
                        }
                        ball.store(ours + 1, Ordering::SeqCst);
                        bells[1 - side as usize].ring();
                    }
                });
            }
        });
        assert_eq!(ball.into_inner(), 2 * ROUNDS);
    }
}
