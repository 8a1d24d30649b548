//! Messages taken out of the packets that they came in, before they fill a receive.

/// Takes messages out of packets, see [`Engine::poll_into`](super::Engine::poll_into).
pub trait Sink {
    /// Takes the message of a SEND that came in one packet and would fill the receive of this name, which then stays posted and
    /// does not complete. `false`, and nothing has changed, where it is to fill the receive.
    fn take(&mut self, wr_id: u64, message: &[u8]) -> bool;
}

/// Takes nothing: every message fills its receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoSink;

impl Sink for NoSink {
    #[inline]
    fn take(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
}

impl<S: Sink> Sink for &mut S {
    #[inline]
    fn take(&mut self, wr_id: u64, message: &[u8]) -> bool {
        (**self).take(wr_id, message)
    }
}
