//! The latency of the driver's verbs: SEND, RDMA WRITE, RDMA READ.

use roci_driver::{Buffer, MemoryRegion, SendWr, WorkCompletion};
use roci_protocol::Rkey;

use super::PerfPlan;
use super::lane::{VerbsEnd, is_send};
use super::pattern::BytePattern;
use super::ping_clock::PingClock;
use super::report::{Row, histogram};
use crate::failure::Failure;

/// Receives posted for a ping-pong.
const PING_RECEIVES: usize = 8;

/// Half a round trip of a SEND.
pub(super) fn send_latency(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let mut pinger = SendPinger::new(lane, plan)?;
    lane.meet()?;
    let row = ping_pong(lane, plan, &mut pinger)?;
    lane.meet()?;
    // The receives that are left belong to the next test's lengths no more than to this one's: use them up.
    pinger.use_up(lane)?;
    Ok(row)
}

/// Half a round trip of an RDMA WRITE, seen by polling its last byte.
pub(super) fn write_latency(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let mut pinger = WritePinger::new(lane, plan)?;
    lane.meet()?;
    let row = ping_pong(lane, plan, &mut pinger)?;
    lane.meet()?;
    lane.unshare(pinger.region)?;
    Ok(row)
}

/// One way to send a message and to see the peer's.
trait Pinger {
    fn send(&mut self, lane: &mut VerbsEnd, number: u64) -> Result<(), Failure>;
    /// Waits for message `number`; whether its bytes were right.
    fn receive(&mut self, lane: &mut VerbsEnd, number: u64) -> Result<bool, Failure>;
    /// Waits for the sends that are under way.
    fn drain(&mut self, lane: &mut VerbsEnd) -> Result<(), Failure>;
}

fn ping_pong(lane: &mut VerbsEnd, plan: PerfPlan, pinger: &mut impl Pinger) -> Result<Option<Row>, Failure> {
    let mut errors = 0;
    let mut clock = PingClock::start(plan, lane.now());
    for number in clock.numbers() {
        if lane.is_active() {
            pinger.send(lane, number)?;
            errors += u64::from(!pinger.receive(lane, number)?);
        } else {
            errors += u64::from(!pinger.receive(lane, number)?);
            pinger.send(lane, number)?;
        }
        clock.answered(number, lane.now());
    }
    pinger.drain(lane)?;
    let theirs: u64 = lane.exchange(&errors.to_string())?.parse().unwrap_or(u64::MAX / 2);
    Ok(Some(clock.row(errors + theirs)))
}

struct SendPinger {
    pattern: BytePattern,
    verify: bool,
    free: Vec<Buffer>,
    in_flight: usize,
}

impl SendPinger {
    fn new(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Self, Failure> {
        let pattern = BytePattern::new(plan.size);
        for _ in 0..PING_RECEIVES {
            let buffer = lane.buffer(plan.size)?;
            lane.post_recv(buffer)?;
        }
        let free = filled_buffers(lane, &pattern, plan.size, PING_RECEIVES)?;
        Ok(Self { pattern, verify: plan.verify, free, in_flight: 0 })
    }

    fn on_sent(&mut self, done: WorkCompletion) {
        self.in_flight -= 1;
        self.free.push(done.buffer);
    }

    /// Sends the peer as many messages as it has receives left.
    fn use_up(&mut self, lane: &mut VerbsEnd) -> Result<(), Failure> {
        for number in 0..PING_RECEIVES as u64 {
            self.send(lane, number)?;
        }
        let mut received = 0;
        while received < PING_RECEIVES || self.in_flight > 0 {
            let done = lane.wait()?;
            if is_send(&done) {
                self.on_sent(done);
            } else {
                received += 1;
            }
        }
        lane.meet()
    }
}

impl Pinger for SendPinger {
    fn send(&mut self, lane: &mut VerbsEnd, number: u64) -> Result<(), Failure> {
        let mut buffer = loop {
            if let Some(buffer) = self.free.pop() {
                break buffer;
            }
            let done = lane.wait()?;
            debug_assert!(is_send(&done), "no message comes before its turn");
            self.on_sent(done);
        };
        BytePattern::stamp(&mut buffer, number);
        self.in_flight += 1;
        lane.post_send(SendWr::send(number, buffer))
    }

    fn receive(&mut self, lane: &mut VerbsEnd, number: u64) -> Result<bool, Failure> {
        loop {
            let Some(done) = lane.poll()? else { continue };
            if is_send(&done) {
                self.on_sent(done);
                continue;
            }
            let is_right = !self.verify || self.pattern.matches(&done.buffer[..done.len], number);
            lane.post_recv(done.buffer)?;
            return Ok(is_right);
        }
    }

