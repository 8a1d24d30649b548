//! A descriptor that is readable while a queue has something to read.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// An event descriptor.
pub(crate) struct WaitFd(File);

impl WaitFd {
    /// # Errors
    /// There are no more descriptors: the error's number.
    pub(crate) fn open() -> Result<Self, c_int> {
        // SAFETY: it makes a new descriptor.
        let number = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if number < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE));
        }
        // SAFETY: it was made just now.
        Ok(Self(unsafe { File::from_raw_fd(number) }))
    }

    pub(crate) fn number(&self) -> c_int {
        self.0.as_raw_fd()
    }

    /// It is readable from now on.
    pub(crate) fn signal(&self) {
        // It fails where it counts nearly 2^64, and is readable then.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// It is not readable any more.
    pub(crate) fn clear(&self) {
        // It fails where it is not readable.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}
