//! The worker: what an application holds.

use roci_driver::link::Link;
use roci_driver::{ArenaError, Buffer, CompletionQueue, Engine, EngineStats, PdId};
use thiserror::Error;

use crate::backoff::{Backoff, Limits};
use crate::config::Config;
use crate::credit::RESERVE;
use crate::endpoint::{Endpoint, OUTGOING_LIMIT, Outgoing};
use crate::job::{Job, JobError};
use crate::matching::{Matching, Posted};
use crate::request::{Done, OpError, Operation, Request, Requests};
use crate::select::Thresholds;
use crate::stats::WorkerStats;
use crate::wireup::{Fabric, LiveLink, WireupError, join};
use crate::{Rank, Source, Tag, TagMatch};

/// The longest message: one RDMA READ fetches it.
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;
/// Send buffers of a worker, for each peer; more messages than that wait.
const SEND_VBUFS_PER_PEER: usize = 64;
/// Sleeps of a wait between two questions whether the job goes on.
const JOB_CHECKS: u32 = 64;

/// One rank's end of all its conversations.
pub struct Worker<L: Link = LiveLink> {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) engine: Engine<L>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    /// By rank; none for itself.
    pub(crate) endpoints: Vec<Option<Endpoint>>,
    pub(crate) matching: Matching,
    pub(crate) requests: Requests,
    /// Free send buffers.
    pub(crate) vbufs: Vec<Buffer>,
    pub(crate) thresholds: Thresholds,
    pub(crate) unexpected_limit: usize,
    /// Credits are kept back until unexpected messages take less memory.
    pub(crate) is_withholding: bool,
    /// Somebody waits for a send buffer.
    pub(crate) vbufs_are_exhausted: bool,
    /// A message waits for a key.
    pub(crate) keys_are_exhausted: bool,
    pub(crate) stats: WorkerStats,
    limits: Limits,
    job: Option<Job>,
    job_checks: u32,
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
    /// The arena is full.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The peer is gone.
    #[error(transparent)]
    Peer(#[from] OpError),
}

impl Worker {
    /// Connects this rank of the job that the process was started in to all others.
    pub fn open(config: &Config) -> Result<Self, WireupError> {
        let job = join(config)?;
        let fabric = Fabric::connect(config, job)?;
        let mut worker = Self::assemble(fabric, config)?;
        worker.job.as_mut().map_or(Ok(()), Job::barrier)?;
        Ok(worker)
    }
}

impl<L: Link> Worker<L> {
    /// A worker over queue pairs that are connected; its receives are posted when this returns.
    pub fn assemble(fabric: Fabric<L>, config: &Config) -> Result<Self, ArenaError> {
        let Fabric { rank, size, engine, pd, cq, queue_pairs, job } = fabric;
        let to_endpoint = |qp: Option<_>| qp.map(|qp| Endpoint::new(qp, config.credits));
        let mut worker = Self {
            rank,
            size,
            engine,
            pd,
            cq,
            endpoints: queue_pairs.into_iter().map(to_endpoint).collect(),
            matching: Matching::default(),
            requests: Requests::default(),
            vbufs: Vec::new(),
            thresholds: Thresholds {
                eager: config.eager_threshold,
                vbuf_payload: config.vbuf_size - roci_protocol::msg::LEN,
            },
            unexpected_limit: config.unexpected_limit,
            is_withholding: false,
            vbufs_are_exhausted: false,
            keys_are_exhausted: false,
            stats: WorkerStats::default(),
            limits: Limits::new(config, size, job.as_ref().map_or(size, Job::cpus)),
            job,
            job_checks: 0,
        };
        worker.post_vbufs(config)?;
        Ok(worker)
    }

