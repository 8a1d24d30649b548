//! The worker's side.

use std::fmt::{Display, Write as _};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use roci_protocol::Histogram;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{NAME, PublishedStats, VERSION, since_1970};

/// What does not change.
pub(crate) struct StatsFacts {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: String,
}

/// Memory that a worker writes its counters to.
pub(crate) struct StatsWriter {
    file: File,
    facts: String,
    text: String,
    number: u64,
    interval: Duration,
    next: Instant,
}

impl StatsWriter {
    /// Memory of this process's, to be written every so often. `None` where there can be none: then there is nothing to see.
    pub(crate) fn open(facts: &StatsFacts, interval: Duration) -> Option<Self> {
        let made = memfd_create(NAME, MemfdFlags::CLOEXEC);
        let made = made.inspect_err(|error| tracing::debug!("counters are not published: {error}"));
        let file = File::from(made.ok()?);
        let program = std::env::args_os().next().unwrap_or_default();
        let StatsFacts { rank, size, device } = facts;
        assert!(rank < size, "rank {rank} of {size}");
        let pid = std::process::id();
        let facts =
            format!("pid {pid}\nrank {rank}\nsize {size}\nprogram {}\ndevice {device}\n", program.to_string_lossy());
        Some(Self { file, facts, text: String::new(), number: 0, interval, next: Instant::now() })
    }

    /// Whether it is time to write. Reads the clock.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Writes what `fill` adds to the facts.
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut String)) {
        self.number += 1;
        self.text.clear();
        debug_assert!(self.facts.ends_with('\n'), "facts are lines");
        let now = since_1970().as_millis();
        let _ = write!(self.text, "roci-stat {VERSION} {}\n{}written_ms {now}\n", self.number, self.facts);
        fill(&mut self.text);
        let _ = writeln!(self.text, "end {}", self.number);
        // What cannot be written now may be later, and nothing depends on it.
        let written = self.file.write_all_at(self.text.as_bytes(), 0);
        let _ = written.and_then(|()| self.file.set_len(self.text.len() as u64));
        self.next = Instant::now() + self.interval;
    }

    /// Adds counters to a text.
    pub(crate) fn counters(
        text: &mut String,
        scope: impl Display,
        counters: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        for (name, value) in counters {
            debug_assert!(!name.contains(char::is_whitespace), "a reader takes '{name}' for two words");
            let _ = writeln!(text, "{scope} {name} {value}");
        }
    }

    /// Adds a histogram: a counter for each bucket, whose name is the most that a value in it may be, and the sum of all values.
    pub(crate) fn histogram(text: &mut String, scope: &str, histogram: &Histogram) {
        for (most, count) in histogram.iter() {
            let _ = writeln!(text, "{scope} {most} {count}");
        }
        let _ = writeln!(text, "{scope} {} {}", PublishedStats::SUM, histogram.sum());
    }

    /// Adds a line that people read.
    pub(crate) fn report(text: &mut String, line: &str) {
        let _ = writeln!(text, "report {}", line.replace('\n', " "));
    }
}
