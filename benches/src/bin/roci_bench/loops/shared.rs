//! Memory that two processors share: one copies a message in, the other copies it out. No stack that moves payload
//! between two processes of a host, and leaves it to its owner afterwards, does less.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::row::{print_latency, print_stream};
use super::{LoopOptions, pin};

/// Bytes of a ring at most, so that it stays in the cache ...
const RING_BYTES: usize = 1 << 20;
/// ... and messages.
const MOST_SLOTS: usize = 64;
/// A message of no sender: the end.
const END: u64 = u64::MAX;
/// The clock is read once in so many messages of a stream.
const LOOK_EVERY: u64 = 16;
/// A round trip is not worth waiting longer for before the processor is given away: two threads may share it.
const SPINS: u32 = 1 << 12;

/// Latency and bandwidth from one thread to another.
pub(super) fn between_threads(options: &LoopOptions) {
    for size in options.sizes() {
        print_latency("shared", size, ping_pong(options, size));
        let (messages, elapsed) = stream(options, size);
        print_stream("shared", size, messages, elapsed, None);
    }
}

/// One message. Whose turn it is its number says; the lock is there because the compiler cannot know that, and is
/// always free.
struct MessageSlot {
    /// Which message it holds, from 1 on.
    number: AtomicU64,
    bytes: Mutex<Vec<u8>>,
}

impl MessageSlot {
    fn new(size: usize) -> Self {
        Self { number: AtomicU64::new(0), bytes: Mutex::new(vec![0; size]) }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, from: &[u8], number: u64) {
        self.bytes().copy_from_slice(from);
        self.number.store(number, Ordering::Release);
    }

    /// Waits for a message; `false` at the end.
    fn take(&self, number: u64, into: &mut [u8]) -> bool {
        if self.wait(|found| found == number || found == END) == END {
            return false;
        }
        black_box(into).copy_from_slice(&self.bytes());
        true
    }

    fn wait(&self, is_it: impl Fn(u64) -> bool) -> u64 {
        let mut spins = 0;
        loop {
            let found = self.number.load(Ordering::Acquire);
            if is_it(found) {
                return found;
            }
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

/// Half round trips in microseconds.
fn ping_pong(options: &LoopOptions, size: usize) -> Vec<f64> {
    let (there, back) = (MessageSlot::new(size), MessageSlot::new(size));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(options.cpu(1));
            let mut message = vec![0; size];
            for number in 1.. {
                if !there.take(number, &mut message) {
                    break;
                }
                back.fill(&message, number);
            }
        });
        pin(options.cpu(0));
        let mut message = vec![1; size];
        let (begun, mut samples) = (Instant::now(), Vec::new());
        for number in 1.. {
            let sent = Instant::now();
            if sent - begun >= options.duration() {
                break;
            }
            there.fill(&message, number);
            back.take(number, &mut message);
            samples.push(sent.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        there.number.store(END, Ordering::Release);
        samples
    })
}

/// Messages through a ring, and how long they took.
fn stream(options: &LoopOptions, size: usize) -> (u64, Duration) {
    let count = (RING_BYTES / size).clamp(2, MOST_SLOTS);
    let ring: Vec<MessageSlot> = (0..count).map(|_| MessageSlot::new(size)).collect();
    let is_taken = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(options.cpu(1));
            let mut message = vec![0; size];
            for (number, slot) in (1..).zip(ring.iter().cycle()) {
                if !slot.take(number, &mut message) {
                    break;
                }
                is_taken.store(number, Ordering::Release);
            }
        });
        pin(options.cpu(0));
        let message = vec![1; size];
        let begun = Instant::now();
        let mut last = 0;
        for (number, slot) in (1..).zip(ring.iter().cycle()) {
            wait_until(&is_taken, number - count.min(number as usize) as u64);
            if number % LOOK_EVERY == 0 && begun.elapsed() >= options.duration() {
                wait_until(&is_taken, last);
                slot.number.store(END, Ordering::Release);
                break;
            }
            slot.fill(&message, number);
            last = number;
        }
        (last, begun.elapsed())
    })
}

fn wait_until(taken: &AtomicU64, number: u64) {
    let mut spins = 0;
    while taken.load(Ordering::Acquire) < number {
        spins += 1;
        if spins < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LoopOptions {
        LoopOptions { size: vec![8], millis: 5, cpus: Vec::new() }
    }

    #[test]
    fn messages_go_round_and_the_other_thread_ends() {
        for size in [1, 8, 4096, 1 << 20] {
            let samples = ping_pong(&options(), size);
            assert!(!samples.is_empty() && samples.iter().all(|&us| us > 0.0), "{size}");
            let (messages, elapsed) = stream(&options(), size);
            assert!(messages > 0 && !elapsed.is_zero(), "{size}");
        }
    }

    #[test]
    fn what_is_put_into_a_slot_comes_out_of_it() {
        let slot = MessageSlot::new(3);
        slot.fill(&[7, 8, 9], 1);
        let mut message = [0; 3];
        assert!(slot.take(1, &mut message));
        assert_eq!(message, [7, 8, 9]);
        slot.number.store(END, Ordering::Release);
        assert!(!slot.take(2, &mut message));
    }
}
