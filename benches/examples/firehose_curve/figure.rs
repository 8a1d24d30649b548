//! The figure: hits on the left, puts per second on the right.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::rows::Rows;

const SIZE: (u32, u32) = (1120, 460);
const LINE: u32 = 2;
const FONT: (&str, u32) = ("sans-serif", 15);
const FIREHOSE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const PINNED: RGBColor = RGBColor(0x00, 0x9e, 0x73);
const REGISTERED: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Points = Vec<(f64, f64)>;

/// A panel's lines, each with its name.
struct Panel {
    caption: &'static str,
    most: f64,
    lines: Vec<(&'static str, RGBColor, Points)>,
    legend: SeriesLabelPosition,
}

/// Writes it.
pub(crate) fn draw(path: &Path, rows: &Rows) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    panel(&left, &hits(rows))?;
    panel(&right, &rates(rows))?;
    area.present()?;
    Ok(())
}

fn hits(rows: &Rows) -> Panel {
    let hits = rows.firehose.iter().map(|row| (row.share, row.measured.hit_rate * 100.0)).collect();
    let pins = rows.firehose.iter().map(|row| (row.share, row.measured.pins * 100.0)).collect();
    let lines = vec![("hits", FIREHOSE, hits), ("registrations", REGISTERED, pins)];
    Panel { caption: "of 100 puts", most: 105.0, lines, legend: SeriesLabelPosition::MiddleLeft }
}

fn rates(rows: &Rows) -> Panel {
    let millions = |rate: f64| rate / 1e6;
    let level = |rate: f64| rows.firehose.iter().map(|row| (row.share, millions(rate))).collect();
    let ours = rows.firehose.iter().map(|row| (row.share, millions(row.measured.rate))).collect();
    let lines = vec![
        ("all registered", PINNED, level(rows.exposed.rate)),
        ("Firehose", FIREHOSE, ours),
        ("registered each time", REGISTERED, level(rows.registered.rate)),
    ];
    let most = millions(rows.exposed.rate) * 1.1;
    Panel { caption: "million puts per second of a processor", most, lines, legend: SeriesLabelPosition::MiddleRight }
}

fn panel(area: &Area<'_>, panel: &Panel) -> Result<(), Box<dyn Error>> {
    let shares = || panel.lines.iter().flat_map(|(.., points)| points.iter().map(|(share, _)| *share));
    let (least, most) = shares().fold((f64::MAX, 0.0_f64), |(least, most), share| (least.min(share), most.max(share)));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(panel.caption, ("sans-serif", 18))
        .x_label_area_size(42)
        .y_label_area_size(52)
        .build_cartesian_2d((least..most).log_scale().base(2.0), 0.0..panel.most)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(FONT)
        .x_desc("working set / M")
        .x_label_formatter(&|share| format!("{share}"))
        .y_label_formatter(&|value| format!("{value}"))
        .draw()?;
    for (name, colour, points) in &panel.lines {
        let style = colour.stroke_width(LINE);
        let line = LineSeries::new(points.iter().copied(), style).point_size(3);
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
        chart.draw_series(line)?.label(*name).legend(legend);
    }
    let mut labels = chart.configure_series_labels();
    labels.position(panel.legend.clone()).label_font(FONT).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}
