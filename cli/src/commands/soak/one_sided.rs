//! The part of a round that needs no receive: each rank puts a block into the next one's memory with a signal, counts on rank 0's
//! memory, and has a handler run; and checks what the one before it has put there. Another block goes to memory that the next one
//! only offers, at a place of its own in each round, and is read back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, Segment, SegmentKey, Signal};
use roci_msgcore::{Messaging, Rank};

use crate::failure::Failure;

/// Bytes of a block: more than a vbuf.
const BLOCK: usize = 20_000;
/// Where a segment has its signals, what all count, and the blocks of even and odd rounds.
const SIGNALS: usize = 0;
const COUNT: usize = 8;
const BLOCKS: usize = 64;
/// Bytes that a rank offers: more than the smallest Firehose registers at a time.
const OFFERED: usize = 4 << 20;
/// How far apart the blocks of two rounds are in them: they come by all places.
const STRIDE: usize = 1_234_567;
const HANDLER: &str = "soak";
const A_MOMENT: Duration = Duration::from_secs(5);

/// One rank's memory, and the keys to that of all.
pub(super) struct OneSidedSoak {
    segment: Segment,
    keys: Vec<SegmentKey>,
    /// To what is offered.
    offers: Vec<SegmentKey>,
    rounds: u64,
    /// Handlers that have run with the right bytes.
    ran: Arc<AtomicU64>,
}

impl OneSidedSoak {
    pub(super) fn open(worker: &mut impl Messaging) -> Result<Self, Failure> {
        let memory = worker.buffer(BLOCKS + 2 * BLOCK)?;
        let segment = worker.expose(memory)?;
        worker.write_segment(segment, 0, &[0; BLOCKS])?;
        let (ran, before) = (Arc::new(AtomicU64::new(0)), worker.rank().checked_sub(1).unwrap_or(worker.size() - 1));
        let right = ran.clone();
        let handler = Box::new(move |_: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
            let is_right = message.payload == &block(before, message.arguments[0])[..100];
            right.fetch_add(u64::from(is_right), Ordering::Relaxed);
        });
        worker.register_handler(HANDLER, handler)?;
        let keys = worker.gather_keys(segment)?;
        // It is offered until the process ends.
        let offer = worker.offer(vec![1; OFFERED].leak().into())?;
        let offers = worker.gather_keys(offer)?;
        Ok(Self { segment, keys, offers, rounds: 0, ran })
    }

    /// Takes part in a round; returns whether what the rank before has written was right.
    pub(super) fn round(&mut self, worker: &mut impl Messaging) -> Result<bool, Failure> {
        let (rank, size) = (worker.rank(), worker.size());
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        self.rounds += 1;
        let at = BLOCKS + (self.rounds % 2) as usize * BLOCK;
        let mut buffer = worker.buffer(BLOCK)?;
        buffer.copy_from_slice(&block(rank, self.rounds));
        let signal = (Signal::Add(1), self.keys[next].at(SIGNALS));
        let put = worker.put_with(next.into(), buffer, self.keys[next].at(at), Some(signal))?;
        let count = worker.atomic_with(0.into(), AtomicOp::Add(1), AtomicWidth::U64, self.keys[0].at(COUNT))?;
        let payload = &block(rank, self.rounds)[..100];
        worker.send_active(next.into(), HandlerId::of(HANDLER), &[self.rounds], payload)?;
        let is_offer_right = self.reach_offer(worker, next)?;
        worker.wait_for_at_least(before.into(), self.segment, SIGNALS, self.rounds)?;
        // A rank alone never waits, and its messages to itself do.
        worker.progress();
        let mut found = vec![0; BLOCK];
        worker.read_segment(self.segment, at, &mut found)?;
        worker.wait(put)?;
        worker.wait(count)?;
        Ok(is_offer_right && found == block(before, self.rounds))
    }

    /// Puts a block into what a rank offers, and reads it back.
    fn reach_offer(&self, worker: &mut impl Messaging, next: Rank) -> Result<bool, Failure> {
        let at = self.offers[next].at(self.rounds as usize * STRIDE % (OFFERED - BLOCK));
        let mut buffer = worker.buffer(BLOCK)?;
        buffer.copy_from_slice(&block(worker.rank(), self.rounds));
        let put = worker.put_with(next.into(), buffer, at, None)?;
        let mut buffer = worker.wait(put)?.buffer;
        buffer.fill(0);
        let get = worker.get_from(next.into(), buffer, at)?;
        Ok(worker.wait(get)?.buffer[..] == block(worker.rank(), self.rounds)[..])
    }

    /// Whether all that was counted and sent to this rank was. The others are at their end, too.
    pub(super) fn is_complete(&self, worker: &mut impl Messaging) -> Result<bool, Failure> {
        worker.flush(None, Duration::from_mins(1))?;
        worker.barrier()?;
        let mut count = [0; 8];
        worker.read_segment(self.segment, COUNT, &mut count)?;
        let counted = if worker.rank() == 0 { self.rounds * worker.size() as u64 } else { 0 };
        // What was sent before the barrier is here, and runs with progress, of an engine on another thread in a moment.
        let since = Instant::now();
        while self.ran.load(Ordering::Relaxed) < self.rounds && since.elapsed() < A_MOMENT {
            if !worker.progress() {
                thread::yield_now();
            }
        }
        Ok(u64::from_ne_bytes(count) == counted && self.ran.load(Ordering::Relaxed) == self.rounds)
    }
}

/// What a rank puts in a round.
fn block(rank: Rank, round: u64) -> Vec<u8> {
    let seed = (rank as u64 + 1).wrapping_mul(0x9e37_79b9) ^ round;
    (0..BLOCK as u64).map(|at| (at.wrapping_mul(31) ^ seed ^ at >> 8) as u8).collect()
}
