//! The address vector: numbers for the addresses of peers. Numbers are dense, in vectors of either kind. An endpoint looks an address
//! up when it first needs it; its connection is made at the first message.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use roci_msgcore::EndpointAddress;

use crate::abi::attributes::{FI_AV_MAP, FI_AV_UNSPEC, fi_av_attr};
use crate::abi::flags::{FI_EVENT, FI_SYNC_ERR};
use crate::abi::operations::{fi_ops, fi_ops_av};
use crate::abi::queues::FI_ETOOSMALL;
use crate::abi::{FI_ADDR_NOTAVAIL, FI_CLASS_AV, fi_addr_t, fid, fid_av, fid_domain};
use crate::domain::{self, DomainState};
use crate::endpoint::EndpointState;
use crate::info::ADDRESS_LEN;
use crate::object::{Errno, Object, answer_int, fid_of};

/// The addresses of peers.
pub(crate) struct AvState {
    _domain: Arc<DomainState>,
    entries: Mutex<VectorEntries>,
}

#[derive(Default)]
struct VectorEntries {
    addresses: Vec<Option<EndpointAddress>>,
    by_address: HashMap<EndpointAddress, usize>,
    /// Numbers whose addresses were removed.
    free: BinaryHeap<Reverse<usize>>,
    endpoints: Vec<Weak<EndpointState>>,
}

type FiVector = Object<fid_av, AvState>;

static OPS: fi_ops = fi_ops { close, bind, ..fi_ops::MISSING };
static VECTOR_OPS: fi_ops_av = fi_ops_av { insert, remove, lookup, straddr, ..fi_ops_av::MISSING };

impl AvState {
    /// Returns the address that has a number.
    pub(crate) fn address(&self, number: fi_addr_t) -> Option<EndpointAddress> {
        let entries = self.entries();
        *entries.addresses.get(usize::try_from(number).ok()?)?
    }

    /// Returns the number of an address.
    pub(crate) fn number(&self, address: EndpointAddress) -> Option<fi_addr_t> {
        self.entries().by_address.get(&address).map(|&number| number as fi_addr_t)
    }

    /// An endpoint uses the vector from now on.
    pub(crate) fn attach(&self, endpoint: Weak<EndpointState>) {
        self.entries().endpoints.push(endpoint);
    }

    fn entries(&self) -> MutexGuard<'_, VectorEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes addresses out, up to the first number that has none, and has all endpoints forget them.
    fn remove(&self, numbers: &[fi_addr_t]) -> Result<(), Errno> {
        let mut entries = self.entries();
        let taken = numbers.iter().take_while(|&&number| entries.take(number)).count();
        let endpoints = entries.endpoints();
        drop(entries);
        for endpoint in endpoints {
            endpoint.forget(&numbers[..taken]);
        }
        // No other addresses get the numbers before.
        let free = numbers[..taken].iter().map(|&number| Reverse(number as usize));
        self.entries().free.extend(free);
        if taken == numbers.len() { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }
}

impl VectorEntries {
    /// Returns the number of an address, which is there from now on: the lowest that is free.
    fn insert(&mut self, address: EndpointAddress) -> usize {
        let number = self.free.pop().map_or(self.addresses.len(), |Reverse(number)| number);
        if number == self.addresses.len() {
            self.addresses.push(None);
        }
        self.addresses[number] = Some(address);
        self.by_address.entry(address).or_insert(number);
        number
    }

    /// Takes an address out; returns whether it was there.
    fn take(&mut self, number: fi_addr_t) -> bool {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(address) = self.addresses.get_mut(number).and_then(Option::take) else { return false };
        if self.by_address.get(&address) == Some(&number) {
            self.by_address.remove(&address);
            let other = self.addresses.iter().position(|other| *other == Some(address));
            self.by_address.extend(other.map(|other| (address, other)));
        }
        true
    }

    /// Returns the endpoints that may know an address.
    fn endpoints(&mut self) -> Vec<Arc<EndpointState>> {
        self.endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        self.endpoints.iter().filter_map(Weak::upgrade).collect()
    }
}

/// `fi_av_open`. Vectors that processes share are not offered.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_av_attr,
    vector: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the domain is ours, and the attributes are valid where they are there.
    unsafe {
        let attributes = attributes.as_mut();
        if attributes.as_ref().is_some_and(|it| !it.name.is_null() || it.flags & FI_EVENT != 0 || it.rx_ctx_bits > 0) {
            return -libc::EINVAL;
        }
        if let Some(attributes) = attributes
            && attributes.r#type == FI_AV_UNSPEC
        {
            attributes.r#type = FI_AV_MAP;
        }
        let state = AvState { _domain: domain::state(domain), entries: Mutex::default() };
        let base = fid_of(FI_CLASS_AV, context, &OPS);
        *vector = FiVector::open(fid_av { fid: base, ops: &raw const VECTOR_OPS }, Arc::new(state));
    }
    0
}

