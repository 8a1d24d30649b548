//! Why there is no reading, no cell, no report.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::io::Errno;
use thiserror::Error;

/// Why what a tool has printed gives no readings.
#[derive(Debug, Error)]
pub(crate) enum NoReadings {
    #[error("printed no heading")]
    NoHeading,
    #[error("printed no row")]
    NoRow,
    /// One of the rows that were asked for is not there.
    #[error("printed no row of {0}")]
    NoRowOf(String),
    #[error("printed no row of figures: {0}")]
    NoFigures(String),
    #[error("has no column {0}")]
    NoColumn(String),
    #[error("an odd row: {0}")]
    OddRow(String),
    #[error("a row that is none: {error}: {line}")]
    NotJson {
        #[source]
        error: serde_json::Error,
        line: String,
    },
    #[error("a row without {field}: {row}")]
    NoField { field: String, row: String },
    #[error("{test} of {bytes} B: {errors} payloads were wrong")]
    WrongPayloads { test: String, bytes: String, errors: u64 },
}

/// Why a cell gives no readings.
#[derive(Debug, Error)]
pub(crate) enum CellFailure {
    /// The two namespaces are not there, for the reason that was given.
    #[error("{0}")]
    NoNamespaces(String),
    #[error("no free port: {0}")]
    NoPort(#[source] io::Error),
    #[error("no command")]
    NoCommand,
    #[error("cannot start {program}: {error}")]
    NotStarted {
        program: String,
        #[source]
        error: io::Error,
    },
    #[error("{name} ended before it listened: {words}")]
    EndedEarly { name: String, words: String },
    #[error("{0} was ended before it listened")]
    StoppedEarly(String),
    #[error("{name} does not listen on port {port}")]
    DoesNotListen { name: String, port: u16 },
    #[error("{0} was ended")]
    Stopped(String),
    #[error("{name} had not ended after {seconds:.0} s, and was killed")]
    Killed { name: String, seconds: f64 },
    #[error("cannot wait for {name}: {error}")]
    Lost {
        name: String,
        #[source]
        error: io::Error,
    },
    /// The client has ended by itself, and ill.
    #[error("ended with {status}: {words}")]
    Ended { status: ExitStatus, words: String },
    /// The client has failed, and its server has complained.
    #[error("{client}; server: {complaint}")]
    Both {
        #[source]
        client: Box<CellFailure>,
        complaint: String,
    },
    #[error(transparent)]
    Unread(#[from] NoReadings),
}

/// Why a command of this program has not done its work.
#[derive(Debug, Error)]
pub(crate) enum BenchFailure {
    #[error("nothing is named like '{0}': roci_bench list shows the names")]
    NoCell(String),
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot find this program: {0}")]
    NoProgram(#[source] io::Error),
    #[error("cannot ask for the allowed processors: {0}")]
    Affinity(#[source] Errno),
    #[error("no processor is allowed")]
    NoProcessor,
    #[error("processor {cpu} is not among those that this process may use, which are {allowed}: name others by --cpus")]
    Processor { cpu: usize, allowed: String },
    #[error("--cpus names 1 processor, and 2 are needed: {0},{0} would share it")]
    OneProcessor(usize),
    #[error("neither --listen nor --connect")]
    NoAddress,
    /// A loop over sockets has failed.
    #[error(transparent)]
    Sockets(#[from] io::Error),
    #[error("cannot write a report to {}: {error}: name a folder with 2 MiB of room by --out", .folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot write {}: {error}", .path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot draw: {0}")]
    Figures(#[source] Box<dyn std::error::Error>),
    #[error("cannot read a report from {}: {error}", .path.display())]
    Record {
        path: PathBuf,
        #[source]
        error: BadRecord,
    },
    #[error("interrupted before anything was measured: no report is written")]
    Interrupted,
}

/// Why a file is no report of a run.
#[derive(Debug, Error)]
pub(crate) enum BadRecord {
    #[error(transparent)]
    Unread(#[from] io::Error),
    #[error("it is no JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("it has no {field}, or an odd one: {value}")]
    Lacks { field: &'static str, value: String },
}

/// A text that is no share of a hundred.
#[derive(Debug, Error)]
#[error("a number between 0 and 100")]
pub(crate) struct NotPercent;
