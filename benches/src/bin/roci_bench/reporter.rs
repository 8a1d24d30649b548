//! Writes the report: after every round what there is, at the end all of it.

use std::io::Write;
use std::path::Path;

use crate::failure::BenchFailure;
use crate::figures;
use crate::json;
use crate::machine::HostInfo;
use crate::output::Output;
use crate::plan::Extent;
use crate::report::{BenchReport, RunEnd};
use crate::results::Results;
use crate::runner;
use crate::schedule::{Audience, CellOutcome};

/// What is known before anything is measured.
pub(crate) struct Reporter<'a> {
    pub(crate) machine: HostInfo,
    pub(crate) extent: Extent,
    pub(crate) revision: &'a str,
    pub(crate) interface_mtu: u16,
    /// Where a report goes whose run has come to its end ...
    pub(crate) whole: Output,
    /// ... and where one that has not, which should not take the place of one that had.
    pub(crate) unfinished: Output,
}

impl Audience for Reporter<'_> {
    fn hear(&mut self, text: &str) {
        // A terminal that is gone is no reason to lose what was measured.
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn is_leaving(&self) -> bool {
        runner::end_signal().is_some()
    }

    fn round_ended(&mut self, results: &Results, outcomes: &[CellOutcome]) {
        if is_empty(results) {
            return;
        }
        if let Err(trouble) = self.write(&self.unfinished, RunEnd::UnderWay, results, outcomes) {
            self.hear(&format!("roci_bench: {trouble}; measuring goes on"));
        }
    }
}

impl Reporter<'_> {
    /// The last report, of a run that may have been interrupted.
    pub(crate) fn conclude(&mut self, results: &Results, outcomes: &[CellOutcome]) -> Result<(), BenchFailure> {
        if !self.is_leaving() {
            return self.write(&self.whole, RunEnd::Whole, results, outcomes);
        }
        if is_empty(results) {
            return Err(BenchFailure::Interrupted);
        }
        self.write(&self.unfinished, RunEnd::Interrupted, results, outcomes)?;
        let folder = self.unfinished.folder().display().to_string();
        self.hear(&format!("roci_bench: interrupted: {folder}/benchmarks.md says what was measured until then"));
        Ok(())
    }

    fn write(
        &self,
        output: &Output,
        end: RunEnd,
        results: &Results,
        outcomes: &[CellOutcome],
    ) -> Result<(), BenchFailure> {
        let Self { machine, extent, revision, interface_mtu, .. } = self;
        let (extent, interface_mtu) = (*extent, *interface_mtu);
        let report = BenchReport { machine, extent, revision, interface_mtu, end, results, outcomes, figures: &[] };
        write_report(output, report)
    }
}

/// Writes the files of a report: the figures that there is something for, and what shows them.
pub(crate) fn write_report(output: &Output, report: BenchReport<'_>) -> Result<(), BenchFailure> {
    output.replace(|folder| {
        let figures = figures::draw_all(folder, report.results).map_err(BenchFailure::Figures)?;
        let report = BenchReport { figures: &figures, ..report };
        write(folder, "benchmarks.md", &report.markdown())?;
        write(folder, "benchmarks.json", &format!("{:#}\n", json::document(&report)))
    })
}

/// Of nothing there is nothing to say that would be worth the report of before.
fn is_empty(results: &Results) -> bool {
    results.keys().next().is_none()
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), BenchFailure> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|error| BenchFailure::File { path, error })
}
