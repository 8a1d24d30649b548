//! The worker: what an application holds.

pub mod active;
pub(crate) mod alone;
pub(crate) mod closing;
pub(crate) mod departures;
pub(crate) mod domain;
pub(crate) mod fabric;
pub(crate) mod flush;
mod live_link;
mod local_means;
pub(crate) mod messages;
pub mod one_sided;
pub(crate) mod others;
pub mod ports;
pub(crate) mod protocols;
mod publishing;
pub(crate) mod report;
pub mod stream;
mod unrung;
pub(crate) mod waiting;
pub(crate) mod wireup_error;

use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_driver::{AdoptError, ArenaError, Buffer, EngineStats, RegistrationInfo, RegistrationStats, UserMemory};
use roci_launcher::{Job, Mail};
use static_assertions::assert_impl_all;

use crate::Rank;
use crate::backoff::{Backoff, BackoffLimits, Idle};
use crate::config::{Config, Demand, WireupTime};
use crate::core::credits::CreditAccount;
use crate::core::lane::Lane;
use crate::core::no_connection::NoConnection;
use crate::core::peer_id::PeerId;
use crate::core::refused::CallError;
use crate::core::stats::WorkerStats;
use crate::core::vbuf::Pool;
use crate::endpoint::failure::EndpointEvent;
use crate::endpoint::invariants::InvariantViolation;
use crate::endpoint::wireup::OutgoingText;
use crate::endpoint::{Endpoint, Identity, Neighbourhood, Parts};
use crate::published::StatsWriter;
use crate::services::tag::requests::Requests;

use departures::Departures;
use others::Others;
use ports::{LiveLink, Ports, join, queue_pair_params};
use report::Awaited;
use unrung::UnrungSends;
use wireup_error::WireupError;

/// One end of all its conversations: an endpoint, and the rules of the job where it is a rank of one. A worker alone
/// ([`Worker::open_alone`]) is rank 0 of no job; its peers are named by their addresses.
///
/// One thread uses it at a time; it may move to another one, or be behind a lock that several take.
///
/// It makes progress inside its calls and its links have no descriptors, so there is none to sleep on: who wants to sleep until
/// something comes takes a [`DedicatedWorker`](crate::DedicatedWorker).
pub struct Worker<L: Link = LiveLink> {
    rank: Rank,
    size: usize,
    pub(crate) endpoint: Endpoint<L>,
    /// Those of the same domain.
    others: Others<L>,
    pub(crate) job: Option<Job>,
    /// What carries texts between ranks, where there is no job.
    mail: Option<Box<dyn Mail>>,
    departures: Departures,
    unrung: UnrungSends,
    limits: BackoffLimits,
    /// How long it waits for its peers where it is dropped; none once it was closed or aborted.
    linger: Option<Duration>,
    /// When a wait last looked at what links do not show.
    last_glance: Instant,
    /// What other processes see of it.
    published: Option<Box<StatsWriter>>,
}

// Several threads may share a worker behind a lock.
assert_impl_all!(Worker: Send);

