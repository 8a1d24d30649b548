//! `rc_instructions NAME COUNT` makes so many exchanges, for scripts/callgrind to count their instructions;
//! without arguments it prints the names.

use std::process::ExitCode;

use roci_benches::{counting, rc};

fn main() -> ExitCode {
    counting::main(&rc::NAMES, rc::exchange)
}
