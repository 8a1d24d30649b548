//! The report for people.

use std::fmt::Write;

use crate::blames::Blame;
use crate::figures::{self, Figure};
use crate::machine::{HostInfo, IDLE_LOAD};
use crate::overhead;
use crate::plan::Extent;
use crate::reading::{Metric, Point, Topology};
use crate::record::RunRecord;
use crate::remarks;
use crate::results::{ResultKey, Results};
use crate::schedule::CellOutcome;
use crate::statistics::Summary;
use crate::targets::{TargetResult, judge};
use crate::worth;

/// How far the run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunEnd {
    /// To its end.
    Whole,
    /// It goes on, unless it was killed since.
    UnderWay,
    /// A signal has ended it.
    Interrupted,
}

impl RunEnd {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::UnderWay => "under way",
            Self::Interrupted => "interrupted",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::Whole, Self::UnderWay, Self::Interrupted].into_iter().find(|end| end.name() == name)
    }

    const fn warning(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::UnderWay => "\n**The run had not ended** when this was written: more rounds were to come.\n",
            Self::Interrupted => {
                "\n**The run was interrupted**: the figures are those of the commands that had ended.\n"
            }
        }
    }
}

/// All that a report shows.
pub(crate) struct BenchReport<'a> {
    pub(crate) machine: &'a HostInfo,
    pub(crate) extent: Extent,
    pub(crate) revision: &'a str,
    /// The MTU of the interfaces between two namespaces.
    pub(crate) interface_mtu: u16,
    pub(crate) end: RunEnd,
    pub(crate) results: &'a Results,
    pub(crate) outcomes: &'a [CellOutcome],
    pub(crate) figures: &'a [Figure],
}

impl<'a> BenchReport<'a> {
    /// A report of a run that was measured before.
    pub(crate) fn of_record(run: &'a RunRecord) -> Self {
        let RunRecord { machine, extent, revision, interface_mtu, end, results, outcomes } = run;
        let (extent, interface_mtu, end) = (*extent, *interface_mtu, *end);
        Self { machine, extent, revision, interface_mtu, end, results, outcomes, figures: &[] }
    }
}

