//! Supervision: starts the ranks of a job on this machine and on others, passes signals and output on, and ends with the worst of
//! their statuses. No process of the job outlives it.

mod agent;
mod allocation;
mod directory;
mod frame;
mod hosts;
mod launch_error;
mod oom;
mod output;
mod process;
mod rank;
mod remote;
mod show;
mod start;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::thread::sched_getaffinity;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::{Board, Rank, Token};
use hosts::{HostShare, share_out};
use process::{LocalRanks, OutputRoute, RankEnd};
use start::Hosts;

pub use agent::serve_launcher;
pub use allocation::Allocation;
pub use directory::SocketDirectory;
pub use hosts::{parse_hosts, read_hostfile};
pub use launch_error::LaunchError;
pub use output::OutputMode;
pub use rank::{RankError, become_rank};
pub use remote::REMOTE_SHELL;

/// How long ranks may take to end by default ([`JobSpec::exit_timeout`]).
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A rank that was killed and has not ended is killed again.
const AGAIN: Duration = Duration::from_secs(5);
/// The exit codes of a rank that was ended by SIGTERM, and of one that was killed; a shell says them of what it has started.
const ENDED: i32 = 128 + SIGTERM;
const KILLED: i32 = 128 + SIGKILL;
/// Descriptors of the launcher's own: its lock, its socket, what wakes it for signals, and some for a moment.
const OWN_DESCRIPTORS: usize = 8;
/// Why the launcher has one thread too few, and the remedy.
const NO_THREAD: &str = "cannot start a thread (free memory, or raise the limit of processes: ulimit -u)";

/// A job that is to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    /// How many ranks it has.
    pub size: usize,
    /// Ranks of each process.
    pub workers: usize,
    /// The program and its arguments; `roci` is this program.
    pub program: Vec<String>,
    /// A command that runs the program, as a debugger in a terminal of its own; `%r` stands for the rank. Empty for none.
    pub wrapper: Vec<String>,
    /// Environment variables that every rank gets.
    pub environment: Vec<(String, String)>,
    /// What is done with the ranks' output.
    pub output: OutputMode,
    /// Each rank gets a processor of its host's for itself, in turn.
    pub pin: bool,
    /// How long the others may go on after one rank has failed, before they get SIGTERM, and again before they are killed; and how
    /// long all may after a signal to the launcher that ends the job, before they are killed.
    pub exit_timeout: Duration,
    /// Hosts, each as often as it gets processes; all are this one's where there are none.
    pub hosts: Vec<String>,
    /// What starts a command on another host.
    pub remote_shell: String,
    /// Where the ranks run; where the launcher does without it.
    pub directory: Option<PathBuf>,
}

impl JobSpec {
    /// A job of so many ranks on this host, each a process of its own, with nothing special.
    pub fn new(size: usize, program: Vec<String>) -> Self {
        Self {
            size,
            workers: 1,
            program,
            wrapper: Vec::new(),
            environment: Vec::new(),
            output: OutputMode::default(),
            pin: false,
            exit_timeout: EXIT_TIMEOUT,
            hosts: Vec::new(),
            remote_shell: REMOTE_SHELL.into(),
            directory: None,
        }
    }

    /// The first rank of each process.
    pub fn firsts(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.size).step_by(self.workers)
    }

    /// Whether it has ranks on other hosts.
    pub fn is_on_several_hosts(&self) -> bool {
        self.shares().iter().any(|share| share.name.is_some())
    }

    /// Returns how many descriptors the launcher will have: two for each rank's connection, and for each process its output's
    /// pipes.
    pub fn descriptors(&self) -> usize {
        let pipes = if self.output.prefix { 2 * (self.size / self.workers) } else { 0 };
        OWN_DESCRIPTORS + 2 * self.size + pipes + 2 * self.shares().len()
    }

    fn shares(&self) -> Vec<HostShare> {
        share_out(&self.hosts, self.firsts())
    }

    /// Of the so manyth process of a host with these processors: as many as it has ranks, where there are so many.
    fn cpus_of(&self, index: usize, cpus: &[usize]) -> Vec<usize> {
        let count = cpus.len();
        let first = index * self.workers;
        let numbers = if self.pin { first..first + self.workers.min(count) } else { 0..0 };
        numbers.map(|at| cpus[at % count]).collect()
    }

    fn wrapper_of(&self, rank: Rank) -> impl Iterator<Item = String> + '_ {
        self.wrapper.iter().map(move |word| word.replace("%r", &rank.to_string()))
    }
}

