//! The ranks of one host, started by a process of that host: the launcher, or its agent there.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, set_child_subreaper, waitid, waitpid,
};

use super::oom::OomWatch;
use super::output::{OutputStream, RankOutput};
use super::{JobSpec, KILLED, LaunchError, LaunchEvent, NO_THREAD, allowed_cpus};
use crate::{CPUS, JOB, RANK, Rank, SIZE, TOKEN, Token, WORKERS};

/// What is read of a rank's output at a time.
const CHUNK: usize = 64 << 10;

/// How a process of a rank has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RankEnd {
    /// The exit code that a shell would show.
    pub(crate) code: i32,
    /// What happened, as in `exited with status 3`.
    pub(crate) text: String,
}

/// Takes what a rank has written to a stream.
pub(crate) type ChunkSender = dyn Fn(Rank, OutputStream, &[u8]) -> io::Result<()> + Send + Sync;

/// Where the output of the ranks of this host goes.
#[derive(Clone)]
pub(crate) enum OutputRoute {
    /// As the job wants it, from here.
    Here,
    /// In chunks, to a launcher on another host.
    Chunks(Arc<ChunkSender>),
}

/// The processes that were started here.
pub(crate) struct LocalRanks {
    job: Arc<JobSpec>,
    token: Token,
    route: OutputRoute,
    events: Sender<LaunchEvent>,
    oom_watch: Arc<Mutex<OomWatch>>,
    /// The processes that have not ended, by first rank.
    living: Arc<Mutex<Vec<(Rank, Pid)>>>,
    relays: Vec<thread::JoinHandle<()>>,
}

impl LocalRanks {
    /// None yet. What they leave behind becomes a child of this process, and ends with the job.
    pub(crate) fn new(
        job: Arc<JobSpec>,
        token: Token,
        route: OutputRoute,
        events: Sender<LaunchEvent>,
    ) -> Result<Self, LaunchError> {
        set_child_subreaper(Some(getpid())).map_err(LaunchError::system("cannot adopt what ranks leave behind"))?;
        let (oom_watch, living) = (Arc::new(Mutex::new(OomWatch::new())), Arc::default());
        Ok(Self { job, token, route, events, oom_watch, living, relays: Vec::new() })
    }

    /// Starts the process whose first rank this is, the so manyth of this host; returns its standard input, where that is piped.
    pub(crate) fn start(
        &mut self,
        rank: Rank,
        index: usize,
        board: &str,
        input: Stdio,
    ) -> Result<Option<ChildStdin>, LaunchError> {
        let mut command = self.command(rank, index, board)?;
        let outputs = self.route_output(rank, &mut command)?;
        command.stdin(input).env(TOKEN, self.token.as_str());
        let mut child = command.spawn().map_err(LaunchError::system(format!("cannot start rank {rank}")))?;
        let (pid, input) = (Pid::from_child(&child), child.stdin.take());
        let begun = self.relay(rank, &mut child, outputs).and_then(|()| {
            lock(&self.living).push((rank, pid));
            self.watch(rank, child)
        });
        begun.inspect_err(|_| _ = kill_process(pid, Signal::KILL)).map_err(LaunchError::system(NO_THREAD))?;
        Ok(input)
    }

