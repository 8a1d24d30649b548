//! A rank's requests to the board, and what it answers.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::inbox::Inbox;
use crate::reminder::Reminder;
use crate::stream::JobStream;
use crate::{JobError, LINE_LIMIT, Rank};

/// How often a caller that waits for a value looks after something else.
const BESIDE: Duration = Duration::from_millis(20);

/// The connection to the board, with what has come over it and was not asked for yet.
pub(super) struct Dialogue {
    rank: Rank,
    stream: JobStream,
    pub(super) inbox: Inbox,
    /// How long an answer may take.
    pub(super) timeout: Duration,
    /// The connection has ended.
    is_over: bool,
}

impl Dialogue {
    /// What `rank` of `size` ranks says over a connection. Requests give up after `timeout`.
    pub(super) fn over(stream: JobStream, rank: Rank, size: usize, timeout: Duration) -> Self {
        Self { rank, stream, inbox: Inbox::new(size), timeout, is_over: false }
    }

    /// The connection.
    pub(super) fn stream(&self) -> &JobStream {
        &self.stream
    }

    /// Whether the board has gone, as far as was seen.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes a request and waits for its answer.
    pub(super) fn ask(&mut self, request: &str) -> Result<String, JobError> {
        self.ask_beside(request, None)
    }

    /// The same; `meanwhile` is called every 20 ms.
    pub(super) fn ask_beside(
        &mut self,
        request: &str,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<String, JobError> {
        match self.write(request) {
            // Who hung up may have said why.
            Ok(()) | Err(JobError::Gone) => {}
            Err(error) => return Err(error),
        }
        let answer = self.wait_for(Inbox::take_answer, Inbox::abandon_answer, request, meanwhile)?;
        interpret(&answer)
    }

    /// Writes a request, unless its answer could not be read.
    pub(super) fn write(&mut self, request: &str) -> Result<(), JobError> {
        self.inbox.sort()?;
        self.stream.write_all(format!("{request}\n").as_bytes()).map_err(|_| JobError::Gone)
    }

    /// Waits for the answer that `take` returns. If it does not come in time, `abandon` marks it as abandoned: no later
    /// request takes it for its own answer.
    pub(super) fn wait_for(
        &mut self,
        take: fn(&mut Inbox) -> Option<String>,
        abandon: fn(&mut Inbox),
        request: &str,
        mut meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<String, JobError> {
        // Mail that keeps coming must not keep a wait alive: the deadline is the request's, not a read's.
        let deadline = Instant::now() + self.timeout;
        let mut reminder = Reminder::start();
        loop {
            let mut until = deadline.min(reminder.next());
            if let Some(meanwhile) = &mut meanwhile {
                meanwhile();
                until = until.min(Instant::now() + BESIDE);
            }
            let outcome = match self.read_before(until) {
                Err(JobError::Timeout(_)) if Instant::now() < deadline => Ok(()),
                outcome => outcome,
            };
            if let Some(waited) = reminder.due() {
                let (rank, waited) = (self.rank, waited.as_secs());
                tracing::warn!(
                    "rank {rank} has waited {waited} s for its launcher to answer '{request}', which others must make true"
                );
            }
            // It may have come in front of what went wrong.
            if let Some(line) = take(&mut self.inbox) {
                return Ok(line);
            }
            if let Err(error) = outcome {
                abandon(&mut self.inbox);
                return Err(error);
            }
        }
    }

    fn read_before(&mut self, deadline: Instant) -> Result<(), JobError> {
        let timeout = || JobError::Timeout(self.timeout.as_secs());
        let left =
            deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or_else(timeout)?;
        self.stream.set_read_timeout(Some(left)).map_err(|_| JobError::Gone)?;
        self.read(RecvFlags::empty())
    }

    /// Reads what has come, without waiting.
    pub(super) fn read_now(&mut self) -> Result<(), JobError> {
        self.read(RecvFlags::DONTWAIT)
    }

    /// Reads once, and sorts what came. What came before is sorted first: it may have been waiting for room.
    fn read(&mut self, flags: RecvFlags) -> Result<(), JobError> {
        self.inbox.sort()?;
        let mut bytes = [0; LINE_LIMIT as usize];
        match recv(&self.stream, &mut bytes[..], flags) {
            Ok((0, _)) => self.end(),
            Ok((count, _)) => {
                self.inbox.extend(&bytes[..count]);
                self.inbox.sort()
            }
            // The read has timed out, or a signal has interrupted it: the caller checks its deadline.
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => self.end(),
        }
    }

    fn end(&mut self) -> Result<(), JobError> {
        self.is_over = true;
        Err(JobError::Gone)
    }
}

/// Takes an answer apart: what was asked for, or why there is none.
pub(super) fn interpret(line: &str) -> Result<String, JobError> {
    match line.split_once(' ') {
        Some(("ok", value)) => Ok(value.into()),
        Some((_, reason)) => Err(JobError::Failed(reason.into())),
        None => Err(JobError::Failed(format!("the launcher said '{line}'"))),
    }
}
