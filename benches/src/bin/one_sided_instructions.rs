//! `one_sided_instructions NAME COUNT` makes so many one-sided operations between two workers, for scripts/callgrind to count their
//! instructions; without arguments it prints the names.

use std::process::ExitCode;

use roci_benches::one_sided::ONE_SIDED;
use roci_benches::{counting, parts};

fn main() -> ExitCode {
    counting::main(&parts::names(ONE_SIDED), |name| parts::exchange(ONE_SIDED, name))
}
