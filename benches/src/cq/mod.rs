//! Work requests from their post to the poll of the completion queue: the queue alone, and two engines back to back.

pub(crate) mod wire;

use std::sync::Arc;

use roci_driver::internals::Completions;
use roci_driver::{
    Access, Arena, Buffer, CompletionQueue, Engine, MemoryRegion, QpParams, QueuePair, SendWr, WorkCompletion,
};

use wire::{ManualClock, WireEnd};

/// Bytes of a SEND.
pub const LEN: usize = 64;
const ROOM: usize = 256;
/// Two engines must not share it, and neither needs more.
pub(crate) const ARENA: usize = 1 << 20;
/// Time that passes from one batch to the next: the engines' clock is set, nothing waits.
const ROUND_NS: u64 = 10_000;

/// A completion queue, and buffers for so many ends at once.
#[derive(Debug)]
pub struct Alone {
    queue: Completions,
    buffers: Vec<Buffer>,
}

impl Alone {
    /// For batches of this length.
    pub fn new(batch: usize) -> Self {
        let arena = Arena::new(ARENA).expect("memory");
        Self { queue: Completions::new(ROOM), buffers: buffers(&arena, batch) }
    }

    /// A batch of SENDs ends, and is polled for.
    #[inline]
    pub fn turn(&mut self) {
        for (wr_id, buffer) in self.buffers.drain(..).enumerate() {
            assert!(self.queue.end(wr_id as u64, buffer), "room for all");
        }
        while let Some(done) = self.queue.poll() {
            self.buffers.push(done.buffer);
        }
    }
}

/// So many of an arena.
pub(crate) fn buffers(arena: &Arc<Arena>, count: usize) -> Vec<Buffer> {
    (0..count).map(|_| arena.buffer(LEN).expect("memory")).collect()
}

/// One engine with its queue pair.
struct EngineEnd {
    engine: Engine<WireEnd>,
    cq: CompletionQueue,
    qp: QueuePair,
    buffers: Vec<Buffer>,
}

/// Two engines with a queue pair each, over a wire that allocates nothing.
pub struct EnginePair {
    ends: [EngineEnd; 2],
    clock: ManualClock,
    /// Memory of the second that the first may write.
    region: MemoryRegion,
}

impl EnginePair {
    /// For batches of this length. Without an ICRC where neither end wants one.
    pub fn new(batch: usize, icrc: bool) -> Self {
        let clock = ManualClock::default();
        let mut links = WireEnd::pair(&clock).into_iter();
        let params = QpParams { icrc, ..QpParams::default() };
        let mut halves = [1, 2].map(|host| {
            let mut engine = Engine::new(ARENA).expect("memory");
            engine.add_port(links.next().expect("two halves"), [10, 0, 0, host].into(), true);
            let (pd, cq) = (engine.alloc_pd(), engine.create_cq(ROOM));
            let qp = engine.create_qp(0, pd, cq).expect("room");
            let address = engine.address_of(&qp, &params);
            let buffers = buffers(engine.arena(), batch);
            let memory = engine.buffer(LEN).expect("memory");
            let region = engine.register(pd, memory, Access::REMOTE_WRITE).expect("a key");
            Some((engine, cq, qp, buffers, (address, region)))
        });
        let addresses = halves.each_ref().map(|half| half.as_ref().expect("made above").4.0);
        let region = halves[1].as_ref().expect("made above").4.1;
        let ends = [0, 1].map(|which| {
            let (mut engine, cq, qp, buffers, _) = halves[which].take().expect("made above");
            let qp = engine.connect(qp, &addresses[1 - which], &params).expect("one IP version");
            EngineEnd { engine, cq, qp, buffers }
        });
        Self { ends, clock, region }
    }

    /// A batch of SENDs from the first end to the second, until both have polled for all completions.
    #[inline]
    pub fn turn(&mut self) {
        self.clock.advance(ROUND_NS);
        let [near, far] = &mut self.ends;
        let count = near.buffers.len();
        for buffer in far.buffers.drain(..) {
            far.engine.post_recv(far.qp, 1, buffer).expect("room");
        }
        for buffer in near.buffers.drain(..) {
            let sent = near.engine.post_send(near.qp, SendWr::send(2, buffer));
            sent.expect("room");
        }
        while far.buffers.len() < count || near.buffers.len() < count {
            for end in [&mut *far, &mut *near] {
                end.engine.poll();
                while let Some(done) = end.engine.poll_cq(end.cq) {
                    end.buffers.push(succeeded(done));
                }
            }
        }
    }

    /// A WRITE of 8 bytes from the first end to the second's memory, until the first has polled for its completion.
    #[inline]
    pub fn write(&mut self) {
        self.clock.advance(ROUND_NS);
        let [near, far] = &mut self.ends;
        let mut buffer = near.buffers.pop().expect("it came back");
        buffer.set_len(8);
        let written = near.engine.post_send(near.qp, SendWr::write(2, buffer, self.region.rkey(), 8));
        written.expect("room");
        while near.buffers.is_empty() {
            far.engine.poll();
            near.engine.poll();
            while let Some(done) = near.engine.poll_cq(near.cq) {
                near.buffers.push(succeeded(done));
            }
        }
    }

    /// A poll of a completion queue in which nothing is.
    #[inline]
    pub fn poll_in_vain(&mut self) -> bool {
        let [near, _] = &mut self.ends;
        near.engine.poll_cq(near.cq).is_none()
    }
}

#[inline]
fn succeeded(done: WorkCompletion) -> Buffer {
    assert!(done.status.is_success(), "nothing goes wrong here: {}", done.status);
    done.buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_send_of_a_batch_completes_at_both_ends() {
        for (batch, icrc) in [(1, true), (16, true), (64, true), (16, false)] {
            let mut pair = EnginePair::new(batch, icrc);
            (0..100).for_each(|_| pair.turn());
            assert!(pair.poll_in_vain());
            let [near, far] = pair.ends.each_ref().map(|end| end.engine.stats());
            let batch = batch as u64;
            assert_eq!(far.queue_pairs.rx_requests, 100 * batch);
            assert_eq!(near.queue_pairs.retransmitted_packets, 0);
            let unchecked = if icrc { 0 } else { far.rx_delivered };
            assert_eq!((far.rx_unchecked, far.is_balanced()), (unchecked, true));
        }
    }

    #[test]
    fn every_write_completes_at_its_sender_alone() {
        let mut pair = EnginePair::new(1, true);
        (0..100).for_each(|_| pair.write());
        let far = pair.ends[1].engine.stats();
        assert_eq!((far.queue_pairs.rx_requests, pair.ends[1].buffers.len()), (100, 1));
    }

    #[test]
    fn buffers_come_back_from_the_queue_alone() {
        let mut alone = Alone::new(16);
        (0..100).for_each(|_| alone.turn());
        assert_eq!(alone.buffers.len(), 16);
    }
}
