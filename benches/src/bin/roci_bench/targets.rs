//! What this stack sets out to reach, as ratios within one run: absolute figures are those of a machine and an hour.

use crate::reading::{Metric, Place, Point};
use crate::results::{Key, Results};

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
    measured: fn(&Results) -> Option<f64>,
    /// What profiles blame where it is missed.
    blame: &'static str,
}

/// What became of a target.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub(crate) what: &'static str,
    pub(crate) goal: String,
    pub(crate) measured: Option<f64>,
    /// Met, missed or not measured, and by how much.
    pub(crate) judgement: String,
    /// Of one that is missed, what profiles blame.
    pub(crate) blame: Option<&'static str>,
}

/// All targets, in the order in which the report lists them.
const TARGETS: &[Target] = &[
    Target {
        what: "SEND of 8 B, latency of bare frames (memif, ICRC on)",
        goal: Goal::AtMost(1.35),
        measured: |results| ratio(results, Place::Host, Metric::Latency, EIGHT, "send", "raw"),
        blame: PING_PONG,
    },
    Target {
        what: "tagged message of 8 B, latency of bare frames",
        goal: Goal::AtMost(1.5),
        measured: |results| ratio(results, Place::Host, Metric::Latency, EIGHT, "tag", "raw"),
        blame: PING_PONG,
    },
    Target {
        what: "RDMA WRITE of 1 MiB, bandwidth of bare frames that are touched",
        goal: Goal::AtLeast(0.6),
        measured: |results| ratio(results, Place::Host, Metric::Bandwidth, MEGABYTE, "write", "raw, touched"),
        blame: STREAM,
    },
    Target {
        what: "the same with the ICRC off",
        goal: Goal::AtLeast(0.85),
        measured: |results| ratio(results, Place::Host, Metric::Bandwidth, MEGABYTE, "write, no ICRC", "raw, touched"),
        blame: STREAM,
    },
    Target {
        what: "SENDs of 64 B, million a second on a processor",
        goal: Goal::AtLeast(5.0),
        measured: |results| {
            let key = Key::new(Place::Host, Metric::Rate, "send", Point::Size(64));
            results.summary(&key).map(|rate| rate.median)
        },
        blame: RATE,
    },
    Target {
        what: "1,024 connections, rate of one",
        goal: Goal::AtLeast(0.9),
        measured: many_connections,
        blame: CONNECTIONS,
    },
    Target {
        what: "rdma_rxe between the same guests: our latency, of its, at the worst size",
        goal: Goal::AtMost(1.0 / 3.0),
        measured: |results| worst(results, Place::Guests, Metric::Latency, "send, unread", &["rdma_rxe, send"]),
        blame: GUESTS,
    },
    Target {
        what: "rdma_rxe: our message rate, of its, at 64 B",
        goal: Goal::AtLeast(5.0),
        measured: |results| {
            ratio(results, Place::Guests, Metric::Rate, Point::Size(64), "send, unread", "rdma_rxe, send")
        },
        blame: GUESTS,
    },
    Target {
        what: "rdma_rxe: our bandwidth for the same processor time, of its, at the worst size",
        goal: Goal::AtLeast(3.0),
        measured: |results| {
            worst(results, Place::Guests, Metric::Cpu, "write, unread", &["rdma_rxe, write"]).map(|ratio| 1.0 / ratio)
        },
        blame: GUESTS,
    },
    Target {
        what: "TCP stacks on loopback: lowest latency of theirs, of a tagged message's, at the worst size up to 4 KiB",
        goal: Goal::AtLeast(5.0),
        measured: |results| {
            let is_short = |point| matches!(point, Point::Size(bytes) if bytes <= 4096);
            worst_at(results, Place::Host, Metric::Latency, "tag, unread", TCP_STACKS, is_short)
                .map(|ratio| 1.0 / ratio)
        },
        blame: TAGGED,
    },
    Target {
        what: "TCP stacks on loopback: bandwidth of a tagged message, of the highest of theirs, at the worst size",
        goal: Goal::AtLeast(1.0),
        measured: |results| worst(results, Place::Host, Metric::Bandwidth, "tag, unread", TCP_STACKS),
        blame: TAGGED,
    },
    Target {
        what: "libfabric over udp;ofi_rxd: its latency, of a tagged message's, at the worst size",
        goal: Goal::AtLeast(7.0),
        measured: |results| {
            worst(results, Place::Host, Metric::Latency, "tag, unread", &["libfabric, udp;ofi_rxd"])
                .map(|ratio| 1.0 / ratio)
        },
        blame: TAGGED,
    },
    Target {
        what: "libfabric over udp;ofi_rxd: our bandwidth, of its, at the worst size",
        goal: Goal::AtLeast(10.0),
        measured: |results| worst(results, Place::Host, Metric::Bandwidth, "tag, unread", &["libfabric, udp;ofi_rxd"]),
        blame: TAGGED,
    },
];

