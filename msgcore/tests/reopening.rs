//! A job whose ranks leave it and join it again, with new workers each time, over real ports.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use roci_launcher::{Board, Job, Token};
use roci_msgcore::config::Origin;
use roci_msgcore::{Config, Dropped, Rank, Source, Tag, TagMatch, Worker};

/// A safety net: what takes so long hangs.
const PATIENCE: Duration = Duration::from_mins(1);
const TAG: Tag = Tag::new(7);

/// Descriptors are the process's, and DPDK has 32 ports for all of it: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Times after which a process has opened all that it opens once.
const FIRST: u64 = 3;
/// The wait before the descriptors of these times are counted: some are about to be closed, and more are allowed later if they count.
const A_MOMENT: Duration = Duration::from_millis(100);

fn config(device: &str) -> Config {
    let mut config = Config::default();
    for (name, value) in [("device", device), ("arena_size", "16MiB"), ("spin_us", "0")] {
        config.set(name, value, Origin::Code).expect("in range");
    }
    config
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

fn open_files() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("procfs").flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

/// A worker that sends the number of this time to each other rank, and receives it from each.
fn work(config: &Config, job: Job, time: u64) {
    let mut worker = Worker::open_job(config, job).expect("it opens");
    let (rank, size) = (worker.rank(), worker.size());
    let others = || (0..size).filter(|&other| other != rank);
    let receives: Vec<_> = others()
        .map(|other| {
            let buffer = worker.buffer(8).expect("room");
            (other, worker.recv(Source::from(other), TagMatch::Exact(TAG), buffer).expect("a rank"))
        })
        .collect();
    for other in others() {
        let mut payload = worker.buffer(8).expect("room");
        payload.copy_from_slice(&(time * 100 + rank as u64).to_le_bytes());
        let _ = worker.send(other, TAG, payload).expect("a rank");
    }
    for (other, receive) in receives {
        let done = worker.wait(receive).expect("it comes");
        assert_eq!(done.buffer[..], (time * 100 + other as u64).to_le_bytes()[..], "from rank {other}");
    }
    assert_eq!(worker.close().expect("all close"), Dropped::default());
}

/// Descriptors that are open after a job has ended.
#[derive(Debug)]
struct Left {
    /// At most, after the first times: what is opened once in a process may come with the second time, as DPDK's drivers share some of it
    /// between ports.
    most: usize,
    /// After each later time.
    later: Vec<usize>,
}

/// Opens a job of so many ranks, each a thread, so often.
fn reopen(device: &str, size: usize, times: u64) -> Left {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("job").display().to_string();
    let token = Token::random();
    let board = Board::new(size, token.clone());
    board.serve_unix(Path::new(&place)).expect("a socket");
    let config = config(device);
    let once = |time: u64| {
        thread::scope(|scope| {
            for rank in 0..size {
                let (place, token, config) = (&place, &token, &config);
                scope.spawn(move || {
                    let job = Job::connect(place, token, rank, size, PATIENCE).expect("a board");
                    assert_eq!(job.generation(), time);
                    work(config, job, time);
                });
            }
        });
        assert!(board.outlast_all(PATIENCE), "the board has seen them go");
    };
    let mut most = 0;
    for time in 1..=times.min(FIRST) {
        once(time);
        thread::sleep(A_MOMENT);
        most = descriptors().max(most);
    }
    let mut left = Left { most, later: Vec::new() };
    for time in FIRST + 1..=times {
        once(time);
        left.later.push(settled_descriptors(most));
    }
    left
}

/// Threads of DPDK and of the launcher's side of the sessions, which are this process's too, close theirs a moment after the ranks.
fn settled_descriptors(expected: usize) -> usize {
    let deadline = Instant::now() + PATIENCE;
    while descriptors() > expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    descriptors()
}

fn leaves_as_many_as_one(device: &str, ranks: Rank, times: u64) {
    let _alone = alone();
    let left = reopen(device, ranks, times);
    let is_less = left.later.iter().all(|&later| later <= left.most);
    assert!(is_less, "{device}, {ranks} ranks: {left:?}, open: {:?}", open_files());
}

#[test]
fn forty_reopenings_of_two_ranks_leave_as_many_descriptors_as_one() {
    leaves_as_many_as_one("memif", 2, 40);
}

#[test]
fn forty_reopenings_of_four_ranks_leave_as_many_descriptors_as_one() {
    leaves_as_many_as_one("memif", 4, 40);
}

#[test]
fn reopenings_over_vhost_leave_as_many_descriptors_as_one() {
    leaves_as_many_as_one("vhost", 2, 5);
}

/// A process that joins one job after the other, each at a place of its own: ports that are kept for ranks that will not come
/// again give their memory to others.
#[test]
fn any_number_of_jobs_of_four_ranks_finds_memory_in_one_process() {
    let _alone = alone();
    for _ in 0..12 {
        reopen("memif", 4, 1);
    }
}
