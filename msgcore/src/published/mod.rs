//! Counters that other processes can read: what `roci stat` shows.
//!
//! A worker writes all that it counts to a file in shared memory, a few times a second, from its own calls of progress. The
//! file is its user's alone, and goes with the worker. A worker that computes and makes no progress publishes nothing
//! meanwhile: the age of what is there says so.
//!
//! The file is text: a line `roci-stat VERSION NUMBER`, a line `NAME VALUE` for each fact, a line `SCOPE NAME VALUE` for
//! each counter, lines `report TEXT`, and a line `end NUMBER`. Where the two numbers differ a writer was at work.

mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::geteuid;

pub(crate) use writer::{StatsFacts, StatsWriter};

/// Memory that processes share by files.
const DIRECTORY: &str = "/dev/shm";
/// How files begin that are published, before user, process and number.
const PREFIX: &str = "roci-stat-";
const VERSION: &str = "1";
/// Files that are looked at: another user may make any number.
const MOST_FILES: usize = 4096;
/// The longest file that is read.
const LONGEST: u64 = 1 << 20;
/// How often a file is read again whose writer was at work.
const ATTEMPTS: u32 = 10;

/// What a worker has published.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PublishedStats {
    /// Its process.
    pub pid: u32,
    /// Its rank, and how many there are; of a worker without a job 0 of 1.
    pub rank: usize,
    /// See above.
    pub size: usize,
    /// What the process runs.
    pub program: String,
    /// Where its port is.
    pub device: String,
    /// When this was written, since 1970.
    pub written: Duration,
    /// Counters, by whose they are (`worker`, `engine`, `port0` and so on) and name.
    pub counters: BTreeMap<(String, String), u64>,
    /// What it has under way, and its peers, a line each.
    pub report: Vec<String>,
}

impl PublishedStats {
    /// Returns what the living workers of this user have published, or of all users where this is root; by process and rank.
    /// Removes what workers that were killed have left.
    pub fn read_all() -> Vec<Self> {
        Self::read_all_in(Path::new(DIRECTORY))
    }

