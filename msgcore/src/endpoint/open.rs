//! Opening an endpoint: what it is made of, and what is there from the start.

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{ArenaError, CompletionQueue, Engine, PdId, QpParams};
use roci_protocol::Histogram;
use roci_protocol::msg::Capabilities;

use super::Endpoint;
use super::address::EndpointAddress;
use super::address_book::AddressBook;
use super::keepalive::Keepalive;
use super::locality::{LocalMeans, Locality};
use super::parked::{ParkedEndpoint, Premises};
use super::strangers::{LeavingPeers, completions_of};
use super::wireup::{LanePlan, NoWireup, Wireup};
use crate::config::{Config, UNEXPECTED_SHARE};
use crate::core::by_message::AwaitedReplies;
use crate::core::peer::PeerId;
use crate::core::peers::Peers;
use crate::core::ready::Ready;
use crate::core::receive_buffers::{ReceiveBuffers, SharedReceiveBuffers};
use crate::core::regions::OpenRegions;
use crate::core::stats::WorkerStats;
use crate::core::terms::{LocalTerms, NO_RANK};
use crate::core::unexpected_limit::UnexpectedBudget;
use crate::core::vbuf::Pool;
use crate::core::{Core, OwnCore};
use crate::receive_queues::{Kind, ReceiveQueue, ReceiveQueues};
use crate::services::Services;
use crate::services::am::AmService;
use crate::services::rma::RmaService;
use crate::services::stream::StreamService;
use crate::services::tag::TagService;
use crate::services::tag::rendezvous::Staging;
use crate::services::tag::requests::Requests;
use crate::services::tag::select::Rules;

/// Messages without a receive are withheld where less than this part of the arena is free: the application must be able to
/// receive them.
const FLOOR_SHARE: usize = 16;
/// Retries where receives are shared: a peer comes again until there is one.
const FOR_EVER: Option<u32> = None;

/// What an endpoint is made of: an engine with open ports, and what says which endpoint it is.
pub(crate) struct Parts<L: Link> {
    pub(crate) engine: Engine<L>,
    /// The domain of all queue pairs.
    pub(crate) pd: PdId,
    pub(crate) identity: Identity<L>,
}

/// Which of the endpoints on an engine one is, and how it meets its peers.
pub(crate) struct Identity<L: Link> {
    pub(crate) neighbourhood: Neighbourhood,
    /// All peers are behind the first port. Otherwise each has its own, in the order of slots.
    pub(crate) is_shared_port: bool,
    /// What it takes to have ports to peers of this host.
    pub(crate) local: Option<LocalMeans<L>>,
    /// How queue pairs behave.
    pub(crate) params: QpParams,
    /// The names of its operations.
    pub(crate) requests: Requests,
}

/// Who the peers are.
pub(crate) enum Neighbourhood {
    /// The ranks of a job, which are at these addresses.
    Ranks {
        /// This one.
        oneself: PeerId,
        /// By rank.
        addresses: Vec<EndpointAddress>,
    },
    /// Those that know this end's address, or are known by their own.
    Strangers(EndpointAddress),
}

impl Neighbourhood {
    fn peers(&self) -> Peers {
        match self {
            Self::Ranks { oneself, addresses } => Peers::new(*oneself, addresses.len()),
            Self::Strangers(_) => Peers::of_strangers(),
        }
    }

    fn book(self) -> AddressBook {
        match self {
            Self::Ranks { oneself, addresses } => AddressBook::of_ranks(oneself, addresses),
            Self::Strangers(own) => AddressBook::alone(own),
        }
    }

    /// Returns how many ends memory is planned for, this one among them.
    fn planned(&self, config: &Config) -> usize {
        match self {
            Self::Ranks { addresses, .. } => addresses.len(),
            Self::Strangers(_) => config.peers + 1,
        }
    }
}

impl<L: Link> Endpoint<L> {
    /// An endpoint on these parts, with no connections yet.
    ///
    /// # Errors
    /// The configuration wants connections that cannot be made so.
    pub(crate) fn open(config: &Config, parts: Parts<L>) -> Result<Self, NoWireup> {
        let Parts { mut engine, pd, identity } = parts;
        let state = ParkedEndpoint::open(config, &mut engine, identity, None).map_err(|(why, _)| why)?;
        let ParkedEndpoint { core: own, peers, services, wireup, keepalive, events, leaving } = state;
        let OwnCore { cq, receives, unexpected_budget, ready, awaited, terms, stats, message_sizes } = own;
        let core = Core {
            engine,
            pd,
            send_pools: pools(&receives.queues, config, config.vbuf_max),
            regions: OpenRegions::new(config.ndreg_entries),
            cq,
            receives,
            unexpected_budget,
            ready,
            awaited,
            terms,
            stats,
            message_sizes,
        };
        Ok(Self { core, peers, services, wireup, keepalive, events, leaving, calls: 0 })
    }

