//! Registered memory: what peers reach by RMA, under its key.
//!
//! Memory that an endpoint sends from and receives into needs no registration. Memory that peers are to reach has a key, the
//! application's or, with `FI_MR_PROV_KEY`, one that is found here; its addresses begin at 0 or, with `FI_MR_VIRT_ADDR`, where the
//! memory lies. It belongs to the domain: each of its endpoints exposes it, be it enabled before or after.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use roci_msgcore::UserMemory;
use roci_msgcore::one_sided::{OneSided as _, RemoteAccess, Segment};

use crate::abi::flags::{FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE};
use crate::abi::memory::{FI_MR_BASIC, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, fi_mr_attr, fid_mr};
use crate::abi::operations::{fi_ops, fi_ops_mr};
use crate::abi::queues::{FI_EBADFLAGS, FI_ENABLE, FI_ENOKEY};
use crate::abi::{FI_CLASS_DOMAIN, FI_CLASS_EP, FI_CLASS_MR, fid, fid_ep, iovec, of_class};
use crate::atomic::target::AtomicTargets;
use crate::domain::{self, DomainState};
use crate::endpoint::{EnabledEndpoint, EndpointState};
use crate::object::{Errno, Object, answer_int, fid_of};

/// What memory may be registered for.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// How often an endpoint is looked at, at most, before memory is withdrawn; and looks in vain that are enough, which reach all its ports.
const LAST_LOOKS: usize = 256;
const IN_VAIN: usize = 16;

/// What a domain's memory has in common: who chooses keys, and where addresses begin.
#[derive(Clone, Copy)]
pub(crate) struct MemoryMode {
    has_provider_keys: bool,
    has_virtual_addresses: bool,
}

/// The memory of a domain that peers may reach, and the endpoints that expose it.
pub(crate) struct RegisteredMemory {
    mode: MemoryMode,
    /// The same for atomic operations.
    pub(crate) targets: Arc<AtomicTargets>,
    table: Mutex<DomainKeys>,
}

#[derive(Default)]
struct DomainKeys {
    by_key: HashMap<u64, Exposure>,
    endpoints: Vec<Weak<EndpointState>>,
    /// The last key that was found here.
    last: u64,
}

/// Memory, and the segments that endpoints know it by.
struct Exposure {
    memory: MemoryRange,
    segments: Vec<(Weak<EndpointState>, Segment)>,
}

/// Memory of the application's that is to be exposed.
#[derive(Clone, Copy)]
pub(crate) struct MemoryRange {
    start: NonNull<u8>,
    len: usize,
    key: u64,
    /// None where peers may not reach it at all.
    access: Option<RemoteAccess>,
}

// SAFETY: it is an address, which the application has registered for all threads.
unsafe impl Send for MemoryRange {}

/// Where peers reach memory, and what they may do to it.
pub(crate) struct ReachableMemory {
    base: u64,
    memory: MemoryRange,
}

/// Memory that is registered, as long as the application does not close it.
pub(crate) struct MrState {
    domain: Arc<DomainState>,
    key: u64,
}

type FiMemory = Object<fid_mr, MrState>;

static OPS: fi_ops = fi_ops { close, bind, control, ..fi_ops::MISSING };
pub(crate) static MEMORY_OPS: fi_ops_mr = fi_ops_mr { size: size_of::<fi_ops_mr>(), reg, regv, regattr };

impl MemoryMode {
    /// What a domain was opened with (`mr_mode`).
    pub(crate) const fn of(mr_mode: c_int) -> Self {
        Self {
            has_provider_keys: mr_mode & (FI_MR_PROV_KEY | FI_MR_BASIC) != 0,
            has_virtual_addresses: mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) != 0,
        }
    }

    /// The address of the first byte.
    fn base_of(self, memory: &MemoryRange) -> u64 {
        if self.has_virtual_addresses { memory.start.addr().get() as u64 } else { 0 }
    }
}

impl RegisteredMemory {
    pub(crate) fn new(mode: MemoryMode) -> Self {
        Self { mode, targets: Arc::default(), table: Mutex::default() }
    }

    /// An endpoint exposes what is registered, and what will be.
    ///
    /// # Errors
    /// It has no room for that: it is to be detached.
    pub(crate) fn attach(&self, endpoint: &Arc<EndpointState>) -> Result<(), Errno> {
        let mut table = self.table();
        table.endpoints.push(Arc::downgrade(endpoint));
        table.by_key.values_mut().try_for_each(|exposure| exposure.add(self.mode, endpoint))
    }