    fn drain(&mut self, lane: &mut VerbsEnd) -> Result<(), Failure> {
        while self.in_flight > 0 {
            let done = lane.wait()?;
            self.on_sent(done);
        }
        Ok(())
    }
}

struct WritePinger {
    pattern: BytePattern,
    verify: bool,
    region: MemoryRegion,
    key: Rkey,
    free: Vec<Buffer>,
    scratch: Vec<u8>,
    in_flight: usize,
}

impl WritePinger {
    fn new(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Self, Failure> {
        let pattern = BytePattern::new(plan.size);
        let mut target = lane.buffer(plan.size)?;
        target.fill(0);
        let free = filled_buffers(lane, &pattern, plan.size, PING_RECEIVES)?;
        let (region, key) = lane.share(target)?;
        Ok(Self { pattern, verify: plan.verify, region, key, free, scratch: vec![0; plan.size], in_flight: 0 })
    }

    /// The last byte that announces message `number`: never that of the message before.
    fn mark(number: u64) -> u8 {
        (number % 255) as u8 + 1
    }
}

impl Pinger for WritePinger {
    fn send(&mut self, lane: &mut VerbsEnd, number: u64) -> Result<(), Failure> {
        let mut buffer = loop {
            if let Some(buffer) = self.free.pop() {
                break buffer;
            }
            self.in_flight -= 1;
            self.free.push(lane.wait()?.buffer);
        };
        BytePattern::stamp(&mut buffer, number);
        if let Some(last) = buffer.last_mut() {
            *last = Self::mark(number);
        }
        self.in_flight += 1;
        lane.post_send(SendWr::write(number, buffer, self.key, 0))
    }

    fn receive(&mut self, lane: &mut VerbsEnd, number: u64) -> Result<bool, Failure> {
        let last = self.scratch.len() - 1;
        while lane.peek(self.region, last) != Self::mark(number) {
            if let Some(done) = lane.poll()? {
                self.in_flight -= 1;
                self.free.push(done.buffer);
            }
        }
        if !self.verify {
            return Ok(true);
        }
        lane.copy_out(self.region, &mut self.scratch);
        let mark = std::mem::replace(&mut self.scratch[last], self.pattern.byte(number, last));
        Ok(mark == Self::mark(number) && self.pattern.matches(&self.scratch, number))
    }

    fn drain(&mut self, lane: &mut VerbsEnd) -> Result<(), Failure> {
        while self.in_flight > 0 {
            self.free.push(lane.wait()?.buffer);
            self.in_flight -= 1;
        }
        Ok(())
    }
}

/// The time of one RDMA READ, there and back.
pub(super) fn read_latency(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let pattern = BytePattern::new(plan.size);
    let (region, key) = share_filled(lane, &pattern, plan.size, 1)?;
    let mut row = None;
    if lane.is_active() {
        let (mut times, mut errors) = (histogram(), 0);
        let mut buffer = lane.buffer(plan.size)?;
        let start = lane.now();
        for number in 0..plan.iters {
            let posted = lane.now();
            lane.post_send(SendWr::read(number, buffer, key, 0))?;
            let done = lane.wait()?;
            times.saturating_record(lane.now() - posted);
            errors += u64::from(plan.verify && !pattern.matches(&done.buffer, 0));
            buffer = done.buffer;
            scrub(&mut buffer);
        }
        row = Some(Row::latency(plan, times, lane.now() - start, errors));
    }
    lane.meet()?;
    lane.unshare(region)?;
    Ok(row)
}

/// Spoils a buffer that a READ is to fill, in every KiB, so that what was there before does not pass for its work.
pub(super) fn scrub(buffer: &mut [u8]) {
    BytePattern::stamp(buffer, u64::MAX);
}

pub(super) fn filled_buffers(
    lane: &mut VerbsEnd,
    pattern: &BytePattern,
    size: usize,
    count: usize,
) -> Result<Vec<Buffer>, Failure> {
    let fill = |_| {
        let mut buffer = lane.buffer(size)?;
        pattern.fill(&mut buffer);
        Ok(buffer)
    };
    (0..count).map(fill).collect()
}

/// Lets the peer reach so many messages, each in a slot of its own.
pub(super) fn share_filled(
    lane: &mut VerbsEnd,
    pattern: &BytePattern,
    size: usize,
    slots: usize,
) -> Result<(MemoryRegion, Rkey), Failure> {
    let mut buffer = lane.buffer(size * slots)?;
    for slot in buffer.chunks_mut(size) {
        pattern.fill(slot);
        BytePattern::stamp(slot, 0);
    }
    lane.share(buffer)
}
