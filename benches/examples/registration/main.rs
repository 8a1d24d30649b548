//! `registration SVG MARKDOWN HEADING` measures what it costs to register memory of the application's own, to find it
//! registered, and to copy it instead, and writes a figure and tables.

mod figure;
mod measure;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("registration: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [svg, markdown, heading] = arguments.as_slice() else {
        return Err("usage: registration SVG MARKDOWN HEADING".into());
    };
    let results = measure::all()?;
    let svg = PathBuf::from(svg);
    figure::draw(&svg, &results)?;
    let figure = svg.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    std::fs::write(markdown, table::markdown(&results, heading, &figure))?;
    Ok(())
}

/// A size as people write it.
fn show(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
