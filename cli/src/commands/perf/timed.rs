//! A measurement that lasts for a time instead of a number of messages.

use std::time::Duration;

use super::PerfPlan;
use super::report::Row;
use crate::failure::Failure;

/// Messages of the first try, of which the rate is learned.
const FIRST_TRY: u64 = 20;
/// A try of less than this says too little of the rate: the next one has this many times as many messages.
const SHORTEST_TRY: Duration = Duration::from_millis(50);
const GROWTH: u64 = 8;
/// More messages than this are not sent, whatever the rate.
const MOST: u64 = 1_000_000_000;

/// Measures `plan` for its duration: short tries give the rate, which gives the number of messages. `try_it` measures
/// with this number of messages, and `exchange` gives the peer a count for its own. The first rank decides.
pub(super) fn measure<T>(
    side: &mut T,
    plan: PerfPlan,
    is_first: bool,
    mut try_it: impl FnMut(&mut T, PerfPlan) -> Result<Option<Row>, Failure>,
    mut exchange: impl FnMut(&mut T, u64) -> Result<u64, Failure>,
) -> Result<Option<Row>, Failure> {
    let Some(duration) = plan.duration else { return try_it(side, plan) };
    let (mut iters, mut errors) = (FIRST_TRY, 0);
    loop {
        let row = try_it(side, PerfPlan { iters, ..plan })?;
        let elapsed = row.as_ref().map_or(Duration::ZERO, Row::elapsed);
        errors += row.as_ref().map_or(0, Row::errors);
        let ours = next(iters, elapsed, duration);
        let theirs = exchange(side, ours.encoded())?;
        let next = if is_first { ours } else { Try::decoded(theirs) };
        iters = next.iters;
        if next.is_last {
            let row = try_it(side, PerfPlan { iters, ..plan })?;
            return Ok(row.map(|row| row.with_errors(errors)));
        }
    }
}

/// How many messages come next, and whether they are those that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Try {
    iters: u64,
    is_last: bool,
}

impl Try {
    const fn encoded(self) -> u64 {
        self.iters << 1 | self.is_last as u64
    }

    const fn decoded(word: u64) -> Self {
        Self { iters: word >> 1, is_last: word & 1 != 0 }
    }
}

/// What follows a try of `iters` messages that took `elapsed`, where all shall last for `duration`.
fn next(iters: u64, elapsed: Duration, duration: Duration) -> Try {
    if elapsed < SHORTEST_TRY.min(duration) && iters < MOST {
        return Try { iters: (iters * GROWTH).min(MOST), is_last: false };
    }
    let ratio = duration.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
    Try { iters: ((iters as f64 * ratio) as u64).clamp(FIRST_TRY, MOST), is_last: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_was_too_short_grows_and_a_long_one_gives_the_number() {
        let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
        assert_eq!(next(20, ms(1), second), Try { iters: 160, is_last: false });
        assert_eq!(next(1_000, ms(100), second), Try { iters: 10_000, is_last: true });
        assert_eq!(next(20, Duration::from_secs(30), second), Try { iters: FIRST_TRY, is_last: true });
        assert_eq!(next(MOST, ms(1), second), Try { iters: MOST, is_last: true }, "it ends");
        for it in [Try { iters: 7, is_last: true }, Try { iters: MOST, is_last: false }] {
            assert_eq!(Try::decoded(it.encoded()), it);
        }
    }
}
