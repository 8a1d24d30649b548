//! The timer wheels: whose time has come, without looking at everybody (Varghese and Lauck, SOSP 1987, scheme 7).
//!
//! Time is cut into ticks. The first wheel has a slot for each of the next ticks, the second one for each of its rounds, and
//! so on: what is far away lies in a coarse slot and moves inwards once its round begins, so it is touched once a wheel and
//! not once a round. Timers are up to a tick late and never early. Entries are not taken back: a lookup that is no
//! longer needed is cheap.

use std::ops::Range;

use roci_protocol::{Nanos, Qpn};

/// A tick is 4096 ns: short for a pause between packets, long enough that a slot is looked at rarely.
const TICK_SHIFT: u32 = 12;
const SLOT_BITS: u32 = 8;
const SLOTS: u64 = 1 << SLOT_BITS;
/// Rounds of 1 ms, 0.3 s and 69 s; what lies further away waits in the last slot and is looked at once every 69 s.
const WHEELS: usize = 3;

/// A queue pair, and the time of its timer.
pub(super) type WheelEntry = (Qpn, Nanos);

pub(super) struct Wheel {
    wheels: [Ring; WHEELS],
    /// The first tick that has not passed.
    tick: u64,
    /// What moves inwards; kept for its memory.
    moving: Vec<WheelEntry>,
}

/// One wheel.
struct Ring {
    slots: Vec<Vec<WheelEntry>>,
    len: usize,
}

impl Ring {
    fn new() -> Self {
        Self { slots: vec![Vec::new(); SLOTS as usize], len: 0 }
    }

    #[inline]
    fn push(&mut self, slot: u64, entry: WheelEntry) {
        self.slots[(slot % SLOTS) as usize].push(entry);
        self.len += 1;
    }

    /// Moves a slot's entries to the end of `to`.
    fn empty(&mut self, slot: u64, to: &mut Vec<WheelEntry>) {
        let slot = &mut self.slots[(slot % SLOTS) as usize];
        self.len -= slot.len();
        to.append(slot);
    }

    /// Whether no slot of these has an entry.
    #[inline]
    fn are_empty(&self, mut slots: Range<u64>) -> bool {
        self.len == 0 || slots.all(|slot| self.slots[(slot % SLOTS) as usize].is_empty())
    }

    /// The first slot after `slot` that is not empty, but none beyond `end` or the first of the next round.
    fn next_after(&self, slot: u64, end: u64) -> u64 {
        let round = ((slot | (SLOTS - 1)) + 1).min(end.max(slot + 1));
        (slot + 1..round).find(|slot| !self.slots[(slot % SLOTS) as usize].is_empty()).unwrap_or(round)
    }
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { wheels: std::array::from_fn(|_| Ring::new()), tick: 0, moving: Vec::new() }
    }

    /// Asks for `qpn` at `at`, or at the next tick where that has passed.
    #[inline]
    pub(super) fn arm(&mut self, qpn: Qpn, at: Nanos) {
        let tick = (at >> TICK_SHIFT).max(self.tick);
        // Which wheel's present round is the first that the tick belongs to?
        let distance = tick ^ self.tick;
        let wheel = match distance {
            0..SLOTS => 0,
            distance if distance >> (2 * SLOT_BITS) == 0 => 1,
            _ => 2,
        };
        self.wheels[wheel].push(tick >> (SLOT_BITS * wheel as u32), (qpn, at));
    }

    /// Whether a tick has passed since the last look.
    #[inline]
    pub(super) const fn has_ticked(&self, now: Nanos) -> bool {
        now >> TICK_SHIFT > self.tick
    }

    /// How many ticks have passed since the last look.
    pub(super) const fn ticks_until(&self, now: Nanos) -> u64 {
        (now >> TICK_SHIFT).saturating_sub(self.tick)
    }

    /// Goes on to `now` where nothing is due until then, and no round ends; `false`, and nothing has changed, where that is not so.
    #[inline]
    pub(super) fn skip_to(&mut self, now: Nanos) -> bool {
        let end = now >> TICK_SHIFT;
        let is_nothing_due = end <= self.tick | (SLOTS - 1) && self.wheels[0].are_empty(self.tick..end);
        if is_nothing_due {
            self.tick = self.tick.max(end);
        }
        is_nothing_due
    }

    /// Moves everything whose tick has passed to `due`.
    pub(super) fn expire(&mut self, now: Nanos, due: &mut Vec<WheelEntry>) {
        if self.skip_to(now) {
            return;
        }
        let end = now >> TICK_SHIFT;
        if end.saturating_sub(self.tick) >> (SLOT_BITS * WHEELS as u32) > 0 {
            return self.expire_after_pause(end, due);
        }
        while self.tick < end && self.wheels.iter().any(|wheel| wheel.len > 0) {
            self.wheels[0].empty(self.tick, due);
            self.tick = self.next_tick(end).min(end);
            self.move_inwards();
        }
        self.tick = self.tick.max(end);
    }

    /// Expires entries after a pause of more than a round of the last wheel.
    #[cold]
    fn expire_after_pause(&mut self, end: u64, due: &mut Vec<WheelEntry>) {
        let mut all = Vec::new();
        for wheel in &mut self.wheels {
            (0..SLOTS).for_each(|slot| wheel.empty(slot, &mut all));
        }
        self.tick = end;
        for (qpn, at) in all {
            if at >> TICK_SHIFT < end { due.push((qpn, at)) } else { self.arm(qpn, at) }
        }
    }

    /// The next tick at which something is due or moves inwards, as far as it is looked for.
    fn next_tick(&self, end: u64) -> u64 {
        let wheel = self.wheels.iter().position(|wheel| wheel.len > 0).unwrap_or(WHEELS - 1);
        let shift = SLOT_BITS * wheel as u32;
        self.wheels[wheel].next_after(self.tick >> shift, (end >> shift) + 1) << shift
    }

    /// Where a round begins, what lies in its slot of the wheel outside of it is spread over those inside.
    fn move_inwards(&mut self) {
        for wheel in 1..WHEELS {
            let shift = SLOT_BITS * wheel as u32;
            if !self.tick.is_multiple_of(1 << shift) {
                return;
            }
            let mut moving = std::mem::take(&mut self.moving);
            self.wheels[wheel].empty(self.tick >> shift, &mut moving);
            moving.drain(..).for_each(|(qpn, at)| self.arm(qpn, at));
            self.moving = moving;
        }
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

    fn pause() -> impl Strategy<Value = u64> {
        prop_oneof![8 => 0..400_u64, 2 => 0..2_000_000_u64, 1 => 0..200_000_000_u64]
    }

    fn ahead() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..3_000_000_u64, 2 => 0..1_000_000_000_u64, 1 => 0..200_000_000_000_u64]
    }

    #[test]
    fn what_is_far_away_is_touched_once_a_wheel() {
        let mut wheel = Wheel::new();
        wheel.arm(Qpn::new(1), 67_000_000);
        expired(&mut wheel, 65_000_000);
        assert_eq!(wheel.wheels.each_ref().map(|wheel| wheel.len), [0, 1, 0]);
        expired(&mut wheel, 66_900_000);
        assert_eq!(wheel.wheels.each_ref().map(|wheel| wheel.len), [1, 0, 0]);
        assert_eq!(expired(&mut wheel, 68_000_000), [67_000_000]);
    }

    proptest! {
        #[test]
        fn a_wheel_agrees_with_a_list(steps in prop::collection::vec((pause(), ahead()), 1..200)) {
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
