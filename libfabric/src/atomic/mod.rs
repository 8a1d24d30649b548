//! Atomic operations on memory that peers have registered, each an active message: see [`target`] for the other end.
//!
//! An operation ends when it has been executed, whatever level of completion was asked for.

mod arithmetic;
pub(crate) mod calls;
pub(crate) mod target;

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use hashbrown::HashMap;
use roci_msgcore::active::{ActiveMessages as _, HandlerId};
use roci_msgcore::{Done, OpError, PeerId, Worker};

use crate::abi::atomic::{fi_ioc, fi_rma_ioc};
use crate::abi::fi_addr_t;
use crate::abi::flags::{FI_ATOMIC, FI_FENCE, FI_READ, FI_WRITE};
use crate::abi::queues::FI_EBADFLAGS;
use crate::completion::CompletedMessage;
use crate::endpoint::{EnabledEndpoint, PendingOperation};
use crate::errors::number_of;
use crate::info::IOV_LIMIT;
use crate::message::copy_pieces;
use crate::object::Errno;
use crate::rma::AccessParts;
use arithmetic::Arithmetic;
use target::{AtomicTargets, PREFIX};

/// Bytes of the numbers that one operation changes at most: twice as many are one message of the core's, by default.
const LIMIT: usize = 2048;

/// Bytes of the numbers of one operation at most, where an active message has so many.
fn limit_beside(max_active: usize) -> usize {
    LIMIT.min(max_active.saturating_sub(PREFIX) / 2)
}

/// Atomic operations of an endpoint.
pub(crate) struct Atomics {
    handler: HandlerId,
    /// Where the answers to operations under way belong, in bytes.
    results: HashMap<usize, NumberPieces>,
}

/// What an operation returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// Nothing.
    Write,
    /// What was there.
    Fetch,
    /// What was there, and it compares first.
    Compare,
}

/// Numbers of the application's, in pieces.
#[derive(Clone, Copy)]
struct NumberPieces {
    pieces: [fi_ioc; IOV_LIMIT],
    count: usize,
}

// SAFETY: the addresses are the application's, which leaves the numbers alone until the operation has ended.
unsafe impl Send for NumberPieces {}

/// Numbers of the peer's, in pieces.
#[derive(Clone, Copy)]
struct RemoteNumbers {
    pieces: [fi_rma_ioc; IOV_LIMIT],
    count: usize,
}

/// An atomic operation.
#[derive(Clone, Copy)]
struct AtomicCall {
    variant: Variant,
    datatype: c_int,
    op: c_int,
    operands: NumberPieces,
    compares: NumberPieces,
    results: NumberPieces,
    peer: fi_addr_t,
    at: RemoteNumbers,
    context: *mut c_void,
}

impl Atomics {
    /// Has a worker execute what peers ask for.
    ///
    /// # Errors
    /// It takes no more handlers.
    pub(crate) fn open(worker: &mut Worker, targets: Arc<AtomicTargets>) -> Result<Self, Errno> {
        Ok(Self { handler: target::serve(worker, targets)?, results: HashMap::new() })
    }
}

impl Variant {
    /// What it does to numbers; none where that is not defined.
    fn arithmetic(self, datatype: c_int, op: c_int) -> Option<Arithmetic> {
        let it = Arithmetic::of(datatype, op, self == Self::Compare)?;
        (self != Self::Write || !it.only_reads()).then_some(it)
    }

    /// The flags of its completion.
    const fn flags(self) -> u64 {
        match self {
            Self::Write => FI_ATOMIC | FI_WRITE,
            Self::Fetch | Self::Compare => FI_ATOMIC | FI_READ,
        }
    }
}

impl NumberPieces {
    const NONE: Self = Self { pieces: [fi_ioc { addr: null_mut(), count: 0 }; IOV_LIMIT], count: 0 };

    fn one(addr: *const c_void, count: usize) -> Self {
        let mut it = Self::NONE;
        (it.pieces[0], it.count) = (fi_ioc { addr: addr.cast_mut(), count }, 1);
        it
    }

