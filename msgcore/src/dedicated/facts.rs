//! What a handle must know of its worker.

use std::sync::Arc;

use roci_driver::link::Link;
use roci_driver::{Arena, ForkWatch};

use crate::active::ActiveMessages as _;
use crate::backoff::BackoffLimits;
use crate::core::slab::KeySource;
use crate::services::tag::claims::ClaimHome;
use crate::services::tag::requests;
use crate::services::tag::send_queue::OUTGOING_LIMIT;
use crate::{EndpointAddress, Rank, Worker};

/// Operations that may be under way, or over and not asked for. An endpoint's queue holds as many sends, so that the engine
/// refuses none for want of room.
pub(super) const LIMIT: usize = 1 << 15;
const _: () = assert!(LIMIT <= OUTGOING_LIMIT && LIMIT <= requests::LIMIT);

/// What is known of a worker, and never changes.
#[derive(Clone, Copy)]
pub(super) struct WorkerConstants {
    pub(super) rank: Rank,
    pub(super) size: usize,
    pub(super) address: EndpointAddress,
    pub(super) inject_size: usize,
    pub(super) max_active: usize,
}

/// What the handle must know of the worker.
pub(super) struct WorkerFacts {
    pub(super) constants: WorkerConstants,
    pub(super) arena: Arc<Arena>,
    pub(super) fork_watch: ForkWatch,
    pub(super) claims: ClaimHome,
    /// What the worker would name its requests by: the same in each run of a simulation.
    pub(super) names: KeySource,
    pub(super) limits: BackoffLimits,
}

impl WorkerFacts {
    pub(super) fn of<L: Link>(worker: &Worker<L>, limits: BackoffLimits) -> Self {
        let engine = &worker.endpoint.core.engine;
        let (arena, fork_watch) = (engine.arena().clone(), engine.fork_watch());
        let tag = &worker.endpoint.services.tag;
        let (claims, names) = (tag.claims.home(), tag.requests.names_for_another_thread(LIMIT));
        let constants = WorkerConstants {
            rank: worker.rank(),
            size: worker.size(),
            address: worker.address(),
            inject_size: worker.inject_size(),
            max_active: worker.max_active(),
        };
        Self { constants, arena, fork_watch, claims, names, limits }
    }
}
