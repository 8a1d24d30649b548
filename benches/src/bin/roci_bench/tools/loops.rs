//! This program's own loops: what memory does, and what kernel sockets do.

use serde_json::Value;

use super::rows::readings;
use super::{Need, Tool};
use crate::command::{Line, Lines, Side};
use crate::reading::{Place, Reading};
use crate::stage::{Stage, word};

/// One of the loops.
pub(crate) struct Loop {
    /// Its subcommand.
    pub(crate) name: &'static str,
    /// What the report calls it.
    pub(crate) series: &'static str,
    pub(crate) sizes: &'static str,
    pub(crate) millis: u32,
}

impl Loop {
    /// Whether it has two processes.
    fn is_pair(&self) -> bool {
        matches!(self.name, "tcp" | "udp")
    }
}

impl Tool for Loop {
    fn needs(&self, _stage: &Stage) -> Vec<Need> {
        if self.is_pair() { vec![Need::package("taskset", "util-linux")] } else { Vec::new() }
    }

    fn lines(&self, stage: &Stage, place: Place, port: &str) -> Lines {
        let this = word(&stage.this);
        let millis = self.millis.to_string();
        let measure = ["--size", self.sizes, "--millis", &millis];
        if !self.is_pair() {
            let cpus = stage.cpu_list();
            let words = [&this, self.name].into_iter().chain(measure).chain(["--cpus", &cpus]);
            return Lines::alone(Line::new(Side::Both, words));
        }
        let address = format!("{}:{port}", Stage::server_address(place));
        let server = Line::new(Side::Server, [&this, self.name, "--listen", &address]);
        let client = [&this, self.name].into_iter().chain(measure).chain(["--connect", &address]);
        Lines::pair(server, Line::new(Side::Client, client))
    }

    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, String> {
        readings(stdout, |_: &Value| self.series.to_owned())
    }
}
