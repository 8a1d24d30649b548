//! The calls of libfabric's by which atomic operations begin, and those that ask which there are.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use libc::ssize_t;

use super::{AtomicCall, NumberPieces, RemoteNumbers, Variant, limit_beside};
use crate::abi::atomic::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC, fi_atomic_attr, fi_ioc, fi_msg_atomic};
use crate::abi::operations::fi_ops_atomic;
use crate::abi::queues::FI_EBADFLAGS;
use crate::abi::{fi_addr_t, fid_domain, fid_ep};
use crate::object::{Errno, answer};
use crate::transmit::How;
use crate::{domain, endpoint};

pub(crate) static ATOMIC_OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// Begins an operation; see the functions below.
///
/// # Safety
/// The endpoint is ours and open.
unsafe fn begin(endpoint: *mut fid_ep, call: &Result<AtomicCall, Errno>, how: How) -> ssize_t {
    // SAFETY: the caller says so.
    let state = unsafe { endpoint::state(endpoint) };
    let flags = how.flags(state.options.transmit_flags);
    let is_silent = matches!(how, How::Inject);
    answer(match call {
        Ok(call) => state.post(flags, |active| active.begin_atomic(call, flags, is_silent)),
        Err(why) => Err(*why),
    })
}

/// Numbers as they are handed in: where they begin, and how many there are.
type NumberSlice = (*const c_void, usize);

/// One piece of each kind.
fn of_one(
    variant: Variant,
    (datatype, op): (c_int, c_int),
    [operands, compares, results]: [NumberSlice; 3],
    (peer, addr, key): (fi_addr_t, u64, u64),
    context: *mut c_void,
) -> AtomicCall {
    let [operands, compares, results] = [operands, compares, results].map(|(at, count)| NumberPieces::one(at, count));
    let at = RemoteNumbers::one(addr, operands.pieces[0].count, key);
    AtomicCall { variant, datatype, op, operands, compares, results, peer, at, context }
}

/// Pieces as they are handed in: where they stand, and how many there are.
type IocSlice = (*const fi_ioc, usize);

/// No pieces.
const NOTHING: IocSlice = (null(), 0);

/// # Safety
/// So many pieces of each kind are there.
unsafe fn of_pieces(
    variant: Variant,
    (datatype, op): (c_int, c_int),
    pieces: [IocSlice; 3],
    (peer, addr, key): (fi_addr_t, u64, u64),
    context: *mut c_void,
) -> Result<AtomicCall, Errno> {
    // SAFETY: the caller says so.
    let [operands, compares, results] = pieces.map(|(pieces, count)| unsafe { NumberPieces::many(pieces, count) });
    let (operands, compares, results) = (operands?, compares?, results?);
    let counted = if variant == Variant::Write { &operands } else { &results };
    let count = counted.as_slice().iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.count));
    let at = RemoteNumbers::one(addr, count, key);
    Ok(AtomicCall { variant, datatype, op, operands, compares, results, peer, at, context })
}

/// # Safety
/// The message and what it points to are there, and so are the other pieces.
unsafe fn of_message(
    variant: Variant,
    message: *const fi_msg_atomic,
    compares: IocSlice,
    results: IocSlice,
) -> Result<AtomicCall, Errno> {
    // SAFETY: the caller says so.
    unsafe {
        let it = &*message;
        let pieces = [(it.msg_iov, it.iov_count), compares, results];
        let call = of_pieces(variant, (it.datatype, it.op), pieces, (it.addr, 0, 0), it.context)?;
        Ok(AtomicCall { at: RemoteNumbers::many(it.rma_iov, it.rma_iov_count)?, ..call })
    }
}

unsafe extern "C" fn write(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let numbers = [(operands, count), (null(), 0), (null(), 0)];
        begin(endpoint, &Ok(of_one(Variant::Write, (datatype, op), numbers, (peer, addr, key), context)), How::Default)
    }
}

unsafe extern "C" fn writev(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let pieces = [(operands.cast(), count), NOTHING, NOTHING];
        begin(endpoint, &of_pieces(Variant::Write, (datatype, op), pieces, (peer, addr, key), context), How::Default)
    }
}

unsafe extern "C" fn writemsg(endpoint: *mut fid_ep, message: *const c_void, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe { begin(endpoint, &of_message(Variant::Write, message.cast(), NOTHING, NOTHING), How::Flags(flags)) }
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let numbers = [(operands, count), (null(), 0), (null(), 0)];
        begin(
            endpoint,
            &Ok(of_one(Variant::Write, (datatype, op), numbers, (peer, addr, key), null_mut())),
            How::Inject,
        )
    }
}

