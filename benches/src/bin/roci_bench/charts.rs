//! Draws the panels of a figure. Each line has its name at its end, to the right of the axes.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::reading::show_bytes;

const WIDTH: u32 = 860;
const HEIGHT: u32 = 400;
/// Room for the names.
const NAMES: u32 = 190;
/// From a line's end to its name.
const LEADER: i32 = 22;
/// From one name to the next, at least.
const NAME_HEIGHT: f64 = 18.0;
const TITLE: (&str, u32) = ("sans-serif", 19);
const FONT: (&str, u32) = ("sans-serif", 16);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);

/// The area of an SVG file that a chart is drawn in.
type ChartArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing.
pub(crate) type DrawResult = Result<(), Box<dyn Error>>;

/// The measured values of a series, and how they are drawn.
pub(crate) struct ChartLine<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: RGBColor,
    /// Pixels.
    pub(crate) width: u32,
    /// At least one.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What both axes of a chart count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChartScale {
    /// Bytes to the right and any unit upwards, both logarithmic.
    Bytes,
    /// Counts to the right, logarithmic, and a unit from 0 upwards.
    Counts,
    /// Per cent to the right and a unit upwards, both from 0.
    PerCent,
}

/// One panel: a caption, axes and lines.
pub(crate) struct Chart<'a> {
    pub(crate) caption: String,
    /// What the lower axis counts.
    pub(crate) axis: &'a str,
    pub(crate) scale: ChartScale,
    pub(crate) lines: Vec<ChartLine<'a>>,
}

/// Writes an SVG file with one chart below the other. The ground is white, whatever the page's colour is.
pub(crate) fn draw(path: &Path, charts: &[Chart<'_>]) -> DrawResult {
    let area = SVGBackend::new(path, (WIDTH, HEIGHT * charts.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    for (chart, part) in charts.iter().zip(area.split_evenly((charts.len(), 1))) {
        chart.draw(&part)?;
    }
    area.present()?;
    Ok(())
}

impl Chart<'_> {
    fn draw(&self, area: &ChartArea<'_>) -> DrawResult {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (first, last) = ends(points().map(|point| point.0));
        let (least, most) = ends(points().map(|point| point.1));
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(14)
            .margin_right(NAMES)
            .caption(&self.caption, TITLE.into_font().color(&INK))
            .x_label_area_size(48)
            .y_label_area_size(62);
        let counted = (first.max(1.0)..last.max(first.max(1.0) * 2.0)).log_scale().base(2.0);
        let from_zero = 0.0..most * 1.1;
        match self.scale {
            ChartScale::Bytes => {
                let chart = builder.build_cartesian_2d(counted, (least * 0.7..most * 1.4).log_scale())?;
                self.fill_in(area, chart, |x| show_bytes(x.round() as u64))
            }
            ChartScale::Counts => {
                self.fill_in(area, builder.build_cartesian_2d(counted, from_zero)?, |x| format!("{x:.0}"))
            }
            ChartScale::PerCent => {
                self.fill_in(area, builder.build_cartesian_2d(0.0..last.max(1.0), from_zero)?, |x| format!("{x} %"))
            }
        }
    }

    fn fill_in<'a, X, Y>(
        &self,
        area: &ChartArea<'a>,
        mut chart: ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, Y>>,
        label: impl Fn(f64) -> String,
    ) -> DrawResult
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(FONT.into_font().color(&INK))
            .x_desc(self.axis)
            .x_label_formatter(&|x| label(*x))
            .y_label_formatter(&|y| show_value(*y))
            .draw()?;
        let mut tips = Vec::new();
        for line in &self.lines {
            let style = line.colour.stroke_width(line.width);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?;
            tips.extend(line.points.last().map(|last| chart.plotting_area().map_coordinate(last)));
        }
        let (across, down) = chart.plotting_area().get_pixel_range();
        self.name_lines(area, &tips, across.end, (down.start.into(), down.end.into()))
    }

    /// Writes each line's name beside its end, and joins the two where the name had to make room for another.
    fn name_lines(&self, area: &ChartArea<'_>, tips: &[(i32, i32)], right: i32, between: (f64, f64)) -> DrawResult {
        let area = area.use_screen_coord();
        let wanted: Vec<f64> = tips.iter().map(|tip| tip.1.into()).collect();
        for ((line, &tip), y) in self.lines.iter().zip(tips).zip(spread_names(&wanted, NAME_HEIGHT, between)) {
            let (x, y) = (right + LEADER, y.round() as i32);
            let path = [(tip.0 + 4, tip.1), (right + 4, tip.1), (x - 4, y)];
            area.draw(&PathElement::new(path, line.colour.mix(0.5).stroke_width(1)))?;
            let style = FONT.into_font().color(&line.colour).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(line.name, (x, y), style))?;
        }
        Ok(())
    }
}

