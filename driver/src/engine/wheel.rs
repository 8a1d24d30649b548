//! The timer wheel: whose time has come, without looking at everybody (Varghese and Lauck, SOSP 1987, scheme 6).
//!
//! Time is cut into ticks, and ticks are hashed onto slots. An entry stays where it is until its own tick has passed, so
//! timers are up to a tick late and never early. Entries are not taken back: whoever is looked up in vain says so cheaply.

use roci_protocol::{Nanos, Qpn};

/// A tick is 4096 ns: short for a pause between packets, long enough that a slot is looked at rarely.
const TICK_SHIFT: u32 = 12;
const SLOTS: u64 = 256;

/// A queue pair, and the time that it asked for.
pub(super) type Entry = (Qpn, Nanos);

pub(super) struct Wheel {
    slots: Vec<Vec<Entry>>,
    /// The first tick that has not passed.
    tick: u64,
    len: usize,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { slots: vec![Vec::new(); SLOTS as usize], tick: 0, len: 0 }
    }

    /// Asks for `qpn` at `at`, or at the next tick where that has passed.
    #[inline]
    pub(super) fn arm(&mut self, qpn: Qpn, at: Nanos) {
        let tick = (at >> TICK_SHIFT).max(self.tick);
        self.slots[(tick % SLOTS) as usize].push((qpn, at));
        self.len += 1;
    }

    /// Whether a tick has passed since the last look.
    #[inline]
    pub(super) fn has_ticked(&self, now: Nanos) -> bool {
        now >> TICK_SHIFT > self.tick
    }

    /// Moves everything whose tick has passed to `due`.
    pub(super) fn expire(&mut self, now: Nanos, due: &mut Vec<Entry>) {
        let end = now >> TICK_SHIFT;
        if self.len > 0 {
            // Every slot once, at most: each holds the entries of all its rounds.
            for tick in self.tick..end.min(self.tick + SLOTS) {
                let slot = &mut self.slots[(tick % SLOTS) as usize];
                let before = slot.len();
                slot.retain(|&(qpn, at)| {
                    let is_due = at >> TICK_SHIFT < end;
                    if is_due {
                        due.push((qpn, at));
                    }
                    !is_due
                });
                self.len -= before - slot.len();
            }
        }
        self.tick = self.tick.max(end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: Nanos = 1 << TICK_SHIFT;

    fn expired(wheel: &mut Wheel, now: Nanos) -> Vec<Nanos> {
        let mut due = Vec::new();
        wheel.expire(now, &mut due);
        due.into_iter().map(|(_, at)| at).collect()
    }

    #[test]
    fn timers_are_never_early_and_at_most_a_tick_late() {
        let mut wheel = Wheel::new();
        wheel.arm(Qpn::new(1), 10 * TICK + 5);
        assert_eq!(expired(&mut wheel, 10 * TICK + 5), [0; 0]);
        assert_eq!(expired(&mut wheel, 11 * TICK), [10 * TICK + 5]);
        assert_eq!(expired(&mut wheel, 1000 * TICK), [0; 0]);
    }

    #[test]
    fn what_is_long_past_or_rounds_away_is_not_lost() {
        let mut wheel = Wheel::new();
        expired(&mut wheel, 500 * TICK);
        wheel.arm(Qpn::new(1), 3);
        wheel.arm(Qpn::new(2), (500 + SLOTS * 3) * TICK);
        assert_eq!(expired(&mut wheel, 501 * TICK), [3]);
        assert_eq!(expired(&mut wheel, (500 + SLOTS) * TICK + TICK), [0; 0]);
        assert_eq!(expired(&mut wheel, Nanos::MAX), [(500 + SLOTS * 3) * TICK]);
    }

    proptest! {
        #[test]
        fn a_wheel_agrees_with_a_list(steps in prop::collection::vec((0..400_u64, 0..3_000_000_u64), 1..200)) {
            let (mut wheel, mut list, mut now) = (Wheel::new(), Vec::new(), 0);
            for (pause, after) in steps {
                now += pause * 1000;
                let mut due = expired(&mut wheel, now);
                let end = now >> TICK_SHIFT;
                let mut expected: Vec<_> = list.iter().copied().filter(|at: &Nanos| at >> TICK_SHIFT < end).collect();
                list.retain(|at| at >> TICK_SHIFT >= end);
                due.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(due, expected);
                wheel.arm(Qpn::new(1), now + after);
                list.push(now + after);
            }
        }
    }
}
