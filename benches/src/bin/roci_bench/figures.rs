//! The figures: latency and bandwidth by size, rate by connections, goodput by loss.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::reading::{Metric, Point, Topology, show_bytes};
use crate::results::{ResultKey, Results};
use crate::tools::mpi;

const PANEL: (u32, u32) = (640, 480);
const FONT: (&str, u32) = ("sans-serif", 13);
/// The series that are drawn, ours with the wider lines, and their colours; tables have more.
const DRAWN: [(&str, RGBColor); 17] = [
    ("raw", RGBColor(0x99, 0x99, 0x99)),
    ("raw, touched", RGBColor(0x55, 0x55, 0x55)),
    ("send", RGBColor(0xd5, 0x5e, 0x00)),
    ("write", RGBColor(0xe6, 0x9f, 0x00)),
    ("tag", RGBColor(0xb0, 0x10, 0x10)),
    ("tag, unread", RGBColor(0xf0, 0x80, 0x80)),
    ("read", RGBColor(0x8c, 0x56, 0x4b)),
    (mpi::OURS, RGBColor(0x60, 0x10, 0x60)),
    ("shared memory", RGBColor(0xbb, 0xbb, 0x22)),
    ("kernel TCP", RGBColor(0x00, 0x72, 0xb2)),
    ("kernel UDP", RGBColor(0x17, 0xbe, 0xcf)),
    ("UCX, TCP", RGBColor(0x56, 0xb4, 0xe9)),
    ("libfabric, tcp", RGBColor(0x00, 0x9e, 0x73)),
    ("libfabric, udp;ofi_rxd", RGBColor(0x7a, 0xc9, 0x43)),
    ("MPICH, TCP", RGBColor(0xcc, 0x79, 0xa7)),
    ("Open MPI, TCP", RGBColor(0x6a, 0x3d, 0x9a)),
    ("Open MPI, udp;ofi_rxd", RGBColor(0x2c, 0xa0, 0x2c)),
];
/// Of those, ours are the first ...
const OURS: usize = 8;
/// ... and what is not among them is Linux's verbs, or stands alone in its figure.
const OTHERS: [RGBColor; 4] =
    [RGBColor(0x00, 0x00, 0x00), RGBColor(0x00, 0x72, 0xb2), RGBColor(0x00, 0x9e, 0x73), RGBColor(0xcc, 0x79, 0xa7)];

/// The area of an SVG file that a chart is drawn in.
type ChartArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing.
type DrawResult = Result<(), Box<dyn Error>>;

/// One panel: a metric of some series in a place.
struct Panel<'a> {
    caption: String,
    place: Topology,
    metric: Metric,
    axis: &'a str,
    is_on_axis: fn(Point) -> bool,
}

/// A file and what is in it.
pub(crate) struct Figure {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
}

pub(crate) const LATENCY: Figure = Figure { file: "benchmarks-latency.svg", title: "Latency by size" };
pub(crate) const BANDWIDTH: Figure = Figure { file: "benchmarks-bandwidth.svg", title: "Bandwidth by size" };
pub(crate) const CONNECTIONS: Figure = Figure { file: "benchmarks-connections.svg", title: "Rate by connections" };
pub(crate) const LOSS: Figure = Figure { file: "benchmarks-loss.svg", title: "Goodput by loss" };

/// Writes those figures that there is something for, and returns them.
pub(crate) fn draw_all(folder: &Path, results: &Results) -> Result<Vec<Figure>, Box<dyn Error>> {
    let by_size = |place, metric: Metric| Panel {
        caption: format!("{}: {}, {}", place_name(place), metric.name(), metric.unit()),
        place,
        metric,
        axis: "bytes of a message",
        is_on_axis: |point| matches!(point, Point::Size(_)),
    };
    let sized = |metric| Topology::ALL.map(|place| by_size(place, metric)).into_iter().collect();
    let connections = Panel {
        caption: "memif, and TCP over loopback: million messages of 64 B a second".into(),
        place: Topology::Host,
        metric: Metric::Rate,
        axis: "connections, which take turns",
        is_on_axis: |point| matches!(point, Point::Connections(_)),
    };
    let loss = Panel {
        caption: "memif, and TCP over loopback: goodput, GB/s".into(),
        place: Topology::Host,
        metric: Metric::Bandwidth,
        axis: "frames lost, per cent",
        is_on_axis: |point| matches!(point, Point::Loss(_)),
    };
    let all: [(Figure, Vec<Panel<'_>>); 4] = [
        (LATENCY, sized(Metric::Latency)),
        (BANDWIDTH, sized(Metric::Bandwidth)),
        (CONNECTIONS, vec![connections]),
        (LOSS, vec![loss]),
    ];
    let mut drawn = Vec::new();
    for (figure, mut panels) in all {
        panels.retain(|panel| !panel.series(results).is_empty());
        if !panels.is_empty() {
            draw(&folder.join(figure.file), &panels, results)?;
            drawn.push(figure);
        }
    }
    Ok(drawn)
}

const fn place_name(place: Topology) -> &'static str {
    match place {
        Topology::Host => "one host (memif, loopback)",
        Topology::Vhost => "one host (vhost)",
        Topology::Veth => "two namespaces (veth)",
        Topology::Guests => "two guests",
    }
}

