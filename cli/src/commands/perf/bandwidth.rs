//! Streams of SENDs, RDMA WRITEs and RDMA READs: in one direction or in both, over one queue pair or several in turn.

use roci_driver::{Buffer, QueuePair, SendWr};
use roci_protocol::{Nanos, Rkey};

use super::lane::{VerbsEnd, is_send};
use super::pattern::BytePattern;
use super::report::Row;
use super::verbs::{filled_buffers, scrub, share_filled};
use super::{PerfPlan, PerfTest};
use crate::failure::Failure;

/// A stream of SENDs; every one is checked where it arrives.
pub(super) fn sends(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    if plan.is_bidirectional {
        return sends_both_ways(lane, plan);
    }
    let pattern = BytePattern::new(plan.size);
    if lane.is_active() {
        let free = filled_buffers(lane, &pattern, plan.size, plan.depth())?;
        lane.meet()?;
        let start = lane.now();
        stream(lane, plan, free, |_, number, buffer| SendWr::send(number, buffer))?;
        let elapsed = lane.now() - start;
        let errors = lane.exchange("")?;
        return Ok(Some(Row::bandwidth(plan, elapsed, errors.parse().unwrap_or(u64::MAX))));
    }
    let mut arrivals = ReceivedStream::post(lane, plan, pattern)?;
    lane.meet()?;
    while arrivals.are_awaited() {
        let done = lane.wait()?;
        arrivals.take(lane, done.qp, done.buffer, done.len)?;
    }
    lane.exchange(&arrivals.errors.to_string())?;
    Ok(None)
}

/// Both sides send and receive at once. The slower one's time counts.
fn sends_both_ways(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let pattern = BytePattern::new(plan.size);
    let free = filled_buffers(lane, &pattern, plan.size, plan.depth())?;
    let mut departures = SentStream::new(lane, plan, free);
    let mut arrivals = ReceivedStream::post(lane, plan, pattern)?;
    lane.meet()?;
    let start = lane.now();
    while departures.are_under_way() || arrivals.are_awaited() {
        departures.post(lane, |_, number, buffer| SendWr::send(number, buffer))?;
        let Some(done) = lane.poll()? else { continue };
        if is_send(&done) {
            departures.end(done.buffer);
        } else {
            arrivals.take(lane, done.qp, done.buffer, done.len)?;
        }
    }
    let elapsed = lane.now() - start;
    Ok(Some(both(lane, plan, elapsed, arrivals.errors)?))
}

/// A stream of RDMA WRITEs or READs. Of WRITEs the last of each queue pair is checked, of READs every one.
pub(super) fn one_sided(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let pattern = BytePattern::new(plan.size);
    let (region, key) = share_filled(lane, &pattern, plan.size, lane.queue_pairs().len())?;
    let sends = lane.is_active() || plan.is_bidirectional;
    if plan.is_bidirectional {
        lane.meet()?;
    }
    let Accesses { elapsed, mut errors, carried } =
        if sends { access_all(lane, plan, &pattern, key)? } else { Accesses::default() };
    let carried: Vec<_> = carried.iter().map(u64::to_string).collect();
    let theirs = lane.exchange(&carried.join(","))?;
    if plan.test == PerfTest::WriteBw && plan.verify {
        let mut arrived = vec![0; plan.size * lane.queue_pairs().len()];
        lane.copy_out(region, &mut arrived);
        errors += wrong_slots(&pattern, arrived.chunks(plan.size), &theirs);
    }
    let row = if plan.is_bidirectional {
        Some(both(lane, plan, elapsed, errors)?)
    } else {
        let theirs = lane.exchange_count(errors)?;
        sends.then(|| Row::bandwidth(plan, elapsed, errors + theirs))
    };
    lane.unshare(region)?;
    Ok(row)
}

/// How many slots hold another message than the last that its queue pair has carried; none where nothing was written.
fn wrong_slots<'a>(pattern: &BytePattern, slots: impl Iterator<Item = &'a [u8]>, carried: &str) -> u64 {
    let counts = carried.split(',').map(|count| count.parse().unwrap_or(0u64));
    let is_wrong = |(slot, count): &(&[u8], u64)| *count > 0 && !pattern.matches(slot, count - 1);
    slots.zip(counts).filter(is_wrong).count() as u64
}

/// The row of two directions: the longer time, and all errors.
fn both(lane: &mut VerbsEnd, plan: PerfPlan, elapsed: Nanos, errors: u64) -> Result<Row, Failure> {
    let longest = elapsed.max(lane.exchange_count(elapsed)?);
    let theirs = lane.exchange_count(errors)?;
    Ok(Row::bandwidth(plan, longest, errors + theirs))
}

/// What was done to the peer's memory.
#[derive(Default)]
struct Accesses {
    elapsed: Nanos,
    /// READs that brought wrong bytes.
    errors: u64,
    /// WRITEs of each queue pair.
    carried: Vec<u64>,
}

/// Writes or reads all messages.
fn access_all(lane: &mut VerbsEnd, plan: PerfPlan, pattern: &BytePattern, key: Rkey) -> Result<Accesses, Failure> {
    let mut free = filled_buffers(lane, pattern, plan.size, plan.depth())?;
    for buffer in &mut free {
        scrub(buffer);
    }
    let start = lane.now();
    let (mut errors, mut carried) = (0, Vec::new());
    if plan.test == PerfTest::WriteBw {
        let offset = |turn: usize| (turn * plan.size) as u64;
        carried = stream(lane, plan, free, |turn, number, buffer| SendWr::write(number, buffer, key, offset(turn)))?;
    } else {
        errors = stream_reads(lane, plan, &mut free, key, pattern)?;
    }
    Ok(Accesses { elapsed: lane.now() - start, errors, carried })
}

