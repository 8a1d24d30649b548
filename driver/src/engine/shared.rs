//! Shared receive queues of the engine.

use roci_protocol::rc::RecvRequest;

use super::{Engine, PostError};
use crate::Refused;
use crate::event::Event;
use crate::handles::{CompletionQueue, SharedReceiveQueue};
use crate::link::Link;
use crate::mem::Buffer;
use crate::srq::SharedQueue;

impl<L: Link> Engine<L> {
    /// A queue of at most `capacity` receives for any number of queue pairs, all of which complete to `cq`.
    pub fn create_srq(&mut self, capacity: usize, cq: CompletionQueue) -> SharedReceiveQueue {
        self.stocks.push(SharedQueue::new(capacity, cq));
        SharedReceiveQueue(self.stocks.len() - 1)
    }

    /// Posts a receive for whichever queue pair needs it first; all of the buffer may be filled.
    pub fn post_srq_recv(
        &mut self,
        srq: SharedReceiveQueue,
        wr_id: u64,
        buffer: Buffer,
    ) -> Result<(), Refused<Buffer, PostError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if self.is_forked() {
            return refuse(PostError::Forked, buffer);
        }
        if let Err(kind) = buffer.check_filled() {
            return refuse(kind.into(), buffer);
        }
        let stock = &mut self.stocks[srq.0];
        let cq = &mut self.cqs[stock.cq.0];
        if !cq.reserve() {
            return refuse(PostError::CompletionQueueFull, buffer);
        }
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        if let Err(request) = stock.post(RecvRequest { wr_id, buffer, len }) {
            cq.release();
            return refuse(PostError::SharedQueueFull, request.buffer);
        }
        Ok(())
    }

    /// Asks for one [`Event::SharedReceivesLow`] once fewer than `limit` receives are left; 0 asks for none.
    pub fn arm_srq(&mut self, srq: SharedReceiveQueue, limit: usize) {
        self.stocks[srq.0].arm(limit);
        self.look_at_stock(srq);
    }

    /// Returns the number of receives that no queue pair has taken.
    pub fn srq_len(&self, srq: SharedReceiveQueue) -> usize {
        self.stocks[srq.0].len()
    }

    #[inline]
    pub(super) fn look_at_stock(&mut self, srq: SharedReceiveQueue) {
        if self.stocks[srq.0].is_low() {
            self.events.push(Event::SharedReceivesLow(srq));
        }
    }
}
