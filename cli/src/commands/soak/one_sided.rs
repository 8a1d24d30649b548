//! The part of a round that needs no receive: each rank puts a block into the next one's memory with a signal, counts on rank 0's
//! memory, and has a handler run; and checks what the one before it has put there. Other blocks go to memory of the next rank and of
//! its own, which is exposed or only offered, and are read back. Blocks have another length and another place in each round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, Segment, SegmentKey, Signal};
use roci_msgcore::{Messaging, Rank};

use crate::failure::Failure;

/// Bytes of the blocks of each round, by turns: around nothing, packets and pages, more than a vbuf, and the longest.
const LENGTHS: [usize; 12] = [20_000, 0, 1, 7, 1023, 1024, 1025, 4095, 4096, 4097, 65_537, usize::MAX];
/// So long the longest is at least; and so many parts of an arena it is at most.
const BLOCK: usize = 20_000;
const PARTS: usize = 32;
/// Where a segment has its signals, what all count, and the blocks: those of even and odd rounds, which a signal announces, those
/// that the rank before reads back, and those that this one does.
const SIGNALS: usize = 0;
const COUNT: usize = 8;
const BLOCKS: usize = 64;
const ANNOUNCED: [usize; 2] = [0, 1];
const READ_BACK: usize = 2;
const OWN: usize = 3;
const KINDS: usize = 4;
/// Places of a block differ by less than this.
const SLACK: usize = 64;
/// Bytes that a rank offers to the one before, and to itself: more than the smallest Firehose registers at a time.
const OFFERED: usize = 4 << 20;
/// How far apart the blocks of two rounds are in them: they come by all places.
const STRIDE: usize = 1_234_567;
const HANDLER: &str = "soak";
/// How long a handler that has been sent for may take: as long as the kernel does not run who runs it.
const A_MOMENT: Duration = Duration::from_mins(1);

/// One rank's memory, and the keys to that of all.
pub(super) struct OneSidedSoak {
    /// Bytes of the longest block.
    longest: usize,
    segment: Segment,
    keys: Vec<SegmentKey>,
    /// To what is offered.
    offers: Vec<SegmentKey>,
    rounds: u64,
    /// Handlers that have run with the right bytes.
    ran: Arc<AtomicU64>,
}

impl OneSidedSoak {
    /// Opens memory for blocks of up to `max_size` bytes, as far as the arena has room for them.
    pub(super) fn open(worker: &mut impl Messaging, max_size: usize, arena: usize) -> Result<Self, Failure> {
        let longest = max_size.min(arena / PARTS).max(BLOCK);
        let memory = worker.buffer(BLOCKS + KINDS * (longest + SLACK))?;
        let segment = worker.expose(memory)?;
        worker.write_segment(segment, 0, &[0; BLOCKS])?;
        let (ran, before) = (Arc::new(AtomicU64::new(0)), worker.rank().checked_sub(1).unwrap_or(worker.size() - 1));
        let right = ran.clone();
        let handler = Box::new(move |_: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
            let is_right = message.payload == block(before, message.arguments[0], 100);
            right.fetch_add(u64::from(is_right), Ordering::Relaxed);
        });
        worker.register_handler(HANDLER, handler)?;
        let keys = worker.gather_keys(segment)?;
        // It is offered until the process ends.
        let offer = worker.offer(vec![1; 2 * (OFFERED + longest)].leak().into())?;
        let offers = worker.gather_keys(offer)?;
        Ok(Self { longest, segment, keys, offers, rounds: 0, ran })
    }

    /// Takes part in a round; returns whether what the rank before has written was right.
    pub(super) fn round(&mut self, worker: &mut impl Messaging) -> Result<bool, Failure> {
        let (rank, size) = (worker.rank(), worker.size());
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        self.rounds += 1;
        let sent = self.block_of(rank);
        let at = self.place(ANNOUNCED[(self.rounds % 2) as usize]);
        let mut buffer = worker.buffer(sent.len())?;
        buffer.copy_from_slice(&sent);
        let signal = (Signal::Add(1), self.keys[next].at(SIGNALS));
        let put = worker.put_with(next.into(), buffer, self.keys[next].at(at), Some(signal))?;
        let count = worker.atomic_with(0.into(), AtomicOp::Add(1), AtomicWidth::U64, self.keys[0].at(COUNT))?;
        worker.send_active(next.into(), HandlerId::of(HANDLER), &[self.rounds], &block(rank, self.rounds, 100))?;
        let is_read_right = self.read_back_all(worker, next, &sent)?;
        worker.wait_for_at_least(before.into(), self.segment, SIGNALS, self.rounds)?;
        // A rank alone never waits, and its messages to itself do.
        worker.progress();
        let expected = self.block_of(before);
        let mut found = vec![0; expected.len()];
        worker.read_segment(self.segment, at, &mut found)?;
        worker.wait(put)?;
        worker.wait(count)?;
        Ok(is_read_right && found == expected)
    }

    /// Puts a block into both kinds of memory of the next rank and of this one, and reads each back.
    fn read_back_all(&self, worker: &mut impl Messaging, next: Rank, sent: &[u8]) -> Result<bool, Failure> {
        let rank = worker.rank();
        let far = self.rounds as usize * STRIDE % (OFFERED + self.longest - sent.len());
        let targets = [
            (next, self.keys[next].at(self.place(READ_BACK))),
            (rank, self.keys[rank].at(self.place(OWN))),
            (next, self.offers[next].at(far)),
            (rank, self.offers[rank].at(OFFERED + self.longest + far)),
        ];
        let mut is_right = true;
        for (owner, at) in targets {
            let mut buffer = worker.buffer(sent.len())?;
            buffer.copy_from_slice(sent);
            let put = worker.put_with(owner.into(), buffer, at, None)?;
            let mut buffer = worker.wait(put)?.buffer;
            buffer.fill(0);
            let get = worker.get_from(owner.into(), buffer, at)?;
            is_right &= worker.wait(get)?.buffer[..] == *sent;
        }
        Ok(is_right)
    }

    /// Where a segment has the block of a kind in this round.
    fn place(&self, kind: usize) -> usize {
        BLOCKS + kind * (self.longest + SLACK) + self.rounds as usize % SLACK
    }

    /// What a rank puts in this round.
    fn block_of(&self, rank: Rank) -> Vec<u8> {
        block(rank, self.rounds, LENGTHS[self.rounds as usize % LENGTHS.len()].min(self.longest))
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

/// So many bytes that a rank puts in a round.
fn block(rank: Rank, round: u64, len: usize) -> Vec<u8> {
    let seed = (rank as u64 + 1).wrapping_mul(0x9e37_79b9) ^ round;
    (0..len.div_ceil(8)).flat_map(|at| super::word(seed, at).to_le_bytes()).take(len).collect()
}
