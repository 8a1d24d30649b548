//! Asynchronous events (`ibv_async_event`): what the application is told without having posted anything.

use std::collections::VecDeque;

use crate::cq::CompletionQueue;
use crate::qp::QueuePair;
use crate::srq::SharedReceiveQueue;

/// Events that wait to be polled.
const LIMIT: usize = 1024;

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A completion queue has what was asked for by [`crate::Engine::request_notify`].
    Completion(CompletionQueue),
    /// A queue pair that drains has nothing outstanding any more.
    SendQueueDrained(QueuePair),
    /// A queue pair went to the error state.
    QueuePairFailed(QueuePair),
    /// A shared receive queue holds fewer receives than the limit that was set.
    SharedReceivesLow(SharedReceiveQueue),
}

/// Events in order. When nobody polls them the latest are lost, and counted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    pub(crate) lost: u64,
}

impl Events {
    /// `false` where it is lost.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        let has_room = self.queue.len() < LIMIT;
        if has_room {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