const EIGHT: Point = Point::Size(8);
const MEGABYTE: Point = Point::Size(1 << 20);
const TCP_STACKS: &[&str] = &["kernel TCP", "UCX, TCP", "libfabric, tcp", "MPICH, TCP", "Open MPI, TCP"];

// What profiles of this stack have shown (`perf record -e cpu-clock`); where one is missed, the report says so.
const PING_PONG: &str = "\
     Latency of 8 B: of a ping-pong's samples 35 % are in memif's receive and 15 % in its transmit, most of them at \
     the words of the ring that both processes write, for which bare frames wait as well; 20 % are in polls of ours \
     that find nothing. Of what a message alone needs, the ICRC has 2.5 %, parsing 1.9 % and the acknowledgement 1.6 \
     %: no single thing is left.";
const STREAM: &str = "\
     Streams of 1 MiB: the sender works without rest, and the receiver waits for it in a quarter of its samples. Of \
     the sender's, 42 % are in memif's copy into the ring, 18 % in the ICRC and 8 % where a packet buffer lets the \
     payload go, which waits for the copy's stores. Without an ICRC the sender copies the payload once more (26 %), \
     for only an ICRC tells when a payload that is sent from where it is has changed meanwhile; doing without that \
     copy was no faster, as whoever reads the payload first is who waits for it.";
const RATE: &str = "\
     SENDs of 64 B: memif has 24 % of the samples, the ICRC 8 %, parsing and the completion queue 4 % each; nothing \
     else stands out.";
const CONNECTIONS: &str = "\
     1,024 connections: from 64 on every message has an acknowledgement of its own, where one connection's share one; \
     that is most of it (0.85 at 64), and the ICRC, parsing and looking for who owes one have 15 % of the samples. \
     The rest is spread over all that looks at a connection, whose 3 KiB are no more in the second cache when its \
     turn comes; asking for them ahead bought nothing.";
const GUESTS: &str = "\
     Between guests (`perf record -a` on their host): 52 % of QEMU's samples are in QEMU itself, which translates \
     code and looks it up, 32 % in what it has translated and 12 % in the kernel, so that what is compared is for the \
     most part the emulator. Long messages end at what the emulated NIC carries, whoever sends them, and short ones \
     at the turns that two guests and QEMU's own threads take on the same processors, of which a guest that polls \
     leaves fewer.";
const TAGGED: &str = "\
     Tagged messages beside TCP: the latency falls short at every size, of a kernel whose sockets are polled, and \
     most at 4 KiB, where memif's two copies, two of the eager protocol's and the ICRC at both ends are added: even \
     bare frames have but a third of TCP's latency there. The bandwidth falls short at 64 KiB and 1 MiB: of either \
     process's samples 48 % are in its copy from or to memif's ring, which TCP's loopback makes as well, and 14 to 17 \
     % in the ICRC, where TCP's loopback checks nothing.";

/// The verdicts.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    let judge = |target: &Target| {
        let measured = (target.measured)(results).filter(|value| value.is_finite() && *value > 0.0);
        let (goal, margin) = match target.goal {
            Goal::AtMost(most) => (format!("<= {most:.2}"), measured.map(|value| most / value)),
            Goal::AtLeast(least) => (format!(">= {least:.2}"), measured.map(|value| value / least)),
        };
        let blame = margin.filter(|&margin| margin < 1.0).map(|_| target.blame);
        Verdict { what: target.what, goal, measured, judgement: verdict(margin), blame }
    };
    TARGETS.iter().map(judge).collect()
}

