//! What `roci run` takes, and the commands that it starts.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;
use roci_launcher::{EXIT_TIMEOUT, MAX_RANKS};

use super::DeviceOptions;

#[derive(Args)]
pub(crate) struct RunOptions {
    /// How many ranks to start: up to 1024 over udp, up to 32 over memif and vhost
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_RANKS as u64))]
    pub(crate) ranks: u64,
    #[command(flatten)]
    pub(crate) device: DeviceOptions,
    /// A file of knobs, one NAME = "VALUE" a line; the environment overrides it
    #[arg(long, value_name = "FILE")]
    pub(crate) paramfile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) processes: ProcessOptions,
    #[command(flatten)]
    pub(crate) hosts: HostOptions,
    /// Set an environment variable for all ranks, to VALUE or to its value here. Other hosts get the whole environment anyway, without what belongs to one
    /// host, such as HOME
    #[arg(short = 'x', long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<String>,
    /// The ranks' working directory on every host [default: that of this command]
    #[arg(long = "wdir", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) terminal: TerminalOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// How long the other ranks may go on after one has failed, before they get SIGTERM; after as long again they are killed
    #[arg(long, value_name = "SECONDS", default_value_t = EXIT_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) exit_timeout: u64,
    /// Print the lines that start the job by hand, and start nothing
    #[arg(long)]
    pub(crate) show: bool,
    /// The program and its arguments; `roci` is this very command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<String>,
}

/// What each process of the job gets.
#[derive(Args)]
pub(crate) struct ProcessOptions {
    /// Ranks of each process, a thread each, for programs that can do that (roci soak); they may share a NIC (ROCI_QUEUES)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    pub(crate) workers: u64,
    /// Pin each rank to a processor of its own
    #[arg(long)]
    pub(crate) pin: bool,
}

/// Where the ranks run.
#[derive(Args)]
pub(crate) struct HostOptions {
    /// Hosts, with commas: one process for each name, N for HOST:N; a list that is too short begins again. Without a list all ranks
    /// are on this host or, where Slurm has given nodes, on those
    #[arg(long, value_name = "HOST,..", conflicts_with = "hostfile")]
    pub(crate) hosts: Option<String>,
    /// A file of hosts, one HOST or HOST:N a line
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// The command that starts another one on a host; the host's name replaces %h, or is appended. Slurm's nodes are reached by srun,
    /// other hosts by ssh
    #[arg(long, value_name = "COMMAND")]
    pub(crate) remote_shell: Option<String>,
}

/// A terminal for each rank.
#[derive(Args)]
pub(crate) struct TerminalOptions {
    /// Run each rank in a terminal of its own
    #[arg(long)]
    pub(crate) xterm: bool,
    /// Run each rank in a debugger, in a window of tmux inside tmux, else in an xterm
    #[arg(long)]
    pub(crate) debug: bool,
    /// The debugger of --debug [default: gdb --args]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) debugger: Option<String>,
}

/// What becomes of the ranks' output.
#[derive(Args)]
pub(crate) struct OutputOptions {
    /// Put the rank in brackets before each line of output
    #[arg(long)]
    pub(crate) prefix: bool,
    /// Write the output of each rank to this file on this host; %r stands for the rank
    #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
    pub(crate) output: Option<String>,
}

#[derive(Args)]
pub(crate) struct BoardOptions {
    /// How many ranks the job has
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_RANKS as u64))]
    pub(crate) ranks: u64,
    /// Where to listen: ADDRESS:PORT, or the path of a socket for ranks of this host
    #[arg(long, value_name = "PLACE", default_value = "0.0.0.0:0")]
    pub(crate) listen: String,
}

#[derive(Args)]
pub(crate) struct RankOptions {
    /// The launcher, whose end is this process's
    #[arg(long)]
    pub(crate) launcher: i32,
    /// A processor to run on; once for each
    #[arg(long = "cpu")]
    pub(crate) cpus: Vec<usize>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<String>,
}

/// `roci run` and `roci board` also take the spelling of MVICH's mpirun, long options behind one hyphen; `run` before the program.
pub(crate) fn with_mpirun_spelling(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.peekable();
    let mut spelled: Vec<_> = arguments.by_ref().take(2).collect();
    let Some(options) = spelled.get(1).and_then(|command| LongOptions::of(command)) else {
        spelled.extend(arguments);
        return spelled;
    };
    while let Some(argument) = arguments.next_if(|argument| argument.as_encoded_bytes().starts_with(b"-")) {
        let word = argument.to_str().unwrap_or_default();
        let is_long =
            word.strip_prefix('-').is_some_and(|name| options.0.contains_key(name.split('=').next().unwrap_or(name)));
        let word = if is_long { format!("-{word}") } else { word.to_owned() };
        let takes_value = options.takes_value(&word);
        spelled.push(if is_long { word.into() } else { argument });
        if takes_value {
            spelled.extend(arguments.next());
        }
    }
    spelled.extend(arguments);
    spelled
}

/// The long options of a command, and whether each takes a value.
struct LongOptions(BTreeMap<String, bool>);

impl LongOptions {
    /// Those of a command that takes MVICH's spelling.
    fn of(command: &OsStr) -> Option<Self> {
        let command = match command.to_str()? {
            "run" => RunOptions::augment_args(clap::Command::new("run")),
            "board" => BoardOptions::augment_args(clap::Command::new("board")),
            _ => return None,
        };
        let names = |option: &clap::Arg| {
            let aliases = option.get_all_aliases().unwrap_or_default().into_iter();
            let takes_value = option.get_action().takes_values();
            let names = aliases.chain(option.get_long()).map(str::to_owned).collect::<Vec<_>>();
            names.into_iter().map(move |name| (name, takes_value))
        };
        Some(Self(command.get_opts().chain(command.get_arguments()).flat_map(names).collect()))
    }

    /// Whether the next word belongs to this one.
    fn takes_value(&self, word: &str) -> bool {
        let long = word.strip_prefix("--").and_then(|name| self.0.get(name));
        matches!(word, "-n" | "-x") || long.is_some_and(|&takes_value| takes_value)
    }
}

#[cfg(test)]
mod tests {
    use super::with_mpirun_spelling;

    #[test]
    fn mpirun_spelling_is_understood_before_the_program_and_left_alone_behind_it() {
        let spell = |line: &str| {
            let words = with_mpirun_spelling(line.split(' ').map(Into::into));
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(spell("roci run -n 2 -paramfile f -show p -show"), "roci run -n 2 --paramfile f --show p -show");
        assert_eq!(spell("roci run -np 2 -hosts a,b -x -n p"), "roci run --np 2 --hosts a,b -x -n p");
        assert_eq!(spell("roci run --eal -show p"), "roci run --eal -show p");
        assert_eq!(spell("roci run -exit-timeout 3 -hosts a,b p -np"), "roci run --exit-timeout 3 --hosts a,b p -np");
        assert_eq!(spell("roci run -hosts=a -n2 -wdir / p"), "roci run --hosts=a -n2 --wdir / p");
        assert_eq!(spell("roci run --prefix p -n"), "roci run --prefix p -n", "a switch takes no value");
        assert_eq!(spell("roci board -np 2 -listen /run/x"), "roci board --np 2 --listen /run/x");
        assert_eq!(spell("roci perf -show"), "roci perf -show");
        assert_eq!(spell("roci"), "roci");
    }
}
