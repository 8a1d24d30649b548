//! Whether packets come from one place, or go to one, again and again.

use std::net::SocketAddr;

use roci_protocol::Nanos;

use super::super::dpdk::clock;

/// Messages in a row that make a place a regular one.
const ENOUGH: u32 = 1024;
/// How long it stays so at least: to connect a socket takes as long as dozens of messages do.
const STAYS_NS: Nanos = 100_000_000;

/// Watches where messages come from, or go to.
pub(super) struct Regularity {
    place: Option<SocketAddr>,
    in_a_row: u32,
    /// No place is called regular before.
    not_before: Nanos,
}

impl Regularity {
    pub(super) const fn new() -> Self {
        Self { place: None, in_a_row: 0, not_before: 0 }
    }

    /// Notes a message from or to a place. Returns whether it makes that a regular one.
    #[inline]
    pub(super) fn note(&mut self, place: SocketAddr) -> bool {
        if self.place != Some(place) {
            (self.place, self.in_a_row) = (Some(place), 0);
        }
        self.in_a_row += 1;
        self.in_a_row >= ENOUGH && self.begins_again()
    }

    /// Counts anew, and returns whether the last time is long ago.
    #[cold]
    fn begins_again(&mut self) -> bool {
        self.in_a_row = 0;
        let now = clock::now();
        let is_due = now >= self.not_before;
        if is_due {
            self.not_before = now + STAYS_NS;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn a_place_is_regular_once_enough_come_from_it_in_a_row() {
        let mut seen = Regularity::new();
        let mut come = |port, count| (0..count).filter(|_| seen.note(place(port))).count();
        assert_eq!(come(1, ENOUGH - 1), 0);
        assert_eq!(come(2, 1) + come(1, ENOUGH - 1), 0, "another came between");
        assert_eq!(come(1, 1), 1);
    }

    #[test]
    fn another_place_is_not_regular_right_after() {
        let mut seen = Regularity::new();
        let come = |seen: &mut Regularity, port| (0..ENOUGH).filter(|_| seen.note(place(port))).count();
        assert_eq!(come(&mut seen, 1), 1);
        assert!(seen.not_before > 0);
        // However long this takes.
        seen.not_before = Nanos::MAX;
        assert_eq!([come(&mut seen, 2), come(&mut seen, 2)], [0, 0]);
        seen.not_before = 0;
        assert_eq!((0..ENOUGH).filter(|_| seen.note(place(2))).count(), 1);
    }
}
