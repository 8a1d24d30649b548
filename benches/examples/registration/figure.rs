//! The figure: costs by size on the left, hits by working set on the right.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::measure::{Costs, HitRate, Results};
use crate::show;

const SIZE: (u32, u32) = (1120, 460);
const LINE: u32 = 2;
const FONT: (&str, u32) = ("sans-serif", 15);
const GREY: RGBColor = RGBColor(0x99, 0x99, 0x99);
const RED: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
const YELLOW: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A line's name, colour and values.
type Line<T> = (&'static str, RGBColor, fn(&T) -> f64);

const COSTS: [Line<Costs>; 4] = [
    ("copied", GREY, |costs| costs.copy),
    ("registered for each use", YELLOW, |costs| costs.each_use),
    ("cache miss", RED, |costs| costs.miss),
    ("cache hit", BLUE, |costs| costs.hit),
];
const RATES: [Line<HitRate>; 2] =
    [("buffers used at random", BLUE, |rate| rate.at_random), ("buffers used in turn", RED, |rate| rate.in_turn)];

/// Writes it.
pub(crate) fn draw(path: &Path, results: &Results) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    costs(&left, &results.costs)?;
    rates(&right, &results.rates)?;
    area.present()?;
    Ok(())
}

fn costs(area: &Area<'_>, all: &[Costs]) -> Result<(), Box<dyn Error>> {
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err("nothing was measured".into()) };
    let values = || all.iter().flat_map(|costs| COSTS.map(|(.., value)| value(costs)));
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption("one use of memory, ns", ("sans-serif", 18))
        .x_label_area_size(36)
        .y_label_area_size(66)
        .build_cartesian_2d(
            (first.bytes as f64..last.bytes as f64).log_scale().base(2.0),
            (least * 0.7..most * 1.4).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(FONT)
        .x_labels(all.len() / 2)
        .x_label_formatter(&|size| show(size.round() as usize))
        .y_label_formatter(&|time| format!("{time:.0}"))
        .draw()?;
    for (name, colour, value) in COSTS {
        let style = colour.stroke_width(LINE);
        let points = all.iter().map(|costs| (costs.bytes as f64, value(costs)));
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
        chart.draw_series(LineSeries::new(points, style).point_size(3))?.label(name).legend(legend);
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).label_font(FONT).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}

fn rates(area: &Area<'_>, all: &[HitRate]) -> Result<(), Box<dyn Error>> {
    let widest = all.iter().fold(0.0, |widest: f64, rate| widest.max(rate.working_set));
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption("hits, by buffers in use per place in the cache", ("sans-serif", 18))
        .x_label_area_size(36)
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..widest, 0.0..1.05)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(FONT)
        .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .draw()?;
    for (name, colour, value) in RATES {
        let style = colour.stroke_width(LINE);
        let points = all.iter().map(|rate| (rate.working_set, value(rate)));
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
        chart.draw_series(LineSeries::new(points, style).point_size(3))?.label(name).legend(legend);
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).label_font(FONT).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}
