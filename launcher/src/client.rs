//! A rank's side.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Rank;
use crate::absent::Absent;
use crate::dialogue::{Dialogue, interpret};
use crate::environment::{available_cpus, number, number_if_set, shared_cpus, variable};
use crate::inbox::{Departure, Inbox};
use crate::managed::{self, ManagedJob};
use crate::refusal::MailRefusal;
use crate::reminder::Reminder;
use crate::signal::ReportSignal;
use crate::stream::JobStream;
use crate::{CPUS, JOB, JobError, MAX_RANKS, Mail, RANK, SIZE, Token, WORKERS};

/// A rank's place in its job.
pub struct Job {
    numbers: RankNumbers,
    place: Option<PathBuf>,
    dialogue: Dialogue,
    generation: u64,
    /// Of a process that was started as a rank: it is asked for reports.
    signal: Option<ReportSignal>,
    /// Of a job whose launcher serves no board. (The last field: it is left when all else is gone.)
    _membership: Option<Membership>,
}

/// Which rank this is.
struct RankNumbers {
    rank: Rank,
    /// The first rank of this process.
    first: Rank,
    /// How many there are.
    size: usize,
    /// How many processors those of this host share.
    cpus: usize,
}

/// A rank's part in a generation of a job that a process manager started.
struct Membership {
    job: Arc<ManagedJob>,
    generation: u64,
    timeout: Duration,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Who panics waits for others no more.
        if !std::thread::panicking() {
            self.job.leave(self.generation, self.timeout);
        }
    }
}

/// How long a board may take to answer a hello at one of several places.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach a board that may not be there yet.
const NEXT_ATTEMPT: Duration = Duration::from_millis(20);

impl Job {
    /// The job that this process was started in as one rank. Requests give up after `timeout`.
    pub fn from_environment(timeout: Duration) -> Result<Self, JobError> {
        let mut jobs = Self::all_from_environment(timeout)?;
        match (jobs.pop(), jobs.len() + 1) {
            (Some(job), 1) => Ok(job),
            (_, value) => {
                let problem = "this program is one rank in each process";
                Err(JobError::Variable { name: WORKERS, value: value.to_string(), problem })
            }
        }
    }

    /// The job that this process was started in, once for each of the ranks that it is: for a thread each. Where `roci run` did
    /// not start it, a process manager may have: PMI-1, PMIx and Slurm are looked for.
    pub fn all_from_environment(timeout: Duration) -> Result<Vec<Self>, JobError> {
        if std::env::var_os(RANK).is_none()
            && std::env::var_os(JOB).is_none()
            && let Some(managed) = managed::join(timeout)?
        {
            return Ok(vec![Self::of_managed(managed, timeout)?]);
        }
        let first = number(RANK)?;
        let size = number(SIZE)?;
        let workers = number_if_set(WORKERS)?.unwrap_or(1);
        if size == 0 || size > MAX_RANKS {
            return Err(JobError::Variable { name: SIZE, value: size.to_string(), problem: "lies outside 1..1024" });
        }
        if first >= size {
            return Err(JobError::Variable { name: RANK, value: first.to_string(), problem: "is not below ROCI_SIZE" });
        }
        if workers == 0 || workers > size - first {
            let problem = "is no number of ranks from ROCI_RANK up to ROCI_SIZE";
            return Err(JobError::Variable { name: WORKERS, value: workers.to_string(), problem });
        }
        let cpus = number_if_set(CPUS)?.unwrap_or_else(available_cpus);
        let (place, token) = (variable(JOB)?, Token::from_environment()?);
        let join = |rank| {
            let signal = Some(ReportSignal::watch());
            let numbers = RankNumbers { rank, first, size, cpus };
            Ok(Self { numbers, signal, ..Self::connect(&place, &token, rank, size, timeout)? })
        };
        (first..first + workers).map(join).collect()
    }

