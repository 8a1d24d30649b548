//! Ranks of a job, each on a thread of its own, over real memif ports.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use roci_launcher::{Board, Job, Token};
use roci_msgcore::config::Origin;
use roci_msgcore::{Buffer, Config, DedicatedWorker, Messaging, PeerId, WireupError, Worker, WorkerStats};

/// A safety net: what takes so long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// DPDK has 32 ports for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn config(knobs: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    // The ranks of a test have fewer processors than they believe.
    for (name, value) in [("arena_size", "64MiB"), ("spin_us", "0")].iter().chain(knobs) {
        config.set(name, value, Origin::Code).expect("in range");
    }
    config
}

/// Both kinds of worker.
pub(crate) trait Member: Messaging + Sized + 'static {
    fn join(config: &Config, job: Job) -> Result<Self, WireupError>;

    /// Opens one that is no rank of a job.
    fn alone(config: &Config) -> Result<Self, WireupError>;

    fn memory(&self, len: usize) -> Buffer {
        self.buffer(len).expect("memory")
    }

    fn counters(&mut self) -> WorkerStats {
        self.stats().expect("it lives")
    }
}

impl Member for Worker {
    fn join(config: &Config, job: Job) -> Result<Self, WireupError> {
        Self::open_job(config, job)
    }

    fn alone(config: &Config) -> Result<Self, WireupError> {
        Self::open_alone(config)
    }
}

impl Member for DedicatedWorker {
    fn join(config: &Config, job: Job) -> Result<Self, WireupError> {
        Self::spawn(config, job)
    }

    fn alone(config: &Config) -> Result<Self, WireupError> {
        Self::open_alone(config)
    }
}

/// Runs a rank of a job on each thread, in time, and returns what they say.
pub(crate) fn run_ranks<T: Send + 'static>(
    size: usize,
    rank: impl Fn(Job, &Board) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("job").display().to_string();
    let token = Token::random();
    let board = Board::new(size, token.clone());
    board.serve_unix(Path::new(&place)).expect("a socket");
    let (done, outcomes) = mpsc::channel();
    for number in 0..size {
        let (place, token, board, rank, done) =
            (place.clone(), token.clone(), board.clone(), rank.clone(), done.clone());
        thread::spawn(move || {
            let job = Job::connect(&place, &token, number, size, PATIENCE).expect("a board");
            let _ = done.send((number, rank(job, &board)));
        });
    }
    drop(done);
    let deadline = Instant::now() + PATIENCE;
    let next = |_| outcomes.recv_timeout(deadline - Instant::now()).expect("every rank comes to its end");
    let mut all: Vec<_> = (0..size).map(next).collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Runs two strangers, each on a thread of its own, that know each other's address and nothing else: over sockets until they have found
/// out that they are on one host, and over memif then, of whose ports the first has the server's end.
pub(crate) fn run_strangers<W: Member>(
    knobs: &'static [(&'static str, &'static str)],
    part: impl Fn(&mut W, PeerId, bool) + Clone + Send + 'static,
) {
    let _alone = alone();
    let (mine, theirs) = (mpsc::channel(), mpsc::channel());
    let (done, outcomes) = mpsc::channel();
    for (is_first, publish, learn) in [(true, mine.0, theirs.1), (false, theirs.0, mine.1)] {
        let (part, done) = (part.clone(), done.clone());
        thread::spawn(move || {
            let device = if is_first { "udp:127.0.0.1" } else { "udp:127.0.0.2" };
            let knobs = [&[("device", device), ("peers", "8")], knobs].concat();
            let mut worker = W::alone(&config(&knobs)).expect("the loopback interface is up");
            publish.send(worker.address()).expect("the other one listens");
            let peer = worker.insert(learn.recv().expect("the other one has an address")).expect("there is room");
            part(&mut worker, peer, is_first);
            // Who is dropped lingers until the other one has all.
            drop(worker);
            let _ = done.send(());
        });
    }
    drop(done);
    let deadline = Instant::now() + PATIENCE;
    for _ in 0..2 {
        outcomes.recv_timeout(deadline - Instant::now()).expect("both come to their ends");
    }
}
