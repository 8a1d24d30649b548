//! The worker: what an application holds.

pub(crate) mod closing;
pub(crate) mod departures;
pub mod ports;
pub(crate) mod protocols;
pub(crate) mod report;
pub(crate) mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use hashbrown::HashMap;
use roci_driver::link::Link;
use roci_driver::{
    AdoptError, ArenaError, Buffer, CompletionQueue, Engine, EngineStats, PdId, QueuePair, RegistrationInfo,
    RegistrationStats, UserMemory,
};
use thiserror::Error;

use crate::Rank;
use crate::backoff::{Backoff, Idle, Limits};
use crate::config::{Config, Demand, UNEXPECTED_SHARE};
use crate::core::keepalive::Keepalive;
use crate::core::peer::{Endpoint, SEND_QUEUE};
use crate::core::receives::Shared;
use crate::core::stats::WorkerStats;
use crate::core::vbuf::Pool;
use crate::endpoint::failure::WorkerEvent;
use crate::endpoint::wireup::{self, LanePlan, Wireup};
use crate::receive_queues::{Kind, ReceiveQueues};
use crate::services::tag::eager::{Body, Series};
use crate::services::tag::matching::Matching;
use crate::services::tag::rendezvous::Staging;
use crate::services::tag::request::{OpError, Request};
use crate::services::tag::requests::Requests;
use crate::services::tag::select::Rules;
use crate::worker::departures::Departures;
use crate::worker::ports::{LiveLink, Ports, WireupError, join, queue_pair_params};
use crate::worker::report::Awaited;
use roci_launcher::{Job, Mail};

/// The longest message: one RDMA READ fetches it.
pub(crate) const MAX_MESSAGE: usize = 1 << 31;
/// Messages that nobody has asked for are held back where less than this part of the arena is free: the application must
/// be able to receive them.
const FLOOR_SHARE: usize = 16;
/// Retries where receives are shared: a peer comes again until there is one.
const FOR_EVER: Option<u32> = None;

/// One rank's end of all its conversations.
pub struct Worker<L: Link = LiveLink> {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) engine: Engine<L>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    /// By rank; none for itself, nor for peers that nobody has spoken to.
    pub(crate) endpoints: Vec<Option<Box<Endpoint>>>,
    /// The rank and lane of a queue pair.
    pub(crate) places: HashMap<QueuePair, (Rank, usize)>,
    pub(crate) matching: Matching<Request, Body>,
    /// Eager messages whose vbufs have not all come, by sender and its name for them.
    pub(crate) series: BTreeMap<(Rank, u64), Series>,
    /// Messages that a probe has claimed.
    pub(crate) claimed: HashMap<u64, (crate::services::tag::matching::Label, Body)>,
    pub(crate) requests: Requests,
    pub(crate) queues: ReceiveQueues,
    /// By lane.
    pub(crate) shared: Vec<Option<Shared>>,
    pub(crate) receive_pools: Vec<Pool>,
    pub(crate) send_pools: Vec<Pool>,
    pub(crate) rules: Rules,
    pub(crate) notify: u16,
    pub(crate) preserve: u16,
    pub(crate) unexpected_limit: usize,
    /// With less memory than this no message is kept without a credit being kept back for it.
    pub(crate) memory_floor: usize,
    /// Credits are kept back until unexpected messages take less memory.
    pub(crate) is_withholding: bool,
    /// Somebody waits for a send buffer.
    pub(crate) vbufs_are_exhausted: bool,
    /// Somewhere a receive lacks a vbuf.
    pub(crate) receives_are_missing: bool,
    /// Memory open to peers, and how many pieces of it there may be.
    pub(crate) regions: usize,
    pub(crate) region_limit: usize,
    pub(crate) staging: Staging,
    pub(crate) pipeline_chunk: usize,
    pub(crate) pipeline_depth: usize,
    pub(crate) buffered_limit: usize,
    pub(crate) wireup: Wireup<L>,
    /// Peers that are gone, and those that have been connected or are gone.
    pub(crate) peers_gone: usize,
    pub(crate) peers_known: usize,
    pub(crate) departures: Departures,
    pub(crate) keepalive: Keepalive,
    pub(crate) events: VecDeque<WorkerEvent>,
    pub(crate) stats: WorkerStats,
    /// Calls of progress.
    pub(crate) calls: u32,
    /// When a wait last looked at what links do not tell.
    pub(crate) last_glance: Instant,
    pub(crate) limits: Limits,
    pub(crate) job: Option<Job>,
    pub(crate) mail: Option<Box<dyn Mail>>,
}

