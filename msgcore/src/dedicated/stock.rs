//! Small buffers that the handle keeps, so that a short message needs no look at the arena, which has a lock.

use roci_driver::Buffer;

/// Bytes of each.
pub(super) const SMALL: usize = 2048;
/// How many are kept.
const LIMIT: usize = 256;

/// Buffers that are not in use.
#[derive(Default)]
pub(super) struct Stock(Vec<Buffer>);

impl Stock {
    /// One of them.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Buffer> {
        self.0.pop()
    }

    /// Keeps one; returns it where it is the application's own, or of another size, or there are enough.
    #[inline]
    pub(super) fn give(&mut self, mut buffer: Buffer) -> Result<(), Buffer> {
        buffer.reset();
        if buffer.is_users() || buffer.capacity() != SMALL || self.0.len() == LIMIT {
            return Err(buffer);
        }
        self.0.push(buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Arena;

    use super::*;

    #[test]
    fn small_ones_are_kept_whole_up_to_a_limit_and_others_are_not() {
        let arena = Arena::new(1 << 20).expect("memory");
        let mut stock = Stock::default();
        for len in [SMALL - 64, SMALL + 1, 1 << 16] {
            assert!(stock.give(arena.buffer(len).expect("room")).is_err());
        }
        let mut small = arena.buffer(SMALL).expect("room");
        small.set_len(3);
        small.skip_front(2);
        stock.give(small).expect("kept");
        assert_eq!(stock.take().expect("it is there").len(), SMALL);
        (0..LIMIT).for_each(|_| stock.give(arena.buffer(SMALL).expect("room")).expect("kept"));
        assert!(stock.give(arena.buffer(SMALL).expect("room")).is_err());
    }
}
