//! UCX over TCP: `ucx_perftest`.

use super::{Need, Tool};
use crate::command::{CommandLine, Lines, Side};
use crate::failure::NoReadings;
use crate::reading::{Metric, Point, Reading, Topology};
use crate::stage::RunSetup;

/// A test of ucx_perftest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UcxTest {
    TagLatency,
    TagBandwidth,
}

/// One `ucx_perftest`.
pub(crate) struct Ucx {
    pub(crate) test: UcxTest,
    pub(crate) size: u64,
    pub(crate) iters: u64,
}

const SERIES: &str = "UCX, TCP";
/// Its MB are 2^20 bytes.
const MEGABYTE: f64 = 1_048_576.0;

impl Tool for Ucx {
    fn needs(&self, _stage: &RunSetup) -> Vec<Need> {
        vec![Need::package("ucx_perftest", "ucx-utils")]
    }

    fn lines(&self, _stage: &RunSetup, place: Topology, port: &str) -> Lines {
        let over =
            |line: CommandLine| line.with("UCX_TLS", "tcp,self").with("UCX_NET_DEVICES", RunSetup::interface(place));
        let test = if self.test == UcxTest::TagLatency { "tag_lat" } else { "tag_bw" };
        let (size, iters, warm_up) = (self.size.to_string(), self.iters.to_string(), (self.iters / 10).to_string());
        let server = CommandLine::new(Side::Server, ["ucx_perftest", "-p", port]);
        let words = ["-p", port, "-t", test, "-s", &size, "-n", &iters, "-w", &warm_up, "-f", "-v"];
        let client = ["ucx_perftest", RunSetup::server_address(place)].into_iter().chain(words);
        Lines::pair(over(server), over(CommandLine::new(Side::Client, client)))
    }

    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
        let row = UcxRow::of(stdout).ok_or_else(|| NoReadings::NoFigures(stdout.trim().into()))?;
        let reading = |metric, value| Reading::new(SERIES, metric, Point::Size(self.size), value);
        if self.test == UcxTest::TagLatency {
            return Ok(vec![reading(Metric::Latency, row.get("50.0_percentile_lat")?)]);
        }
        let mut readings = vec![reading(Metric::Bandwidth, row.get("overall_bw")? * MEGABYTE / 1e9)];
        if self.size <= 4096 {
            readings.push(reading(Metric::Rate, row.get("overall_mr")? / 1e6));
        }
        Ok(readings)
    }
}

/// The row of figures that `ucx_perftest` prints below its heading.
struct UcxRow<'a>(Vec<(&'a str, f64)>);

impl<'a> UcxRow<'a> {
    fn of(stdout: &'a str) -> Option<Self> {
        let mut lines = stdout.lines().skip_while(|line| !line.starts_with("iterations,"));
        let (names, values) = (lines.next()?, lines.next()?);
        let values: Option<Vec<f64>> = values.split(',').map(|value| value.trim().parse().ok()).collect();
        Some(Self(names.split(',').map(str::trim).zip(values?).collect()))
    }

    fn get(&self, name: &str) -> Result<f64, NoReadings> {
        let value = self.0.iter().find(|(column, _)| *column == name);
        value.map(|(_, value)| *value).ok_or_else(|| NoReadings::NoColumn(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ucx_perftest 1.13.
    const OUTPUT: &str = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
         2000,1.879,96.767,96.767,645.88,645.88,10334,10334\n";

    #[test]
    fn what_ucx_perftest_prints_is_read() {
        let latency = Ucx { test: UcxTest::TagLatency, size: 8, iters: 2000 };
        let expected = [Reading::new(SERIES, Metric::Latency, Point::Size(8), 1.879)];
        assert_eq!(latency.parse(OUTPUT).expect("a row"), expected);
        let bandwidth = Ucx { test: UcxTest::TagBandwidth, size: 65536, iters: 2000 };
        let value = 645.88 * 1.048_576e-3;
        let expected = [Reading::new(SERIES, Metric::Bandwidth, Point::Size(65536), value)];
        assert_eq!(bandwidth.parse(OUTPUT).expect("a row"), expected);
    }

    #[test]
    fn what_is_no_row_is_refused() {
        let ucx = Ucx { test: UcxTest::TagBandwidth, size: 8, iters: 1 };
        for text in ["", "iterations,avg_lat\n", "iterations,avg_lat\n1,x\n", "iterations,avg_lat\n1,2\n"] {
            assert!(ucx.parse(text).is_err(), "{text}");
        }
    }
}
