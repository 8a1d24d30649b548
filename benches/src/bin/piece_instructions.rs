//! `piece_instructions NAME COUNT` makes so many exchanges through a piece of what engines and workers are made of, for
//! scripts/callgrind to count their instructions; without arguments it prints the names.
//!
//! Whole engines and matching are in `part_instructions`: with more callers of the same functions beside them, they are
//! compiled to other code.

use std::process::ExitCode;

use roci_benches::pieces::PIECES;
use roci_benches::{counting, parts};

fn main() -> ExitCode {
    counting::main(&parts::names(PIECES), |name| parts::exchange(PIECES, name))
}
