//! Queues of an engine on their own, for the benches of this workspace. Nothing here is a promise to anybody else.

use std::io;
use std::ops::Range;

use roci_protocol::Qpn;
use roci_protocol::rc::{Operation, RcCompletion, RecvRequest, WcStatus};

use crate::cq::{Queue, WorkCompletion};
use crate::handles::{CompletionQueue, QueuePair};
use crate::mem::{Buffer, Mark, WatchTable};
use crate::srq::SharedQueue;

/// A completion queue.
#[derive(Debug)]
pub struct Completions(Queue);

impl Completions {
    /// One with room for so many ends.
    pub fn new(capacity: usize) -> Self {
        Self(Queue::new(capacity))
    }

    /// A SEND is posted and ends; `false` where there was no room for its end.
    #[inline]
    pub fn end(&mut self, wr_id: u64, buffer: Buffer) -> bool {
        if !self.0.reserve() {
            return false;
        }
        let done = RcCompletion {
            wr_id,
            status: WcStatus::Success,
            operation: Operation::Send,
            len: buffer.len() as u32,
            imm: None,
            invalidated: None,
            solicited: false,
            signaled: true,
            buffer,
        };
        self.0.push(QueuePair(Qpn::new(7)), None, done);
        true
    }

    /// The end that came first.
    #[inline]
    pub fn poll(&mut self) -> Option<WorkCompletion> {
        self.0.pop()
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceives(SharedQueue);

impl SharedReceives {
    /// One with room for so many receives.
    pub fn new(capacity: usize) -> Self {
        Self(SharedQueue::new(capacity, CompletionQueue(0)))
    }

    /// Adds a receive; `false` where there was no room.
    #[inline]
    pub fn post(&mut self, wr_id: u64, buffer: Buffer) -> bool {
        let len = buffer.len() as u32;
        self.0.post(RecvRequest { wr_id, buffer, len }).is_ok()
    }

    /// The receive that was posted first.
    #[inline]
    pub fn take(&mut self) -> Option<Buffer> {
        self.0.take().map(|request| request.buffer)
    }
}

/// The board between the monitor and the owners of registrations, with watched regions side by side.
#[derive(Debug)]
pub struct Watched {
    board: WatchTable,
    marks: Vec<Mark>,
}

const REGION: usize = 1 << 16;

impl Watched {
    /// So many regions.
    pub fn new(count: usize) -> io::Result<Self> {
        let board = WatchTable::new()?;
        let marks = (0..count).filter_map(|which| board.claim(&Self::range(which))).collect();
        Ok(Self { board, marks })
    }

    const fn range(which: usize) -> Range<usize> {
        (which + 1) * REGION..(which + 2) * REGION
    }

    /// What a hit in the cache of registrations reads.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.board.epoch()
    }

    /// One region more begins and ends.
    #[inline]
    pub fn claim_and_release(&self) -> bool {
        let mark = self.board.claim(&Self::range(self.marks.len()));
        mark.inspect(|mark| self.board.release(mark)).is_some()
    }

    /// Marks a region as touched, as the monitor does; returns whether its owner can see that.
    #[inline]
    pub fn touch(&self, which: usize) -> bool {
        self.board.begin().mark(&Self::range(which));
        self.board.is_marked(&self.marks[which])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_give_back_in_order_what_they_take_and_no_more() {
        let arena = crate::Arena::new(1 << 20).expect("memory");
        let buffer = |len| arena.buffer(len).expect("memory");
        let (mut completions, mut receives) = (Completions::new(2), SharedReceives::new(2));
        for len in [64, 128] {
            assert!(completions.end(len as u64, buffer(len)) && receives.post(len as u64, buffer(len)));
        }
        assert!(!completions.end(3, buffer(8)) && !receives.post(3, buffer(8)));
        for len in [64, 128] {
            assert_eq!(completions.poll().map(|done| (done.wr_id, done.buffer.len())), Some((len as u64, len)));
            assert_eq!(receives.take().map(|buffer| buffer.len()), Some(len));
        }
        assert!(completions.poll().is_none() && receives.take().is_none());
    }

    #[test]
    fn a_touched_region_is_marked_and_moves_the_epoch() {
        let watched = Watched::new(10).expect("memory");
        let before = watched.epoch();
        assert!(watched.claim_and_release());
        assert_eq!(watched.epoch(), before);
        assert!(watched.touch(3));
        assert_ne!(watched.epoch(), before);
    }
}
