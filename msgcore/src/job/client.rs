//! A rank's side.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::{CPUS, JOB, LINE_LIMIT, RANK, SIZE};

/// Ranks of one job.
const MAX_RANKS: usize = 1024;

/// Why a rank is in no job, or no longer.
#[derive(Debug, Error)]
pub enum JobError {
    /// The variables are not there.
    #[error("{0} is not set: start this program with 'roci run -n N PROGRAM'")]
    NotInJob(&'static str),
    /// A variable makes no sense.
    #[error("{name}={value}: {problem}")]
    Variable {
        /// Which one.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The launcher cannot be reached.
    #[error("cannot reach the launcher at {place}: {source}")]
    Unreachable {
        /// Where it should be.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The launcher did not answer in time.
    #[error("the launcher did not answer within {0} s: a peer is missing")]
    Timeout(u64),
    /// The launcher has gone.
    #[error("the launcher is gone")]
    Gone,
    /// The launcher says that the job has failed.
    #[error("the job has failed: {0}")]
    Failed(String),
}

/// A rank's place in its job.
pub struct Job {
    rank: usize,
    size: usize,
    cpus: usize,
    place: Option<PathBuf>,
    stream: Stream,
    timeout: Duration,
    /// What has come of the next answer.
    partial: Vec<u8>,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
        }
    }
}

impl Job {
    /// The job that this process was started in. Requests give up after `timeout`.
    pub fn from_environment(timeout: Duration) -> Result<Self, JobError> {
        let rank = number(RANK)?;
        let size = number(SIZE)?;
        if size == 0 || size > MAX_RANKS {
            return Err(JobError::Variable { name: SIZE, value: size.to_string(), problem: "lies outside 1..1024" });
        }
        if rank >= size {
            return Err(JobError::Variable { name: RANK, value: rank.to_string(), problem: "is not below ROCI_SIZE" });
        }
        let cpus = if std::env::var_os(CPUS).is_some() { number(CPUS)? } else { available_cpus() };
        Ok(Self { cpus, ..Self::connect(&variable(JOB)?, rank, size, timeout)? })
    }

    /// Joins the board at `place` as one of `size` ranks, each with a processor of its own.
    pub fn connect(place: &str, rank: usize, size: usize, timeout: Duration) -> Result<Self, JobError> {
        let unreachable = |source| JobError::Unreachable { place: place.into(), source };
        let (stream, path) = match place.strip_prefix("tcp:") {
            Some(address) => (Stream::Tcp(TcpStream::connect(address).map_err(unreachable)?), None),
            None => (Stream::Unix(UnixStream::connect(place).map_err(unreachable)?), Some(PathBuf::from(place))),
        };
        Ok(Self { rank, size, cpus: size, place: path, stream, timeout, partial: Vec::new() })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many processors the ranks of this host share.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// A directory that all ranks of this host share, for sockets; `None` where ranks may be on several hosts.
    pub fn directory(&self) -> Option<&Path> {
        self.place.as_deref().and_then(Path::parent)
    }

    /// Leaves a value for all ranks.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        self.ask(&format!("put {key} {value}")).map(drop)
    }

    /// Waits for a value.
    pub fn get(&mut self, key: &str) -> Result<String, JobError> {
        self.ask(&format!("get {key}"))
    }

    /// Waits for all ranks. Nothing else happens meanwhile: see [`Job::start_barrier`].
    pub fn barrier(&mut self) -> Result<(), JobError> {
        self.ask("barrier").map(drop)
    }

    /// Enters a barrier without waiting; then ask [`Job::poll_barrier`] until it says that all are there.
    pub fn start_barrier(&mut self) -> Result<(), JobError> {
        self.stream.write_all(b"barrier\n").map_err(|_| JobError::Gone)
    }

    /// Whether all ranks have entered the barrier that was started.
    pub fn poll_barrier(&mut self) -> Result<bool, JobError> {
        Ok(self.poll_line()?.map(|line| interpret(&line)).transpose()?.is_some())
    }

