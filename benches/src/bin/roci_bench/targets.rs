//! What this stack sets out to reach, as ratios within one run: absolute figures are those of a machine and an hour.

use crate::blames::{self, Blame};
use crate::reading::{Metric, Point, Topology};
use crate::results::{ResultKey, Results};
use crate::statistics::Summary;
use crate::tools::mpi;

/// A ratio, and on which side of it we want to be.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// One of them.
struct Target {
    what: &'static str,
    goal: Goal,
    /// Of the rounds: the middle, and how far they lie apart.
    measured: fn(&RunResults<'_>) -> Option<Summary>,
    /// What profiles blame where it is missed.
    blame: &'static Blame,
}

/// The results of a run: as measured, or with bare frames in the place of ours.
struct RunResults<'a> {
    results: &'a Results,
    ours: Sender,
}

/// Whose results stand for ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Ours,
    BareFrames,
}

impl Sender {
    /// A series of ours, or that of bare frames whose payload is treated alike.
    fn series(self, ours: &'static str) -> &'static str {
        match self {
            Self::Ours => ours,
            Self::BareFrames if ours.ends_with(UNREAD) => "raw",
            Self::BareFrames if ours.ends_with(OVER_UDP) => "raw, over UDP",
            Self::BareFrames => "raw, touched",
        }
    }
}

/// How series end whose receiver does not look at what arrives.
const UNREAD: &str = ", unread";
/// How those end that use sockets.
const OVER_UDP: &str = ", over UDP";

/// The result of a target.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TargetResult {
    pub(crate) what: &'static str,
    pub(crate) goal: String,
    pub(crate) measured: Option<Summary>,
    /// What it would be if bare frames were all there is to do, of what is compared with others: about the most that a
    /// protocol above the same port can reach.
    pub(crate) limit: Option<Summary>,
    /// Met, missed or not measured, and by how much.
    pub(crate) judgement: String,
    /// Of one that is missed, what profiles blame.
    pub(crate) blame: Option<&'static Blame>,
}

