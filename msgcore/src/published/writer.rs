//! The worker's side.

use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::{DIRECTORY, VERSION, path_in, since_1970};

/// What does not change.
pub(crate) struct StatsFacts {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) device: String,
}

/// A file that a worker writes its counters to.
pub(crate) struct StatsWriter {
    file: File,
    path: PathBuf,
    /// The process that made it: a forked child does not remove it.
    pid: u32,
    facts: String,
    text: String,
    number: u64,
    interval: Duration,
    next: Instant,
}

impl StatsWriter {
    /// A file of this process's, to be written every so often. `None` where there can be none: then there is nothing to see.
    pub(crate) fn open(facts: &StatsFacts, interval: Duration) -> Option<Self> {
        Self::create(Path::new(DIRECTORY), facts, interval)
            .inspect_err(|error| tracing::debug!("counters are not published: {error}"))
            .ok()
    }

    pub(super) fn create(directory: &Path, facts: &StatsFacts, interval: Duration) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (file, path) = loop {
            let path = path_in(directory, NEXT.fetch_add(1, Ordering::Relaxed));
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                // A killed process of the same number has left one, or one of another namespace lives.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => break (outcome?, path),
            }
        };
        file.try_lock()?;
        let pid = std::process::id();
        let program = std::env::args_os().next().unwrap_or_default();
        let StatsFacts { rank, size, device } = facts;
        assert!(rank < size, "rank {rank} of {size}");
        let facts =
            format!("pid {pid}\nrank {rank}\nsize {size}\nprogram {}\ndevice {device}\n", program.to_string_lossy());
        Ok(Self { file, path, pid, facts, text: String::new(), number: 0, interval, next: Instant::now() })
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

    /// Adds a line that people read.
    pub(crate) fn report(text: &mut String, line: &str) {
        let _ = writeln!(text, "report {}", line.replace('\n', " "));
    }

    /// Leaves the file behind, as a process that is killed does.
    #[cfg(test)]
    pub(super) fn forget(mut self) {
        self.pid = 0;
    }
}

impl Drop for StatsWriter {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens a regular file of this user's for reading: no link to one, and nothing that would wait for a writer.
pub(super) fn open_file_of(path: &Path, uid: u32) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.uid() == uid { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
