//! `roci perf`: this stack, and the bare port below it.

use serde_json::Value;

use super::rows::{at_loss, count, has_losses, readings, test};
use super::{Need, Tool};
use crate::command::{CommandLine, Lines, Side};
use crate::failure::NoReadings;
use crate::reading::{Reading, Topology};
use crate::stage::{RunSetup, word};

/// One `roci perf`.
pub(crate) struct RociPerf {
    pub(crate) tests: &'static str,
    pub(crate) sizes: &'static str,
    pub(crate) iters: u64,
    /// Further options.
    pub(crate) options: &'static str,
    /// Frames lost, in hundredths of a per cent.
    pub(crate) loss: Option<u32>,
    /// Whether packets carry an ICRC.
    pub(crate) icrc: bool,
    /// Whether the kernel copies long messages between the two processes, which no packet carries.
    pub(crate) cma: bool,
    /// Over UDP sockets instead of the place's usual device.
    pub(crate) sockets: bool,
}

impl RociPerf {
    /// These tests without further options, as they are mostly measured.
    pub(crate) const fn new(tests: &'static str, sizes: &'static str, iters: u64) -> Self {
        Self { tests, sizes, iters, options: "", loss: None, icrc: true, cma: false, sockets: false }
    }

    fn arguments(&self) -> Vec<String> {
        let iters = self.iters.to_string();
        let mut words: Vec<String> =
            ["perf", self.tests, "--size", self.sizes, "--iters", &iters].map(Into::into).into();
        words.extend(CommandLine::words(self.options).map(Into::into));
        if let Some(hundredths) = self.loss.filter(|&loss| loss > 0) {
            words.extend(["--faults".into(), format!("loss={},seed=1", f64::from(hundredths) / 10_000.0)]);
        }
        words
    }

    /// The first row that is not there. A command that ends early has printed fewer than it was asked for.
    fn missing_row(&self, stdout: &str) -> Option<String> {
        let each = |test: &str| self.counts(if test == "send_rate" { "--connections" } else { "--depth" });
        let is_there = |test: &str, bytes| count(stdout, test, bytes) >= each(test);
        let missing = |test: &str| {
            // An atomic has one size, whatever is asked for.
            let sizes = if test == "atomic_lat" { "8" } else { self.sizes };
            let mut sizes = sizes.split(',').filter_map(|size| size.parse().ok());
            sizes.find(|&bytes| !is_there(test, bytes)).map(|bytes| format!("{test} of {bytes} B"))
        };
        self.tests.split(',').find_map(missing)
    }

    /// How many counts an option lists, of which each makes a row.
    fn counts(&self, option: &str) -> usize {
        let counts = CommandLine::words(self.options).skip_while(|&word| word != option).nth(1);
        counts.map_or(1, |counts| counts.split(',').count())
    }

    /// Verbs by their names; what is done to them behind.
    pub(super) fn series(row: &Value) -> String {
        let name = test(row).rsplit_once('_').map_or("", |(name, _)| name);
        let mark = |is_so: bool, mark: &'static str| if is_so { mark } else { "" };
        let touched = mark(row["touch"] == true, ", touched");
        let dedicated = mark(row["engine"] == "dedicated", ", dedicated engine");
        let unsealed = mark(row["icrc"] == "off", ", no ICRC");
        let unread = mark(row["verify"] == false, ", unread");
        let over = mark(row["device"].as_str().is_some_and(|device| device.starts_with("udp")), ", over UDP");
        format!("{name}{over}{touched}{dedicated}{unsealed}{unread}")
    }
}

impl Tool for RociPerf {
    fn needs(&self, stage: &RunSetup) -> Vec<Need> {
        let remedy = "cargo build --release --package roci-cli".into();
        vec![Need { program: stage.roci.clone(), remedy }]
    }

    fn lines(&self, stage: &RunSetup, place: Topology, port: &str) -> Lines {
        let line = |side| {
            let line = CommandLine::new(side, [word(&stage.roci)].into_iter().chain(self.arguments()));
            let line = if self.icrc { line } else { line.with("ROCI_ICRC", "off") };
            // What is measured is the device alone unless this is set.
            if self.cma { line.with("ROCI_LOCAL", "memif") } else { line }
        };
        let with = |mut line: CommandLine, words: &[&str]| {
            line.words.extend(words.iter().map(|&word| word.to_owned()));
            line
        };
        match place {
            _ if place.is_between_namespaces() => {
                let interface = format!("af_packet:{}", RunSetup::interface(place));
                let [client, server] = RunSetup::addresses(place)
                    .map(|ip| if self.sockets { format!("udp:{ip}") } else { interface.clone() });
                let address = format!("{}:{port}", RunSetup::server_address(place));
                let server = with(line(Side::Server), &["--device", &server, "--once", "--listen", &address]);
                Lines::pair(server, with(line(Side::Client), &["--device", &client, &address, "--json"]))
            }
            Topology::Host if self.sockets => Lines::alone(with(line(Side::Both), &["--device", "udp", "--json"])),
            Topology::Vhost => Lines::alone(with(line(Side::Both), &["--device", "vhost", "--json"])),
            _ => Lines::alone(with(line(Side::Both), &["--json"])),
        }
    }