impl BenchReport<'_> {
    pub(crate) fn markdown(&self) -> String {
        let mut text = worth::markdown(self.results);
        text += &self.targets();
        text += remarks::LEGEND;
        text += &self.one_host();
        text += &self.place("Two namespaces", Topology::Veth, Some(figures::NAMESPACES));
        text += &overhead::markdown(self.results);
        text += &self.place("Jumbo frames", Topology::Jumbo, None);
        text += &self.place("One packet in 1,000 lost", Topology::Loss01, None);
        text += &self.place("One packet in 100 lost", Topology::Loss1, None);
        text += &self.losses();
        text += &self.connections();
        text += &self.place("Two guests", Topology::Guests, Some(figures::GUESTS));
        text += &self.method();
        text += &self.not_run();
        text += &self.command_lines();
        format!("{}{}{text}", self.heading(), contents(&text))
    }

    fn heading(&self) -> String {
        let option = if self.extent == Extent::Quick { " --quick" } else { "" };
        let rounds = |is_of: fn(Topology) -> bool| {
            let its = self.outcomes.iter().filter(|outcome| is_of(outcome.place));
            its.map(|outcome| outcome.rounds).max().unwrap_or(0)
        };
        let (all, guests) = (rounds(|place| place != Topology::Guests), rounds(|place| place == Topology::Guests));
        let HostInfo { processor, cores, load, .. } = self.machine;
        let warning = if self.machine.is_idle() {
            String::new()
        } else {
            format!(
                "\n**The machine was not idle**: {load:.2} processors were busy before the first measurement, where \
                 {IDLE_LOAD} is still idle. Mind the ratios, and not even those where the spread is wide.\n"
            )
        };
        format!(
            "# Benchmarks\n\nThis stack, which is RoCEv2 in user space without RDMA hardware, beside others on one \
             machine: {cores} processors ({processor}), {all} rounds ({guests} between guests). Machines differ, so \
             mind the ratios. `scripts/bench{option}` wrote this at {}.\n{}{warning}\n",
            self.revision,
            self.end.warning()
        )
    }

    fn targets(&self) -> String {
        let mut text =
            "## Targets\n\nWhat this stack sets out to reach. Per cent are of the target. Where it is compared with \
            others, the last column has the ratio of bare frames on the same port, which are neither checked nor sent \
            again: about the most that a protocol can reach there. A target beyond it is out of reach on that port.\n\n| | target | measured | | bare \
             frames |\n|---|---|---|---|---|\n"
                .to_owned();
        let verdicts = judge(self.results);
        for verdict in &verdicts {
            let [measured, limit] =
                [verdict.measured, verdict.limit].map(|all| all.map_or_else(String::new, |all| spread(&all)));
            let TargetResult { what, goal, judgement, .. } = verdict;
            let _ = writeln!(text, "| {what} | {goal} | {measured} | {judgement} | {limit} |");
        }
        let mut blames: Vec<_> = verdicts.iter().filter_map(|verdict| verdict.blame).collect();
        blames.dedup();
        if !blames.is_empty() {
            text += "\n### Why targets are missed\n\nThese are findings of profiles, which were taken on a machine of \
            2 processors (Sapphire Rapids) over several runs.\n";
        }
        let blames: String = blames.into_iter().map(Blame::markdown).collect();
        format!("{text}\n{blames}")
    }

    /// Both devices of one host, and what only memif shows.
    fn one_host(&self) -> String {
        let memif = self.sized_tables(Topology::Host);
        let vhost = self.sized_tables(Topology::Vhost);
        let windows = self.windows();
        if [&memif, &vhost, &windows].iter().all(|part| part.is_empty()) {
            return String::new();
        }
        let mut text = format!("## One host\n\n{}", self.introduction(Topology::Host));
        text += &self.figure(figures::LATENCY);
        text += &self.figure(figures::BANDWIDTH);
        text += &memif;
        if !vhost.is_empty() {
            let _ = write!(text, "### vhost\n\n{}", self.introduction(Topology::Vhost));
            text += &self.figure(figures::VHOST);
            text += &vhost;
        }
        text + &windows
    }

    fn place(&self, title: &str, place: Topology, figure: Option<Figure>) -> String {
        let tables = self.sized_tables(place);
        if tables.is_empty() {
            return String::new();
        }
        let figure = figure.map_or_else(String::new, |figure| self.figure(figure));
        format!("## {title}\n\n{}{figure}{tables}", self.introduction(place))
    }

    fn introduction(&self, place: Topology) -> String {
        remarks::introduction(place, self.interface_mtu)
    }

    /// A table of each metric that was measured by size.
    fn sized_tables(&self, place: Topology) -> String {
        let is_sized = |point| matches!(point, Point::Size(_));
        let is_measured = |metric: &Metric| !self.results.series(place, *metric, is_sized).is_empty();
        let metrics = Metric::ALL.into_iter().filter(is_measured);
        metrics.map(|metric| self.titled_table(remarks::way(place), place, metric, is_sized)).collect()
    }

    fn windows(&self) -> String {
        let is_depth = |point| matches!(point, Point::Depth(_));
        if self.results.points(Topology::Host, Metric::Bandwidth, is_depth).is_empty() {
            return String::new();
        }
        let table = self.table(Topology::Host, Metric::Bandwidth, is_depth);
        format!("### Messages under way: bandwidth, GB/s\n\n{}{table}", remarks::WINDOWS)
    }

    fn connections(&self) -> String {
        let is_count = |point| matches!(point, Point::Connections(_));
        if self.results.points(Topology::Host, Metric::Rate, is_count).is_empty() {
            return String::new();
        }
        let table = |metric| self.titled_table("Many connections", Topology::Host, metric, is_count);
        let tables = [Metric::Rate, Metric::Memory].map(table).concat();
        format!("## Connections\n\n{}{}{tables}", remarks::CONNECTIONS, self.figure(figures::CONNECTIONS))
    }

    fn losses(&self) -> String {
        let is_loss = |point| matches!(point, Point::Loss(_));
        if self.results.points(Topology::Host, Metric::Bandwidth, is_loss).is_empty() {
            return String::new();
        }
        let table = self.titled_table("Frames lost", Topology::Host, Metric::Bandwidth, is_loss);
        format!("## Loss\n\n{}{}{table}", remarks::LOSS, self.figure(figures::LOSS))
    }

    fn figure(&self, figure: Figure) -> String {
        let is_drawn = self.figures.iter().any(|drawn| drawn.file == figure.file);
        if is_drawn { format!("![{}]({})\n\n", figure.title, figure.file) } else { String::new() }
    }

    fn titled_table(&self, title: &str, place: Topology, metric: Metric, of: impl Fn(Point) -> bool + Copy) -> String {
        format!("### {title}: {}, {}\n\n{}", metric.name(), metric.unit(), self.table(place, metric, of))
    }

    fn table(&self, place: Topology, metric: Metric, of: impl Fn(Point) -> bool + Copy) -> String {
        let points = self.results.points(place, metric, of);
        let heading: String = points.iter().map(|point| format!(" {point} |")).collect();
        let mut text = format!("| |{heading}\n|---|{}\n", "---|".repeat(points.len()));
        for series in self.results.series(place, metric, of) {
            let cells: String =
                points.iter().map(|&point| self.cell(&ResultKey::new(place, metric, series, point))).collect();
            let _ = writeln!(text, "| {series} |{cells}");
        }
        text + "\n"
    }

    fn cell(&self, key: &ResultKey) -> String {
        let Some(summary) = self.results.summary(key) else { return " |".into() };
        let ratio =
            self.results.ratio_to_base(key).map_or_else(String::new, |ratio| format!(" x{}", show(ratio.median)));
        format!(" {}{ratio} |", spread(&summary))
    }

    fn method(&self) -> String {
        let HostInfo { processor, cores, kernel, memory_gib, load, hugepages, versions } = self.machine;
        format!(
            "## How it was measured\n\n{}- **Machine.** {cores} processors ({processor}), {memory_gib:.0} GiB, Linux \
             {kernel}, {hugepages} hugepages. {load:.2} processors were busy before.\n- **Other programs.** {}.\n\n",
            remarks::METHOD,
            versions.join(", ")
        )
    }

    fn not_run(&self) -> String {
        let mut text = "## What was not run\n\n".to_owned();
        let silent = self.outcomes.iter().filter_map(|outcome| Some((outcome, outcome.trouble.as_ref()?)));
        for (CellOutcome { name, rounds, .. }, trouble) in silent {
            let rounds = if *rounds > 0 { "failed in a round" } else { "not run" };
            let _ = writeln!(text, "- `{name}`: {rounds}: {}", one_line(trouble));
        }
        text + &remarks::NOT_THERE.map(|line| format!("- {line}\n")).concat() + "\n"
    }

    fn command_lines(&self) -> String {
        let mut text = "## Command lines\n\n`A & B` starts A, waits until it listens on PORT, and then starts B. \
                        `pingpong` is `benches/alternatives/pingpong.c`, `roci_bench` a binary of `benches`, and \
                        `netns-agent` lies beside the former. The two namespaces are joined by a pair of interfaces, \
                        both named veth (`scripts/bench`, make_namespaces). In parentheses: the rows that a command \
                        gives.\n\n"
            .to_owned();
        for CellOutcome { name, line, rounds, .. } in self.outcomes.iter().filter(|outcome| outcome.rounds > 0) {
            let series = self.results.series_of(name).join("; ");
            let _ = writeln!(text, "- `{name}` ({series}), {rounds} rounds: `{line}`");
        }
        text
    }
}

