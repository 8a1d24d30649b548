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
        let (una, sent, next) = (self.window.una(), self.window.sent(), self.queue.next_psn());
        assert!(!sent.before(una), "{una:?} is acknowledged, and only {sent:?} was sent");
        assert!(!next.before(sent), "{sent:?} was sent, and only {next:?} was posted");
        let cursor = self.queue.cursor_psn();
        assert!(!cursor.before(una) && !next.before(cursor), "the cursor {cursor:?} is not in {una:?}..{next:?}");
        self.queue.check();
        self.retries.check();
        assert!(self.fetches.len() <= max_rd_atomic, "more READs and atomics are in flight than the peer has granted");
        let mut after = una;
        for fetch in self.fetches.iter() {
            assert!(fetch.first.before(fetch.end) && after.before(fetch.end), "an answered READ is in flight");
            assert!(!sent.before(fetch.end), "a READ is in flight that was not sent");
            after = fetch.end;
        }
        self.scoreboard.check(una, sent);
    }
}
