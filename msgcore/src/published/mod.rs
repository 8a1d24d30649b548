//! Counters that other processes can read: what `roci stat` shows.
//!
//! A worker writes all that it counts to memory that has a descriptor (memfd_create(2)), a few times a second, from its own
//! calls of progress. Others find it among the descriptors of its process, if they may look at those: the same user's, and
//! root's. It ends with the process, however that ends. A worker that computes and makes no progress publishes nothing
//! meanwhile: the age of what is there says so.
//!
//! It is text: a line `roci-stat VERSION NUMBER`, a line `NAME VALUE` for each fact, a line `SCOPE NAME VALUE` for
//! each counter, the same for each bucket of a histogram (its name is the most that a value in it may be) and for the sum of its
//! values, lines `report TEXT`, and a line `end NUMBER`. Where the two numbers differ a writer was at work.

mod peers;
mod writer;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use roci_driver::RegistrationStats;
use rustix::fs::OFlags;

use crate::core::stats::WorkerStats;

pub(crate) use peers::{OF_QUEUE_PAIRS, PeerFigures, PeersFigures, choose};
pub(crate) use writer::{StatsFacts, StatsWriter};

/// The memory's name, and the beginning of what a descriptor of it is called.
const NAME: &str = "roci-stat";
const DESCRIPTOR: &str = "/memfd:roci-stat";
const VERSION: &str = "1";
/// The longest text that is read.
const LONGEST: u64 = 1 << 20;
/// How often it is read again where its writer was at work.
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
    /// Counters, by whose they are (`worker`, `engine`, `registration`, `port0`, `peer0` and so on) and name.
    pub counters: BTreeMap<(String, String), u64>,
    /// What it has under way, and its peers, a line each.
    pub report: Vec<String>,
}

impl PublishedStats {
    /// Returns what the workers of this user publish, or of all users where this is root; by process and rank.
    pub fn read_all() -> Vec<Self> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut all: Vec<_> = pids.flat_map(Self::of_process).collect();
        all.sort_by_key(|stats| (stats.pid, stats.rank));
        all
    }

    /// What the workers of a process publish. Those of another user's show no descriptors.
    fn of_process(pid: u32) -> Vec<Self> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let is_ours =
            |path: &PathBuf| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with(DESCRIPTOR));
        let paths = descriptors.map(|entry| entry.path()).filter(is_ours);
        let found = paths.filter_map(|path| Self::read(&path));
        // A forked child has its parent's descriptors, and no worker.
        let own = own_pid(pid);
        found.filter(|stats| stats.pid == own).map(|stats| Self { pid, ..stats }).collect()
    }

    fn read(path: &Path) -> Option<Self> {
        let mut file =
            File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).ok()?;
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

    /// The scope of the lengths of messages that were sent, in bytes.
    pub const SIZES: &str = "message_bytes";
    /// The scope of round trips of acknowledged packets, in nanoseconds.
    pub const ROUND_TRIPS: &str = "round_trip_ns";
    /// The name of the sum of a histogram's values, among its buckets.
    pub const SUM: &str = "sum";
    /// The scope of the application's registered memory.
    pub const REGISTRATION: &str = "registration";
    /// The scope of what is known of the peers together.
    pub const PEERS: &str = "peers";

    /// The buckets of a histogram, by its scope: the most that a value in one may be, and how many it has.
    pub fn histogram(&self, scope: &str) -> Vec<(u64, u64)> {
        let of_scope = self.counters.iter().filter(|((its, _), _)| its == scope);
        let mut buckets: Vec<_> =
            of_scope.filter_map(|((_, most), count)| Some((most.parse().ok()?, *count))).collect();
        buckets.sort_unstable();
        buckets
    }

    /// Whether what has this name may fall; all others only rise.
    pub fn is_gauge(scope: &str, name: &str) -> bool {
        let gauges = match scope {
            "worker" => WorkerStats::GAUGES,
            Self::REGISTRATION => RegistrationStats::GAUGES,
            Self::PEERS => PeersFigures::GAUGES,
            scope if Self::peer_of(scope).is_some() => PeerFigures::GAUGES,
            _ => &[],
        };
        gauges.contains(&name)
    }

    /// The peer that a scope is of: its rank, or slot and generation where it has none.
    pub fn peer_of(scope: &str) -> Option<&str> {
        scope.strip_prefix("peer").filter(|peer| peer.starts_with(|sign: char| sign.is_ascii_digit()))
    }

    /// The peers whose figures there are, as [`Self::peer_of`] has them, those that wait first.
    pub fn peers(&self) -> Vec<&str> {
        let mut peers: Vec<_> = self.counters.keys().filter_map(|(scope, _)| Self::peer_of(scope)).collect();
        peers.dedup();
        let figure = |peer: &str, name| self.counter(&format!("peer{peer}"), name);
        let number = |peer: &str| peer.split('.').filter_map(|part| part.parse::<u64>().ok()).collect::<Vec<_>>();
        peers.sort_by_cached_key(|peer| {
            let waits = (figure(peer, "messages_queued"), figure(peer, "work_requests_in_flight"));
            (Reverse(waits), number(peer))
        });
        peers
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

/// The number that a process has for itself, in the innermost of its namespaces.
fn own_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok()).unwrap_or(pid)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker whose device is named like its test: others run in this process at the same time.
    fn writer(device: &str) -> StatsWriter {
        let facts = StatsFacts { rank: 3, size: 4, device: device.into() };
        StatsWriter::open(&facts, Duration::ZERO).expect("memory")
    }

    fn publish(writer: &mut StatsWriter, value: u64) {
        writer.write(|text| {
            StatsWriter::counters(text, "worker", [("tx_eager", value)]);
            StatsWriter::counters(text, "port0", [("tx_bytes", 2 * value)]);
            StatsWriter::counters(text, "port1", [("tx_bytes", value)]);
            StatsWriter::report(text, "rank 1: connected\nwell \u{1b}]0;owned\u{7}");
        });
    }

    fn published(device: &str) -> Vec<PublishedStats> {
        PublishedStats::read_all().into_iter().filter(|stats| stats.device == device).collect()
    }

    #[test]
    fn what_a_worker_publishes_is_read_back_and_goes_with_it() {
        let mut writer = writer("there");
        assert_eq!(published("there"), [], "it has published nothing");
        publish(&mut writer, 7_000_000_000);
        publish(&mut writer, 5);
        let all = published("there");
        let [stats] = all.as_slice() else { panic!("one worker: {all:?}") };
        assert_eq!((stats.pid, stats.rank, stats.size), (std::process::id(), 3, 4));
        assert_eq!(
            (stats.counter("worker", "tx_eager"), stats.of_ports("tx_bytes"), stats.counter("engine", "x")),
            (5, 15, 0)
        );
        assert_eq!(stats.report, ["rank 1: connected well ?]0;owned?"], "a terminal would obey the signs");
        assert!(stats.age() < Duration::from_mins(1) && !stats.program.is_empty());
        drop(writer);
        assert_eq!(published("there"), []);
    }

    #[test]
    fn half_a_text_is_nothing() {
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
    }

    /// A child that a worker's process has started has none of its descriptors, and a forked one's are not its own.
    #[test]
    fn a_process_speaks_for_itself_alone() {
        let mut writer = writer("alone");
        publish(&mut writer, 1);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        assert_eq!(PublishedStats::of_process(child.id()), []);
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        assert_eq!(own_pid(std::process::id()), std::process::id());
        assert_eq!(published("alone").len(), 1);
    }
}
