//! The report for programs.

use serde_json::{Value, json};

use crate::blames::Blame;
use crate::machine::HostInfo;
use crate::reading::Point;
use crate::report::BenchReport;
use crate::results::ResultKey;
use crate::schedule::CellOutcome;
use crate::statistics::Summary;
use crate::targets::{TargetResult, judge};

/// All that was measured, with the command lines, and what was not.
pub(crate) fn document(report: &BenchReport<'_>) -> Value {
    json!({
        "revision": report.revision,
        "interface_mtu": report.interface_mtu,
        "extent": report.extent.name(),
        "end": report.end.name(),
        "machine": machine(report.machine),
        "series": report.results.all_series(),
        "targets": judge(report.results).iter().map(target).collect::<Vec<_>>(),
        "rows": report.results.keys().filter_map(|key| row(report, key)).collect::<Vec<_>>(),
        "commands": report.outcomes.iter().map(command).collect::<Vec<_>>(),
    })
}

fn machine(machine: &HostInfo) -> Value {
    let HostInfo { processor, cores, kernel, memory_gib, load, hugepages, versions } = machine;
    json!({
        "processor": processor,
        "cores": cores,
        "kernel": kernel,
        "memory_gib": memory_gib,
        "load_before": load,
        "hugepages": hugepages,
        "versions": versions,
    })
}

fn target(verdict: &TargetResult) -> Value {
    let TargetResult { what, goal, measured, limit, judgement, blame } = verdict;
    let spread = |all: &Option<Summary>| all.map(|all| json!({"median": all.median, "min": all.min, "max": all.max}));
    json!({
        "target": what,
        "goal": goal,
        "measured": spread(measured),
        "bare_frames": spread(limit),
        "verdict": judgement.replace("**", ""),
        "blame": blame.map(Blame::text),
    })
}

fn command(outcome: &CellOutcome) -> Value {
    let CellOutcome { name, place, line, rounds, trouble, .. } = outcome;
    json!({"name": name, "place": place.name(), "command": line, "rounds": rounds, "trouble": trouble})
}

fn row(report: &BenchReport<'_>, key: &ResultKey) -> Option<Value> {
    let summary = report.results.summary(key)?;
    let (axis, at) = match key.point {
        Point::Size(bytes) => ("bytes", json!(bytes)),
        Point::Connections(count) => ("connections", json!(count)),
        Point::Depth(count) => ("depth", json!(count)),
        Point::Loss(_) => ("loss_percent", json!(key.point.position())),
    };
    let ratio = report.results.ratio_to_base(key).map(|ratio| ratio.median);
    let (rounds, values): (Vec<_>, Vec<_>) = report.results.rounds(key).into_iter().unzip();
    let mut row = json!({
        "place": key.place.name(),
        "metric": key.metric.name(),
        "unit": key.metric.unit(),
        "series": key.series,
        "median": summary.median,
        "min": summary.min,
        "max": summary.max,
        "rounds": summary.rounds,
        "values": values,
        "command": report.results.command(key),
        "ratio_to_base": ratio,
    });
    row[axis] = at;
    // Where none failed the rounds need no numbers.
    if rounds.iter().copied().ne(1..=rounds.len()) {
        row["in_rounds"] = json!(rounds);
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::document;
    use crate::report::tests::with_report;

    #[test]
    fn every_row_says_what_it_is_of_and_what_it_is_compared_with() {
        let document = with_report(0.1, document);
        let rows = document["rows"].as_array().expect("rows");
        let tag = rows.iter().find(|row| row["series"] == "tag").expect("it was measured");
        assert_eq!((&tag["metric"], &tag["bytes"], &tag["rounds"]), (&"latency".into(), &8.into(), &2.into()));
        assert_eq!((&tag["median"], &tag["ratio_to_base"]), (&2.5.into(), &1.75.into()));
        let lossy = rows.iter().find(|row| row["loss_percent"] == 1.0).expect("it was measured");
        assert_eq!(lossy["ratio_to_base"], 0.75);
        assert_eq!(document["commands"][1]["trouble"], "not installed:\napt-get");
        assert_eq!((&document["extent"], &document["end"]), (&"quick".into(), &"whole".into()));
    }
}
