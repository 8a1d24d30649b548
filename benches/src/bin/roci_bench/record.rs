//! Reads a report for programs back, so that the one for people can be written again without measuring.

use std::path::Path;

use serde_json::Value;

use crate::failure::{BadRecord, BenchFailure};
use crate::machine::HostInfo;
use crate::plan::Extent;
use crate::reading::{Metric, Point, Reading, Topology};
use crate::report::RunEnd;
use crate::results::Results;
use crate::schedule::CellOutcome;
use crate::stage;

/// A run that was measured before.
pub(crate) struct RunRecord {
    pub(crate) machine: HostInfo,
    pub(crate) extent: Extent,
    pub(crate) revision: String,
    pub(crate) interface_mtu: u16,
    pub(crate) end: RunEnd,
    pub(crate) results: Results,
    pub(crate) outcomes: Vec<CellOutcome>,
}

impl RunRecord {
    pub(crate) fn read(path: &Path) -> Result<Self, BenchFailure> {
        let parsed = std::fs::read_to_string(path).map_err(BadRecord::from).and_then(|text| Self::parse(&text));
        parsed.map_err(|error| BenchFailure::Record { path: path.to_owned(), error })
    }

    fn parse(text: &str) -> Result<Self, BadRecord> {
        let document: Value = serde_json::from_str(text)?;
        let outcomes = list(&document, "commands")?.iter().map(outcome).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            machine: machine(&document["machine"])?,
            extent: named(&document, "extent", Extent::of_name)?,
            revision: text_of(&document, "revision")?.to_owned(),
            interface_mtu: number(&document, "interface_mtu")? as u16,
            end: named(&document, "end", RunEnd::of_name)?,
            results: results(&document, &outcomes)?,
            outcomes,
        })
    }
}

fn machine(machine: &Value) -> Result<HostInfo, BadRecord> {
    let versions = list(machine, "versions")?.iter().filter_map(Value::as_str);
    Ok(HostInfo {
        processor: text_of(machine, "processor")?.to_owned(),
        cores: number(machine, "cores")? as usize,
        kernel: text_of(machine, "kernel")?.to_owned(),
        memory_gib: number(machine, "memory_gib")?,
        load: number(machine, "load_before")?,
        hugepages: number(machine, "hugepages")? as u64,
        versions: versions.map(str::to_owned).collect(),
    })
}

fn outcome(command: &Value) -> Result<CellOutcome, BadRecord> {
    let place = named(command, "place", Topology::of_name)?;
    let line = stage::without_folders(text_of(command, "command")?);
    let rounds = number(command, "rounds")? as usize;
    Ok(CellOutcome::new(text_of(command, "name")?, place, &line, rounds, command["trouble"].as_str()))
}

fn results(document: &Value, outcomes: &[CellOutcome]) -> Result<Results, BadRecord> {
    let mut rows: Vec<_> = list(document, "rows")?.iter().collect();
    // Records of before have no list of series: their order is that of the commands and of the tests in these.
    rows.sort_by_cached_key(|row| rank(row, outcomes));
    let mut results = Results::default();
    for series in document["series"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        results.expect_series(series);
    }
    for row in rows {
        add_row(&mut results, row)?;
    }
    Ok(results)
}

fn add_row(results: &mut Results, row: &Value) -> Result<(), BadRecord> {
    let place = named(row, "place", Topology::of_name)?;
    let metric = named(row, "metric", Metric::of_name)?;
    let (series, point) = (text_of(row, "series")?, point(row)?);
    for (index, value) in list(row, "values")?.iter().enumerate() {
        let value = value.as_f64().ok_or_else(|| lacks(row, "values"))?;
        // Rounds without numbers are all from the first on.
        let round = row["in_rounds"][index].as_u64().map_or(index + 1, |round| round as usize);
        let reading = Reading::new(series, metric, point, value);
        match row["command"].as_str() {
            Some(command) => results.add_of(command, round, place, reading),
            None => results.add(round, place, reading),
        }
    }
    Ok(())
}

/// Where a row's series comes in a report: by its command, the test of that, and the bytes that its name ends with.
fn rank(row: &Value, outcomes: &[CellOutcome]) -> (usize, usize, u64) {
    let series = row["series"].as_str().unwrap_or_default();
    let command = outcomes.iter().position(|outcome| row["command"] == *outcome.name).unwrap_or(usize::MAX);
    let verb = series.split([' ', ',']).next().unwrap_or_default();
    let test = outcomes.get(command).and_then(|outcome| outcome.line.find(&format!("{verb}_")));
    (command, test.unwrap_or(usize::MAX), series.split_once(" of ").map_or(0, |(_, size)| bytes(size)))
}