    fn post_vbufs(&mut self, config: &Config) -> Result<(), ArenaError> {
        for rank in 0..self.size {
            let Some(endpoint) = &self.endpoints[rank] else { continue };
            for _ in 0..config.credits + RESERVE {
                let buffer = self.engine.buffer(config.vbuf_size)?;
                let posted = self.engine.post_recv(endpoint.qp, rank as u64, buffer);
                posted.expect("the receive queue holds credits and reserve");
            }
            for _ in 0..SEND_VBUFS_PER_PEER {
                self.vbufs.push(self.engine.buffer(config.vbuf_size)?);
            }
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

    /// Sends all of `payload` to rank `to`. The buffer returns when the request ends, which for a short message is
    /// at once and for a long one when the receiver has fetched it.
    pub fn send(&mut self, to: Rank, tag: Tag, payload: Buffer) -> Result<Request, CallError> {
        if payload.len() as u64 > MAX_MESSAGE {
            return Err(CallError::TooLong(payload.len()));
        }
        if to == self.rank {
            return self.send_to_self(tag, payload);
        }
        let endpoint = self.endpoint_mut(to)?;
        if endpoint.outgoing.len() >= OUTGOING_LIMIT {
            return Err(CallError::TooMany(OUTGOING_LIMIT));
        }
        let request = self.open_request(Operation::Queued { to })?;
        if let Ok(endpoint) = self.endpoint_mut(to) {
            endpoint.outgoing.push_back(Outgoing { request, tag, payload });
        }
        self.send_outgoing(to);
        Ok(request)
    }

    /// Sends a copy of `bytes`.
    pub fn send_bytes(&mut self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<Request, CallError> {
        let mut payload = self.buffer(bytes.len())?;
        payload.copy_from_slice(bytes);
        self.send(to, tag, payload)
    }

    /// Receives a message into `buffer`. A message that is longer ends the request with an error and leaves the
    /// buffer alone.
    pub fn recv(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: Buffer,
    ) -> Result<Request, CallError> {
        let source = source.into();
        if let Source::Rank(rank) = source
            && rank >= self.size
        {
            return Err(CallError::NoRank { rank, size: self.size });
        }
        let request = self.open_request(Operation::Waiting { buffer })?;
        let receive = Posted { source, tag: tag.into(), request };
        if let Some(message) = self.matching.take_unexpected(&receive) {
            self.deliver(request, message.source, message.tag, message.body);
            self.release_withheld();
        } else if let Some(error) = self.nobody_sends(source) {
            self.requests.end(request, Err(error));
        } else {
            self.matching.post(receive);
        }
        Ok(request)
    }

    /// The outcome of a request that is over, or `None` while it is not. Does not make progress.
    pub fn test(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        self.requests.close(request)
    }

    /// Waits until a request is over.
    pub fn wait(&mut self, request: Request) -> Result<Done, OpError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(outcome) = self.requests.close(request) {
                return outcome;
            }
            self.progress_or_idle(&mut backoff)?;
        }
    }

    /// Waits until all requests are over; of several errors the first is returned.
    pub fn wait_all(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Done>, OpError> {
        let outcomes: Vec<_> = requests.into_iter().map(|request| self.wait(request)).collect();
        outcomes.into_iter().collect()
    }

    /// Waits until every rank has called this. Messages sent before may still be under way.
    pub fn barrier(&mut self) -> Result<(), OpError> {
        let ended = |error: JobError| OpError::Job(error.to_string());
        let Some(job) = &mut self.job else { return Ok(()) };
        job.start_barrier().map_err(ended)?;
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(job) = &mut self.job
                && job.poll_barrier().map_err(ended)?
            {
                return Ok(());
            }
            if self.progress() {
                backoff.reset();
            } else {
                backoff.idle();
            }
        }
    }

    /// Waits until everything that was sent has arrived, at every rank, and ends the worker.
    pub fn close(mut self) -> Result<(), OpError> {
        let mut backoff = Backoff::new(self.limits);
        while self.requests.has_sends() || !self.endpoints.iter().flatten().all(Endpoint::is_quiet) {
            self.progress_or_idle(&mut backoff)?;
        }
        // Peers may still need an acknowledgement of ours: the barrier keeps polling until nobody does.
        self.barrier()
    }

    /// The time of the ports' clock in nanoseconds: cheap, monotonic, with an origin of its own.
    pub fn now(&self) -> u64 {
        self.engine.now()
    }

    /// The worker's counters.
    pub fn stats(&self) -> WorkerStats {
        self.stats
    }

    /// The engine's counters.
    pub fn engine_stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// Faults that were injected on all ports.
    pub fn injected_faults(&self) -> u64 {
        (0..self.engine.port_count()).map(|port| self.engine.link_stats(port).injected_faults).sum()
    }

    fn progress_or_idle(&mut self, backoff: &mut Backoff) -> Result<(), OpError> {
        if self.progress() {
            backoff.reset();
        } else if backoff.idle() {
            self.check_job()?;
        }
        Ok(())
    }

    /// A rank whose job has failed must not wait for ever.
    fn check_job(&mut self) -> Result<(), OpError> {
        self.job_checks += 1;
        match &mut self.job {
            Some(job) if self.job_checks.is_multiple_of(JOB_CHECKS) => {
                job.check().map_err(|error| OpError::Job(error.to_string()))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn endpoint_mut(&mut self, rank: Rank) -> Result<&mut Endpoint, CallError> {
        let size = self.size;
        let endpoint = self.endpoints.get_mut(rank).and_then(Option::as_mut);
        let endpoint = endpoint.ok_or(CallError::NoRank { rank, size })?;
        match &endpoint.failure {
            Some(failure) => Err(failure.clone().into()),
            None => Ok(endpoint),
        }
    }

    fn open_request(&mut self, operation: Operation) -> Result<Request, CallError> {
        self.requests.open(operation).ok_or(CallError::TooMany(1 << 20))
    }

    /// Why a receive from `source` can never be met.
    fn nobody_sends(&self, source: Source) -> Option<OpError> {
        match source {
            Source::Rank(rank) => self.endpoints[rank].as_ref().and_then(|endpoint| endpoint.failure.clone()),
            Source::Any if self.size > 1 && self.endpoints.iter().flatten().all(|peer| peer.failure.is_some()) => {
                Some(OpError::NobodyLeft)
            }
            Source::Any => None,
        }
    }
}
