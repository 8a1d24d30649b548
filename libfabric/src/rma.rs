//! RMA: reading and writing memory that peers have registered.
//!
//! An operation is as many of the core's as there are pairs of a piece here and a piece there; it ends when the last of them has: then
//! what was written is in the peer's memory, whatever level of completion was asked for.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::ssize_t;
use roci_msgcore::one_sided::{OneSided as _, RemoteAddress, SegmentKey};
use roci_msgcore::{Done, OpError, PeerId, Request};

use crate::abi::flags::{FI_FENCE, FI_INJECT, FI_READ, FI_RMA, FI_WRITE};
use crate::abi::memory::{fi_msg_rma, fi_rma_iov};
use crate::abi::operations::fi_ops_rma;
use crate::abi::{fi_addr_t, fid_ep, iovec};
use crate::completion::CompletedMessage;
use crate::endpoint::{self, EnabledEndpoint, PendingOperation};
use crate::errors::number_of;
use crate::info::{INJECT_SIZE, IOV_LIMIT, MAX_MESSAGE};
use crate::message::{IovPieces, copy_pieces};
use crate::object::{Errno, answer};
use crate::remote_data::RemoteDatum;
use crate::transmit::{How, data_of};

/// The longest of the core's operations, in bytes.
const PART_LIMIT: usize = 1 << 30;

pub(crate) static RMA_OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// An operation on a peer's memory.
#[derive(Clone, Copy)]
struct MemoryAccess {
    direction: AccessDirection,
    peer: fi_addr_t,
    pieces: IovPieces,
    at: RemotePieces,
    data: Option<u64>,
    context: *mut c_void,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AccessDirection {
    Read,
    Write,
}

/// Memory of the peer's, in pieces.
#[derive(Clone, Copy)]
struct RemotePieces {
    pieces: [fi_rma_iov; IOV_LIMIT],
    count: usize,
}

/// The operations of the core's that one of the application's is.
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessParts {
    /// So many have not ended.
    left: u32,
    /// Why one has failed; 0 where none has.
    error: c_int,
}

/// A piece here, and where it goes to or comes from.
type AccessPart = (iovec, RemoteAddress);

impl AccessDirection {
    const fn flag(self) -> u64 {
        match self {
            Self::Read => FI_READ,
            Self::Write => FI_WRITE,
        }
    }
}

impl RemotePieces {
    const NONE: fi_rma_iov = fi_rma_iov { addr: 0, len: 0, key: 0 };

    /// As long as the memory here.
    fn one(addr: u64, key: u64) -> Self {
        let mut pieces = [Self::NONE; IOV_LIMIT];
        pieces[0] = fi_rma_iov { addr, len: usize::MAX, key };
        Self { pieces, count: 1 }
    }

    /// # Errors
    /// There are too many.
    ///
    /// # Safety
    /// So many are there.
    unsafe fn many(pieces: *const fi_rma_iov, count: usize) -> Result<Self, Errno> {
        if count == 0 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller says so.
        let pieces = unsafe { copy_pieces([Self::NONE; IOV_LIMIT], pieces, count) }?;
        Ok(Self { pieces, count })
    }

    fn as_slice(&self) -> &[fi_rma_iov] {
        &self.pieces[..self.count]
    }

    /// Whether there are so many bytes.
    fn is_of(&self, len: usize) -> bool {
        let there = self.as_slice().iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.len));
        there == len || self.count == 1 && there == usize::MAX
    }
}

impl MemoryAccess {
    /// Parts of the core's that so many bytes are at most: each ends where a piece does, here or there, or where it is too long for one.
    fn most_parts(&self, len: usize) -> usize {
        self.pieces.as_slice().len() + self.at.count + len / PART_LIMIT
    }
}

/// Pairs each piece here with the memory there that it belongs to: what is one pair lies in one piece on both sides.
fn pair(
    here: &[iovec],
    there: &[fi_rma_iov],
    mut each: impl FnMut(AccessPart) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut there = there.iter().copied();
    let mut place = there.next().unwrap_or(RemotePieces::NONE);
    for piece in here {
        let mut done = 0;
        while done < piece.iov_len {
            while place.len == 0 {
                place = there.next().ok_or(Errno(libc::EINVAL))?;
            }
            let len = (piece.iov_len - done).min(place.len).min(PART_LIMIT);
            // Never beyond the piece, whose bytes are the application's.
            let start = piece.iov_base.cast::<u8>().wrapping_add(done).cast();
            let at = SegmentKey::requested(place.key).at(place.addr as usize);
            each((iovec { iov_base: start, iov_len: len }, at))?;
            done += len;
            place = fi_rma_iov { addr: place.addr.wrapping_add(len as u64), len: place.len - len, key: place.key };
        }
    }
    Ok(())
}