    fn of_managed(managed: Arc<ManagedJob>, timeout: Duration) -> Result<Self, JobError> {
        let (deadline, mut reminder) = (Instant::now() + timeout, Reminder::start());
        loop {
            let mut failure = JobError::Timeout(timeout.as_secs());
            for place in managed.places.iter().filter(|place| ManagedJob::may_be_at(place)) {
                let (rank, size) = (managed.rank, managed.size);
                match Self::connect(place, &managed.token, rank, size, HELLO_PATIENCE.min(timeout)) {
                    Ok(job) => {
                        let (signal, generation) = (Some(ReportSignal::watch()), job.generation);
                        let numbers = RankNumbers { cpus: shared_cpus(), ..job.numbers };
                        let member = Some(Membership { job: managed, generation, timeout });
                        let mut job = Self { numbers, signal, _membership: member, ..job };
                        job.dialogue.timeout = timeout;
                        return Ok(job);
                    }
                    Err(error) => failure = error,
                }
            }
            if !managed.may_come || Instant::now() >= deadline {
                return Err(failure);
            }
            if let Some(waited) = reminder.due() {
                let (rank, waited) = (managed.rank, waited.as_secs());
                tracing::warn!("rank {rank} has waited {waited} s for rank 0 to serve the job: {failure}");
            }
            std::thread::sleep(NEXT_ATTEMPT);
        }
    }

    /// Joins the board at `place` as one of `size` ranks, each with a processor of its own. Refused where another
    /// process is this rank, or where the board's token is another one.
    pub fn connect(place: &str, token: &Token, rank: Rank, size: usize, timeout: Duration) -> Result<Self, JobError> {
        let (stream, path) = match place.strip_prefix("tcp:") {
            Some(address) => (JobStream::connect_tcp(address), None),
            None => (JobStream::connect_unix(place), Some(PathBuf::from(place))),
        };
        let stream = stream.map_err(|source| JobError::Unreachable { place: place.into(), source })?;
        let dialogue = Dialogue::over(stream, rank, size, timeout);
        let numbers = RankNumbers { rank, first: rank, size, cpus: size };
        let mut job = Self { numbers, place: path, dialogue, generation: 0, signal: None, _membership: None };
        match job.dialogue.ask(format!("hello {rank} {}", token.as_str()).trim_end()) {
            Ok(answer) => {
                let numbers =
                    answer.split_once(' ').and_then(|(ours, all)| Some((ours.parse().ok()?, all.parse().ok()?)));
                let strange = || JobError::Failed(format!("the launcher said 'ok {answer}'"));
                let (generation, ranks) = numbers.ok_or_else(strange)?;
                job.generation = generation;
                if size == ranks { Ok(job) } else { Err(JobError::OtherSize { rank, size, ranks }) }
            }
            Err(JobError::Failed(reason)) => Err(JobError::Refused { rank, reason }),
            Err(error) => Err(error),
        }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.numbers.rank
    }

    /// The first rank of this process, which may be several.
    pub fn first(&self) -> usize {
        self.numbers.first
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.numbers.size
    }

    /// How many processors the ranks of this host share.
    pub fn cpus(&self) -> usize {
        self.numbers.cpus
    }

    /// Returns how often this rank has joined its job, this time included. A rank that has left may join again, together
    /// with all others. A value that a rank puts is for the ranks of the same generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A directory that all ranks of this host share, for sockets; `None` where ranks may be on several hosts.
    pub fn directory(&self) -> Option<&Path> {
        self.place.as_deref().and_then(Path::parent)
    }

