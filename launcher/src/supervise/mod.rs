//! Supervision: starts the ranks of a job on this machine, passes signals and output on, and ends with the worst of their
//! statuses. No process of the job outlives it.

mod directory;
mod oom;
mod rank;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use rustix::thread::sched_getaffinity;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use thiserror::Error;

use crate::{Board, CPUS, JOB, RANK, SIZE, TOKEN, Token, WORKERS};
use directory::JobDirectory;
use oom::OomWatch;
pub use rank::{RankError, become_rank};

/// How long ranks may take to end by default ([`JobSpec::exit_timeout`]).
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A rank that was killed and has not ended is killed again.
const AGAIN: Duration = Duration::from_secs(5);
/// The exit code of a rank that was killed; a shell says it of what it has started.
const KILLED: i32 = 128 + SIGKILL;
/// Descriptors of the launcher's own: its lock, its socket, what wakes it for signals, and some for a moment.
const OWN_DESCRIPTORS: usize = 8;
/// Why the launcher has one thread too few, and the remedy.
const NO_THREAD: &str = "cannot start a thread (free memory, or raise the limit of processes: ulimit -u)";
/// A longer line of a rank is passed on in pieces.
const LINE_LIMIT: u64 = 64 << 10;

/// A job that is to be started.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// How many ranks it has.
    pub size: usize,
    /// Ranks of each process.
    pub workers: usize,
    /// The program and its arguments; `roci` is this program.
    pub program: Vec<String>,
    /// Environment variables that every rank gets.
    pub environment: Vec<(String, String)>,
    /// Each line of output begins with the rank's number.
    pub prefix: bool,
    /// Processors to give to the ranks in turn; none where they may roam.
    pub cpus: Vec<usize>,
    /// How long the others may go on after one rank has failed, before they get SIGTERM, and again before they are killed; and how
    /// long all may after a signal to the launcher that ends the job, before they are killed.
    pub exit_timeout: Duration,
}

/// Why a job could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The kernel refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The job names no program.
    #[error("no program")]
    NoProgram,
}

impl LaunchError {
    fn system<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source: source.into() }
    }
}

/// Returns the processors that this process may use.
///
/// # Errors
/// Where the kernel does not say.
pub fn allowed_cpus() -> Result<Vec<usize>, LaunchError> {
    let set = sched_getaffinity(None).map_err(LaunchError::system("cannot ask for the allowed processors"))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

impl JobSpec {
    /// The first rank of each process.
    pub fn firsts(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.size).step_by(self.workers)
    }

    /// Returns how many descriptors the launcher will have: two for each rank's connection, and for each process its output's
    /// pipes.
    pub fn descriptors(&self) -> usize {
        let pipes = if self.prefix { 2 * (self.size / self.workers) } else { 0 };
        OWN_DESCRIPTORS + 2 * self.size + pipes
    }

    /// Returns a shell line that starts this rank's process, but for where its board is.
    pub fn describe(&self, rank: usize) -> String {
        let knobs: String = self.environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
        let workers = if self.workers > 1 { format!("{WORKERS}={} ", self.workers) } else { String::new() };
        format!("{RANK}={rank} {SIZE}={} {workers}{knobs}{}", self.size, self.program.join(" "))
    }

    /// Of the process whose first rank this is: as many as it has ranks, where there are so many.
    fn cpus_of(&self, rank: usize) -> impl Iterator<Item = usize> + '_ {
        let count = self.cpus.len();
        (rank..rank + self.workers.min(count)).map(move |at| self.cpus[at % count])
    }

    fn command(&self, rank: usize, board: &str) -> Result<Command, LaunchError> {
        let this = std::env::current_exe().map_err(LaunchError::system("cannot find this program"))?;
        let mut command = Command::new(&this);
        command.args(["rank", "--launcher", &std::process::id().to_string()]);
        for cpu in self.cpus_of(rank) {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let (program, arguments) = self.program.split_first().ok_or(LaunchError::NoProgram)?;
        let program = if program == "roci" { this } else { PathBuf::from(program) };
        command.arg("--").arg(program).args(arguments);
        command.env(RANK, rank.to_string()).env(SIZE, self.size.to_string()).env(JOB, board);
        command.env(CPUS, allowed_cpus()?.len().to_string()).env(WORKERS, self.workers.to_string());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
        if self.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Ok(command)
    }
}