/// Why a call was not accepted.
#[derive(Debug, Error)]
pub enum CallError {
    /// No such rank.
    #[error("rank {rank} is not in this job of {size}")]
    NoRank {
        /// What was given.
        rank: Rank,
        /// How many there are.
        size: usize,
    },
    /// The message is longer than 2^31 bytes.
    #[error("a message of {0} bytes is longer than 2 GiB: send it in pieces")]
    TooLong(usize),
    /// Too many operations wait already.
    #[error("{0} operations wait already: wait for some of them first")]
    TooMany(usize),
    /// Too much waits in buffered sends.
    #[error("buffered sends hold {held} bytes already, and {asked} more exceed ROCI_BUFFERED_LIMIT")]
    BufferFull {
        /// What the call asked for.
        asked: usize,
        /// What waits.
        held: usize,
    },
    /// The message was received before, or is another worker's.
    #[error("no such message")]
    NoMessage,
    /// The arena is full.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// Memory of the application's cannot be used.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// The peer is gone.
    #[error(transparent)]
    Peer(#[from] OpError),
    /// The worker is the parent's.
    #[error(
        "this process was forked from the worker's, whose connections stay with that one: open a worker of its own"
    )]
    Forked,
}

/// What a worker gave up when it was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Sends that had not ended: those that were taken back because nobody received them, and those that failed.
    pub sends: usize,
    /// Receives that had met no message.
    pub receives: usize,
    /// Messages that nobody had asked for.
    pub unexpected: usize,
    /// Messages that a probe had claimed and nobody received.
    pub claimed: usize,
}

impl Worker {
    /// Opens this rank of the job that the process was started in, and connects it to all others where the
    /// configuration wants that at the start.
    pub fn open(config: &Config) -> Result<Self, WireupError> {
        Self::open_job(config, join(config)?)
    }

    /// Opens this rank of `job`.
    pub fn open_job(config: &Config, job: Job) -> Result<Self, WireupError> {
        let mut worker = Self::assemble(Ports::open(config, job)?, config)?;
        if config.wireup == crate::config::WireupTime::Static {
            worker.connect_all()?;
        }
        // Peers may still need an acknowledgement of ours, so this one makes progress.
        worker.barrier()?;
        Ok(worker)
    }

    /// Connects this rank to all others, which must do so too or make progress meanwhile.
    pub fn connect_all(&mut self) -> Result<(), WireupError> {
        let peers: Vec<Rank> = (0..self.size).filter(|&peer| peer != self.rank).collect();
        for &peer in &peers {
            self.ensure_endpoint(peer);
            self.ensure_connecting(peer);
        }
        let mut backoff = Backoff::new(self.limits);
        while let Some(&peer) = peers.iter().find(|&&peer| !self.is_connected(peer)) {
            if let Some(failure) = self.endpoints[peer].as_deref().and_then(|endpoint| endpoint.failure.clone()) {
                return Err(failure.into());
            }
            if self.progress() {
                backoff.reset();
                continue;
            }
            let idle = backoff.idle();
            self.report_if_due(&mut backoff, Awaited::Connections);
            if idle == Idle::Doubt {
                self.job.as_mut().map_or(Ok(()), Job::check_all_present)?;
            }
        }
        Ok(())
    }
}

impl<L: Link> Worker<L> {
    /// A worker on open ports. Its connections are made when they are needed, or by [`Worker::connect`].
    pub fn assemble(mut ports: Ports<L>, config: &Config) -> Result<Self, WireupError> {
        let (rank, size) = (ports.rank, ports.size);
        let memory = ports.engine.arena().free_bytes();
        config.check()?;
        if size > 1 {
            Demand::of(config, size, memory).check()?;
        }
        let queues = config.receive_queues();
        let (cq, shared) = create_queues(&mut ports.engine, &queues, size);
        let plans = plans(config, &queues, &shared);
        let wireup = wireup::open(config, &mut ports, plans, cq).map_err(WireupError::Method)?;
        let Ports { mut engine, pd, job, mail, .. } = ports;
        engine.configure_registration(config.registration())?;
        let pool = |limit: usize| {
            let of_queue =
                |queue: &crate::receive_queues::ReceiveQueue| Pool::new(queue.size, config.vbuf_secondary_pool, limit);
            queues.iter().map(of_queue).collect::<Vec<_>>()
        };
        let mut worker = Self {
            rank,
            size,
            pd,
            cq,
            endpoints: (0..size).map(|_| None).collect(),
            places: HashMap::new(),
            matching: Matching::default(),
            series: BTreeMap::new(),
            claimed: HashMap::new(),
            requests: if mail.is_some() { Requests::of_rank(rank) } else { Requests::default() },
            shared,
            receive_pools: pool(usize::MAX),
            send_pools: pool(config.vbuf_max),
            queues,
            rules: config.rules(),
            notify: config.credit_notify_threshold,
            preserve: config.credit_preserve,
            unexpected_limit: config.unexpected_limit.min(memory / UNEXPECTED_SHARE),
            memory_floor: memory / FLOOR_SHARE,
            is_withholding: false,
            vbufs_are_exhausted: false,
            receives_are_missing: false,
            regions: 0,
            region_limit: config.ndreg_entries,
            staging: Staging::default(),
            pipeline_chunk: config.pipeline_chunk,
            pipeline_depth: config.pipeline_depth,
            buffered_limit: config.buffered_limit,
            wireup,
            peers_gone: 0,
            peers_known: 0,
            departures: Departures::default(),
            keepalive: Keepalive::new(config.keepalive_s),
            events: VecDeque::new(),
            stats: WorkerStats::default(),
            calls: 0,
            last_glance: Instant::now(),
            limits: Limits::new(config, size, job.as_ref().map_or(size, Job::cpus)),
            job,
            mail,
            engine,
        };
        if size > 1 {
            worker.provide(config)?;
        }
        Ok(worker)
    }