/// All targets, in the order in which the report lists them.
const TARGETS: &[Target] = &[
    Target {
        what: "SEND of 8 B, latency of bare frames (memif, ICRC on)",
        goal: Goal::AtMost(1.35),
        measured: |run| run.ratio(Topology::Host, Metric::Latency, EIGHT, ("send", "raw")),
        blame: &blames::PING_PONG,
    },
    Target {
        what: "tagged message of 8 B, latency of bare frames",
        goal: Goal::AtMost(1.5),
        measured: |run| run.ratio(Topology::Host, Metric::Latency, EIGHT, ("tag", "raw")),
        blame: &blames::PING_PONG,
    },
    Target {
        what: "RDMA WRITE of 1 MiB, bandwidth of bare frames that are touched",
        goal: Goal::AtLeast(0.6),
        measured: |run| run.ratio(Topology::Host, Metric::Bandwidth, MEGABYTE, ("write", "raw, touched")),
        blame: &blames::STREAM,
    },
    Target {
        what: "the same with the ICRC off",
        goal: Goal::AtLeast(0.85),
        measured: |run| run.ratio(Topology::Host, Metric::Bandwidth, MEGABYTE, ("write, no ICRC", "raw, touched")),
        blame: &blames::STREAM,
    },
    Target {
        what: "SENDs of 64 B in lists of 16 over one connection, million a second on a processor",
        goal: Goal::AtLeast(5.0),
        measured: |run| {
            run.results.summary(&ResultKey::new(Topology::Host, Metric::Rate, run.ours.series("send"), Point::Size(64)))
        },
        blame: &blames::RATE,
    },
    Target {
        what: "SENDs of 64 B one by one over 1,024 connections, rate of the same over one",
        goal: Goal::AtLeast(0.9),
        measured: |run| run.many_connections(),
        blame: &blames::CONNECTIONS,
    },
    Target {
        what: "rdma_rxe between the same guests: our latency, of its, at the worst size of SEND and WRITE",
        goal: Goal::AtMost(1.0 / 3.0),
        measured: |run| run.worst(Topology::Guests, Metric::Latency, &VERBS[..2]),
        blame: &blames::GUESTS,
    },
    Target {
        what: "rdma_rxe: our message rate, of its, at 64 B",
        goal: Goal::AtLeast(5.0),
        measured: |run| run.ratio(Topology::Guests, Metric::Rate, Point::Size(64), VERBS[0]),
        blame: &blames::GUESTS,
    },
    Target {
        what: "rdma_rxe: our bandwidth for the same processor time, of its, at the worst size of SEND, WRITE and READ",
        goal: Goal::AtLeast(3.0),
        measured: |run| run.worst(Topology::Guests, Metric::Cpu, &VERBS).and_then(inverse),
        blame: &blames::GUESTS,
    },
    Target {
        what: "TCP stacks on loopback: the lowest latency of theirs, of a tagged message's, at 8 B",
        goal: Goal::AtLeast(5.0),
        measured: |run| run.worst_at(Topology::Host, Metric::Latency, &TCP_STACKS, |at| at == EIGHT).and_then(inverse),
        blame: &blames::TAGGED,
    },
    Target {
        what: "the same at the worst size",
        goal: Goal::AtLeast(5.0),
        measured: |run| run.worst(Topology::Host, Metric::Latency, &TCP_STACKS).and_then(inverse),
        blame: &blames::TAGGED,
    },
    Target {
        what: "TCP stacks on loopback: bandwidth of a tagged message, of the highest of theirs, at the worst size",
        goal: Goal::AtLeast(1.0),
        measured: |run| run.worst(Topology::Host, Metric::Bandwidth, &TCP_STACKS),
        blame: &blames::TAGGED,
    },
    Target {
        what: "TCP stacks on loopback: the lowest latency of theirs, of Open MPI's over our provider, at 8 B",
        goal: Goal::AtLeast(2.0),
        measured: |run| run.worst_at(Topology::Host, Metric::Latency, &MPI, |at| at == EIGHT).and_then(inverse),
        blame: &blames::TAGGED,
    },
    Target {
        what: "two namespaces: the lowest latency of TCP stacks, of Open MPI's over our provider, at 8 B",
        goal: Goal::AtLeast(1.0),
        measured: |run| run.worst_at(Topology::Veth, Metric::Latency, &MPI, |at| at == EIGHT).and_then(inverse),
        blame: &blames::TAGGED,
    },
    Target {
        what: "the same: the lowest latency of MPI over TCP, of Open MPI's over our provider",
        goal: Goal::AtLeast(1.0),
        measured: |run| run.worst_at(Topology::Veth, Metric::Latency, &MPI_ALONE, |at| at == EIGHT).and_then(inverse),
        blame: &blames::TAGGED,
    },
    Target {
        what: "TCP stacks on loopback: bandwidth of Open MPI over our provider, of the highest of theirs, at 64 KiB and 1 MiB",
        goal: Goal::AtLeast(1.0),
        measured: |run| run.worst_at(Topology::Host, Metric::Bandwidth, &MPI, is_long),
        blame: &blames::TAGGED,
    },
    Target {
        what: "libfabric's udp;ofi_rxd: the lowest latency over it, of a tagged message's, at 64 KiB",
        goal: Goal::AtLeast(7.0),
        measured: |run| run.worst_at(Topology::Host, Metric::Latency, &RXD, |at| at == LONG).and_then(inverse),
        blame: &blames::RELIABLE_DATAGRAMS,
    },
    Target {
        what: "libfabric's udp;ofi_rxd: bandwidth of a tagged message, of Open MPI's over it, at 64 KiB and 1 MiB",
        goal: Goal::AtLeast(10.0),
        measured: |run| run.worst_at(Topology::Host, Metric::Bandwidth, &RXD[..1], is_long),
        blame: &blames::RELIABLE_DATAGRAMS,
    },
    Target {
        what: "two namespaces, over UDP sockets: the lowest latency of TCP stacks, of a tagged message's, at 8 B",
        goal: Goal::AtLeast(1.0),
        measured: |run| {
            run.worst_at(Topology::Veth, Metric::Latency, &SOCKETS[1..], |at| at == EIGHT).and_then(inverse)
        },
        blame: &blames::SOCKETS,
    },
    Target {
        what: "the same: bandwidth of a tagged message, of bare frames over such sockets, at 64 KiB and 1 MiB",
        goal: Goal::AtLeast(0.6),
        measured: |run| run.worst_at(Topology::Veth, Metric::Bandwidth, &SOCKETS[..1], is_long),
        blame: &blames::SOCKETS,
    },
    Target {
        what: "the same: bandwidth of a tagged message, of libfabric's udp;ofi_rxd, at 64 KiB and 1 MiB",
        goal: Goal::AtLeast(3.0),
        measured: |run| run.worst_at(Topology::Veth, Metric::Bandwidth, &RXD_SOCKETS, is_long),
        blame: &blames::SOCKETS,
    },
    Target {
        what: "the same with jumbo frames: bandwidth of a tagged message, of bare frames, at 64 KiB and 1 MiB",
        goal: Goal::AtLeast(0.6),
        measured: |run| run.worst_at(Topology::Jumbo, Metric::Bandwidth, &SOCKETS[..1], is_long),
        blame: &blames::SOCKETS,
    },
];

