//! The report for programs.

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::reading::Point;
use crate::report::Report;
use crate::targets::judge;

/// All that was measured, with the command lines, and what was not.
pub(crate) fn document(report: &Report<'_>) -> Value {
    let Machine { processor, cores, kernel, memory_gib, load, hugepages } = report.machine;
    let rows: Vec<Value> = report.results.keys().filter_map(|key| row(report, key)).collect();
    let cells: Vec<Value> = report.outcomes.iter().map(|outcome| {
        json!({"name": outcome.name, "place": outcome.place.name(), "command": outcome.line, "rounds": outcome.rounds, "trouble": outcome.trouble})
    }).collect();
    let targets: Vec<Value> = judge(report.results).iter().map(|verdict| {
        json!({"target": verdict.what, "goal": verdict.goal, "measured": verdict.measured, "verdict": verdict.judgement.replace("**", "")})
    }).collect();
    json!({
        "revision": report.revision,
        "extent": format!("{:?}", report.extent).to_lowercase(),
        "machine": {"processor": processor, "cores": cores, "kernel": kernel, "memory_gib": memory_gib, "load_before": load, "hugepages": hugepages},
        "targets": targets,
        "rows": rows,
        "commands": cells,
    })
}

fn row(report: &Report<'_>, key: &crate::results::Key) -> Option<Value> {
    let summary = report.results.summary(key)?;
    let (axis, at) = match key.point {
        Point::Size(bytes) => ("bytes", json!(bytes)),
        Point::Connections(count) => ("connections", json!(count)),
        Point::Loss(_) => ("loss_percent", json!(key.point.position())),
    };
    let ratio = crate::report::ratio_to_base(report.results, key).map(|ratio| ratio.median);
    let mut row = json!({
        "place": key.place.name(),
        "metric": key.metric.name(),
        "unit": key.metric.unit(),
        "series": key.series,
        "median": summary.median,
        "min": summary.min,
        "max": summary.max,
        "rounds": summary.rounds,
        "ratio_to_base": ratio,
    });
    row[axis] = at;
    Some(row)
}
