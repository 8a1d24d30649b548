//! The event queue. Nothing here happens later than the call that asks for it, so nothing is ever in it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use libc::ssize_t;

use crate::abi::attributes::fi_eq_attr;
use crate::abi::operations::{fi_ops, fi_ops_eq};
use crate::abi::{FI_CLASS_EQ, fid, fid_eq, fid_fabric};
use crate::object::{Object, fid_of, waits_in_call};

/// Nothing is in it.
struct EventQueueState;

type FiEventQueue = Object<fid_eq, EventQueueState>;

static OPS: fi_ops = fi_ops { close, ..fi_ops::MISSING };
static QUEUE_OPS: fi_ops_eq = fi_ops_eq { read, readerr, sread, ..fi_ops_eq::MISSING };

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open(
    _fabric: *mut fid_fabric,
    attributes: *mut fi_eq_attr,
    queue: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the attributes are valid where they are there.
    if unsafe { attributes.as_ref() }.is_some_and(|it| !waits_in_call(it.wait_obj)) {
        return -libc::ENOSYS;
    }
    let base = fid_of(FI_CLASS_EQ, context, &OPS);
    let opened = FiEventQueue::open(fid_eq { fid: base, ops: &raw const QUEUE_OPS }, Arc::new(EventQueueState));
    // SAFETY: libfabric wants the answer there.
    unsafe { *queue = opened };
    0
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe { FiEventQueue::close(fid) }
}

unsafe extern "C" fn read(_: *mut fid_eq, _: *mut u32, _: *mut c_void, _: usize, _: u64) -> ssize_t {
    -(libc::EAGAIN as ssize_t)
}

unsafe extern "C" fn readerr(_: *mut fid_eq, _: *mut c_void, _: u64) -> ssize_t {
    -(libc::EAGAIN as ssize_t)
}

unsafe extern "C" fn sread(
    _: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    timeout_ms: c_int,
    _: u64,
) -> ssize_t {
    // Nothing comes, however long it is waited for.
    std::thread::sleep(u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis));
    -(libc::EAGAIN as ssize_t)
}
