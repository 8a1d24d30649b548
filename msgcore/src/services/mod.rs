//! What is spoken above the core: each service knows its own messages, and neither ranks, nor connections, nor the others.
//!
//! # A new message or service
//! A message is a variant of `protocol::msg::Message`. Say in `core/lane.rs` (`charges`) whether it costs a credit, in
//! `core/rx.rs` (`turn_of`) whether it keeps its place in the sequence, and in `endpoint/dispatch.rs` which service it is for.
//! A service is a folder here and a field of [`Services`]; `endpoint/mod.rs` (`post_waiting`) gives it its turn to send, its
//! breaches are variants of `core::breach::Breach`, and its calls are in `worker/`, `dedicated/` and the trait `Messaging`.

pub(crate) mod rma;
pub(crate) mod stream;
pub(crate) mod tag;

use roci_driver::link::Link;

use self::stream::StreamService;
use self::tag::TagService;
use crate::core::Core;
use crate::core::completion::OpError;
use crate::core::peer::PeerId;

/// The services of one end.
pub(crate) struct Services {
    pub(crate) tag: TagService,
    pub(crate) stream: StreamService,
}

impl Services {
    /// A peer is gone: whatever needs it ends with `error`.
    pub(crate) fn on_peer_down<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId, error: &OpError) {
        self.tag.on_peer_down(core, peer, error);
        self.stream.on_peer_down(core, peer, error);
    }
}