/// What a worker gave up when it was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Sends that had not ended: those that were taken back because they were not received, and those that failed.
    pub sends: usize,
    /// Receives that waited for a message: those that had met none, and multi-receives, each as one, whatever they had taken.
    pub receives: usize,
    /// Unexpected messages.
    pub unexpected: usize,
    /// Messages that a probe had claimed and that were not received.
    pub claimed: usize,
    /// Payloads of streams that were being put.
    pub payloads: usize,
    /// One-sided operations, and requests of active messages, that had not ended.
    pub operations: usize,
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
        worker.publish(config);
        if config.wireup == WireupTime::Static {
            worker.connect_all()?;
        }
        // Peers may still need an acknowledgement of ours, so this one makes progress.
        worker.barrier()?;
        Ok(worker)
    }

    /// Connects this rank to all others, which must do so too or make progress meanwhile.
    pub fn connect_all(&mut self) -> Result<(), WireupError> {
        let peers: Vec<PeerId> = self.endpoint.peers.ids().collect();
        for &peer in &peers {
            self.endpoint.peers.entry(peer);
            self.endpoint.ensure_connecting(peer);
        }
        self.carry_mail();
        let mut backoff = Backoff::new(self.limits);
        while let Some(&peer) = peers.iter().find(|&&peer| !self.is_connected(peer)) {
            if let Some(failure) = self.endpoint.peers.get(peer).and_then(|peer| peer.failure.clone()) {
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
    pub fn assemble(ports: Ports<L>, config: &Config) -> Result<Self, WireupError> {
        let Ports { rank, size, engine, pd, is_shared, addresses, is_alone, local, job, mail } = ports;
        config.check()?;
        if size > 1 || is_alone {
            let ends = if is_alone { config.peers + 1 } else { size };
            Demand::of(config, ends, engine.arena().free_bytes()).check()?;
        }
        // What is simulated has the same names in each run.
        let requests = match () {
            () if is_alone => Requests::numbered(addresses[0].incarnation as u32),
            () if mail.is_some() => Requests::numbered(rank as u32),
            () => Requests::default(),
        };
        let neighbourhood = if is_alone {
            Neighbourhood::Strangers(addresses[0])
        } else {
            Neighbourhood::Ranks { oneself: rank.into(), addresses }
        };
        let (is_shared_port, params) = (is_shared, queue_pair_params(config));
        let identity = Identity { neighbourhood, is_shared_port, local, params, requests };
        let mut endpoint = Endpoint::open(config, Parts { engine, pd, identity })?;
        endpoint.core.engine.configure_registration(config.registration())?;
        if size > 1 || is_alone {
            endpoint.provide(config)?;
        }
        Ok(Self {
            rank,
            size,
            endpoint,
            others: Others::default(),
            departures: Departures::default(),
            unrung: UnrungSends::default(),
            limits: BackoffLimits::new(config, size, job.as_ref().map_or(size, Job::cpus)),
            linger: job.is_some().then(|| Duration::from_millis(config.linger_ms)),
            last_glance: Instant::now(),
            published: None,
            job,
            mail,
        })
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How long it waits for its peers where it is dropped.
    pub(crate) fn linger(&self) -> Option<Duration> {
        self.linger
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Memory for messages, returned to the arena when dropped.
    pub fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
        self.endpoint.core.engine.buffer(len)
    }

    /// Makes a buffer of the application's own memory, which every call takes like one of [`Worker::buffer`]'s, and which
    /// comes back in the same way. See [`Engine::adopt`](roci_driver::Engine::adopt).
    pub fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, AdoptError> {
        self.endpoint.core.engine.adopt(memory)
    }

    /// Whether this process was forked from the one that opened the worker. Then nothing is sent or received here, and
    /// calls end with an error that says so; see [`Engine::is_forked`](roci_driver::Engine::is_forked).
    pub fn is_forked(&self) -> bool {
        self.endpoint.is_forked()
    }

    /// Does what can be done now, without waiting; returns whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let mut happened = self.endpoint.progress();
        let is_look = self.endpoint.may_look_around();
        if is_look {
            happened |= self.look_around(!happened);
        }
        if !self.others.parked.is_empty() {
            happened |= self.progress_others(is_look);
        }
        happened
    }

    /// How many calls have made progress, in a number that begins again at 0.
    pub fn progress_calls(&self) -> u32 {
        self.endpoint.calls()
    }

    /// Begins to connect to a peer, which the first message would do too. [`WorkerEvent::Connected`] says when it is done.
    ///
    /// [`WorkerEvent::Connected`]: crate::WorkerEvent::Connected
    pub fn connect(&mut self, peer: impl Into<PeerId>) -> Result<(), CallError> {
        let begun = self.endpoint.connect(peer.into());
        self.carry_mail();
        begun
    }

    /// Whether messages to a peer leave at once. Does not make progress: see [`Worker::progress`].
    pub fn is_connected(&self, peer: impl Into<PeerId>) -> bool {
        self.endpoint.is_connected(peer.into())
    }

    /// What has happened to the worker as a whole.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.endpoint.poll_event()
    }

    /// The counters of the application's memory.
    pub fn registration_stats(&self) -> RegistrationStats {
        self.endpoint.core.engine.registration_stats()
    }

    /// Who watches the application's memory, and why not.
    pub fn registration_info(&self) -> RegistrationInfo {
        self.endpoint.core.engine.registration_info()
    }

    /// The time of the ports' clock in nanoseconds: cheap, monotonic, with an origin of its own.
    pub fn now(&self) -> u64 {
        self.endpoint.core.engine.now()
    }

    /// The worker's counters.
    pub fn stats(&self) -> WorkerStats {
        let mut stats = self.endpoint.core.stats;
        stats.vbufs = self.pools().map(|pool| pool.made() as u64).sum();
        stats
    }

    /// The engine's counters.
    pub fn engine_stats(&self) -> EngineStats {
        self.endpoint.core.engine.stats()
    }

    /// Faults that were injected on all ports.
    pub fn injected_faults(&self) -> u64 {
        let engine = &self.endpoint.core.engine;
        (0..engine.port_count()).map(|port| engine.link_stats(port).injected_faults).sum()
    }

    /// Bytes of receive buffers that are posted for one peer alone; 0 where it is not connected.
    pub fn receive_bytes_of(&self, peer: impl Into<PeerId>) -> usize {
        self.endpoint.peers.get(peer.into()).map_or(0, |peer| peer.lanes.iter().map(Lane::receive_bytes).sum())
    }

    /// Returns the memory that messages without a receive take, claimed ones among them.
    pub fn unexpected_bytes(&self) -> usize {
        self.endpoint.services.tag.stored_bytes()
    }

    /// Free bytes of the arena.
    pub fn free_bytes(&self) -> usize {
        self.endpoint.core.free_bytes()
    }

    /// The credits of each receive queue of a connection; nothing where there is none.
    pub fn credits_of(&self, peer: impl Into<PeerId>) -> Vec<CreditAccount> {
        self.endpoint.credits_of(peer.into())
    }

    /// Bytes of the arena that the worker's own buffers for messages take, wherever those are.
    pub fn vbuf_bytes(&self) -> usize {
        self.pools().map(Pool::bytes).sum()
    }

    /// Verifies what this end can see of its own promises.
    ///
    /// # Errors
    /// The one that is broken.
    ///
    /// # Panics
    /// Where the engine breaks one of its own.
    pub fn check_invariants(&self) -> Result<(), InvariantViolation> {
        self.endpoint.check()
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.endpoint.core.receives.pools.iter().chain(&self.endpoint.core.send_pools)
    }

    /// As [`Worker::carry_mail`], behind a call that seldom leads to any.
    #[inline]
    pub(crate) fn carry_mail_if_any(&mut self) {
        if self.endpoint.wireup.has_mail() {
            self.carry_mail();
        }
    }

    /// Carries the texts of connections that are being made, over the job or what stands for it.
    pub(crate) fn carry_mail(&mut self) {
        if self.endpoint.peers.may_strangers_come() {
            // The application carries it.
            return;
        }
        while let Some(OutgoingText { to, text, .. }) = self.endpoint.wireup.next_mail() {
            let sent = match self.carrier() {
                Some(mail) => mail.send(to.slot(), &text).map_err(|error| NoConnection::NoMail(error.to_string())),
                None => Err(NoConnection::NoLauncher),
            };
            if let Err(why) = sent {
                self.endpoint.fail_mail(to, why);
            }
        }
    }

    /// Fetches the texts that have come; where no more can come, connections that are being made fail.
    fn fetch_mail(&mut self) {
        loop {
            match self.carrier().map(Mail::poll) {
                Some(Ok(Some((from, text)))) => self.endpoint.wireup.deliver_mail(from.into(), text),
                Some(Ok(None)) | None => return,
                Some(Err(error)) => return self.endpoint.fail_connecting(&NoConnection::NoMail(error.to_string())),
            }
        }
    }

    fn carrier(&mut self) -> Option<&mut dyn Mail> {
        match (&mut self.mail, &mut self.job) {
            (Some(mail), _) => Some(&mut **mail),
            (None, Some(job)) => Some(job),
            (None, None) => None,
        }
    }
}

impl Worker {
    /// The link of the first port, with what its device does and its counters; `None` where this rank is alone.
    pub fn link(&self) -> Option<&LiveLink> {
        (self.endpoint.core.engine.port_count() > 0).then(|| self.endpoint.core.engine.link(0))
    }
}
