//! Lines for stdout, which may be a pipe whose reader has gone.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints one line.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Prints one line on stderr, as this command's, in one call: several ranks may write there at the same time.
pub(crate) fn complain(text: impl Display) {
    let line = format!("roci: {}\n", text.to_string().replace('\n', " "));
    // If stderr is closed, there is no other stream to report that on.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Bytes in the unit that people read.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) if count.is_multiple_of(unit) => format!("{} {name}", count / unit),
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / unit as f64),
        None => format!("{count} B"),
    }
}

/// A time in the unit that people read.
pub(crate) fn nanoseconds(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match UNITS.into_iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / unit as f64),
        None => format!("{count} ns"),
    }
}
