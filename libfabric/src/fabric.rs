//! The fabric: the network that all domains of this provider are on.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use crate::abi::attributes::fi_fabric_attr;
use crate::abi::operations::{fi_ops, fi_ops_fabric};
use crate::abi::{FI_CLASS_FABRIC, fid, fid_fabric};
use crate::object::{Object, fid_of};
use crate::{domain, event_queue, info};

/// Nothing: domains hold it so that it is closed last.
pub(crate) struct FabricState;

type FiFabric = Object<fid_fabric, FabricState>;

static OPS: fi_ops = fi_ops { close, ..fi_ops::MISSING };
static FABRIC_OPS: fi_ops_fabric =
    fi_ops_fabric { domain: domain::open, eq_open: event_queue::open, trywait, ..fi_ops_fabric::MISSING };

/// `fi_fabric`.
pub(crate) unsafe extern "C" fn open(
    attributes: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric hands in attributes that are valid, with a name that is a string where there is one.
    unsafe {
        let is_ours = attributes.as_ref().is_some_and(|it| it.name.is_null() || CStr::from_ptr(it.name) == info::NAME);
        if !is_ours {
            return -libc::ENODATA;
        }
        let api_version = (*attributes).api_version;
        let base = fid_of(FI_CLASS_FABRIC, context, &OPS);
        *fabric =
            FiFabric::open(fid_fabric { fid: base, ops: &raw const FABRIC_OPS, api_version }, Arc::new(FabricState));
    }
    0
}

/// The state of an open fabric.
///
/// # Safety
/// It is one of ours.
pub(crate) unsafe fn state(fabric: *mut fid_fabric) -> Arc<FabricState> {
    // SAFETY: the caller says so.
    unsafe { FiFabric::state(fabric) }.clone()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe { FiFabric::close(fid) }
}

/// `fi_trywait`: the application may sleep until a descriptor is readable where nothing is there to be read now.
unsafe extern "C" fn trywait(_fabric: *mut fid_fabric, objects: *mut *mut fid, count: c_int) -> c_int {
    // SAFETY: so many objects are there and open, says the caller.
    let is_busy = (0..count.max(0) as usize).any(|at| unsafe { crate::queue::has_news(*objects.add(at)) });
    if is_busy { -libc::EAGAIN } else { 0 }
}
