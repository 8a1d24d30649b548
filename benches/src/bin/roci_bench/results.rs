//! Readings by what they measure and by round.

use std::collections::BTreeMap;

use crate::reading::{Metric, Point, Reading, Topology};
use crate::statistics::Summary;

/// What a result is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ResultKey {
    pub(crate) place: Topology,
    pub(crate) metric: Metric,
    pub(crate) series: String,
    pub(crate) point: Point,
}

impl ResultKey {
    pub(crate) fn new(place: Topology, metric: Metric, series: &str, point: Point) -> Self {
        Self { place, metric, series: series.to_owned(), point }
    }

    /// What a number is compared with.
    fn base(&self) -> Option<Self> {
        let with = |series: &str, point| Some(Self::new(self.place, self.metric, series, point));
        match (self.metric, self.point) {
            (Metric::Latency | Metric::Bandwidth, Point::Size(_)) if self.place == Topology::Jumbo => {
                with("raw, over UDP", self.point)
            }
            (Metric::Latency | Metric::Bandwidth, Point::Size(_)) if self.place.is_lossy() => {
                with("kernel TCP", self.point)
            }
            (Metric::Latency, point) => with("raw", point),
            (Metric::Bandwidth | Metric::Rate, Point::Size(_)) => with("raw, touched", self.point),
            (Metric::Rate, Point::Connections(_)) => with(&self.series, Point::Connections(1)),
            (Metric::Bandwidth, Point::Depth(_)) => with(&self.series, Point::Depth(1)),
            (Metric::Bandwidth, Point::Loss(_)) => with(&self.series, Point::Loss(0)),
            _ => None,
        }
    }
}

/// All readings.
#[derive(Default)]
pub(crate) struct Results {
    values: BTreeMap<ResultKey, BTreeMap<usize, f64>>,
    /// The names of the commands that they came from.
    commands: BTreeMap<ResultKey, String>,
    /// Series in the order in which they first came.
    order: Vec<String>,
}

impl Results {
    pub(crate) fn add(&mut self, round: usize, place: Topology, reading: Reading) {
        let Reading { series, metric, point, value } = reading;
        self.expect_series(&series);
        self.values.entry(ResultKey { place, metric, series, point }).or_default().insert(round, value);
    }

    /// Puts a series behind those that came before, unless it is one of them.
    pub(crate) fn expect_series(&mut self, series: &str) {
        if !self.order.iter().any(|known| known == series) {
            self.order.push(series.to_owned());
        }
    }

    /// The same as `add`, of a command with that name.
    pub(crate) fn add_of(&mut self, command: &str, round: usize, place: Topology, reading: Reading) {
        let key = ResultKey::new(place, reading.metric, &reading.series, reading.point);
        self.commands.entry(key).or_insert_with(|| command.to_owned());
        self.add(round, place, reading);
    }

    /// The name of the command that a row came from.
    pub(crate) fn command(&self, key: &ResultKey) -> Option<&str> {
        self.commands.get(key).map(String::as_str)
    }

    /// The series that a command gives, in the order in which they first came.
    pub(crate) fn series_of(&self, command: &str) -> Vec<&str> {
        let is_its = |series: &&String| self.commands.iter().any(|(key, its)| its == command && key.series == **series);
        self.order.iter().filter(is_its).map(String::as_str).collect()
    }

    /// All series, in the order in which they first came.
    pub(crate) fn all_series(&self) -> &[String] {
        &self.order
    }

    /// The rounds that gave a value, in order.
    pub(crate) fn rounds(&self, key: &ResultKey) -> Vec<(usize, f64)> {
        let rounds = self.values.get(key).into_iter().flatten();
        rounds.map(|(round, value)| (*round, *value)).collect()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ResultKey> {
        self.values.keys()
    }

    pub(crate) fn summary(&self, key: &ResultKey) -> Option<Summary> {
        Summary::of(self.values.get(key)?.values().copied())
    }

    /// How many times the other one: of readings of the same round, so that a noisy hour does not count.
    pub(crate) fn ratio(&self, key: &ResultKey, to: &ResultKey) -> Option<Summary> {
        self.compared(key, to, |ours, theirs| ours / theirs)
    }

    /// How much more than the other one: of readings of the same round, too.
    pub(crate) fn difference(&self, key: &ResultKey, less: &ResultKey) -> Option<Summary> {
        self.compared(key, less, |ours, theirs| ours - theirs)
    }

    /// Readings of the same round beside each other.
    fn compared(&self, key: &ResultKey, other: &ResultKey, how: impl Fn(f64, f64) -> f64) -> Option<Summary> {
        let (ours, theirs) = (self.values.get(key)?, self.values.get(other)?);
        Summary::of(ours.iter().filter_map(|(round, value)| Some(how(*value, *theirs.get(round)?))))
    }

    /// How many times what it is compared with.
    pub(crate) fn ratio_to_base(&self, key: &ResultKey) -> Option<Summary> {
        let base = key.base().filter(|base| base != key)?;
        self.ratio(key, &base)
    }

    /// The points at which a metric was read in a place, in order.
    pub(crate) fn points(&self, place: Topology, metric: Metric, of: impl Fn(Point) -> bool) -> Vec<Point> {
        let mut points: Vec<Point> = self.matching(place, metric, &of).map(|key| key.point).collect();
        points.sort_unstable();
        points.dedup();
        points
    }

    /// The series that were read there, in the order in which they first came.
    pub(crate) fn series(&self, place: Topology, metric: Metric, of: impl Fn(Point) -> bool) -> Vec<&str> {
        let is_there = |series: &&String| self.matching(place, metric, &of).any(|key| key.series == **series);
        self.order.iter().filter(is_there).map(String::as_str).collect()
    }

    fn matching<'a>(
        &'a self,
        place: Topology,
        metric: Metric,
        of: &'a impl Fn(Point) -> bool,
    ) -> impl Iterator<Item = &'a ResultKey> {
        self.values.keys().filter(move |key| key.place == place && key.metric == metric && of(key.point))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_within_a_round() {
        let mut results = Results::default();
        let point = Point::Size(8);
        // The second round was twice as slow, for both.
        for (round, value) in [(1, 1.0), (2, 2.0), (3, 1.0)] {
            results.add(round, Topology::Host, Reading::new("raw", Metric::Latency, point, value));
        }
        for (round, value) in [(1, 1.5), (2, 3.0)] {
            results.add(round, Topology::Host, Reading::new("send", Metric::Latency, point, value));
        }
        let key = |series| ResultKey::new(Topology::Host, Metric::Latency, series, point);
        let ratio = results.ratio(&key("send"), &key("raw")).expect("both were read");
        assert_eq!((ratio.median, ratio.min, ratio.max, ratio.rounds), (1.5, 1.5, 1.5, 2));
        assert_eq!(results.ratio(&key("send"), &key("absent")), None);
        assert_eq!(results.summary(&key("raw")).map(|summary| summary.median), Some(1.0));
        assert_eq!(results.series(Topology::Host, Metric::Latency, |_| true), ["raw", "send"]);
        assert_eq!(results.points(Topology::Host, Metric::Latency, |_| true), [point]);
        assert!(results.series(Topology::Veth, Metric::Latency, |_| true).is_empty());
    }
}
