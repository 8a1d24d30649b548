//! Manual pages and completions, made from the command line itself.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};

use crate::failure::{Failure, FailureContext};
use crate::options::{Cli, CompletionsOptions, ManOptions};
use crate::output;

/// The command without what it starts for itself.
fn visible() -> Command {
    let whole = Cli::command();
    let commands: Vec<_> = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let [about, examples] = [whole.get_about(), whole.get_after_help()].map(|text| text.cloned().unwrap_or_default());
    let command = Command::new("roci").version(env!("CARGO_PKG_VERSION")).about(about).after_help(examples);
    command.subcommand_required(true).subcommands(commands)
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
    for command in [None].into_iter().chain(commands().into_iter().map(Some)) {
        let name = command.map_or_else(|| "roci.1".to_owned(), |command| format!("roci-{command}.1"));
        keep_examples(&options.directory.join(&name)).context(format!("cannot write {name}"))?;
    }
    output::line(format!("manual pages are in {directory}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Gives the examples of a page a section of their own, whose lines stay as they are.
fn keep_examples(page: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(page)?;
    std::fs::write(page, text.replace(".SH EXTRA\nExamples:", ".SH EXAMPLES\n.nf"))
}
