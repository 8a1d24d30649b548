//! The ranks of another host: the launcher's end. A remote shell runs an agent there, which starts them; frames go both ways
//! over its standard streams. When this end is closed the agent ends with its ranks, whatever became of the launcher.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;

use super::agent::AgentJob;
use super::allocation;
use super::frame::{AgentFrame, FrameKind};
use super::output::{OutputStream, RankOutput};
use super::process::RankEnd;
use super::{JobSpec, LaunchError, LaunchEvent, NO_THREAD};
use crate::Rank;

/// The remote shell by default. It asks nothing, and notices within 15 seconds that a host is gone.
pub const REMOTE_SHELL: &str = "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3";
/// Standard input that is read at a time.
const INPUT_CHUNK: usize = 64 << 10;
/// Frames that wait for an agent: signals that it does not take are lost, and the last of them is followed by its end.
const FRAMES: usize = 16;
/// How often the end of a remote shell is looked for, and whether standard input is ours to read.
const LOOK: Duration = Duration::from_millis(20);
/// How long a remote shell that has closed its output may take to end.
const SOON: Duration = Duration::from_secs(1);
/// Why the ranks of a host have not started, or are lost, where there is no other reason.
pub(super) const SHELL_ENDED: &str = "the remote shell has ended";

/// A host whose ranks an agent starts.
pub(crate) struct RemoteHost {
    pub(crate) name: String,
    /// The first rank of each of its processes.
    pub(crate) firsts: Vec<Rank>,
    shell: Child,
    frames: SyncSender<AgentFrame>,
    reader: thread::JoinHandle<()>,
    pulse: Arc<ReaderPulse>,
    /// Its shell was ended: nothing is expected of it.
    is_abandoned: bool,
}

/// Whether something comes from an agent.
#[derive(Default)]
struct ReaderPulse {
    /// Frames that have come, modulo.
    frames: AtomicUsize,
    /// The reader waits for who reads the launcher's output, and not for the agent.
    is_printing: AtomicBool,
}

/// The files that the output of ranks goes to, by first rank; empty where it goes elsewhere.
pub(crate) type OutputFiles = BTreeMap<Rank, File>;

impl RemoteHost {
    /// Starts an agent on a host, and has it start the processes of its share. What becomes of that is an event.
    pub(crate) fn start(
        name: &str,
        job: &JobSpec,
        agent_job: AgentJob,
        files: OutputFiles,
        events: Sender<LaunchEvent>,
    ) -> Result<Self, LaunchError> {
        let this = std::env::current_exe().map_err(LaunchError::system("cannot find this program"))?;
        let mut command = remote_command(&job.remote_shell, name)?;
        let this = quoted(&this.display().to_string());
        // ssh makes one line of its words, and `sh -c` takes one.
        if job.remote_shell.trim_end().ends_with(" -c") {
            command.arg(format!("exec {this} agent"));
        } else {
            command.args([&this, "agent"]);
        }
        // In a group of its own: a terminal's signals are for the launcher, which passes them on to the ranks.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let doing = || format!("cannot start {} for {name}", job.remote_shell);
        let mut shell = command.spawn().map_err(|source| LaunchError::System { doing: doing(), source })?;
        let (input, output) = shell.stdin.take().zip(shell.stdout.take()).expect("both are piped");
        let (frames, to_write) = sync_channel(FRAMES);
        frames.send(AgentFrame::new(FrameKind::Job, 0, agent_job.to_json())).expect("a thread will take it");
        let firsts = agent_job.firsts;
        let pulse = Arc::<ReaderPulse>::default();
        let reading = HostReader {
            host: name.to_owned(),
            has_prefix: job.output.prefix,
            unended: firsts.clone(),
            firsts: firsts.clone(),
            files,
            outputs: BTreeMap::new(),
            input: AgentInput { frames: frames.clone(), wishes: None },
            has_started: false,
            pulse: pulse.clone(),
            events,
        };
        let threads = thread::Builder::new()
            .spawn(move || write_frames(input, &to_write))
            .and_then(|_| thread::Builder::new().spawn(move || reading.read(BufReader::new(output))));
        let reader = threads.inspect_err(|_| drop(shell.kill())).map_err(LaunchError::system(NO_THREAD))?;
        Ok(Self { name: name.to_owned(), firsts, shell, frames, reader, pulse, is_abandoned: false })
    }

