//! The matrix, for people and for the documentation.

use std::fmt;
use std::path::Path;

use super::checks::Figures;
use super::models::Model;
use crate::LabError;

/// The lines of a document between which the table is.
const BEGIN: &str = "<!-- nics: begin -->";
const END: &str = "<!-- nics: end -->";

/// Whether a NIC has passed.
pub(crate) enum NicVerdict {
    Passed,
    Skipped(String),
    Failed(String),
}

/// The row of a NIC in the table.
pub(crate) struct NicRow {
    pub(crate) model: Model,
    pub(crate) verdict: NicVerdict,
    pub(crate) figures: Figures,
    pub(crate) seconds: f64,
}

impl fmt::Display for NicRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.model.name;
        match &self.verdict {
            NicVerdict::Passed => write!(f, "ok      {name} ({:.0} s)", self.seconds),
            NicVerdict::Skipped(why) => write!(f, "skipped {name}: {why}"),
            NicVerdict::Failed(why) => write!(f, "FAILED  {name}: {why}"),
        }
    }
}

const HEADER: [&str; 9] = [
    "NIC",
    "DPDK driver",
    "raw_lat us",
    "send_lat us",
    "tag_lat us",
    "tag_bw MB/s",
    "verified messages",
    "verified MB",
    "result",
];

fn cells(row: &NicRow) -> [String; 9] {
    let NicRow { model, verdict, figures, .. } = row;
    let is_measured = !matches!(verdict, NicVerdict::Skipped(_));
    let latency = |test: &str| {
        let found = figures.latency_us.iter().find(|(name, _)| name == test);
        found.map_or_else(|| "-".into(), |(_, us)| format!("{us:.0}"))
    };
    let figure = |text: String| if is_measured { text } else { "-".into() };
    let result = match verdict {
        NicVerdict::Passed => "passed",
        NicVerdict::Skipped(_) => "skipped",
        NicVerdict::Failed(_) => "**failed**",
    };
    [
        model.name.into(),
        model.pmd.into(),
        latency("raw_lat"),
        latency("send_lat"),
        latency("tag_lat"),
        figure(format!("{:.2}", figures.rate_mb_s)),
        figure(figures.messages.to_string()),
        figure(format!("{:.1}", figures.bytes as f64 / 1e6)),
        result.into(),
    ]
}

/// The matrix as text.
pub(crate) fn text(rows: &[NicRow]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(HEADER);
    table.add_rows(rows.iter().map(cells));
    table.to_string()
}

/// Writes the matrix between the marks of a document that exists.
pub(crate) fn write(path: &Path, rows: &[NicRow]) -> Result<(), LabError> {
    let document = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let replaced = replace(&document, &markdown(rows));
    let replaced = replaced.ok_or_else(|| format!("{} lacks the lines {BEGIN} and {END}", path.display()))?;
    Ok(std::fs::write(path, replaced)?)
}

fn markdown(rows: &[NicRow]) -> String {
    let head = [HEADER.map(str::to_owned), HEADER.map(|_| "---".to_owned())];
    let lines = head.into_iter().chain(rows.iter().map(cells));
    lines.map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
}

fn replace(document: &str, table: &str) -> Option<String> {
    let (head, rest) = document.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{table}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_former_one_and_nothing_else() {
        let document = format!("# NICs\n{BEGIN}\n| old |\n{END}\nMore.\n");
        let written = replace(&document, "| new |\n").expect("it has the marks");
        assert_eq!(written, format!("# NICs\n{BEGIN}\n| new |\n{END}\nMore.\n"));
        assert_eq!(replace(&written, "| new |\n"), Some(written.clone()));
        assert_eq!(replace("nothing", "| new |\n"), None);
    }
}
