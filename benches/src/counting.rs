//! The command line of the binaries whose instructions scripts/callgrind counts.

use std::hint::black_box;
use std::process::ExitCode;

/// `NAME COUNT`: makes so many of an exchange; without arguments, prints the names.
pub fn main<E: FnMut()>(names: &[&str], exchange: impl FnOnce(&str) -> Option<E>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = arguments.as_slice() else {
        println!("{}", names.join("\n"));
        return ExitCode::SUCCESS;
    };
    let (Some(mut exchange), Ok(count)) = (exchange(name), count.parse::<u64>()) else {
        eprintln!("no such exchange, or no number: {name} {count}");
        return ExitCode::FAILURE;
    };
    for _ in 0..count {
        black_box(&mut exchange)();
    }
    ExitCode::SUCCESS
}
