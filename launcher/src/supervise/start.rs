//! Where the ranks of a job run: how they are started, signalled and ended there.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::agent::{AgentJob, forwarded_environment, working_directory};
use super::process::LocalRanks;
use super::remote::{RemoteHost, SHELL_ENDED};
use super::{AGAIN, JobSpec, LaunchError, LaunchEvent, Shutdown, SocketDirectory, is_fatal, next_event};
use crate::managed::{BoardAddress, listen};
use crate::{Board, Rank, Reminder, Token};

/// How long other hosts may take to start their ranks.
const START_PATIENCE: Duration = Duration::from_mins(2);

/// Where the ranks of a job run.
pub(super) struct Hosts {
    pub(super) here: LocalRanks,
    pub(super) remote: Vec<RemoteHost>,
    /// What has happened before all ranks were started.
    pub(super) backlog: VecDeque<LaunchEvent>,
    pub(super) exit_timeout: Duration,
}

impl Hosts {
    /// All on this host, which meet in a directory.
    pub(super) fn start_here(
        &mut self,
        job: &JobSpec,
        board: &Board,
        directory: &SocketDirectory,
    ) -> Result<(), LaunchError> {
        let socket = directory.path().join("job");
        board
            .serve_unix(&socket)
            .map_err(LaunchError::system(format!("cannot serve the job at {}", socket.display())))?;
        self.start_share(&job.firsts().collect::<Vec<_>>(), &socket.display().to_string())
    }

    /// Agents first: where they have found the board, the ranks of this host find it, too, and are known by the address that leads to
    /// the others.
    pub(super) fn start_on_several(
        &mut self,
        job: &Arc<JobSpec>,
        board: &Board,
        token: &Token,
        sender: &Sender<LaunchEvent>,
        events: &Receiver<LaunchEvent>,
    ) -> Result<(), LaunchError> {
        let serving = || LaunchError::system("cannot serve the job over TCP");
        let listener = listen(0).map_err(serving())?;
        let port = listener.local_addr().map_err(serving())?.port();
        board.serve_supervised(listener).map_err(serving())?;
        let announced = BoardAddress::of_this_host(port, token.clone()).to_string();
        let directory = working_directory(job.directory.as_deref())?;
        let mut job_elsewhere = JobSpec::clone(job);
        job_elsewhere.environment.splice(0..0, forwarded_environment());
        job_elsewhere.directory = None;
        let mut firsts_here = Vec::new();
        for share in job.shares() {
            let Some(name) = &share.name else {
                firsts_here = share.firsts;
                continue;
            };
            // A file that cannot be written is better known before anything runs.
            let open = |&rank: &Rank| job.output.open(rank).map(|file| file.map(|file| (rank, file)));
            let files = share.firsts.iter().map(open).collect::<io::Result<Vec<_>>>();
            let files =
                files.map_err(LaunchError::system("cannot write a rank's output"))?.into_iter().flatten().collect();
            let (job_there, board, directory) = (job_elsewhere.clone(), announced.clone(), directory.clone());
            let agent_job = AgentJob { job: job_there, firsts: share.firsts, board, directory };
            self.remote.push(RemoteHost::start(name, job, agent_job, files, sender.clone())?);
        }
        let place = self.wait_until_started(events)?;
        self.start_share(&firsts_here, &place)
    }

    /// Waits until the ranks of all other hosts run; returns where they have found the board. Says who is missed.
    fn wait_until_started(&mut self, events: &Receiver<LaunchEvent>) -> Result<String, LaunchError> {
        let (mut missing, mut found) = (self.remote.len(), String::new());
        let (deadline, mut reminder) = (Instant::now() + START_PATIENCE, Reminder::start());
        while missing > 0 {
            match events.recv_timeout(deadline.min(reminder.next()).saturating_duration_since(Instant::now())) {
                Ok(LaunchEvent::Started { place }) => (missing, found) = (missing - 1, place),
                Ok(LaunchEvent::NotStarted { host, reason }) => {
                    let status = if reason == SHELL_ENDED { self.status_of(&host) } else { String::new() };
                    return Err(LaunchError::Remote { host, reason: format!("{reason}{status}") });
                }
                Ok(LaunchEvent::Signal(signal)) if is_fatal(signal) => return Err(LaunchError::Interrupted(signal)),
                Ok(event) => self.backlog.push_back(event),
                Err(_) if Instant::now() >= deadline => return Err(LaunchError::NoStart(START_PATIENCE.as_secs())),
                Err(_) => {}
            }
            if let Some(waited) = reminder.due() {
                let waited = waited.as_secs();
                tracing::warn!("the launcher has waited {waited} s for {missing} hosts to start their ranks");
            }
        }
        Ok(found)
    }

    /// How a remote shell has ended that has closed its output, as ` (exit status: 1)`.
    fn status_of(&mut self, host: &str) -> String {
        let shell = self.remote.iter_mut().find(|remote| remote.name == host);
        shell.and_then(RemoteHost::status_soon).map_or_else(String::new, |status| format!(" ({status})"))
    }

    fn start_share(&mut self, firsts: &[Rank], board: &str) -> Result<(), LaunchError> {
        for (index, &rank) in firsts.iter().enumerate() {
            let input = if rank == 0 { Stdio::inherit() } else { Stdio::null() };
            self.here.start(rank, index, board, input)?;
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.here.signal(signal);
        self.remote.iter().for_each(|host| host.signal(signal));
    }

    /// The next event, or `None` when the ending's moment has come.
    pub(super) fn next_event(&mut self, events: &Receiver<LaunchEvent>, ending: Shutdown) -> Option<LaunchEvent> {
        self.backlog.pop_front().or_else(|| next_event(events, ending))
    }

    /// Ends the remote shells, whose agents have not ended their ranks; returns the processes that are lost with them.
    pub(super) fn abandon(&mut self) -> Vec<Rank> {
        self.remote.iter_mut().for_each(RemoteHost::abandon);
        self.remote.iter().flat_map(|host| host.firsts.iter().copied()).collect()
    }

    /// Ends what the ranks have left behind, and passes on what they have said last, unless a signal interrupts that.
    pub(super) fn finish(self, events: &Receiver<LaunchEvent>, complain: &impl Fn(&str)) {
        for host in self.remote {
            host.finish(self.exit_timeout.max(AGAIN), || is_interrupted(events, complain));
        }
        self.here.finish();
        is_interrupted(events, complain);
    }
}

/// Returns whether a signal to end the job has come, and says what went wrong with output that comes behind the end of its rank.
fn is_interrupted(events: &Receiver<LaunchEvent>, complain: &impl Fn(&str)) -> bool {
    let mut is_interrupted = false;
    for event in events.try_iter() {
        match event {
            LaunchEvent::Trouble(text) => complain(&text),
            LaunchEvent::Signal(signal) => is_interrupted |= is_fatal(signal),
            LaunchEvent::Ended { .. } | LaunchEvent::Started { .. } | LaunchEvent::NotStarted { .. } => {}
        }
    }
    is_interrupted
}
