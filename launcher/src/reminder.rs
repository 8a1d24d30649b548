//! When a wait is to be reported: after 5 seconds, after 10, 20, 40, and so on.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(5);

/// One wait, and when something is to be said of it.
#[derive(Debug)]
pub struct Reminder {
    since: Instant,
    next: Duration,
}

impl Reminder {
    /// The wait begins.
    pub fn start() -> Self {
        Self { since: Instant::now(), next: FIRST }
    }

    /// How long the wait has lasted, where that is to be said now.
    pub fn due(&mut self) -> Option<Duration> {
        self.due_after(self.since.elapsed())
    }

    /// When it is to be said next.
    pub fn next(&self) -> Instant {
        self.since + self.next
    }

    fn due_after(&mut self, waited: Duration) -> Option<Duration> {
        if waited < self.next {
            return None;
        }
        while self.next <= waited {
            self.next *= 2;
        }
        Some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_after_five_seconds_and_after_twice_as_long_each_time() {
        let mut reminder = Reminder::start();
        let mut said = Vec::new();
        for seconds in 0..100 {
            said.extend(reminder.due_after(Duration::from_secs(seconds)));
        }
        assert_eq!(said, [5, 10, 20, 40, 80].map(Duration::from_secs));
    }

    #[test]
    fn who_looks_late_says_it_once() {
        let mut reminder = Reminder::start();
        assert_eq!(reminder.due_after(Duration::from_secs(23)), Some(Duration::from_secs(23)));
        assert_eq!(reminder.due_after(Duration::from_secs(39)), None);
        assert_eq!(reminder.due_after(Duration::from_secs(40)), Some(Duration::from_secs(40)));
    }
}
