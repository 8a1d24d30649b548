//! The first table of a report: this stack beside others, as many times as good and in one word.

use std::fmt::Write;

use crate::reading::{Metric, Point, Topology};
use crate::report::{show, spread};
use crate::results::{ResultKey, Results};
use crate::statistics::Summary;
use crate::tools::mpi;

/// One line: a series of ours beside the best of some others.
struct Contest {
    /// Where, and over what.
    way: &'static str,
    place: Topology,
    metric: Metric,
    point: Point,
    ours: &'static str,
    rivals: &'static Rivals,
}

/// Those that a line compares us with.
struct Rivals {
    name: &'static str,
    series: &'static [&'static str],
    /// TCP carries them.
    is_tcp: bool,
}

/// How a contest ended.
struct ContestResult<'a> {
    contest: &'a Contest,
    /// The best of the rivals.
    rival: &'static str,
    ours: Summary,
    theirs: Summary,
    /// How many times as good ours is, in each round.
    times: Summary,
}

const TCP: Rivals = Rivals {
    name: "best TCP stack",
    series: &["kernel TCP", "UCX, TCP", "libfabric, tcp", "MPICH, TCP", "Open MPI, TCP"],
    is_tcp: true,
};
const MPI_OVER_TCP: Rivals = Rivals { name: "MPI over TCP", series: &["MPICH, TCP", "Open MPI, TCP"], is_tcp: true };
const DATAGRAMS: Rivals =
    Rivals { name: "reliable datagrams over UDP", series: &["libfabric, udp;ofi_rxd"], is_tcp: false };
const RXE: Rivals = Rivals { name: "Linux's software RDMA", series: &["rdma_rxe, send"], is_tcp: false };

const MEMIF: &str = "one host, tagged message over memif";
const COPIED: &str = "one host, tagged message that the kernel copies (CMA)";
const MPI: &str = "one host, Open MPI over this stack";
const SOCKETS: &str = "two namespaces, tagged message over UDP sockets";
const GUESTS: &str = "two guests, SEND";

/// The lines, in the order in which the table has them.
const CONTESTS: [Contest; 10] = [
    latency(MEMIF, Topology::Host, 8, "tag, unread", &TCP),
    bandwidth(MEMIF, Topology::Host, "tag, unread", &TCP),
    bandwidth(COPIED, Topology::Host, "tag, unread, CMA", &TCP),
    latency(MPI, Topology::Host, 8, mpi::OURS, &MPI_OVER_TCP),
    bandwidth(MPI, Topology::Host, mpi::OURS, &MPI_OVER_TCP),
    latency(SOCKETS, Topology::Veth, 8, "tag, over UDP", &TCP),
    latency(SOCKETS, Topology::Veth, 8, "tag, over UDP", &DATAGRAMS),
    bandwidth(SOCKETS, Topology::Veth, "tag, over UDP", &TCP),
    bandwidth(SOCKETS, Topology::Veth, "tag, over UDP", &DATAGRAMS),
    latency(GUESTS, Topology::Guests, 64, "send, unread", &RXE),
];

const fn latency(
    way: &'static str,
    place: Topology,
    bytes: u64,
    ours: &'static str,
    rivals: &'static Rivals,
) -> Contest {
    Contest { way, place, metric: Metric::Latency, point: Point::Size(bytes), ours, rivals }
}

const fn bandwidth(way: &'static str, place: Topology, ours: &'static str, rivals: &'static Rivals) -> Contest {
    Contest { way, place, metric: Metric::Bandwidth, point: Point::Size(1 << 20), ours, rivals }
}

const INTRODUCTION: &str = "\
    ## Is it worth it?\n\n\
    Each line compares the medians of all rounds. *Times as good* is how many times lower our latency is, or how many \
    times higher our bandwidth: above 1 this stack is faster. In brackets are the least and the most of single \
    rounds. *Equal within spread* means that single rounds lie on both sides of 1.\n\n\
    Where there are several rivals, the line has the best of them. Over memif and between guests neither side reads \
    what it receives. Over UDP sockets this stack compares every payload, and the rivals read none.\n\n";

/// The table and what introduces it; nothing where none of it was measured.
pub(crate) fn markdown(results: &Results) -> String {
    let outcomes: Vec<_> = CONTESTS.iter().filter_map(|contest| contest.outcome(results)).collect();
    if outcomes.is_empty() {
        return String::new();
    }
    let mut text = INTRODUCTION.to_owned();
    text += "| where | what | this stack | the other | theirs | times as good | |\n|---|---|---|---|---|---|---|\n";
    for outcome in &outcomes {
        let _ = writeln!(text, "{}", outcome.row());
    }
    text + &tcp_wins(&outcomes)
}

