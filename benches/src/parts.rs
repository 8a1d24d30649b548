//! What is counted in instructions above the RC machine: figures of benches/instructions.txt by their names.

use crate::cq::{Alone, Pair};
use crate::matching::{Meeting, Queues};

/// Makes what a name stands for.
type Start = fn() -> Box<dyn FnMut()>;

/// Receives or messages that wait for others.
const OTHERS: u32 = 100;

/// The figures, in the order of the file.
const PARTS: [(&str, Start); 7] = [
    ("match_expected", || matching(Meeting::Expected)),
    ("match_wildcard", || matching(Meeting::Wildcard)),
    ("match_unexpected", || matching(Meeting::Unexpected)),
    ("cq_1", || alone(1)),
    ("cq_16", || alone(16)),
    ("engine_send_64", || engines(true)),
    ("engine_no_icrc", || engines(false)),
];

/// Every name, in the order of the file.
pub fn names() -> [&'static str; PARTS.len()] {
    PARTS.map(|(name, _)| name)
}

/// What a name stands for, started; `None` where it stands for nothing.
pub fn exchange(name: &str) -> Option<Box<dyn FnMut()>> {
    PARTS.iter().find(|(its, _)| *its == name).map(|(_, start)| start())
}

fn matching(meeting: Meeting) -> Box<dyn FnMut()> {
    let mut queues = Queues::new(meeting, OTHERS);
    Box::new(move || queues.meet())
}

fn alone(batch: usize) -> Box<dyn FnMut()> {
    let mut queue = Alone::new(batch);
    Box::new(move || queue.turn())
}

fn engines(icrc: bool) -> Box<dyn FnMut()> {
    let mut pair = Pair::new(1, icrc);
    Box::new(move || pair.turn())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_exchange_and_no_other() {
        for name in names() {
            let mut exchange = exchange(name).expect("it is in the table");
            (0..100).for_each(|_| exchange());
        }
        assert!(exchange("nothing").is_none());
    }
}
