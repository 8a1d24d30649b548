//! What MPI over the provider takes beside a tagged message of the same port.

use std::fmt::Write;

use crate::reading::{Metric, Point, Topology};
use crate::report::spread;
use crate::results::{ResultKey, Results};
use crate::statistics::Summary;
use crate::tools::mpi;

/// A port, and what a tagged message is called on it. MPI's program does not read what it receives.
const PORTS: [(&str, Topology, &str); 2] =
    [("memif", Topology::Host, "tag, unread"), ("UDP sockets", Topology::Veth, "tag, over UDP")];

/// Lengths of one packet, or of a few: the time of longer messages differs more from round to round than by what is added.
const SIZES: [u64; 4] = [8, 64, 512, 4096];

const INTRODUCTION: &str = "\
    ### What MPI and the provider add\n\n\
    Latency of Open MPI over this stack, less that of a tagged message over the same port in the same round, in us. This is \
    what Open MPI, libfabric and the provider take. Over memif neither receiver reads the message; over UDP sockets that of \
    the tagged message compares it, and MPI's does not.\n\n";

/// The section; nothing where none of it was measured.
pub(crate) fn markdown(results: &Results) -> String {
    let rows: Vec<_> = PORTS.iter().filter_map(|(port, place, tagged)| row(results, port, *place, tagged)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = INTRODUCTION.to_owned();
    let sizes: String = SIZES.iter().map(|size| format!(" {} |", Point::Size(*size))).collect();
    let _ = writeln!(text, "| |{sizes}\n|---|{}", "---|".repeat(SIZES.len()));
    text + &rows.concat() + "\n"
}

fn row(results: &Results, port: &str, place: Topology, tagged: &str) -> Option<String> {
    let added = SIZES.map(|size| added(results, place, tagged, Point::Size(size)));
    added.iter().any(Option::is_some).then(|| {
        let cells: String =
            added.iter().map(|all| format!(" {} |", all.map_or_else(String::new, |all| spread(&all)))).collect();
        format!("| {port} |{cells}\n")
    })
}

fn added(results: &Results, place: Topology, tagged: &str, point: Point) -> Option<Summary> {
    let key = |series| ResultKey::new(place, Metric::Latency, series, point);
    results.difference(&key(mpi::OURS), &key(tagged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn results(readings: &[(usize, Topology, &str, u64, f64)]) -> Results {
        let mut results = Results::default();
        for &(round, place, series, size, value) in readings {
            let series = series.to_owned();
            results.add(round, place, Reading { series, metric: Metric::Latency, point: Point::Size(size), value });
        }
        results
    }

    #[test]
    fn what_is_added_is_that_of_each_round() {
        let text = markdown(&results(&[
            (1, Topology::Host, "tag, unread", 8, 0.5),
            (1, Topology::Host, mpi::OURS, 8, 1.5),
            // A slow round, in both of its halves.
            (2, Topology::Host, "tag, unread", 8, 8.0),
            (2, Topology::Host, mpi::OURS, 8, 8.75),
            (3, Topology::Host, "tag, unread", 8, 0.5),
            (3, Topology::Host, mpi::OURS, 8, 1.25),
        ]));
        assert!(text.contains("| | 8 B | 64 B | 512 B | 4 KiB |\n|---|---|---|---|---|\n"), "{text}");
        assert!(text.contains("| memif | **0.750** (0.750..1.00) |  |  |  |\n"), "{text}");
    }

    #[test]
    fn each_port_has_its_own_tagged_messages() {
        let text = markdown(&results(&[
            (1, Topology::Veth, "tag, unread", 64, 1.0),
            (1, Topology::Veth, "tag, over UDP", 64, 4.0),
            (1, Topology::Veth, mpi::OURS, 64, 5.0),
        ]));
        assert!(text.contains("| UDP sockets |  | **1.00**"), "{text}");
        assert!(!text.contains("memif |"), "{text}");
    }

    #[test]
    fn nothing_is_said_of_what_was_not_measured() {
        assert_eq!(markdown(&results(&[(1, Topology::Host, mpi::OURS, 8, 1.5)])), "");
        // In another round it was measured beside something else.
        assert_eq!(
            markdown(&results(&[(1, Topology::Host, mpi::OURS, 8, 1.5), (2, Topology::Host, "tag, unread", 8, 0.5)])),
            ""
        );
    }
}
