//! The ranks of another host: the launcher's end. A remote shell runs an agent there, which starts them; frames go both ways
//! over its standard streams. When this end is closed the agent ends with its ranks, whatever became of the launcher.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::agent::AgentJob;
use super::frame::{AgentFrame, FrameKind};
use super::output::{OutputStream, RankOutput};
use super::process::RankEnd;
use super::{JobSpec, LaunchError, LaunchEvent, NO_THREAD};
use crate::Rank;

/// The remote shell by default. It asks nothing, and notices within 15 seconds that a host is gone.
pub const REMOTE_SHELL: &str = "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3";
/// Standard input that is read at a time.
const INPUT_CHUNK: usize = 64 << 10;
/// How often the end of a remote shell is looked for, and for how long where it has closed its output.
const LOOK: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_secs(1);
const SHELL_ENDED: &str = "the remote shell has ended";

/// A host whose ranks an agent starts.
pub(crate) struct RemoteHost {
    name: String,
    shell: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    reader: Option<thread::JoinHandle<()>>,
    started: Receiver<StartOutcome>,
}

/// Whether an agent has started its ranks.
enum StartOutcome {
    /// They find the board at this place.
    At(String),
    /// The reason why not.
    Failed(String),
}

impl RemoteHost {
    /// Starts an agent on a host, and has it start the processes of its share.
    pub(crate) fn start(
        name: &str,
        job: &Arc<JobSpec>,
        agent_job: &AgentJob,
        events: Sender<LaunchEvent>,
    ) -> Result<Self, LaunchError> {
        let this = std::env::current_exe().map_err(LaunchError::system("cannot find this program"))?;
        let mut command = remote_command(&job.remote_shell, name)?;
        command.arg(quoted(&this.display().to_string())).arg("agent");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let starting = || format!("cannot start {} for {name}", job.remote_shell);
        let mut shell = command.spawn().map_err(|source| LaunchError::System { doing: starting(), source })?;
        let (mut input, output) = (shell.stdin.take(), shell.stdout.take());
        if let Some(input) = &mut input {
            // An agent that is not there says so by its end.
            let _ = AgentFrame::new(FrameKind::Job, 0, agent_job.to_json()).write_to(input);
        }
        let (sender, started) = sync_channel(1);
        let input = Arc::new(Mutex::new(input));
        let reading = HostReader {
            name: name.to_owned(),
            job: job.clone(),
            unended: agent_job.firsts.clone(),
            outputs: BTreeMap::new(),
            input: input.clone(),
            stdin: None,
            started: Some(sender),
            events,
        };
        let output = output.expect("it is piped");
        let reader = thread::Builder::new().spawn(move || reading.read(BufReader::new(output)));
        let reader = Some(reader.map_err(LaunchError::system(NO_THREAD))?);
        Ok(Self { name: name.to_owned(), shell, input, reader, started })
    }

    /// Waits until its ranks run; returns the address at which they have found the board.
    pub(crate) fn wait_until_started(&mut self) -> Result<String, LaunchError> {
        // The reader says one of both before it ends.
        let reason = match self.started.recv() {
            Ok(StartOutcome::At(place)) => return Ok(place),
            Ok(StartOutcome::Failed(reason)) => reason,
            Err(_) => SHELL_ENDED.into(),
        };
        let status = if reason == SHELL_ENDED { self.status_soon() } else { None };
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        Err(LaunchError::Remote { host: self.name.clone(), reason: format!("{reason}{status}") })
    }

