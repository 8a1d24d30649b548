//! Runs the commands of a cell, and ends them where they do not end themselves.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::command::{CommandLine, Lines};
use crate::failure::{BenchFailure, CellFailure};
use crate::reading::Topology;
use crate::stage::RunSetup;

/// More than any of these commands prints; the rest is thrown away.
const OUTPUT_LIMIT: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a server has to listen, or to end once its client has.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);
/// And how long a process that was sent a signal: scripts/lab has a folder to remove.
const GRACE: Duration = Duration::from_secs(3);
/// And this program, for a client, a server and a report.
const LAST_PATIENCE: Duration = Duration::from_secs(20);

/// What a client printed, and how it failed if it did.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) stdout: String,
    pub(crate) failure: Option<CellFailure>,
}

/// Runs a cell's commands to the client's end.
pub(crate) fn run(
    stage: &RunSetup,
    place: Topology,
    lines: &Lines,
    port: u16,
    patience: Duration,
) -> Result<Printed, CellFailure> {
    let deadline = Instant::now() + patience;
    let server = match &lines.server {
        None => None,
        Some(line) => {
            let mut server = Process::start(stage, place, line)?;
            server.wait_until_it_listens(port)?;
            Some(server)
        }
    };
    let client = Process::start(stage, place, &lines.client)?.end(deadline);
    let server = server.map(|server| server.end(Instant::now() + SERVER_PATIENCE));
    // What the server complained of is the cause more often than what the client did.
    let complaint = match server {
        Some(Ok(server)) if !server.stderr.trim().is_empty() => Some(last_line(&server.stderr)),
        _ => None,
    };
    let with_complaint = |client: CellFailure| match complaint {
        Some(complaint) => CellFailure::Both { client: Box::new(client), complaint },
        None => client,
    };
    let Ended { status, stdout, stderr } = match client {
        Ok(ended) => ended,
        Err(failure) => return Err(with_complaint(failure)),
    };
    if status.success() {
        return Ok(Printed { stdout, failure: None });
    }
    let words = last_line(if stderr.trim().is_empty() { &stdout } else { &stderr });
    Ok(Printed { stdout, failure: Some(with_complaint(CellFailure::Ended { status, words })) })
}

/// Groups of processes that run now. They do not receive the signals that a terminal sends to this one.
static GROUPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn groups() -> MutexGuard<'static, Vec<u32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signal that asks this program to end; 0 as long as none has come.
static SIGNAL: AtomicU8 = AtomicU8::new(0);

/// Returns the signal that asks this program to end, if one has come.
pub(crate) fn end_signal() -> Option<u8> {
    Some(SIGNAL.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
}

/// Handles signals that end this program: they end with it what it has started, and it writes the report of what there
/// is. One signal is enough: a terminal's may come a second time, forwarded by scripts/bench.
pub(crate) fn heed_signals() -> Result<(), BenchFailure> {
    let heeded = [SIGINT, SIGTERM].into_iter().chain(Some(SIGHUP).filter(|&signal| !is_ignored(signal)));
    let mut signals = Signals::new(heeded).map_err(BenchFailure::Signals)?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            SIGNAL.store(signal as u8, Ordering::SeqCst);
            thread::sleep(LAST_PATIENCE);
            groups().iter().for_each(|&group| signal_group(group, Signal::KILL));
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Whether this program was started with the signal ignored, as nohup does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn signal_group(group: u32, signal: Signal) {
    // A group that has ended is what we want.
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("said nothing");
    line.trim().chars().take(200).collect()
}

/// A process in a group of its own, so that all that it started can be ended with it.
struct Process {
    name: String,
    child: Child,
    outputs: [Option<JoinHandle<String>>; 2],
}

struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Process {
    fn start(stage: &RunSetup, place: Topology, line: &CommandLine) -> Result<Self, CellFailure> {
        let words = stage.dress(place, line)?;
        let (program, arguments) = words.split_first().ok_or(CellFailure::NoCommand)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.envs(line.environment.iter().map(|(name, value)| (name, value)));
        let not_started = |error| CellFailure::NotStarted { program: program.clone(), error };
        let mut child = command.spawn().map_err(not_started)?;
        groups().push(child.id());
        let outputs = [
            child.stdout.take().map(|pipe| thread::spawn(|| drain(pipe))),
            child.stderr.take().map(|pipe| thread::spawn(|| drain(pipe))),
        ];
        let name = line.words.first().map_or(program, |word| word).clone();
        Ok(Self { name, child, outputs })
    }

    /// Looks at the sockets that the process sees, which are those of its namespace.
    fn wait_until_it_listens(&mut self, port: u16) -> Result<(), CellFailure> {
        let deadline = Instant::now() + SERVER_PATIENCE;
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.child.id()));
        loop {
            let is_listening = |table: &String| std::fs::read_to_string(table).is_ok_and(|text| listens(&text, port));
            if tables.iter().any(is_listening) {
                return Ok(());
            }
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                let words = last_line(&self.take_output(1));
                return Err(CellFailure::EndedEarly { name: self.name.clone(), words });
            }
            if end_signal().is_some() {
                return Err(CellFailure::StoppedEarly(self.name.clone()));
            }
            if Instant::now() > deadline {
                return Err(CellFailure::DoesNotListen { name: self.name.clone(), port });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits for its end, and makes it end at the deadline.
    fn end(mut self, deadline: Instant) -> Result<Ended, CellFailure> {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if end_signal().is_some() => {
                    self.kill();
                    return Err(CellFailure::Stopped(self.name.clone()));
                }
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
                Ok(None) => {
                    self.kill();
                    let seconds = begun.elapsed().as_secs_f64();
                    return Err(CellFailure::Killed { name: self.name.clone(), seconds });
                }
                Err(error) => return Err(CellFailure::Lost { name: self.name.clone(), error }),
            }
        };
        let (stdout, stderr) = (self.take_output(0), self.take_output(1));
        Ok(Ended { status, stdout, stderr })
    }

    fn take_output(&mut self, which: usize) -> String {
        // What it has left behind could hold the pipe open.
        self.signal(Signal::KILL);
        self.outputs[which].take().and_then(|output| output.join().ok()).unwrap_or_default()
    }

    /// First so that it can clean up, then for good.
    fn kill(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK_EVERY);
        }
        self.signal(Signal::KILL);
        // It is dead, or the kernel holds it: either way there is nothing more to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        signal_group(self.child.id(), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
        groups().retain(|&group| group != self.child.id());
    }
}

