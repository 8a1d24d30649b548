//! What is counted on its way, so that somebody can wait for what was there when the wait began, and for nothing that came later.

use std::collections::VecDeque;

/// Work requests of a queue pair that are under way. They end in the order in which they were posted, as verbs has it for a send queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    begun: u32,
    ended: u32,
}

/// How far something had come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueMark(u32);

impl InFlight {
    /// One is posted.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// The oldest has ended, or the newest was not posted after all.
    #[inline]
    pub(crate) fn end(&mut self) {
        debug_assert!(self.begun != self.ended, "a work request ends once");
        self.ended = self.ended.wrapping_add(1);
    }

    /// Returns how many there are.
    #[inline]
    pub(crate) fn count(self) -> usize {
        self.begun.wrapping_sub(self.ended) as usize
    }

    /// Returns how many have ended, in a number that begins again at 0.
    pub(crate) fn ended(self) -> u32 {
        self.ended
    }

    /// Marks the newest one.
    pub(crate) fn mark(self) -> QueueMark {
        QueueMark(self.begun)
    }

    /// Whether all up to a mark have ended.
    pub(crate) fn has_passed(self, mark: QueueMark) -> bool {
        self.ended.wrapping_sub(mark.0).cast_signed() >= 0
    }
}

/// A queue that says what has left it.
#[derive(Debug)]
pub(crate) struct CountedQueue<T> {
    queue: VecDeque<T>,
    left: u32,
}

impl<T> Default for CountedQueue<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), left: 0 }
    }
}

impl<T> CountedQueue<T> {
    pub(crate) fn push_back(&mut self, item: T) {
        self.queue.push_back(item);
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.queue.front()
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let item = self.queue.pop_front()?;
        self.left = self.left.wrapping_add(1);
        Some(item)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Marks the newest item.
    pub(crate) fn mark(&self) -> QueueMark {
        QueueMark(self.left.wrapping_add(self.queue.len() as u32))
    }

    /// Whether all up to a mark have left.
    pub(crate) fn has_passed(&self, mark: QueueMark) -> bool {
        self.left.wrapping_sub(mark.0).cast_signed() >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_by_what_was_there_and_by_nothing_later() {
        for start in [0, u32::MAX - 1] {
            let mut work = InFlight { begun: start, ended: start };
            assert!(work.has_passed(work.mark()));
            work.begin();
            work.begin();
            let mark = work.mark();
            work.begin();
            assert_eq!(work.count(), 3);
            work.end();
            assert!(!work.has_passed(mark));
            work.end();
            assert!(work.has_passed(mark) && work.count() == 1);
            let mut queue = CountedQueue { queue: VecDeque::from([1, 2]), left: start };
            let mark = queue.mark();
            queue.push_back(3);
            assert!(queue.pop_front() == Some(1) && !queue.has_passed(mark));
            assert!(queue.pop_front() == Some(2) && queue.has_passed(mark) && queue.len() == 1);
        }
    }
}
