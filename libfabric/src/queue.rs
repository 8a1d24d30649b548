//! Completion queues. Entries are in the longest format, and are cut to the queue's when they are read. Reading an empty queue lets its
//! endpoints make progress first, but for the read that follows one with entries.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::ssize_t;

use crate::abi::attributes::{
    FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_UNSPEC, FI_WAIT_FD,
    FI_WAIT_NONE, fi_cq_attr,
};
use crate::abi::operations::{fi_ops, fi_ops_cq};
use crate::abi::queues::{FI_EAVAIL, FI_ETRUNC, FI_GETWAIT, FI_GETWAITOBJ, fi_cq_err_entry, fi_cq_tagged_entry};
use crate::abi::{FI_CLASS_CQ, fi_addr_t, fid, fid_cq, fid_domain};
use crate::attached::AttachedEndpoints;
use crate::domain::{self, DomainState};
use crate::object::{Object, fid_of, waits_in_call};
use crate::progress::{PollingWait, note_found, note_nothing};
use crate::wait_fd::WaitFd;

/// Entries and failures that wait to be read, before sends and looks that would add one are refused.
const LIMIT: usize = 1 << 16;

/// What an operation has come to.
pub(crate) struct CqEntry {
    pub(crate) entry: fi_cq_tagged_entry,
    /// Who sent the message.
    pub(crate) source: fi_addr_t,
}

/// What an operation has failed of.
pub(crate) struct CqFailure(pub(crate) fi_cq_err_entry);

// SAFETY: the pointers are the application's, and only handed back to it.
unsafe impl Send for CqEntry {}
// SAFETY: the same.
unsafe impl Send for CqFailure {}

/// A queue, and the endpoints whose completions come in it.
pub(crate) struct CqState {
    domain: Arc<DomainState>,
    format: c_int,
    wait_object: c_int,
    descriptor: Option<WaitFd>,
    queued: Mutex<Queued>,
    /// How many entries and failures are queued: changed under the lock, and read without it.
    waiting: AtomicUsize,
    /// Somebody who waits is to return.
    is_signalled: AtomicBool,
    /// The last read has had entries.
    had_entries: AtomicBool,
    pub(crate) endpoints: AttachedEndpoints,
}

#[derive(Default)]
struct Queued {
    entries: VecDeque<CqEntry>,
    failures: VecDeque<CqFailure>,
}

impl Queued {
    fn len(&self) -> usize {
        self.entries.len() + self.failures.len()
    }
}

type FiQueue = Object<fid_cq, CqState>;

static OPS: fi_ops = fi_ops { close, bind, control, ..fi_ops::MISSING };
static QUEUE_OPS: fi_ops_cq =
    fi_ops_cq { read, readfrom, readerr, sread, sreadfrom, signal, strerror, ..fi_ops_cq::MISSING };

impl CqState {
    /// An operation has ended well.
    pub(crate) fn push(&self, entry: CqEntry) {
        self.queue(|queued| queued.entries.push_back(entry));
    }

    /// An operation has failed.
    pub(crate) fn fail(&self, failure: CqFailure) {
        self.queue(|queued| queued.failures.push_back(failure));
    }

