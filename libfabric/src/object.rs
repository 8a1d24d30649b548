//! What the application holds: a pointer to libfabric's structure, behind which the state of the object lies.

use std::ffi::{c_int, c_void};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use libc::ssize_t;

use crate::abi::attributes::{FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD};
use crate::abi::fid;
use crate::abi::operations::fi_ops;

/// An object as libfabric sees it, and its state. Other objects that need the state share it.
#[repr(C)]
pub(crate) struct Object<F, T> {
    fid: F,
    state: Arc<T>,
    /// The process that has opened it.
    process: u32,
}

impl<F, T> Object<F, T> {
    /// Makes an object, which lives until it is closed.
    pub(crate) fn open(fid: F, state: Arc<T>) -> *mut F {
        Box::into_raw(Box::new(Self { fid, state, process: process::id() })).cast()
    }

    /// Returns the state of an object.
    ///
    /// # Safety
    /// `fid` was made by [`Object::open`] of this very type, and is not closed while the answer is used.
    pub(crate) unsafe fn state<'a>(fid: *mut F) -> &'a Arc<T> {
        // SAFETY: the structure begins with what `fid` points to, says the caller.
        unsafe { &(*fid.cast::<Self>()).state }
    }

    /// Whether this process is a forked child of the one that has opened it. Another thread may have been inside when the child was forked,
    /// and the child has no such thread: so a child leaves what it has inherited as it is.
    ///
    /// # Safety
    /// As for [`Object::state`].
    pub(crate) unsafe fn is_inherited(fid: *mut fid) -> bool {
        // SAFETY: the structure begins with what `fid` points to, says the caller.
        unsafe { &*fid.cast::<Self>() }.process != process::id()
    }

    /// Ends an object; `-FI_EBUSY` where others need it still. In a forked child nothing is done: its memory goes with the process.
    ///
    /// # Safety
    /// As for [`Object::state`], and the application does not use it any more where the answer is 0.
    pub(crate) unsafe fn close(fid: *mut fid) -> c_int {
        // SAFETY: the caller's.
        if unsafe { Self::is_inherited(fid) } {
            return 0;
        }
        let object = fid.cast::<Self>();
        // SAFETY: the structure begins with what `fid` points to, says the caller.
        if Arc::strong_count(unsafe { &(*object).state }) > 1 {
            return -libc::EBUSY;
        }
        // SAFETY: it was made by `Box::into_raw`, and is not used any more.
        drop(unsafe { Box::from_raw(object) });
        0
    }
}

/// Locks, where no other thread has locked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Whether the application wants no descriptor or the like to wait on: it waits in a call of ours, or not at all.
pub(crate) const fn waits_in_call(wait_object: c_int) -> bool {
    matches!(wait_object, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD)
}

/// The first part of an object.
pub(crate) const fn fid_of(class: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: class, context, ops }
}

/// Why a call did nothing: an error number of libfabric's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

/// What a call answers.
pub(crate) fn answer(outcome: Result<(), Errno>) -> ssize_t {
    match outcome {
        Ok(()) => 0,
        Err(Errno(number)) => -(number as ssize_t),
    }
}

/// The same for calls that answer an `int`.
pub(crate) fn answer_int(outcome: Result<(), Errno>) -> c_int {
    outcome.map_or_else(|Errno(number)| -number, |()| 0)
}