    /// Bare frames that are lost fail the command, which has printed its rows all the same. One that has not has failed
    /// for another reason, whatever was lost before.
    fn excuses(&self, stdout: &str) -> bool {
        has_losses(stdout) && self.missing_row(stdout).is_none()
    }

    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
        let series = |row: &Value| Self::series(row) + if self.cma { ", CMA" } else { "" };
        let all = readings(stdout, series)?;
        if let Some(row) = self.missing_row(stdout) {
            return Err(NoReadings::NoRowOf(row));
        }
        Ok(at_loss(all, self.loss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Metric, Point};

    const OURS: RociPerf = RociPerf {
        tests: "write_bw",
        sizes: "65536",
        iters: 9,
        options: "--touch --engine inline",
        loss: Some(10),
        icrc: true,
        cma: false,
        sockets: false,
    };

    fn complaint(tool: &RociPerf, stdout: &str) -> String {
        tool.parse(stdout).expect_err("a row is missing").to_string()
    }

    #[test]
    fn a_command_names_all_that_it_does() {
        let words = OURS.arguments().join(" ");
        assert_eq!(words, "perf write_bw --size 65536 --iters 9 --touch --engine inline --faults loss=0.001,seed=1");
        let lossless = RociPerf { loss: Some(0), ..OURS };
        assert!(!lossless.arguments().contains(&"--faults".to_owned()));
    }

    #[test]
    fn rows_with_loss_are_placed_by_it() {
        let row = r#"{"bw_gigabytes_per_s":1.0,"bytes":65536,"engine":null,"errors":0,"iters":9,"mmsgs":0.1,"test":"write_bw"}"#;
        let expected = [Reading::new("write of 64 KiB", Metric::Bandwidth, Point::Loss(10), 1.0)];
        assert_eq!(OURS.parse(row).expect("a row"), expected);
    }

    #[test]
    fn lost_frames_excuse_a_failure_only_where_every_row_is_there() {
        let tool = RociPerf { tests: "raw_bw,atomic_lat,tag_bw", sizes: "64,4096", loss: None, ..OURS };
        let row = |test: &str, bytes, errors| {
            let rest = r#""bw_gigabytes_per_s":1.0,"mmsgs":0.1,"lat_us":{"p50":1.0},"iters":9"#;
            format!("{{{rest},\"test\":\"{test}\",\"bytes\":{bytes},\"errors\":{errors}}}\n")
        };
        let before = row("raw_bw", 64, 3) + &row("raw_bw", 4096, 0) + &row("atomic_lat", 8, 0) + &row("tag_bw", 64, 0);
        assert!(!tool.excuses(&before), "it has crashed before its last row");
        assert_eq!(complaint(&tool, &before), "printed no row of tag_bw of 4096 B");
        let all = before + &row("tag_bw", 4096, 0);
        assert!(tool.excuses(&all) && tool.parse(&all).is_ok());
        assert!(!tool.excuses(&all.replace("\"errors\":3", "\"errors\":0")), "nothing was lost");
    }

    #[test]
    fn every_count_of_connections_has_a_row() {
        let tool = RociPerf { tests: "send_rate", sizes: "64", options: "--connections 1,4", loss: None, ..OURS };
        let row = |count| format!(r#"{{"bytes":64,"connections":{count},"errors":0,"mmsgs":0.1,"test":"send_rate"}}"#);
        assert_eq!(complaint(&tool, &row(1)), "printed no row of send_rate of 64 B");
        assert!(tool.parse(&format!("{}\n{}", row(1), row(4))).is_ok());
    }

    #[test]
    fn what_is_done_to_a_test_is_part_of_its_name() {
        let series = |text: &str| RociPerf::series(&serde_json::from_str(text).expect("an object"));
        assert_eq!(series(r#"{"test":"raw_bw","touch":true}"#), "raw, touched");
        assert_eq!(series(r#"{"test":"raw_lat","touch":false}"#), "raw");
        assert_eq!(series(r#"{"test":"tag_lat","engine":"dedicated"}"#), "tag, dedicated engine");
        assert_eq!(series(r#"{"test":"tag_lat","engine":"inline","icrc":"on"}"#), "tag");
        assert_eq!(series(r#"{"test":"write_bw","icrc":"off","verify":true}"#), "write, no ICRC");
        assert_eq!(series(r#"{"test":"tag_bw","icrc":"on","verify":false}"#), "tag, unread");
        assert_eq!(series(r#"{"test":"tag_bw","device":"udp:10.77.0.1"}"#), "tag, over UDP");
    }

    #[test]
    fn both_ends_are_set_to_run_without_an_icrc() {
        let without = RociPerf { icrc: false, ..OURS };
        let stage = RunSetup::bare();
        for place in [Topology::Host, Topology::Veth] {
            assert!(!stage.show(place, &OURS.lines(&stage, place, "1")).contains("ROCI_ICRC"));
            let settings = stage.show(place, &without.lines(&stage, place, "1")).matches("ROCI_ICRC=off ").count();
            assert_eq!(settings, if place == Topology::Veth { 2 } else { 1 });
        }
    }
}
