//! The launcher's agent on another host: it starts the ranks of that host, and ends with them when the launcher hangs up.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Stdin};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::frame::{AgentFrame, FrameKind};
use super::output::OutputStream;
use super::process::{LocalRanks, OutputRoute, RankEnd, lock, write_input};
use super::{JobSpec, LaunchError, LaunchEvent};
use crate::managed::BoardAddress;
use crate::{Rank, Token};

/// How long an address of the board's may take to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// What an agent is to start.
#[derive(Serialize, Deserialize)]
pub(crate) struct AgentJob {
    pub(crate) job: JobSpec,
    /// The first rank of each process that is this host's.
    pub(crate) firsts: Vec<Rank>,
    /// Where the board is, and the token.
    pub(crate) board: String,
    /// The working directory.
    pub(crate) directory: PathBuf,
}

impl AgentJob {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers")
    }
}

/// Serves a launcher at the other end of the standard streams, to the end of its job.
///
/// # Errors
/// No launcher is there, or it does not say what to start. What goes wrong later is the launcher's to report.
pub fn serve_launcher() -> io::Result<()> {
    let mut from = BufReader::new(io::stdin());
    let output = AgentOutput::default();
    let frame = AgentFrame::read_from(&mut from)?.filter(|frame| frame.kind == FrameKind::Job);
    let frame =
        frame.ok_or_else(|| io::Error::other("an agent is started by 'roci run -hosts', and by nothing else"))?;
    let agent_job: AgentJob = serde_json::from_slice(&frame.bytes).map_err(io::Error::other)?;
    let (sender, events) = channel();
    match start(agent_job, sender, output.clone()) {
        Ok((ranks, count, input, place)) => {
            let ranks = Arc::new(Mutex::new(Some(ranks)));
            say(&AgentFrame::new(FrameKind::Started, 0, place))?;
            let orders = LauncherOrders { ranks: ranks.clone(), input, output };
            thread::Builder::new().spawn(move || orders.obey(from))?;
            report_ends(count, &events);
            if let Some(ranks) = lock(&ranks).take() {
                ranks.finish();
            }
            Ok(())
        }
        Err(failure) => say(&AgentFrame::new(FrameKind::Failed, 0, failure.to_string())),
    }
}

/// What the ranks have written, on its way to the launcher.
#[derive(Clone, Default)]
struct AgentOutput {
    /// Streams of ranks that the launcher has no reader for any more.
    closed: Arc<Mutex<BTreeSet<(Rank, OutputStream)>>>,
}

impl AgentOutput {
    /// Sends what a rank has written. An error has its pipe closed.
    fn pass_on(&self, rank: Rank, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        if lock(&self.closed).contains(&(rank, stream)) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let kind = match stream {
            OutputStream::Out => FrameKind::Out,
            OutputStream::Err => FrameKind::Err,
        };
        say(&AgentFrame::new(kind, rank, bytes))
    }

    fn close(&self, rank: Rank, name: &str) {
        let stream = [OutputStream::Out, OutputStream::Err].into_iter().find(|stream| stream.name() == name);
        lock(&self.closed).extend(stream.map(|stream| (rank, stream)));
    }
}

/// Writes a frame to the launcher, whole: several threads do.
fn say(frame: &AgentFrame) -> io::Result<()> {
    frame.write_to(io::stdout().lock())
}

type StartedRanks = (LocalRanks, usize, Option<ChildStdin>, String);

fn start(agent_job: AgentJob, events: Sender<LaunchEvent>, output: AgentOutput) -> Result<StartedRanks, LaunchError> {
    let AgentJob { job, firsts, board, directory } = agent_job;
    std::env::set_current_dir(&directory)
        .map_err(LaunchError::system(format!("cannot enter {}", directory.display())))?;
    let (place, token) = find_board(&board)?;
    let send = move |rank, stream, bytes: &[u8]| output.pass_on(rank, stream, bytes);
    let mut ranks = LocalRanks::new(Arc::new(job), token, OutputRoute::Chunks(Arc::new(send)), events)?;
    let mut input = None;
    for (index, &rank) in firsts.iter().enumerate() {
        let piped = if rank == 0 { Stdio::piped() } else { Stdio::null() };
        match ranks.start(rank, index, &place, piped) {
            Ok(found) => input = input.or(found),
            Err(failure) => {
                ranks.signal(Signal::KILL);
                ranks.finish();
                return Err(failure);
            }
        }
    }
    Ok((ranks, firsts.len(), input, place))
}