/// The bytes of a text such as '64 KiB'.
fn bytes(size: &str) -> u64 {
    let (count, unit) = size.split_once(' ').unwrap_or((size, ""));
    let unit = if unit == "KiB" { 1 << 10 } else { 1 };
    count.parse().unwrap_or(0) * unit
}

fn point(row: &Value) -> Result<Point, BadRecord> {
    let count = |field: &str| row[field].as_u64();
    let loss = || row["loss_percent"].as_f64().map(|per_cent| Point::Loss((per_cent * 100.0).round() as u32));
    let point = count("bytes").map(Point::Size).or_else(|| count("connections").map(Point::Connections));
    point.or_else(|| count("depth").map(Point::Depth)).or_else(loss).ok_or_else(|| lacks(row, "bytes"))
}

fn named<T>(value: &Value, field: &'static str, of_name: impl Fn(&str) -> Option<T>) -> Result<T, BadRecord> {
    of_name(text_of(value, field)?).ok_or_else(|| lacks(value, field))
}

fn text_of<'a>(value: &'a Value, field: &'static str) -> Result<&'a str, BadRecord> {
    value[field].as_str().ok_or_else(|| lacks(value, field))
}

fn number(value: &Value, field: &'static str) -> Result<f64, BadRecord> {
    value[field].as_f64().ok_or_else(|| lacks(value, field))
}

fn list<'a>(value: &'a Value, field: &'static str) -> Result<&'a [Value], BadRecord> {
    value[field].as_array().map(Vec::as_slice).ok_or_else(|| lacks(value, field))
}

fn lacks(value: &Value, field: &'static str) -> BadRecord {
    const SHOWN: usize = 200;
    BadRecord::Lacks { field, value: value.to_string().chars().take(SHOWN).collect() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::json::document;
    use crate::report::BenchReport;
    use crate::report::tests::with_report;

    /// The run of the committed report.
    pub(crate) fn committed() -> RunRecord {
        RunRecord::parse(include_str!("../../../../docs/benchmarks.json")).expect("the committed report")
    }

    fn markdown(run: &RunRecord) -> String {
        BenchReport::of_record(run).markdown()
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        let written = with_report(0.1, document);
        let run = RunRecord::parse(&written.to_string()).expect("a report");
        assert_eq!(document(&BenchReport::of_record(&run)), written);
    }

    #[test]
    fn series_come_in_the_order_of_the_tests_also_where_no_list_names_them() {
        let mut record = with_report(0.1, document);
        assert_eq!(record["series"], serde_json::json!(["raw", "tag", "write of 64 KiB"]));
        let listed = markdown(&RunRecord::parse(&record.to_string()).expect("a report"));
        record["series"].take();
        assert_eq!(markdown(&RunRecord::parse(&record.to_string()).expect("a report")), listed);
        let [short, long] =
            ["send of 64 B", "send of 4 KiB"].map(|series| rank(&serde_json::json!({"series": series}), &[]));
        assert!(short < long);
    }

    #[test]
    fn rounds_that_failed_do_not_shift_those_behind_them() {
        let row = serde_json::json!({
            "place": "host", "metric": "latency", "series": "raw", "bytes": 8, "values": [1.0, 3.0], "in_rounds": [1, 3],
        });
        let mut results = Results::default();
        add_row(&mut results, &row).expect("a row");
        let rounds: Vec<_> = results.keys().flat_map(|key| results.rounds(key)).collect();
        assert_eq!(rounds, [(1, 1.0), (3, 3.0)]);
        let report = |report: &BenchReport<'_>| document(&BenchReport { results: &results, ..*report });
        assert_eq!(with_report(0.1, report)["rows"][0]["in_rounds"], row["in_rounds"]);
    }

    #[test]
    fn a_file_that_is_no_report_is_refused_with_what_it_lacks() {
        let trouble = |text| RunRecord::parse(text).err().expect("it is none").to_string();
        assert!(trouble("{").starts_with("it is no JSON"));
        assert_eq!(trouble("{}"), "it has no commands, or an odd one: {}");
        let missing = RunRecord::read(Path::new("/no/such/report")).err().expect("it is not there").to_string();
        assert!(missing.contains("cannot read a report from /no/such/report: "), "{missing}");
    }

    #[test]
    fn no_line_of_the_committed_report_is_too_long_to_read() {
        let text = markdown(&committed());
        let most = |line: &str| if line.starts_with('-') { 1000 } else { 500 };
        let long: Vec<_> = text.lines().filter(|line| !line.starts_with('|') && line.len() >= most(line)).collect();
        assert!(long.is_empty(), "{long:?}");
    }
}
