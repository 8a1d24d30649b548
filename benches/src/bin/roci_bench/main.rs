//! `roci_bench`: runs what is to be compared in rounds, by turns on the same processors, and writes a report. Start it by
//! `scripts/bench`, which builds and sets up what it needs.
//!
//! Its subcommands `memcpy`, `shared`, `tcp` and `udp` are the loops that it has itself, as commands of a report.

mod blames;
mod charts;
mod command;
mod failure;
mod figures;
mod json;
mod loops;
mod machine;
mod output;
mod overhead;
mod plan;
mod reading;
mod record;
mod remarks;
mod report;
mod reporter;
mod results;
mod runner;
mod schedule;
mod stage;
mod statistics;
mod targets;
mod tools;
mod worth;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use glob::Pattern;

use crate::failure::BenchFailure;
use crate::loops::{LoopOptions, SocketOptions, TcpOptions, allowed_processors};
use crate::machine::HostInfo;
use crate::output::Output;
use crate::plan::Extent;
use crate::record::RunRecord;
use crate::report::BenchReport;
use crate::reporter::{Reporter, write_report};
use crate::stage::RunSetup;

#[derive(Parser)]
#[command(disable_help_subcommand = true)]
struct BenchCli {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Measure, and write the report
    Report(Box<ReportOptions>),
    /// Write the report of a run again, from its benchmarks.json
    Rewrite(RewriteOptions),
    /// Print what would be measured
    List(Selection),
    /// How many processors are busy; ends with 1 where that is too many to measure beside them
    Busy,
    /// memcpy on one processor
    Memcpy(LoopOptions),
    /// Messages between two threads, through memory that they share
    Shared(LoopOptions),
    /// Messages over TCP
    Tcp(TcpOptions),
    /// Messages over UDP
    Udp(SocketOptions),
}

#[derive(Args)]
struct Selection {
    /// Fewer sizes, and as many rounds as fit into a short time
    #[arg(long)]
    quick: bool,
    /// Only cells whose name matches, such as 'host/*' or '*/ucx/*'
    #[arg(long, value_name = "GLOB", default_value = "*")]
    only: Pattern,
}

#[derive(Args)]
struct ReportOptions {
    #[command(flatten)]
    selection: Selection,
    /// Where the report goes
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Where it goes as long as the run has not ended, or if it is interrupted; without it, to the same folder
    #[arg(long, value_name = "FOLDER")]
    unfinished: Option<PathBuf>,
    /// No round begins that would not end within so many seconds
    #[arg(long, value_name = "SECONDS")]
    budget: u64,
    /// The roci command
    #[arg(long, value_name = "FILE")]
    roci: PathBuf,
    /// Where the MPI programs are
    #[arg(long, value_name = "FOLDER")]
    built: PathBuf,
    /// What starts a command in the other namespace, as ssh would on another host
    #[arg(long, value_name = "FILE")]
    agent: PathBuf,
    #[command(flatten)]
    between: NamespaceOptions,
    /// What measures between guests
    #[arg(long, value_name = "FILE")]
    lab: Option<PathBuf>,
    /// Why nothing does
    #[arg(long, value_name = "REASON", default_value = "no lab was given")]
    no_lab: String,
    /// What was built
    #[arg(long, default_value = "an unknown revision")]
    revision: String,
}

