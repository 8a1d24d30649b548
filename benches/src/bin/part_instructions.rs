//! `part_instructions NAME COUNT` makes so many exchanges through a part above the RC machine, for scripts/callgrind to
//! count their instructions; without arguments it prints the names.
//!
//! The RC machine's own are in `rc_instructions`: in a binary with an engine beside it, it is compiled to other code.

use std::hint::black_box;
use std::process::ExitCode;

use roci_benches::parts;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = arguments.as_slice() else {
        println!("{}", parts::names().collect::<Vec<_>>().join("\n"));
        return ExitCode::SUCCESS;
    };
    let (Some(mut exchange), Ok(count)) = (parts::exchange(name), count.parse::<u64>()) else {
        eprintln!("part_instructions: no such figure, or no number: {name} {count}");
        return ExitCode::FAILURE;
    };
    for _ in 0..count {
        black_box(&mut exchange)();
    }
    ExitCode::SUCCESS
}