    /// # Errors
    /// There are too many.
    ///
    /// # Safety
    /// So many are there.
    unsafe fn many(pieces: *const fi_ioc, count: usize) -> Result<Self, Errno> {
        // SAFETY: the caller says so.
        let pieces = unsafe { copy_pieces(Self::NONE.pieces, pieces, count) }?;
        Ok(Self { pieces, count })
    }

    fn as_slice(&self) -> &[fi_ioc] {
        &self.pieces[..self.count]
    }

    /// # Errors
    /// They are not so many, or a piece lies nowhere.
    fn check(&self, count: usize) -> Result<(), Errno> {
        if self.as_slice().iter().any(|piece| piece.addr.is_null() && piece.count > 0) {
            return Err(Errno(libc::EFAULT));
        }
        let sum = self.as_slice().iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.count));
        if sum == Some(count) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Copies the numbers, which have so many bytes each.
    fn gather(&self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.as_slice().iter().filter(|piece| piece.count > 0) {
            // SAFETY: so many numbers are there, says the application, and it leaves them alone during the call.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.addr.cast(), piece.count * size) });
        }
        bytes
    }

    /// Copies bytes to where these lie, each of which is one, from a place on. What is beyond them is left out.
    fn scatter(&self, offset: usize, mut bytes: &[u8]) {
        let mut skip = offset;
        for piece in self.as_slice() {
            let begin = skip.min(piece.count);
            skip -= begin;
            let part;
            (part, bytes) = bytes.split_at(bytes.len().min(piece.count - begin));
            if let Some(to) = NonNull::new(piece.addr.cast::<u8>()) {
                // SAFETY: so many numbers are there, and they are the operation's until it has ended.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.as_ptr().add(begin), part.len()) };
            }
        }
    }
}

impl RemoteNumbers {
    const NONE: Self = Self { pieces: [fi_rma_ioc { addr: 0, count: 0, key: 0 }; IOV_LIMIT], count: 0 };

    fn one(addr: u64, count: usize, key: u64) -> Self {
        let mut it = Self::NONE;
        (it.pieces[0], it.count) = (fi_rma_ioc { addr, count, key }, 1);
        it
    }

    /// # Errors
    /// There are too many.
    ///
    /// # Safety
    /// So many are there.
    unsafe fn many(pieces: *const fi_rma_ioc, count: usize) -> Result<Self, Errno> {
        // SAFETY: the caller says so.
        let pieces = unsafe { copy_pieces(Self::NONE.pieces, pieces, count) }?;
        Ok(Self { pieces, count })
    }

    fn as_slice(&self) -> &[fi_rma_ioc] {
        &self.pieces[..self.count]
    }

    /// Returns how many numbers there are.
    fn total(&self) -> Option<usize> {
        self.as_slice().iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.count))
    }
}

impl AtomicCall {
    /// Returns what is to be done, to numbers of so many bytes at most.
    fn check(&self, limit: usize) -> Result<Arithmetic, Errno> {
        let arithmetic = self.variant.arithmetic(self.datatype, self.op).ok_or(Errno(libc::EOPNOTSUPP))?;
        let count = self.at.total().filter(|&count| count > 0).ok_or(Errno(libc::EINVAL))?;
        if count > limit / arithmetic.size() {
            return Err(Errno(libc::EMSGSIZE));
        }
        // Who only reads may hand in anything as operands.
        if !arithmetic.only_reads() {
            self.operands.check(count)?;
        }
        if self.variant == Variant::Compare {
            self.compares.check(count)?;
        }
        if self.variant != Variant::Write {
            self.results.check(count)?;
        }
        Ok(arithmetic)
    }
}

