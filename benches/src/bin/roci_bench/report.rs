//! The report for people.

use std::fmt::Write;

use crate::figures::{BANDWIDTH, CONNECTIONS, Figure, LATENCY, LOSS};
use crate::machine::{HostInfo, IDLE_LOAD};
use crate::plan::Extent;
use crate::reading::{Metric, Point, Topology};
use crate::results::{ResultKey, Results};
use crate::schedule::CellOutcome;
use crate::statistics::Summary;
use crate::targets::{TargetResult, judge};

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

impl BenchReport<'_> {
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.heading();
        text += &self.targets();
        for place in Topology::ALL {
            text += &self.place(place);
        }
        text += &self.windows();
        text += &self.connections();
        text += &self.losses();
        text += &self.not_run();
        text += &self.command_lines();
        text
    }

    fn heading(&self) -> String {
        let HostInfo { processor, cores, kernel, memory_gib, load, hugepages, .. } = self.machine;
        let option = if self.extent == Extent::Quick { " --quick" } else { "" };
        let rounds = |is_of: fn(Topology) -> bool| {
            let its = self.outcomes.iter().filter(|outcome| is_of(outcome.place));
            its.map(|outcome| outcome.rounds).max().unwrap_or(0)
        };
        let (all, guests) = (rounds(|place| place != Topology::Guests), rounds(|place| place == Topology::Guests));
        let warning = if self.machine.is_idle() {
            String::new()
        } else {
            format!(
                "\n**The machine was not idle**: {load:.2} processors were busy before the first measurement, where \
                 {IDLE_LOAD} is still idle. Mind the ratios, and not even those where the spread is wide.\n"
            )
        };
        format!(
            "# Benchmarks\n\nWritten by `scripts/bench{option}` at {}: {all} rounds ({guests} between guests), each of \
             which runs every command once, on {cores} processors ({processor}), {memory_gib:.0} GiB, Linux {kernel}, {hugepages} hugepages, \
             {load:.2} processors busy before. Figures are medians of the rounds, with the least and the most in brackets; `x` is \
             the median of the rounds' ratios to bare frames of the same round (latency: left alone; bandwidth: written \
             and read). Ours verify every payload (of RDMA WRITEs, which give the peer no completion, the last, after the \
             clock has stopped), and have the ICRC on, but in rows that say otherwise. Beside them: {}.\n{}{warning}\n",
            self.revision,
            self.machine.versions.join(", "),
            self.end.warning()
        )
    }

    fn remarks(&self, place: Topology) -> String {
        let interfaces = match place {
            Topology::Veth => format!(
                "Interfaces have an MTU of {}: a packet of ours carries a power of two of that, 1 KiB of 1500, with its ICRC. ",
                self.interface_mtu
            ),
            Topology::Host | Topology::Vhost | Topology::Guests => String::new(),
        };
        interfaces + remarks(place)
    }

    fn targets(&self) -> String {
        let mut text =
            "## Targets\n\nPer cent are of the target. Where we are compared with others, the last column has what it would be if \
             ours were bare frames on the same port, unchecked and never repeated: about the most that a protocol above \
             them can reach.\n\n| | target | measured | | bare frames |\n|---|---|---|---|---|\n".to_owned();
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
            text += "\nWhat profiles blame, taken on a machine of 2 processors (Sapphire Rapids) over several runs:\n";
        }
        for blame in blames {
            let _ = write!(text, "\n{blame}\n");
        }
        text + "\n"
    }

    fn place(&self, place: Topology) -> String {
        let is_sized = |point| matches!(point, Point::Size(_));
        let metrics =
            Metric::ALL.into_iter().filter(|&metric| !self.results.series(place, metric, is_sized).is_empty());
        let tables: String = metrics.map(|metric| self.table(place, metric, is_sized)).collect();
        if tables.is_empty() {
            return String::new();
        }
        let shown = |figure: &Figure| if place == Topology::Host { self.figure(figure) } else { String::new() };
        format!("## {}\n\n{}{}{}{tables}", title(place), self.remarks(place), shown(&LATENCY), shown(&BANDWIDTH))
    }

    fn windows(&self) -> String {
        let is_depth = |point| matches!(point, Point::Depth(_));
        if self.results.points(Topology::Host, Metric::Bandwidth, is_depth).is_empty() {
            return String::new();
        }
        let table = self.table(Topology::Host, Metric::Bandwidth, is_depth);
        format!(
            "## Messages under way\n\nStreams over memif that wait for an end once so many messages are under way; `x` is \
             the ratio to one at a time.\n\n{table}"
        )
    }

    fn connections(&self) -> String {
        let is_count = |point| matches!(point, Point::Connections(_));
        if self.results.points(Topology::Host, Metric::Rate, is_count).is_empty() {
            return String::new();
        }
        let tables = [Metric::Rate, Metric::Memory].map(|metric| self.table(Topology::Host, metric, is_count)).concat();
        format!(
            "## Many connections\n\nSENDs of 64 B over connections that take turns, as many under way as of one; `x` is \
             the ratio to one connection. They are posted one by one, and the port is notified of each, for a list \
             belongs to one connection; over one, lists of 16 make it twice as many (the table of rates above). Kernel \
             TCP writes a message to each socket in turn, and its receiver asks epoll. What a connection takes of \
             memory is of the sender, without its receives, which all share; the kernel's use is unknown.\n\n{}{tables}",
            self.figure(&CONNECTIONS)
        )
    }

    fn losses(&self) -> String {
        let is_loss = |point| matches!(point, Point::Loss(_));
        if self.results.points(Topology::Host, Metric::Bandwidth, is_loss).is_empty() {
            return String::new();
        }
        let table = self.table(Topology::Host, Metric::Bandwidth, is_loss);
        format!(
            "## Loss\n\nGoodput over memif where frames are lost on their way, both ways; `x` is the ratio to none lost. Of \
             kernel TCP over loopback each socket's filter drops what comes in by the same chance. Its frames hold up to \
             64 KiB and ours 8, so that of the same bytes it loses fewer.\n\n{}{table}",
            self.figure(&LOSS)
        )
    }

    fn figure(&self, figure: &Figure) -> String {
        let is_drawn = self.figures.iter().any(|drawn| drawn.file == figure.file);
        if is_drawn { format!("![{}]({})\n\n", figure.title, figure.file) } else { String::new() }
    }

    fn table(&self, place: Topology, metric: Metric, of: impl Fn(Point) -> bool + Copy) -> String {
        let points = self.results.points(place, metric, of);
        let heading: String = points.iter().map(|point| format!(" {point} |")).collect();
        let mut text = format!(
            "{}, {}:\n\n| |{heading}\n|---|{}\n",
            capital(metric.name()),
            metric.unit(),
            "---|".repeat(points.len())
        );
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
            ratio_to_base(self.results, key).map_or_else(String::new, |ratio| format!(" x{}", show(ratio.median)));
        format!(" {}{ratio} |", spread(&summary))
    }

    fn not_run(&self) -> String {
        let mut text = "## What was not run\n\n".to_owned();
        let silent = self.outcomes.iter().filter_map(|outcome| Some((outcome, outcome.trouble.as_ref()?)));
        for (CellOutcome { name, rounds, .. }, trouble) in silent {
            let rounds = if *rounds > 0 { "failed in a round" } else { "not run" };
            let _ = writeln!(text, "- `{name}`: {rounds}: {}", one_line(trouble));
        }
        text + &NOT_THERE.map(|line| format!("- {line}\n")).concat() + "\n"
    }

    fn command_lines(&self) -> String {
        let mut text = "## Command lines\n\n`A & B` starts A, waits until it listens on PORT, and then starts B. \
                        `pingpong` is `benches/alternatives/pingpong.c`, `roci_bench` a binary of `benches`, and \
                        `netns-agent` lies beside the former. The two namespaces are joined by a pair of interfaces, both \
                        named veth (`scripts/bench`, make_namespaces). In parentheses: the rows that a command gives.\n\n"
            .to_owned();
        for CellOutcome { name, line, rounds, .. } in self.outcomes.iter().filter(|outcome| outcome.rounds > 0) {
            let series = self.results.series_of(name).join("; ");
            let _ = writeln!(text, "- `{name}` ({series}), {rounds} rounds: `{line}`");
        }
        text
    }
}

