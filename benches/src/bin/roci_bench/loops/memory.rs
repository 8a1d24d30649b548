//! memcpy on one processor: no copy within the memory of this machine is quicker.

use std::hint::black_box;
use std::time::Instant;

use super::row::print_stream;
use super::{LoopOptions, pin};

/// Copies so many times between two looks at the clock, and at least so many bytes.
const BYTES_BETWEEN_LOOKS: usize = 1 << 20;

/// Copies one buffer into another, again and again; short ones never leave the cache.
pub(super) fn copy(options: &LoopOptions) {
    pin(options.cpu(0));
    for size in options.sizes() {
        let source = vec![1u8; size];
        let mut target = vec![0u8; size];
        let many = BYTES_BETWEEN_LOOKS.div_ceil(size) as u64;
        let (mut copies, begun) = (0, Instant::now());
        while begun.elapsed() < options.duration() {
            for _ in 0..many {
                black_box(&mut target).copy_from_slice(black_box(&source));
            }
            copies += many;
        }
        print_stream("memcpy", size, copies, begun.elapsed(), None);
    }
}
