//! The endpoint: a worker of the messaging core, once it is enabled, and what it is bound to.

use std::ffi::{c_int, c_void};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use libc::ssize_t;
use roci_msgcore::{ClaimedMessage, PeerId, Request, Worker};
use slab::Slab;

use crate::abi::attributes::fi_info;
use crate::abi::flags::{FI_COMPLETION, FI_DIRECTED_RECV, FI_MORE, FI_RECV, FI_SELECTIVE_COMPLETION, FI_SEND};
use crate::abi::operations::{fi_ops, fi_ops_cm, fi_ops_collective, fi_ops_ep};
use crate::abi::queues::{FI_ENABLE, FI_ENOAV, FI_ENOCQ, FI_EOPBADSTATE, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV};
use crate::abi::{
    FI_CLASS_AV, FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EP, FI_CLASS_EQ, fi_addr_t, fid, fid_domain, fid_ep, of_class,
};
use crate::atomic::{self, Atomics};
use crate::counter::{self, CntrState};
use crate::domain::{self, DomainState};
use crate::info::QUEUE_SIZE;
use crate::linger;
use crate::object::{Errno, Object, answer, answer_int, fid_of, try_lock};
use crate::progress_thread::{self, ProgressThread, Stead};
use crate::queue::{self, CqState};
use crate::remote_data::RemoteData;
use crate::rma::AccessParts;
use crate::vector::{self, AvState, copy_out};
use crate::{rma, transmit};

/// What a multi-receive leaves unused at least, unless the application says otherwise.
const MIN_MULTI_RECV: usize = 64;

/// An endpoint.
pub(crate) struct EndpointState {
    pub(crate) domain: Arc<DomainState>,
    /// What the application has asked for.
    pub(crate) options: Options,
    pub(crate) min_multi_recv: AtomicUsize,
    inner: Mutex<Inner>,
    /// The process that has opened it.
    process: u32,
    /// Makes progress while the application computes, or sleeps.
    server: Mutex<Option<ProgressThread>>,
}

/// What an application has asked for when it opened the endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) is_directed: bool,
    /// Flags of operations that have none of their own.
    pub(crate) transmit_flags: u64,
    pub(crate) receive_flags: u64,
}

/// What is behind the lock.
#[derive(Default)]
struct Inner {
    bindings: Bindings,
    /// There once it is enabled.
    active: Option<EnabledEndpoint>,
}

/// Where the outcomes of operations go.
#[derive(Clone, Default)]
pub(crate) struct Bindings {
    vector: Option<Arc<AvState>>,
    pub(crate) transmit: Option<BoundQueue>,
    pub(crate) receive: Option<BoundQueue>,
    pub(crate) counters: Vec<(Arc<CntrState>, u64)>,
}

/// A queue that is bound.
#[derive(Clone)]
pub(crate) struct BoundQueue {
    pub(crate) queue: Arc<CqState>,
    /// Only operations that ask for one have a completion.
    pub(crate) is_selective: bool,
}

/// An enabled endpoint.
pub(crate) struct EnabledEndpoint {
    pub(crate) worker: Worker,
    pub(crate) bindings: Bindings,
    pub(crate) peers: PeerNumbers,
    /// What is under way, under the number that the worker knows it by.
    pub(crate) operations: Slab<PendingOperation>,
    pub(crate) claimed: Slab<ClaimedMessage>,
    pub(crate) remote_data: RemoteData,
    pub(crate) atomics: Atomics,
    /// Calls that had made progress when it was looked for the last time whether the application makes any.
    progress_seen: u32,
}

/// An operation under way.
#[derive(Clone, Copy)]
pub(crate) struct PendingOperation {
    pub(crate) context: *mut c_void,
    pub(crate) buffer: *mut c_void,
    /// The flags of its completion.
    pub(crate) flags: u64,
    pub(crate) wants_entry: bool,
    /// It takes many messages.
    pub(crate) is_multi: bool,
    pub(crate) request: Option<Request>,
    /// Of an operation on a peer's memory.
    pub(crate) parts: AccessParts,
}

