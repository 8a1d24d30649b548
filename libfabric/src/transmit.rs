//! Sends. What fits in one packet of the core's is copied, and has ended when the call returns; longer messages leave from where they
//! lie.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::ssize_t;
use roci_msgcore::{Buffer, PeerId, SendOptions, Tag};

use crate::abi::flags::{FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT, FI_MATCH_COMPLETE, FI_REMOTE_CQ_DATA, FI_SEND};
use crate::abi::operations::{fi_ops_msg, fi_ops_tagged};
use crate::abi::queues::{FI_EBADFLAGS, fi_msg, fi_msg_tagged};
use crate::abi::{fi_addr_t, fid_ep, iovec};
use crate::completion::CompletedMessage;
use crate::endpoint::{self, EnabledEndpoint, PendingOperation};
use crate::info::{INJECT_SIZE, MAX_MESSAGE};
use crate::message::{IovPieces, Tagging};
use crate::object::{Errno, answer};
use crate::receive;
use crate::rma::AccessParts;

pub(crate) static MESSAGE_OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: receive::recv,
    recvv: receive::recvv,
    recvmsg: receive::recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};
pub(crate) static TAGGED_OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: receive::trecv,
    recvv: receive::trecvv,
    recvmsg: receive::trecvmsg,
    send: tsend,
    sendv: tsendv,
    sendmsg: tsendmsg,
    inject: tinject,
    senddata: tsenddata,
    injectdata: tinjectdata,
};

/// A message that is to be sent.
#[derive(Clone, Copy)]
struct OutgoingMessage {
    kind: Tagging,
    to: fi_addr_t,
    tag: u64,
    data: Option<u64>,
    pieces: IovPieces,
    context: *mut c_void,
}

/// How an operation is to be done.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// With the endpoint's own flags.
    Default,
    /// With these.
    Flags(u64),
    /// The memory is the application's when the call returns, and there is no completion.
    Inject,
}

impl How {
    /// The flags that count, where these are the endpoint's own.
    pub(crate) const fn flags(self, defaults: u64) -> u64 {
        match self {
            Self::Default => defaults,
            Self::Flags(flags) => flags,
            Self::Inject => FI_INJECT,
        }
    }
}

/// Sends; see the functions below.
///
/// # Safety
/// The endpoint is ours and open.
#[inline]
unsafe fn transmit(endpoint: *mut fid_ep, message: Result<OutgoingMessage, Errno>, how: How) -> ssize_t {
    // SAFETY: the caller says so.
    let state = unsafe { endpoint::state(endpoint) };
    let flags = how.flags(state.options.transmit_flags);
    answer(message.and_then(|message| state.post(flags, |active| active.transmit(message, how, flags))))
}

impl EnabledEndpoint {
    fn transmit(&mut self, message: OutgoingMessage, how: How, flags: u64) -> Result<(), Errno> {
        let binding = self.bindings.transmit.as_ref();
        let wants_entry = !matches!(how, How::Inject) && binding.is_some_and(|binding| binding.wants_entry(flags));
        if wants_entry && binding.is_some_and(|binding| binding.queue.is_full()) {
            return Err(Errno(libc::EAGAIN));
        }
        let len = message.pieces.check(if flags & FI_INJECT == 0 { MAX_MESSAGE } else { INJECT_SIZE })?;
        let peer = self.peer(message.to)?;
        let options = SendOptions::default().within(message.kind.context());
        let options = message.data.map_or(options, |data| options.with_data(data));
        let operation = PendingOperation {
            context: message.context,
            buffer: null_mut(),
            flags: FI_SEND | message.kind.flag(),
            wants_entry,
            is_multi: false,
            request: None,
            parts: AccessParts::default(),
        };
        if flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE) != 0 {
            // Who wants its memory back at once gets a copy sent.
            let is_copied = flags & FI_INJECT != 0;
            let payload = if is_copied { self.copy(&message) } else { message.pieces.source(&mut self.worker) }?;
            return self.send(peer, &message, payload, (options.synchronous(), operation));
        }
        // A copy that is too long for one packet is sent as a long message, from the copy.
        if len > self.worker.inject_size() && flags & FI_INJECT == 0 {
            let payload = message.pieces.source(&mut self.worker)?;
            return self.send(peer, &message, payload, (options, operation));
        }
        if !self.worker.is_connected(peer) {
            return self.send_unconnected(peer, &message, flags & FI_INJECT != 0, (options, operation));
        }
        self.send_short(peer, &message, options)?;
        self.end(&operation, CompletedMessage::sent());
        Ok(())
    }

    /// A short message to a peer that is not connected. It has no completion before it has left: an application that has one may make
    /// no progress any more (Open MPI in PMIx_Connect does not), and the message would stay here.
    #[cold]
    fn send_unconnected(
        &mut self,
        peer: PeerId,
        message: &OutgoingMessage,
        is_injected: bool,
        (options, operation): (SendOptions, PendingOperation),
    ) -> Result<(), Errno> {
        if is_injected {
            self.worker.connect(peer)?;
            self.worker.progress();
            return Err(Errno(libc::EAGAIN));
        }
        let payload = self.copy(message)?;
        self.send(peer, message, payload, (options, operation))
    }

    /// Sends what has a completion later.
    fn send(
        &mut self,
        peer: PeerId,
        message: &OutgoingMessage,
        payload: Buffer,
        (options, operation): (SendOptions, PendingOperation),
    ) -> Result<(), Errno> {
        let request = self.worker.send_with(peer, Tag::new(message.tag), payload, options).map_err(|it| it.why)?;
        self.begin(operation, request);
        Ok(())
    }

    /// Sends what is copied, so that it has ended as far as this end goes.
    fn send_short(&mut self, peer: PeerId, message: &OutgoingMessage, options: SendOptions) -> Result<(), Errno> {
        let tag = Tag::new(message.tag);
        if let Some(bytes) = message.pieces.contiguous().filter(|bytes| bytes.len() <= self.worker.inject_size()) {
            return Ok(self.worker.inject(peer, tag, bytes, options)?);
        }
        let payload = self.copy(message)?;
        let request = self.worker.send_with(peer, tag, payload, options).map_err(|it| it.why)?;
        self.worker.detach(request);
        Ok(())
    }

    /// A copy of a message.
    fn copy(&self, message: &OutgoingMessage) -> Result<Buffer, Errno> {
        let mut payload = self.worker.buffer(message.pieces.check(MAX_MESSAGE)?).map_err(|_| Errno(libc::EAGAIN))?;
        message.pieces.gather(&mut payload);
        Ok(payload)
    }
}

