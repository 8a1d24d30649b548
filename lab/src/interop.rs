//! The interop suite: this stack on one end of a wire, Linux's `rdma_rxe` in a guest on the other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::guest::GuestWire;
use crate::lab::{Form, Lab};
use crate::report::{self, ScenarioOutcome, ScenarioRow};
use crate::scenarios::{SCENARIOS, Scenario};
use crate::{LabError, guest, lint};

/// What to run, and where results go.
#[derive(Args)]
pub(crate) struct InteropOptions {
    /// Where the guest's kernel and initial disk are.
    #[arg(long, default_value = "target/lab/6.1")]
    image: PathBuf,
    /// Only scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Write the results into the Markdown table in this file, as the column of the guest's kernel.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Run the scenarios that can run long for so many minutes instead of a few seconds.
    #[arg(long)]
    minutes: Option<u64>,
    /// What the dice of random scenarios begin with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep captures of failed scenarios in this folder, in one of the kernel's release.
    #[arg(long, default_value = "target/lab/failed")]
    captures: PathBuf,
    /// Keep captures of all scenarios there.
    #[arg(long)]
    keep: bool,
    /// Run over UDP sockets at the addresses of this tap interface, which the guest's NIC is the other end of: only scenarios that need
    /// nothing below UDP.
    #[arg(long, value_name = "INTERFACE")]
    tap: Option<String>,
    /// Name the scenarios and end.
    #[arg(long)]
    list: bool,
}

/// Scenarios that need what is below UDP: frames of other protocols, tags, payloads that the device reads.
const OF_FRAMES: [&str; 3] = ["neighbours", "zero_copy_payloads_ours", "vlan_both"];

pub(crate) fn run(options: &InteropOptions) -> Result<ExitCode, LabError> {
    let is_chosen = |scenario: &&Scenario| {
        options.only.as_ref().is_none_or(|only| scenario.name.contains(only.as_str()))
            && (options.tap.is_none() || !OF_FRAMES.contains(&scenario.name))
    };
    let chosen = || SCENARIOS.iter().filter(is_chosen);
    if options.list {
        chosen().for_each(|scenario| println!("{}", scenario.name));
        return Ok(ExitCode::SUCCESS);
    }
    if chosen().next().is_none() {
        return Err("no scenario has such a name: see --list".into());
    }
    if !guest::is_built(&options.image) {
        return Err(format!("{} holds no guest: run scripts/lab build", options.image.display()).into());
    }
    let directory = tempfile::tempdir()?;
    let wire = options.tap.clone().map_or(GuestWire::Vhost, GuestWire::Tap);
    let form = Form { time: options.minutes.map(Duration::from_mins), seed: options.seed };
    let mut lab = Lab::start(directory.path(), &options.image, wire, form)?;
    let kernel = lab.run("uname -r")?.trim().to_owned();
    println!("guest: Linux {kernel}, rdma_rxe");
    let captures = options.captures.join(&kernel);
    let mut rows = Vec::new();
    for scenario in chosen() {
        lab.begin();
        let started = Instant::now();
        let ended = (scenario.run)(&mut lab);
        let seconds = started.elapsed().as_secs_f64();
        let script = lab.script.borrow();
        let verdict = lint::judge(&script.events);
        let failures: Vec<_> =
            ended.err().map(|failure| failure.to_string()).into_iter().chain(verdict.failure()).collect();
        let path = captures.join(format!("{}.pcap", scenario.name));
        if options.keep || !failures.is_empty() {
            std::fs::create_dir_all(&captures)?;
            script.save(&path)?;
        }
        let outcome = match &failures[..] {
            [] => ScenarioOutcome::Passed,
            failures => ScenarioOutcome::Failed(format!("{} (capture: {})", failures.join("; "), path.display())),
        };
        let row = ScenarioRow { scenario, outcome, seconds };
        println!("{row}");
        verdict.notes().for_each(|note| println!("        {note}"));
        rows.push(row);
    }
    let failed = rows.iter().filter(|row| matches!(row.outcome, ScenarioOutcome::Failed(_))).count();
    println!("{} scenarios, {failed} failed", rows.len());
    if let Some(path) = &options.table {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        std::fs::write(path, report::markdown(&old, &kernel, &rows, SCENARIOS))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