    fn command(&self, rank: Rank, index: usize, board: &str) -> Result<Command, LaunchError> {
        let this = std::env::current_exe().map_err(LaunchError::system("cannot find this program"))?;
        let job = &self.job;
        let mut command = Command::new(&this);
        command.args(["rank", "--launcher", &std::process::id().to_string()]);
        let cpus = allowed_cpus()?;
        for cpu in job.cpus_of(index, &cpus) {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let (program, arguments) = job.program.split_first().ok_or(LaunchError::NoProgram)?;
        let program = if program == "roci" { this } else { PathBuf::from(program) };
        command.arg("--").args(job.wrapper_of(rank)).arg(program).args(arguments);
        command.env(RANK, rank.to_string()).env(SIZE, job.size.to_string()).env(JOB, board);
        command.env(CPUS, cpus.len().to_string()).env(WORKERS, job.workers.to_string());
        if let Some(directory) = &job.directory {
            std::fs::metadata(directory)
                .map_err(LaunchError::system(format!("cannot enter {}", directory.display())))?;
            command.current_dir(directory);
        }
        command.envs(job.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Has the process write where its output goes; returns whether that is through pipes.
    fn route_output(&self, rank: Rank, command: &mut Command) -> Result<bool, LaunchError> {
        let (mode, doing) = (&self.job.output, "cannot write a rank's output");
        if let OutputRoute::Here = self.route {
            if let Some(file) = mode.open(rank).map_err(LaunchError::system(doing))? {
                let copy = file.try_clone().map_err(LaunchError::system(doing))?;
                command.stdout(file).stderr(copy);
                return Ok(false);
            }
            if !mode.prefix {
                return Ok(false);
            }
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(true)
    }

    fn relay(&mut self, rank: Rank, child: &mut Child, is_piped: bool) -> io::Result<()> {
        if !is_piped {
            return Ok(());
        }
        if let Some(out) = child.stdout.take() {
            self.relay_stream(rank, OutputStream::Out, out)?;
        }
        if let Some(err) = child.stderr.take() {
            self.relay_stream(rank, OutputStream::Err, err)?;
        }
        Ok(())
    }

    fn relay_stream(&mut self, rank: Rank, stream: OutputStream, from: impl Read + Send + 'static) -> io::Result<()> {
        let route = self.route.clone();
        let relay = move || match route {
            OutputRoute::Here => {
                let mut output = RankOutput::new(rank, stream, true, None);
                let _ = copy_chunks(from, |bytes| output.write(bytes));
                let _ = output.finish();
            }
            OutputRoute::Chunks(send) => drop(copy_chunks(from, |bytes| send(rank, stream, bytes))),
        };
        self.relays.push(thread::Builder::new().spawn(relay)?);
        Ok(())
    }

    /// Waits for the end of a process, on a thread of its own.
    fn watch(&self, rank: Rank, child: Child) -> io::Result<()> {
        let (events, oom_watch, living) = (self.events.clone(), self.oom_watch.clone(), self.living.clone());
        let wait = move || {
            let status = outlive(rank, child, &living);
            let mut end = RankEnd::of(status);
            if end.code == KILLED
                && let Some(why) = lock(&oom_watch).explain_death()
            {
                end.text = format!("{}: {why}", end.text);
            }
            // The channel is closed once the launcher itself ends.
            let _ = events.send(LaunchEvent::Ended { rank, end });
        };
        thread::Builder::new().spawn(wait).map(drop)
    }

    /// Sends a signal to all that have not ended.
    pub(crate) fn signal(&self, signal: Signal) {
        for &(_, pid) in lock(&self.living).iter() {
            // A rank that has just ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends what the ranks have left behind, and passes on what they have said last.
    pub(crate) fn finish(self) {
        end_orphans();
        self.relays.into_iter().for_each(|relay| drop(relay.join()));
    }
}

impl RankEnd {
    fn of(status: ExitStatus) -> Self {
        let (code, text) = match (status.code(), status.signal()) {
            (Some(code), _) => (code, format!("exited with status {code}")),
            (None, Some(signal)) => (128 + signal, format!("was killed by signal {signal}")),
            (None, None) => (1, "ended".into()),
        };
        Self { code, text }
    }
}

/// Waits for the end of a rank's process. Its number stays its own until it is out of the list: the kernel must not give it to another
/// process that a signal for this one would reach.
fn outlive(rank: Rank, mut child: Child, living: &Mutex<Vec<(Rank, Pid)>>) -> ExitStatus {
    let id = WaitId::Pid(Pid::from_child(&child));
    let ended = retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
    // Where the kernel reaps children by itself, all that is known is that this one is gone.
    let mut wait = || child.wait().unwrap_or_else(|_| ExitStatus::from_raw(1 << 8));
    // Who may not look at its child without reaping it keeps it in the list until it is reaped.
    let reaped = (!matches!(ended, Ok(_) | Err(Errno::CHILD))).then(&mut wait);
    lock(living).retain(|&(first, _)| first != rank);
    reaped.unwrap_or_else(wait)
}

/// A thread that has panicked leaves nothing half done here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn copy_chunks(mut from: impl Read, mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => to(&chunk[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
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

/// Writes to the standard input of a rank, chunk by chunk; an empty one ends it.
pub(crate) fn write_input(input: &mut Option<ChildStdin>, bytes: &[u8]) {
    let is_done = bytes.is_empty()
        || input.as_mut().is_none_or(|input| input.write_all(bytes).and_then(|()| input.flush()).is_err());
    if is_done {
        *input = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// The state of a process, as the kernel writes it; none where there is no such process.
    fn state_of(pid: Pid) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Who signals a process holds the list, and has its number from there.
    #[test]
    fn the_number_of_a_process_is_not_given_again_while_it_may_be_signalled() {
        let child = Command::new("true").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        let living = Mutex::new(vec![(3, pid)]);
        thread::scope(|scope| {
            let held = lock(&living);
            let end = scope.spawn(|| outlive(3, child, &living));
            let deadline = Instant::now() + Duration::from_secs(10);
            while state_of(pid) != Some('Z') {
                assert!(state_of(pid).is_some(), "it was reaped, and is in the list");
                assert!(Instant::now() < deadline, "it has not ended");
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(50));
            assert_eq!(state_of(pid), Some('Z'), "it was reaped, and is in the list");
            drop(held);
            assert!(end.join().expect("it ends").success());
        });
        assert!(lock(&living).is_empty());
    }
}