// SAFETY: the pointers are the application's, and only handed back to it.
unsafe impl Send for PendingOperation {}

/// Which peer has which number.
#[derive(Default)]
pub(crate) struct PeerNumbers {
    by_number: Vec<Option<PeerId>>,
    numbers: HashMap<PeerId, fi_addr_t>,
}

type FiEndpoint = Object<fid_ep, EndpointState>;

static OPS: fi_ops = fi_ops { close, bind, control, ..fi_ops::MISSING };
static ENDPOINT_OPS: fi_ops_ep = fi_ops_ep { cancel, getopt, setopt, rx_size_left, tx_size_left, ..fi_ops_ep::MISSING };
static NAME_OPS: fi_ops_cm = fi_ops_cm { getname, ..fi_ops_cm::MISSING };

static COLLECTIVE_OPS: fi_ops_collective = fi_ops_collective::MISSING;

impl EndpointState {
    /// Does something with the enabled endpoint. What it sends has left when the call returns: the application may compute next.
    #[inline]
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut EnabledEndpoint) -> Result<R, Errno>) -> Result<R, Errno> {
        self.post(0, action)
    }

    /// The same for an operation with these flags: with `FI_MORE` another one follows, and it may leave with that.
    #[inline]
    pub(crate) fn post<R>(
        &self,
        flags: u64,
        action: impl FnOnce(&mut EnabledEndpoint) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut inner = self.lock()?;
        let active = inner.active.as_mut().ok_or(Errno(FI_EOPBADSTATE))?;
        let outcome = action(active);
        if flags & FI_MORE == 0 {
            active.worker.ring_doorbell();
        }
        outcome
    }

    /// Lets the worker make progress, where no other thread has it; returns whether anything happened.
    pub(crate) fn progress(&self) -> bool {
        let Some(mut inner) = try_lock(&self.inner) else { return false };
        inner.active.as_mut().is_some_and(EnabledEndpoint::progress)
    }

    /// The same, where the application has made no progress since the last call of this, and something that was sent has not arrived.
    pub(crate) fn progress_instead(&self) -> Stead {
        let Some(mut inner) = try_lock(&self.inner) else { return Stead::Nothing };
        inner.active.as_mut().map_or(Stead::Nothing, EnabledEndpoint::progress_instead)
    }

    /// The addresses with these numbers were removed.
    pub(crate) fn forget(self: &Arc<Self>, numbers: &[fi_addr_t]) {
        // An endpoint that is not enabled has met no peer.
        let gone = self.with(|active| Ok(numbers.iter().filter_map(|&it| active.peers.remove(it)).collect::<Vec<_>>()));
        let Some(peers) = gone.ok().filter(|peers| !peers.is_empty()) else { return };
        linger::part(self, &peers);
        // An endpoint that was closed meanwhile knows none.
        let _ = self.with(|active| {
            // The application may have inserted one again.
            for peer in peers.into_iter().filter(|peer| !active.peers.numbers.contains_key(peer)) {
                // This end itself stays.
                let _ = active.worker.remove(peer);
            }
            Ok(())
        });
    }

    /// # Errors
    /// This is a forked child, and a thread that it has not was in here when it was forked: what is inside is never whole again.
    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Errno> {
        match try_lock(&self.inner) {
            Some(inner) => Ok(inner),
            None if self.process != process::id() => Err(Errno(FI_EOPBADSTATE)),
            None => Ok(self.inner.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Opens the worker.
    fn enable(self: &Arc<Self>) -> Result<(), Errno> {
        let mut inner = self.lock()?;
        if inner.active.is_some() {
            return Ok(());
        }
        let bindings = inner.bindings.clone();
        let vector = bindings.vector.clone().ok_or(Errno(FI_ENOAV))?;
        if bindings.transmit.is_none() && bindings.receive.is_none() && bindings.counters.is_empty() {
            return Err(Errno(FI_ENOCQ));
        }
        let mut worker = Worker::open_alone(&self.domain.config).map_err(|error| {
            domain::refuse(&error.to_string());
            Errno(libc::ENODEV)
        })?;
        let remote_data = RemoteData::open(&mut worker)?;
        let atomics = Atomics::open(&mut worker, self.domain.memory.targets.clone())?;
        let (operations, claimed) = (Slab::new(), Slab::new());
        let peers = PeerNumbers::default();
        let bound = bindings.clone();
        inner.active = Some(EnabledEndpoint {
            worker,
            bindings: bound,
            peers,
            operations,
            claimed,
            remote_data,
            atomics,
            progress_seen: 0,
        });
        drop(inner);
        self.domain.endpoints.attach(self);
        vector.attach(Arc::downgrade(self));
        let queues = [&bindings.transmit, &bindings.receive].map(|binding| binding.as_ref().map(|it| &it.queue));
        queues.iter().flatten().for_each(|queue| queue.endpoints.attach(self));
        bindings.counters.iter().for_each(|(counter, _)| counter.endpoints.attach(self));
        let is_slept_on = queues.iter().flatten().any(|queue| queue.has_descriptor());
        let mut begun = self.domain.memory.attach(self);
        if begun.is_ok() {
            begun = self.start_thread(self.domain.is_automatic || is_slept_on);
        }
        if begun.is_err() {
            self.domain.memory.detach(self);
            self.lock()?.active = None;
        } else {
            linger::note_enabled(self);
        }
        begun
    }

    fn start_thread(self: &Arc<Self>, serves: bool) -> Result<(), Errno> {
        let start = if serves { progress_thread::serve } else { progress_thread::watch_over };
        let thread = match start(Arc::downgrade(self)) {
            Ok(thread) => Some(thread),
            // Who makes progress by itself does without.
            Err(_) if !serves => None,
            Err(error) => return Err(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))),
        };
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = thread;
        Ok(())
    }

    fn bind(&self, to: *mut fid, flags: u64) -> Result<(), Errno> {
        let mut inner = self.lock()?;
        if inner.active.is_some() {
            return Err(Errno(FI_EOPBADSTATE));
        }
        // SAFETY: the application binds objects of this provider that are open.
        unsafe {
            if let Some(vector) = of_class(to, FI_CLASS_AV) {
                inner.bindings.vector = Some(vector::state(vector));
            } else if let Some(queue) = of_class(to, FI_CLASS_CQ) {
                let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
                let binding = BoundQueue { queue: queue::state(queue), is_selective };
                if flags & FI_SEND != 0 {
                    inner.bindings.transmit = Some(binding.clone());
                }
                if flags & FI_RECV != 0 {
                    inner.bindings.receive = Some(binding);
                }
            } else if let Some(counter) = of_class(to, FI_CLASS_CNTR) {
                inner.bindings.counters.push((counter::state(counter), flags));
            } else if of_class::<fid>(to, FI_CLASS_EQ).is_none() {
                return Err(Errno(libc::EINVAL));
            }
        }
        Ok(())
    }
}