    fn read_all_in(directory: &Path) -> Vec<Self> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let own = geteuid();
        let is_readable = |uid: &u32| own.is_root() || own.as_raw() == *uid;
        let files = entries.filter_map(|entry| {
            Some((entry.path(), uid_of(&entry.file_name().to_string_lossy()).filter(is_readable)?))
        });
        let mut all: Vec<_> = files.take(MOST_FILES).filter_map(|(path, uid)| Self::read(&path, uid)).collect();
        all.sort_by_key(|stats| (stats.pid, stats.rank));
        all
    }

    /// Reads one file of a user's; `None` where its worker is gone, or it is none of these.
    fn read(path: &Path, uid: u32) -> Option<Self> {
        let mut file = writer::open_file_of(path, uid).ok()?;
        if file.try_lock().is_ok() {
            // Its writer would hold the lock.
            let _ = fs::remove_file(path);
            return None;
        }
        (0..ATTEMPTS).find_map(|_| Self::parse(&text_of(&mut file)?))
    }

    /// `None` where the text is not whole.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let number = lines.next()?.strip_prefix("roci-stat ")?.strip_prefix(VERSION)?.trim().to_owned();
        let mut stats = Self::default();
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "pid" => stats.pid = rest.parse().ok()?,
                "rank" => stats.rank = rest.parse().ok()?,
                "size" => stats.size = rest.parse().ok()?,
                "program" => stats.program = rest.into(),
                "device" => stats.device = rest.into(),
                "written_ms" => stats.written = Duration::from_millis(rest.parse().ok()?),
                "report" => stats.report.push(rest.to_owned()),
                "end" => return (rest == number).then_some(stats),
                scope => {
                    let (name, value) = rest.split_once(' ')?;
                    stats.counters.insert((scope.to_owned(), name.to_owned()), value.parse().ok()?);
                }
            }
        }
        None
    }

    /// A counter of the worker's or its engine's; 0 where there is none of that name.
    pub fn counter(&self, scope: &str, name: &str) -> u64 {
        self.counters.get(&(scope.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }

    /// A counter of all ports together.
    pub fn of_ports(&self, name: &str) -> u64 {
        let counters = self.counters.iter();
        counters.filter(|((scope, its), _)| scope.starts_with("port") && its == name).map(|(_, value)| value).sum()
    }

    /// How long ago this was written.
    pub fn age(&self) -> Duration {
        since_1970().saturating_sub(self.written)
    }
}

fn text_of(file: &mut File) -> Option<String> {
    file.rewind().ok()?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    // A terminal would obey what another process has put there.
    Some(text.replace(|sign: char| sign.is_control() && sign != '\n', "?"))
}

/// The user in a file's name.
fn uid_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn path_in(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{}-{}-{number}", geteuid().as_raw(), std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> StatsFacts {
        StatsFacts { rank: 3, size: 4, device: "memif".into() }
    }

    fn publish(writer: &mut StatsWriter, value: u64) {
        writer.write(|text| {
            StatsWriter::counters(text, "worker", [("tx_eager", value)]);
            StatsWriter::counters(text, "port0", [("tx_bytes", 2 * value)]);
            StatsWriter::counters(text, "port1", [("tx_bytes", value)]);
            StatsWriter::report(text, "rank 1: connected\nwell");
        });
    }

    #[test]
    fn what_a_worker_publishes_is_read_back_and_goes_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = StatsWriter::create(directory.path(), &facts(), Duration::ZERO).expect("a file");
        publish(&mut writer, 7_000_000_000);
        publish(&mut writer, 5);
        let all = PublishedStats::read_all_in(directory.path());
        let [stats] = all.as_slice() else { panic!("one worker: {all:?}") };
        assert_eq!((stats.pid, stats.rank, stats.size, stats.device.as_str()), (std::process::id(), 3, 4, "memif"));
        assert_eq!(
            (stats.counter("worker", "tx_eager"), stats.of_ports("tx_bytes"), stats.counter("engine", "x")),
            (5, 15, 0)
        );
        assert_eq!(stats.report, ["rank 1: connected well"]);
        assert!(stats.age() < Duration::from_mins(1) && !stats.program.is_empty());
        drop(writer);
        assert_eq!(PublishedStats::read_all_in(directory.path()), []);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn half_a_text_and_a_strange_file_are_nothing() {
        let whole = "roci-stat 1 7\npid 1\nworker tx_eager 3\nend 7\n";
        assert_eq!(PublishedStats::parse(whole).expect("whole").counter("worker", "tx_eager"), 3);
        for text in [
            "",
            "roci-stat 1 7\npid 1\n",
            "roci-stat 1 7\nend 8\n",
            "roci-stat 2 7\nend 7\n",
            "roci-stat 1 7\nworker tx -1\nend 7\n",
        ] {
            assert_eq!(PublishedStats::parse(text), None, "{text}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = path_in(directory.path(), 0);
        std::os::unix::fs::symlink("/etc/hostname", &path).expect("room on the disk");
        assert_eq!(PublishedStats::read_all_in(directory.path()), []);
        assert!(path.is_symlink(), "what is no file of ours stays");
        // Nothing waits for a writer, and what a user has put there under another's name is no worker.
        fs::remove_file(&path).expect("ours");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        let stranger = directory.path().join(format!("{PREFIX}{}-1-0", geteuid().as_raw() + 1));
        fs::write(&stranger, whole).expect("room on the disk");
        assert_eq!(PublishedStats::read_all_in(directory.path()), []);
        assert!(stranger.exists());
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = StatsWriter::create(directory.path(), &facts(), Duration::ZERO).expect("a file");
        writer.write(|text| StatsWriter::report(text, "\u{1b}]0;owned\u{7}"));
        assert_eq!(PublishedStats::read_all_in(directory.path())[0].report, ["?]0;owned?"]);
    }

    #[test]
    fn what_a_killed_worker_has_left_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = StatsWriter::create(directory.path(), &facts(), Duration::ZERO).expect("a file");
        publish(&mut writer, 1);
        writer.forget();
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
        assert_eq!(PublishedStats::read_all_in(directory.path()), []);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}
