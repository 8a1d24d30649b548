//! What is counted in instructions of what engines and workers are made of: figures of benches/instructions.txt by
//! their names. Built without them, `parts` keeps its code, and so its counts.

use std::hint::black_box;

use crate::icrc::IcrcPayload;
use crate::parts::PartTable;
use crate::registration::{Adopter, unwatched};
use crate::rings::Commands;
use crate::wire::OneFrame;

/// The figures, in the order of the file.
pub const PIECES: &PartTable = &[
    ("emit_64", || emitting(64)),
    ("parse_verify_64", || reading(64)),
    ("copy_icrc_1024", || covering(1024)),
    ("commands_1", || commands(1)),
    ("commands_16", || commands(16)),
    ("adopt_hit", adopting),
];

fn emitting(len: usize) -> Box<dyn FnMut()> {
    let mut frame = OneFrame::new(len);
    Box::new(move || frame.emit())
}

fn reading(len: usize) -> Box<dyn FnMut()> {
    let frame = OneFrame::new(len);
    Box::new(move || assert!(black_box(frame.read()).is_some(), "it is right"))
}

/// What the stack does. Only the bench uses the way by blocks.
fn covering(len: usize) -> Box<dyn FnMut()> {
    let mut payload = IcrcPayload::new(len);
    Box::new(move || _ = black_box(payload.copy_then_cover()))
}

/// Both sides on one thread: on two, each would look in vain as often as the other happens to be late.
fn commands(batch: usize) -> Box<dyn FnMut()> {
    let mut commands = Commands::new(batch);
    Box::new(move || commands.turn())
}

/// There is no monitor, since containers often forbid userfaultfd; its thread would have no part in a hit.
fn adopting() -> Box<dyn FnMut()> {
    let mut adopter = Adopter::new(unwatched());
    (0..2).for_each(|_| adopter.turn());
    assert_eq!(adopter.stats().hits_fast, 1, "64 KiB of memory cannot be locked");
    Box::new(move || adopter.turn())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{exchange, names};

    #[test]
    fn every_name_is_an_exchange() {
        for name in names(PIECES) {
            let mut exchange = exchange(PIECES, name).expect("it is in the table");
            (0..100).for_each(|_| exchange());
        }
    }
}
