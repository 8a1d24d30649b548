//! Waiting: how a thread that finds nothing to do spares the processor.

use std::cell::Cell;
use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

/// Looks in vain before the processor is yielded, and before the thread sleeps between two of them.
const SPINS: u32 = 200;
const YIELDS: u32 = 2_000;
/// The longest sleep between two looks.
const SLEEP: Duration = Duration::from_micros(500);

/// How long somebody waits, and how.
pub(crate) struct PollingWait {
    until: Option<Instant>,
    in_vain: u32,
}

impl PollingWait {
    /// For so many milliseconds; for ever where they are negative.
    pub(crate) fn of_milliseconds(timeout_ms: c_int) -> Self {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Self { until: timeout.map(|timeout| Instant::now() + timeout), in_vain: 0 }
    }

    /// Waits a moment before the next look; returns whether there is time for one.
    pub(crate) fn wait(&mut self, happened: bool) -> bool {
        self.in_vain = if happened { 0 } else { self.in_vain.saturating_add(1) };
        if self.in_vain > YIELDS {
            thread::sleep(SLEEP.min(Duration::from_micros(20) * (self.in_vain - YIELDS)));
        } else if self.in_vain > SPINS {
            thread::yield_now();
        }
        // A clock is dearer than a look.
        !self.in_vain.is_multiple_of(16) || self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Reads of a thread's that have found nothing, one after the other. An MPI library that waits does nothing but read: where there are more
/// ranks than processors, those that have nothing to do must let the others run.
///
/// A library with several queues reads them by turns. What one of them finds is often for another, so all count as one; and where
/// nothing is found the processor is yielded once in each round, at the same queue.
struct IdleReads {
    in_vain: Cell<u32>,
    /// The queue at which the thread yields, and how many reads of others have found nothing since its last one.
    turn: Cell<usize>,
    since: Cell<u32>,
}

thread_local! {
    static IDLE: IdleReads = const { IdleReads { in_vain: Cell::new(0), turn: Cell::new(0), since: Cell::new(0) } };
}

/// A read has found something, be it for another queue.
#[inline]
pub(crate) fn note_found() {
    IDLE.with(|idle| idle.in_vain.set(0));
}

/// A read of a queue has found nothing. Yields the processor where many before it have found nothing either.
#[inline]
pub(crate) fn note_nothing(queue: usize) {
    if IDLE.with(|idle| idle.is_to_yield(queue)) {
        thread::yield_now();
    }
}

impl IdleReads {
    fn is_to_yield(&self, queue: usize) -> bool {
        let in_vain = self.in_vain.get();
        self.in_vain.set(in_vain.saturating_add(1));
        let since = self.since.get();
        // A queue that is not read any more loses its turn.
        let is_its_turn = self.turn.get() == queue || in_vain == 0 || since > SPINS;
        if is_its_turn {
            self.turn.set(queue);
        }
        self.since.set(if is_its_turn { 0 } else { since + 1 });
        is_its_turn && in_vain >= SPINS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_queue_of_a_round_yields_and_any_that_finds_something_counts() {
        let idle = IdleReads { in_vain: Cell::new(0), turn: Cell::new(0), since: Cell::new(0) };
        let rounds = |count: usize| (0..count).flat_map(|_| [1, 2, 3]).filter(|&queue| idle.is_to_yield(queue)).count();
        assert_eq!(rounds(SPINS as usize / 3 + 1), 0);
        assert_eq!(rounds(100), 100);
        idle.in_vain.set(0);
        assert_eq!(rounds(SPINS as usize / 3 + 1), 0);
        // The queue whose turn it was is closed.
        let others = (0..SPINS as usize).flat_map(|_| [2, 3]).filter(|&queue| idle.is_to_yield(queue)).count();
        assert!((50..=110).contains(&others), "{others}");
    }
}