/// From how many times better than wanted it is.
fn verdict(margin: Option<f64>) -> String {
    match margin {
        None => "not measured".into(),
        Some(margin) if margin >= 1.0 => format!("met, {:.0} % to spare", (margin - 1.0) * 100.0),
        Some(margin) => format!("**missed** by {:.0} %", (1.0 / margin - 1.0) * 100.0),
    }
}

fn ratio(results: &Results, place: Place, metric: Metric, point: Point, ours: &str, theirs: &str) -> Option<f64> {
    let key = |series| Key::new(place, metric, series, point);
    results.ratio(&key(ours), &key(theirs)).map(|ratio| ratio.median)
}

fn many_connections(results: &Results) -> Option<f64> {
    let key = |count| Key::new(Place::Host, Metric::Rate, "send", Point::Connections(count));
    results.ratio(&key(1024), &key(1)).map(|ratio| ratio.median)
}

fn worst(results: &Results, place: Place, metric: Metric, ours: &str, theirs: &[&str]) -> Option<f64> {
    worst_at(results, place, metric, ours, theirs, |point| matches!(point, Point::Size(_)))
}

/// The ratio to whichever of theirs does best at the size where ours does worst.
fn worst_at(
    results: &Results,
    place: Place,
    metric: Metric,
    ours: &str,
    theirs: &[&str],
    of: impl Fn(Point) -> bool,
) -> Option<f64> {
    let is_smaller_better = matches!(metric, Metric::Latency | Metric::Cpu);
    let points = results.points(place, metric, of);
    let ratios = points
        .iter()
        .flat_map(|&point| theirs.iter().filter_map(move |theirs| ratio(results, place, metric, point, ours, theirs)));
    ratios.reduce(|one, other| if is_smaller_better { one.max(other) } else { one.min(other) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn results(readings: &[(Metric, &str, u64, f64)]) -> Results {
        let mut results = Results::default();
        for &(metric, series, bytes, value) in readings {
            results.add(1, Place::Host, Reading::new(series, metric, Point::Size(bytes), value));
        }
        results
    }

    #[test]
    fn a_target_is_met_or_missed_by_so_much_or_not_measured() {
        let of = |raw, send| {
            let results = results(&[(Metric::Latency, "raw", 8, raw), (Metric::Latency, "send", 8, send)]);
            judge(&results).swap_remove(0)
        };
        assert_eq!(of(1.0, 1.35).judgement, "met, 0 % to spare");
        assert_eq!(of(1.0, 1.0).judgement, "met, 35 % to spare");
        assert_eq!(of(1.0, 2.7).judgement, "**missed** by 100 %");
        assert_eq!(of(0.0, 1.0).judgement, "not measured");
        assert!(judge(&Results::default()).iter().all(|verdict| verdict.judgement == "not measured"));
    }

    #[test]
    fn the_worst_size_against_the_best_of_them_counts() {
        let latency = results(&[
            (Metric::Latency, "tag", 8, 1.0),
            (Metric::Latency, "tag", 64, 2.0),
            (Metric::Latency, "kernel TCP", 8, 10.0),
            (Metric::Latency, "kernel TCP", 64, 8.0),
            (Metric::Latency, "UCX, TCP", 64, 9.0),
        ]);
        assert_eq!(worst(&latency, Place::Host, Metric::Latency, "tag", TCP_STACKS), Some(0.25));
        let bandwidth = results(&[
            (Metric::Bandwidth, "tag", 8, 1.0),
            (Metric::Bandwidth, "kernel TCP", 8, 0.5),
            (Metric::Bandwidth, "UCX, TCP", 8, 4.0),
        ]);
        assert_eq!(worst(&bandwidth, Place::Host, Metric::Bandwidth, "tag", TCP_STACKS), Some(0.25));
    }
}
