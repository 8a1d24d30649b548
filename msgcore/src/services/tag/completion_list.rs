//! The completion queue: which operations have outcomes that go there, in which order they ended, and what the application names
//! them by.

use std::collections::VecDeque;

use crate::core::completion::{Completion, Done, OpError};
use crate::core::request::Request;

/// Requests that may be in the list in vain, beside as many as are not.
pub(super) const SLACK: usize = 64;

/// Where the outcome of a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReportTo {
    /// To who asks for it by name.
    #[default]
    ByName,
    /// Nowhere: it is forgotten when it ends.
    Nowhere,
    /// Into the completion queue.
    Queue,
}

/// Requests whose outcomes go into the completion queue.
#[derive(Default)]
pub(crate) struct CompletionList {
    /// What the application names them by, by the places of their names: beside the requests, of which most have none.
    contexts: Vec<u64>,
    /// Those that have ended. One may be there twice, or be under way again because it is being cancelled. [`Request::PART`]
    /// stands for one of `parts`.
    ended: VecDeque<Request>,
    /// Messages that multi-receives have taken, in the order in which they had arrived whole.
    parts: VecDeque<Completion>,
    /// Those whose outcome was not taken, the messages among them.
    open: usize,
}

impl ReportTo {
    /// Whether it is the completion queue.
    #[inline]
    pub(crate) fn is_queue(self) -> bool {
        self == Self::Queue
    }
}

impl CompletionList {
    /// The outcome of a request goes into the queue from here on, with `context`; it went `from` before.
    pub(crate) fn note_queued(&mut self, request: Request, context: u64, from: ReportTo) {
        let place = request.0.index as usize;
        if self.contexts.len() <= place {
            self.contexts.resize(place + 1, 0);
        }
        self.contexts[place] = context;
        self.open += usize::from(!from.is_queue());
    }

    /// Forgets what has ended and is not `there` any more, where that is most of it: it was taken by name.
    pub(crate) fn compact(&mut self, is_there: impl Fn(Request) -> bool) {
        if self.ended.len() > 2 * self.open + SLACK {
            self.ended.retain(|&request| request == Request::PART || is_there(request));
        }
    }

    /// A request has ended whose outcome goes into the queue.
    pub(crate) fn push(&mut self, request: Request) {
        self.ended.push_back(request);
    }

    /// A message that a multi-receive has taken has ended. Its completion has what the receive is named by.
    pub(crate) fn push_part(&mut self, of: Request, outcome: Result<Done, OpError>) {
        self.parts.push_back(Completion { context: self.context_of(of), outcome, is_last: false });
        self.ended.push_back(Request::PART);
        self.open += 1;
    }

    /// Takes a request that has ended, or had.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Request> {
        self.ended.pop_front()
    }

    /// Takes the message that [`Request::PART`] has stood for.
    #[cold]
    pub(crate) fn take_part(&mut self) -> Option<Completion> {
        let part = self.parts.pop_front()?;
        self.note_taken(ReportTo::Queue);
        Some(part)
    }

    /// Returns the request that [`CompletionList::pop`] would take.
    pub(crate) fn first(&self) -> Option<Request> {
        self.ended.front().copied()
    }

    /// Returns what a request is named by.
    #[inline]
    pub(crate) fn context_of(&self, request: Request) -> u64 {
        self.contexts[request.0.index as usize]
    }

    /// How many requests have outcomes that go into the queue, and were not taken.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The outcome of a request was taken, or goes elsewhere from here on.
    #[inline]
    pub(crate) fn note_taken(&mut self, from: ReportTo) {
        if from.is_queue() {
            assert!(self.open > 0, "an outcome is taken once");
            self.open -= 1;
            if self.open == 0 {
                // What is left was taken by name, or is there twice.
                assert!(self.parts.is_empty(), "a message that was not taken is counted");
                self.ended.clear();
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ended.len()
    }
}
