//! The figures: which series of which place each shows.

use std::path::Path;

use plotters::style::RGBColor;

use crate::charts::{self, Chart, ChartLine, ChartScale};
use crate::reading::{Metric, Point, Topology};
use crate::results::{ResultKey, Results};
use crate::tools::mpi;

/// A file and what is in it.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
}

/// One panel: a metric of some series in a place. The tables have all series.
struct Panel {
    /// What it is of, for its caption.
    of: &'static str,
    place: Topology,
    metric: Metric,
    scale: ChartScale,
    /// Beside bare frames, which every panel by size has.
    series: &'static [&'static str],
}

/// A panel has no more lines than these: more cannot be distinguished.
const MOST_LINES: usize = 7;

pub(crate) const LATENCY: Figure = Figure { file: "benchmarks-latency.svg", title: "Latency by size, on one host" };
pub(crate) const BANDWIDTH: Figure =
    Figure { file: "benchmarks-bandwidth.svg", title: "Bandwidth by size, on one host" };
pub(crate) const VHOST: Figure =
    Figure { file: "benchmarks-vhost.svg", title: "Latency and bandwidth by size, over vhost" };
pub(crate) const NAMESPACES: Figure =
    Figure { file: "benchmarks-namespaces.svg", title: "Latency and bandwidth by size, between two namespaces" };
pub(crate) const GUESTS: Figure =
    Figure { file: "benchmarks-guests.svg", title: "Latency and bandwidth by size, between two guests" };
pub(crate) const CONNECTIONS: Figure = Figure { file: "benchmarks-connections.svg", title: "Rate by connections" };
pub(crate) const LOSS: Figure = Figure { file: "benchmarks-loss.svg", title: "Goodput by loss" };

/// What stands beside other stacks. What they receive is not read, so that ours are the rows that do without as well.
const BESIDE_OTHERS: [&str; 6] =
    ["tag, unread", mpi::OURS, "kernel TCP", "UCX, TCP", "Open MPI, TCP", "libfabric, udp;ofi_rxd"];
const BETWEEN_NAMESPACES: [&str; 6] =
    ["tag, unread", "tag, over UDP", mpi::OURS, "kernel TCP", "UCX, TCP", "libfabric, udp;ofi_rxd"];
const OPERATIONS: [&str; 6] = ["send", "write", "read", "tag", "put", "tag, over UDP"];
const VERBS_OF_BOTH: [&str; 6] =
    ["send, unread", "write, unread", "read, unread", "rdma_rxe, send", "rdma_rxe, write", "rdma_rxe, read"];
const LOSSY: [&str; 5] = [
    "write of 64 KiB",
    "tag of 64 KiB",
    "write, over UDP of 64 KiB",
    "tag, over UDP of 64 KiB",
    "kernel TCP of 64 KiB",
];

const LATENCIES: [Panel; 2] = [
    latency(Topology::Host, "One host, beside other stacks", &BESIDE_OTHERS),
    latency(Topology::Host, "One host, operations of this stack", &OPERATIONS),
];
const BANDWIDTHS: [Panel; 2] = [
    bandwidth(Topology::Host, "One host, beside other stacks", &BESIDE_OTHERS),
    bandwidth(Topology::Host, "One host, operations of this stack", &OPERATIONS),
];

/// The figures with their panels, from above.
const FIGURES: [(Figure, &[Panel]); 7] = [
    (LATENCY, &LATENCIES),
    (BANDWIDTH, &BANDWIDTHS),
    (VHOST, &both(Topology::Vhost, "One host, over vhost", &["send", "write", "tag"])),
    (NAMESPACES, &both(Topology::Veth, "Two namespaces", &BETWEEN_NAMESPACES)),
    (GUESTS, &both(Topology::Guests, "Two guests", &VERBS_OF_BOTH)),
    (CONNECTIONS, &[panel(Metric::Rate, ChartScale::Counts, "One host, messages of 64 B", &["send", "kernel TCP"])]),
    (LOSS, &[panel(Metric::Bandwidth, ChartScale::PerCent, "One host, messages of 64 KiB", &LOSSY)]),
];