/// An event that wakes the launcher.
enum LaunchEvent {
    Signal(i32),
    Ended { rank: usize, status: ExitStatus },
}

/// Runs a job to its end, and returns the worst status of its ranks. `complain` gets a line for each rank that failed. No
/// rank outlives this call.
///
/// # Errors
/// Where a rank cannot be started.
pub fn launch(job: &JobSpec, complain: impl Fn(&str)) -> Result<ExitCode, LaunchError> {
    let directory =
        JobDirectory::new().map_err(LaunchError::system("cannot make a directory for the job's sockets"))?;
    let socket = directory.path().join("job");
    let token = Token::random();
    let board = Board::new(job.size, token.clone());
    board.serve_unix(&socket).map_err(LaunchError::system(format!("cannot serve the job at {}", socket.display())))?;
    let (sender, events) = channel();
    forward_signals(sender.clone())?;
    // What a rank leaves behind becomes a child of this process, and ends with the job.
    set_child_subreaper(Some(getpid())).map_err(LaunchError::system("cannot adopt what ranks leave behind"))?;
    let mut oom_watch = OomWatch::new();
    let mut ranks = Vec::new();
    for rank in job.firsts() {
        match start(job, rank, &socket.display().to_string(), &token, sender.clone()) {
            Ok(rank) => ranks.push(rank),
            Err(failure) => {
                signal_all(&ranks, Signal::KILL);
                end_orphans();
                return Err(failure);
            }
        }
    }
    let code = supervise(&board, job, &mut ranks, &events, &mut oom_watch, complain);
    end_orphans();
    ranks.into_iter().flat_map(|rank| rank.relays).for_each(|relay| drop(relay.join()));
    Ok(code)
}

/// A process that was started, with its first rank's number.
struct RankProcess {
    /// `None` once it has ended.
    pid: Option<Pid>,
    /// What passes its output on.
    relays: Vec<thread::JoinHandle<()>>,
}

fn start(
    job: &JobSpec,
    rank: usize,
    board: &str,
    token: &Token,
    events: Sender<LaunchEvent>,
) -> Result<RankProcess, LaunchError> {
    let mut command = job.command(rank, board)?;
    let mut child =
        command.env(TOKEN, token.as_str()).spawn().map_err(LaunchError::system(format!("cannot start rank {rank}")))?;
    let pid = Pid::from_child(&child);
    let relays = relay_output(rank, &mut child).and_then(|relays| watch(rank, child, events).map(|()| relays));
    let relays = relays.inspect_err(|_| _ = kill_process(pid, Signal::KILL));
    Ok(RankProcess { pid: Some(pid), relays: relays.map_err(LaunchError::system(NO_THREAD))? })
}

/// Waits for the end of a rank, on a thread of its own.
fn watch(rank: usize, mut child: Child, events: Sender<LaunchEvent>) -> io::Result<()> {
    let wait = move || {
        // Where the kernel reaps children by itself, all that is known is that this one is gone.
        let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(1 << 8));
        // The channel is closed once the launcher itself ends.
        let _ = events.send(LaunchEvent::Ended { rank, status });
    };
    thread::Builder::new().spawn(wait).map(drop)
}

/// Passes on the rank's lines behind its number, where its output is piped.
fn relay_output(rank: usize, child: &mut Child) -> io::Result<Vec<thread::JoinHandle<()>>> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let start = thread::Builder::new;
    let out = out.map(|out| start().spawn(move || relay(rank, out, &mut io::stdout())));
    let err = err.map(|err| start().spawn(move || relay(rank, err, &mut io::stderr())));
    out.into_iter().chain(err).collect()
}