    /// Sends a signal to all its ranks. An agent that takes nothing any more has no use for it.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = self.frames.try_send(AgentFrame::new(FrameKind::Signal, signal.as_raw() as usize, ""));
    }

    /// The status of a shell that has closed its output, and is about to end.
    pub(crate) fn status_soon(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + SOON;
        loop {
            match self.shell.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
                outcome => return outcome.ok().flatten(),
            }
        }
    }

    /// Ends a shell whose agent does not do what it should.
    pub(crate) fn abandon(&mut self) {
        // A child of this process's, which has not been waited for, or has ended.
        let _ = self.shell.kill();
        self.is_abandoned = true;
    }

    /// Hangs up, and waits until all output has come, or somebody interrupts that. An agent that sends nothing for so long is
    /// ended.
    pub(crate) fn finish(mut self, patience: Duration, is_interrupted: impl Fn() -> bool) {
        let _ = self.frames.try_send(AgentFrame::new(FrameKind::Finish, 0, ""));
        let (mut deadline, mut frames) = (Instant::now() + patience, 0);
        while !self.is_abandoned && !self.reader.is_finished() && Instant::now() < deadline && !is_interrupted() {
            let now = self.pulse.frames.load(Ordering::Relaxed);
            if now != frames || self.pulse.is_printing.load(Ordering::Relaxed) {
                (deadline, frames) = (Instant::now() + patience, now);
            }
            thread::sleep(LOOK);
        }
        self.abandon();
        let _ = self.shell.wait();
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
    allocation::clean(&mut command);
    Ok(command)
}

/// A word as a shell reads it back.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&byte);
    let is_word = !word.is_empty() && word.bytes().all(is_plain);
    if is_word { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Writes frames until the last one, or until the agent reads no more.
fn write_frames(mut input: ChildStdin, frames: &Receiver<AgentFrame>) {
    for frame in frames {
        if frame.kind == FrameKind::Finish || frame.write_to(&mut input).is_err() {
            return;
        }
    }
}

/// What goes to the agent beside signals: the launcher's standard input, chunk by chunk as it asks for more.
struct AgentInput {
    frames: SyncSender<AgentFrame>,
    wishes: Option<SyncSender<()>>,
}

impl AgentInput {
    /// From now on.
    fn start(&mut self) {
        let (wish, wishes) = sync_channel(1);
        let frames = self.frames.clone();
        if thread::Builder::new().spawn(move || copy_stdin(&wishes, &frames)).is_ok() {
            self.wishes = Some(wish);
            self.want();
        }
    }

    fn want(&self) {
        // One wish is enough.
        let _ = self.wishes.as_ref().map(|wishes| wishes.try_send(()));
    }
}

/// Passes this process's standard input on, a chunk for each wish.
fn copy_stdin(wishes: &Receiver<()>, frames: &SyncSender<AgentFrame>) {
    let mut chunk = vec![0; INPUT_CHUNK];
    while wishes.recv().is_ok() {
        wait_for_foreground();
        let count = io::stdin().read(&mut chunk).unwrap_or(0);
        let is_passed_on = frames.send(AgentFrame::new(FrameKind::Input, 0, &chunk[..count])).is_ok();
        if count == 0 || !is_passed_on {
            return;
        }
    }
}

/// A job in the background of a terminal would be stopped if it read there.
fn wait_for_foreground() {
    let is_in_background = || io::stdin().is_terminal() && tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp());
    while is_in_background() {
        thread::sleep(LOOK);
    }
}