    /// The status of a shell that has closed its output, and is about to end.
    fn status_soon(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + SOON;
        loop {
            match self.shell.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
                outcome => return outcome.ok().flatten(),
            }
        }
    }

    /// Sends a signal to all its ranks.
    pub(crate) fn signal(&self, signal: Signal) {
        let frame = AgentFrame::new(FrameKind::Signal, signal.as_raw() as usize, "");
        if let Some(input) = &mut *lock(&self.input) {
            // An agent that has gone has taken its ranks with it.
            let _ = frame.write_to(input);
        }
    }

    /// Hangs up, and waits for the remote shell's end, so long at most.
    pub(crate) fn finish(mut self, patience: Duration) {
        *lock(&self.input) = None;
        let deadline = Instant::now() + patience;
        while matches!(self.shell.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        // A child of this process's, which has not been waited for, or has ended.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The command that runs another one on a host: the host's name takes the place of `%h`, or stands behind all words.
pub(super) fn remote_command(shell: &str, host: &str) -> Result<Command, LaunchError> {
    let mut words = shell.split_whitespace().map(|word| word.replace("%h", host));
    let mut command = Command::new(words.next().ok_or(LaunchError::NoRemoteShell)?);
    command.args(words);
    if !shell.contains("%h") {
        command.arg(host);
    }
    Ok(command)
}

/// A word as a shell reads it back.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What comes from one agent.
struct HostReader {
    name: String,
    job: Arc<JobSpec>,
    /// Processes whose end has not been reported, by first rank.
    unended: Vec<Rank>,
    outputs: BTreeMap<(Rank, OutputStream), RankOutput>,
    input: Arc<Mutex<Option<ChildStdin>>>,
    /// Where rank 0 is there: asks for more of the launcher's standard input.
    stdin: Option<SyncSender<()>>,
    started: Option<SyncSender<StartOutcome>>,
    events: Sender<LaunchEvent>,
}

impl HostReader {
    fn read(mut self, mut from: BufReader<impl Read>) {
        let reason = loop {
            match AgentFrame::read_from(&mut from) {
                Ok(Some(frame)) => self.take(frame),
                Ok(None) => break SHELL_ENDED.to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        for output in std::mem::take(&mut self.outputs).into_values() {
            // Who does not read our output has no use for the rest of it.
            let _ = output.finish();
        }
        if let Some(started) = self.started.take() {
            let _ = started.send(StartOutcome::Failed(reason));
            return;
        }
        for rank in std::mem::take(&mut self.unended) {
            let text = format!("on {} is lost: {reason}", self.name);
            self.end(rank, RankEnd { code: 255, text });
        }
    }

    fn take(&mut self, frame: AgentFrame) {
        match frame.kind {
            FrameKind::Started => self.start(frame.text()),
            FrameKind::Failed => {
                self.unended.clear();
                self.started.take().map(|started| started.send(StartOutcome::Failed(frame.text())));
            }
            FrameKind::Out => self.print(frame.number, OutputStream::Out, &frame.bytes),
            FrameKind::Err => self.print(frame.number, OutputStream::Err, &frame.bytes),
            FrameKind::InputTaken => drop(self.stdin.as_ref().map(|wishes| wishes.try_send(()))),
            FrameKind::Ended => {
                let text = frame.text();
                let end = text
                    .split_once(' ')
                    .and_then(|(code, text)| Some(RankEnd { code: code.parse().ok()?, text: text.into() }));
                let end = end.unwrap_or(RankEnd { code: 1, text: "ended".into() });
                // An agent speaks for its own ranks, and once for each.
                if let Some(at) = self.unended.iter().position(|&rank| rank == frame.number) {
                    self.unended.remove(at);
                    self.end(frame.number, end);
                }
            }
            // These go the other way.
            FrameKind::Job | FrameKind::Signal | FrameKind::Input => {}
        }
    }

    fn start(&mut self, place: String) {
        if self.unended.contains(&0) {
            let (sender, wishes) = sync_channel(1);
            let input = self.input.clone();
            let copy = move || copy_stdin(&wishes, &input);
            if thread::Builder::new().spawn(copy).is_ok() {
                let _ = sender.try_send(());
                self.stdin = Some(sender);
            }
        }
        self.started.take().map(|started| started.send(StartOutcome::At(place)));
    }

    fn print(&mut self, rank: Rank, stream: OutputStream, bytes: &[u8]) {
        let mode = &self.job.output;
        if !self.outputs.contains_key(&(rank, stream)) {
            let other = match stream {
                OutputStream::Out => OutputStream::Err,
                OutputStream::Err => OutputStream::Out,
            };
            let file = match self.outputs.get(&(rank, other)) {
                Some(output) => output.copy_of_file(),
                None => mode.open(rank),
            };
            let file = file.unwrap_or_else(|error| {
                tracing::error!("cannot write the output of rank {rank}: {error}");
                None
            });
            self.outputs.insert((rank, stream), RankOutput::new(rank, stream, mode.prefix, file));
        }
        if let Some(output) = self.outputs.get_mut(&(rank, stream)) {
            // Who does not read our output has no use for more of it.
            let _ = output.write(bytes);
        }
    }

    fn end(&self, rank: Rank, end: RankEnd) {
        let _ = self.events.send(LaunchEvent::Ended { rank, end });
    }
}

/// Passes this process's standard input on, a chunk for each wish.
fn copy_stdin(wishes: &Receiver<()>, input: &Mutex<Option<ChildStdin>>) {
    let mut chunk = vec![0; INPUT_CHUNK];
    while wishes.recv().is_ok() {
        let count = io::stdin().read(&mut chunk).unwrap_or(0);
        let frame = AgentFrame::new(FrameKind::Input, 0, &chunk[..count]);
        let is_passed_on = lock(input).as_mut().is_some_and(|input| frame.write_to(input).is_ok());
        if count == 0 || !is_passed_on {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_take_it_apart() {
        for (word, shown) in
            [("/usr/bin/roci", "/usr/bin/roci"), ("a b", "'a b'"), ("", "''"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
        {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn the_host_stands_where_the_remote_shell_wants_it() {
        let words = |shell| {
            let command = remote_command(shell, "node1").expect("a shell");
            let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            format!("{} {}", command.get_program().to_string_lossy(), arguments.join(" "))
        };
        assert_eq!(words("ssh -p 2222"), "ssh -p 2222 node1");
        assert_eq!(words("ip netns exec %h"), "ip netns exec node1");
        assert!(remote_command(" ", "node1").is_err());
    }
}