#[derive(Args)]
struct RewriteOptions {
    /// The run's benchmarks.json
    record: PathBuf,
    /// Where the report goes
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

#[derive(Args)]
struct NamespaceOptions {
    /// Two network namespaces, joined by interfaces named veth
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Why there are none
    #[arg(long, value_name = "REASON", default_value = "no namespaces were given")]
    no_namespaces: String,
    /// Why in none of them packets are lost
    #[arg(long, value_name = "REASON")]
    no_loss: Option<String>,
    /// The MTU of those interfaces
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    interface_mtu: u16,
}

fn tell_busy() -> ExitCode {
    let load = machine::load();
    println!("{load:.2}");
    ExitCode::from(u8::from(load > machine::IDLE_LOAD))
}

fn main() -> ExitCode {
    let done = match BenchCli::parse().command {
        BenchCommand::Report(options) => report(&options),
        BenchCommand::Rewrite(RewriteOptions { record, out }) => rewrite(&record, &out),
        BenchCommand::List(selection) => {
            selection.cells().iter().for_each(|cell| println!("{}", cell.name()));
            Ok(())
        }
        BenchCommand::Busy => return tell_busy(),
        BenchCommand::Memcpy(options) => loops::run_memcpy(&options),
        BenchCommand::Shared(options) => loops::run_shared(&options),
        BenchCommand::Tcp(options) => loops::run_tcp(&options),
        BenchCommand::Udp(options) => loops::run_udp(&options),
    };
    // As a shell says that a signal has ended a command.
    let end_signal = runner::end_signal().map(|signal| ExitCode::from(128 | signal));
    match done {
        Ok(()) => end_signal.unwrap_or(ExitCode::SUCCESS),
        Err(trouble) => {
            let _ = writeln!(std::io::stderr(), "roci_bench: {trouble}");
            end_signal.unwrap_or(ExitCode::FAILURE)
        }
    }
}

impl Selection {
    fn extent(&self) -> Extent {
        if self.quick { Extent::Quick } else { Extent::Full }
    }

    fn cells(&self) -> Vec<plan::Cell> {
        let mut cells = plan::cells(self.extent());
        cells.retain(|cell| self.only.matches(&cell.name()));
        cells
    }
}

/// Measures and reports. What can fail without a measurement fails first.
fn report(options: &ReportOptions) -> Result<(), BenchFailure> {
    let cells = options.selection.cells();
    if cells.is_empty() {
        return Err(BenchFailure::NoCell(options.selection.only.to_string()));
    }
    runner::heed_signals()?;
    let stage = stage(options)?;
    let mut reporter = Reporter {
        whole: Output::prepare(&options.out)?,
        unfinished: Output::prepare(options.unfinished.as_ref().unwrap_or(&options.out))?,
        machine: look(),
        extent: options.selection.extent(),
        revision: &options.revision,
        interface_mtu: options.between.interface_mtu,
    };
    let budget = Duration::from_secs(options.budget);
    let (results, outcomes) = schedule::run(&cells, &stage, budget, &mut reporter);
    reporter.conclude(&results, &outcomes)
}

/// Writes a report of what was measured before.
fn rewrite(record: &Path, out: &Path) -> Result<(), BenchFailure> {
    let run = RunRecord::read(record)?;
    write_report(&Output::prepare(out)?, BenchReport::of_record(&run))
}

fn look() -> HostInfo {
    let machine = HostInfo::look();
    if !machine.is_idle() {
        eprintln!("roci_bench: the machine is not idle: {:.2} processors are busy", machine.load);
    }
    machine
}

fn stage(options: &ReportOptions) -> Result<RunSetup, BenchFailure> {
    let this = std::env::current_exe().map_err(BenchFailure::NoProgram)?;
    let namespaces = match options.between.namespaces.as_slice() {
        [one, other] => Ok([one.clone(), other.clone()]),
        _ => Err(options.between.no_namespaces.clone()),
    };
    Ok(RunSetup {
        roci: options.roci.clone(),
        this,
        built: options.built.clone(),
        agent: options.agent.clone(),
        lab: options.lab.clone().ok_or_else(|| options.no_lab.clone()),
        namespaces,
        no_loss: options.between.no_loss.clone(),
        cpus: two_processors()?,
    })
}

/// The first two that this process may use; one twice where there is no other.
fn two_processors() -> Result<[usize; 2], BenchFailure> {
    let mut allowed = allowed_processors()?.into_iter();
    let first = allowed.next().ok_or(BenchFailure::NoProcessor)?;
    Ok([first, allowed.next().unwrap_or(first)])
}
