//! Small buffers that the handle keeps, so that a short message needs no look at the arena, which has a lock.

use std::sync::Arc;

use roci_driver::{Arena, ArenaError, Buffer};

/// Bytes of each.
pub(super) const SMALL: usize = 2048;
/// How many are kept.
const LIMIT: usize = 256;

/// Buffers of that size that are not in use.
#[derive(Default)]
pub(super) struct Stock {
    free: Vec<Buffer>,
}

impl Stock {
    /// Returns memory for `len` bytes: a buffer that is kept, or a new one. Where so many operations are under way as buffers
    /// are kept, a new one takes no more than the message needs.
    #[inline]
    pub(super) fn take(&mut self, arena: &Arc<Arena>, len: usize, under_way: usize) -> Result<Buffer, ArenaError> {
        if len > SMALL || self.free.is_empty() && under_way >= LIMIT {
            return arena.buffer(len);
        }
        let mut buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None => arena.buffer(SMALL)?,
        };
        buffer.set_len(len);
        Ok(buffer)
    }

    /// Bytes of all that are not in use.
    pub(super) fn free_bytes(&self) -> usize {
        self.free.len() * SMALL
    }

    /// Keeps one; returns it where it is the application's own, or of another size, or there are enough.
    #[inline]
    pub(super) fn give(&mut self, mut buffer: Buffer) -> Result<(), Buffer> {
        buffer.reset();
        if buffer.is_users() || buffer.capacity() != SMALL || self.free.len() == LIMIT {
            return Err(buffer);
        }
        self.free.push(buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Arena;

    use super::*;

    #[test]
    fn small_ones_are_kept_whole_up_to_a_limit_and_others_are_not() {
        let arena = Arena::new(2 << 20).expect("memory");
        let mut stock = Stock::default();
        for len in [SMALL - 64, SMALL + 1, 1 << 16] {
            assert!(stock.give(arena.buffer(len).expect("room")).is_err());
        }
        let mut small = arena.buffer(SMALL).expect("room");
        small.set_len(3);
        small.skip_front(2);
        stock.give(small).expect("kept");
        assert_eq!(stock.take(&arena, SMALL, 0).expect("it is there").len(), SMALL);
        (0..LIMIT).for_each(|_| stock.give(arena.buffer(SMALL).expect("room")).expect("kept"));
        assert_eq!(stock.free_bytes(), LIMIT * SMALL);
        assert!(stock.give(arena.buffer(SMALL).expect("room")).is_err());
    }

    /// A burst of short messages takes what it needs, and not a whole buffer each.
    #[test]
    fn beyond_those_that_are_kept_a_message_takes_no_more_than_its_bytes() {
        let arena = Arena::new(2 << 20).expect("memory");
        let mut stock = Stock::default();
        let free = arena.free_bytes();
        let burst: Vec<_> = (0..10 * LIMIT).map(|sent| stock.take(&arena, 9, sent).expect("room")).collect();
        let taken = free - arena.free_bytes();
        assert!(taken < LIMIT * SMALL + 10 * LIMIT * 64 + 4096, "{taken} bytes");
        for buffer in burst {
            drop(stock.give(buffer));
        }
        assert_eq!(stock.free_bytes(), LIMIT * SMALL);
    }

    /// Who drops buffers instead of giving them back finds others: what counts is how many operations are under way.
    #[test]
    fn buffers_that_do_not_come_back_are_replaced() {
        let arena = Arena::new(2 << 20).expect("memory");
        let mut stock = Stock::default();
        (0..2 * LIMIT).for_each(|_| drop(stock.take(&arena, 9, 1).expect("room")));
        let next = stock.take(&arena, 9, 1).expect("room");
        stock.give(next).expect("it is of the size that is kept");
    }
}
