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
/// In place of a number of messages.
const ENOUGH: u64 = 0;

/// Measures `plan` for its duration: short tries give the rate, which gives the number of messages. Whatever lasted less than half of it
/// is one more try: the processor was somebody else's during the one before. `try_it` measures with this number of messages, and
/// `exchange` gives the peer a count for its own. The first rank decides.
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
        let ours = next(iters, elapsed, duration).unwrap_or(ENOUGH);
        let theirs = exchange(side, ours)?;
        match if is_first { ours } else { theirs } {
            ENOUGH => return Ok(row.map(|row| row.with_errors(errors))),
            more => iters = more,
        }
        errors += row.as_ref().map_or(0, Row::errors);
    }
}

/// How many messages come next where `iters` took `elapsed` and all shall last for `duration`; `None` where they have.
fn next(iters: u64, elapsed: Duration, duration: Duration) -> Option<u64> {
    if elapsed >= duration / 2 || iters == MOST {
        return None;
    }
    if elapsed < SHORTEST_TRY {
        return Some((iters * GROWTH).min(MOST));
    }
    Some(((iters as f64 * duration.div_duration_f64(elapsed)) as u64).min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_was_too_short_grows_and_a_long_one_gives_the_number() {
        let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
        assert_eq!(next(20, ms(1), second), Some(160));
        assert_eq!(next(20, ms(0), second), Some(160));
        assert_eq!(next(1_000, ms(100), second), Some(10_000));
        assert_eq!(next(10_000, ms(400), second), Some(25_000), "the one before was interrupted");
        assert_eq!(next(10_000, ms(600), second), None);
        assert_eq!(next(20, Duration::from_secs(30), second), None);
        assert_eq!(next(MOST, ms(1), second), None, "it ends");
        assert_eq!(next(MOST / 2, ms(1), second), Some(MOST));
    }
}