    /// Whether the application must read before it sends.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) >= LIMIT
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Whether somebody may sleep on the queue's descriptor, so that a thread must make progress.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.descriptor.is_some()
    }

    /// Queues something, and wakes who sleeps on the descriptor.
    fn queue(&self, add: impl FnOnce(&mut Queued)) {
        let mut queued = self.queued();
        add(&mut queued);
        self.waiting.store(queued.len(), Ordering::Release);
        // Under the lock: who takes the entry clears it behind this.
        if let Some(descriptor) = &self.descriptor {
            descriptor.signal();
        }
    }

    /// Something was taken. The descriptor is readable as long as there is something to read.
    fn note_taken(&self, queued: &Queued) {
        self.waiting.store(queued.len(), Ordering::Release);
        if let Some(descriptor) = self.descriptor.as_ref().filter(|_| queued.len() == 0) {
            descriptor.clear();
        }
    }

    /// Takes the next failure.
    fn take_failure(&self) -> Option<CqFailure> {
        let mut queued = self.queued();
        let failure = queued.failures.pop_front()?;
        self.note_taken(&queued);
        Some(failure)
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves at most `count` entries to `to`, in the queue's format; `-FI_EAVAIL` where a failure is next.
    ///
    /// # Safety
    /// There is room for so many entries at `to`, and for as many sources, unless that is null.
    unsafe fn take(&self, to: *mut c_void, count: usize, sources: *mut fi_addr_t) -> ssize_t {
        if self.is_empty() {
            return -(libc::EAGAIN as ssize_t);
        }
        let mut queued = self.queued();
        // Who does not look at failures gets nothing else, says fi_cq(3).
        if !queued.failures.is_empty() {
            return -(FI_EAVAIL as ssize_t);
        }
        let taken = queued.entries.len().min(count);
        let size = size_of_format(self.format);
        for (at, CqEntry { entry, source }) in queued.entries.drain(..taken).enumerate() {
            // SAFETY: the shorter formats are the first fields of the longest one; there is room, says the caller.
            unsafe {
                std::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), to.cast::<u8>().add(at * size), size);
                if !sources.is_null() {
                    *sources.add(at) = source;
                }
            }
        }
        self.note_taken(&queued);
        if taken == 0 { -(libc::EAGAIN as ssize_t) } else { taken.cast_signed() }
    }

    /// Reads; makes progress where there is nothing to read.
    ///
    /// MPI libraries read until there is nothing, and only then go on with what they have got. So the read after one that had entries
    /// does not look at the port, which may be a system call; the next one does, as do reads of no entry, which want progress alone.
    /// Two threads that read at once may look once more, or less.
    ///
    /// # Safety
    /// As for [`CqState::take`].
    unsafe fn read(&self, to: *mut c_void, count: usize, sources: *mut fi_addr_t) -> ssize_t {
        // SAFETY: the caller says so.
        let mut read = unsafe { self.take(to, count, sources) };
        if read != -(libc::EAGAIN as ssize_t) {
            note_found();
        } else if count == 0 || !self.had_entries.load(Ordering::Relaxed) {
            if self.endpoints.progress(&self.domain.endpoints) {
                note_found();
            } else {
                note_nothing(std::ptr::from_ref(self).addr());
            }
            // SAFETY: the caller says so.
            read = unsafe { self.take(to, count, sources) };
        }
        self.had_entries.store(read > 0, Ordering::Relaxed);
        read
    }

    /// Reads, or waits so many milliseconds for something to read.
    ///
    /// # Safety
    /// As for [`CqState::take`].
    unsafe fn wait(&self, to: *mut c_void, count: usize, sources: *mut fi_addr_t, timeout_ms: c_int) -> ssize_t {
        let mut patience = PollingWait::of_milliseconds(timeout_ms);
        loop {
            // SAFETY: the caller says so.
            let read = unsafe { self.take(to, count, sources) };
            if read != -(libc::EAGAIN as ssize_t) {
                return read;
            }
            let happened = self.endpoints.progress(&self.domain.endpoints);
            if self.is_signalled.swap(false, Ordering::AcqRel) || !patience.wait(happened) {
                return read;
            }
        }
    }
}

fn size_of_format(format: c_int) -> usize {
    match format {
        FI_CQ_FORMAT_CONTEXT => 8,
        FI_CQ_FORMAT_MSG => 24,
        FI_CQ_FORMAT_DATA => 40,
        _ => size_of::<fi_cq_tagged_entry>(),
    }
}

/// `fi_cq_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_cq_attr,
    queue: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the attributes are valid where they are there.
    let attributes = unsafe { attributes.as_ref() };
    let (format, wait_object) = attributes.map_or((0, FI_WAIT_NONE), |it| (it.format, it.wait_obj));
    let format = if format == FI_CQ_FORMAT_UNSPEC { FI_CQ_FORMAT_CONTEXT } else { format };
    let descriptor = match wait_object {
        _ if waits_in_call(wait_object) => None,
        FI_WAIT_FD => match WaitFd::open() {
            Ok(descriptor) => Some(descriptor),
            Err(number) => return -number,
        },
        _ => return -libc::ENOSYS,
    };
    if !(FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED).contains(&format) {
        return -libc::ENOSYS;
    }
    // SAFETY: the domain is ours, and libfabric wants the answer there.
    unsafe {
        let state = CqState {
            domain: domain::state(domain),
            format,
            wait_object,
            descriptor,
            queued: Mutex::default(),
            waiting: AtomicUsize::new(0),
            is_signalled: AtomicBool::new(false),
            had_entries: AtomicBool::new(false),
            endpoints: AttachedEndpoints::default(),
        };
        let base = fid_of(FI_CLASS_CQ, context, &OPS);
        *queue = FiQueue::open(fid_cq { fid: base, ops: &raw const QUEUE_OPS }, Arc::new(state));
    }
    0
}

