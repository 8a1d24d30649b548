//! `roci run`: starts the ranks of a job here, passes signals on, and returns the worst of their statuses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use roci_driver::link::dpdk::room_for_descriptors;
use roci_msgcore::Config;
use roci_msgcore::config::{KNOBS, Origin};
use roci_msgcore::job::{Board, CPUS, JOB, RANK, SIZE, TOKEN, Token, WORKERS};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use rustix::thread::sched_getaffinity;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::job_directory::JobDirectory;
use super::oom::OomWatch;
use crate::failure::{Context, Failure};
use crate::options::RunOptions;
use crate::output;

/// How long the others may go on after one rank has failed, before they are told to end, and again before they
/// are killed.
const GRACE: Duration = Duration::from_secs(5);
/// The exit code of a rank that was killed; a shell says it of what it has started.
const KILLED: i32 = 128 + SIGKILL;
/// Descriptors of the launcher's own: its lock, its socket, what wakes it for signals, and some for a moment.
const OWN_DESCRIPTORS: usize = 8;
/// Why the launcher has one thread too few, and the remedy.
const NO_THREAD: &str = "cannot start a thread (free memory, or raise the limit of processes: ulimit -u)";
/// A longer line of a rank is passed on in pieces.
const LINE_LIMIT: u64 = 64 << 10;

pub(crate) fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let mut config = Config::load(options.paramfile.as_deref())?;
    for (name, value) in options.device.knobs() {
        config.set(name, &value, Origin::Code)?;
    }
    let (size, workers) = (options.ranks as usize, options.workers as usize);
    if !size.is_multiple_of(workers) {
        return Err(Failure::new(format!("{size} ranks are no whole processes of {workers} workers")));
    }
    let job = Job {
        size,
        workers,
        program: options.program.clone(),
        knobs: changed_knobs(&config),
        prefix: options.prefix,
        cpus: if options.pin { allowed_cpus()? } else { Vec::new() },
    };
    if options.show {
        for rank in job.firsts() {
            output::line(job.describe(rank))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    launch(&job)
}

/// What is to be started.
pub(crate) struct Job {
    pub(crate) size: usize,
    /// Ranks of each process.
    pub(crate) workers: usize,
    pub(crate) program: Vec<String>,
    /// Environment variables of knobs.
    pub(crate) knobs: Vec<(String, String)>,
    pub(crate) prefix: bool,
    /// Processors to give to the ranks in turn; none where they may roam.
    pub(crate) cpus: Vec<usize>,
}

/// The knobs that differ from their defaults, as environment variables.
pub(crate) fn changed_knobs(config: &Config) -> Vec<(String, String)> {
    let changed = KNOBS.iter().filter(|knob| config.origin(knob.name) != Origin::Default);
    changed.map(|knob| (knob.environment_name(), knob.value(config))).collect()
}

/// The processors that this process may use.
pub(crate) fn allowed_cpus() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(None).context("cannot ask for the allowed processors")?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

impl Job {
    /// The first rank of each process.
    fn firsts(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.size).step_by(self.workers)
    }

    /// How many the launcher will have: for each rank a connection's two ends of work, for each process its output's pipes.
    fn descriptors(&self) -> usize {
        let pipes = if self.prefix { 2 * (self.size / self.workers) } else { 0 };
        OWN_DESCRIPTORS + 2 * self.size + pipes
    }

    fn describe(&self, rank: usize) -> String {
        let knobs: String = self.knobs.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
        let workers = if self.workers > 1 { format!("{WORKERS}={} ", self.workers) } else { String::new() };
        format!("{RANK}={rank} {SIZE}={} {workers}{knobs}{}", self.size, self.program.join(" "))
    }

    /// Of the process whose first rank this is: as many as it has ranks, where there are so many.
    fn cpus_of(&self, rank: usize) -> impl Iterator<Item = usize> + '_ {
        let count = self.cpus.len();
        (rank..rank + self.workers.min(count)).map(move |at| self.cpus[at % count])
    }

    fn command(&self, rank: usize, board: &str) -> Result<Command, Failure> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(&this);
        command.args(["rank", "--launcher", &std::process::id().to_string()]);
        for cpu in self.cpus_of(rank) {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let (program, arguments) = self.program.split_first().ok_or_else(|| Failure::new("no program"))?;
        let program = if program == "roci" { this } else { PathBuf::from(program) };
        command.arg("--").arg(program).args(arguments);
        command.env(RANK, rank.to_string()).env(SIZE, self.size.to_string()).env(JOB, board);
        command.env(CPUS, allowed_cpus()?.len().to_string()).env(WORKERS, self.workers.to_string());
        command.envs(self.knobs.iter().map(|(name, value)| (name, value)));
        command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
        if self.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Ok(command)
    }
}

/// What wakes the launcher.
enum Event {
    Signal(i32),
    Ended { rank: usize, status: ExitStatus },
}

/// Runs a job to its end. No rank outlives this call.
pub(crate) fn launch(job: &Job) -> Result<ExitCode, Failure> {
    room_for_descriptors(job.descriptors()).context(format!("for a job of {} ranks", job.size))?;
    let directory = JobDirectory::new()?;
    let socket = directory.path().join("job");
    let token = Token::random();
    let board = Board::new(job.size, token.clone());
    board.serve_unix(&socket).context(format!("cannot serve the job at {}", socket.display()))?;
    let (sender, events) = channel();
    forward_signals(sender.clone())?;
    // What a rank leaves behind becomes a child of this process, and ends with the job.
    set_child_subreaper(Some(getpid())).context("cannot adopt what ranks leave behind")?;
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
    let code = supervise(&board, job.workers, &mut ranks, &events, &mut oom_watch);
    end_orphans();
    ranks.into_iter().flat_map(|rank| rank.relays).for_each(|relay| drop(relay.join()));
    Ok(code)
}

