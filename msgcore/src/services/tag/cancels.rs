//! Questions whether the peer gives a message back, and how many of them may be open.
//!
//! A question costs no credit where receives are shared, and the peer keeps one that has overtaken what it asks for. So
//! their number is bounded here, by the end that asks; and so are the messages that are sent over other lanes while one is
//! open: a place in the sequence has 16 bits, and a question that comes too long after its place would seem to be
//! before it.

use std::collections::VecDeque;

use crate::core::request::Request;
use crate::core::rx::CANCELS_OPEN;

/// Questions that may be open; others wait for answers. What a peer may have to keep counts on it.
const OPEN_LIMIT: usize = CANCELS_OPEN;
/// Messages that may be sent since the oldest open question: half of what can be distinguished from what is to come.
const SPAN: u16 = 1 << 14;

/// The questions of one peer.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    /// Asked, or about to be, and not answered.
    open: usize,
    /// The place of the first one since none was open.
    oldest: u16,
    /// Not asked yet.
    waiting: VecDeque<Request>,
}

impl Cancels {
    /// Whether the peer owes an answer.
    #[inline]
    pub(crate) fn is_any_open(&self) -> bool {
        self.open > 0
    }

    /// Whether a message may take this place: none that is so far from an open question.
    pub(crate) fn admits(&self, next_sequence: u16) -> bool {
        self.open == 0 || next_sequence.wrapping_sub(self.oldest) < SPAN
    }

    /// Somebody wants this one back.
    pub(crate) fn add(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// The next one to ask for, if there may be another question at this place; see [`Self::ask`].
    pub(crate) fn next(&mut self, next_sequence: u16) -> Option<Request> {
        let may_ask = self.open < OPEN_LIMIT && self.admits(next_sequence);
        if may_ask { self.waiting.pop_front() } else { None }
    }

    /// A question is asked.
    pub(crate) fn ask(&mut self, next_sequence: u16) {
        if self.open == 0 {
            self.oldest = next_sequence;
        }
        self.open += 1;
    }

    /// The peer has answered one. An answer to no question changes nothing.
    pub(crate) fn note_answer(&mut self) {
        self.open = self.open.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cancels: &mut Cancels, place: u16) -> bool {
        let is_asked = cancels.next(place).is_some();
        if is_asked {
            cancels.ask(place);
        }
        is_asked
    }

    #[test]
    fn so_many_are_open_and_an_answer_lets_the_next_one_go() {
        let mut cancels = Cancels::default();
        (0..OPEN_LIMIT as u64 + 2).for_each(|id| cancels.add(Request::from_wire(id)));
        assert!((0..OPEN_LIMIT).all(|_| ask(&mut cancels, 7)));
        assert!(!ask(&mut cancels, 7));
        cancels.note_answer();
        assert!(ask(&mut cancels, 7) && !ask(&mut cancels, 7));
    }

    #[test]
    fn places_far_from_an_open_question_are_taken_when_all_are_answered() {
        let mut cancels = Cancels::default();
        (0..3).for_each(|id| cancels.add(Request::from_wire(id)));
        assert!(cancels.admits(u16::MAX) && ask(&mut cancels, u16::MAX) && ask(&mut cancels, SPAN - 2));
        assert!(!cancels.admits(SPAN - 1) && !ask(&mut cancels, SPAN - 1));
        cancels.note_answer();
        assert!(!cancels.admits(SPAN - 1), "which of them was answered is not known");
        cancels.note_answer();
        assert!(cancels.admits(SPAN - 1) && ask(&mut cancels, SPAN - 1) && cancels.admits(SPAN));
    }

    #[test]
    fn an_answer_without_a_question_changes_nothing() {
        let mut cancels = Cancels::default();
        cancels.note_answer();
        assert!(!cancels.is_any_open() && cancels.admits(0));
    }
}
