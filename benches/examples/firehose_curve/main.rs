//! `firehose_curve SVG MARKDOWN` has a worker put into memory that another offers, with working sets from a quarter of M to four
//! times as much, and writes a figure and a table of what they cost.

mod figure;
mod rows;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use rows::Rows;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("firehose_curve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [svg, markdown] = arguments.as_slice() else {
        return Err("usage: firehose_curve SVG MARKDOWN".into());
    };
    let (svg, rows) = (PathBuf::from(svg), Rows::run());
    figure::draw(&svg, &rows)?;
    let figure = svg.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    std::fs::write(markdown, table::markdown(&rows, &figure))?;
    Ok(())
}
