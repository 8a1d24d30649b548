//! The `roci` command: starts jobs, measures, checks, explains.
#![forbid(unsafe_code)]

mod bad_value;
mod capture;
mod commands;
mod failure;
mod first_process;
mod log;
mod options;
mod output;
mod resources;
mod troubles;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use roci_launcher::{become_rank, serve_launcher};

use crate::options::{Cli, RociCommand};

fn main() -> ExitCode {
    first_process::obey_signals();
    let cli = match Cli::try_parse_from(options::with_mpirun_spelling(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if let Some((given, missing)) = cli.lone_option() {
        output::complain(format!("{given} means nothing without {missing}{}", hint()));
        return ExitCode::from(2);
    }
    // What has started a rank or an agent has read the same environment.
    let is_started = matches!(cli.command, RociCommand::Rank(_) | RociCommand::Agent);
    log::start(is_started || std::env::var_os(roci_launcher::RANK).is_some());
    match run(cli.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(command: RociCommand) -> Result<ExitCode, failure::Failure> {
    match command {
        RociCommand::Run(options) => commands::run::run(&options),
        RociCommand::Board(options) => commands::board::run(&options),
        RociCommand::Perf(options) => commands::perf::run(&options),
        RociCommand::Soak(options) => commands::soak::run(&options),
        RociCommand::Exchange(options) => commands::exchange::run(&options),
        RociCommand::Decode(options) => commands::decode::run(&options),
        RociCommand::Lint(options) => commands::lint::run(&options),
        RociCommand::Info(options) => commands::info::run(&options),
        RociCommand::Doctor(options) => commands::doctor::run(&options),
        RociCommand::Hugepages(options) => commands::tools::run(commands::tools::HUGEPAGES, &options.arguments),
        RociCommand::BindNic(options) => commands::tools::run(commands::tools::BIND_NIC, &options.arguments),
        RociCommand::Stat(options) => commands::stat::run(&options),
        RociCommand::Sim(options) => commands::sim::run(&options),
        RociCommand::Completions(options) => commands::manual::completions(&options),
        RociCommand::Man(options) => commands::manual::pages(&options),
        RociCommand::Rank(options) => become_rank(options.launcher, &options.cpus, &options.program)
            .map_or_else(|error| Err(error.into()), |never| match never {}),
        RociCommand::Agent => Ok(serve_launcher().map(|()| ExitCode::SUCCESS).map_err(failure::Failure::new)?),
    }
}

/// Help goes to stdout; a mistake is one line on stderr, and status 2.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that went away wants no help.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    output::complain(one_line(error));
    ExitCode::from(2)
}

/// What is wrong, and one hint: clap says it in paragraphs, of which this keeps those that speak of this mistake.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::MissingSubcommand {
        return format!("a command is missing: {}{}", commands::manual::commands().join(", "), hint());
    }
    let text = error.to_string();
    let is_said = |line: &&str| !line.starts_with("Usage") && !line.starts_with("For more information");
    let is_tip = |line: &str| line.trim_start().starts_with("tip:");
    let (tips, said): (Vec<_>, Vec<_>) = text.lines().take_while(is_said).partition(|line| is_tip(line));
    let words: Vec<_> = said.into_iter().flat_map(str::split_whitespace).collect();
    let line = words.join(" ").replace("invalid digit found in string", "not a whole number");
    // That a mistaken option could be a value helps few.
    let tip =
        tips.iter().find_map(|tip| tip.trim_start().strip_prefix("tip:")).filter(|tip| !tip.contains("as a value"));
    let hint = tip.map_or_else(hint, |tip| format!(":{tip}"));
    format!("{}{hint}", line.strip_prefix("error: ").unwrap_or(&line))
}

/// Where the options of the command that was given are explained.
fn hint() -> String {
    let command = std::env::args().nth(1).filter(|word| commands::manual::has_command(word));
    let help = command.map_or_else(|| "roci --help".to_owned(), |name| format!("roci {name} --help"));
    format!(" (see '{help}')")
}
