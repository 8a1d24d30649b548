//! What is run: our own command, the limits, the alternatives. One file each: its command lines, and its output.

mod guests;
mod libfabric;
mod loops;
pub(crate) mod mpi;
mod ours;
mod rows;
mod ucx;

pub(crate) use guests::Guests;
pub(crate) use libfabric::Libfabric;
pub(crate) use loops::Loop;
pub(crate) use mpi::{Mpi, Which};
pub(crate) use ours::RociPerf;
pub(crate) use ucx::{Ucx, UcxTest};

use std::path::PathBuf;

use crate::command::Lines;
use crate::failure::NoReadings;
use crate::reading::{Reading, Topology};
use crate::stage::RunSetup;

/// A program that a tool cannot do without.
pub(crate) struct Need {
    pub(crate) program: PathBuf,
    /// What mends its absence.
    pub(crate) remedy: String,
}

impl Need {
    pub(crate) fn package(program: &str, package: &str) -> Self {
        Self { program: program.into(), remedy: format!("apt-get install {package}") }
    }
}

/// One way to measure.
pub(crate) trait Tool {
    /// What it cannot do without.
    fn needs(&self, stage: &RunSetup) -> Vec<Need>;

    /// What it runs. The server listens on `port`.
    fn lines(&self, stage: &RunSetup, place: Topology, port: &str) -> Lines;

    /// Whether what a failing client has printed says that the failure is none to us.
    fn excuses(&self, _stdout: &str) -> bool {
        false
    }

    /// What the client has printed.
    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings>;
}