fn is_long(at: Point) -> bool {
    at == LONG || at == MEGABYTE
}

/// The name of a series of ours, and of the one that it is compared with.
type SeriesPair = (&'static str, &'static str);

const EIGHT: Point = Point::Size(8);
const LONG: Point = Point::Size(64 << 10);
const MEGABYTE: Point = Point::Size(1 << 20);
const VERBS: [SeriesPair; 3] =
    [("send, unread", "rdma_rxe, send"), ("write, unread", "rdma_rxe, write"), ("read, unread", "rdma_rxe, read")];
const TCP_STACKS: [SeriesPair; 5] = [
    ("tag, unread", "kernel TCP"),
    ("tag, unread", "UCX, TCP"),
    ("tag, unread", "libfabric, tcp"),
    ("tag, unread", "MPICH, TCP"),
    ("tag, unread", "Open MPI, TCP"),
];
const MPI: [SeriesPair; 5] = [
    (mpi::OURS, "kernel TCP"),
    (mpi::OURS, "UCX, TCP"),
    (mpi::OURS, "libfabric, tcp"),
    (mpi::OURS, "MPICH, TCP"),
    (mpi::OURS, "Open MPI, TCP"),
];
const MPI_ALONE: [SeriesPair; 2] = [(mpi::OURS, "MPICH, TCP"), (mpi::OURS, "Open MPI, TCP")];
/// The first of them has streams; the other's tool sends one message at a time, and prints means.
const RXD: [SeriesPair; 2] = [("tag, unread", "Open MPI, udp;ofi_rxd"), ("tag, unread", "libfabric, udp;ofi_rxd")];
/// The first of them are bare frames.
const SOCKETS: [SeriesPair; 6] = [
    ("tag, over UDP", "raw, over UDP"),
    ("tag, over UDP", "kernel TCP"),
    ("tag, over UDP", "UCX, TCP"),
    ("tag, over UDP", "libfabric, tcp"),
    ("tag, over UDP", "MPICH, TCP"),
    ("tag, over UDP", "Open MPI, TCP"),
];
const RXD_SOCKETS: [SeriesPair; 1] = [("tag, over UDP", "libfabric, udp;ofi_rxd")];

