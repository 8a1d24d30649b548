//! The folder that a report goes to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::BenchFailure;

/// Files are made here first, so that each comes into its place whole.
const STAGING: &str = ".roci-bench-new";
/// More than all files of a full report.
const MOST_BYTES: usize = 2 << 20;

/// A folder in which a report replaces the one before it, or leaves it alone.
pub(crate) struct Output {
    folder: PathBuf,
}

impl Output {
    /// Makes the folder and tries to write there, so that a failure shows before all is measured.
    pub(crate) fn prepare(folder: &Path) -> Result<Self, BenchFailure> {
        let output = Self { folder: folder.to_owned() };
        output.probe().map_err(|error| output.complaint(error))?;
        Ok(output)
    }

    /// Lets `write` fill an empty folder, and puts its files into this one if it could. A disk that is full or a kill
    /// leaves the report of before.
    pub(crate) fn replace(&self, write: impl FnOnce(&Path) -> Result<(), BenchFailure>) -> Result<(), BenchFailure> {
        let staging = self.stage().map_err(|error| self.complaint(error))?;
        let written = write(&staging);
        let placed = written.and_then(|()| self.place(&staging).map_err(|error| self.complaint(error)));
        // What is left of it is removed by the next one.
        let _ = fs::remove_dir_all(&staging);
        placed
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn probe(&self) -> io::Result<()> {
        let staging = self.stage()?;
        let written = fs::write(staging.join("probe"), vec![0; MOST_BYTES]);
        fs::remove_dir_all(&staging)?;
        written
    }

    /// The staging folder, empty.
    fn stage(&self) -> io::Result<PathBuf> {
        let staging = self.folder.join(STAGING);
        match fs::remove_dir_all(&staging) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(error);
            }
            _ => fs::create_dir_all(&staging)?,
        }
        Ok(staging)
    }

    fn place(&self, staging: &Path) -> io::Result<()> {
        for entry in fs::read_dir(staging)? {
            let entry = entry?;
            fs::rename(entry.path(), self.folder.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn complaint(&self, error: io::Error) -> BenchFailure {
        BenchFailure::Folder { folder: self.folder.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_report_replaces_the_one_before_it_and_nothing_else_stays() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("deep/down");
        let output = Output::prepare(&folder).expect("it can be made");
        assert!(names(&folder).is_empty());
        // What a killed one has left.
        fs::create_dir_all(folder.join(STAGING)).expect("a folder");
        fs::write(folder.join(STAGING).join("half"), "a half").expect("a file");
        for text in ["one", "other"] {
            let write = |staging: &Path| {
                let path = staging.join("file");
                fs::write(&path, text).map_err(|error| BenchFailure::File { path, error })
            };
            output.replace(write).expect("it can be written");
            assert_eq!(names(&folder), ["file"]);
            assert_eq!(fs::read_to_string(folder.join("file")).expect("a file"), text);
        }
    }

    #[test]
    fn what_could_not_be_written_leaves_the_report_of_before() {
        let place = tempfile::tempdir().expect("a folder");
        let output = Output::prepare(place.path()).expect("it is there");
        fs::write(place.path().join("file"), "before").expect("a file");
        let write = |staging: &Path| {
            fs::write(staging.join("file"), "half").expect("a file");
            Err(BenchFailure::Interrupted)
        };
        assert!(matches!(output.replace(write), Err(BenchFailure::Interrupted)));
        assert_eq!(names(place.path()), ["file"]);
        assert_eq!(fs::read_to_string(place.path().join("file")).expect("a file"), "before");
    }

    #[test]
    fn a_folder_that_cannot_be_is_reported_at_once() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let trouble = Output::prepare(&file.path().join("below")).err().expect("no folder is below a file").to_string();
        assert!(trouble.contains("Not a directory") && trouble.contains("--out"), "{trouble}");
    }
}