/// An event that wakes the launcher, or its agent.
enum LaunchEvent {
    Signal(i32),
    Ended {
        rank: Rank,
        end: RankEnd,
    },
    /// The ranks of a host run, and find the board at this place.
    Started {
        place: String,
    },
    /// Those of this one do not.
    NotStarted {
        host: String,
        reason: String,
    },
    /// Something that the user must know of.
    Trouble(String),
}

/// Runs a job to its end, and returns the worst status of its ranks. `complain` gets a line for each rank that failed. No
/// rank outlives this call.
///
/// # Errors
/// Where a rank cannot be started.
pub fn launch(job: &JobSpec, complain: impl Fn(&str)) -> Result<ExitCode, LaunchError> {
    let job = &Arc::new(job.clone());
    let directory =
        SocketDirectory::new().map_err(LaunchError::system("cannot make a directory for the job's sockets"))?;
    let token = Token::random();
    let board = Board::new(job.size, token.clone());
    let (sender, events) = channel();
    forward_signals(sender.clone())?;
    let here = LocalRanks::new(job.clone(), token.clone(), OutputRoute::Here, sender.clone())?;
    let mut hosts = Hosts { here, remote: Vec::new(), backlog: VecDeque::new(), exit_timeout: job.exit_timeout };
    let started = if job.is_on_several_hosts() {
        hosts.start_on_several(job, &board, &token, &sender, &events)
    } else {
        hosts.start_here(job, &board, &directory)
    };
    if let Err(failure) = started {
        hosts.signal(Signal::KILL);
        hosts.finish(&events, &complain);
        let LaunchError::Interrupted(signal) = failure else { return Err(failure) };
        complain(&failure.to_string());
        return Ok(ExitCode::from((128 + signal).clamp(0, 255) as u8));
    }
    let code = supervise(&board, job, &mut hosts, &events, &complain);
    hosts.finish(&events, &complain);
    Ok(code)
}

/// Returns the processors that this process may use.
///
/// # Errors
/// Where the kernel does not say.
pub fn allowed_cpus() -> Result<Vec<usize>, LaunchError> {
    let set = sched_getaffinity(None).map_err(LaunchError::system("cannot ask for the allowed processors"))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn forward_signals(events: Sender<LaunchEvent>) -> Result<(), LaunchError> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
        .map_err(LaunchError::system("cannot take signals"))?;
    let forward = move || {
        for signal in signals.forever() {
            let _ = events.send(LaunchEvent::Signal(signal));
        }
    };
    thread::Builder::new().spawn(forward).map(drop).map_err(LaunchError::system(NO_THREAD))
}

/// How the launcher ends the ranks that go on after the job has failed.
#[derive(Clone, Copy)]
enum Shutdown {
    /// The job is well.
    None,
    /// At this moment they get SIGTERM.
    TellAt(Instant),
    /// At this moment they are killed.
    KillAt(Instant),
}

