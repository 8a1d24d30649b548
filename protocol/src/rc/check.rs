//! What holds of a queue pair between any two calls. Simulations check it after every step.

use super::RcQueuePair;
use super::requester::Requester;

impl<B> RcQueuePair<B> {
    /// Asserts the invariants. It walks over the queues: for tests and simulations, not for the data path.
    ///
    /// # Panics
    /// Where one does not hold: a bug of this machine.
    pub fn check(&self) {
        self.requester.check(self.config.max_rd_atomic);
        self.responder.check();
        assert!(!self.looks_at_held, "a kept packet is looked at within one call");
    }
}

impl<B> Requester<B> {
    fn check(&self, max_rd_atomic: usize) {
        let (una, sent, next) = (self.una, self.sent, self.next_psn());
        assert!(!sent.before(una), "{una:?} is acknowledged, and only {sent:?} was sent");
        assert!(!next.before(sent), "{sent:?} was sent, and only {next:?} was posted");
        let cursor = self.cursor_psn();
        assert!(!cursor.before(una) && !next.before(cursor), "the cursor {cursor:?} is not in {una:?}..{next:?}");
        let mut end = None;
        for wqe in &self.queue {
            assert!(end.is_none_or(|end| end == wqe.first), "PSNs of requests follow each other");
            assert!(wqe.received <= wqe.packets, "more answers than were asked for");
            end = Some(wqe.end());
        }
        assert!(end.is_none_or(|end| end == next), "the last request ends at {next:?}");
        assert!(self.fetches.len() <= max_rd_atomic, "more READs and atomics are in flight than the peer has granted");
        let mut after = una;
        for fetch in &self.fetches {
            assert!(fetch.first.before(fetch.end) && after.before(fetch.end), "an answered READ is in flight");
            assert!(!sent.before(fetch.end), "a READ is in flight that was not sent");
            after = fetch.end;
        }
        self.loss.check(una, sent);
    }
}