/// The verdicts.
pub(crate) fn judge(results: &Results) -> Vec<TargetResult> {
    let judge = |target: &Target| {
        let of = |ours| (target.measured)(&RunResults { results, ours }).filter(|all| all.min > 0.0);
        let (measured, limit) = (of(Sender::Ours), of(Sender::BareFrames));
        let goal = match target.goal {
            Goal::AtMost(most) => format!("<= {most:.2}"),
            Goal::AtLeast(least) => format!(">= {least:.2}"),
        };
        let is_missed = measured.is_some_and(|all| !target.goal.is_met_by(all.median));
        let judgement = measured.map_or_else(|| "not measured".to_owned(), |all| verdict(target.goal, &all));
        TargetResult { what: target.what, goal, measured, limit, judgement, blame: is_missed.then_some(target.blame) }
    };
    TARGETS.iter().map(judge).collect()
}

impl Goal {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    const fn value(self) -> f64 {
        match self {
            Self::AtMost(value) | Self::AtLeast(value) => value,
        }
    }
}

/// How far the median is from the goal, in per cent of the goal, and whether single rounds say otherwise.
fn verdict(goal: Goal, all: &Summary) -> String {
    let is_met = goal.is_met_by(all.median);
    let off = (all.median / goal.value() - 1.0) * 100.0;
    let side = if off < 0.0 { "below" } else { "above" };
    let word = if is_met { "met" } else { "**missed**" };
    let others = if goal.is_met_by(all.min) == goal.is_met_by(all.max) { "" } else { ", rounds on both sides" };
    format!("{word}: {:.0} % {side}{others}", off.abs())
}

impl RunResults<'_> {
    fn ratio(&self, place: Topology, metric: Metric, point: Point, (ours, theirs): SeriesPair) -> Option<Summary> {
        if self.ours == Sender::BareFrames && theirs.starts_with("raw") {
            return None; // they are no limit of what is measured by them
        }
        let key = |series| ResultKey::new(place, metric, series, point);
        self.results.ratio(&key(self.ours.series(ours)), &key(theirs))
    }

    /// Bare frames know no connections.
    fn many_connections(&self) -> Option<Summary> {
        let key =
            |count| ResultKey::new(Topology::Host, Metric::Rate, self.ours.series("send"), Point::Connections(count));
        self.results.ratio(&key(1024), &key(1))
    }

    fn worst(&self, place: Topology, metric: Metric, pairs: &[SeriesPair]) -> Option<Summary> {
        self.worst_at(place, metric, pairs, |point| matches!(point, Point::Size(_)))
    }

    /// The ratio to whichever of theirs does best, at the size where ours does worst.
    fn worst_at(
        &self,
        place: Topology,
        metric: Metric,
        pairs: &[SeriesPair],
        of: impl Fn(Point) -> bool,
    ) -> Option<Summary> {
        let is_smaller_better = matches!(metric, Metric::Latency | Metric::Cpu);
        let points = self.results.points(place, metric, of);
        let ratios = points
            .iter()
            .flat_map(|&point| pairs.iter().filter_map(move |&pair| self.ratio(place, metric, point, pair)));
        ratios.reduce(|one, other| if (one.median > other.median) == is_smaller_better { one } else { other })
    }
}

