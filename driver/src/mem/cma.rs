//! Cross Memory Attach: the kernel copies from the memory of another process of this host straight into a buffer
//! (process_vm_readv(2)).
//!
//! The number of a process says little: it is given again when the process has ended. So each process that lets others read its
//! memory has a [`MemoryMark`] there, random bytes that no other process has, and every copy ends with a look at them, in the same
//! system call and so in the same address space.

use std::fmt;
use std::ops::Range;

use rustix::process::Pid;
use thiserror::Error;

use super::Buffer;

/// Bytes of a mark.
const MARK_LEN: usize = 16;

/// Random bytes in this process's memory, at an address that does not change. Another process that reads them there reads this
/// process's memory.
pub struct MemoryMark(Box<[u8; MARK_LEN]>);

/// Where a process has its mark, and what that is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MarkPlace {
    /// Its address there.
    pub va: u64,
    /// The bytes.
    pub bytes: [u8; MARK_LEN],
}

/// The memory of another process of this host, which this one may read.
#[derive(Clone, Copy, Debug)]
pub struct PeerMemory {
    pid: Pid,
    mark: MarkPlace,
}

/// Why another process's memory was not read.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeerMemoryError {
    /// The kernel does not let this process read there: by its rules for ptrace(2), or because nothing is there.
    #[error("process_vm_readv of process {pid}: {why}")]
    Refused {
        /// The process.
        pid: i32,
        /// What the kernel says.
        why: rustix::io::Errno,
    },
    /// It is no longer the process that it was, or only a part of what was asked for is there.
    #[error("process {0} is not the one that it was")]
    Another(i32),
    /// The buffer's bytes do not lie in one piece.
    #[error("the buffer is a list")]
    List,
}

impl MemoryMark {
    /// Puts these bytes, which cannot be guessed, somewhere in memory.
    pub fn new(bytes: [u8; MARK_LEN]) -> Self {
        Self(Box::new(bytes))
    }

    /// Returns where they are.
    pub fn place(&self) -> MarkPlace {
        MarkPlace { va: self.0.as_ptr().addr() as u64, bytes: *self.0 }
    }
}

impl Drop for MemoryMark {
    /// No process finds it any more, even where the memory is not used again.
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

impl PeerMemory {
    /// The memory of the process with this number, which has its mark at this place.
    ///
    /// # Errors
    /// This process may not read it, or it has no such mark.
    pub fn attach(pid: Pid, mark: MarkPlace) -> Result<Self, PeerMemoryError> {
        let memory = Self { pid, mark };
        memory.read_with_mark(0, std::ptr::null_mut(), 0)?;
        Ok(memory)
    }

    /// Copies what lies at `va` there into a part of a buffer. Where it fails some of that part may have been written.
    ///
    /// # Errors
    /// The kernel does not allow it, the process has ended, or the buffer is a list.
    ///
    /// # Panics
    /// Where the part is none of the buffer's, or nothing may be written to it.
    pub fn read(&self, va: u64, into: &mut Buffer, part: Range<usize>) -> Result<(), PeerMemoryError> {
        let len = part.len();
        let at = into.part_mut(part).ok_or(PeerMemoryError::List)?;
        self.read_with_mark(va, at, len)
    }

