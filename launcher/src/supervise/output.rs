//! Where the output of ranks goes: to the launcher's own, line by line behind the rank's number, or to a file for each rank.

use std::fs::File;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::Rank;

/// A longer line of a rank is passed on in pieces.
const LINE_LIMIT: usize = 64 << 10;

/// What is done with the output of ranks.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct OutputMode {
    /// Each line begins with the rank's number.
    pub prefix: bool,
    /// It goes to this file, where `%r` stands for the rank.
    pub file: Option<String>,
}

/// One of the two streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum OutputStream {
    Out,
    Err,
}

impl OutputStream {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Err => "err",
        }
    }
}

impl OutputMode {
    /// Opens the file of a process whose first rank this is, where its output goes to one.
    pub(crate) fn open(&self, rank: Rank) -> io::Result<Option<File>> {
        let Some(pattern) = &self.file else { return Ok(None) };
        let name = pattern.replace("%r", &rank.to_string());
        File::create(&name).map(Some).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    }
}

/// One stream of one process, at the launcher.
pub(crate) struct RankOutput {
    rank: Rank,
    stream: OutputStream,
    has_prefix: bool,
    file: Option<File>,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// It could not be written, and that was reported.
    pub(crate) is_broken: bool,
}

impl RankOutput {
    pub(crate) fn new(rank: Rank, stream: OutputStream, has_prefix: bool, file: Option<File>) -> Self {
        Self { rank, stream, has_prefix, file, partial: Vec::new(), is_broken: false }
    }

    /// Passes on what the rank has written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(bytes);
        }
        if !self.has_prefix {
            return self.print(bytes);
        }
        self.partial.extend(bytes);
        while let Some(end) = self.line_end() {
            let line: Vec<_> = self.partial.drain(..end).collect();
            self.print_line(&line)?;
        }
        Ok(())
    }

    /// Passes on a last line that has no end.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.partial);
        if line.is_empty() { Ok(()) } else { self.print_line(&line) }
    }

    fn line_end(&self) -> Option<usize> {
        let end = self.partial.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        end.or_else(|| (self.partial.len() >= LINE_LIMIT).then_some(LINE_LIMIT))
    }

    fn print_line(&self, line: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(line);
        self.print(format!("[{}] {}\n", self.rank, text.trim_end_matches('\n')).as_bytes())
    }

    fn print(&self, bytes: &[u8]) -> io::Result<()> {
        match self.stream {
            OutputStream::Out => write_and_flush(io::stdout().lock(), bytes),
            OutputStream::Err => write_and_flush(io::stderr().lock(), bytes),
        }
    }
}

fn write_and_flush(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