unsafe extern "C" fn readwrite(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    result: *mut c_void,
    _result_descriptor: *mut c_void,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let numbers = [(operands, count), (null(), 0), (result.cast_const(), count)];
        begin(endpoint, &Ok(of_one(Variant::Fetch, (datatype, op), numbers, (peer, addr, key), context)), How::Default)
    }
}

unsafe extern "C" fn readwritev(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    _descriptors: *mut *mut c_void,
    count: usize,
    results: *mut c_void,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let pieces = [(operands.cast(), count), NOTHING, (results.cast_const().cast(), result_count)];
        begin(endpoint, &of_pieces(Variant::Fetch, (datatype, op), pieces, (peer, addr, key), context), How::Default)
    }
}

unsafe extern "C" fn readwritemsg(
    endpoint: *mut fid_ep,
    message: *const c_void,
    results: *mut c_void,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let results = (results.cast_const().cast(), result_count);
        begin(endpoint, &of_message(Variant::Fetch, message.cast(), NOTHING, results), How::Flags(flags))
    }
}

unsafe extern "C" fn compwrite(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    compare: *const c_void,
    _compare_descriptor: *mut c_void,
    result: *mut c_void,
    _result_descriptor: *mut c_void,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let numbers = [(operands, count), (compare, count), (result.cast_const(), count)];
        begin(
            endpoint,
            &Ok(of_one(Variant::Compare, (datatype, op), numbers, (peer, addr, key), context)),
            How::Default,
        )
    }
}

unsafe extern "C" fn compwritev(
    endpoint: *mut fid_ep,
    operands: *const c_void,
    _descriptors: *mut *mut c_void,
    count: usize,
    compares: *const c_void,
    _compare_descriptors: *mut *mut c_void,
    compare_count: usize,
    results: *mut c_void,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let results = (results.cast_const().cast(), result_count);
        let pieces = [(operands.cast(), count), (compares.cast(), compare_count), results];
        begin(endpoint, &of_pieces(Variant::Compare, (datatype, op), pieces, (peer, addr, key), context), How::Default)
    }
}

unsafe extern "C" fn compwritemsg(
    endpoint: *mut fid_ep,
    message: *const c_void,
    compares: *const c_void,
    _compare_descriptors: *mut *mut c_void,
    compare_count: usize,
    results: *mut c_void,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and what it points to is there.
    unsafe {
        let compares = (compares.cast(), compare_count);
        let results = (results.cast_const().cast(), result_count);
        begin(endpoint, &of_message(Variant::Compare, message.cast(), compares, results), How::Flags(flags))
    }
}

unsafe extern "C" fn writevalid(endpoint: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { answer_valid(endpoint, Variant::Write, (datatype, op), count) }
}

unsafe extern "C" fn readwritevalid(endpoint: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { answer_valid(endpoint, Variant::Fetch, (datatype, op), count) }
}

unsafe extern "C" fn compwritevalid(endpoint: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { answer_valid(endpoint, Variant::Compare, (datatype, op), count) }
}

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query(
    domain: *mut fid_domain,
    datatype: c_int,
    op: c_int,
    attributes: *mut c_void,
    flags: u64,
) -> c_int {
    let variant = match flags {
        0 => Variant::Write,
        FI_FETCH_ATOMIC => Variant::Fetch,
        FI_COMPARE_ATOMIC => Variant::Compare,
        _ => return -FI_EBADFLAGS,
    };
    let Some(arithmetic) = variant.arithmetic(datatype, op) else { return -libc::EOPNOTSUPP };
    let attributes = attributes.cast::<fi_atomic_attr>();
    if attributes.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the domain is ours, and there is room for the answer.
    unsafe {
        let limit = limit_beside(domain::state(domain).config.max_active());
        *attributes = fi_atomic_attr { count: limit / arithmetic.size(), size: arithmetic.size() };
    }
    0
}

/// # Safety
/// The endpoint is ours and open, and there is room for a count unless the pointer is null.
unsafe fn answer_valid(
    endpoint: *mut fid_ep,
    variant: Variant,
    (datatype, op): (c_int, c_int),
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller says so.
    let valid = unsafe { endpoint::state(endpoint) }.with(|active| active.valid(variant, datatype, op));
    match valid {
        Ok(valid) => {
            // SAFETY: the caller says so.
            if let Some(count) = unsafe { count.as_mut() } {
                *count = valid;
            }
            0
        }
        Err(Errno(number)) => -number,
    }
}