/// Theirs as many times ours, from ours as many times theirs.
fn inverse(all: Summary) -> Option<Summary> {
    let Summary { median, min, max, rounds } = all;
    (min > 0.0).then(|| Summary { median: 1.0 / median, min: 1.0 / max, max: 1.0 / min, rounds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn results(readings: &[(Metric, &str, u64, f64)]) -> Results {
        let mut results = Results::default();
        for &(metric, series, bytes, value) in readings {
            results.add(1, Topology::Host, Reading::new(series, metric, Point::Size(bytes), value));
        }
        results
    }

    const fn ours(results: &Results) -> RunResults<'_> {
        RunResults { results, ours: Sender::Ours }
    }

    #[test]
    fn a_target_is_met_or_missed_by_so_much_or_not_measured() {
        let of = |raw, send| {
            let results = results(&[(Metric::Latency, "raw", 8, raw), (Metric::Latency, "send", 8, send)]);
            judge(&results).swap_remove(0)
        };
        assert_eq!(of(1.0, 1.35).judgement, "met: 0 % above");
        assert_eq!(of(1.0, 1.08).judgement, "met: 20 % below");
        assert_eq!(of(1.0, 2.7).judgement, "**missed**: 100 % above");
        assert!(of(1.0, 2.7).blame.is_some() && of(1.0, 1.0).blame.is_none());
        assert_eq!(of(0.0, 1.0).judgement, "not measured");
        assert!(judge(&Results::default()).iter().all(|verdict| verdict.judgement == "not measured"));
    }

    #[test]
    fn what_bare_frames_reach_stands_beside_what_is_compared_with_others() {
        let results = results(&[
            (Metric::Latency, "send", 8, 3.0),
            (Metric::Latency, "tag, unread", 8, 2.0),
            (Metric::Latency, "raw", 8, 1.0),
            (Metric::Latency, "raw, touched", 8, 1.0),
            (Metric::Latency, "kernel TCP", 8, 4.0),
        ]);
        let verdicts = judge(&results);
        let limit = |what: &str| verdicts.iter().find(|verdict| verdict.what.starts_with(what)).expect("one").limit;
        assert_eq!(limit("TCP stacks on loopback: the lowest latency").map(|all| all.median), Some(4.0));
        assert_eq!(limit("SEND of 8 B"), None);
    }

    /// A series that no command gives would be a target that is never judged.
    #[test]
    fn the_committed_report_judges_every_target() {
        let text = include_str!("../../../../docs/benchmarks.json");
        let report: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let judged = report["targets"].as_array().expect("targets");
        let is_measured =
            |what| judged.iter().any(|verdict| verdict["target"] == what && !verdict["measured"].is_null());
        let missing: Vec<_> = TARGETS.iter().map(|target| target.what).filter(|what| !is_measured(*what)).collect();
        assert!(missing.is_empty(), "no round of docs/benchmarks.json measured {missing:?}: run scripts/bench");
    }

    #[test]
    fn rounds_that_say_otherwise_are_reported() {
        let all = |min, median, max| Summary { median, min, max, rounds: 3 };
        assert_eq!(verdict(Goal::AtLeast(5.0), &all(4.0, 5.5, 6.0)), "met: 10 % above, rounds on both sides");
        assert_eq!(verdict(Goal::AtLeast(5.0), &all(1.0, 2.0, 4.9)), "**missed**: 60 % below");
    }

    #[test]
    fn the_worst_size_against_the_best_of_them_counts() {
        let latency = results(&[
            (Metric::Latency, "tag, unread", 8, 1.0),
            (Metric::Latency, "tag, unread", 64, 2.0),
            (Metric::Latency, "kernel TCP", 8, 10.0),
            (Metric::Latency, "kernel TCP", 64, 8.0),
            (Metric::Latency, "UCX, TCP", 64, 9.0),
        ]);
        let median = |all: Option<Summary>| all.map(|all| all.median);
        assert_eq!(median(ours(&latency).worst(Topology::Host, Metric::Latency, &TCP_STACKS)), Some(0.25));
        let inverted = ours(&latency).worst(Topology::Host, Metric::Latency, &TCP_STACKS).and_then(inverse);
        assert_eq!(median(inverted), Some(4.0));
        let bandwidth = results(&[
            (Metric::Bandwidth, "tag, unread", 8, 1.0),
            (Metric::Bandwidth, "kernel TCP", 8, 0.5),
            (Metric::Bandwidth, "UCX, TCP", 8, 4.0),
        ]);
        assert_eq!(median(ours(&bandwidth).worst(Topology::Host, Metric::Bandwidth, &TCP_STACKS)), Some(0.25));
    }
}
