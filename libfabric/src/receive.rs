//! Receives: of one message, of many into one buffer, and of messages that were looked for first.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use libc::ssize_t;
use roci_msgcore::{Pattern, Source, Tag, TagMatch};

use crate::abi::flags::{FI_CLAIM, FI_DISCARD, FI_MULTI_RECV, FI_PEEK, FI_RECV};
use crate::abi::queues::{fi_msg, fi_msg_tagged};
use crate::abi::{FI_ADDR_UNSPEC, fi_addr_t, fi_context, fid_ep, iovec};
use crate::completion::CompletedMessage;
use crate::endpoint::{self, EnabledEndpoint, EndpointState, PendingOperation};
use crate::message::{IovPieces, Tagging};
use crate::object::{Errno, answer};
use crate::rma::AccessParts;

/// The longest memory that is received into, in bytes: that of one allocation.
const ROOM_LIMIT: usize = isize::MAX as usize;

/// A message that is waited for, or looked for.
#[derive(Clone, Copy)]
struct IncomingMessage {
    kind: Tagging,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    pieces: IovPieces,
    context: *mut c_void,
}

/// Receives; see the functions below.
///
/// # Safety
/// The endpoint is ours and open.
#[inline]
unsafe fn receive(endpoint: *mut fid_ep, message: Result<IncomingMessage, Errno>, flags: Option<u64>) -> ssize_t {
    // SAFETY: the caller says so.
    let state = unsafe { endpoint::state(endpoint) };
    let flags = flags.unwrap_or(state.options.receive_flags);
    answer(message.and_then(|message| state.with(|active| active.receive(state, message, flags))))
}

impl EnabledEndpoint {
    fn receive(&mut self, state: &EndpointState, message: IncomingMessage, flags: u64) -> Result<(), Errno> {
        let operation = PendingOperation {
            context: message.context,
            buffer: message.pieces.start(),
            flags: FI_RECV | message.kind.flag(),
            wants_entry: self.bindings.receive.as_ref().is_some_and(|binding| binding.wants_entry(flags)),
            is_multi: flags & FI_MULTI_RECV != 0,
            request: None,
            parts: AccessParts::default(),
        };
        if flags & (FI_PEEK | FI_CLAIM) == FI_CLAIM {
            return self.take_claimed(&message, PendingOperation { is_multi: false, ..operation }, flags);
        }
        let has_no_place = flags & FI_CLAIM != 0 && message.context.is_null();
        if has_no_place || flags & (FI_PEEK | FI_DISCARD) == FI_DISCARD {
            return Err(Errno(libc::EINVAL));
        }
        let pattern = self.pattern(state, &message)?;
        if flags & FI_PEEK != 0 {
            if self.bindings.receive.as_ref().is_some_and(|binding| binding.queue.is_full()) {
                return Err(Errno(libc::EAGAIN));
            }
            self.peek(pattern, operation, flags);
            return Ok(());
        }
        message.pieces.check(ROOM_LIMIT)?;
        let buffer = message.pieces.target(&mut self.worker)?;
        if flags & FI_MULTI_RECV != 0 {
            let least = state.min_multi_recv.load(Ordering::Relaxed);
            let number = self.operations.insert(operation);
            let begun = self.worker.recv_multi(pattern, buffer, least, number as u64);
            let request = begun.map_err(|refused| {
                self.operations.remove(number);
                refused.why
            })?;
            self.operations[number].request = Some(request);
            return Ok(());
        }
        let request = self.worker.recv_with(pattern, buffer).map_err(|refused| refused.why)?;
        self.begin(operation, request);
        Ok(())
    }

    fn pattern(&mut self, state: &EndpointState, message: &IncomingMessage) -> Result<Pattern, Errno> {
        let source = match message.from {
            FI_ADDR_UNSPEC => Source::Any,
            _ if !state.options.is_directed => Source::Any,
            from => Source::Peer(self.peer(from)?),
        };
        let tag = Tag::new(message.tag);
        let tag = match (message.kind, message.ignore) {
            (Tagging::Untagged, _) => TagMatch::Any,
            (Tagging::Tagged, 0) => TagMatch::Exact(tag),
            (Tagging::Tagged, ignore) => TagMatch::Masked { tag, ignore },
        };
        Ok(Pattern::new(source, tag).within(message.kind.context()))
    }

