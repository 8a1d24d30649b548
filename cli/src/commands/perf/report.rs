//! Rows for people and for programs.

use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use roci_protocol::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{EngineMode, PayloadMemory, PerfPlan, UpToStep};
use crate::failure::{Failure, FailureContext};
use crate::output;

/// One measurement's result.
pub(super) struct Row {
    plan: PerfPlan,
    /// One-way latencies in nanoseconds, where they were measured.
    latency: Option<Histogram<u64>>,
    elapsed_ns: Nanos,
    errors: u64,
    /// Processor time of both sides, from a measurement's preparation to its verdict, in nanoseconds.
    cpu_ns: Option<u64>,
    /// By how much this side's memory grew, in bytes.
    growth: Option<u64>,
    /// The part of the messages that has arrived.
    share: f64,
    /// Datagrams that were lost, where messages are datagrams.
    lost: Option<u64>,
    /// Whose memory the payloads were in, and how many frames of this side's the device took from there.
    memory: Option<(PayloadMemory, u64)>,
}

impl Row {
    /// Latency, from the times of whole round trips.
    pub(super) fn latency(plan: PerfPlan, half_trips: Histogram<u64>, elapsed_ns: Nanos, errors: u64) -> Self {
        Self { latency: Some(half_trips), ..Self::bandwidth(plan, elapsed_ns, errors) }
    }

    /// Bandwidth: all messages in so much time.
    pub(super) fn bandwidth(plan: PerfPlan, elapsed_ns: Nanos, errors: u64) -> Self {
        Self {
            plan,
            latency: None,
            elapsed_ns,
            errors,
            cpu_ns: None,
            growth: None,
            share: 1.0,
            lost: None,
            memory: None,
        }
    }

    pub(super) fn with_cpu(self, cpu_ns: u64) -> Self {
        Self { cpu_ns: Some(cpu_ns), ..self }
    }

    /// More errors, which the peer found.
    pub(super) fn with_errors(self, more: u64) -> Self {
        Self { errors: self.errors.saturating_add(more), ..self }
    }

    /// Of all messages only this part has arrived.
    pub(super) fn with_share(self, share: f64) -> Self {
        Self { share: share.clamp(0.0, 1.0), ..self }
    }

    /// So many datagrams were lost.
    pub(super) fn with_lost(self, lost: u64) -> Self {
        Self { lost: Some(lost), ..self }
    }

    pub(super) fn with_memory(self, memory: PayloadMemory, zero_copy_frames: u64) -> Self {
        let is_shown = self.plan.test.is_of_verbs();
        Self { memory: is_shown.then_some((memory, zero_copy_frames)), ..self }
    }

    pub(super) fn with_growth(self, bytes: u64) -> Self {
        Self { growth: Some(bytes), ..self }
    }

    pub(super) const fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }

    pub(super) const fn errors(&self) -> u64 {
        self.errors
    }

    fn seconds(&self) -> f64 {
        self.elapsed_ns.max(1) as f64 / 1e9
    }

    /// Messages, of both directions where both were measured: a round trip is two, but for a READ or an atomic, which moves one.
    fn messages(&self) -> f64 {
        let is_round_trip = self.latency.is_some() && !self.plan.test.is_answered();
        let each = if is_round_trip || self.plan.is_bidirectional { 2.0 } else { 1.0 };
        self.plan.iters as f64 * each * self.share
    }

    fn gigabytes_per_second(&self) -> f64 {
        self.messages() * self.plan.size as f64 / self.seconds() / 1e9
    }

    fn million_messages_per_second(&self) -> f64 {
        self.messages() / self.seconds() / 1e6
    }

    fn quantiles(&self) -> Option<[f64; 4]> {
        let histogram = self.latency.as_ref()?;
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Some([us(histogram.min()), at(0.5), at(0.99), at(0.999)])
    }
}

