//! `stream_instructions NAME COUNT` has so many puts go there and come back through the streams of two workers, for
//! scripts/callgrind to count their instructions; without arguments it prints the names.
//!
//! In a binary of its own: with workers beside them, engines are compiled to other code.

use std::process::ExitCode;

use roci_benches::streams::STREAMS;
use roci_benches::{counting, parts};

fn main() -> ExitCode {
    counting::main(&parts::names(STREAMS), |name| parts::exchange(STREAMS, name))
}
