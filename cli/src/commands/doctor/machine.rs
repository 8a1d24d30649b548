//! What the kernel shows of the machine, as text.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file of the kernel's that is looked at is longer; modules.dep, the longest, has under a MiB.
const LIMIT: u64 = 8 << 20;

/// The machine, under a root directory: a test has one of its own.
pub(super) struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { root: "/".into() }
    }
}

impl Machine {
    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where a path of the machine is.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// A file's text; empty where there is none, or none that may be read.
    pub(super) fn read(&self, path: impl AsRef<Path>) -> String {
        let mut bytes = Vec::new();
        let read = File::open(self.path(path)).and_then(|file| file.take(LIMIT).read_to_end(&mut bytes));
        read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last part of where a link leads: sysfs names drivers and devices so.
    pub(super) fn target(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }
}