impl EnabledEndpoint {
    /// As [`EndpointState::progress_instead`].
    fn progress_instead(&mut self) -> Stead {
        let is_away = self.worker.progress_calls() == self.progress_seen;
        let stead = if !is_away || self.has_sent_all() {
            Stead::Nothing
        } else if self.worker.progress() | self.progress() {
            Stead::Moved
        } else {
            Stead::Looked
        };
        self.progress_seen = self.worker.progress_calls();
        stead
    }

    /// Whether all that was sent has arrived. A long message is fetched from here, which takes this end's progress, too.
    fn has_sent_all(&self) -> bool {
        let mut operations = self.operations.iter();
        self.worker.is_flushed_to_all()
            && !self.remote_data.is_expected()
            && !operations.any(|(_, operation)| operation.flags & FI_SEND != 0)
    }

    /// Returns the peer that has a number in the address vector.
    #[inline]
    pub(crate) fn peer(&mut self, number: fi_addr_t) -> Result<PeerId, Errno> {
        match self.peers.by_number.get(number as usize) {
            Some(&Some(peer)) => Ok(peer),
            _ => self.meet(number),
        }
    }

    #[cold]
    fn meet(&mut self, number: fi_addr_t) -> Result<PeerId, Errno> {
        let vector = self.bindings.vector.as_ref().ok_or(Errno(FI_ENOAV))?;
        let address = vector.address(number).ok_or(Errno(libc::EINVAL))?;
        let peer = self.worker.insert(address).map_err(|_| Errno(libc::EADDRNOTAVAIL))?;
        self.peers.insert(number, peer);
        Ok(peer)
    }

