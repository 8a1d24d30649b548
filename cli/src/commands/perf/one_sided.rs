//! Puts, gets, fetch-and-adds and active messages through the messaging core. Rank 0 operates on rank 1's memory, which makes progress
//! and nothing else.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roci_driver::Buffer;
use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{AtomicOp, Segment, SegmentKey};
use roci_msgcore::{CallError, Request};

use super::messenger::Messenger;
use super::pattern::BytePattern;
use super::ping_clock::PingClock;
use super::report::{Row, histogram};
use super::tag::exchange;
use super::{PerfPlan, PerfTest};
use crate::failure::Failure;

/// How long a flush may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// The target.
const TARGET: usize = 1;
/// Puts between two looks at what is there.
const LOOK: u64 = 64;

pub(super) fn measure(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    match plan.test {
        PerfTest::AmLat => return active_latency(worker, plan),
        PerfTest::AmRate => return active_rate(worker, plan),
        _ => {}
    }
    let (pattern, slots) = (BytePattern::new(plan.size), if plan.test.is_latency() { 1 } else { plan.depth() });
    let segment = expose(worker, &pattern, plan, slots)?;
    let theirs = worker.gather_keys(segment)?[TARGET];
    worker.barrier()?;
    let row = match (worker.rank(), plan.test) {
        (TARGET, _) => None,
        (_, PerfTest::PutLat) => Some(put_latency(worker, &pattern, plan, theirs)?),
        (_, PerfTest::GetLat) => Some(get_latency(worker, &pattern, plan, theirs)?),
        (_, PerfTest::FaddLat) => Some(fetch_add_latency(worker, plan, theirs)?),
        _ => Some(bandwidth(worker, &pattern, plan, (theirs, slots))?),
    };
    // The target makes progress while it waits for the word.
    exchange(worker, 0)?;
    let errors = if worker.rank() == TARGET { wrong_slots(worker, &pattern, plan, (segment, slots))? } else { 0 };
    let theirs = exchange(worker, errors)?;
    let memory = worker.withdraw(segment)?;
    worker.give_back(memory);
    Ok(row.map(|row| row.with_errors(theirs)))
}

/// Exposes so many messages, the first of all.
fn expose(
    worker: &mut impl Messenger,
    pattern: &BytePattern,
    plan: PerfPlan,
    slots: usize,
) -> Result<Segment, Failure> {
    let mut memory = worker.buffer(plan.size * slots)?;
    for slot in memory.chunks_mut(plan.size) {
        pattern.fill(slot);
        BytePattern::stamp(slot, 0);
    }
    if plan.test == PerfTest::FaddLat {
        memory.fill(0);
    }
    Ok(worker.expose(memory)?)
}

/// Of what the target has, how many messages are wrong.
fn wrong_slots(
    worker: &mut impl Messenger,
    pattern: &BytePattern,
    plan: PerfPlan,
    (segment, slots): (Segment, usize),
) -> Result<u64, Failure> {
    let mut bytes = vec![0; plan.size];
    let mut errors = 0;
    for slot in 0..slots {
        worker.read_segment(segment, slot * plan.size, &mut bytes)?;
        let is_right = match plan.test {
            PerfTest::FaddLat => bytes == (plan.iters + plan.warm_up()).to_ne_bytes(),
            PerfTest::PutLat => pattern.matches(&bytes, plan.iters + plan.warm_up() - 1),
            // The last that went there.
            PerfTest::PutBw => {
                let last = (0..plan.iters).rev().find(|number| *number as usize % slots == slot);
                last.is_none_or(|number| pattern.matches(&bytes, number))
            }
            _ => pattern.matches(&bytes, 0),
        };
        errors += u64::from(plan.verify && !is_right);
    }
    Ok(errors)
}

