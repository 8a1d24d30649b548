//! A descriptor that this process was started with.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes over the socket that a process manager has opened for this process, once.
///
/// # Errors
/// It is not open, or no socket, or was taken before.
pub(crate) fn take(fd: RawFd) -> io::Result<File> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    // The first three are the standard streams, and anybody's.
    let is_socket = std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(|found| found.file_type().is_socket());
    if fd < 3 || !is_socket {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("descriptor {fd} of PMI_FD is no open socket")));
    }
    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        return Err(io::Error::other("the process manager was asked before, and a process may ask it once"));
    }
    // SAFETY: it is open, as was just seen. The manager names it to this process for this protocol alone, so no other part of
    // the program owns it; and this is the only time that it is taken, so that its number is not yet another file's.
    Ok(unsafe { File::from_raw_fd(fd) })
}