    /// Returns the number of a peer, or that it has none.
    pub(crate) fn number_of(&mut self, peer: PeerId) -> fi_addr_t {
        if let Some(&number) = self.peers.numbers.get(&peer) {
            return number;
        }
        let address = self.worker.address_of(peer);
        let vector = self.bindings.vector.as_ref();
        let Some(number) = address.and_then(|address| vector?.number(address)) else {
            return crate::abi::FI_ADDR_NOTAVAIL;
        };
        // The application knows it: it is not one of those that came by themselves any more.
        let peer = address.and_then(|address| self.worker.insert(address).ok()).unwrap_or(peer);
        self.peers.insert(number, peer);
        number
    }

    /// Remembers an operation, and has its completion queued.
    pub(crate) fn begin(&mut self, operation: PendingOperation, request: Request) {
        let number = self.operations.insert(PendingOperation { request: Some(request), ..operation });
        self.follow(request, number);
    }

    /// Has a request of the core's end as a completion of an operation.
    pub(crate) fn follow(&mut self, request: Request, number: usize) {
        let queued = self.worker.queue_completion(request, number as u64);
        assert!(queued.is_ok(), "the request was made just now");
    }
}

impl PeerNumbers {
    fn insert(&mut self, number: fi_addr_t, peer: PeerId) {
        let at = number as usize;
        if self.by_number.len() <= at {
            self.by_number.resize(at + 1, None);
        }
        self.by_number[at] = Some(peer);
        self.numbers.insert(peer, number);
    }

    /// A number means no peer any more; returns the peer, if no other number means it.
    fn remove(&mut self, number: fi_addr_t) -> Option<PeerId> {
        let peer = self.by_number.get_mut(number as usize)?.take()?;
        // An address may have been inserted several times.
        let other = self.by_number.iter().position(|other| *other == Some(peer));
        match other {
            Some(other) => {
                self.numbers.insert(peer, other as fi_addr_t);
                None
            }
            None => self.numbers.remove(&peer).map(|_| peer),
        }
    }
}

impl BoundQueue {
    /// Whether an operation with these flags has a completion.
    pub(crate) fn wants_entry(&self, flags: u64) -> bool {
        !self.is_selective || flags & FI_COMPLETION != 0
    }
}

/// `fi_endpoint`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the domain is ours; the attributes are valid where they are there.
    unsafe {
        let Some(info) = info.as_ref() else { return -libc::EINVAL };
        let options = Options {
            is_directed: info.caps & FI_DIRECTED_RECV != 0,
            transmit_flags: info.tx_attr.as_ref().map_or(0, |it| it.op_flags),
            receive_flags: info.rx_attr.as_ref().map_or(0, |it| it.op_flags),
        };
        let state = EndpointState {
            domain: domain::state(domain),
            options,
            min_multi_recv: AtomicUsize::new(MIN_MULTI_RECV),
            inner: Mutex::default(),
            process: process::id(),
            server: Mutex::default(),
        };
        let base = fid_ep {
            fid: fid_of(FI_CLASS_EP, context, &OPS),
            ops: &raw const ENDPOINT_OPS,
            cm: &raw const NAME_OPS,
            msg: &raw const transmit::MESSAGE_OPS,
            rma: &raw const rma::RMA_OPS,
            tagged: &raw const transmit::TAGGED_OPS,
            atomic: &raw const atomic::calls::ATOMIC_OPS,
            collective: &raw const COLLECTIVE_OPS,
        };
        *endpoint = FiEndpoint::open(base, Arc::new(state));
    }
    0
}