/// Links to the chapters of a text.
fn contents(text: &str) -> String {
    let link = |title: &str| format!("[{title}](#{})", title.to_lowercase().replace(' ', "-").replace(['?', ','], ""));
    let links: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).map(link).collect();
    format!("Chapters: {}.\n\n", links.join(", "))
}

/// The middle, and the least and the most where there are several.
pub(crate) fn spread(all: &Summary) -> String {
    let ends = if all.rounds > 1 { format!(" ({}..{})", show(all.min), show(all.max)) } else { String::new() };
    format!("**{}**{ends}", show(all.median))
}

/// Three digits, which are as many as say something.
pub(crate) fn show(value: f64) -> String {
    const MOST_DECIMALS: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, MOST_DECIMALS) as usize;
    format!("{value:.decimals$}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::reading::Reading;

    pub(crate) fn machine(load: f64) -> HostInfo {
        let (processor, kernel) = ("Some Processor".into(), "6.1".into());
        HostInfo {
            processor,
            cores: 2,
            kernel,
            memory_gib: 8.0,
            load,
            hugepages: 0,
            versions: vec!["ucx-utils 1".into()],
        }
    }

    pub(crate) fn results() -> Results {
        let mut results = Results::default();
        for (round, raw, tag) in [(1, 1.0, 2.0), (2, 2.0, 3.0)] {
            for (series, value) in [("raw", raw), ("tag", tag)] {
                let reading = Reading::new(series, Metric::Latency, Point::Size(8), value);
                results.add_of("host/ours/latency 8", round, Topology::Host, reading);
            }
        }
        for (hundredths, value) in [(0, 4.0), (100, 3.0)] {
            let reading = Reading::new("write of 64 KiB", Metric::Bandwidth, Point::Loss(hundredths), value);
            results.add(1, Topology::Host, reading);
        }
        results
    }

    pub(crate) fn with_report<T>(load: f64, look: impl Fn(&BenchReport<'_>) -> T) -> T {
        with_report_at(RunEnd::Whole, load, look)
    }

    fn with_report_at<T>(end: RunEnd, load: f64, look: impl Fn(&BenchReport<'_>) -> T) -> T {
        let outcomes = [
            CellOutcome::new("host/ours/latency 8", Topology::Host, "roci perf raw_lat,tag_lat", 2, None),
            CellOutcome::new(
                "host/ucx/latency 8 B",
                Topology::Host,
                "ucx_perftest",
                0,
                Some("not installed:\napt-get"),
            ),
        ];
        let (machine, results) = (machine(load), results());
        let report = BenchReport {
            machine: &machine,
            extent: Extent::Quick,
            revision: "v1",
            interface_mtu: 9000,
            end,
            results: &results,
            outcomes: &outcomes,
            figures: &[figures::LOSS],
        };
        look(&report)
    }

    #[test]
    fn the_mtu_of_interfaces_is_said_where_there_are_any() {
        let introduction = |place| with_report(0.0, |report| report.introduction(place));
        assert!(introduction(Topology::Veth).contains("have an MTU of 9000."));
        assert!(!introduction(Topology::Host).contains("9000"));
    }

    fn markdown(load: f64) -> String {
        markdown_at(RunEnd::Whole, load)
    }

    fn markdown_at(end: RunEnd, load: f64) -> String {
        fn of(report: &BenchReport<'_>) -> String {
            report.markdown()
        }
        with_report_at(end, load, of)
    }

    #[test]
    fn rows_have_medians_spreads_and_the_median_of_ratios() {
        let text = markdown(0.1);
        assert!(text.contains("| raw | **1.50** (1.00..2.00) |\n"), "{text}");
        assert!(text.contains("| tag | **2.50** (2.00..3.00) x1.75 |\n"), "{text}");
        assert!(text.contains("| write of 64 KiB | **4.00** | **3.00** x0.750 |\n"), "{text}");
        assert!(text.contains("![Goodput by loss](benchmarks-loss.svg)"), "{text}");
        assert!(!text.contains("benchmarks-latency.svg"), "it was not drawn: {text}");
    }

    #[test]
    fn chapters_that_there_are_have_a_link() {
        let text = markdown(0.1);
        assert!(text.contains("[What was not run](#what-was-not-run)"), "{text}");
        assert!(!text.contains("(#two-guests)"), "there were none: {text}");
        assert_eq!(contents("## Is it?\n\n### No\n"), "Chapters: [Is it?](#is-it).\n\n");
    }

    #[test]
    fn every_command_is_named_and_what_did_not_run_says_why() {
        let text = markdown(0.1);
        assert!(text.contains("- `host/ours/latency 8` (raw; tag), 2 rounds: `roci perf raw_lat,tag_lat`\n"), "{text}");
        assert!(text.contains("- `host/ucx/latency 8 B`: not run: not installed: apt-get\n"), "{text}");
    }

    #[test]
    fn a_machine_that_was_not_idle_is_reported() {
        assert!(markdown(0.31).contains("**The machine was not idle**"));
        assert!(!markdown(0.3).contains("not idle"));
    }

    #[test]
    fn a_run_that_did_not_come_to_its_end_is_reported() {
        let of = |end| markdown_at(end, 0.1);
        assert!(of(RunEnd::Interrupted).contains("**The run was interrupted**"));
        assert!(of(RunEnd::UnderWay).contains("**The run had not ended**"));
        assert!(!of(RunEnd::Whole).contains("The run"));
    }
}
