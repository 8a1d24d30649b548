//! How a wait spends its time: it spins, then yields the processor, then sleeps.

use std::thread;
use std::time::{Duration, Instant};

use crate::config::Config;
use roci_launcher::Reminder;

const FIRST_SLEEP: Duration = Duration::from_micros(20);
/// A peer's end shows on its link long before this.
pub(crate) const SUSPICIOUS: Duration = Duration::from_secs(1);
/// Looks between two readings of the clock.
const LOOKS: u32 = 32;

/// The state of one wait.
#[derive(Debug)]
pub(crate) struct Backoff {
    limits: BackoffLimits,
    looks: u32,
    idle_since: Option<Instant>,
    sleep: Duration,
    reminder: Option<Reminder>,
    report: Option<Duration>,
}

/// When spinning ends, and yielding, and how long a sleep may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackoffLimits {
    spin: Duration,
    yield_until: Duration,
    sleep_max: Duration,
}

impl BackoffLimits {
    /// With more ranks than processors, spinning only keeps a peer from its work.
    pub(crate) fn new(config: &Config, ranks: usize, processors: usize) -> Self {
        let spin = if ranks > processors { 0 } else { config.spin_us };
        Self {
            spin: Duration::from_micros(spin),
            yield_until: Duration::from_micros(spin + config.yield_us),
            sleep_max: Duration::from_micros(config.sleep_max_us),
        }
    }
}

/// What a wait did for which nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// It kept the processor.
    Spin,
    /// It gave the processor away, for however long.
    Rest,
    /// The same, after so long that what it waits for may never come.
    Doubt,
}

impl Backoff {
    pub(crate) fn new(limits: BackoffLimits) -> Self {
        Self { limits, looks: 0, idle_since: None, sleep: FIRST_SLEEP, reminder: None, report: None }
    }

    /// Something happened.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.looks = 0;
        if self.idle_since.is_some() {
            self.idle_since = None;
            self.sleep = FIRST_SLEEP;
        }
    }

    /// Whether it gives the processor away at once where nothing happens.
    #[inline]
    pub(crate) fn is_to_rest(&self) -> bool {
        self.limits.spin.is_zero()
    }

    /// Nothing happened.
    #[inline]
    pub(crate) fn idle(&mut self) -> Idle {
        self.idle_by(thread::sleep)
    }

    /// As [`Backoff::idle`], but sleeps in its own way, such as one that somebody can wake it from.
    #[inline]
    pub(crate) fn idle_by(&mut self, sleep: impl FnOnce(Duration)) -> Idle {
        self.looks += 1;
        if self.looks < LOOKS && !self.limits.spin.is_zero() {
            std::hint::spin_loop();
            return Idle::Spin;
        }
        self.looks = 0;
        self.idle_long(sleep)
    }

    /// How long the whole wait has lasted, once for each time that it is to be said. What happens beside it makes it no
    /// shorter.
    #[inline]
    pub(crate) fn take_report(&mut self) -> Option<Duration> {
        self.report.take()
    }

    #[cold]
    fn idle_long(&mut self, sleep: impl FnOnce(Duration)) -> Idle {
        self.report = self.reminder.get_or_insert_with(Reminder::start).due();
        let idle = self.idle_since.get_or_insert_with(Instant::now).elapsed();
        if idle < self.limits.spin {
            std::hint::spin_loop();
            return Idle::Spin;
        }
        if idle < self.limits.yield_until {
            thread::yield_now();
        } else {
            sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(self.limits.sleep_max);
        }
        if idle < SUSPICIOUS { Idle::Rest } else { Idle::Doubt }
    }
}