    /// The address of this host's by which the launcher is reached; `None` where it does not lead beyond this host and one link.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.dialogue.stream().local_ip()
    }

    /// Leaves a value for all ranks.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        self.dialogue.ask(&format!("put {key} {value}")).map(drop)
    }

    /// Waits for a value.
    pub fn get(&mut self, key: &str) -> Result<String, JobError> {
        self.dialogue.ask(&format!("get {key}"))
    }

    /// The same, for a caller with something to look after: `meanwhile` is called every 20 ms.
    pub fn get_beside(&mut self, key: &str, mut meanwhile: impl FnMut()) -> Result<String, JobError> {
        self.dialogue.ask_beside(&format!("get {key}"), Some(&mut meanwhile))
    }

    /// Returns a value, if it was left already.
    pub fn look(&mut self, key: &str) -> Result<Option<String>, JobError> {
        self.dialogue.ask(&format!("look {key}")).map(|answer| answer.strip_prefix('=').map(str::to_owned))
    }

    /// Waits for all ranks. Nothing else happens meanwhile: see [`Job::start_barrier`].
    pub fn barrier(&mut self) -> Result<(), JobError> {
        self.dialogue.ask("barrier").map(drop)
    }

    /// Enters a barrier without waiting; then ask [`Job::poll_barrier`] until it says that all are there.
    pub fn start_barrier(&mut self) -> Result<(), JobError> {
        self.dialogue.write("barrier")
    }

    /// Whether all ranks have entered the barrier that was started.
    pub fn poll_barrier(&mut self) -> Result<bool, JobError> {
        let outcome = self.dialogue.read_now();
        match self.dialogue.inbox.take_answer() {
            Some(line) => interpret(&line).map(|_| true),
            None => outcome.map(|()| false),
        }
    }

    /// Leaves `text`, which has no newline and at most [`MAIL_TEXT_LIMIT`](super::MAIL_TEXT_LIMIT) bytes, for rank
    /// `to`, which need not expect it. Also while a barrier is under way.
    ///
    /// Waits until the launcher has it, not until the rank does; mails from here arrive there in order.
    pub fn send_mail(&mut self, to: Rank, text: &str) -> Result<(), JobError> {
        MailRefusal::check(text).map_err(|refusal| JobError::Unmailed { to, reason: refusal.to_string() })?;
        self.dialogue.write(&format!("mail {to} {text}"))?;
        let verdict = self.dialogue.wait_for(Inbox::take_verdict, Inbox::abandon_verdict, "mail", None)?;
        let refusal = verdict.strip_prefix("unmailed ");
        refusal.map_or(Ok(()), |reason| Err(JobError::Unmailed { to, reason: reason.into() }))
    }

    /// The ranks that are missed, at the barrier or in the job. Also while a barrier is under way.
    pub fn absent(&mut self) -> Result<Absent, JobError> {
        self.dialogue.write("absent")?;
        let verdict = self.dialogue.wait_for(Inbox::take_verdict, Inbox::abandon_verdict, "absent", None)?;
        let lists = verdict.strip_prefix("absent ").and_then(|lists| lists.split_once(';'));
        let ranks = |list: &str| list.split(',').filter_map(|rank| rank.parse().ok()).collect();
        let (from_barrier, from_job) = lists.map_or_else(Default::default, |(one, other)| (ranks(one), ranks(other)));
        Ok(Absent { from_barrier, from_job })
    }

    /// Whether somebody has asked for a report: this process, by SIGUSR1, or the job, through its launcher.
    #[inline]
    pub fn take_report_wish(&mut self) -> bool {
        let is_signalled = self.signal.as_ref().is_some_and(ReportSignal::take);
        self.dialogue.inbox.take_report_wish() || is_signalled
    }

    /// The next mail and its sender, if one has come. Never waits, and makes one system call at the most.
    pub fn poll_mail(&mut self) -> Result<Option<(Rank, String)>, JobError> {
        if let Some(mail) = self.dialogue.inbox.take_mail() {
            return Ok(Some(mail));
        }
        let outcome = self.dialogue.read_now();
        match self.dialogue.inbox.take_mail() {
            Some(mail) => Ok(Some(mail)),
            None => outcome.map(|()| None),
        }
    }

    /// Returns the next departure of a rank that [`Job::poll_mail`] or another call has received from the launcher.
    pub fn take_departure(&mut self) -> Option<Departure> {
        self.dialogue.inbox.take_departure()
    }

    /// Whether the launcher has gone, as far as [`Job::poll_mail`] and other calls have seen.
    pub fn is_over(&self) -> bool {
        self.dialogue.is_over()
    }

    /// Whether the job goes on: the launcher is there, and has not ended it. Not between [`Job::start_barrier`] and
    /// its end.
    pub fn check(&mut self) -> Result<(), JobError> {
        self.dialogue.ask("status").map(drop)
    }

    /// Whether all ranks are still there: while they connect, none may leave.
    pub fn check_all_present(&mut self) -> Result<(), JobError> {
        self.dialogue.ask("present").map(drop)
    }
}

impl Mail for Job {
    fn send(&mut self, to: Rank, text: &str) -> Result<(), JobError> {
        self.send_mail(to, text)
    }

