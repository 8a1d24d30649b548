//! Asynchronous events (`ibv_async_event`): notifications that belong to no work request.

use std::collections::VecDeque;

use crate::handles::{CompletionQueue, QueuePair, SharedReceiveQueue};

/// Events that wait to be polled, beside those of queue pairs that failed: of these there is one for each.
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
    /// A queue pair that went to the error state takes no more receives of its shared queue: those that it had taken have
    /// their completions (IBTA 11.6.3.1: last WQE reached). If the application destroys it before, it may miss some.
    LastReceiveTaken(QueuePair),
    /// A shared receive queue holds fewer receives than the limit that was set.
    SharedReceivesLow(SharedReceiveQueue),
}

impl Event {
    /// Whether it reports a queue pair's end, which must not be lost: all queue pairs of an engine may end at once.
    const fn is_end(self) -> bool {
        matches!(self, Self::QueuePairFailed(_) | Self::LastReceiveTaken(_))
    }
}

/// Events in order. When the application does not poll them the latest are lost, and counted, but for the ends of queue
/// pairs.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    ends: usize,
    pub(crate) lost: u64,
}

impl Events {
    /// `false` where it is lost.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        let has_room = event.is_end() || self.queue.len() - self.ends < LIMIT;
        self.ends += usize::from(event.is_end());
        if has_room {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
        has_room
    }

    /// Drops the events of a queue pair that is gone.
    pub(crate) fn forget(&mut self, qp: QueuePair) {
        if self.ends > 0 {
            let before = self.queue.len();
            self.queue.retain(|&event| event != Event::QueuePairFailed(qp) && event != Event::LastReceiveTaken(qp));
            self.ends -= before - self.queue.len();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front()?;
        self.ends -= usize::from(event.is_end());
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use roci_protocol::Qpn;

    use super::*;

    #[test]
    fn every_failure_is_reported_however_much_else_waits() {
        let mut events = Events::default();
        let failure = |qpn| Event::QueuePairFailed(QueuePair(Qpn::new(qpn)));
        assert!((0..5000).all(|qpn| events.push(failure(qpn))));
        let other = Event::Completion(CompletionQueue(0));
        assert_eq!((0..2000).filter(|_| events.push(other)).count(), LIMIT);
        assert_eq!(events.lost, 2000 - LIMIT as u64);
        events.push(failure(5000));
        events.push(Event::LastReceiveTaken(QueuePair(Qpn::new(5000))));
        events.forget(QueuePair(Qpn::new(5000)));
        assert!((0..5000).all(|qpn| events.pop() == Some(failure(qpn))));
        assert_eq!(events.pop(), Some(other));
    }
}
