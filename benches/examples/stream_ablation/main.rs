//! `stream_ablation SVG MARKDOWN HEADING` reads the rows that scripts/stream-ablation has gathered from
//! `roci perf --json`, and writes a figure and a table of what each step of byte streams buys.

mod figure;
mod rows;
mod table;

use std::error::Error;
use std::io::{Read, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use rows::Rows;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stream_ablation: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [svg, markdown, heading] = arguments.as_slice() else {
        return Err("usage: stream_ablation SVG MARKDOWN HEADING < ROWS".into());
    };
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    let rows = Rows::parse(&text)?;
    figure::draw(&PathBuf::from(svg), &rows)?;
    let figure = PathBuf::from(svg).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    std::fs::write(markdown, table::markdown(&rows, heading, &figure))?;
    Ok(())
}
