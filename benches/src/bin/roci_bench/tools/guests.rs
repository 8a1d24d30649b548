//! Linux's verbs and ours between the same two guests, by turns: `scripts/lab verbs`.

use serde_json::Value;

use super::ours::RociPerf;
use super::rows::readings;
use super::{Need, Tool};
use crate::command::{CommandLine, Lines, Side};
use crate::failure::NoReadings;
use crate::reading::{Metric, Reading, Topology};
use crate::stage::{RunSetup, word};

/// One pair of guests, from boot to end.
pub(crate) struct Guests {
    pub(crate) is_quick: bool,
}

impl Guests {
    fn series(row: &Value) -> String {
        let name = RociPerf::series(row);
        match row["stack"].as_str() {
            Some(stack) if stack != "roci" => format!("{stack}, {name}"),
            _ => name,
        }
    }
}

impl Tool for Guests {
    fn needs(&self, _stage: &RunSetup) -> Vec<Need> {
        Vec::new()
    }

    fn lines(&self, stage: &RunSetup, _place: Topology, _port: &str) -> Lines {
        let lab = stage.lab.as_ref().map_or_else(|_| "scripts/lab".to_owned(), |path| word(path));
        let quick = ["--quick"].into_iter().filter(|_| self.is_quick);
        Lines::alone(CommandLine::new(Side::Both, [&lab, "verbs"].into_iter().chain(quick)))
    }

    /// Cycles of this machine are none of an emulated processor's.
    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
        let mut all = readings(stdout, Self::series)?;
        all.retain(|reading| reading.metric != Metric::Cycles);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Point;

    #[test]
    fn rows_of_both_stacks_are_distinguished() {
        let rows = r#"{"stack":"rdma_rxe","round":1,"test":"send_lat","bytes":64,"iters":100,"errors":0,"lat_us":{"min":300.0,"p50":400.5}}
{"stack":"roci","round":1,"device":"pci:0000:00:10.0","test":"send_lat","bytes":64,"iters":100,"errors":0,"lat_us":{"min":60.0,"p50":80.0}}
{"stack":"roci","round":1,"device":"pci:0000:00:10.0","test":"send_bw","bytes":64,"iters":100,"errors":0,"lat_us":null,"bw_gigabytes_per_s":0.00128,"mmsgs":0.02}"#;
        let reading = |series, metric, value| Reading::new(series, metric, Point::Size(64), value);
        let expected = [
            reading("rdma_rxe, send", Metric::Latency, 400.5),
            reading("send", Metric::Latency, 80.0),
            reading("send", Metric::Bandwidth, 0.00128),
            reading("send", Metric::Rate, 0.02),
        ];
        assert_eq!(Guests { is_quick: true }.parse(rows).expect("rows"), expected);
    }
}