/// Reads or writes; see the functions below.
///
/// # Safety
/// The endpoint is ours and open.
#[inline]
unsafe fn access(endpoint: *mut fid_ep, access: Result<MemoryAccess, Errno>, how: How) -> ssize_t {
    // SAFETY: the caller says so.
    let state = unsafe { endpoint::state(endpoint) };
    let flags = how.flags(state.options.transmit_flags);
    answer(
        access.and_then(|access| state.post(flags, |active| active.access(&access, flags, matches!(how, How::Inject)))),
    )
}

impl EnabledEndpoint {
    fn access(&mut self, access: &MemoryAccess, flags: u64, is_silent: bool) -> Result<(), Errno> {
        let binding = self.bindings.transmit.as_ref();
        let wants_entry = !is_silent && binding.is_some_and(|binding| binding.wants_entry(flags));
        // A failure is an entry, too.
        if binding.is_some_and(|binding| binding.queue.is_full()) {
            return Err(Errno(libc::EAGAIN));
        }
        let is_copied = flags & FI_INJECT != 0 && access.direction == AccessDirection::Write;
        let len = access.pieces.check(if is_copied { INJECT_SIZE } else { MAX_MESSAGE })?;
        if !access.at.is_of(len) {
            return Err(Errno(libc::EINVAL));
        }
        let peer = self.peer(access.peer)?;
        // What has begun in part cannot be repeated.
        if self.worker.one_sided_room() < access.most_parts(len) {
            return Err(Errno(libc::EAGAIN));
        }
        if flags & FI_FENCE != 0 {
            self.worker.fence_to(peer)?;
        }
        let number = self.operations.insert(PendingOperation {
            context: access.context,
            buffer: null_mut(),
            flags: FI_RMA | access.direction.flag(),
            wants_entry,
            is_multi: false,
            request: None,
            parts: AccessParts::default(),
        });
        let begun =
            if is_copied { self.write_copy(peer, access, number) } else { self.begin_parts(peer, access, number) };
        self.settle_begun(number, begun)?;
        if let Some(data) = access.data {
            self.remote_data.expect(number, peer, RemoteDatum { data, len: len as u64 });
        }
        Ok(())
    }

    /// All parts of an operation have begun, or could not. It is forgotten where none has.
    pub(crate) fn settle_begun(&mut self, number: usize, begun: Result<(), Errno>) -> Result<(), Errno> {
        let parts = &mut self.operations[number].parts;
        match begun {
            // What has begun ends by itself, and then the whole does.
            Err(Errno(why)) if parts.left > 0 => parts.error = why,
            Err(why) => {
                self.operations.remove(number);
                return Err(why);
            }
            Ok(()) => {}
        }
        Ok(())
    }

    fn begin_parts(&mut self, peer: PeerId, access: &MemoryAccess, number: usize) -> Result<(), Errno> {
        let here = access.pieces;
        if here.as_slice().iter().all(|piece| piece.iov_len == 0) {
            let place = access.at.as_slice()[0];
            let at = SegmentKey::requested(place.key).at(place.addr as usize);
            return self.begin_part(peer, access.direction, (iovec { iov_base: null_mut(), iov_len: 0 }, at), number);
        }
        pair(here.as_slice(), access.at.as_slice(), |part| self.begin_part(peer, access.direction, part, number))
    }

    fn begin_part(
        &mut self,
        peer: PeerId,
        direction: AccessDirection,
        (piece, at): AccessPart,
        number: usize,
    ) -> Result<(), Errno> {
        let piece = IovPieces::one(piece.iov_base, piece.iov_len);
        let request = match direction {
            AccessDirection::Write => {
                let source = piece.source(&mut self.worker)?;
                self.worker.put(peer, source, at).map_err(|refused| refused.why)?
            }
            AccessDirection::Read => {
                let target = piece.target(&mut self.worker)?;
                self.worker.get(peer, target, at).map_err(|refused| refused.why)?
            }
        };
        self.add_part(request, number);
        Ok(())
    }