/// What no cell can say of itself.
const NOT_THERE: [&str; 5] = [
    "vhost: bare frames of messages of 8 MiB, there and back: they are more than its ring holds, and it drops what does \
     not fit, so that no message comes through whole",
    "vhost: READ, atomics, `unread` rows, dedicated engines, rows without an ICRC: what differs from memif is the \
     port, which SEND, WRITE and tagged messages show",
    "veth: dedicated engines, which two processors that poll a kernel interface each leave no room for",
    "processor time of UCX, libfabric and MPI: their tools print none, and that of whole processes is for the most part \
     their start",
    "UCX, libfabric and MPI under loss and over many connections: a filter can be put on sockets that are one's own only, \
     and their tools have one connection",
];

/// How many times what it is compared with.
pub(crate) fn ratio_to_base(results: &Results, key: &ResultKey) -> Option<Summary> {
    let base = base(key).filter(|base| base != key)?;
    results.ratio(key, &base)
}

/// What a number is compared with.
fn base(key: &ResultKey) -> Option<ResultKey> {
    let with = |series: &str, point| Some(ResultKey::new(key.place, key.metric, series, point));
    match (key.metric, key.point) {
        (Metric::Latency, point) => with("raw", point),
        (Metric::Bandwidth | Metric::Rate, Point::Size(_)) => with("raw, touched", key.point),
        (Metric::Rate, Point::Connections(_)) => with(&key.series, Point::Connections(1)),
        (Metric::Bandwidth, Point::Depth(_)) => with(&key.series, Point::Depth(1)),
        (Metric::Bandwidth, Point::Loss(_)) => with(&key.series, Point::Loss(0)),
        _ => None,
    }
}

