//! Counters: how many operations have ended well, and how many have not.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::attributes::{FI_CNTR_EVENTS_COMP, fi_cntr_attr};
use crate::abi::operations::{fi_ops, fi_ops_cntr};
use crate::abi::queues::FI_EAVAIL;
use crate::abi::{FI_CLASS_CNTR, fid, fid_cntr, fid_domain};
use crate::attached::AttachedEndpoints;
use crate::domain::{self, DomainState};
use crate::object::{Object, fid_of, waits_in_call};
use crate::progress::PollingWait;

/// Two numbers, and the endpoints that change them.
pub(crate) struct CntrState {
    domain: Arc<DomainState>,
    good: AtomicU64,
    bad: AtomicU64,
    pub(crate) endpoints: AttachedEndpoints,
}

type FiCounter = Object<fid_cntr, CntrState>;

static OPS: fi_ops = fi_ops { close, ..fi_ops::MISSING };
static COUNTER_OPS: fi_ops_cntr = fi_ops_cntr { read, readerr, add, set, wait, adderr, seterr, ..fi_ops_cntr::MISSING };

impl CntrState {
    /// An operation has ended.
    pub(crate) fn note(&self, is_good: bool) {
        let counter = if is_good { &self.good } else { &self.bad };
        counter.fetch_add(1, Ordering::Release);
    }
}

/// `fi_cntr_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the attributes are valid where they are there.
    let attributes = unsafe { attributes.as_ref() };
    // Operations are counted, and no bytes; who waits calls `fi_cntr_wait`.
    if attributes.is_some_and(|it| it.events != FI_CNTR_EVENTS_COMP || !waits_in_call(it.wait_obj)) {
        return -libc::ENOSYS;
    }
    // SAFETY: the domain is ours.
    unsafe {
        let state = CntrState {
            domain: domain::state(domain),
            good: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            endpoints: AttachedEndpoints::default(),
        };
        let base = fid_of(FI_CLASS_CNTR, context, &OPS);
        *counter = FiCounter::open(fid_cntr { fid: base, ops: &raw const COUNTER_OPS }, Arc::new(state));
    }
    0
}

/// The state of an open counter.
///
/// # Safety
/// It is one of ours.
pub(crate) unsafe fn state(counter: *mut fid_cntr) -> Arc<CntrState> {
    // SAFETY: the caller says so.
    unsafe { FiCounter::state(counter) }.clone()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe { FiCounter::close(fid) }
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    // SAFETY: it is ours.
    let state = unsafe { FiCounter::state(counter) };
    state.endpoints.progress(&state.domain.endpoints);
    state.good.load(Ordering::Acquire)
}

unsafe extern "C" fn readerr(counter: *mut fid_cntr) -> u64 {
    // SAFETY: it is ours.
    unsafe { FiCounter::state(counter) }.bad.load(Ordering::Acquire)
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: it is ours.
    unsafe { FiCounter::state(counter) }.good.fetch_add(value, Ordering::Relaxed);
    0
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: it is ours.
    unsafe { FiCounter::state(counter) }.good.store(value, Ordering::Relaxed);
    0
}

unsafe extern "C" fn adderr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: it is ours.
    unsafe { FiCounter::state(counter) }.bad.fetch_add(value, Ordering::Relaxed);
    0
}

unsafe extern "C" fn seterr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: it is ours.
    unsafe { FiCounter::state(counter) }.bad.store(value, Ordering::Relaxed);
    0
}

/// `fi_cntr_wait`: until so many operations have ended, or one has failed, or it has taken so many milliseconds.
unsafe extern "C" fn wait(counter: *mut fid_cntr, threshold: u64, timeout_ms: c_int) -> c_int {
    // SAFETY: it is ours.
    let state = unsafe { FiCounter::state(counter) };
    let failed = state.bad.load(Ordering::Acquire);
    let mut patience = PollingWait::of_milliseconds(timeout_ms);
    loop {
        let happened = state.endpoints.progress(&state.domain.endpoints);
        if state.good.load(Ordering::Acquire) >= threshold {
            return 0;
        }
        if state.bad.load(Ordering::Acquire) != failed {
            return -FI_EAVAIL;
        }
        if !patience.wait(happened) {
            return -libc::ETIMEDOUT;
        }
    }
}
