//! Tickets: the application's names of operations, and the outcomes that wait for it.

use roci_driver::Buffer;

use crate::core::slab::{Key, Slab};
use crate::{Done, OpError};

/// An operation of a dedicated worker. It must be waited for: see [`DedicatedWorker::wait`] and
/// [`DedicatedWorker::test`].
///
/// [`DedicatedWorker::wait`]: crate::DedicatedWorker::wait
/// [`DedicatedWorker::test`]: crate::DedicatedWorker::test
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "an operation ends only for who waits for it"]
pub struct Ticket(Key);

impl Ticket {
    /// Its place: no other ticket that is out has it.
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0.index as usize
    }
}

enum State {
    Open,
    /// Open, and nobody will wait for it: so many bytes are forgotten when it ends.
    Detached(usize),
    Ended(Result<Done, OpError>),
}

/// All tickets that are out.
pub(super) struct Tickets {
    states: Slab<State>,
    detached_bytes: usize,
}

/// Tickets that may be out. An endpoint's queue holds as many sends, so that the engine refuses none for want of room.
pub(super) const LIMIT: usize = 1 << 15;
const _: () =
    assert!(LIMIT <= crate::services::tag::queue::OUTGOING_LIMIT && LIMIT <= crate::services::tag::requests::LIMIT);

impl Default for Tickets {
    fn default() -> Self {
        Self { states: Slab::with_names_of_its_own(LIMIT), detached_bytes: 0 }
    }
}

impl Tickets {
    /// A new ticket; `None` where too many are out.
    #[inline]
    pub(super) fn open(&mut self) -> Option<Ticket> {
        self.states.insert(State::Open).map(Ticket)
    }

    /// Nobody will wait for this one. Right after it was opened: it has not ended yet.
    pub(super) fn detach(&mut self, ticket: Ticket, bytes: usize) {
        if let Some(state @ State::Open) = self.states.get_mut(ticket.0) {
            *state = State::Detached(bytes);
            self.detached_bytes += bytes;
        }
    }

    /// Bytes of operations that nobody waits for and that are under way.
    pub(super) fn detached_bytes(&self) -> usize {
        self.detached_bytes
    }

    /// It has ended. Returns its memory where nobody waits for it.
    #[inline]
    pub(super) fn end(&mut self, ticket: Ticket, outcome: Result<Done, OpError>) -> Option<Buffer> {
        let state = self.states.get_mut(ticket.0)?;
        match state {
            State::Open => *state = State::Ended(outcome),
            State::Detached(bytes) => {
                self.detached_bytes -= *bytes;
                self.states.remove(ticket.0);
                return outcome.ok().map(|done| done.buffer);
            }
            State::Ended(_) => debug_assert!(false, "a ticket ends once"),
        }
        None
    }

    /// Takes the outcome of one that has ended; `None` while it has not.
    #[inline]
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<Done, OpError>> {
        match self.states.get(ticket.0) {
            Some(State::Open) => return None,
            Some(State::Ended(_)) => {}
            Some(State::Detached(_)) | None => return Some(Err(OpError::NoRequest)),
        }
        match self.states.remove(ticket.0)? {
            State::Ended(outcome) => Some(outcome),
            State::Open | State::Detached(_) => unreachable!("it had just ended"),
        }
    }

    /// Forgets one whose outcome nobody will hear.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.states.remove(ticket.0);
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Arena;
    use roci_protocol::msg::Label;

    use super::*;

    fn done(len: usize) -> Done {
        let buffer = Arena::new(4096).expect("memory").buffer(len).expect("room");
        Done::new(buffer, len, 1, Label::default())
    }

    #[test]
    fn an_outcome_is_kept_until_it_is_asked_for_and_told_once() {
        let mut tickets = Tickets::default();
        let (first, second) = (tickets.open().expect("room"), tickets.open().expect("room"));
        assert!(tickets.take(first).is_none());
        assert!(tickets.end(second, Ok(done(5))).is_none());
        assert!(tickets.end(first, Err(OpError::NobodyLeft)).is_none());
        assert_eq!(tickets.take(second).expect("over").expect("good").len, 5);
        assert_eq!(tickets.take(second).expect("told").expect_err("told"), OpError::NoRequest);
        assert_eq!(tickets.take(first).expect("over").expect_err("failed"), OpError::NobodyLeft);
        let third = tickets.open().expect("room");
        assert!(third != first && third != second, "a name is not used again");
        assert_eq!(tickets.take(first).expect("told").expect_err("told"), OpError::NoRequest);
        assert!(tickets.take(third).is_none());
    }

    #[test]
    fn what_nobody_waits_for_counts_until_it_ends_and_leaves_its_memory() {
        let mut tickets = Tickets::default();
        let ticket = tickets.open().expect("room");
        tickets.detach(ticket, 100);
        assert_eq!(tickets.detached_bytes(), 100);
        assert_eq!(tickets.end(ticket, Ok(done(7))).expect("its memory").len(), 7);
        assert_eq!(tickets.detached_bytes(), 0);
        assert_eq!(tickets.take(ticket).expect("gone").expect_err("gone"), OpError::NoRequest);
    }

    #[test]
    fn there_are_so_many_and_one_that_was_told_makes_room() {
        let mut tickets = Tickets::default();
        let out: Vec<_> = (0..LIMIT).map(|_| tickets.open().expect("room")).collect();
        assert!(tickets.open().is_none());
        assert!(tickets.end(out[7], Err(OpError::NobodyLeft)).is_none());
        assert!(tickets.open().is_none(), "nobody has heard of it yet");
        assert!(tickets.take(out[7]).is_some());
        tickets.forget(out[8]);
        tickets.forget(out[8]);
        assert!(tickets.open().is_some() && tickets.open().is_some());
        assert!(tickets.open().is_none());
    }
}