const fn latency(place: Topology, of: &'static str, series: &'static [&'static str]) -> Panel {
    Panel { place, ..panel(Metric::Latency, ChartScale::Bytes, of, series) }
}

const fn bandwidth(place: Topology, of: &'static str, series: &'static [&'static str]) -> Panel {
    Panel { place, ..panel(Metric::Bandwidth, ChartScale::Bytes, of, series) }
}

const fn both(place: Topology, of: &'static str, series: &'static [&'static str]) -> [Panel; 2] {
    [latency(place, of, series), bandwidth(place, of, series)]
}

const fn panel(metric: Metric, scale: ChartScale, of: &'static str, series: &'static [&'static str]) -> Panel {
    Panel { of, place: Topology::Host, metric, scale, series }
}

/// The colours: bare frames grey, ours warm, others cool.
const COLOURS: [(&str, RGBColor); 17] = [
    ("raw", RGBColor(0x77, 0x77, 0x77)),
    ("raw, touched", RGBColor(0x77, 0x77, 0x77)),
    ("tag", RGBColor(0xb0, 0x10, 0x10)),
    ("send", RGBColor(0xd5, 0x5e, 0x00)),
    ("write", RGBColor(0xc9, 0x8a, 0x00)),
    ("read", RGBColor(0x8c, 0x56, 0x4b)),
    ("put", RGBColor(0xcc, 0x4c, 0x92)),
    ("tag, over UDP", RGBColor(0xee, 0x6a, 0x6a)),
    ("write, over UDP", RGBColor(0xe0, 0xb0, 0x50)),
    (mpi::OURS, RGBColor(0x7a, 0x10, 0x7a)),
    ("kernel TCP", RGBColor(0x00, 0x72, 0xb2)),
    ("UCX, TCP", RGBColor(0x30, 0xa8, 0xd8)),
    ("Open MPI, TCP", RGBColor(0x4a, 0x4a, 0xd0)),
    ("libfabric, udp;ofi_rxd", RGBColor(0x2c, 0xa0, 0x2c)),
    ("rdma_rxe, send", RGBColor(0x00, 0x72, 0xb2)),
    ("rdma_rxe, write", RGBColor(0x30, 0xa8, 0xd8)),
    ("rdma_rxe, read", RGBColor(0x2c, 0xa0, 0x2c)),
];
/// Of those, bare frames and ours are the first, and have the wider lines.
const OURS: usize = 10;

/// Writes those figures that there is something for, and returns them.
pub(crate) fn draw_all(folder: &Path, results: &Results) -> Result<Vec<Figure>, Box<dyn std::error::Error>> {
    let mut drawn = Vec::new();
    for (figure, panels) in FIGURES {
        let charts: Vec<_> = panels.iter().filter_map(|panel| panel.chart(results)).collect();
        if !charts.is_empty() {
            charts::draw(&folder.join(figure.file), &charts)?;
            drawn.push(figure);
        }
    }
    Ok(drawn)
}

impl Panel {
    /// What is drawn of the results; `None` where nothing was measured.
    fn chart(&self, results: &Results) -> Option<Chart<'static>> {
        let lines: Vec<_> = self.names().filter_map(|name| self.line(results, name)).take(MOST_LINES).collect();
        let side = if self.metric == Metric::Latency { "lower" } else { "higher" };
        let caption = format!("{}: {}, {} ({side} is better)", self.of, self.metric.name(), self.metric.unit());
        (!lines.is_empty()).then(|| Chart { caption, axis: self.axis(), scale: self.scale, lines })
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.bare_frames().into_iter().chain(self.series.iter().copied())
    }

    /// The latency of frames does not depend on who looks at them; their bandwidth does.
    fn bare_frames(&self) -> Option<&'static str> {
        let is_looked_at = self.metric == Metric::Bandwidth && self.place != Topology::Guests;
        let name = if is_looked_at { "raw, touched" } else { "raw" };
        (self.scale == ChartScale::Bytes).then_some(name)
    }

    fn line(&self, results: &Results, name: &'static str) -> Option<ChartLine<'static>> {
        let value = |point| Some(results.summary(&ResultKey::new(self.place, self.metric, name, point))?.median);
        let points = results.points(self.place, self.metric, |point| self.is_on_axis(point)).into_iter();
        let points: Vec<_> = points.filter_map(|point| Some((point.position(), value(point)?))).collect();
        let which = colour_of(name)?;
        // The caption says of how many bytes.
        let name = verb(name);
        let width = if which < OURS { 3 } else { 2 };
        (!points.is_empty()).then(|| ChartLine { name, colour: COLOURS[which].1, width, points })
    }

    fn is_on_axis(&self, point: Point) -> bool {
        match self.scale {
            ChartScale::Bytes => matches!(point, Point::Size(_)),
            ChartScale::Counts => matches!(point, Point::Connections(_)),
            ChartScale::PerCent => matches!(point, Point::Loss(_)),
        }
    }

    const fn axis(&self) -> &'static str {
        match self.scale {
            ChartScale::Bytes => "bytes of a message",
            ChartScale::Counts => "connections, which take turns",
            ChartScale::PerCent => "frames lost",
        }
    }
}

/// Whose colour a series has. What follows the verb changes none, unless the colours name it.
fn colour_of(name: &str) -> Option<usize> {
    let place = |name: &str| COLOURS.iter().position(|(drawn, _)| *drawn == name);
    place(verb(name)).or_else(|| place(verb(name).strip_suffix(", unread")?))
}

/// A series without the bytes that its name ends with.
fn verb(name: &str) -> &str {
    name.split_once(" of ").map_or(name, |(verb, _)| verb)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::reading::Reading;
    use crate::record;

    fn panels() -> impl Iterator<Item = &'static Panel> {
        FIGURES.iter().flat_map(|(_, panels)| panels.iter())
    }

    #[test]
    fn a_series_has_the_colour_of_its_verb() {
        let [send, tcp] = ["send", "kernel TCP"].map(|name| colour_of(name).expect("it is drawn"));
        assert_eq!((colour_of("send, unread"), colour_of("send of 64 KiB")), (Some(send), Some(send)));
        assert_eq!((colour_of("kernel TCP of 64 KiB"), colour_of("memcpy")), (Some(tcp), None));
        assert_ne!(colour_of("tag, over UDP of 64 KiB"), colour_of("tag of 64 KiB"));
        assert!(send < OURS && tcp >= OURS);
    }

    #[test]
    fn a_panel_has_few_lines_and_each_has_a_colour_of_its_own() {
        for panel in panels() {
            let names: Vec<_> = panel.names().collect();
            let colour = |name: &&str| COLOURS[colour_of(name).expect("a colour")].1;
            let colours: BTreeSet<_> =
                names.iter().map(colour).map(|RGBColor(red, green, blue)| (red, green, blue)).collect();
            assert!(colours.len() == names.len() && names.len() <= MOST_LINES, "{names:?}");
        }
    }

    /// A name that no command gives would be a line that is never drawn.
    #[test]
    fn the_committed_report_has_every_series_that_is_drawn() {
        let run = record::tests::committed();
        let measured: BTreeSet<_> = run.results.keys().map(|key| (key.place, key.series.as_str())).collect();
        let drawn: BTreeSet<_> = panels().flat_map(|panel| panel.names().map(|name| (panel.place, name))).collect();
        let missing: Vec<_> = drawn.difference(&measured).collect();
        assert!(missing.is_empty(), "docs/benchmarks.json has no {missing:?}");
    }

    #[test]
    fn figures_name_their_lines_and_no_empty_one_is_drawn() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = Results::default();
        assert!(draw_all(folder.path(), &results).expect("nothing to draw").is_empty());
        for (series, value) in [("raw", 0.5), ("tag", 1.0)] {
            for bytes in [8, 4096] {
                results.add(1, Topology::Host, Reading::new(series, Metric::Latency, Point::Size(bytes), value));
            }
        }
        for hundredths in [0, 100, 500] {
            let reading = Reading::new("write of 64 KiB", Metric::Bandwidth, Point::Loss(hundredths), 3.0);
            results.add(1, Topology::Host, reading);
        }
        results.add(1, Topology::Host, Reading::new("send", Metric::Rate, Point::Connections(1), 3.0));
        let drawn = draw_all(folder.path(), &results).expect("a figure");
        assert_eq!(
            drawn.iter().map(|figure| figure.file).collect::<Vec<_>>(),
            [LATENCY.file, CONNECTIONS.file, LOSS.file]
        );
        let text = |figure: &Figure| std::fs::read_to_string(folder.path().join(figure.file)).expect("it was written");
        let latency = text(&drawn[0]);
        assert!(latency.contains("raw") && latency.contains("tag") && latency.contains("4 KiB"), "{latency}");
        assert!(text(&drawn[2]).contains("\nwrite\n"), "{}", text(&drawn[2]));
    }
}
