//! What every service needs: peers and their lanes, credits, buffers, what goes out and what comes in.
//!
//! A function takes the [`Core`] and one [`Peer`], which was found once where a packet or a call came in. It never looks a
//! peer up again. What concerns other peers it leaves in [`Ready`], which is served when no peer is borrowed. The core knows
//! neither services nor ranks nor how a connection is made.

pub(crate) mod breach;
pub(crate) mod by_message;
pub(crate) mod coalescing;
pub(crate) mod completion;
pub(crate) mod credits;
pub(crate) mod exposed_keys;
pub(crate) mod in_flight;
pub(crate) mod lane;
pub(crate) mod no_connection;
pub(crate) mod open_packet;
pub(crate) mod peer;
pub(crate) mod peer_id;
pub(crate) mod peers;
pub(crate) mod rdma;
pub(crate) mod ready;
pub(crate) mod receive_buffers;
pub(crate) mod receive_pace;
pub(crate) mod refused;
pub(crate) mod regions;
pub(crate) mod request;
pub(crate) mod rx;
pub(crate) mod segment;
pub(crate) mod slab;
pub(crate) mod stage;
pub(crate) mod stats;
pub(crate) mod terms;
pub(crate) mod transfer;
pub(crate) mod tx;
pub(crate) mod unexpected_limit;
pub(crate) mod vbuf;

use std::mem;

use roci_driver::link::Link;
use roci_driver::{ArenaError, Buffer, CompletionQueue, Engine, PdId};
use roci_protocol::Histogram;

use self::by_message::AwaitedReplies;
use self::ready::Ready;
use self::receive_buffers::ReceiveBuffers;
use self::regions::OpenRegions;
use self::stats::WorkerStats;
use self::terms::LocalTerms;
use self::unexpected_limit::UnexpectedBudget;
use self::vbuf::Pool;

/// What all peers share. Each part owns its invariant. The first four belong to the domain, the others ([`OwnCore`]) to the endpoint.
pub(crate) struct Core<L: Link> {
    pub(crate) engine: Engine<L>,
    pub(crate) pd: PdId,
    /// Send buffers, by lane.
    pub(crate) send_pools: Vec<Pool>,
    pub(crate) regions: OpenRegions,
    pub(crate) cq: CompletionQueue,
    pub(crate) receives: ReceiveBuffers,
    pub(crate) unexpected_budget: UnexpectedBudget,
    pub(crate) ready: Ready,
    /// Transfers that have left by message.
    pub(crate) awaited: AwaitedReplies,
    pub(crate) terms: LocalTerms,
    pub(crate) stats: WorkerStats,
    /// Lengths of the messages that were sent, in bytes.
    pub(crate) message_sizes: Histogram,
}

/// What a core has for one endpoint: everything but what the endpoints of a domain share.
pub(crate) struct OwnCore {
    pub(crate) cq: CompletionQueue,
    pub(crate) receives: ReceiveBuffers,
    pub(crate) unexpected_budget: UnexpectedBudget,
    pub(crate) ready: Ready,
    pub(crate) awaited: AwaitedReplies,
    pub(crate) terms: LocalTerms,
    pub(crate) stats: WorkerStats,
    pub(crate) message_sizes: Histogram,
}

impl<L: Link> Core<L> {
    /// Exchanges what one endpoint has for what another has. Sinks take what is the new one's from here on.
    pub(crate) fn exchange(&mut self, own: &mut OwnCore) {
        let Self { engine, cq, receives, unexpected_budget, ready, awaited, terms, stats, message_sizes, .. } = self;
        engine.offer_to_sinks(*cq, false);
        engine.offer_to_sinks(own.cq, true);
        mem::swap(cq, &mut own.cq);
        receives.pace.hand_over(&own.receives.pace, engine);
        mem::swap(receives, &mut own.receives);
        mem::swap(unexpected_budget, &mut own.unexpected_budget);
        mem::swap(ready, &mut own.ready);
        mem::swap(awaited, &mut own.awaited);
        mem::swap(terms, &mut own.terms);
        mem::swap(stats, &mut own.stats);
        mem::swap(message_sizes, &mut own.message_sizes);
    }

    /// Returns the free bytes of the arena.
    pub(crate) fn free_bytes(&self) -> usize {
        self.engine.arena().free_bytes()
    }

    /// So many bytes of the arena are about to be taken for messages without a receive.
    #[cold]
    pub(crate) fn note_growth(&mut self, bytes: usize) {
        let free_bytes = self.free_bytes();
        self.unexpected_budget.note_free(free_bytes.saturating_sub(bytes));
    }

    /// Returns a copy of a message without a receive, for as long as such messages may take more memory.
    pub(crate) fn copy_to_store(&mut self, lane: usize, bytes: &[u8]) -> Option<Buffer> {
        if self.unexpected_budget.is_look_due(bytes.len()) {
            self.note_growth(bytes.len());
        }
        // A shared queue needs its vbuf back, or other peers wait for it.
        if self.unexpected_budget.is_withholding() && !self.receives.is_shared(lane) {
            return None;
        }
        self.copy_of(bytes).ok()
    }

    /// Returns a copy in memory of the arena.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> Result<Buffer, ArenaError> {
        let mut copy = self.engine.buffer(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }
}
