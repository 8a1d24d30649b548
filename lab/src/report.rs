//! Results: a line each while they come, a table for the documentation.

use std::fmt::{self, Write as _};

use crate::scenarios::Scenario;

/// How a scenario ended.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
}

pub(crate) struct Row {
    pub(crate) scenario: &'static Scenario,
    pub(crate) outcome: Outcome,
    pub(crate) seconds: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.scenario.name;
        match &self.outcome {
            Outcome::Passed => write!(f, "ok      {name} ({:.1} s)", self.seconds),
            Outcome::Failed(why) => write!(f, "FAILED  {name}: {why}"),
        }
    }
}

/// The table of all results, without times: it changes only when a result does.
pub(crate) fn markdown(kernel: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "# Interoperation with Linux's `rdma_rxe`\n\nLinux {kernel} in a QEMU guest; `scripts/lab interop` writes this table.\n\n\
         | scenario | what | result |\n|---|---|---|\n"
    );
    for Row { scenario, outcome, .. } in rows {
        let result = if matches!(outcome, Outcome::Passed) { "passed" } else { "**failed**" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {} | {result} |", scenario.name, scenario.what);
    }
    text
}