    /// Copies `len` bytes from `va` there to `at`, which nothing else accesses meanwhile, and then the mark.
    fn read_with_mark(&self, va: u64, at: *mut u8, len: usize) -> Result<(), PeerMemoryError> {
        let pid = self.pid.as_raw_nonzero().get();
        let mut mark = [0; MARK_LEN];
        let iovec = |base, len| libc::iovec { iov_base: base, iov_len: len };
        let there = |va: u64, len| iovec(std::ptr::without_provenance_mut(va as usize), len);
        let to = [iovec(at.cast(), len), iovec(mark.as_mut_ptr().cast(), MARK_LEN)];
        let from = [there(va, len), there(self.mark.va, MARK_LEN)];
        // SAFETY: the kernel writes to `at`, which is the caller's, and to `mark`. What it reads is another address space's,
        // where it looks itself at what is there.
        let read = unsafe { libc::process_vm_readv(pid, to.as_ptr(), 2, from.as_ptr(), 2, 0) };
        match usize::try_from(read) {
            Ok(read) if read == len + MARK_LEN && mark == self.mark.bytes => Ok(()),
            Ok(_) => Err(PeerMemoryError::Another(pid)),
            Err(_) => {
                let why = std::io::Error::last_os_error();
                let why = rustix::io::Errno::from_io_error(&why).unwrap_or(rustix::io::Errno::IO);
                Err(PeerMemoryError::Refused { pid, why })
            }
        }
    }
}

impl fmt::Debug for MemoryMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryMark")
    }
}

/// Without the bytes, by which a process is known.
impl fmt::Debug for MarkPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MarkPlace({:#x})", self.va)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::mem::UserMemory;

    fn own() -> Pid {
        rustix::process::getpid()
    }

    /// Addresses above those that a process may have.
    const NOWHERE: u64 = 1 << 60;

    #[test]
    fn a_process_is_known_by_its_mark() {
        let mark = MemoryMark::new(*b"sixteen random b");
        let place = mark.place();
        assert!(PeerMemory::attach(own(), place).is_ok());
        let others = MarkPlace { bytes: *b"sixteen random c", ..place };
        assert_eq!(
            PeerMemory::attach(own(), others).map(drop),
            Err(PeerMemoryError::Another(own().as_raw_nonzero().get()))
        );
        let elsewhere = MarkPlace { va: NOWHERE, ..place };
        assert!(matches!(PeerMemory::attach(own(), elsewhere), Err(PeerMemoryError::Refused { .. })));
        assert_eq!(format!("{place:?} {mark:?}"), format!("MarkPlace({:#x}) MemoryMark", place.va));
    }

    #[test]
    fn what_is_read_lands_in_the_part_and_nowhere_else() {
        let mark = MemoryMark::new([7; MARK_LEN]);
        let memory = PeerMemory::attach(own(), mark.place()).expect("it is this process");
        let source: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        let va = source.as_ptr().addr() as u64;
        let mut words = [0_u64; 32];
        // SAFETY: the test accesses `words` no other way while there is a buffer, which it outlives.
        let target = unsafe { UserMemory::target(NonNull::from(&mut words).cast(), 256) };
        let exclusive = Buffer::of_user(vec![0; 256].leak().into(), 1, None);
        for mut buffer in [exclusive, Buffer::of_user(target, 2, None)] {
            buffer.skip_front(3);
            memory.read(va + 5, &mut buffer, 10..110).expect("it is there");
            let mut out = [0; 253];
            buffer.copy_out(0, &mut out);
            assert_eq!((&out[..10], &out[10..110], &out[110..]), (&[0; 10][..], &source[5..105], &[0; 143][..]));
            assert!(matches!(memory.read(NOWHERE, &mut buffer, 0..253), Err(PeerMemoryError::Refused { .. })));
        }
    }

    #[test]
    fn a_mark_that_is_gone_ends_reading_and_a_list_is_refused() {
        let mut mark = MemoryMark::new([7; MARK_LEN]);
        let memory = PeerMemory::attach(own(), mark.place()).expect("it is this process");
        let source = [9_u8; 64];
        let va = source.as_ptr().addr() as u64;
        let piece = |number| Buffer::of_user(vec![0; 64].leak().into(), number, None);
        let mut list = Buffer::list(vec![piece(1), piece(2)]).map_err(|_| ()).expect("two pieces");
        assert_eq!(memory.read(va, &mut list, 0..64), Err(PeerMemoryError::List));
        *mark.0 = [8; MARK_LEN];
        let outcome = memory.read(va, &mut piece(3), 0..64);
        assert_eq!(outcome, Err(PeerMemoryError::Another(own().as_raw_nonzero().get())));
    }
}