/// What comes from one agent.
struct HostReader {
    host: String,
    has_prefix: bool,
    firsts: Vec<Rank>,
    /// Processes of these whose end has not been reported.
    unended: Vec<Rank>,
    files: OutputFiles,
    outputs: BTreeMap<(Rank, OutputStream), RankOutput>,
    input: AgentInput,
    has_started: bool,
    pulse: Arc<ReaderPulse>,
    events: Sender<LaunchEvent>,
}

impl HostReader {
    fn read(mut self, mut from: BufReader<impl Read>) {
        let reason = loop {
            match AgentFrame::read_from(&mut from) {
                Ok(Some(frame)) => {
                    self.pulse.frames.fetch_add(1, Ordering::Relaxed);
                    self.pulse.is_printing.store(true, Ordering::Relaxed);
                    self.take(frame);
                    self.pulse.is_printing.store(false, Ordering::Relaxed);
                }
                Ok(None) => break SHELL_ENDED.to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        for output in std::mem::take(&mut self.outputs).into_values() {
            // Who does not read our output has no use for the rest of it.
            let _ = output.finish();
        }
        if !self.has_started {
            return self.tell(LaunchEvent::NotStarted { host: self.host.clone(), reason });
        }
        for rank in std::mem::take(&mut self.unended) {
            let text = format!("on {} is lost: {reason}", self.host);
            self.tell(LaunchEvent::Ended { rank, end: RankEnd { code: 255, text } });
        }
    }

    fn take(&mut self, frame: AgentFrame) {
        match frame.kind {
            FrameKind::Started => self.start(frame.text()),
            FrameKind::Failed => {
                self.has_started = true;
                self.unended.clear();
                self.tell(LaunchEvent::NotStarted { host: self.host.clone(), reason: frame.text() });
            }
            FrameKind::Out => self.print(frame.number, OutputStream::Out, &frame.bytes),
            FrameKind::Err => self.print(frame.number, OutputStream::Err, &frame.bytes),
            FrameKind::InputTaken => self.input.want(),
            FrameKind::Ended => {
                let text = frame.text();
                let end = text
                    .split_once(' ')
                    .and_then(|(code, text)| Some(RankEnd { code: code.parse().ok()?, text: text.into() }));
                // An agent speaks for its own ranks, and once for each.
                if let Some(at) = self.unended.iter().position(|&rank| rank == frame.number) {
                    self.unended.remove(at);
                    let end = end.unwrap_or(RankEnd { code: 1, text: "ended".into() });
                    self.tell(LaunchEvent::Ended { rank: frame.number, end });
                }
            }
            // These go the other way.
            FrameKind::Job | FrameKind::Signal | FrameKind::Input | FrameKind::Close | FrameKind::Finish => {}
        }
    }

    fn start(&mut self, place: String) {
        self.has_started = true;
        if self.firsts.contains(&0) {
            self.input.start();
        }
        self.tell(LaunchEvent::Started { place });
    }

    fn print(&mut self, rank: Rank, stream: OutputStream, bytes: &[u8]) {
        if !self.firsts.contains(&rank) {
            return;
        }
        let (files, has_prefix) = (&self.files, self.has_prefix);
        let output = self.outputs.entry((rank, stream)).or_insert_with(|| {
            let file = files.get(&rank).and_then(|file| file.try_clone().ok());
            RankOutput::new(rank, stream, has_prefix, file)
        });
        let Err(error) = output.write(bytes) else { return };
        // The rank finds its output closed, as it would at this host.
        let _ = self.input.frames.try_send(AgentFrame::new(FrameKind::Close, rank, stream.name()));
        if error.kind() != io::ErrorKind::BrokenPipe && !output.is_broken {
            let text = format!("cannot write the output of rank {rank}: {error}");
            let _ = self.events.send(LaunchEvent::Trouble(text));
        }
        output.is_broken = true;
    }

    /// The channel is closed once the launcher itself ends.
    fn tell(&self, event: LaunchEvent) {
        let _ = self.events.send(event);
    }
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
