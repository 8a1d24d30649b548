//! Injecting: a short message leaves in the call, and no operation stands for it (libfabric's `fi_tinject`).

use roci_driver::link::Link;
use roci_protocol::msg::{Label, Message, Mode};

use super::TagService;
use super::select::{Protocol, Reason};
use crate::core::Core;
use crate::core::peer::Peer;

/// The name of messages that no operation stands for: none can be taken back by it.
const NO_OPERATION: u64 = u64::MAX;

impl TagService {
    /// Returns the longest message that may be injected: what the largest vbuf holds, if that is eager.
    pub(crate) fn inject_size<L: Link>(&self, core: &Core<L>) -> usize {
        core.receives.queues.max_payload().min(self.rules.eager)
    }

    /// Writes a message into a vbuf that leaves at once, if nothing waits before it and there is room for it; returns whether it did.
    #[inline]
    pub(crate) fn inject<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        (label, mode): (Label, Mode),
        bytes: &[u8],
    ) -> bool {
        assert!(mode != Mode::Synchronous, "an operation would wait for the match");
        let Some(lane) = self.short_lane(core, peer, bytes.len(), mode) else { return false };
        core.message_sizes.note(bytes.len() as u64);
        core.stats.chose(Protocol::Eager, Reason::Short);
        let message = Message::Eager { label, len: bytes.len() as u64, id: NO_OPERATION, mode };
        core.post_eager(peer, lane, (message, mode), bytes.len(), |into| into.copy_from_slice(bytes));
        true
    }
}
