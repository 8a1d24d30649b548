//! libfabric's C interface, as much of it as a provider of reliable datagrams fills in or reads: types and constants of `rdma/*.h`,
//! which have kept their layout since version 1.5. The names are libfabric's own, so that they are found by them. A test compiles the
//! same structures with a C compiler and compares sizes and offsets.
//!
//! Tables of functions begin with their size, and later versions append to them: who calls looks at the size first. Attributes were
//! appended to, too: see [`crate::info`].
#![allow(non_camel_case_types, missing_docs)]

pub mod atomic;
pub mod attributes;
pub mod flags;
pub mod memory;
pub mod operations;
pub mod queues;

use std::ffi::{c_char, c_int, c_void};

use attributes::{fi_fabric_attr, fi_info};
use operations::{fi_ops, fi_ops_atomic, fi_ops_collective, fi_ops_domain, fi_ops_ep, fi_ops_fabric, fi_ops_mr};
use operations::{fi_ops_av, fi_ops_cm, fi_ops_cntr, fi_ops_cq, fi_ops_eq, fi_ops_msg, fi_ops_rma, fi_ops_tagged};

/// A version, as `FI_VERSION` makes it.
#[must_use]
pub const fn fi_version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The oldest interface whose attributes are laid out as here.
pub const OLDEST_API: u32 = fi_version(1, 5);

/// An entry of an address vector.
pub type fi_addr_t = u64;
/// No address in particular; none that is known.
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;

pub use libc::iovec;

/// What all objects begin with.
#[repr(C)]
#[derive(Debug)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *const fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *const fi_ops_domain,
    pub mr: *const fi_ops_mr,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
    pub tagged: *const fi_ops_tagged,
    pub atomic: *const fi_ops_atomic,
    pub collective: *const fi_ops_collective,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *const fi_ops_cntr,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *const fi_ops_eq,
}

/// Classes of objects.
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;

/// Space in the application's own context, which a provider may use in modes that ask for it, and for a message that was claimed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

impl Default for fi_context {
    fn default() -> Self {
        Self { internal: [std::ptr::null_mut(); 4] }
    }
}

/// What a library exports.
#[repr(C)]
#[derive(Debug)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: fi_context,
    pub name: *const c_char,
    pub getinfo:
        unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int,
    pub fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}

/// Returns a pointer to `T` if the object's class is `class`: objects are bound by their first field alone.
pub(crate) fn of_class<T>(object: *mut fid, class: usize) -> Option<*mut T> {
    // SAFETY: the application hands in an object that is open.
    let its = unsafe { object.as_ref() }?.fclass;
    (its == class).then_some(object.cast())
}
