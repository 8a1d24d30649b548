//! Manual pages and completions, made from the command line itself.

use std::io;
use std::process::ExitCode;

use clap::{Command, CommandFactory};

use crate::failure::{Failure, FailureContext};
use crate::options::{Cli, CompletionsOptions, ManOptions};
use crate::output;

/// The command without what it starts for itself.
fn visible() -> Command {
    let whole = Cli::command();
    let commands: Vec<_> = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let about = whole.get_about().cloned().unwrap_or_default();
    Command::new("roci").version(env!("CARGO_PKG_VERSION")).about(about).subcommand_required(true).subcommands(commands)
}

/// The names of the commands that people give.
pub(crate) fn commands() -> Vec<String> {
    visible().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Whether people give a command of this name.
pub(crate) fn has_command(name: &str) -> bool {
    commands().iter().any(|known| known == name)
}

/// Prints a script for a shell.
pub(crate) fn completions(options: &CompletionsOptions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut visible(), "roci", &mut script);
    io::Write::write_all(&mut io::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one for each of its own, and says where.
pub(crate) fn pages(options: &ManOptions) -> Result<ExitCode, Failure> {
    let directory = options.directory.display();
    std::fs::create_dir_all(&options.directory).context(format!("cannot make {directory}"))?;
    clap_mangen::generate_to(visible(), &options.directory).context(format!("cannot write to {directory}"))?;
    output::line(format!("manual pages are in {directory}"))?;
    Ok(ExitCode::SUCCESS)
}