fn relay(rank: usize, from: impl Read, to: &mut impl Write) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line);
        if writeln!(to, "[{rank}] {}", text.trim_end_matches('\n')).and_then(|()| to.flush()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Kills the processes that ranks have left behind, and theirs.
fn end_orphans() {
    let me = getpid().as_raw_pid();
    let children = || {
        let read = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap_or_default();
        read.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>()
    };
    // Each round adopts the next generation; a process that cannot be killed must not hold the launcher.
    for _ in 0..100 {
        let orphans = children();
        if orphans.is_empty() {
            return;
        }
        for orphan in orphans {
            let _ = kill_process(orphan, Signal::KILL);
            let _ = waitpid(Some(orphan), WaitOptions::empty());
        }
    }
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
    &JobSpec { workers, exit_timeout, .. }: &JobSpec,
    ranks: &mut [RankProcess],
    events: &Receiver<LaunchEvent>,
    oom_watch: &mut OomWatch,
    complain: impl Fn(&str),
) -> ExitCode {
    let mut worst = 0;
    // Ranks that end by the launcher's own signals are not the cause of anything.
    let mut has_signalled = false;
    let mut ending = Shutdown::None;
    while ranks.iter().any(|rank| rank.pid.is_some()) {
        match next_event(events, ending) {
            // Between the launcher and a rank may be a shell, which this signal would end.
            Some(LaunchEvent::Signal(SIGUSR1)) => board.ask_for_reports(),
            Some(LaunchEvent::Signal(signal)) => {
                pass_on(ranks, signal);
                if matches!(signal, SIGINT | SIGTERM | SIGQUIT | SIGHUP) {
                    worst = worst.max(128 + signal);
                    board.fail("the launcher received a signal to end the job");
                    ending = sooner(ending, Shutdown::KillAt(Instant::now() + exit_timeout));
                }
            }
            Some(LaunchEvent::Ended { rank, status }) => {
                ranks[rank / workers].pid = None;
                let (code, mut text) = judge(status);
                if code == KILLED
                    && let Some(why) = oom_watch.explain_death()
                {
                    text = format!("{text}: {why}");
                }
                if has_signalled && matches!(status.signal(), Some(SIGTERM | SIGKILL)) {
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
                ending = match ending {
                    Shutdown::TellAt(_) => {
                        signal_all(ranks, Signal::TERM);
                        Shutdown::KillAt(Instant::now() + exit_timeout)
                    }
                    _ => {
                        signal_all(ranks, Signal::KILL);
                        Shutdown::KillAt(Instant::now() + AGAIN)
                    }
                }
            }
        }
    }
    ExitCode::from(worst.clamp(0, 255) as u8)
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

/// The exit code that a shell would show, and what happened in words.
fn judge(status: ExitStatus) -> (i32, String) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (code, format!("exited with status {code}")),
        (None, Some(signal)) => (128 + signal, format!("was killed by signal {signal}")),
        (None, None) => (1, "ended".into()),
    }
}

fn pass_on(ranks: &[RankProcess], signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        signal_all(ranks, signal);
    }
}

fn signal_all(ranks: &[RankProcess], signal: Signal) {
    for pid in ranks.iter().filter_map(|rank| rank.pid) {
        // A rank that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_take_processors_in_turn_one_for_each_rank_of_theirs() {
        let of = |workers, cpus: &[usize]| {
            let (program, environment, cpus) = (vec!["roci".into()], Vec::new(), cpus.to_vec());
            let exit_timeout = EXIT_TIMEOUT;
            let job = JobSpec { size: 4, workers, program, environment, prefix: false, cpus, exit_timeout };
            job.firsts().map(|rank| job.cpus_of(rank).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(of(1, &[5, 7]), [[5], [7], [5], [7]]);
        assert_eq!(of(2, &[0, 1, 2, 3]), [[0, 1], [2, 3]]);
        assert_eq!(of(4, &[5, 7]), [[5, 7]]);
        assert_eq!(of(2, &[]), [[0; 0], [0; 0]]);
    }
}