/// A process that was started, with its first rank's number.
struct Rank {
    /// `None` once it has ended.
    pid: Option<Pid>,
    /// What passes its output on.
    relays: Vec<thread::JoinHandle<()>>,
}

fn start(job: &Job, rank: usize, board: &str, token: &Token, events: Sender<Event>) -> Result<Rank, Failure> {
    let mut child =
        job.command(rank, board)?.env(TOKEN, token.as_str()).spawn().context(format!("cannot start rank {rank}"))?;
    let pid = Pid::from_child(&child);
    let relays = relay_output(rank, &mut child).and_then(|relays| watch(rank, child, events).map(|()| relays));
    let relays = relays.inspect_err(|_| _ = kill_process(pid, Signal::KILL));
    Ok(Rank { pid: Some(pid), relays: relays.context(NO_THREAD)? })
}

/// Waits for the end of a rank, on a thread of its own.
fn watch(rank: usize, mut child: Child, events: Sender<Event>) -> io::Result<()> {
    let wait = move || {
        // Where the kernel reaps children by itself, all that is known is that this one is gone.
        let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(1 << 8));
        // Nobody listens once the launcher itself ends.
        let _ = events.send(Event::Ended { rank, status });
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

fn forward_signals(events: Sender<Event>) -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]).context("cannot take signals")?;
    let forward = move || {
        for signal in signals.forever() {
            let _ = events.send(Event::Signal(signal));
        }
    };
    thread::Builder::new().spawn(forward).map(drop).context(NO_THREAD)
}

/// What is done to ranks that go on after the job has failed.
#[derive(Clone, Copy)]
enum Ending {
    /// The job is well.
    None,
    /// At this moment they are told to end.
    TellAt(Instant),
    /// At this moment they are killed.
    KillAt(Instant),
}

fn supervise(
    board: &Board,
    workers: usize,
    ranks: &mut [Rank],
    events: &Receiver<Event>,
    oom_watch: &mut OomWatch,
) -> ExitCode {
    let mut worst = 0;
    // Ranks that end because they were told to are not the cause of anything.
    let mut have_told = false;
    let mut ending = Ending::None;
    while ranks.iter().any(|rank| rank.pid.is_some()) {
        match next_event(events, ending) {
            // Between the launcher and a rank may be a shell, which this signal would end.
            Some(Event::Signal(SIGUSR1)) => board.ask_for_reports(),
            Some(Event::Signal(signal)) => {
                pass_on(ranks, signal);
                if matches!(signal, SIGINT | SIGTERM | SIGQUIT | SIGHUP) {
                    worst = worst.max(128 + signal);
                    board.fail("the job was told to end");
                    ending = sooner(ending, Ending::KillAt(Instant::now() + GRACE));
                }
            }
            Some(Event::Ended { rank, status }) => {
                ranks[rank / workers].pid = None;
                let (code, mut text) = judge(status);
                if code == KILLED
                    && let Some(why) = oom_watch.explain_death()
                {
                    text = format!("{text}: {why}");
                }
                if have_told && matches!(status.signal(), Some(SIGTERM | SIGKILL)) {
                    continue;
                }
                worst = worst.max(code);
                let reason = format!("rank {rank} {text}");
                for rank in rank..rank + workers {
                    if code == 0 { board.depart(rank, &reason) } else { board.fail_rank(rank, &reason) }
                }
                if code != 0 {
                    output::complain(format!("rank {rank} {text}"));
                    ending = sooner(ending, Ending::TellAt(Instant::now() + GRACE));
                }
            }
            None => {
                have_told = true;
                ending = match ending {
                    Ending::TellAt(_) => {
                        signal_all(ranks, Signal::TERM);
                        Ending::KillAt(Instant::now() + GRACE)
                    }
                    _ => {
                        signal_all(ranks, Signal::KILL);
                        Ending::KillAt(Instant::now() + GRACE)
                    }
                }
            }
        }
    }
    ExitCode::from(worst.clamp(0, 255) as u8)
}

/// The next event, or `None` when the ending's moment has come.
fn next_event(events: &Receiver<Event>, ending: Ending) -> Option<Event> {
    match ending {
        Ending::None => events.recv().ok(),
        Ending::TellAt(at) | Ending::KillAt(at) => {
            events.recv_timeout(at.saturating_duration_since(Instant::now())).ok()
        }
    }
}

/// An ending that has begun is not put off.
fn sooner(present: Ending, new: Ending) -> Ending {
    if matches!(present, Ending::None) { new } else { present }
}

/// The exit code that a shell would show, and what happened in words.
fn judge(status: ExitStatus) -> (i32, String) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (code, format!("exited with status {code}")),
        (None, Some(signal)) => (128 + signal, format!("was killed by signal {signal}")),
        (None, None) => (1, "ended".into()),
    }
}

fn pass_on(ranks: &[Rank], signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        signal_all(ranks, signal);
    }
}

fn signal_all(ranks: &[Rank], signal: Signal) {
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
            let (program, knobs, cpus) = (vec!["roci".into()], Vec::new(), cpus.to_vec());
            let job = Job { size: 4, workers, program, knobs, prefix: false, cpus };
            job.firsts().map(|rank| job.cpus_of(rank).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(of(1, &[5, 7]), [[5], [7], [5], [7]]);
        assert_eq!(of(2, &[0, 1, 2, 3]), [[0, 1], [2, 3]]);
        assert_eq!(of(4, &[5, 7]), [[5, 7]]);
        assert_eq!(of(2, &[]), [[0; 0], [0; 0]]);
    }
}
