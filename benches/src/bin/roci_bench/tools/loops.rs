//! This program's own loops: what memory does, and what kernel sockets do.

use serde_json::Value;

use super::rows::{at_loss, readings};
use super::{Need, Tool};
use crate::command::{CommandLine, Lines, Side};
use crate::failure::NoReadings;
use crate::reading::{Reading, Topology};
use crate::stage::{RunSetup, word};

/// One of the loops.
pub(crate) struct Loop {
    /// Its subcommand.
    pub(crate) name: &'static str,
    /// What the report calls it.
    pub(crate) series: &'static str,
    pub(crate) sizes: &'static str,
    pub(crate) millis: u32,
    /// Further options of both ends.
    pub(crate) options: &'static str,
    /// Segments lost, in hundredths of a per cent.
    pub(crate) loss: Option<u32>,
}

impl Loop {
    /// Whether it has two processes.
    fn is_pair(&self) -> bool {
        matches!(self.name, "tcp" | "udp")
    }
}

impl Tool for Loop {
    fn needs(&self, _stage: &RunSetup) -> Vec<Need> {
        if self.is_pair() { vec![Need::package("taskset", "util-linux")] } else { Vec::new() }
    }

    fn lines(&self, stage: &RunSetup, place: Topology, port: &str) -> Lines {
        let this = word(&stage.this);
        let millis = self.millis.to_string();
        let measure = ["--size", self.sizes, "--millis", &millis];
        if !self.is_pair() {
            let cpus = stage.cpu_list();
            let words = [&this, self.name].into_iter().chain(measure).chain(["--cpus", &cpus]);
            return Lines::alone(CommandLine::new(Side::Both, words));
        }
        let address = format!("{}:{port}", RunSetup::server_address(place));
        let loss = self.loss.map(|hundredths| (f64::from(hundredths) / 100.0).to_string());
        let loss = loss.iter().flat_map(|percent| ["--loss", percent]);
        let both: Vec<&str> =
            [this.as_str(), self.name].into_iter().chain(CommandLine::words(self.options)).chain(loss).collect();
        let server = CommandLine::new(Side::Server, both.iter().copied().chain(["--listen", &address]));
        let client = both.into_iter().chain(measure).chain(["--connect", &address]);
        Lines::pair(server, CommandLine::new(Side::Client, client))
    }

    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
        let all = readings(stdout, |_: &Value| self.series.to_owned())?;
        Ok(at_loss(all, self.loss))
    }
}