/// A histogram of nanoseconds up to a minute.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// The columns and how wide they are, 79 together: a row is printed when it has been measured, before the next one is known.
/// The last one, which has no head, says what is unusual about a row.
const COLUMNS: [(&str, usize); 11] = [
    ("test", 10),
    ("bytes", 7),
    ("iters", 7),
    ("min us", 7),
    ("p50 us", 7),
    ("p99 us", 7),
    ("p99.9", 7),
    ("GB/s", 6),
    ("Mmsg/s", 6),
    ("errors", 6),
    ("", 0),
];

/// Prints rows as they come, if this rank is the one that prints.
pub(super) struct ReportPrinter {
    as_json: bool,
    device: String,
    /// Whether packets carry an ICRC, where that is known.
    icrc: Option<bool>,
    is_ours: bool,
    has_header: bool,
    errors: u64,
    /// Rows that the peer is to print as well.
    for_peer: Option<Vec<PrintedRow>>,
}

/// A row as it is printed: for people, and for programs.
#[derive(Serialize, Deserialize)]
struct PrintedRow {
    cells: [String; COLUMNS.len()],
    json: String,
    errors: u64,
}

impl ReportPrinter {
    pub(super) fn new(as_json: bool, device: String, is_ours: bool) -> Self {
        Self { as_json, device, icrc: None, is_ours, has_header: false, errors: 0, for_peer: None }
    }

    pub(super) fn with_icrc(self, icrc: bool) -> Self {
        Self { icrc: Some(icrc), ..self }
    }

    /// The peer prints the rows as well: [`ReportPrinter::share`] gives them to it.
    pub(super) fn with_sharing(self) -> Self {
        Self { for_peer: Some(Vec::new()), ..self }
    }

    pub(super) fn add(&mut self, row: Option<Row>) -> Result<(), Failure> {
        let Some(row) = row else { return Ok(()) };
        self.errors += row.errors;
        if !self.is_ours {
            return Ok(());
        }
        let row = PrintedRow { cells: cells(&row), json: self.json(&row).to_string(), errors: row.errors };
        self.print(&row)?;
        if let Some(rows) = &mut self.for_peer {
            rows.push(row);
        }
        Ok(())
    }

    /// Gives the peer the rows that it has not seen, or prints those of the peer. `exchange` gives the peer a word for its own.
    pub(super) fn share(&mut self, exchange: impl FnOnce(&str) -> Result<String, Failure>) -> Result<(), Failure> {
        let Some(rows) = &mut self.for_peer else { return Ok(()) };
        let ours = serde_json::to_string(&std::mem::take(rows)).map_err(Failure::new)?;
        let theirs = exchange(&ours)?;
        if self.is_ours {
            return Ok(());
        }
        let theirs: Vec<PrintedRow> = serde_json::from_str(&theirs).context("the peer's rows")?;
        for row in &theirs {
            self.errors += row.errors;
            self.print(row)?;
        }
        Ok(())
    }

    fn print(&mut self, row: &PrintedRow) -> Result<(), Failure> {
        if self.as_json {
            output::line(&row.json)?;
        } else {
            self.begin()?;
            output::line(line(&row.cells))?;
        }
        Ok(())
    }

    /// Says below the rows which counters have moved that explain a bad figure.
    pub(super) fn explain(&self, troubles: &[String]) -> Result<(), Failure> {
        if self.as_json || !self.has_header {
            return Ok(());
        }
        troubles.iter().try_for_each(|trouble| Ok(output::line(format!("  {trouble}"))?))
    }