/// The least and the most of some values; 1 twice of none.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all = values.fold(None, |all: Option<(f64, f64)>, value| {
        let (least, most) = all.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    });
    all.unwrap_or((1.0, 1.0))
}

/// Places for names that stand at least `height` apart and as near as can be to where they are wanted. They lie between
/// the two ends as long as there is room for all.
fn spread_names(wanted: &[f64], height: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    // Names that would touch form a group, which stands where its members are wanted in the mean.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (rank, &which) in order.iter().enumerate() {
        let mut group = (wanted[which] - rank as f64 * height, 1);
        while let Some(above) = groups.pop_if(|above| mean(*above) > mean(group)) {
            group = (above.0 + group.0, above.1 + group.1);
        }
        groups.push(group);
    }
    let lowest = (bottom - wanted.len().saturating_sub(1) as f64 * height).max(top);
    let starts = groups.iter().flat_map(|&group| std::iter::repeat_n(mean(group).clamp(top, lowest), group.1));
    let mut places = vec![0.0; wanted.len()];
    for (rank, (start, &which)) in starts.zip(&order).enumerate() {
        places[which] = start + rank as f64 * height;
    }
    places
}

fn mean((sum, count): (f64, usize)) -> f64 {
    sum / count as f64
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

    #[test]
    fn values_are_shown_without_digits_that_say_nothing() {
        let values = [0.0, 0.1 + 0.2, 0.001, 2.5, 10.0, 20_000.0];
        assert_eq!(values.map(show_value), ["0", "0.3", "0.001", "2.5", "10", "20000"]);
    }

    #[test]
    fn names_that_have_room_stand_where_they_are_wanted() {
        assert_eq!(spread_names(&[50.0, 10.0], 10.0, (0.0, 100.0)), [50.0, 10.0]);
        assert!(spread_names(&[], 10.0, (0.0, 100.0)).is_empty());
    }

    #[test]
    fn names_that_would_touch_make_room_for_each_other_around_their_middle() {
        assert_eq!(spread_names(&[50.0, 50.0, 50.0], 10.0, (0.0, 100.0)), [40.0, 50.0, 60.0]);
        assert_eq!(spread_names(&[52.0, 48.0, 90.0], 10.0, (0.0, 100.0)), [55.0, 45.0, 90.0]);
    }

    #[test]
    fn names_stay_within_their_panel() {
        assert_eq!(spread_names(&[1.0, 0.0], 10.0, (0.0, 100.0)), [10.0, 0.0]);
        assert_eq!(spread_names(&[99.0, 100.0, 98.0], 10.0, (0.0, 100.0)), [90.0, 100.0, 80.0]);
    }

    #[test]
    fn the_ends_of_values_are_their_least_and_their_most() {
        assert_eq!(ends([2.0, 1.0, 3.0].into_iter()), (1.0, 3.0));
        assert_eq!(ends(std::iter::empty()), (1.0, 1.0));
    }
}