    /// Looks for a message that has come. With `FI_CLAIM` it is set aside for the receive with the same context, with `FI_DISCARD` it is
    /// thrown away.
    fn peek(&mut self, pattern: Pattern, operation: PendingOperation, flags: u64) {
        let takes = flags & (FI_CLAIM | FI_DISCARD) != 0;
        let claimed = if takes { self.worker.claim(pattern) } else { None };
        let envelope = match &claimed {
            Some(claimed) => Some(claimed.envelope()),
            None if takes => None,
            None => self.worker.probe(pattern),
        };
        // It asks for nothing but the completion.
        let operation = PendingOperation { buffer: null_mut(), wants_entry: true, ..operation };
        let Some(envelope) = envelope else { return self.fail(&operation, libc::ENOMSG) };
        if let Some(claimed) = claimed {
            if flags & FI_DISCARD != 0 {
                self.worker.discard(claimed);
            } else {
                let number = self.claimed.insert(claimed);
                // SAFETY: who claims hands in a context that is a `struct fi_context`, says fi_tagged(3).
                unsafe { (*operation.context.cast::<fi_context>()).internal[0] = (number + 1) as *mut c_void };
            }
        }
        let source = self.number_of(envelope.source);
        self.end(&operation, CompletedMessage::found(&envelope, source));
    }

    /// Receives, or throws away, the message that was claimed with this context.
    fn take_claimed(
        &mut self,
        message: &IncomingMessage,
        operation: PendingOperation,
        flags: u64,
    ) -> Result<(), Errno> {
        let context = message.context.cast::<fi_context>();
        // SAFETY: who claims hands in a context that is a `struct fi_context`, says fi_tagged(3).
        let number = unsafe { context.as_ref() }.map_or(0, |context| context.internal[0] as usize);
        let number = number.wrapping_sub(1);
        if !self.claimed.contains(number) {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: it was read from just now. It names no message any more.
        unsafe { (*context).internal[0] = null_mut() };
        if flags & FI_DISCARD != 0 {
            let claimed = self.claimed.remove(number);
            let envelope = claimed.envelope();
            self.worker.discard(claimed);
            let source = self.number_of(envelope.source);
            self.end(&operation, CompletedMessage::found(&envelope, source));
            return Ok(());
        }
        let buffer = match message.pieces.check(ROOM_LIMIT).and_then(|_| message.pieces.target(&mut self.worker)) {
            Ok(buffer) => buffer,
            Err(why) => {
                // SAFETY: it was read from above. The message stays claimed.
                unsafe { (*context).internal[0] = (number + 1) as *mut c_void };
                return Err(why);
            }
        };
        let claimed = self.claimed.remove(number);
        match self.worker.recv_message(claimed, buffer) {
            Ok(request) => self.begin(operation, request),
            Err(refused) => {
                let again = self.claimed.insert(refused.given.0);
                // SAFETY: it was read from above.
                unsafe { (*context).internal[0] = (again + 1) as *mut c_void };
                return Err(refused.why.into());
            }
        }
        Ok(())
    }
}

fn untagged(from: fi_addr_t, pieces: IovPieces, context: *mut c_void) -> IncomingMessage {
    IncomingMessage { kind: Tagging::Untagged, from, tag: 0, ignore: 0, pieces, context }
}

fn tagged(from: fi_addr_t, (tag, ignore): (u64, u64), pieces: IovPieces, context: *mut c_void) -> IncomingMessage {
    IncomingMessage { kind: Tagging::Tagged, from, tag, ignore, pieces, context }
}

pub(crate) unsafe extern "C" fn recv(
    endpoint: *mut fid_ep,
    start: *mut c_void,
    len: usize,
    _descriptor: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { receive(endpoint, Ok(untagged(from, IovPieces::one(start, len), context)), None) }
}

pub(crate) unsafe extern "C" fn recvv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let message = IovPieces::many(pieces, count).map(|pieces| untagged(from, pieces, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { receive(endpoint, message, None) }
}

pub(crate) unsafe extern "C" fn recvmsg(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and a message.
    unsafe {
        let it = &*message;
        let made = IovPieces::many(it.msg_iov, it.iov_count).map(|pieces| untagged(it.addr, pieces, it.context));
        receive(endpoint, made, Some(flags))
    }
}

pub(crate) unsafe extern "C" fn trecv(
    endpoint: *mut fid_ep,
    start: *mut c_void,
    len: usize,
    _descriptor: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { receive(endpoint, Ok(tagged(from, (tag, ignore), IovPieces::one(start, len), context)), None) }
}

pub(crate) unsafe extern "C" fn trecvv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> ssize_t {
    let message = IovPieces::many(pieces, count).map(|pieces| tagged(from, (tag, ignore), pieces, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { receive(endpoint, message, None) }
}

pub(crate) unsafe extern "C" fn trecvmsg(endpoint: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and a message.
    unsafe {
        let it = &*message;
        let made = IovPieces::many(it.msg_iov, it.iov_count)
            .map(|pieces| tagged(it.addr, (it.tag, it.ignore), pieces, it.context));
        receive(endpoint, made, Some(flags))
    }
}
