//! The times of a ping-pong.

use std::ops::Range;

use hdrhistogram::Histogram;
use roci_protocol::Nanos;

use super::PerfPlan;
use super::report::{Row, histogram};

/// Times the round trips of a ping-pong, of which the first ones only warm up.
pub(super) struct PingClock {
    plan: PerfPlan,
    /// When the first round trip that counts began.
    start: Nanos,
    /// When the last one ended.
    last: Nanos,
    half_trips: Histogram<u64>,
}

impl PingClock {
    pub(super) fn start(plan: PerfPlan, now: Nanos) -> Self {
        Self { plan, start: now, last: now, half_trips: histogram() }
    }

    /// The numbers of all messages, those that warm up among them.
    pub(super) const fn numbers(&self) -> Range<u64> {
        0..self.plan.iters + self.plan.warm_up()
    }

    /// Message `number` is answered.
    #[inline]
    pub(super) fn answered(&mut self, number: u64, now: Nanos) {
        if number >= self.plan.warm_up() {
            self.half_trips.saturating_record((now - self.last) / 2);
        } else {
            self.start = now;
        }
        self.last = now;
    }

    /// Half of each round trip.
    pub(super) fn row(self, errors: u64) -> Row {
        Row::latency(self.plan, self.half_trips, self.last - self.start, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PerfTest;
    use super::*;

    #[test]
    fn what_warms_up_is_in_no_figure() {
        let plan = PerfPlan { iters: 20, ..PerfPlan::new(PerfTest::TagLat, 8) };
        let mut clock = PingClock::start(plan, 1_000);
        assert_eq!(clock.numbers(), 0..22);
        let mut now = 1_000;
        for number in clock.numbers() {
            now += if number < 2 { 5_000 } else { 100 };
            clock.answered(number, now);
        }
        assert_eq!((clock.half_trips.len(), clock.half_trips.min(), clock.half_trips.max()), (20, 50, 50));
        assert_eq!(clock.row(0).elapsed().as_nanos(), 2_000);
    }
}