    /// Makes what is there from the start.
    fn provide(&mut self, config: &Config) -> Result<(), WireupError> {
        for pool in &mut self.send_pools {
            if !pool.provide(&self.engine, config.vbuf_pool.min(config.vbuf_max)) {
                // The arena's own words say what is missing.
                self.engine.buffer(pool.size())?;
            }
        }
        self.post_shared();
        if self.rules.ours.rdma {
            self.provide_staging()?;
        }
        Ok(())
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Memory for messages, returned to the arena when dropped.
    pub fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
        self.engine.buffer(len)
    }

    /// Makes a buffer of the application's own memory, which every call takes like one of [`Worker::buffer`]'s, and which
    /// comes back in the same way. See [`Engine::adopt`].
    pub fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, AdoptError> {
        self.engine.adopt(memory)
    }

    /// Whether this process was forked from the one that opened the worker. Then nothing is sent or received here, and
    /// calls end with an error that says so; see [`Engine::is_forked`].
    pub fn is_forked(&self) -> bool {
        self.engine.is_forked()
    }

    /// The counters of the application's memory.
    pub fn registration_stats(&self) -> RegistrationStats {
        self.engine.registration_stats()
    }

    /// Who watches the application's memory, and why not.
    pub fn registration_info(&self) -> RegistrationInfo {
        self.engine.registration_info()
    }

    /// The time of the ports' clock in nanoseconds: cheap, monotonic, with an origin of its own.
    pub fn now(&self) -> u64 {
        self.engine.now()
    }

    /// The worker's counters.
    pub fn stats(&self) -> WorkerStats {
        let mut stats = self.stats;
        stats.vbufs = self.receive_pools.iter().chain(&self.send_pools).map(|pool| pool.made() as u64).sum();
        stats
    }

    /// The engine's counters.
    pub fn engine_stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// Faults that were injected on all ports.
    pub fn injected_faults(&self) -> u64 {
        (0..self.engine.port_count()).map(|port| self.engine.link_stats(port).injected_faults).sum()
    }

    /// Bytes of receive buffers that are posted for one peer alone; 0 where it is not connected.
    pub fn receive_bytes_of(&self, rank: Rank) -> usize {
        self.endpoints.get(rank).and_then(Option::as_deref).map_or(0, Endpoint::receive_bytes)
    }

    /// Memory that messages take which nobody has asked for.
    pub fn unexpected_bytes(&self) -> usize {
        self.matching.unexpected_bytes()
    }

    /// Free bytes of the arena.
    pub fn free_bytes(&self) -> usize {
        self.engine.arena().free_bytes()
    }

    /// The peer, or why it cannot be talked to.
    #[inline]
    pub(crate) fn endpoint_or_error(&mut self, rank: Rank) -> Result<&mut Endpoint, CallError> {
        if rank >= self.size || rank == self.rank {
            return Err(CallError::NoRank { rank, size: self.size });
        }
        if self.engine.is_forked() {
            return Err(CallError::Forked);
        }
        self.ensure_endpoint(rank);
        let endpoint = self.endpoints[rank].as_deref_mut().expect("it was just made");
        match &endpoint.failure {
            Some(failure) => Err(failure.clone().into()),
            None => Ok(endpoint),
        }
    }

    pub(crate) fn ensure_endpoint(&mut self, rank: Rank) {
        if self.endpoints[rank].is_none() {
            self.endpoints[rank] = Some(Box::new(Endpoint::new()));
        }
    }
}

/// The completion queue, and the receive queues that all peers share.
fn create_queues<L: Link>(
    engine: &mut Engine<L>,
    queues: &ReceiveQueues,
    size: usize,
) -> (CompletionQueue, Vec<Option<Shared>>) {
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
            Some(Shared { srq: engine.create_srq(num as usize, cq), goal: init as usize })
        }
    });
    let shared = shared.collect();
    (cq, shared)
}

/// How the queue pair of each lane is made.
fn plans(config: &Config, queues: &ReceiveQueues, shared: &[Option<Shared>]) -> Vec<LanePlan> {
    let plan = |(queue, shared): (&crate::receive_queues::ReceiveQueue, &Option<Shared>)| {
        let mut params = queue_pair_params(config);
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
