//! Shared receive queues: one stock of receives for many queue pairs (IBTA 10.2.9).

use std::collections::VecDeque;

use roci_protocol::rc::RecvRequest;

use crate::handles::CompletionQueue;
use crate::mem::Buffer;

/// The queue itself. Its receives complete to one completion queue, which all its queue pairs use, so that each has its
/// place there reserved, whichever queue pair takes it. Its memory grows as they are posted, and is kept.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    receives: VecDeque<RecvRequest<Buffer>>,
    capacity: usize,
    pub(crate) cq: CompletionQueue,
    limit: Option<usize>,
}

impl SharedQueue {
    pub(crate) fn new(capacity: usize, cq: CompletionQueue) -> Self {
        Self { receives: VecDeque::new(), capacity, cq, limit: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.receives.len()
    }

    /// Adds a receive, or hands it back where the queue is full.
    pub(crate) fn post(&mut self, request: RecvRequest<Buffer>) -> Result<(), RecvRequest<Buffer>> {
        if self.receives.len() == self.capacity {
            return Err(request);
        }
        self.receives.push_back(request);
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Option<RecvRequest<Buffer>> {
        self.receives.pop_front()
    }

    /// Puts a receive back that was taken in vain. Nothing was posted since, so there is room.
    pub(crate) fn put_back(&mut self, request: RecvRequest<Buffer>) {
        self.receives.push_front(request);
    }

    /// Asks for one event once fewer than `limit` receives are left; 0 asks for none.
    pub(crate) fn arm(&mut self, limit: usize) {
        self.limit = Some(limit).filter(|&limit| limit > 0);
    }

    /// Whether the event is due; it comes once.
    pub(crate) fn is_low(&mut self) -> bool {
        let is_low = self.limit.is_some_and(|limit| self.receives.len() < limit);
        if is_low {
            self.limit = None;
        }
        is_low
    }
}
