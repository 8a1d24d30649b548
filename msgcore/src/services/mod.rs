//! What is spoken above the core: each service knows its own messages, and neither ranks, nor connections, nor the others.
//!
//! # A new message or service
//! A message is a variant of `protocol::msg::Message`, with a number of its own in `protocol/src/msg/mod.rs`: its `View` is the
//! header's layout, `View::message` reads the variant from it, and `View::of` writes it. Say in `core/lane.rs` (`charges`)
//! whether it costs a credit, in `core/rx.rs` (`turn_of`) whether it keeps its place in the sequence, and in
//! `endpoint/dispatch.rs` (`dispatch`) which service it is for.
//!
//! A service is a folder here and a field of [`Services`]; `endpoint/sending.rs` (`post_waiting`) gives it its turn to send, its
//! breaches are variants of `core::breach::Breach`, and its calls are in `worker/`, `dedicated/` and the trait `Messaging`.
//! What it has under way with a peer that is gone ends in its own part of [`Services::on_peer_down`].
//!
//! READs, WRITEs and atomics on a peer's memory are transfers (`core/transfer.rs`), which wait for room by themselves; one-sided
//! operations and rendezvous are. A service that posts work requests of its own needs a range of identifiers, which `core/tx.rs` divides:
//! with `VBUF` they are lane and peer of a vbuf, with `STREAM` peer and kind of a stream's work, with `ONE_SIDED` an operation of the
//! one-sided service, or a peer where none stands for it, and otherwise they are requests of the tag service (or a keepalive's, of
//! all ones). Their ends come to `endpoint/dispatch.rs` (`on_transferred`, `on_failure`, `lane_of`), and those of puts to
//! `endpoint/expected.rs`.

pub(crate) mod am;
pub(crate) mod rma;
pub(crate) mod stream;
pub(crate) mod tag;

use roci_driver::link::Link;

use self::am::AmService;
use self::rma::RmaService;
use self::stream::StreamService;
use self::tag::TagService;
use crate::core::Core;
use crate::core::completion::OpError;
use crate::core::peer::PeerId;

/// The services of one end.
pub(crate) struct Services {
    pub(crate) tag: TagService,
    pub(crate) stream: StreamService,
    pub(crate) rma: RmaService,
    pub(crate) am: AmService,
}

impl Services {
    /// There are peers in so many slots from here on.
    pub(crate) fn make_room(&mut self, slots: usize) {
        self.tag.make_room(slots);
    }

    /// The end is no more: nothing of the engine's stays with it.
    pub(crate) fn close<L: Link>(&mut self, core: &mut Core<L>) {
        self.tag.discard_claims(core);
        self.tag.close_staging(core);
        self.rma.close_offers(core);
    }

    /// A peer has given its slot up.
    pub(crate) fn on_slot_released<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId) {
        self.stream.forget(core, peer);
    }

    /// A peer is gone: whatever needs it ends with `error`.
    pub(crate) fn on_peer_down<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId, error: &OpError) {
        self.tag.on_peer_down(core, peer, error);
        self.stream.on_peer_down(core, peer, error);
        self.rma.on_peer_down(core, peer);
        self.am.on_peer_down(peer);
    }
}