fn supervise(
    board: &Board,
    &JobSpec { size, workers, exit_timeout, .. }: &JobSpec,
    hosts: &mut Hosts,
    events: &Receiver<LaunchEvent>,
    complain: impl Fn(&str),
) -> ExitCode {
    let mut worst = 0;
    let mut unended: BTreeSet<Rank> = (0..size).step_by(workers).collect();
    let mut has_killed = false;
    // Ranks that end by the launcher's own signals are not the cause of anything.
    let mut has_signalled = false;
    let mut ending = Shutdown::None;
    while !unended.is_empty() {
        match hosts.next_event(events, ending) {
            // Between the launcher and a rank may be a shell, which this signal would end.
            Some(LaunchEvent::Signal(SIGUSR1)) => board.ask_for_reports(),
            Some(LaunchEvent::Signal(signal)) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    hosts.signal(signal);
                }
                if is_fatal(signal) {
                    worst = worst.max(128 + signal);
                    board.fail("the launcher received a signal to end the job");
                    ending = sooner(ending, Shutdown::KillAt(Instant::now() + exit_timeout));
                }
            }
            Some(LaunchEvent::Ended { rank, end: RankEnd { code, text } }) => {
                if !unended.remove(&rank) || has_signalled && matches!(code, ENDED | KILLED) {
                    continue;
                }
                worst = worst.max(code);
                let reason = format!("rank {rank} {text}");
                for rank in rank..rank + workers {
                    if code == 0 { board.depart(rank, &reason) } else { board.fail_rank(rank, &reason) }
                }
                if code != 0 {
                    complain(&reason);
                    ending = sooner(ending, Shutdown::TellAt(Instant::now() + exit_timeout));
                }
            }
            None => {
                has_signalled = true;
                // An agent whose ranks were killed and have not ended, or its host, does not do what it should.
                if has_killed {
                    hosts.abandon().iter().for_each(|lost| _ = unended.remove(lost));
                }
                has_killed |= matches!(ending, Shutdown::KillAt(_));
                ending = escalate(hosts, ending, exit_timeout);
            }
            Some(LaunchEvent::Trouble(text)) => complain(&text),
            Some(LaunchEvent::Started { .. } | LaunchEvent::NotStarted { .. }) => {}
        }
    }
    ExitCode::from(worst.clamp(0, 255) as u8)
}

/// Sends all ranks the signal whose moment has come; returns what comes next.
fn escalate(hosts: &Hosts, ending: Shutdown, exit_timeout: Duration) -> Shutdown {
    if let Shutdown::TellAt(_) = ending {
        hosts.signal(Signal::TERM);
        Shutdown::KillAt(Instant::now() + exit_timeout)
    } else {
        hosts.signal(Signal::KILL);
        Shutdown::KillAt(Instant::now() + AGAIN)
    }
}

/// Whether a signal to the launcher ends the job.
fn is_fatal(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGTERM | SIGQUIT | SIGHUP)
}

/// The next event, or `None` when the ending's moment has come.
fn next_event(events: &Receiver<LaunchEvent>, ending: Shutdown) -> Option<LaunchEvent> {
    match ending {
        Shutdown::None => events.recv().ok(),
        Shutdown::TellAt(at) | Shutdown::KillAt(at) => {
            events.recv_timeout(at.saturating_duration_since(Instant::now())).ok()
        }
    }
}

/// An ending that has begun is not put off.
fn sooner(present: Shutdown, new: Shutdown) -> Shutdown {
    if matches!(present, Shutdown::None) { new } else { present }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_take_processors_in_turn_one_for_each_rank_of_theirs() {
        let of = |workers, cpus: &[usize]| {
            let job = JobSpec { workers, pin: true, ..JobSpec::new(4, vec!["roci".into()]) };
            (0..4 / workers).map(|index| job.cpus_of(index, cpus)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, &[5, 7]), [[5], [7], [5], [7]]);
        assert_eq!(of(2, &[0, 1, 2, 3]), [[0, 1], [2, 3]]);
        assert_eq!(of(4, &[5, 7]), [[5, 7]]);
        let roaming = JobSpec::new(4, vec!["roci".into()]);
        assert_eq!(roaming.cpus_of(1, &[5, 7]), [0; 0]);
    }
}
