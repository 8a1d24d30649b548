//! What rxe is known to do wrong, as its packets and ours show it: a round that fails after that says nothing about us.
//!
//! While it sends a request again, it may go on with one of no bytes that was never posted, under a PSN that it has
//! given to another request. From there on its requests and our answers are at odds.
//!
//! That of 6.12 takes an acknowledgement of an older PSN for the end of a READ of which it has some responses. No wire needs to
//! reorder anything for that: one response is lost, and the acknowledgement answers a request that it sent twice.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use roci_protocol::Psn;
use roci_protocol::sim::Verdict;
use roci_protocol::wire::Opcode;

use crate::lab::{GuestPair, Lab};
use crate::wire::FrameDirection;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Send,
    Write,
    Read,
    Atomic,
}

/// Watches a connection: true once the guest, whose kernel may be the old one, has met with one of its own faults.
pub(super) fn watch(lab: &Lab, pair: GuestPair, is_old: bool) -> Rc<Cell<bool>> {
    let is_spoilt = Rc::new(Cell::new(false));
    let (found, mut numbers, mut read) = (is_spoilt.clone(), Numbers::default(), PartialRead::default());
    lab.watch(Box::new(move |way, packet, verdict| {
        let bth = &packet.headers.bth;
        let is_fault = match way {
            FrameDirection::In => bth.dest_qpn == pair.qp.qpn() && numbers.contradict(bth.psn.get(), bth.opcode),
            FrameDirection::Out => !is_old && verdict != Verdict::Lose && read.ends_by(bth.psn, bth.opcode),
        };
        if is_fault {
            found.set(true);
        }
    }));
    is_spoilt
}

/// The READ of which the guest has some responses.
#[derive(Default)]
struct PartialRead {
    /// The PSN of the response that it waits for, and whether it has one of that READ already.
    next: Option<(Psn, bool)>,
}

impl PartialRead {
    /// Whether this packet to the guest acknowledges something older in the midst of a READ. Answers keep their order.
    fn ends_by(&mut self, psn: Psn, opcode: Opcode) -> bool {
        let (due, is_partial) = self.next.unwrap_or((psn, false));
        // A new READ, or the rest of this one; what came before comes again for nothing.
        let is_next = if is_partial { psn == due } else { !psn.before(due) };
        match opcode {
            Opcode::RcAck => return is_partial && psn.before(due),
            Opcode::RcReadResponseFirst if is_next => self.next = Some((psn.plus(1), true)),
            Opcode::RcReadResponseMiddle if is_next && is_partial => self.next = Some((psn.plus(1), true)),
            Opcode::RcReadResponseLast if is_next && is_partial => self.next = Some((psn.plus(1), false)),
            Opcode::RcReadResponseOnly if is_next => self.next = Some((psn.plus(1), false)),
            _ => {}
        }
        false
    }
}

/// What each PSN was given to first.
#[derive(Default)]
struct Numbers(HashMap<u32, Class>);

impl Numbers {
    /// Whether this PSN was given to a request of another class. What is no request says nothing.
    fn contradict(&mut self, psn: u32, opcode: Opcode) -> bool {
        class(opcode).is_some_and(|class| *self.0.entry(psn).or_insert(class) != class)
    }
}

fn class(opcode: Opcode) -> Option<Class> {
    match opcode {
        Opcode::RcSendFirst
        | Opcode::RcSendMiddle
        | Opcode::RcSendLast
        | Opcode::RcSendLastImm
        | Opcode::RcSendOnly
        | Opcode::RcSendOnlyImm => Some(Class::Send),
        Opcode::RcWriteFirst
        | Opcode::RcWriteMiddle
        | Opcode::RcWriteLast
        | Opcode::RcWriteLastImm
        | Opcode::RcWriteOnly
        | Opcode::RcWriteOnlyImm => Some(Class::Write),
        Opcode::RcReadRequest => Some(Class::Read),
        Opcode::RcCompareSwap | Opcode::RcFetchAdd => Some(Class::Atomic),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_repeated_is_no_contradiction_and_another_under_its_psn_is() {
        let mut numbers = Numbers::default();
        assert!(!numbers.contradict(7, Opcode::RcFetchAdd));
        assert!(!numbers.contradict(7, Opcode::RcFetchAdd));
        assert!(!numbers.contradict(7, Opcode::RcAck), "the guest's answers are numbered by us");
        assert!(numbers.contradict(7, Opcode::RcWriteOnly));
        assert!(!numbers.contradict(8, Opcode::RcWriteOnly));
    }

    /// PSNs around the wrap, as the scenario has them.
    fn ends(packets: &[(u32, Opcode)]) -> bool {
        let mut read = PartialRead::default();
        let mut ends = |&(psn, opcode): &(u32, Opcode)| read.ends_by(Psn::new(0xff_fffe).plus(psn), opcode);
        packets.iter().filter(|packet| ends(packet)).count() > 0
    }

    #[test]
    fn an_older_acknowledgement_ends_a_read_of_which_some_responses_are_there() {
        use Opcode::{RcAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly};
        let first = [(1, RcReadResponseFirst), (2, RcReadResponseMiddle)];
        let with = |rest: &[(u32, Opcode)]| [&first, rest].concat();
        assert!(ends(&with(&[(0, RcAck)])));
        assert!(ends(&with(&[(4, RcReadResponseLast), (0, RcAck)])), "the third one was lost");
        assert!(ends(&with(&[(1, RcReadResponseFirst), (0, RcAck)])), "what comes twice changes nothing");
        assert!(ends(&with(&[(3, RcReadResponseFirst), (0, RcAck)])), "it asked for the rest of it");
        assert!(!ends(&with(&[(3, RcReadResponseOnly), (0, RcAck)])), "the rest of it is one packet");
        assert!(!ends(&with(&[(3, RcReadResponseLast), (0, RcAck)])));
        assert!(!ends(&with(&[
            (3, RcReadResponseMiddle),
            (4, RcReadResponseLast),
            (1, RcReadResponseFirst),
            (0, RcAck)
        ])));
    }
}