/// Where TCP is the better choice.
fn tcp_wins(outcomes: &[ContestResult<'_>]) -> String {
    let is_won = |outcome: &&ContestResult<'_>| outcome.contest.rivals.is_tcp && outcome.word() == SLOWER;
    let won: String = outcomes
        .iter()
        .filter(is_won)
        .map(|outcome| format!("- {}: {} has {}\n", outcome.contest.what(), outcome.rival, outcome.advantage()))
        .collect();
    if won.is_empty() { "\n".to_owned() } else { format!("\n**TCP wins here:**\n\n{won}\n") }
}

const FASTER: &str = "**faster**";
const SLOWER: &str = "**slower**";
const EQUAL: &str = "equal within spread";

impl Contest {
    /// The contest with whichever of the rivals does best.
    fn outcome(&self, results: &Results) -> Option<ContestResult<'_>> {
        let key = |series| ResultKey::new(self.place, self.metric, series, self.point);
        let against = |rival: &&'static str| {
            let pair = if self.metric == Metric::Latency { (*rival, self.ours) } else { (self.ours, *rival) };
            Some((*rival, results.ratio(&key(pair.0), &key(pair.1))?))
        };
        let all = self.rivals.series.iter().filter_map(against);
        let (rival, times) = all.min_by(|one, other| one.1.median.total_cmp(&other.1.median))?;
        let (ours, theirs) = (results.summary(&key(self.ours))?, results.summary(&key(rival))?);
        Some(ContestResult { contest: self, rival, ours, theirs, times })
    }

    fn what(&self) -> String {
        format!("{}: {} of {}", self.way, self.metric.name(), self.point)
    }
}

impl ContestResult<'_> {
    fn row(&self) -> String {
        let Contest { way, metric, point, rivals, .. } = self.contest;
        let [ours, theirs] = [self.ours, self.theirs].map(|all| format!("{} {}", show(all.median), metric.unit()));
        let (what, rival) = (format!("{} of {point}", metric.name()), format!("{}: {}", rivals.name, self.rival));
        format!("| {way} | {what} | {ours} | {rival} | {theirs} | {} | {} |", spread(&self.times), self.word())
    }

    fn word(&self) -> &'static str {
        match (self.times.min > 1.0, self.times.max < 1.0) {
            (true, _) => FASTER,
            (_, true) => SLOWER,
            _ => EQUAL,
        }
    }

    /// What the rival has of ours.
    fn advantage(&self) -> String {
        match self.contest.metric {
            Metric::Latency => format!("{} of our latency", show(self.times.median)),
            _ => format!("{} times our bandwidth", show(1.0 / self.times.median)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::record;

    const MEGABYTE: u64 = 1 << 20;

    fn results(readings: &[(Metric, &str, u64, &[f64])]) -> Results {
        let mut results = Results::default();
        for &(metric, series, bytes, values) in readings {
            for (round, &value) in values.iter().enumerate() {
                results.add(round, Topology::Host, Reading::new(series, metric, Point::Size(bytes), value));
            }
        }
        results
    }

    #[test]
    fn a_line_has_both_figures_their_ratio_and_a_word() {
        let text = markdown(&results(&[
            (Metric::Latency, "tag, unread", 8, &[1.0, 2.0]),
            (Metric::Latency, "kernel TCP", 8, &[3.0, 8.0]),
            (Metric::Latency, "MPICH, TCP", 8, &[4.0, 9.0]),
        ]));
        let line = "| one host, tagged message over memif | latency of 8 B | 1.50 us | best TCP stack: kernel TCP | \
                    5.50 us | **3.50** (3.00..4.00) | **faster** |\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("TCP wins"), "{text}");
    }

    #[test]
    fn what_tcp_does_better_is_said() {
        let text = markdown(&results(&[
            (Metric::Bandwidth, "tag, unread", MEGABYTE, &[2.0, 3.0]),
            (Metric::Bandwidth, "UCX, TCP", MEGABYTE, &[4.0, 6.0]),
            (Metric::Bandwidth, "tag, unread, CMA", MEGABYTE, &[2.0, 12.0]),
        ]));
        assert!(
            text.contains("| best TCP stack: UCX, TCP | 5.00 GB/s | **0.500** (0.500..0.500) | **slower** |"),
            "{text}"
        );
        assert!(text.contains("| **1.25** (0.500..2.00) | equal within spread |"), "{text}");
        let lost = "- one host, tagged message over memif: bandwidth of 1 MiB: UCX, TCP has 2.00 times our bandwidth\n";
        assert!(text.contains(lost), "{text}");
    }

    #[test]
    fn what_was_not_measured_has_no_line() {
        assert_eq!(markdown(&Results::default()), "");
        assert_eq!(markdown(&results(&[(Metric::Latency, "tag, unread", 8, &[1.0])])), "");
    }

    /// A series that no command gives would be a line that never appears.
    #[test]
    fn the_committed_report_has_every_line() {
        let run = record::tests::committed();
        let missing: Vec<_> = CONTESTS.iter().filter(|contest| contest.outcome(&run.results).is_none()).collect();
        let names: Vec<_> = missing.iter().map(|contest| (contest.what(), contest.rivals.name)).collect();
        assert!(names.is_empty(), "docs/benchmarks.json has no {names:?}");
    }
}
