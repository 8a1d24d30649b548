//! Work requests.

use roci_protocol::Rkey;
use roci_protocol::rc::{AtomicOperation, Remote, SendOp, SendRequest};

use crate::mem::Buffer;

/// A work request for the send queue; it is signaled by default.
///
/// All of the buffer takes part: shorten it with [`Buffer::set_len`] before.
#[derive(Debug)]
pub struct SendWr(pub(crate) SendRequest<Buffer>);

impl SendWr {
    /// Delivers `buffer` to a receive that the peer posted.
    pub fn send(wr_id: u64, buffer: Buffer) -> Self {
        Self::new(wr_id, SendOp::Send { imm: None }, buffer)
    }

    /// Writes `buffer` to the peer's region under `rkey`, from address `va` on. With immediate data ([`SendWr::with_imm`]) it
    /// takes a receive of the peer's, whose buffer comes back as it was.
    ///
    /// An empty buffer writes nothing, and needs no region: any key and any address do (IBTA 9.7.4.1.4). It asks
    /// whether the peer is alive.
    pub fn write(wr_id: u64, buffer: Buffer, rkey: Rkey, va: u64) -> Self {
        Self::new(wr_id, SendOp::Write { remote: Remote { va, rkey }, imm: None }, buffer)
    }

    /// Fills `buffer` from the peer's region under `rkey`, from address `va` on.
    pub fn read(wr_id: u64, buffer: Buffer, rkey: Rkey, va: u64) -> Self {
        Self::new(wr_id, SendOp::Read { remote: Remote { va, rkey } }, buffer)
    }

    /// Delivers `buffer` to a receive that the peer posted, and ends the peer's memory window under `window`.
    pub fn send_with_invalidate(wr_id: u64, buffer: Buffer, window: Rkey) -> Self {
        Self::new(wr_id, SendOp::SendInvalidate { rkey: window }, buffer)
    }

    /// Replaces the 8 bytes at `va` of the peer's region by `swap` where they equal `compare`. `buffer`, of 8 bytes,
    /// takes what they held. The peer's processor sees numbers in its own byte order, and `buffer` has this one's:
    /// `u64::from_ne_bytes`. `va` is a multiple of 8.
    pub fn compare_swap(wr_id: u64, buffer: Buffer, rkey: Rkey, va: u64, compare: u64, swap: u64) -> Self {
        let operation = AtomicOperation::CompareSwap { compare, swap };
        Self::new(wr_id, SendOp::Atomic { remote: Remote { va, rkey }, operation }, buffer)
    }

    /// Adds `add` to the 8 bytes at `va` of the peer's region. `buffer`, of 8 bytes, takes what they held, as for
    /// [`SendWr::compare_swap`].
    pub fn fetch_add(wr_id: u64, buffer: Buffer, rkey: Rkey, va: u64, add: u64) -> Self {
        let operation = AtomicOperation::FetchAdd { add };
        Self::new(wr_id, SendOp::Atomic { remote: Remote { va, rkey }, operation }, buffer)
    }

    /// Adds immediate data for the receiver's completion; a READ has none.
    #[must_use]
    pub fn with_imm(mut self, data: u32) -> Self {
        if let SendOp::Send { imm } | SendOp::Write { imm, .. } = &mut self.0.op {
            *imm = Some(data);
        }
        self
    }

    /// Reports only failure.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.0.signaled = false;
        self
    }

    /// Waits for earlier READs and atomics of this queue pair.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.0.fence = true;
        self
    }

    /// Asks for an acknowledgement at once, as is the default, or does not. A peer of ours acknowledges a message that does not ask
    /// later, together with others; a verbs peer is asked all the same.
    #[inline]
    #[must_use]
    pub fn with_ack_req(mut self, ack_req: bool) -> Self {
        self.0.ack_req = ack_req;
        self
    }

    /// Wakes the receiver, if it waits for solicited completions.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.0.solicited = true;
        self
    }

    /// The buffer, where the request could not be posted.
    pub fn into_buffer(self) -> Buffer {
        self.0.buffer
    }

    pub(crate) fn new(wr_id: u64, op: SendOp, buffer: Buffer) -> Self {
        // A longer buffer than u32 says is refused when it is posted.
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        Self(SendRequest { wr_id, op, buffer, len, signaled: true, solicited: false, fence: false, ack_req: true })
    }
}
