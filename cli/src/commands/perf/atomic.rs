//! Atomics: the time of one, there and back.

use roci_driver::SendWr;

use super::PerfPlan;
use super::lane::VerbsEnd;
use super::report::{Row, histogram};
use crate::failure::Failure;

/// Bytes of an atomic's operand, whatever sizes were asked for.
pub(super) const SIZE: usize = 8;

/// The time of one FETCH_ADD. Each must find what those before it have left.
pub(super) fn latency(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let mut target = lane.buffer(SIZE)?;
    target.fill(0);
    let (region, key) = lane.share(target)?;
    let mut row = None;
    if lane.is_active() {
        let (mut times, mut errors) = (histogram(), 0);
        let mut buffer = lane.buffer(SIZE)?;
        let start = lane.now();
        for number in 0..plan.iters {
            let posted = lane.now();
            lane.post_send(SendWr::fetch_add(number, buffer, key, 0, 1))?;
            let done = lane.wait()?;
            times.saturating_record(lane.now() - posted);
            buffer = done.buffer;
            errors += u64::from(plan.verify && *buffer != number.to_ne_bytes());
        }
        row = Some(Row::latency(plan, times, lane.now() - start, errors));
    }
    lane.meet()?;
    let sum = lane.unshare(region)?;
    // The passive side adds nothing to the active side's number.
    let expected = if lane.is_active() { 0 } else { plan.iters };
    let errors = lane.exchange_count(u64::from(plan.verify && *sum != expected.to_ne_bytes()))?;
    Ok(row.map(|row| row.with_errors(errors)))
}