    /// Says on which device, and heads the columns.
    fn begin(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.has_header, true) {
            let icrc = self.icrc.map_or_else(String::new, |is_on| format!(", ICRC {}", switch(is_on)));
            output::line(format!("device {}{icrc}", self.device))?;
            output::line(line(&COLUMNS.map(|(name, _)| name.to_owned())))?;
        }
        Ok(())
    }

    /// Payloads that were wrong, and frames that were lost.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// Not 0 where a payload was wrong.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn json(&self, row: &Row) -> serde_json::Value {
        let latency =
            row.quantiles().map(|[min, p50, p99, p999]| json!({"min": min, "p50": p50, "p99": p99, "p999": p999}));
        let mut object = json!({
            "test": row.plan.test.name(),
            "stream": row.plan.stream.map(UpToStep::name),
            "engine": row.plan.engine.map(EngineMode::name),
            "device": self.device,
            "bytes": row.plan.size,
            "iters": row.plan.iters,
            "lat_us": latency,
            "bw_gbps": row.gigabytes_per_second() * 8.0,
            "bw_gigabytes_per_s": row.gigabytes_per_second(),
            "mmsgs": row.million_messages_per_second(),
            "errors": row.errors,
        });
        if row.plan.test.is_raw() {
            object["touch"] = row.plan.touch.into();
        } else if let Some(is_on) = self.icrc {
            object["icrc"] = switch(is_on).into();
        }
        if !row.plan.test.is_raw() {
            object["verify"] = row.plan.verify.into();
        }
        if let Some(ns) = row.cpu_ns {
            object["cpu_s"] = (ns as f64 / 1e9).into();
        }
        if let Some((memory, zero_copy_frames)) = row.memory {
            object["memory"] = memory.name().into();
            object["zero_copy_frames"] = zero_copy_frames.into();
        }
        if let Some(count) = row.plan.connections {
            object["connections"] = count.into();
            object["memory_growth_bytes"] = row.growth.into();
        }
        if let Some(depth) = row.plan.depth {
            object["depth"] = depth.into();
        }
        if row.plan.is_bidirectional {
            object["bidirectional"] = true.into();
        }
        if row.plan.is_of_datagrams {
            object["datagrams"] = true.into();
            object["lost"] = row.lost.into();
        }
        object
    }
}

const fn switch(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Cells below their heads: names to the left, numbers to the right, and behind them what is said of the row.
fn line(cells: &[String; COLUMNS.len()]) -> String {
    let columns = cells.iter().zip(COLUMNS).enumerate();
    let padded = columns.map(|(at, (cell, (_, width)))| match at {
        0 => format!("{cell:<width$}"),
        _ if at + 1 == COLUMNS.len() => cell.clone(),
        _ => format!("{cell:>width$}"),
    });
    padded.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let plan = &row.plan;
    let quantiles = row.quantiles().map_or_else(|| [const { String::new() }; 4], |values| values.map(microseconds));
    let mark = if plan.touch { " (touched)" } else { "" };
    let step = plan.stream.map_or_else(String::new, |step| format!(" {}", step.name()));
    let engine = plan.engine.filter(|&engine| engine == EngineMode::Dedicated);
    let engine = engine.map_or_else(String::new, |engine| format!(" ({})", engine.name()));
    let count = plan.connections.map_or_else(String::new, |count| format!(" ({count} queue pairs)"));
    let depth = plan.depth.map_or_else(String::new, |depth| format!(" ({depth} under way)"));
    let ways = if plan.is_bidirectional { " (both ways)" } else { "" };
    let lost = row.lost.filter(|&lost| lost > 0).map_or_else(String::new, |lost| format!(", {lost} lost"));
    let datagrams = if plan.is_of_datagrams { format!(" (ud{lost})") } else { String::new() };
    let [min, p50, p99, p999] = quantiles;
    [
        plan.test.name(),
        plan.size.to_string(),
        plan.iters.to_string(),
        min,
        p50,
        p99,
        p999,
        format!("{:.3}", row.gigabytes_per_second()),
        format!("{:.3}", row.million_messages_per_second()),
        row.errors.to_string(),
        [mark, &step, &engine, &datagrams, ways, &count, &depth].concat().trim_start().to_owned(),
    ]
}

/// Microseconds in at most seven columns, up to ten seconds.
fn microseconds(us: f64) -> String {
    if us < 1000.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}