    /// An endpoint has no worker any more, nor what that exposed.
    pub(crate) fn detach(&self, endpoint: &Arc<EndpointState>) {
        self.table().forget(endpoint);
    }

    /// Registers memory; returns its key.
    fn insert(&self, memory: MemoryRange) -> Result<u64, Errno> {
        let mut table = self.table();
        let key = if self.mode.has_provider_keys { table.next_key() } else { memory.key };
        if table.by_key.contains_key(&key) {
            return Err(Errno(FI_ENOKEY));
        }
        table.endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        let mut exposure = Exposure { memory: MemoryRange { key, ..memory }, segments: Vec::new() };
        for endpoint in table.endpoints.iter().filter_map(Weak::upgrade) {
            if let Err(why) = exposure.add(self.mode, &endpoint) {
                exposure.withdraw();
                return Err(why);
            }
        }
        table.by_key.insert(key, exposure);
        self.targets.insert(key, ReachableMemory::of(self.mode, &memory));
        Ok(key)
    }

    /// Peers reach it no more.
    fn remove(&self, key: u64) {
        self.serve_arrived(key);
        self.targets.remove(key);
        if let Some(exposure) = self.table().by_key.remove(&key) {
            exposure.withdraw();
        }
    }

    /// Serves what peers have sent already. An adapter would have done so by itself. GASNet's ranks rely on it: they close memory when one
    /// of them ends, and do not wait for those of the others' writes that nothing depends on.
    fn serve_arrived(&self, key: u64) {
        let exposing =
            |exposure: &Exposure| exposure.segments.iter().filter_map(|(it, _)| it.upgrade()).collect::<Vec<_>>();
        let endpoints = self.table().by_key.get(&key).map(exposing);
        for endpoint in endpoints.into_iter().flatten() {
            let mut in_vain = 0;
            for _ in 0..LAST_LOOKS {
                // It waits for a thread that makes progress right now.
                let happened = endpoint.with(|active| Ok(active.progress())).unwrap_or(false);
                in_vain = if happened { 0 } else { in_vain + 1 };
                if in_vain == IN_VAIN {
                    break;
                }
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, DomainKeys> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DomainKeys {
    fn forget(&mut self, endpoint: &Arc<EndpointState>) {
        let is_other = |other: &Weak<EndpointState>| other.as_ptr() != Arc::as_ptr(endpoint);
        self.endpoints.retain(is_other);
        for exposure in self.by_key.values_mut() {
            exposure.segments.retain(|(other, _)| is_other(other));
        }
    }

    fn next_key(&mut self) -> u64 {
        while self.by_key.contains_key(&(self.last + 1)) {
            self.last += 1;
        }
        self.last += 1;
        self.last
    }
}

impl Exposure {
    fn add(&mut self, mode: MemoryMode, endpoint: &Arc<EndpointState>) -> Result<(), Errno> {
        if let Some(access) = self.memory.access {
            let segment = endpoint.with(|active| active.expose(mode, &self.memory, access))?;
            self.segments.push((Arc::downgrade(endpoint), segment));
        }
        Ok(())
    }

    fn withdraw(self) {
        for (endpoint, segment) in self.segments {
            if let Some(endpoint) = endpoint.upgrade() {
                // An endpoint that was closed has none any more.
                let _ = endpoint.with(|active| Ok(active.worker.withdraw(segment)?));
            }
        }
    }
}

impl EnabledEndpoint {
    fn expose(&mut self, mode: MemoryMode, memory: &MemoryRange, access: RemoteAccess) -> Result<Segment, Errno> {
        // SAFETY: the application keeps registered memory mapped, and accesses it as libfabric lets it: none of its references is Rust's.
        let bytes = unsafe { UserMemory::target(memory.start, memory.len) };
        let buffer = self.worker.adopt(bytes).map_err(|_| Errno(libc::EFAULT))?;
        self.worker.expose_as(memory.key, mode.base_of(memory), buffer, access).map_err(|refused| refused.why.into())
    }
}

impl ReachableMemory {
    fn of(mode: MemoryMode, memory: &MemoryRange) -> Self {
        Self { base: mode.base_of(memory), memory: *memory }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(bytes: &mut [u8]) -> Self {
        let (start, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        let memory = MemoryRange { start, len, key: 0, access: Some(RemoteAccess::ReadWrite) };
        Self { base: 0, memory }
    }

    /// Where so many bytes from an address on lie; none where peers may not do that to them.
    pub(crate) fn reach(&self, addr: u64, len: usize, writes: bool) -> Option<*mut u8> {
        let may = match self.memory.access? {
            RemoteAccess::ReadOnly => !writes,
            RemoteAccess::ReadWrite => true,
        };
        let offset = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.memory.len);
        (may && is_within).then(|| self.memory.start.as_ptr().wrapping_add(offset))
    }
}

impl MemoryRange {
    fn of(bytes: iovec, access: u64, key: u64) -> Result<Self, Errno> {
        let iovec { iov_base, iov_len: len } = bytes;
        let start = NonNull::new(iov_base.cast());
        if start.is_none() && len > 0 || access & !ACCESS != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let access = match access & (FI_REMOTE_READ | FI_REMOTE_WRITE) {
            0 => None,
            FI_REMOTE_READ => Some(RemoteAccess::ReadOnly),
            _ => Some(RemoteAccess::ReadWrite),
        };
        Ok(Self { start: start.unwrap_or(NonNull::dangling()), len, key, access })
    }
}

/// Registers memory; see the functions below.
///
/// # Safety
/// `owner` is an object of ours.
unsafe fn register(
    owner: *mut fid,
    piece: iovec,
    (access, offset, requested_key, flags): (u64, u64, u64, u64),
    context: *mut c_void,
) -> Result<*mut fid_mr, Errno> {
    let domain = of_class(owner, FI_CLASS_DOMAIN).ok_or(Errno(libc::EINVAL))?;
    // SAFETY: it is ours, says the caller.
    let domain = unsafe { domain::state(domain) };
    if flags != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    if offset != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let key = domain.memory.insert(MemoryRange::of(piece, access, requested_key)?)?;
    let base = fid_mr { fid: fid_of(FI_CLASS_MR, context, &OPS), mem_desc: null_mut(), key };
    Ok(FiMemory::open(base, Arc::new(MrState { domain, key })))
}

/// Hands out what was registered.
///
/// # Safety
/// There is room for a pointer.
unsafe fn hand_out(registered: Result<*mut fid_mr, Errno>, to: *mut *mut fid_mr) -> c_int {
    // SAFETY: the caller says so.
    answer_int(registered.map(|memory| unsafe { *to = memory }))
}

/// `fi_mr_reg`.
unsafe extern "C" fn reg(
    owner: *mut fid,
    start: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    memory: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let piece = iovec { iov_base: start.cast_mut(), iov_len: len };
    // SAFETY: libfabric calls it with a domain of ours, and wants the answer there.
    unsafe { hand_out(register(owner, piece, (access, offset, requested_key, flags), context), memory) }
}

/// `fi_mr_regv`.
unsafe extern "C" fn regv(
    owner: *mut fid,
    pieces: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    memory: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return -libc::EINVAL;
    }
    // SAFETY: libfabric calls it with a domain of ours and a piece, and wants the answer there.
    unsafe { hand_out(register(owner, *pieces, (access, offset, requested_key, flags), context), memory) }
}

/// `fi_mr_regattr`.
unsafe extern "C" fn regattr(
    owner: *mut fid,
    attributes: *const fi_mr_attr,
    flags: u64,
    memory: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: libfabric hands in attributes.
    let it = unsafe { &*attributes };
    // SAFETY: the pieces are there, and it calls with a domain of ours, and wants the answer there.
    unsafe { regv(owner, it.mr_iov, it.iov_count, it.access, it.offset, it.requested_key, flags, memory, it.context) }
}

/// Peers reach the memory no more when this returns.
unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe {
        if FiMemory::is_inherited(fid) {
            return 0;
        }
        let MrState { domain, key } = &**FiMemory::state(fid.cast());
        domain.memory.remove(*key);
        FiMemory::close(fid)
    }
}

/// Every endpoint of the domain exposes it, so nothing is to be done for one.
unsafe extern "C" fn bind(_fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    if flags == 0 && of_class::<fid_ep>(to, FI_CLASS_EP).is_some() { 0 } else { -libc::ENOSYS }
}

unsafe extern "C" fn control(_fid: *mut fid, command: c_int, _argument: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -libc::ENOSYS }
}