/// Posts all messages, as many as there are buffers, in lists, and waits for their ends. Returns how many each queue pair
/// has carried.
fn stream(
    lane: &mut VerbsEnd,
    plan: PerfPlan,
    free: Vec<Buffer>,
    wr: impl Fn(usize, u64, Buffer) -> SendWr,
) -> Result<Vec<u64>, Failure> {
    let mut departures = SentStream::new(lane, plan, free);
    while departures.are_under_way() {
        departures.post(lane, &wr)?;
        if let Some(done) = lane.poll()? {
            departures.end(done.buffer);
        }
    }
    Ok(departures.carried)
}

/// Work requests that a stream posts at once, as perftest does with `--post_list`.
const LIST: usize = 16;

/// Messages of ours: those that are left to be posted, and those under way.
struct SentStream {
    free: Vec<Buffer>,
    iters: u64,
    posted: u64,
    ended: u64,
    list: usize,
    /// Messages that each queue pair has carried, which number them.
    carried: Vec<u64>,
}

impl SentStream {
    fn new(lane: &VerbsEnd, plan: PerfPlan, free: Vec<Buffer>) -> Self {
        // Where few are under way, not all of them: the peer would have nothing to do meanwhile.
        let list = LIST.min(free.len() / 4).max(1);
        Self { free, iters: plan.iters, posted: 0, ended: 0, list, carried: vec![0; lane.queue_pairs().len()] }
    }

    #[inline]
    fn are_under_way(&self) -> bool {
        self.ended < self.iters
    }

    /// Posts a list of messages, where there are buffers for one. Single messages wait for a list's worth: all that are
    /// posted end.
    #[inline]
    fn post(&mut self, lane: &mut VerbsEnd, wr: impl Fn(usize, u64, Buffer) -> SendWr) -> Result<(), Failure> {
        let left = usize::try_from(self.iters - self.posted).unwrap_or(usize::MAX);
        if left == 0 || self.free.len() < self.list.min(left) {
            return Ok(());
        }
        let (turn, count) = (lane.turn(), self.free.len().min(left));
        let first = self.carried[turn];
        self.carried[turn] += count as u64;
        self.posted += count as u64;
        let buffers = self.free.drain(self.free.len() - count..).zip(first..);
        lane.post_sends(buffers.map(|(mut buffer, number)| {
            BytePattern::stamp(&mut buffer, number);
            wr(turn, number, buffer)
        }))
    }

    #[inline]
    fn end(&mut self, buffer: Buffer) {
        self.free.push(buffer);
        self.ended += 1;
    }
}

/// The peer's messages: receives for them, and which numbers come next.
struct ReceivedStream {
    pattern: BytePattern,
    verify: bool,
    iters: u64,
    /// Receives that were posted.
    posted: u64,
    taken: u64,
    /// Messages that came over each queue pair, where each numbers its own.
    came: Vec<u64>,
    errors: u64,
}

impl ReceivedStream {
    /// Posts the receives: as many as the peer has buffers. Where queue pairs share them, the peer cannot see how many are
    /// left, so there are as many again for messages that were taken and whose receives are not yet posted again.
    fn post(lane: &mut VerbsEnd, plan: PerfPlan, pattern: BytePattern) -> Result<Self, Failure> {
        let depth = if lane.shares_receives() { 2 * plan.depth() } else { plan.depth() };
        let posted = plan.iters.min(depth as u64);
        for _ in 0..posted {
            let buffer = lane.buffer(plan.size)?;
            lane.post_recv(buffer)?;
        }
        let came = vec![0; lane.queue_pairs().len()];
        Ok(Self { pattern, verify: plan.verify, iters: plan.iters, posted, taken: 0, came, errors: 0 })
    }

    #[inline]
    fn are_awaited(&self) -> bool {
        self.taken < self.iters
    }

    /// Takes a message that came in `buffer`, and posts the receive again where more are to come.
    #[inline]
    fn take(&mut self, lane: &mut VerbsEnd, qp: QueuePair, buffer: Buffer, len: usize) -> Result<(), Failure> {
        let came = &mut self.came[lane.index_of(qp)];
        self.errors += u64::from(self.verify && !self.pattern.matches(&buffer[..len], *came));
        *came += 1;
        self.taken += 1;
        if self.posted < self.iters {
            self.posted += 1;
            lane.post_recv(buffer)?;
        }
        Ok(())
    }
}

fn stream_reads(
    lane: &mut VerbsEnd,
    plan: PerfPlan,
    free: &mut Vec<Buffer>,
    key: Rkey,
    pattern: &BytePattern,
) -> Result<u64, Failure> {
    let (mut posted, mut ended, mut errors) = (0, 0, 0);
    while ended < plan.iters {
        while posted < plan.iters
            && let Some(buffer) = free.pop()
        {
            lane.post_sends(std::iter::once(SendWr::read(posted, buffer, key, 0)))?;
            posted += 1;
        }
        if let Some(done) = lane.poll()? {
            errors += u64::from(plan.verify && !pattern.matches(&done.buffer, 0));
            let mut buffer = done.buffer;
            scrub(&mut buffer);
            free.push(buffer);
            ended += 1;
        }
    }
    Ok(errors)
}