/// The state of an open queue.
///
/// # Safety
/// It is one of ours.
pub(crate) unsafe fn state(queue: *mut fid_cq) -> Arc<CqState> {
    // SAFETY: the caller says so.
    unsafe { FiQueue::state(queue) }.clone()
}

/// Whether there is something to read, of an object that is a queue.
///
/// # Safety
/// It is an open object of ours.
pub(crate) unsafe fn has_news(object: *mut fid) -> bool {
    let Some(queue) = crate::abi::of_class::<fid_cq>(object, FI_CLASS_CQ) else { return false };
    // SAFETY: it is a queue of ours.
    let state = unsafe { FiQueue::state(queue) };
    state.endpoints.progress(&state.domain.endpoints);
    !state.is_empty()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe { FiQueue::close(fid) }
}

unsafe extern "C" fn bind(_fid: *mut fid, _to: *mut fid, _flags: u64) -> c_int {
    0
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: it is a queue of ours; the argument is what the command asks for.
    unsafe {
        let state = FiQueue::state(fid.cast());
        match (command, &state.descriptor) {
            (FI_GETWAIT, Some(descriptor)) => *argument.cast() = descriptor.number(),
            (FI_GETWAITOBJ, _) => *argument.cast() = state.wait_object,
            _ => return -libc::ENOSYS,
        }
    }
    0
}

unsafe extern "C" fn read(queue: *mut fid_cq, to: *mut c_void, count: usize) -> ssize_t {
    // SAFETY: the queue is ours, and there is room for so many entries.
    unsafe { FiQueue::state(queue).read(to, count, null_mut()) }
}

unsafe extern "C" fn readfrom(queue: *mut fid_cq, to: *mut c_void, count: usize, sources: *mut fi_addr_t) -> ssize_t {
    // SAFETY: the queue is ours, and there is room for so many entries and sources.
    unsafe { FiQueue::state(queue).read(to, count, sources) }
}

unsafe extern "C" fn sread(
    queue: *mut fid_cq,
    to: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> ssize_t {
    // SAFETY: the queue is ours, and there is room for so many entries.
    unsafe { FiQueue::state(queue).wait(to, count, null_mut(), timeout_ms) }
}

unsafe extern "C" fn sreadfrom(
    queue: *mut fid_cq,
    to: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> ssize_t {
    // SAFETY: the queue is ours, and there is room for so many entries and sources.
    unsafe { FiQueue::state(queue).wait(to, count, sources, timeout_ms) }
}

/// `fi_cq_readerr`. The space for a longer reason is left as it is: there is none.
unsafe extern "C" fn readerr(queue: *mut fid_cq, to: *mut fi_cq_err_entry, _flags: u64) -> ssize_t {
    // SAFETY: the queue is ours.
    let next = unsafe { FiQueue::state(queue) }.take_failure();
    let Some(CqFailure(failure)) = next else { return -(libc::EAGAIN as ssize_t) };
    // SAFETY: there is room for an entry; those of versions before 1.5 ended before the last two fields.
    unsafe {
        let kept = ((*to).err_data, (*to).err_data_size);
        *to = failure;
        ((*to).err_data, (*to).err_data_size) = (kept.0, 0);
    }
    1
}

/// `fi_cq_signal`: who waits for the queue returns, with nothing to read.
unsafe extern "C" fn signal(queue: *mut fid_cq) -> c_int {
    // SAFETY: the queue is ours.
    unsafe { FiQueue::state(queue) }.is_signalled.store(true, Ordering::Release);
    0
}

/// `fi_cq_strerror`: provider errors are those of the system, and one of libfabric's.
unsafe extern "C" fn strerror(
    _queue: *mut fid_cq,
    number: c_int,
    _data: *const c_void,
    text: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: strerror returns a string; the application has room for `len` bytes where it hands in a buffer.
    unsafe {
        let message = if number == FI_ETRUNC { c"Truncation error".as_ptr() } else { libc::strerror(number) };
        if !text.is_null() && len > 0 {
            let bytes = CStr::from_ptr(message).to_bytes();
            let copied = bytes.len().min(len - 1);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), text.cast(), copied);
            *text.add(copied) = 0;
        }
        message
    }
}