/// The state of an open endpoint.
///
/// # Safety
/// It is one of ours, and is not closed while the answer is used.
#[inline]
pub(crate) unsafe fn state<'a>(endpoint: *mut fid_ep) -> &'a Arc<EndpointState> {
    // SAFETY: the caller says so.
    unsafe { FiEndpoint::state(endpoint) }
}

/// Closes the worker, once what was sent has arrived.
unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe {
        if FiEndpoint::is_inherited(fid) {
            return 0;
        }
        let state = FiEndpoint::state(fid.cast());
        drop(state.server.lock().unwrap_or_else(PoisonError::into_inner).take());
        linger::linger(state);
        state.domain.memory.detach(state);
        drop(state.lock().map(|mut inner| std::mem::take(&mut *inner)));
        drop(Box::from_raw(fid.cast::<FiEndpoint>()));
    }
    0
}

unsafe extern "C" fn bind(fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: the endpoint is ours.
    answer_int(unsafe { state(fid.cast()) }.bind(to, flags))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _argument: *mut c_void) -> c_int {
    if command != FI_ENABLE {
        return -libc::ENOSYS;
    }
    // SAFETY: the endpoint is ours.
    answer_int(unsafe { state(fid.cast()) }.enable())
}

/// `fi_getname`.
unsafe extern "C" fn getname(fid: *mut fid, to: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the endpoint is ours, and the application has so much room.
    unsafe {
        match state(fid.cast()).with(|active| Ok(active.worker.address())) {
            Ok(address) => copy_out(&address.to_bytes(), to, len),
            Err(Errno(number)) => -number,
        }
    }
}

/// `fi_cancel`: the operation ends with a failure in its queue, unless it has ended already.
unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> ssize_t {
    // SAFETY: the endpoint is ours.
    let state = unsafe { state(fid.cast()) };
    answer(state.with(|active| {
        let mut operations = active.operations.iter();
        let found = operations.find(|(_, operation)| operation.context == context);
        let request = found.and_then(|(_, operation)| operation.request).ok_or(Errno(libc::ENOENT))?;
        active.worker.cancel(request);
        Ok(())
    }))
}

unsafe extern "C" fn setopt(fid: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    if (level, name, len) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, size_of::<usize>()) {
        return -libc::ENOPROTOOPT;
    }
    // SAFETY: the endpoint is ours, and the value is a size.
    unsafe { state(fid.cast()).min_multi_recv.store(*value.cast(), Ordering::Relaxed) };
    0
}

unsafe extern "C" fn getopt(fid: *mut fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize) -> c_int {
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -libc::ENOPROTOOPT;
    }
    // SAFETY: the endpoint is ours, and there is room for a size.
    unsafe {
        let least = state(fid.cast()).min_multi_recv.load(Ordering::Relaxed);
        copy_out(&least.to_ne_bytes(), value, len)
    }
}

fn room(endpoint: &EndpointState) -> ssize_t {
    let left = endpoint.with(|active| Ok(QUEUE_SIZE.saturating_sub(active.operations.len())));
    left.map_or_else(|Errno(number)| -(number as ssize_t), usize::cast_signed)
}

unsafe extern "C" fn rx_size_left(endpoint: *mut fid_ep) -> ssize_t {
    // SAFETY: it is ours.
    room(unsafe { state(endpoint) })
}

unsafe extern "C" fn tx_size_left(endpoint: *mut fid_ep) -> ssize_t {
    // SAFETY: it is ours.
    room(unsafe { state(endpoint) })
}
