//! `worker_instructions NAME COUNT` makes so many exchanges between two workers (tagged messages, puts through streams,
//! one-sided operations), for scripts/callgrind to count their instructions; without arguments it prints the names.
//!
//! In a binary of its own: with workers beside them, engines are compiled to other code.

use std::process::ExitCode;

use roci_benches::one_sided::ONE_SIDED;
use roci_benches::parts::PartTable;
use roci_benches::streams::STREAMS;
use roci_benches::tags::TAGS;
use roci_benches::{counting, parts};

const TABLES: [&PartTable; 3] = [TAGS, STREAMS, ONE_SIDED];

fn main() -> ExitCode {
    let names: Vec<_> = TABLES.iter().flat_map(|table| parts::names(table)).collect();
    counting::main(&names, |name| TABLES.iter().find_map(|table| parts::exchange(table, name)))
}
