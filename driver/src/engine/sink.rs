//! What is taken before it becomes a completion: messages out of the packets that they came in, and the memory of SENDs and WRITEs.

use roci_protocol::rc::Operation;

use crate::mem::Buffer;

/// Takes messages out of packets, and the memory of SENDs and WRITEs back, see [`Engine::poll_into`](super::Engine::poll_into).
pub trait Sink {
    /// Takes the message of a SEND that came in one packet and would fill the receive of this name, which then stays posted and
    /// does not complete. `false`, and nothing has changed, where it is to fill the receive.
    fn take(&mut self, wr_id: u64, message: &[u8]) -> bool;

    /// Takes the memory of the SEND or WRITE of this name back, which has ended well and then does not complete. The memory comes
    /// back, and nothing has changed, where the request is to complete.
    fn take_back(&mut self, wr_id: u64, operation: Operation, memory: Buffer) -> Option<Buffer>;
}

/// Takes nothing: every message fills its receive, and every SEND completes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoSink;

impl Sink for NoSink {
    #[inline]
    fn take(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }

    #[inline]
    fn take_back(&mut self, _: u64, _: Operation, memory: Buffer) -> Option<Buffer> {
        Some(memory)
    }
}

impl<S: Sink> Sink for &mut S {
    #[inline]
    fn take(&mut self, wr_id: u64, message: &[u8]) -> bool {
        (**self).take(wr_id, message)
    }

    #[inline]
    fn take_back(&mut self, wr_id: u64, operation: Operation, memory: Buffer) -> Option<Buffer> {
        (**self).take_back(wr_id, operation, memory)
    }
}
