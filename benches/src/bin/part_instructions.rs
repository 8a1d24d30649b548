//! `part_instructions NAME COUNT` makes so many exchanges through a part above the RC machine, for scripts/callgrind to
//! count their instructions; without arguments it prints the names.
//!
//! The RC machine's own are in `rc_instructions`: in a binary with an engine beside it, it is compiled to other code.

use std::process::ExitCode;

use roci_benches::parts::PARTS;
use roci_benches::{counting, parts};

fn main() -> ExitCode {
    counting::main(&parts::names(PARTS), |name| parts::exchange(PARTS, name))
}