/// Times an operation again and again; it returns whether what it found was right.
fn latency<M: Messenger>(
    worker: &mut M,
    plan: PerfPlan,
    mut operate: impl FnMut(&mut M, u64) -> Result<(), Failure>,
    mut is_right: impl FnMut(&mut M, u64) -> Result<bool, Failure>,
) -> Result<Row, Failure> {
    let (mut times, mut errors, mut elapsed) = (histogram(), 0, 0);
    let origin = Instant::now();
    for number in 0..plan.iters + plan.warm_up() {
        let begun = worker.now(origin);
        operate(worker, number)?;
        let took = worker.now(origin) - begun;
        if number >= plan.warm_up() {
            times.saturating_record(took);
            elapsed += took;
        }
        errors += u64::from(plan.verify && !is_right(worker, number)?);
    }
    Ok(Row::latency(plan, times, elapsed, errors))
}

/// Until the bytes are known to be in the target's memory.
fn put_latency<M: Messenger>(
    worker: &mut M,
    pattern: &BytePattern,
    plan: PerfPlan,
    theirs: SegmentKey,
) -> Result<Row, Failure> {
    let mut source = vec![0; plan.size];
    pattern.fill(&mut source);
    let mut there = vec![0; plan.size];
    let put = |worker: &mut M, number| {
        BytePattern::stamp(&mut source, number);
        worker.put_nbi(TARGET, &source, theirs.at(0))?;
        worker.flush(Some(TARGET.into()), PATIENCE)?;
        Ok(())
    };
    latency(worker, plan, put, |worker, number| {
        if number % LOOK > 0 {
            return Ok(true);
        }
        worker.get_blocking(TARGET, &mut there, theirs.at(0))?;
        Ok(pattern.matches(&there, number))
    })
}

/// Until the bytes are here.
fn get_latency<M: Messenger>(
    worker: &mut M,
    pattern: &BytePattern,
    plan: PerfPlan,
    theirs: SegmentKey,
) -> Result<Row, Failure> {
    let spare = std::cell::RefCell::new(Some(worker.buffer(plan.size)?));
    let get = |worker: &mut M, _| {
        let buffer = spare.take().map_or_else(|| worker.buffer(plan.size), Ok)?;
        let get = worker.get(TARGET, buffer, theirs.at(0))?;
        spare.replace(Some(worker.wait(get)?.buffer));
        Ok(())
    };
    latency(worker, plan, get, |_, _| {
        let mut buffer = spare.borrow_mut();
        let is_right = buffer.as_ref().is_some_and(|buffer| pattern.matches(buffer, 0));
        if let Some(buffer) = buffer.as_mut() {
            // The next one must bring them again.
            BytePattern::stamp(buffer, u64::MAX >> 32);
        }
        Ok(is_right)
    })
}

fn fetch_add_latency<M: Messenger>(worker: &mut M, plan: PerfPlan, theirs: SegmentKey) -> Result<Row, Failure> {
    let found = std::cell::Cell::new(0);
    let add = |worker: &mut M, _| {
        found.set(worker.fetch(TARGET, AtomicOp::Add(1), theirs.at(0))?);
        Ok(())
    };
    latency(worker, plan, add, |_, number| Ok(found.get() == number))
}

/// Puts or gets, as many under way as the plan says, each to a place of its own.
fn bandwidth<M: Messenger>(
    worker: &mut M,
    pattern: &BytePattern,
    plan: PerfPlan,
    (theirs, slots): (SegmentKey, usize),
) -> Result<Row, Failure> {
    let is_put = plan.test == PerfTest::PutBw;
    let mut free = Vec::new();
    for _ in 0..slots {
        let mut buffer = worker.buffer(plan.size)?;
        pattern.fill(&mut buffer);
        free.push(buffer);
    }
    let (mut under_way, mut errors) = (VecDeque::new(), 0);
    let mut end = |worker: &mut M, request: Request| -> Result<Buffer, Failure> {
        let buffer = worker.wait(request)?.buffer;
        errors += u64::from(plan.verify && !is_put && !pattern.matches(&buffer, 0));
        Ok(buffer)
    };
    let start = Instant::now();
    for number in 0..plan.iters {
        let mut buffer = match (free.pop(), under_way.front()) {
            (Some(buffer), _) => buffer,
            (None, Some(&oldest)) => {
                under_way.pop_front();
                end(worker, oldest)?
            }
            (None, None) => worker.buffer(plan.size)?,
        };
        let at = theirs.at(number as usize % slots * plan.size);
        BytePattern::stamp(&mut buffer, if is_put { number } else { u64::MAX >> 32 });
        under_way.push_back(if is_put { worker.put(TARGET, buffer, at)? } else { worker.get(TARGET, buffer, at)? });
    }
    for request in under_way {
        end(worker, request)?;
    }
    Ok(Row::bandwidth(plan, start.elapsed().as_nanos() as u64, errors))
}

