//! What is counted in instructions above the RC machine: figures of benches/instructions.txt by their names.

use crate::cq::{Alone, EnginePair};
use crate::matching::{Meeting, Queues};

/// Makes what a name stands for.
type Start = fn() -> Box<dyn FnMut()>;

/// Receives or messages that wait for others.
const OTHERS: u32 = 100;
/// Queues that meet in turn. Each hashes with a seed of its own, which follows the addresses of the binary: the figure of
/// one alone moves by 7 % from one folder to another.
const TABLES: usize = 64;

/// Figures by name, in the order of the file.
pub type PartTable = [(&'static str, Start)];

/// What `part_instructions` counts. Frames, rings and registrations alone are in `pieces`.
pub const PARTS: &PartTable = &[
    ("match_expected", || matching(Meeting::Expected)),
    ("match_wildcard", || matching(Meeting::Wildcard)),
    ("match_unexpected", || matching(Meeting::Unexpected)),
    ("match_any_source", || matching(Meeting::AnySource)),
    ("match_unexpected_wildcard", || matching(Meeting::UnexpectedWildcard)),
    ("cq_1", || alone(1)),
    ("cq_16", || alone(16)),
    ("engine_send_64", || engines(true)),
    ("engine_no_icrc", || engines(false)),
    ("engine_write_8", write),
];

/// Every name, in the order of the file.
pub fn names(table: &PartTable) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

/// What a name stands for, started; `None` where it stands for nothing.
pub fn exchange(table: &PartTable, name: &str) -> Option<Box<dyn FnMut()>> {
    table.iter().find(|(its, _)| *its == name).map(|(_, start)| start())
}

fn matching(meeting: Meeting) -> Box<dyn FnMut()> {
    let mut tables: Vec<_> = (0..TABLES).map(|_| Queues::new(meeting, OTHERS)).collect();
    let mut next = 0;
    Box::new(move || {
        tables[next % TABLES].meet();
        next += 1;
    })
}

fn alone(batch: usize) -> Box<dyn FnMut()> {
    let mut queue = Alone::new(batch);
    Box::new(move || queue.turn())
}

fn engines(icrc: bool) -> Box<dyn FnMut()> {
    let mut pair = EnginePair::new(1, icrc);
    Box::new(move || pair.turn())
}

fn write() -> Box<dyn FnMut()> {
    let mut pair = EnginePair::new(1, true);
    Box::new(move || pair.write())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_exchange_and_no_other() {
        for name in names(PARTS) {
            let mut exchange = exchange(PARTS, name).expect("it is in the table");
            (0..100).for_each(|_| exchange());
        }
        assert!(exchange(PARTS, "nothing").is_none());
    }
}