impl EnabledEndpoint {
    fn begin_atomic(&mut self, call: &AtomicCall, flags: u64, is_silent: bool) -> Result<(), Errno> {
        let binding = self.bindings.transmit.as_ref();
        let wants_entry = !is_silent && binding.is_some_and(|binding| binding.wants_entry(flags));
        // A failure is an entry, too.
        if binding.is_some_and(|binding| binding.queue.is_full()) {
            return Err(Errno(libc::EAGAIN));
        }
        // The core orders no active message behind other operations.
        if flags & FI_FENCE != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let arithmetic = call.check(self.atomic_limit())?;
        let peer = self.peer(call.peer)?;
        // What has begun in part cannot be repeated: it would be done twice.
        if self.worker.active_room(peer) < call.at.count {
            return Err(Errno(libc::EAGAIN));
        }
        let number = self.operations.insert(PendingOperation {
            context: call.context,
            buffer: null_mut(),
            flags: call.variant.flags(),
            wants_entry,
            is_multi: false,
            request: None,
            parts: AccessParts::default(),
        });
        if call.variant != Variant::Write {
            let size = arithmetic.size();
            let pieces = call.results.pieces.map(|piece| fi_ioc { count: piece.count * size, ..piece });
            self.atomics.results.insert(number, NumberPieces { pieces, ..call.results });
        }
        let begun = self.begin_atomic_parts(peer, call, arithmetic, number);
        let outcome = self.settle_begun(number, begun);
        if outcome.is_err() {
            self.atomics.results.remove(&number);
        }
        outcome
    }

    /// A message for each piece of the peer's.
    fn begin_atomic_parts(
        &mut self,
        peer: PeerId,
        call: &AtomicCall,
        arithmetic: Arithmetic,
        number: usize,
    ) -> Result<(), Errno> {
        let size = arithmetic.size();
        let operands = if arithmetic.only_reads() { Vec::new() } else { call.operands.gather(size) };
        let compares = if arithmetic.compares() { call.compares.gather(size) } else { Vec::new() };
        let mut offset = 0;
        for piece in call.at.as_slice().iter().filter(|piece| piece.count > 0) {
            let part = offset..offset + piece.count * size;
            let prefix = [offset as u32, piece.count as u32].map(u32::to_le_bytes);
            let parts = [prefix.as_flattened(), operands.get(part.clone()).unwrap_or(&[])];
            let payload = [parts[0], parts[1], compares.get(part.clone()).unwrap_or(&[])].concat();
            let arguments = [piece.key, piece.addr, arithmetic.to_wire()];
            let request = self.worker.request_active(peer, self.atomics.handler, &arguments, &payload)?;
            self.add_part(request, number);
            offset = part.end;
        }
        Ok(())
    }

    /// Bytes of the numbers of one operation at most.
    fn atomic_limit(&self) -> usize {
        limit_beside(self.worker.max_active())
    }

    /// A part of an operation was answered, or has failed.
    pub(crate) fn complete_atomic(&mut self, number: usize, outcome: &Result<Done, OpError>) {
        let error = match outcome {
            Ok(done) => self.take_answer(number, done),
            Err(error) => number_of(error),
        };
        let Some(error) = self.part_ended(number, error) else { return };
        self.atomics.results.remove(&number);
        let operation = self.operations.remove(number);
        match error {
            0 => self.end(&operation, CompletedMessage::sent()),
            error => self.fail(&operation, error),
        }
    }

    /// Puts what was there where it belongs; returns the error number that the peer says, or 0.
    fn take_answer(&self, number: usize, done: &Done) -> c_int {
        let Some(data) = done.data else { return libc::EIO };
        let (offset, error) = ((data >> 32) as usize, data as u32);
        if error == 0
            && let Some(results) = self.atomics.results.get(&number)
        {
            results.scatter(offset, &done.buffer[..done.len.min(done.buffer.len())]);
        }
        // An error number of another system's is an error, too.
        c_int::try_from(error).unwrap_or(libc::EIO)
    }

    /// How many numbers an operation may have.
    fn valid(&self, variant: Variant, datatype: c_int, op: c_int) -> Result<usize, Errno> {
        let arithmetic = variant.arithmetic(datatype, op).ok_or(Errno(libc::EOPNOTSUPP))?;
        Ok(self.atomic_limit() / arithmetic.size())
    }
}