    /// Opens another endpoint of the domain.
    ///
    /// # Errors
    /// The configuration wants connections that cannot be made so. The premises are for another try.
    pub(crate) fn open_beside(
        &mut self,
        config: &Config,
        identity: Identity<L>,
        spare: Option<Premises>,
    ) -> Result<ParkedEndpoint<L>, (NoWireup, Box<Premises>)> {
        let opened = ParkedEndpoint::open(config, &mut self.core.engine, identity, spare)?;
        self.core.engine.offer_to_sinks(opened.core.cq, false);
        Ok(opened)
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

impl<L: Link> ParkedEndpoint<L> {
    /// An endpoint on an engine, with no connections yet. What another one has left serves it, where there is any.
    ///
    /// # Errors
    /// The configuration wants connections that cannot be made so.
    pub(crate) fn open(
        config: &Config,
        engine: &mut Engine<L>,
        identity: Identity<L>,
        spare: Option<Premises>,
    ) -> Result<Self, (NoWireup, Box<Premises>)> {
        let Identity { neighbourhood, is_shared_port, local, params, requests } = identity;
        let memory = engine.arena().free_bytes();
        let peers = neighbourhood.peers();
        let premises = spare.unwrap_or_else(|| {
            let queues = config.receive_queues_for(neighbourhood.planned(config));
            create_premises(engine, config, queues, peers.slots())
        });
        let plans = plans(params, &premises.receives);
        let ports = (is_shared_port, Locality::with(local, premises.free_ports.clone()));
        let wireup = match Wireup::open(config, engine, neighbourhood.book(), ports, plans) {
            Ok(wireup) => wireup,
            Err(why) => return Err((why, premises.into())),
        };
        let Premises { cq, receives, .. } = premises;
        let rules = config.rules();
        let core = OwnCore {
            cq,
            receives,
            unexpected_budget: UnexpectedBudget::new(
                config.unexpected_limit.min(memory / UNEXPECTED_SHARE),
                memory / FLOOR_SHARE,
            ),
            ready: Ready::new(config.coalesce_threshold),
            awaited: AwaitedReplies::default(),
            terms: local_terms(config, &peers, rules.ours),
            stats: WorkerStats::default(),
            message_sizes: Histogram::default(),
        };
        let services = services(config, &peers, requests, rules);
        let keepalive = Keepalive::new(config.keepalive_s);
        let (events, leaving) = (VecDeque::new(), LeavingPeers::default());
        Ok(Self { core, peers, services, wireup, keepalive, events, leaving })
    }
}

/// Premises for an endpoint, where none has left any.
fn create_premises<L: Link>(engine: &mut Engine<L>, config: &Config, queues: ReceiveQueues, slots: usize) -> Premises {
    let (cq, shared) = create_queues(engine, &queues, slots);
    let pools = pools(&queues, config, usize::MAX);
    Premises { cq, receives: ReceiveBuffers::new(queues, pools, shared), free_ports: Vec::new() }
}

/// An empty pool for each receive queue, of at most so many vbufs.
fn pools(queues: &ReceiveQueues, config: &Config, limit: usize) -> Vec<Pool> {
    queues.iter().map(|queue| Pool::new(queue.size, config.vbuf_secondary_pool, limit)).collect()
}

/// Ends that share what an end without a job registers for its peers.
const STRANGERS: usize = 17;

fn services(config: &Config, peers: &Peers, requests: Requests, rules: Rules) -> Services {
    // M is for all peers together: for the ranks of a job, or for so many that come by their addresses.
    let ends = if peers.may_strangers_come() { STRANGERS } else { peers.slots() };
    let staging = Staging::new(config.pipeline_chunk, config.pipeline_depth);
    let tag = TagService::new((peers.oneself(), peers.slots()), requests, rules, staging, config.buffered_limit);
    Services {
        tag,
        stream: StreamService::default(),
        rma: RmaService::new(config.rdma_gets, config.firehose_limits(ends)),
        am: AmService::default(),
    }
}

/// What this end says of itself. Peers know a rank by its number; who is none has an address.
fn local_terms(config: &Config, peers: &Peers, capabilities: Capabilities) -> LocalTerms {
    let rank = if peers.may_strangers_come() { NO_RANK } else { LocalTerms::rank_of(peers.oneself()) };
    LocalTerms { rank, capabilities, notify: config.credit_notify_threshold, preserve: config.credit_preserve }
}

/// The completion queue, and the receive queues that all peers share.
fn create_queues<L: Link>(
    engine: &mut Engine<L>,
    queues: &ReceiveQueues,
    size: usize,
) -> (CompletionQueue, Vec<Option<SharedReceiveBuffers>>) {
    let cq = engine.create_cq(completions_of(queues, size));
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
fn plans(params: QpParams, receives: &ReceiveBuffers) -> Vec<LanePlan> {
    let plan = |(lane, queue): (usize, &ReceiveQueue)| {
        let mut params = params.clone();
        params.rq_depth = match queue.kind {
            Kind::PerPeer { num, reserve, .. } => (num + reserve) as usize + 1,
            Kind::Shared { .. } => 1,
        };
        let srq = receives.srq(lane);
        // Where a message costs a credit there is a receive for it: a peer that has none is broken. Receives that are
        // shared may run out, and then the peer comes again.
        params.rnr_retry_limit = if srq.is_some() { FOR_EVER } else { Some(0) };
        LanePlan { params, srq }
    };
    receives.queues.iter().enumerate().map(plan).collect()
}