/// The first address at which the board answers, the one that the remote shell has come from before all others.
fn find_board(announced: &str) -> Result<(String, Token), LaunchError> {
    let announced: BoardAddress = announced.parse().map_err(|_| LaunchError::NoBoard(announced.into()))?;
    let mut addresses = announced.addresses_here();
    if let (Some(ip), Some(port)) = (shell_client(), addresses.first().map(SocketAddr::port)) {
        addresses.insert(0, SocketAddr::new(ip, port));
    }
    let found = addresses.iter().find(|address| TcpStream::connect_timeout(address, CONNECT_PATIENCE).is_ok());
    let tried = || addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = found.ok_or_else(|| LaunchError::NoBoard(tried()))?;
    Ok((format!("tcp:{found}"), announced.into_token()))
}

/// The address that ssh, or else srun, has come from.
fn shell_client() -> Option<IpAddr> {
    let ssh = std::env::var("SSH_CONNECTION").ok().and_then(|ends| ends.split(' ').next()?.parse().ok());
    ssh.or_else(|| std::env::var("SLURM_LAUNCH_NODE_IPADDR").ok()?.parse().ok())
}

/// What the launcher says.
struct LauncherOrders {
    ranks: Arc<Mutex<Option<LocalRanks>>>,
    input: Option<ChildStdin>,
    output: AgentOutput,
}

impl LauncherOrders {
    fn obey(self, mut from: BufReader<Stdin>) {
        let Self { ranks, input, output } = self;
        let input = feed_rank_0(input);
        while let Ok(Some(frame)) = AgentFrame::read_from(&mut from) {
            match frame.kind {
                FrameKind::Signal => {
                    signal_all(&ranks, i32::try_from(frame.number).ok().and_then(Signal::from_named_raw));
                }
                // The launcher sends the next chunk when this one was taken: there is room.
                FrameKind::Input => drop(input.try_send(frame.bytes)),
                FrameKind::Close => output.close(frame.number, &frame.text()),
                _ => {}
            }
        }
        // It has hung up, or is gone.
        signal_all(&ranks, Some(Signal::KILL));
    }
}

/// Takes the standard input of rank 0, and asks for more after each chunk. One at most is on its way.
fn feed_rank_0(mut input: Option<ChildStdin>) -> SyncSender<Vec<u8>> {
    let (sender, chunks) = sync_channel::<Vec<u8>>(1);
    thread::spawn(move || {
        for chunk in chunks {
            write_input(&mut input, &chunk);
            if input.is_none() || say(&AgentFrame::new(FrameKind::InputTaken, 0, "")).is_err() {
                return;
            }
        }
    });
    sender
}

fn signal_all(ranks: &Mutex<Option<LocalRanks>>, signal: Option<Signal>) {
    if let (Some(ranks), Some(signal)) = (&*lock(ranks), signal) {
        ranks.signal(signal);
    }
}

/// Reports the ends of so many processes.
fn report_ends(mut count: usize, events: &Receiver<LaunchEvent>) {
    while count > 0 {
        match events.recv() {
            Ok(LaunchEvent::Ended { rank, end: RankEnd { code, text } }) => {
                count -= 1;
                // Where the launcher is gone the ranks are ended, and there is no one to report to.
                let _ = say(&AgentFrame::new(FrameKind::Ended, rank, format!("{code} {text}")));
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// The environment that ranks on other hosts get: all of this process's but what says where it runs itself.
pub(crate) fn forwarded_environment() -> Vec<(String, String)> {
    const OWN: [&str; 17] = [
        "HOME",
        "HOSTNAME",
        "LOGNAME",
        "MAIL",
        "OLDPWD",
        "PWD",
        "SHELL",
        "SHLVL",
        "SLURMD_NODENAME",
        "SLURM_NODEID",
        "TERM",
        "TMPDIR",
        "TMUX",
        "TMUX_PANE",
        "USER",
        "_",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    let is_own = |name: &str| OWN.contains(&name) || name.starts_with("SSH_") || name.starts_with("XDG_");
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| !is_own(name) && !crate::VARIABLES.contains(&name.as_str())).collect()
}

/// This process's working directory.
pub(crate) fn working_directory(wanted: Option<&Path>) -> Result<PathBuf, LaunchError> {
    let here = || std::env::current_dir().map_err(LaunchError::system("cannot find the working directory"));
    match wanted {
        Some(path) if path.is_absolute() => Ok(path.to_owned()),
        Some(path) => Ok(here()?.join(path)),
        None => here(),
    }
}
