//! Parts of a worker on their own, for the benches and tests of this workspace. Nothing here is a promise to anybody else.

use roci_driver::link::Link;

pub use crate::dedicated::internals::CommandRings;
use crate::services::tag::matching::{MatchLabel, Matching};
use crate::{Context, Pattern, Rank, Tag, Worker};

/// Peers do not know this process's memory any more, as if another process had its number.
pub fn withdraw_mark<L: Link>(worker: &mut Worker<L>) {
    worker.endpoint.withdraw_mark();
}

/// The queues in which receives wait for messages, and messages for receives. Numbers stand for both.
#[derive(Default, Debug)]
pub struct MatchingQueues(Matching<u32, u32>);

impl MatchingQueues {
    /// A receive comes: the message that it takes, or it waits.
    #[inline]
    pub fn receive(&mut self, pattern: Pattern, receive: u32) -> Option<u32> {
        if let Some((_, message)) = self.0.take_unexpected(&pattern) {
            return Some(message);
        }
        self.0.post(pattern, receive);
        None
    }

    /// A message comes: the receive that takes it, or it waits.
    #[inline]
    pub fn arrive(&mut self, source: Rank, tag: Tag, message: u32) -> Option<u32> {
        let label = MatchLabel { source: source.into(), tag, context: Context::default() };
        let receive = self.0.take_posted(&label);
        if receive.is_none() {
            self.0.keep(label, message.into(), 1, message);
        }
        receive
    }

    /// Receives that wait, and messages.
    pub fn waiting(&self) -> (usize, usize) {
        (self.0.posted_len(), self.0.unexpected_len())
    }
}