/// Measurements of active messages, which are the same at both ends: each has a handler of its own.
static MEASURED: AtomicU64 = AtomicU64::new(0);

/// Looks in a row that find nothing before the thread yields its processor.
const YIELD_AFTER: u32 = 64;

/// What a handler has seen.
#[derive(Default)]
struct Seen {
    messages: AtomicU64,
    errors: AtomicU64,
}

/// Registers a handler that checks and counts, under a name of this measurement's own.
fn count(worker: &mut impl Messenger, plan: PerfPlan) -> Result<(Arc<Seen>, HandlerId), Failure> {
    let most = worker.max_active();
    if plan.size > most {
        return Err(Failure::new(format!("an active message has at most {most} bytes (ROCI_VBUF_SIZE)")));
    }
    let seen = Arc::<Seen>::default();
    let (ours, pattern, verify) = (seen.clone(), BytePattern::new(plan.size), plan.verify);
    let handler = Box::new(move |_: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
        let is_right = !verify || pattern.matches(message.payload, message.arguments[0]);
        ours.errors.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        ours.messages.fetch_add(1, Ordering::Release);
    });
    let name = format!("perf {}", MEASURED.fetch_add(1, Ordering::Relaxed));
    let id = worker.register_handler(&name, handler)?;
    worker.barrier()?;
    Ok((seen, id))
}

fn send(worker: &mut impl Messenger, handler: HandlerId, number: u64, payload: &[u8]) -> Result<(), Failure> {
    let peer = 1 - worker.rank();
    loop {
        match worker.send_active(peer.into(), handler, &[number], payload) {
            Err(CallError::TooMany(_)) => worker.progress(),
            other => return Ok(other?),
        };
    }
}

fn wait_for(worker: &mut impl Messenger, seen: &Seen, messages: u64) {
    let mut idle = 0;
    while seen.messages.load(Ordering::Acquire) < messages {
        idle = if worker.progress() { 0 } else { idle + 1 };
        if idle >= YIELD_AFTER {
            std::thread::yield_now();
        }
    }
}

/// Half a round trip of an active message.
fn active_latency(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let (seen, handler) = count(worker, plan)?;
    let pattern = BytePattern::new(plan.size);
    let mut payload = vec![0; plan.size];
    pattern.fill(&mut payload);
    let origin = Instant::now();
    let mut clock = PingClock::start(plan, worker.now(origin));
    for number in clock.numbers() {
        if worker.rank() == TARGET {
            wait_for(worker, &seen, number + 1);
        }
        BytePattern::stamp(&mut payload, number);
        send(worker, handler, number, &payload)?;
        if worker.rank() != TARGET {
            wait_for(worker, &seen, number + 1);
        }
        clock.answered(number, worker.now(origin));
    }
    let errors = seen.errors.load(Ordering::Relaxed);
    let theirs = exchange(worker, errors)?;
    Ok(Some(clock.row(errors + theirs)))
}

/// Active messages of rank 0's, until the handlers of all have run.
fn active_rate(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let (seen, handler) = count(worker, plan)?;
    if worker.rank() == TARGET {
        wait_for(worker, &seen, plan.iters);
        exchange(worker, seen.errors.load(Ordering::Relaxed))?;
        return Ok(None);
    }
    let pattern = BytePattern::new(plan.size);
    let mut payload = vec![0; plan.size];
    pattern.fill(&mut payload);
    let start = Instant::now();
    for number in 0..plan.iters {
        BytePattern::stamp(&mut payload, number);
        send(worker, handler, number, &payload)?;
    }
    // The clock stops when the target has run the last one.
    let errors = exchange(worker, 0)?;
    Ok(Some(Row::bandwidth(plan, start.elapsed().as_nanos() as u64, errors)))
}
