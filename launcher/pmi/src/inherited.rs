//! A descriptor that this process was started with.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::path::Path;

/// Takes over the descriptor that a process manager has opened for this process.
///
/// # Errors
/// It is not open.
pub(crate) fn take(fd: RawFd) -> io::Result<File> {
    // The first three are the standard streams, and anybody's.
    if fd < 3 || !Path::new(&format!("/proc/self/fd/{fd}")).exists() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("descriptor {fd} of PMI_FD is not open")));
    }
    // SAFETY: it is open, as was just seen. The manager names it to this process for this protocol alone, so no other part of
    // the program owns it; a second client would be refused its handshake, since the first one closes the descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}
