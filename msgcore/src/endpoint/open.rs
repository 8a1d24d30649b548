//! Opening an endpoint: what it is made of, and what is there from the start.

use std::collections::VecDeque;
use std::net::IpAddr;

use roci_driver::link::Link;
use roci_driver::{ArenaError, CompletionQueue, Engine, PdId, QpParams};

use super::Endpoint;
use super::keepalive::Keepalive;
use super::wireup::{LanePlan, NoWireup, Wireup};
use crate::config::{Config, UNEXPECTED_SHARE};
use crate::core::Core;
use crate::core::lane::SEND_QUEUE;
use crate::core::peer::PeerId;
use crate::core::peers::Peers;
use crate::core::ready::Ready;
use crate::core::receive_buffers::{ReceiveBuffers, SharedReceiveBuffers};
use crate::core::regions::OpenRegions;
use crate::core::stats::WorkerStats;
use crate::core::terms::LocalTerms;
use crate::core::unexpected_limit::UnexpectedBudget;
use crate::core::vbuf::Pool;
use crate::receive_queues::{Kind, ReceiveQueue, ReceiveQueues};
use crate::services::Services;
use crate::services::stream::StreamService;
use crate::services::tag::TagService;
use crate::services::tag::rendezvous::Staging;
use crate::services::tag::requests::Requests;

/// Messages without a receive are withheld where less than this part of the arena is free: the application must be able to
/// receive them.
const FLOOR_SHARE: usize = 16;
/// Retries where receives are shared: a peer comes again until there is one.
const FOR_EVER: Option<u32> = None;

/// What an endpoint stands on: an engine with open ports.
pub(crate) struct Parts<L: Link> {
    pub(crate) engine: Engine<L>,
    /// The domain of all queue pairs.
    pub(crate) pd: PdId,
    /// This end's slot.
    pub(crate) oneself: PeerId,
    /// Where each end is, this one among them.
    pub(crate) hosts: Vec<IpAddr>,
    /// All peers are behind the first port. Otherwise each has its own, in the order of slots.
    pub(crate) is_shared_port: bool,
    /// How queue pairs behave.
    pub(crate) params: QpParams,
    /// The names of its operations.
    pub(crate) requests: Requests,
}

impl<L: Link> Endpoint<L> {
    /// An endpoint on these parts, with no connections yet.
    ///
    /// # Errors
    /// The configuration wants connections that cannot be made so.
    pub(crate) fn open(config: &Config, parts: Parts<L>) -> Result<Self, NoWireup> {
        let Parts { mut engine, pd, oneself, hosts, is_shared_port, params, requests } = parts;
        let (count, memory) = (hosts.len(), engine.arena().free_bytes());
        let queues = config.receive_queues_for(count);
        let (cq, shared) = create_queues(&mut engine, &queues, count);
        let plans = plans(params, &queues, &shared);
        let wireup = Wireup::open(config, &mut engine, oneself, hosts, is_shared_port, plans)?;
        let pool = |limit: usize| {
            let of_queue = |queue: &ReceiveQueue| Pool::new(queue.size, config.vbuf_secondary_pool, limit);
            queues.iter().map(of_queue).collect::<Vec<_>>()
        };
        let (send_pools, receive_pools, rules) = (pool(config.vbuf_max), pool(usize::MAX), config.rules());
        let terms = LocalTerms {
            rank: oneself.slot() as u32,
            capabilities: rules.ours,
            notify: config.credit_notify_threshold,
            preserve: config.credit_preserve,
        };
        let core = Core {
            engine,
            pd,
            cq,
            send_pools,
            receives: ReceiveBuffers::new(queues, receive_pools, shared),
            unexpected_budget: UnexpectedBudget::new(
                config.unexpected_limit.min(memory / UNEXPECTED_SHARE),
                memory / FLOOR_SHARE,
            ),
            regions: OpenRegions::new(config.ndreg_entries),
            ready: Ready::default(),
            terms,
            stats: WorkerStats::default(),
        };
        let staging = Staging::new(config.pipeline_chunk, config.pipeline_depth);
        let tag = TagService::new((oneself, count), requests, rules, staging, config.buffered_limit);
        let (peers, keepalive) = (Peers::new(oneself, count), Keepalive::new(config.keepalive_s));
        let services = Services { tag, stream: StreamService::default() };
        Ok(Self { core, peers, services, wireup, keepalive, events: VecDeque::new(), calls: 0 })
    }

    /// Makes what is there from the start: send buffers, shared receives, staging memory.
    ///
    /// # Errors
    /// The arena is too small.
    pub(crate) fn provide(&mut self, config: &Config) -> Result<(), ArenaError> {
        for pool in &mut self.core.send_pools {
            if !pool.provide(&self.core.engine, config.vbuf_pool.min(config.vbuf_max)) {
                // The arena's own words say what is missing.
                self.core.engine.buffer(pool.size())?;
            }
        }
        self.core.post_shared();
        if self.services.tag.rules.ours.rdma {
            self.services.tag.provide_staging(&mut self.core)?;
        }
        Ok(())
    }
}

/// The completion queue, and the receive queues that all peers share.
fn create_queues<L: Link>(
    engine: &mut Engine<L>,
    queues: &ReceiveQueues,
    size: usize,
) -> (CompletionQueue, Vec<Option<SharedReceiveBuffers>>) {
    let peers = size.saturating_sub(1);
    let of_queue = |kind: Kind| match kind {
        Kind::PerPeer { num, reserve, .. } => peers * (SEND_QUEUE + num as usize + reserve as usize + 1),
        // Receives that were filled wait to be looked at while others are posted in their stead; and each peer may have
        // taken one for a message that has not come whole.
        Kind::Shared { num, .. } => peers * (SEND_QUEUE + 1) + 2 * num as usize,
    };
    let cq = engine.create_cq(queues.iter().map(|queue| of_queue(queue.kind)).sum());
    let shared = queues.iter().map(|queue| match queue.kind {
        Kind::PerPeer { .. } => None,
        Kind::Shared { num, init, .. } => {
            Some(SharedReceiveBuffers { srq: engine.create_srq(num as usize, cq), goal: init as usize })
        }
    });
    let shared = shared.collect();
    (cq, shared)
}

/// How the queue pair of each lane is made.
fn plans(params: QpParams, queues: &ReceiveQueues, shared: &[Option<SharedReceiveBuffers>]) -> Vec<LanePlan> {
    let plan = |(queue, shared): (&ReceiveQueue, &Option<SharedReceiveBuffers>)| {
        let mut params = params.clone();
        params.rq_depth = match queue.kind {
            Kind::PerPeer { num, reserve, .. } => (num + reserve) as usize + 1,
            Kind::Shared { .. } => 1,
        };
        // Where a message costs a credit there is a receive for it: a peer that has none is broken. Receives that are
        // shared may run out, and then the peer comes again.
        params.rnr_retry_limit = if shared.is_some() { FOR_EVER } else { Some(0) };
        LanePlan { params, srq: shared.map(|shared| shared.srq) }
    };
    queues.iter().zip(shared).map(plan).collect()
}