    fn poll(&mut self) -> Result<Option<(Rank, String)>, JobError> {
        self.poll_mail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Board;

    fn place() -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("job").display().to_string();
        (directory, place)
    }

    fn board(place: &str) -> (Board, Token) {
        let token = Token::random();
        let board = Board::new(2, token.clone());
        board.serve_unix(Path::new(place)).expect("a socket");
        (board, token)
    }

    #[test]
    fn ranks_exchange_values_and_meet() {
        let (_directory, place) = place();
        let (_board, token) = board(&place);
        let join = |rank| Job::connect(&place, &token, rank, 2, Duration::from_secs(10)).expect("a board");
        let (mut first, mut second) = (join(0), join(1));
        let reader = std::thread::spawn(move || {
            let value = first.get("address 1").map_err(|error| error.to_string());
            first.barrier().expect("both come");
            value
        });
        second.put("address", "1 two words").expect("room");
        assert!(second.put("address", "again").is_err());
        second.put("x", "y").expect("room");
        // A key holds no blank: "address 1" is no request.
        second.start_barrier().expect("a board");
        while !second.poll_barrier().expect("both come") {}
        assert!(reader.join().expect("no panic").is_err());
        assert_eq!(second.get("address").expect("it is there"), "1 two words");
    }

    #[test]
    fn who_waits_for_a_value_can_look_after_something_else() {
        let (_directory, place) = place();
        let (_board, token) = board(&place);
        let join = |rank| Job::connect(&place, &token, rank, 2, Duration::from_secs(10)).expect("a board");
        let (mut first, mut second) = (join(0), join(1));
        let mut calls = 0;
        // The value depends on what is done meanwhile.
        let value = first.get_beside("late", || {
            calls += 1;
            if calls == 3 {
                second.put("late", "here").expect("room");
            }
        });
        assert_eq!(value.expect("it came"), "here");
        assert_eq!(first.get("late").expect("it is there"), "here");
    }

    #[test]
    fn a_rank_of_a_job_of_another_size_is_refused() {
        let (_directory, place) = place();
        let (_board, token) = board(&place);
        let refused = Job::connect(&place, &token, 0, 3, Duration::from_secs(10)).err().expect("the board has two");
        assert_eq!(refused.to_string(), "rank 0 was started as one of 3 (ROCI_SIZE=3), and its job has 2");
    }

    #[test]
    fn a_failed_job_wakes_everybody() {
        let (_directory, place) = place();
        let (board, token) = board(&place);
        let mut job = Job::connect(&place, &token, 0, 2, Duration::from_secs(10)).expect("a board");
        let waiter = std::thread::spawn(move || job.barrier().expect_err("the job failed").to_string());
        board.fail("rank 1 exited with status 3");
        assert_eq!(waiter.join().expect("no panic"), "the job has failed: rank 1 exited with status 3");
    }

    #[test]
    fn an_answer_that_does_not_come_is_a_timeout() {
        let (_directory, place) = place();
        let (_board, token) = board(&place);
        let mut job = Job::connect(&place, &token, 0, 2, Duration::from_secs(10)).expect("a board");
        job.dialogue.timeout = Duration::from_millis(50);
        assert!(matches!(job.get("nothing"), Err(JobError::Timeout(_))));
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
        let (_directory, place) = place();
        let (_board, token) = board(&place);
        let join = |rank| Job::connect(&place, &token, rank, 2, Duration::from_secs(10)).expect("a board");
        let (mut first, mut second) = (join(0), join(1));
        first.dialogue.timeout = Duration::from_millis(50);
        assert!(matches!(first.get("late"), Err(JobError::Timeout(_))));
        second.put("other", "right").expect("room");
        second.put("late", "wrong").expect("room");
        first.dialogue.timeout = Duration::from_secs(10);
        assert_eq!(first.get("other").expect("it is there"), "right");
    }

    #[test]
    fn no_launcher_is_a_clear_error() {
        let error = Job::connect("/nonexistent/job", &Token::default(), 0, 1, Duration::from_secs(1))
            .err()
            .expect("no launcher is there");
        assert!(error.to_string().starts_with("cannot reach the launcher at /nonexistent/job"), "{error}");
    }
}
