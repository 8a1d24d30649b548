//! The figure: latency on the left, bandwidth on the right.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::rows::{Kind, Rows, SERIES, show};

const SIZE: (u32, u32) = (1120, 460);
const LINE: u32 = 2;
const FONT: (&str, u32) = ("sans-serif", 15);
/// Colours of the bare port and the steps; without colours their order at the right edge distinguishes them.
const COLOURS: [RGBColor; SERIES.len()] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes it.
pub(crate) fn draw(path: &Path, rows: &Rows) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    panel(&left, rows, Kind::Latency, "half a round trip, p50, us")?;
    panel(&right, rows, Kind::Bandwidth, "bandwidth, GB/s")?;
    area.present()?;
    Ok(())
}

fn panel(area: &Area<'_>, rows: &Rows, kind: Kind, caption: &str) -> Result<(), Box<dyn Error>> {
    let sizes: Vec<u64> = rows.sizes(kind).into_iter().collect();
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { return Err("no sizes".into()) };
    let all = SERIES.iter().flat_map(|(name, _)| sizes.iter().filter_map(|&size| rows.median(kind, name, size)));
    let (least, most) = all.fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(caption, ("sans-serif", 18))
        .x_label_area_size(46)
        .y_label_area_size(52)
        .build_cartesian_2d(
            (first as f64..last as f64).log_scale().base(2.0),
            (least * 0.8..most * 1.25).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(FONT)
        .x_labels(sizes.len())
        .x_desc("bytes of a message")
        .x_label_formatter(&|size| show(size.round() as u64))
        .y_label_formatter(&|value| if *value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") })
        .draw()?;
    for ((name, label), colour) in SERIES.into_iter().zip(COLOURS) {
        let points = sizes.iter().filter_map(|&size| Some((size as f64, rows.median(kind, name, size)?)));
        let style = colour.stroke_width(LINE);
        let line = LineSeries::new(points, style).point_size(3);
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
        chart.draw_series(line)?.label(label).legend(legend);
    }
    // The names are those of both panels. Latency rises to the right, and leaves them room; bandwidth does not.
    if kind == Kind::Latency {
        let place = SeriesLabelPosition::UpperLeft;
        chart.configure_series_labels().position(place).label_font(FONT).background_style(WHITE.mix(0.8)).draw()?;
    }
    Ok(())
}