    /// Writes a copy of what lies here, which is short. There is memory for all of it before any of it begins.
    fn write_copy(&mut self, peer: PeerId, access: &MemoryAccess, number: usize) -> Result<(), Errno> {
        let mut bytes = [0; INJECT_SIZE];
        let mut rest = access.pieces.gather(&mut bytes);
        let mut copies = [const { None }; IOV_LIMIT];
        for (copy, place) in copies.iter_mut().zip(access.at.as_slice()) {
            let (part, behind) = rest.split_at(place.len.min(rest.len()));
            rest = behind;
            let memory = copy.insert(self.worker.buffer(part.len()).map_err(|_| Errno(libc::EAGAIN))?);
            memory.copy_from_slice(part);
        }
        for (copy, place) in copies.into_iter().flatten().zip(access.at.as_slice()) {
            let at = SegmentKey::requested(place.key).at(place.addr as usize);
            let request = self.worker.put(peer, copy, at).map_err(|refused| refused.why)?;
            self.add_part(request, number);
        }
        Ok(())
    }

    /// One more of the core's operations is a part of this one.
    pub(crate) fn add_part(&mut self, request: Request, number: usize) {
        self.operations[number].parts.left += 1;
        self.follow(request, number);
    }

    /// A part of an operation has ended, with an error number or 0; returns that of the whole, once it has ended.
    pub(crate) fn part_ended(&mut self, number: usize, error: c_int) -> Option<c_int> {
        let parts = &mut self.operations[number].parts;
        parts.left -= 1;
        if error != 0 {
            parts.error = error;
        }
        (parts.left == 0).then_some(parts.error)
    }

    /// A part of an operation has ended.
    pub(crate) fn complete_part(&mut self, number: usize, outcome: &Result<Done, OpError>) {
        let Some(error) = self.part_ended(number, outcome.as_ref().map_or_else(number_of, |_| 0)) else { return };
        match error {
            // The data goes to the peer behind the bytes, and the operation has ended then.
            0 if self.remote_data.is_due(number) => self.send_remote_data(),
            0 => {
                let operation = self.operations.remove(number);
                self.end(&operation, CompletedMessage::sent());
            }
            error => {
                self.remote_data.forget(number);
                let operation = self.operations.remove(number);
                self.fail(&operation, error);
            }
        }
    }
}

fn of_call(
    direction: AccessDirection,
    pieces: Result<IovPieces, Errno>,
    peer: fi_addr_t,
    (addr, key): (u64, u64),
    (data, context): (Option<u64>, *mut c_void),
) -> Result<MemoryAccess, Errno> {
    pieces.map(|pieces| MemoryAccess { direction, peer, pieces, at: RemotePieces::one(addr, key), data, context })
}

/// # Safety
/// The message and what it points to are there.
unsafe fn of_message(direction: AccessDirection, message: &fi_msg_rma, flags: u64) -> Result<MemoryAccess, Errno> {
    let pieces = IovPieces::many(message.msg_iov, message.iov_count)?;
    // SAFETY: so many are there, says the caller.
    let at = unsafe { RemotePieces::many(message.rma_iov, message.rma_iov_count) }?;
    let data = data_of(flags, message.data).filter(|_| direction == AccessDirection::Write);
    Ok(MemoryAccess { direction, peer: message.addr, pieces, at, data, context: message.context })
}

unsafe extern "C" fn read(
    endpoint: *mut fid_ep,
    start: *mut c_void,
    len: usize,
    _descriptor: *mut c_void,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let made = of_call(AccessDirection::Read, Ok(IovPieces::one(start, len)), from, (addr, key), (None, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Default) }
}

unsafe extern "C" fn readv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let made = of_call(AccessDirection::Read, IovPieces::many(pieces, count), from, (addr, key), (None, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Default) }
}

unsafe extern "C" fn readmsg(endpoint: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and a message.
    unsafe { access(endpoint, of_message(AccessDirection::Read, &*message, flags), How::Flags(flags)) }
}

unsafe extern "C" fn write(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let made = of_call(AccessDirection::Write, Ok(IovPieces::one(start, len)), to, (addr, key), (None, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Default) }
}

unsafe extern "C" fn writev(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let made = of_call(AccessDirection::Write, IovPieces::many(pieces, count), to, (addr, key), (None, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Default) }
}

unsafe extern "C" fn writemsg(endpoint: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and a message.
    unsafe { access(endpoint, of_message(AccessDirection::Write, &*message, flags), How::Flags(flags)) }
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> ssize_t {
    let made = of_call(AccessDirection::Write, Ok(IovPieces::one(start, len)), to, (addr, key), (None, null_mut()));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Inject) }
}

unsafe extern "C" fn writedata(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let made = of_call(AccessDirection::Write, Ok(IovPieces::one(start, len)), to, (addr, key), (Some(data), context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Default) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> ssize_t {
    let made =
        of_call(AccessDirection::Write, Ok(IovPieces::one(start, len)), to, (addr, key), (Some(data), null_mut()));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { access(endpoint, made, How::Inject) }
}
