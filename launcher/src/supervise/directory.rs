//! Where sockets are: a directory for this user alone, which a process that was killed leaves to the next one. Its lock says whether
//! it lives: a number says nothing where others that share the place, as containers may, count processes of their own.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use tempfile::{Builder, TempDir};

/// How one is called, before what makes its name unique.
const PREFIX: &str = "roci-";
/// In it, the file that its owner locks for as long as it lives, and how that is called until it is locked.
const LOCK: &str = "lock";
const NOT_YET_LOCKED: &str = "new";
/// Room for a socket's name behind the job's directory.
const DIRECTORY_LIMIT: usize = 80;
/// What means something else in the arguments of DPDK's devices.
const SIGNS: [char; 4] = [',', '=', '[', ']'];
/// Where the usual place does not do.
const FALLBACK: &str = "/tmp";

/// A directory for sockets: of a job, or of one process. It goes with this.
pub struct SocketDirectory {
    directory: TempDir,
    _lock: File,
}

impl SocketDirectory {
    /// Makes one in `TMPDIR`, or in `/tmp` where a socket there could have no name. Removes what killed launchers have left.
    pub(crate) fn new() -> io::Result<Self> {
        let usual = std::env::temp_dir();
        let parents = [usual.as_path(), Path::new(FALLBACK)];
        for parent in parents {
            sweep(parent);
        }
        let made = parents.iter().filter(|parent| may_hold_sockets(parent)).map(|parent| Self::make(parent));
        let mut failure = None;
        for attempt in made {
            match attempt {
                Ok(directory) => return Ok(directory),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| io::ErrorKind::InvalidFilename.into()))
    }

    /// Makes one of a certain name, which begins with `roci-`, where every process of this user's on this host would.
    pub(crate) fn named(name: &str) -> io::Result<Self> {
        let path = Self::path_of(name);
        sweep(path.parent().unwrap_or(Path::new(FALLBACK)));
        Self::make_with(path.parent().unwrap_or(Path::new(FALLBACK)), Builder::new().prefix(name).rand_bytes(0))
    }

    /// Where the directory of this name is.
    pub(crate) fn path_of(name: &str) -> PathBuf {
        let usual = std::env::temp_dir();
        if may_hold_sockets(&usual) { usual.join(name) } else { Path::new(FALLBACK).join(name) }
    }

    /// Makes one in this place, whose name begins with `roci-` and this word. Removes what killed processes have left there.
    ///
    /// # Errors
    /// Where there can be none.
    pub fn within(parent: &Path, word: &str) -> io::Result<Self> {
        sweep(parent);
        Self::make_with(parent, Builder::new().prefix(&format!("{PREFIX}{word}-")))
    }

    fn make(parent: &Path) -> io::Result<Self> {
        Self::make_with(parent, Builder::new().prefix(PREFIX))
    }

    fn make_with(parent: &Path, builder: &mut Builder<'_, '_>) -> io::Result<Self> {
        let directory = builder.permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        // A process that sweeps at this moment must not find it unlocked.
        let (new, path) = (directory.path().join(NOT_YET_LOCKED), directory.path().join(LOCK));
        let lock = File::create_new(&new)?;
        lock.try_lock()?;
        fs::rename(&new, &path)?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

fn may_hold_sockets(parent: &Path) -> bool {
    let text = parent.to_str().filter(|text| !text.contains(SIGNS));
    text.is_some_and(|text| text.len() + PREFIX.len() + 8 < DIRECTORY_LIMIT)
}

/// Removes the directories of this user's processes that do not live any more.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let paths = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in paths.map(|entry| entry.path()).filter(is_ours) {
        // This process holds the lock until the directory is removed: no other one removes it at the same time.
        if let Ok(_lock) = lock_of(&path) {
            // What cannot be removed stays for the next one.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_ours(path: &PathBuf) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
}

/// The lock that a process has given up with its life. (NFS locks only a file that may be written.)
fn lock_of(directory: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(no_link).open(directory.join(LOCK))?;
    file.try_lock().map_err(|refused| match refused {
        TryLockError::Error(error) => error,
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_removes_the_directories_of_killed_launchers_and_no_others() {
        let parent = tempfile::tempdir().expect("a directory");
        let living = SocketDirectory::make(parent.path()).expect("room on the disk");
        fs::write(living.path().join("job"), "").expect("room on the disk");
        let killed = SocketDirectory::make(parent.path()).expect("room on the disk");
        fs::write(killed.path().join("job"), "").expect("room on the disk");
        let SocketDirectory { directory, _lock: lock } = killed;
        let killed = directory.keep();
        drop(lock);
        // Not made by a launcher: a directory without a lock, another name, a file, a link.
        let others = ["roci-without", "other-name", "roci-file", "roci-link"].map(|name| parent.path().join(name));
        fs::create_dir(&others[0]).expect("room on the disk");
        fs::create_dir(&others[1]).expect("room on the disk");
        fs::write(others[1].join(LOCK), "").expect("room on the disk");
        fs::write(&others[2], "").expect("room on the disk");
        std::os::unix::fs::symlink(&others[1], &others[3]).expect("room on the disk");
        sweep(parent.path());
        assert!(!killed.exists());
        assert!(living.path().join("job").exists());
        assert!(others.iter().all(|path| path.exists()) && others[1].join(LOCK).exists());
    }

    #[test]
    fn a_directory_beside_others_leaves_those_of_the_living() {
        let parent = tempfile::tempdir().expect("a directory");
        let make = || SocketDirectory::within(parent.path(), "local-7").expect("room on the disk");
        let (living, killed) = (make(), make());
        let SocketDirectory { directory, _lock: lock } = killed;
        let killed = directory.keep();
        drop(lock);
        let next = make();
        let names = |directory: &SocketDirectory| {
            directory.path().file_name().is_some_and(|name| name.to_string_lossy().starts_with("roci-local-7-"))
        };
        assert!(names(&living) && names(&next) && next.path().exists());
        assert!(living.path().exists() && !killed.exists());
    }

    #[test]
    fn a_place_whose_name_dpdk_would_misread_or_that_is_too_long_is_not_used() {
        assert!(may_hold_sockets(Path::new("/tmp")) && may_hold_sockets(Path::new("/tmp/with a blank")));
        for name in ["/tmp/a,b", "/tmp/a=b", "/tmp/a[b", "/tmp/]", &"/long".repeat(16)] {
            assert!(!may_hold_sockets(Path::new(name)), "{name}");
        }
    }
}
