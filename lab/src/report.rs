//! Results: a line each while they come, a table for the documentation.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::lint;
use crate::scenarios::Scenario;

/// The outcome of a scenario.
pub(crate) enum ScenarioOutcome {
    Passed,
    Failed(String),
}

/// The row of a scenario in the report.
pub(crate) struct ScenarioRow {
    pub(crate) scenario: &'static Scenario,
    pub(crate) outcome: ScenarioOutcome,
    pub(crate) seconds: f64,
}

impl fmt::Display for ScenarioRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.scenario.name;
        match &self.outcome {
            ScenarioOutcome::Passed => write!(f, "ok      {name} ({:.1} s)", self.seconds),
            ScenarioOutcome::Failed(why) => write!(f, "FAILED  {name}: {why}"),
        }
    }
}

const INTRODUCTION: &str = "\
# Interoperation with Linux's `rdma_rxe`

Each scenario connects this stack to `rdma_rxe`, Linux's software RoCEv2, in a QEMU guest. In `..._ours` this stack requests, in
`..._theirs` the guest does. *We* and *ours* are this stack. There is a column for each kernel: `scripts/lab interop [--kernel SERIES]
--table FILE` writes one and leaves the others as they are.
";

const NOTES: &str = "
`rdma_rxe` of 6.12 refuses the correct duplicate of a READ request with a NAK for remote access where the last READ or WRITE
that it executed was of no bytes: one lost response then ends the connection. That of 6.1 does not. So `mixed_under_faults`
lets the guest, but not us, READ and WRITE no bytes.

`rdma_rxe` of 6.12 takes an acknowledgement of an older PSN between the responses to a READ for their end: the READ is
reported as a success without the rest of the data, and the response that follows may put its queue pair into the error state.
A wire that lets an acknowledgement overtake a response is enough. So is one that loses a response, where the acknowledgement
answers a request that the guest sent twice. So `mixed_under_faults` keeps the order of the answers to that kernel, and knows
the second case by its packets.

`rdma_rxe` of 6.12 has once, in some 2800 rounds of `mixed_under_faults`, lost count as requester. While it sent a WRITE again,
it went on with a WRITE of no bytes that was never posted, under the PSN of the next request, and gave the later ones a PSN
too many; its queue pair fell silent. The scenario knows such a round by the PSN.

Rounds that fail after one of the last two faults are counted apart. The scenario fails if more than one in 500 do.

After each scenario a lint checks every frame that either end has sent against IBTA's rules. This stack must keep all of them. `rdma_rxe`
is known to break these:

";

/// The results of one kernel by the names of scenarios.
type Column = BTreeMap<String, String>;

/// The table without times: it changes only when a result does. `old` is the table of earlier runs, or empty; columns of
/// other kernels stay.
pub(crate) fn markdown(old: &str, kernel: &str, rows: &[ScenarioRow], scenarios: &[Scenario]) -> String {
    let mut columns = read_columns(old);
    columns.retain(|(name, _)| series(name) != series(kernel));
    columns.push((kernel.to_owned(), rows.iter().map(result).collect()));
    columns.sort_by_key(|(name, _)| series(name));
    let names: Vec<_> = columns.iter().map(|(name, _)| format!(" Linux {name} |")).collect();
    let mut text =
        format!("{INTRODUCTION}\n| scenario | what |{}\n|---|---|{}\n", names.concat(), "---|".repeat(names.len()));
    for Scenario { name, what, .. } in scenarios {
        let cells: Vec<_> =
            columns.iter().map(|(_, column)| column.get(*name).map_or("not run", |cell| cell)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {what} | {} |", cells.join(" | "));
    }
    text.push_str(NOTES);
    for (rule, what) in lint::EXCEPTIONS {
        let _ = writeln!(text, "- {rule}: {what}.");
    }
    text
}

fn result(row: &ScenarioRow) -> (String, String) {
    let cell = if matches!(row.outcome, ScenarioOutcome::Passed) { "passed" } else { "**failed**" };
    (row.scenario.name.to_owned(), cell.to_owned())
}

/// What `markdown` wrote, kernel by kernel.
fn read_columns(table: &str) -> Vec<(String, Column)> {
    let mut lines = table.lines().filter_map(cells);
    let header = lines.next().unwrap_or_default();
    let kernels = header.iter().skip(2).filter_map(|cell| cell.strip_prefix("Linux "));
    let mut columns: Vec<_> = kernels.map(|kernel| (kernel.to_owned(), Column::new())).collect();
    for row in lines.skip(1) {
        for ((_, column), cell) in columns.iter_mut().zip(row.iter().skip(2)) {
            column.insert(row[0].to_owned(), (*cell).to_owned());
        }
    }
    columns
}

/// The cells of a table's line.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The series of a kernel: 6.12 of `6.12.95+deb12-amd64`. Another version of a series takes its column.
fn series(kernel: &str) -> Vec<u32> {
    kernel.split(['.', '-', '+']).map_while(|part| part.parse().ok()).take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIOS: &[Scenario] = &[
        Scenario { name: "a", what: "first", run: |_| Ok(()) },
        Scenario { name: "b", what: "second", run: |_| Ok(()) },
    ];

    fn row(scenario: &'static Scenario, is_passed: bool) -> ScenarioRow {
        let outcome = if is_passed { ScenarioOutcome::Passed } else { ScenarioOutcome::Failed("why".into()) };
        ScenarioRow { scenario, outcome, seconds: 0.0 }
    }

    fn table_lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| line.starts_with('|')).collect()
    }

    #[test]
    fn a_run_changes_the_column_of_its_kernel_only() {
        let newer = markdown("", "6.12.9-amd64", &[row(&SCENARIOS[0], true), row(&SCENARIOS[1], false)], SCENARIOS);
        let both = markdown(&newer, "6.1.0-1-amd64", &[row(&SCENARIOS[0], false), row(&SCENARIOS[1], true)], SCENARIOS);
        let due = [
            "| scenario | what | Linux 6.1.0-1-amd64 | Linux 6.12.9-amd64 |",
            "|---|---|---|---|",
            "| a | first | **failed** | passed |",
            "| b | second | passed | **failed** |",
        ];
        assert_eq!(table_lines(&both), due);
    }

    #[test]
    fn a_newer_version_of_a_series_takes_its_column_and_says_what_it_has_not_run() {
        let old = markdown("", "6.1.0-1-amd64", &[row(&SCENARIOS[0], true), row(&SCENARIOS[1], true)], SCENARIOS);
        let new = markdown(&old, "6.1.0-2-amd64", &[row(&SCENARIOS[1], true)], SCENARIOS);
        let due = [
            "| scenario | what | Linux 6.1.0-2-amd64 |",
            "|---|---|---|",
            "| a | first | not run |",
            "| b | second | passed |",
        ];
        assert_eq!(table_lines(&new), due);
    }
}
