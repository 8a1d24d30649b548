//! Spacing: when the next packet may leave at a given rate.

use crate::Nanos;

/// Fraction bits of the cost of a byte.
const FRACTION: u32 = 20;
/// How far a sender may be behind its schedule and catch up at once.
const BURST_NS: Nanos = 5_000;

/// Packets spaced by their bytes; the rate is kept as nanoseconds per byte, so that a packet costs a multiplication.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    cost: u64,
    next: Nanos,
}

impl Pacer {
    /// A pacer at so many bits per second.
    pub(super) fn new(bits_per_second: f64) -> Self {
        let mut pacer = Self { cost: 0, next: 0 };
        pacer.set_rate(bits_per_second);
        pacer
    }

    pub(super) fn set_rate(&mut self, bits_per_second: f64) {
        let ns_per_byte = 8e9 / bits_per_second.max(1e3);
        self.cost = (ns_per_byte * f64::from(1 << FRACTION)) as u64;
    }

    #[inline]
    pub(super) fn release_at(&self) -> Nanos {
        self.next
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now: Nanos, bytes: usize) {
        let spacing = (bytes as u64).saturating_mul(self.cost) >> FRACTION;
        self.next = self.next.max(now.saturating_sub(BURST_NS)).saturating_add(spacing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_spaced_by_their_bytes() {
        let mut pacer = Pacer::new(8e9);
        pacer.on_sent(1_000_000, 4000);
        assert_eq!(pacer.release_at(), 1_000_000 - BURST_NS + 4000);
        (0..10).for_each(|_| pacer.on_sent(1_000_000, 4000));
        assert_eq!(pacer.release_at(), 1_000_000 - BURST_NS + 11 * 4000);
        pacer.set_rate(4e9);
        pacer.on_sent(1_000_000, 4000);
        assert_eq!(pacer.release_at(), 1_000_000 - BURST_NS + 11 * 4000 + 8000);
        pacer.set_rate(0.0);
        pacer.on_sent(1_000_000, usize::MAX);
    }
}
