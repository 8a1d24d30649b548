//! `tag_instructions NAME COUNT` sends so many tagged messages between two workers, for scripts/callgrind to count their
//! instructions; without arguments it prints the names.
//!
//! In a binary of its own: with workers beside them, engines are compiled to other code.

use std::process::ExitCode;

use roci_benches::tags::TAGS;
use roci_benches::{counting, parts};

fn main() -> ExitCode {
    counting::main(&parts::names(TAGS), |name| parts::exchange(TAGS, name))
}