    /// Whether the job goes on: the launcher is there, and no rank has failed. Not between [`Job::start_barrier`]
    /// and its end.
    pub fn check(&mut self) -> Result<(), JobError> {
        self.ask("status").map(drop)
    }

    /// Whether all ranks are still there: while they connect, none may leave.
    pub fn check_all_present(&mut self) -> Result<(), JobError> {
        self.ask("present").map(drop)
    }

    fn ask(&mut self, request: &str) -> Result<String, JobError> {
        self.stream.write_all(format!("{request}\n").as_bytes()).map_err(|_| JobError::Gone)?;
        self.stream.set_read_timeout(Some(self.timeout)).map_err(|_| JobError::Gone)?;
        loop {
            if let Some(line) = self.read_some()? {
                return interpret(&line);
            }
        }
    }

    /// A whole line, if it has come, without waiting.
    fn poll_line(&mut self) -> Result<Option<String>, JobError> {
        self.stream.set_nonblocking(true).map_err(|_| JobError::Gone)?;
        let outcome = self.read_some();
        self.stream.set_nonblocking(false).map_err(|_| JobError::Gone)?;
        match outcome {
            Err(JobError::Timeout(_)) => Ok(None),
            other => other,
        }
    }

    /// Reads once.
    fn read_some(&mut self) -> Result<Option<String>, JobError> {
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(JobError::Gone),
            Ok(count) => self.partial.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(JobError::Timeout(self.timeout.as_secs()));
            }
            Err(_) => return Err(JobError::Gone),
        }
        if self.partial.len() as u64 > 2 * LINE_LIMIT {
            return Err(JobError::Failed("the launcher's answer has no end".into()));
        }
        let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.partial.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()))
    }
}

fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn interpret(line: &str) -> Result<String, JobError> {
    match line.split_once(' ') {
        Some(("ok", value)) => Ok(value.into()),
        Some((_, reason)) => Err(JobError::Failed(reason.into())),
        None => Err(JobError::Failed(format!("the launcher said '{line}'"))),
    }
}

fn variable(name: &'static str) -> Result<String, JobError> {
    std::env::var(name).map_err(|_| JobError::NotInJob(name))
}

fn number(name: &'static str) -> Result<usize, JobError> {
    let value = variable(name)?;
    value.parse().map_err(|_| JobError::Variable { name, value, problem: "is not a whole number" })
}

#[cfg(test)]
mod tests {
    use super::super::Board;
    use super::*;

    fn place() -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("job").display().to_string();
        (directory, place)
    }

    #[test]
    fn ranks_exchange_values_and_meet() {
        let (_directory, place) = place();
        Board::new(2).serve_unix(Path::new(&place)).expect("a socket");
        let join = |rank| Job::connect(&place, rank, 2, Duration::from_secs(10)).expect("a board");
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
    fn a_failed_job_wakes_everybody() {
        let (_directory, place) = place();
        let board = Board::new(2);
        board.serve_unix(Path::new(&place)).expect("a socket");
        let mut job = Job::connect(&place, 0, 2, Duration::from_secs(10)).expect("a board");
        let waiter = std::thread::spawn(move || job.barrier().expect_err("the job failed").to_string());
        board.fail("rank 1 exited with status 3");
        assert_eq!(waiter.join().expect("no panic"), "the job has failed: rank 1 exited with status 3");
    }

    #[test]
    fn an_answer_that_does_not_come_is_a_timeout() {
        let (_directory, place) = place();
        Board::new(2).serve_unix(Path::new(&place)).expect("a socket");
        let mut job = Job::connect(&place, 0, 2, Duration::from_millis(50)).expect("a board");
        assert!(matches!(job.get("nothing"), Err(JobError::Timeout(_))));
    }

    #[test]
    fn no_launcher_is_a_clear_error() {
        let error = Job::connect("/nonexistent/job", 0, 1, Duration::from_secs(1)).err().expect("nobody there");
        assert!(error.to_string().starts_with("cannot reach the launcher at /nonexistent/job"), "{error}");
    }
}
