//! `rc_instructions NAME COUNT` makes so many exchanges, for scripts/callgrind to count their instructions;
//! without arguments it prints the names.

use std::hint::black_box;
use std::process::ExitCode;

use roci_benches::rc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = arguments.as_slice() else {
        println!("{}", rc::NAMES.join("\n"));
        return ExitCode::SUCCESS;
    };
    let (Some(mut exchange), Ok(count)) = (rc::exchange(name), count.parse::<u64>()) else {
        eprintln!("rc_instructions: no such figure, or no number: {name} {count}");
        return ExitCode::FAILURE;
    };
    for _ in 0..count {
        black_box(&mut exchange)();
    }
    ExitCode::SUCCESS
}
