//! The interop suite: this stack on one end of a wire, Linux's `rdma_rxe` in a guest on the other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use crate::lab::Lab;
use crate::report::{self, Outcome, Row};
use crate::scenarios::SCENARIOS;
use crate::{Failure, guest};

/// What to run, and where results go.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the guest's kernel and initial disk are.
    #[arg(long, env = "ROCI_LAB_DIR", default_value = "target/lab")]
    image: PathBuf,
    /// Only scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Write the results as a Markdown table to this file.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Keep captures of failed scenarios in this folder.
    #[arg(long, default_value = "target/lab/failed")]
    captures: PathBuf,
    /// Name the scenarios and end.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let chosen =
        || SCENARIOS.iter().filter(|s| options.only.as_ref().is_none_or(|only| s.name.contains(only.as_str())));
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
    let mut lab = Lab::start(directory.path(), &options.image)?;
    let kernel = lab.run("uname -r")?.trim().to_owned();
    println!("guest: Linux {kernel}, rdma_rxe");
    let mut rows = Vec::new();
    for scenario in chosen() {
        lab.begin();
        let started = Instant::now();
        let outcome = match (scenario.run)(&mut lab) {
            Ok(()) => Outcome::Passed,
            Err(failure) => {
                std::fs::create_dir_all(&options.captures)?;
                let path = options.captures.join(format!("{}.pcap", scenario.name));
                lab.script.borrow().save(&path)?;
                Outcome::Failed(format!("{failure} (capture: {})", path.display()))
            }
        };
        let row = Row { scenario, outcome, seconds: started.elapsed().as_secs_f64() };
        println!("{row}");
        rows.push(row);
    }
    let failed = rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed(_))).count();
    println!("{} scenarios, {failed} failed", rows.len());
    if let Some(path) = &options.table {
        std::fs::write(path, report::markdown(&kernel, &rows))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