const fn title(place: Topology) -> &'static str {
    match place {
        Topology::Host => "One host: memif, and the others over loopback",
        Topology::Vhost => "One host: vhost",
        Topology::Veth => "Two namespaces: af_packet, and the others over the same pair of interfaces",
        Topology::Guests => "Two guests: rdma_rxe and this stack on the same emulated NIC",
    }
}

const fn remarks(place: Topology) -> &'static str {
    match place {
        Topology::Host => {
            "Latency is half a round trip, its median; of a READ or an atomic all of it; of libfabric, whose tool prints \
             nothing else, the mean. Streams of ours and of MPI have up to 64 messages and 4 MiB under way, UCX's as many \
             as it likes, sockets' what the kernel's buffers hold; libfabric's tool has only ping-pongs, so that its \
             bandwidth is that of one message under way. `memcpy` is one processor, `shared memory` two that copy a \
             message in and, when it is whole, out: longer ones overtake it by being passed on in parts. A `dedicated \
             engine` shares one of the two processors with the application that it works for, by turns. What the other \
             programs receive is not read, nor is ours in rows that are `unread`, which are \
             those to compare. MPICH and Open MPI are kept from shared memory. Processor time is that of both processes; \
             the kernel's share of sockets is in it where it runs in their name. Cycles are those of the time stamp \
             counter that pass for each packet of 64 B; both ends poll without rest.\n\n"
        }
        Topology::Vhost => "The same over the other device of one host; fewer tests, see below.\n\n",
        Topology::Veth => {
            "The kernel's TCP \
             hands over up to 64 KiB at once, without checksums, because such a pair of interfaces carries what no wire \
             does: from 4 KiB on it is quicker than ours, and than bare frames, for each of which the kernel is asked. \
             Bare frames are sent without regard to losses; those that arrive count.\n\n"
        }
        Topology::Guests => {
            "Each guest has one emulated processor and 1 GiB, so that only ratios mean something; Linux 6.1, rdma_rxe and \
             perftest of Debian 12 on a virtio-net NIC with packets of 4200 bytes, whose memory is the guest's own for the \
             kernel's driver, and behind an emulated IOMMU for ours (`iommu=pt`). What emulates the NICs \
             goes before the guests' processors, as hardware does (`chrt --fifo`). perftest posts lists of 16 like ours \
             (`-l 16`) and polls. What arrives is not read, for perftest does not read it. Processor time is of \
             perftest all \
             that both guests are not idle, less that of a run of 16 messages; of ours what both processes use from \
             beginning to end of a stream, which they poll all through. `scripts/lab verbs --list` prints the \
             commands.\n\n"
        }
    }
}

/// The middle, and the least and the most where there are several.
fn spread(all: &Summary) -> String {
    let ends = if all.rounds > 1 { format!(" ({}..{})", show(all.min), show(all.max)) } else { String::new() };
    format!("**{}**{ends}", show(all.median))
}

/// Three digits, which are as many as say something.
fn show(value: f64) -> String {
    const MOST_DECIMALS: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, MOST_DECIMALS) as usize;
    format!("{value:.decimals$}")
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
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
            figures: &[LOSS],
        };
        look(&report)
    }

    #[test]
    fn the_mtu_of_interfaces_is_said_where_there_are_any() {
        let remarks = |place| with_report(0.0, |report| report.remarks(place));
        assert!(remarks(Topology::Veth).starts_with("Interfaces have an MTU of 9000:"));
        assert!(!remarks(Topology::Host).contains("9000"));
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
