//! Whether the guest keeps to the PSNs of its requests.
//!
//! While rxe sends a request again, it may go on with one of no bytes that nobody posted, under a PSN that it has given to
//! another request. From there on its requests and our answers are at odds.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use roci_protocol::wire::Opcode;

use crate::lab::{Lab, Pair};
use crate::wire::Way;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Send,
    Write,
    Read,
    Atomic,
}

/// Watches what the guest requests on a connection: true once it has given one PSN to requests of two classes.
pub(super) fn watch(lab: &Lab, pair: Pair) -> Rc<Cell<bool>> {
    let is_renumbered = Rc::new(Cell::new(false));
    let (told, mut numbers) = (is_renumbered.clone(), Numbers::default());
    lab.lose(Box::new(move |way, packet| {
        let bth = &packet.headers.bth;
        if way == Way::In && bth.dest_qpn == pair.qp.qpn() && numbers.contradict(bth.psn.get(), bth.opcode) {
            told.set(true);
        }
        false
    }));
    is_renumbered
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
}