/// The state of an open vector.
///
/// # Safety
/// It is one of ours.
pub(crate) unsafe fn state(vector: *mut fid_av) -> Arc<AvState> {
    // SAFETY: the caller says so.
    unsafe { FiVector::state(vector) }.clone()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe { FiVector::close(fid) }
}

/// An event queue may be bound, and has nothing to say.
unsafe extern "C" fn bind(_fid: *mut fid, _to: *mut fid, _flags: u64) -> c_int {
    0
}

/// `fi_av_insert`: returns how many of the addresses are good.
unsafe extern "C" fn insert(
    vector: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the vector is ours.
    let state = unsafe { FiVector::state(vector) };
    if addresses.is_null() && count > 0 {
        return -libc::EINVAL;
    }
    let mut entries = state.entries();
    let mut good = 0;
    for at in 0..count {
        // SAFETY: so many addresses lie there, says the application, and there is room for as many numbers.
        let bytes = unsafe { std::slice::from_raw_parts(addresses.cast::<u8>().add(at * ADDRESS_LEN), ADDRESS_LEN) };
        let number = EndpointAddress::from_bytes(bytes).ok().map(|address| entries.insert(address));
        good += c_int::from(number.is_some());
        if !numbers.is_null() {
            // SAFETY: there is room for as many numbers as there are addresses.
            unsafe { *numbers.add(at) = number.map_or(FI_ADDR_NOTAVAIL, |number| number as fi_addr_t) };
        }
        if flags & FI_SYNC_ERR != 0 && !context.is_null() {
            // SAFETY: with this flag the context is room for as many error numbers.
            unsafe { *context.cast::<c_int>().add(at) = if number.is_some() { 0 } else { libc::EINVAL } };
        }
    }
    good
}

/// `fi_av_remove`: what has ended well for its sender arrives, and what is still under way with these peers fails.
unsafe extern "C" fn remove(vector: *mut fid_av, numbers: *mut fi_addr_t, count: usize, _flags: u64) -> c_int {
    if numbers.is_null() && count > 0 {
        return -libc::EINVAL;
    }
    if count == 0 {
        return 0;
    }
    // SAFETY: the vector is ours, and so many numbers are there.
    let (state, numbers) = unsafe { (FiVector::state(vector), std::slice::from_raw_parts(numbers, count)) };
    answer_int(state.remove(numbers))
}

/// Copies as much of `bytes` as there is room for, and says how much there is.
///
/// # Safety
/// `len` is valid, and so many bytes may be written at `to`.
pub(crate) unsafe fn copy_out(bytes: &[u8], to: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller says so.
    unsafe {
        let room = std::mem::replace(&mut *len, bytes.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len().min(room));
        if room < bytes.len() { -FI_ETOOSMALL } else { 0 }
    }
}

/// `fi_av_lookup`.
unsafe extern "C" fn lookup(vector: *mut fid_av, number: fi_addr_t, to: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the vector is ours.
    match unsafe { FiVector::state(vector) }.address(number) {
        Some(address) => {
            // SAFETY: the application has so much room there. What is cut off is no error, says fi_av(3).
            let _ = unsafe { copy_out(&address.to_bytes(), to, len) };
            0
        }
        None => -libc::EINVAL,
    }
}

/// `fi_av_straddr`.
unsafe extern "C" fn straddr(
    _vector: *mut fid_av,
    address: *const c_void,
    text: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    if address.is_null() {
        return null_mut();
    }
    // SAFETY: it is an address of ours, says the application.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), ADDRESS_LEN) };
    let Ok(address) = EndpointAddress::from_bytes(bytes) else { return null_mut() };
    let written = format!("fi_roci://{address}\0");
    // SAFETY: the application has so much room for a text. What is cut off has an end, too, as of snprintf.
    unsafe {
        let room = *len;
        copy_out(written.as_bytes(), text.cast(), len);
        if (1..written.len()).contains(&room) {
            *text.add(room - 1) = 0;
        }
    }
    text
}