fn draw(path: &Path, panels: &[Panel<'_>], results: &Results) -> DrawResult {
    let columns = panels.len().min(2);
    let rows = panels.len().div_ceil(columns);
    let area = SVGBackend::new(path, (PANEL.0 * columns as u32, PANEL.1 * rows as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    for (panel, part) in panels.iter().zip(area.split_evenly((rows, columns))) {
        panel.draw(&part, results)?;
    }
    area.present()?;
    Ok(())
}

impl Panel<'_> {
    fn series<'r>(&self, results: &'r Results) -> Vec<&'r str> {
        let mut series = results.series(self.place, self.metric, self.is_on_axis);
        if matches!(self.place, Topology::Host | Topology::Veth | Topology::Vhost) && self.is_by_size() {
            // The latency of frames does not depend on who looks at them; their bandwidth does.
            let is_other = |name: &str| name == if self.metric == Metric::Latency { "raw, touched" } else { "raw" };
            series.retain(|name| DRAWN.iter().any(|(drawn, _)| drawn == name) && !is_other(name));
        }
        series
    }

    fn is_by_size(&self) -> bool {
        (self.is_on_axis)(Point::Size(1))
    }

    fn points(&self, results: &Results, series: &str) -> Vec<(Point, f64)> {
        let key = |point| ResultKey::new(self.place, self.metric, series, point);
        let points = results.points(self.place, self.metric, self.is_on_axis).into_iter();
        points.filter_map(|point| Some((point, results.summary(&key(point))?.median))).collect()
    }

    /// Loss is drawn as it is, from 0 on; all else in powers of two.
    fn draw(&self, area: &ChartArea<'_>, results: &Results) -> DrawResult {
        let lines: Vec<_> = self.series(results).into_iter().map(|name| (name, self.points(results, name))).collect();
        let values = lines.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
        let (least, most) =
            values.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| (least.min(value), most.max(value)));
        let positions: Vec<f64> =
            results.points(self.place, self.metric, self.is_on_axis).iter().map(|point| point.position()).collect();
        let (first, last) = (positions.first().copied().unwrap_or(1.0), positions.last().copied().unwrap_or(1.0));
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(12)
            .margin_right(40)
            .caption(&self.caption, ("sans-serif", 16))
            .x_label_area_size(44)
            .y_label_area_size(56);
        if self.metric == Metric::Bandwidth && first == 0.0 {
            let chart = builder.build_cartesian_2d(0.0..last * 1.02, 0.0..most * 1.15)?;
            return self.fill_in(chart, &lines, |x| format!("{x}"));
        }
        let (from, to) = (first.max(1.0), last.max(first.max(1.0) * 2.0));
        let is_bytes = matches!(lines[0].1[0].0, Point::Size(_));
        let label = move |x: f64| if is_bytes { show_bytes(x.round() as u64) } else { format!("{x:.0}") };
        let x = (from..to).log_scale().base(2.0);
        if is_bytes {
            let chart = builder.build_cartesian_2d(x, (least * 0.7..most * 1.4).log_scale())?;
            self.fill_in(chart, &lines, label)
        } else {
            let chart = builder.build_cartesian_2d(x, 0.0..most * 1.15)?;
            self.fill_in(chart, &lines, label)
        }
    }

    fn fill_in<'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
        lines: &[(&str, Vec<(Point, f64)>)],
        label: impl Fn(f64) -> String,
    ) -> DrawResult
    where
        X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style(FONT)
            .x_desc(self.axis)
            .x_label_formatter(&|x| label(*x))
            .y_label_formatter(&|y| show_value(*y))
            .draw()?;
        for (index, (name, points)) in lines.iter().enumerate() {
            let drawn = colour_of(name);
            let colour = drawn.map_or(OTHERS[index % OTHERS.len()], |place| DRAWN[place].1);
            let style = colour.stroke_width(if drawn.is_some_and(|place| place >= OURS) { 1 } else { 3 });
            let points = points.iter().map(|(point, value)| (point.position(), *value));
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style);
            chart.draw_series(LineSeries::new(points, style).point_size(3))?.label(*name).legend(legend);
        }
        let place = if self.metric == Metric::Latency {
            SeriesLabelPosition::UpperLeft
        } else {
            SeriesLabelPosition::LowerRight
        };
        chart.configure_series_labels().position(place).label_font(FONT).background_style(WHITE.mix(0.7)).draw()?;
        Ok(())
    }
}

/// Whose colour a series has: what ours are called beside their verb, or behind it, changes none.
fn colour_of(name: &str) -> Option<usize> {
    let place = |name: &str| DRAWN.iter().position(|(drawn, _)| *drawn == name);
    place(name).or_else(|| {
        let verb = name.split_once(" of ").map_or(name, |(verb, _)| verb);
        place(verb).or_else(|| place(verb.strip_suffix(", unread")?))
    })
}

/// As many digits as say something.
fn show_value(value: f64) -> String {
    let digits = if value >= 10.0 { 0 } else { 4 };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    #[test]
    fn a_series_has_the_colour_of_its_verb() {
        let [send, tcp] = ["send", "kernel TCP"].map(|name| colour_of(name).expect("it is drawn"));
        assert_eq!((colour_of("send, unread"), colour_of("send of 64 KiB")), (Some(send), Some(send)));
        assert_eq!((colour_of("kernel TCP of 64 KiB"), colour_of("rdma_rxe, send")), (Some(tcp), None));
        assert!(send < OURS && tcp >= OURS);
    }

    #[test]
    fn values_are_shown_without_digits_that_say_nothing() {
        let values = [0.0, 0.1 + 0.2, 0.001, 2.5, 10.0, 20_000.0];
        assert_eq!(values.map(show_value), ["0", "0.3", "0.001", "2.5", "10", "20000"]);
    }

    #[test]
    fn figures_show_every_series_that_was_measured_and_no_empty_one_is_drawn() {
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
        assert!(text(&drawn[2]).contains("write of 64 KiB"));
    }
}