fn drain(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // A broken pipe is an end, too.
    let _ = pipe.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a socket of a table in the style of /proc/net/tcp listens on this port.
fn listens(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit(':').next());
        let state = words.nth(1);
        local.and_then(|port| u16::from_str_radix(port, 16).ok()) == Some(port) && state == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Side;

    fn shell(side: Side, script: &str) -> CommandLine {
        CommandLine::new(side, ["sh", "-c", script])
    }

    /// What it has printed, and how it has failed if it has; or why neither is known.
    fn run_alone(script: &str, patience: Duration) -> Result<(String, Option<String>), String> {
        let done = run(&RunSetup::bare(), Topology::Host, &Lines::alone(shell(Side::Both, script)), 0, patience);
        let Printed { stdout, failure } = done.map_err(|failure| failure.to_string())?;
        Ok((stdout, failure.map(|failure| failure.to_string())))
    }

    #[test]
    fn what_a_command_prints_is_returned_and_its_errors_are_reported() {
        let printed = |stdout: &str, failure: Option<&str>| Ok((stdout.to_owned(), failure.map(str::to_owned)));
        let minute = Duration::from_mins(1);
        assert_eq!(run_alone("echo yes; echo noise >&2", minute), printed("yes\n", None));
        let failing = run_alone("echo row; echo first >&2; echo why >&2; exit 3", minute);
        assert_eq!(failing, printed("row\n", Some("ended with exit status: 3: why")));
        let lines = Lines::alone(CommandLine::new(Side::Both, ["/no/such/program"]));
        let trouble = run(&RunSetup::bare(), Topology::Host, &lines, 0, Duration::from_mins(1))
            .expect_err("nothing to start")
            .to_string();
        assert!(trouble.starts_with("cannot start /no/such/program"), "{trouble}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_started() {
        let marker = tempfile::NamedTempFile::new().expect("a file");
        let path = marker.path().display();
        let script = format!("trap '' TERM; (trap '' TERM; sleep 600) & echo $! >{path}; wait");
        let trouble = run_alone(&script, Duration::from_secs(3)).expect_err("it hangs");
        assert!(trouble.contains("had not ended") && trouble.contains("was killed"), "{trouble}");
        let child = std::fs::read_to_string(marker.path()).expect("it was started");
        // It was sent a signal; the kernel takes its time. A zombie that was not waited for is dead, too.
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        let is_dead = || Some(stat()).is_some_and(|stat| stat.is_empty() || stat.contains(" Z "));
        let mut looks = 0;
        while !is_dead() {
            looks += 1;
            assert!(looks < 10_000, "{}", stat());
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn a_command_that_is_ended_can_clean_up() {
        let marker = tempfile::NamedTempFile::new().expect("a file");
        let path = marker.path().display();
        let script = format!("trap 'sleep 0.7; echo removed >{path}; exit 1' TERM; sleep 600 & wait");
        run_alone(&script, Duration::from_secs(5)).expect_err("it hangs");
        assert_eq!(std::fs::read_to_string(marker.path()).expect("the file"), "removed\n");
    }

    #[test]
    fn a_server_that_ends_early_is_reported_with_its_reason() {
        let lines = Lines::pair(shell(Side::Server, "echo no memory >&2; exit 1"), shell(Side::Client, "echo never"));
        let trouble = run(&RunSetup::bare(), Topology::Host, &lines, 1, Duration::from_mins(1))
            .expect_err("no server")
            .to_string();
        assert_eq!(trouble, "sh ended before it listened: no memory");
    }

    #[test]
    fn a_listening_socket_differs_from_a_connected_one() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   0: 0100007F:3458 00000000:0000 0A 00000000\n   \
                     1: 0100007F:1F90 0100007F:3458 01 00000000\n";
        assert!(listens(table, 0x3458));
        assert!(!listens(table, 0x1f90));
        assert!(!listens(table, 80));
        assert!(!listens("", 80));
    }
}
