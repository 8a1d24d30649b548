//! What sends and receives have in common: pieces of the application's memory, and which of the two kinds of messages it is.

use std::ffi::c_void;
use std::ptr::NonNull;

use roci_msgcore::{Buffer, Context, UserMemory, Worker};

use crate::abi::flags::{FI_MSG, FI_TAGGED};
use crate::abi::iovec;
use crate::info::IOV_LIMIT;
use crate::object::Errno;

/// Messages with tags, and those without, do not meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tagging {
    Tagged,
    Untagged,
}

impl Tagging {
    /// The core's context of such messages.
    pub(crate) const fn context(self) -> Context {
        Context::new(matches!(self, Self::Untagged) as u32)
    }

    /// The flag of their completions.
    pub(crate) const fn flag(self) -> u64 {
        match self {
            Self::Tagged => FI_TAGGED,
            Self::Untagged => FI_MSG,
        }
    }
}

/// Copies a list of pieces over `none`.
///
/// # Errors
/// There are too many.
///
/// # Safety
/// So many are there.
pub(crate) unsafe fn copy_pieces<T: Copy>(
    none: [T; IOV_LIMIT],
    pieces: *const T,
    count: usize,
) -> Result<[T; IOV_LIMIT], Errno> {
    let mut all = none;
    for (at, piece) in all.get_mut(..count).ok_or(Errno(libc::EINVAL))?.iter_mut().enumerate() {
        // SAFETY: the caller says so.
        *piece = unsafe { *pieces.add(at) };
    }
    Ok(all)
}

/// Memory of the application's that a message lies in, or is to lie in.
#[derive(Clone, Copy)]
pub(crate) enum IovPieces {
    One(iovec),
    Many { pieces: *const iovec, count: usize },
}

impl IovPieces {
    pub(crate) const fn one(start: *const c_void, len: usize) -> Self {
        Self::One(iovec { iov_base: start.cast_mut(), iov_len: len })
    }

    /// Returns how many bytes all pieces are, which may be so many.
    ///
    /// # Errors
    /// They are more, or a piece lies nowhere.
    pub(crate) fn check(&self, limit: usize) -> Result<usize, Errno> {
        let pieces = self.as_slice();
        if pieces.iter().any(|piece| piece.iov_base.is_null() && piece.iov_len > 0) {
            return Err(Errno(libc::EFAULT));
        }
        let len = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.iov_len));
        len.filter(|&len| len <= limit).ok_or(Errno(libc::EMSGSIZE))
    }

    /// # Errors
    /// There are too many.
    pub(crate) fn many(pieces: *const iovec, count: usize) -> Result<Self, Errno> {
        match count {
            0 => Ok(Self::one(std::ptr::null(), 0)),
            1..=IOV_LIMIT => Ok(Self::Many { pieces, count }),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    pub(crate) fn as_slice(&self) -> &[iovec] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            // SAFETY: so many pieces are there, says the application.
            Self::Many { pieces, count } => unsafe { std::slice::from_raw_parts(*pieces, *count) },
        }
    }

    /// Where the first piece begins.
    pub(crate) fn start(&self) -> *mut c_void {
        self.as_slice().first().map_or(std::ptr::null_mut(), |piece| piece.iov_base)
    }

    /// Returns the bytes, if they lie in one place.
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        match self.as_slice() {
            [piece] if piece.iov_len == 0 => Some(&[]),
            // SAFETY: the application's bytes are there, and it leaves them alone during the call.
            [piece] => Some(unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) }),
            _ => None,
        }
    }

    /// Copies the bytes to the front of `to`, which has room for them, and returns them.
    pub(crate) fn gather<'a>(&self, to: &'a mut [u8]) -> &'a [u8] {
        let mut end = 0;
        for piece in self.as_slice().iter().filter(|piece| piece.iov_len > 0) {
            // SAFETY: the application's bytes are there, and it leaves them alone during the call.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            to[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        }
        &to[..end]
    }

    /// Makes a buffer of the memory, to send from.
    pub(crate) fn source(&self, worker: &mut Worker) -> Result<Buffer, Errno> {
        // SAFETY: the application leaves the bytes alone until the operation's completion.
        self.buffer(worker, |start, len| unsafe { UserMemory::source(start, len) })
    }

    /// Makes a buffer of the memory, to receive into.
    pub(crate) fn target(&self, worker: &mut Worker) -> Result<Buffer, Errno> {
        // SAFETY: the application leaves the bytes to the receive until its completion.
        self.buffer(worker, |start, len| unsafe { UserMemory::target(start, len) })
    }

    fn buffer(&self, worker: &mut Worker, make: impl Fn(NonNull<u8>, usize) -> UserMemory) -> Result<Buffer, Errno> {
        let mut adopt = |piece: &iovec| {
            let start = NonNull::new(piece.iov_base.cast()).filter(|_| piece.iov_len > 0);
            let len = start.map_or(0, |_| piece.iov_len);
            worker.adopt(make(start.unwrap_or(NonNull::dangling()), len)).map_err(|_| Errno(libc::EFAULT))
        };
        match self.as_slice() {
            [piece] => adopt(piece),
            pieces => {
                let pieces = pieces.iter().map(adopt).collect::<Result<Vec<_>, _>>()?;
                Buffer::list(pieces).map_err(|_| Errno(libc::EINVAL))
            }
        }
    }
}
