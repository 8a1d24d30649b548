//! What every service needs: peers and their lanes, credits, buffers, what goes out and what comes in.
//!
//! A function takes the [`Core`] and one [`Peer`], which was found once where a packet or a call came in. It never looks a
//! peer up again. What concerns other peers it leaves in [`Ready`], which is served when no peer is borrowed. The core knows
//! neither services nor ranks nor how a connection is made.

pub(crate) mod breach;
pub(crate) mod budget;
pub(crate) mod completion;
pub(crate) mod credits;
pub(crate) mod lane;
pub(crate) mod peer;
pub(crate) mod peers;
pub(crate) mod ready;
pub(crate) mod receives;
pub(crate) mod refused;
pub(crate) mod regions;
pub(crate) mod rx;
pub(crate) mod slab;
pub(crate) mod stage;
pub(crate) mod stats;
pub(crate) mod terms;
pub(crate) mod tx;
pub(crate) mod vbuf;

use roci_driver::link::Link;
use roci_driver::{ArenaError, Buffer, CompletionQueue, Engine, PdId};

use self::budget::StorageBudget;
use self::ready::Ready;
use self::receives::Receives;
use self::regions::OpenRegions;
use self::stats::WorkerStats;
use self::terms::LocalTerms;
use self::vbuf::Pool;

/// What all peers share. Each part owns its invariant.
pub(crate) struct Core<L: Link> {
    pub(crate) engine: Engine<L>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    /// Send buffers, by lane.
    pub(crate) send_pools: Vec<Pool>,
    pub(crate) receives: Receives,
    pub(crate) budget: StorageBudget,
    pub(crate) regions: OpenRegions,
    pub(crate) ready: Ready,
    pub(crate) terms: LocalTerms,
    pub(crate) stats: WorkerStats,
}

impl<L: Link> Core<L> {
    /// Returns the free bytes of the arena.
    pub(crate) fn free_bytes(&self) -> usize {
        self.engine.arena().free_bytes()
    }

    /// Returns a copy in memory of the arena.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> Result<Buffer, ArenaError> {
        let mut copy = self.engine.buffer(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }
}
