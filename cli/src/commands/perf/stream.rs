//! Bytes through streams: put and get, from the threshold on without a copy.

use std::time::Instant;

use roci_driver::Buffer;
use roci_msgcore::stream::{StreamConfig, StreamPayload};
use roci_protocol::Nanos;

use super::PerfPlan;
use super::messenger::Messenger;
use super::pattern::BytePattern;
use super::ping_clock::PingClock;
use super::report::Row;
use crate::failure::Failure;

/// Calls in a row that find nothing before the thread yields its processor.
const YIELD_AFTER: u32 = 1024;

/// Half a round trip, or the bandwidth of a stream from rank 0 to rank 1.
pub(super) fn measure(
    worker: &mut impl Messenger,
    config: &StreamConfig,
    plan: PerfPlan,
) -> Result<Option<Row>, Failure> {
    let mut end = MeasuredEnd::new(worker, config, plan)?;
    end.worker.barrier()?;
    let row = if plan.test.is_latency() { latency(&mut end)? } else { bandwidth(&mut end)? };
    end.finish()?;
    Ok(row)
}

fn latency(end: &mut MeasuredEnd<'_, impl Messenger>) -> Result<Option<Row>, Failure> {
    let plan = end.plan;
    let mut errors = 0;
    let mut clock = PingClock::start(plan, end.now());
    for number in clock.numbers() {
        if end.is_active() {
            end.send(number)?;
            errors += u64::from(!end.receive(number)?);
        } else {
            errors += u64::from(!end.receive(number)?);
            end.send(number)?;
        }
        clock.answered(number, end.now());
    }
    end.put_count(errors)?;
    let theirs = end.get_count()?;
    Ok(Some(clock.row(errors + theirs)))
}

fn bandwidth(end: &mut MeasuredEnd<'_, impl Messenger>) -> Result<Option<Row>, Failure> {
    let plan = end.plan;
    if end.is_active() {
        let start = end.now();
        for number in 0..plan.iters {
            end.send(number)?;
        }
        // The clock stops when the receiver has checked the last one.
        let errors = end.get_count()?;
        return Ok(Some(Row::bandwidth(plan, end.now() - start, errors)));
    }
    let mut errors = 0;
    for number in 0..plan.iters {
        errors += u64::from(!end.receive(number)?);
    }
    end.put_count(errors)?;
    Ok(None)
}

/// The buffers that messages are sent from and received into.
enum StreamBuffers {
    /// Copied both times.
    Plain { outgoing: Vec<u8>, incoming: Vec<u8> },
    /// Fetched from the one into the other.
    Payload { outgoing: StreamPayload, incoming: Option<Buffer> },
}

/// One end of a stream that is measured.
struct MeasuredEnd<'a, M: Messenger> {
    worker: &'a mut M,
    /// Where the clock began.
    begun: Instant,
    plan: PerfPlan,
    pattern: BytePattern,
    memory: StreamBuffers,
    /// Calls in a row that found nothing to do.
    idle: u32,
}

impl<'a, M: Messenger> MeasuredEnd<'a, M> {
    fn new(worker: &'a mut M, config: &StreamConfig, plan: PerfPlan) -> Result<Self, Failure> {
        let pattern = BytePattern::new(plan.size);
        let memory = if config.zero_copy.is_some_and(|threshold| plan.size >= threshold) {
            let mut buffer = worker.buffer(plan.size)?;
            pattern.fill(&mut buffer);
            let incoming = Some(worker.buffer(plan.size)?);
            StreamBuffers::Payload { outgoing: worker.adopt_payload(buffer)?, incoming }
        } else {
            let mut outgoing = vec![0; plan.size];
            pattern.fill(&mut outgoing);
            StreamBuffers::Plain { outgoing, incoming: vec![0; plan.size] }
        };
        Ok(Self { worker, begun: Instant::now(), plan, pattern, memory, idle: 0 })
    }

    fn now(&self) -> Nanos {
        self.worker.now(self.begun)
    }

    fn is_active(&self) -> bool {
        self.worker.rank() == 0
    }

    fn peer(&self) -> usize {
        1 - self.worker.rank()
    }

    /// Sends message `number`, all of it.
    fn send(&mut self, number: u64) -> Result<(), Failure> {
        let peer = self.peer();
        let mut sent = 0;
        if self.plan.verify {
            self.stamp(number)?;
        }
        while sent < self.plan.size {
            let taken = match &self.memory {
                StreamBuffers::Plain { outgoing, .. } => self.worker.stream(peer)?.put(&outgoing[sent..])?,
                StreamBuffers::Payload { outgoing, .. } => self.worker.stream(peer)?.put_payload(*outgoing)?,
            };
            sent += taken;
            self.note(taken);
        }
        Ok(())
    }

    fn stamp(&mut self, number: u64) -> Result<(), Failure> {
        match &mut self.memory {
            StreamBuffers::Plain { outgoing, .. } => BytePattern::stamp(outgoing, number),
            StreamBuffers::Payload { outgoing, .. } => {
                for (at, stamp, len) in BytePattern::stamps(number, self.plan.size) {
                    self.worker.write_payload(*outgoing, at, &stamp[..len])?;
                }
            }
        }
        Ok(())
    }

    /// Receives a message; whether it is the one with this number.
    fn receive(&mut self, number: u64) -> Result<bool, Failure> {
        let peer = self.peer();
        let mut received = 0;
        while received < self.plan.size {
            let got = match &mut self.memory {
                StreamBuffers::Plain { incoming, .. } => self.worker.stream(peer)?.get(&mut incoming[received..])?,
                StreamBuffers::Payload { incoming, .. } => self.worker.stream(peer)?.get_into(incoming)?,
            };
            received += got;
            self.note(got);
        }
        let bytes = match &self.memory {
            StreamBuffers::Plain { incoming, .. } => incoming,
            StreamBuffers::Payload { incoming, .. } => incoming.as_deref().unwrap_or_default(),
        };
        Ok(!self.plan.verify || self.pattern.matches(bytes, number))
    }

    fn put_count(&mut self, count: u64) -> Result<(), Failure> {
        let peer = self.peer();
        let (bytes, mut sent) = (count.to_le_bytes(), 0);
        while sent < bytes.len() {
            let taken = self.worker.stream(peer)?.put(&bytes[sent..])?;
            sent += taken;
            self.note(taken);
        }
        Ok(())
    }

    fn get_count(&mut self) -> Result<u64, Failure> {
        let peer = self.peer();
        let (mut bytes, mut received) = ([0; 8], 0);
        while received < bytes.len() {
            let got = self.worker.stream(peer)?.get(&mut bytes[received..])?;
            received += got;
            self.note(got);
        }
        // Nonsense is wrong too, and the sum must not overflow.
        Ok(u64::from_le_bytes(bytes).min(u64::MAX / 2))
    }

    /// Notes how much a call moved. The peer may wait for this very processor.
    #[inline]
    fn note(&mut self, moved: usize) {
        if moved > 0 {
            self.idle = 0;
            return;
        }
        self.idle = self.idle.wrapping_add(1);
        if self.idle > YIELD_AFTER {
            std::thread::yield_now();
        }
    }

    /// Gives the memory back, when the peer is done with it.
    fn finish(self) -> Result<(), Failure> {
        self.worker.barrier()?;
        if let StreamBuffers::Payload { outgoing, .. } = self.memory {
            self.worker.release_payload(outgoing)?;
        }
        Ok(())
    }
}
