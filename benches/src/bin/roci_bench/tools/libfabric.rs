//! libfabric: `fi_pingpong`.

use super::{Need, Tool};
use crate::command::{CommandLine, Lines, Side};
use crate::failure::NoReadings;
use crate::reading::{Metric, Point, Reading, Topology};
use crate::stage::RunSetup;

/// One `fi_pingpong`.
pub(crate) struct Libfabric {
    pub(crate) provider: &'static str,
    /// Its kind of endpoint.
    pub(crate) endpoint: &'static str,
    pub(crate) size: u64,
    pub(crate) iters: u64,
}

impl Tool for Libfabric {
    fn needs(&self, _stage: &RunSetup) -> Vec<Need> {
        vec![Need::package("fi_pingpong", "libfabric-bin")]
    }

    fn lines(&self, _stage: &RunSetup, place: Topology, port: &str) -> Lines {
        let (size, iters) = (self.size.to_string(), self.iters.to_string());
        let what = ["-p", self.provider, "-e", self.endpoint, "-I", &iters, "-S", &size];
        let server = CommandLine::new(Side::Server, ["fi_pingpong"].into_iter().chain(what).chain(["-B", port]));
        let client = ["fi_pingpong"].into_iter().chain(what).chain(["-P", port, RunSetup::server_address(place)]);
        Lines::pair(server, CommandLine::new(Side::Client, client))
    }

    /// It has one test, a ping-pong, and prints means. So its bandwidth is that of one message under way.
    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
        let heading = stdout.lines().position(|line| line.starts_with("bytes")).ok_or(NoReadings::NoHeading)?;
        let row = stdout.lines().nth(heading + 1).ok_or(NoReadings::NoRow)?;
        let number = |column| row.split_whitespace().nth(column)?.parse::<f64>().ok().filter(|value| *value > 0.0);
        let us = number(6).ok_or_else(|| NoReadings::OddRow(row.into()))?;
        let series = format!("libfabric, {}", self.provider);
        let reading = |metric, value| Reading::new(series.as_str(), metric, Point::Size(self.size), value);
        Ok(vec![reading(Metric::Latency, us), reading(Metric::Bandwidth, self.size as f64 / us / 1e3)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: Libfabric = Libfabric { provider: "tcp", endpoint: "msg", size: 64, iters: 1000 };

    #[test]
    fn what_fi_pingpong_prints_is_read() {
        // Of version 1.17.
        let output = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                      64      1k      =1k      125k        0.03s      4.71      13.60       0.07\n";
        let reading = |metric, value| Reading::new("libfabric, tcp", metric, Point::Size(64), value);
        let expected = vec![reading(Metric::Latency, 13.6), reading(Metric::Bandwidth, 64.0 / 13.6 / 1e3)];
        assert_eq!(TOOL.parse(output).expect("a row"), expected);
    }

    #[test]
    fn what_is_no_row_is_refused() {
        for text in
            ["", "bytes #sent\n", "bytes\n64 1k =1k 125k 0.03s 4.71 x 0.07\n", "bytes\n64 1k =1k 0 0 0 0.00 0\n"]
        {
            assert!(TOOL.parse(text).is_err(), "{text}");
        }
    }
}