fn untagged(to: fi_addr_t, pieces: IovPieces, data: Option<u64>, context: *mut c_void) -> OutgoingMessage {
    OutgoingMessage { kind: Tagging::Untagged, to, tag: 0, data, pieces, context }
}

fn tagged(to: fi_addr_t, tag: u64, pieces: IovPieces, data: Option<u64>, context: *mut c_void) -> OutgoingMessage {
    OutgoingMessage { kind: Tagging::Tagged, to, tag, data, pieces, context }
}

/// The core orders no message behind other operations.
fn unfenced(flags: u64) -> Result<(), Errno> {
    if flags & FI_FENCE == 0 { Ok(()) } else { Err(Errno(FI_EBADFLAGS)) }
}

/// The data that goes with an operation, if it is to.
pub(crate) fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & FI_REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn send(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(untagged(to, IovPieces::one(start, len), None, context)), How::Default) }
}

unsafe extern "C" fn sendv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let message = IovPieces::many(pieces, count).map(|pieces| untagged(to, pieces, None, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, message, How::Default) }
}

unsafe extern "C" fn sendmsg(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and a message.
    unsafe {
        let message = &*message;
        let pieces = unfenced(flags).and_then(|()| IovPieces::many(message.msg_iov, message.iov_count));
        let made = pieces.map(|pieces| untagged(message.addr, pieces, data_of(flags, message.data), message.context));
        transmit(endpoint, made, How::Flags(flags))
    }
}

unsafe extern "C" fn inject(endpoint: *mut fid_ep, start: *const c_void, len: usize, to: fi_addr_t) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(untagged(to, IovPieces::one(start, len), None, null_mut())), How::Inject) }
}

unsafe extern "C" fn senddata(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(untagged(to, IovPieces::one(start, len), Some(data), context)), How::Default) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(untagged(to, IovPieces::one(start, len), Some(data), null_mut())), How::Inject) }
}

unsafe extern "C" fn tsend(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(tagged(to, tag, IovPieces::one(start, len), None, context)), How::Default) }
}

unsafe extern "C" fn tsendv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> ssize_t {
    let message = IovPieces::many(pieces, count).map(|pieces| tagged(to, tag, pieces, None, context));
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, message, How::Default) }
}

unsafe extern "C" fn tsendmsg(endpoint: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours, and a message.
    unsafe {
        let it = &*message;
        let pieces = unfenced(flags).and_then(|()| IovPieces::many(it.msg_iov, it.iov_count));
        let made = pieces.map(|pieces| tagged(it.addr, it.tag, pieces, data_of(flags, it.data), it.context));
        transmit(endpoint, made, How::Flags(flags))
    }
}

unsafe extern "C" fn tinject(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    to: fi_addr_t,
    tag: u64,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(tagged(to, tag, IovPieces::one(start, len), None, null_mut())), How::Inject) }
}

unsafe extern "C" fn tsenddata(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(tagged(to, tag, IovPieces::one(start, len), Some(data), context)), How::Default) }
}

unsafe extern "C" fn tinjectdata(
    endpoint: *mut fid_ep,
    start: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> ssize_t {
    // SAFETY: libfabric calls it with an endpoint of ours.
    unsafe { transmit(endpoint, Ok(tagged(to, tag, IovPieces::one(start, len), Some(data), null_mut())), How::Inject) }
}
