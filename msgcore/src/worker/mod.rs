//! The worker: what an application holds.

pub(crate) mod closing;
pub(crate) mod departures;
pub mod ports;
pub(crate) mod protocols;
pub(crate) mod report;
pub mod stream;
pub(crate) mod waiting;

use std::time::Instant;

use roci_driver::link::Link;
use roci_driver::{AdoptError, ArenaError, Buffer, EngineStats, RegistrationInfo, RegistrationStats, UserMemory};
use roci_launcher::{Job, Mail};

use crate::backoff::{Backoff, Idle, Limits};
use crate::config::{Config, Demand, WireupTime};
use crate::core::completion::Envelope;
use crate::core::credits::CreditAccount;
use crate::core::lane::Lane;
use crate::core::refused::{CallError, Refused};
use crate::core::stats::WorkerStats;
use crate::core::vbuf::Pool;
use crate::endpoint::failure::EndpointEvent;
use crate::endpoint::invariants::InvariantViolation;
use crate::endpoint::{Endpoint, Parts};
use crate::services::tag::matching::Pattern;
use crate::services::tag::receive::Message;
use crate::services::tag::request::Request;
use crate::services::tag::requests::{LIMIT, Requests};
use crate::services::tag::send::SendOptions;
use crate::{Rank, Source, Tag, TagMatch};

use departures::Departures;
use ports::{LiveLink, Ports, WireupError, join, queue_pair_params};
use report::Awaited;

/// One rank's end of all its conversations: an endpoint whose peers have their ranks for slots, and the job's rules.
pub struct Worker<L: Link = LiveLink> {
    rank: Rank,
    size: usize,
    pub(crate) endpoint: Endpoint<L>,
    pub(crate) job: Option<Job>,
    /// What carries texts between ranks, where there is no job.
    mail: Option<Box<dyn Mail>>,
    departures: Departures,
    limits: Limits,
    /// When a wait last looked at what links do not show.
    last_glance: Instant,
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
    /// Payloads of streams that were being put.
    pub payloads: usize,
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
        if config.wireup == WireupTime::Static {
            worker.connect_all()?;
        }
        // Peers may still need an acknowledgement of ours, so this one makes progress.
        worker.barrier()?;
        Ok(worker)
    }

    /// Connects this rank to all others, which must do so too or make progress meanwhile.
    pub fn connect_all(&mut self) -> Result<(), WireupError> {
        let peers: Vec<Rank> = self.endpoint.peers.ids().collect();
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
        let Ports { rank, size, engine, pd, is_shared, hosts, job, mail } = ports;
        config.check()?;
        if size > 1 {
            Demand::of(config, size, engine.arena().free_bytes()).check()?;
        }
        let parts = Parts {
            engine,
            pd,
            oneself: rank,
            hosts,
            is_shared_port: is_shared,
            params: queue_pair_params(config),
            requests: if mail.is_some() { Requests::of_rank(rank) } else { Requests::default() },
        };
        let mut endpoint = Endpoint::open(config, parts)?;
        endpoint.core.engine.configure_registration(config.registration())?;
        if size > 1 {
            endpoint.provide(config)?;
        }
        Ok(Self {
            rank,
            size,
            endpoint,
            departures: Departures::default(),
            limits: Limits::new(config, size, job.as_ref().map_or(size, Job::cpus)),
            last_glance: Instant::now(),
            job,
            mail,
        })
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
        if self.endpoint.may_look_around() {
            happened |= self.look_around(!happened);
        }
        happened
    }

    /// Begins to connect to a peer, which the first message would do too. [`WorkerEvent::Connected`] says when it is done.
    ///
    /// [`WorkerEvent::Connected`]: crate::WorkerEvent::Connected
    pub fn connect(&mut self, rank: Rank) -> Result<(), CallError> {
        let begun = self.endpoint.connect(rank);
        self.carry_mail();
        begun
    }

    /// Whether messages to a peer leave at once. Does not make progress: see [`Worker::progress`].
    pub fn is_connected(&self, rank: Rank) -> bool {
        self.endpoint.is_connected(rank)
    }

    /// Sends all of `payload` to rank `to`. The buffer returns when the request ends, which for a short message is
    /// at once and for a long one when the receiver has it, or with the refusal.
    #[inline]
    pub fn send(&mut self, to: Rank, tag: Tag, payload: Buffer) -> Result<Request, Refused<Buffer>> {
        self.send_with(to, tag, payload, SendOptions::default())
    }

    /// Sends a copy of `bytes`.
    pub fn send_bytes(&mut self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<Request, CallError> {
        let payload = self.endpoint.core.copy_of(bytes)?;
        Ok(self.send(to, tag, payload)?)
    }

    /// Sends in another mode or context.
    #[inline]
    pub fn send_with(
        &mut self,
        to: Rank,
        tag: Tag,
        payload: Buffer,
        options: SendOptions,
    ) -> Result<Request, Refused<Buffer>> {
        let Some(request) = self.mint() else { return Err(Refused::new(CallError::TooMany(LIMIT), payload)) };
        let begun = self.begin_send(request, (to, tag), payload, options);
        self.named(request, begun)
    }

    /// Sends a copy of `bytes` (`MPI_Ibsend`). What waits in such copies is bounded by `buffered_limit`. The request may be
    /// waited for, taken back, or left alone with [`Worker::detach`] (`MPI_Bsend`).
    pub fn send_buffered(
        &mut self,
        to: Rank,
        tag: Tag,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<Request, CallError> {
        self.endpoint.services.tag.check_buffered(bytes.len())?;
        let payload = self.endpoint.core.copy_of(bytes)?;
        let request = self.send_with(to, tag, payload, options.buffered())?;
        self.endpoint.services.tag.requests.note_buffered(request, bytes.len());
        Ok(request)
    }

    /// Leaves an operation alone, whose outcome will not be asked for (`MPI_Request_free`). It goes on, and its memory returns
    /// to the arena when it ends; that its peer is gone is an event alone ([`Worker::poll_event`]).
    pub fn detach(&mut self, request: Request) {
        if !self.is_forked() {
            self.endpoint.services.tag.requests.detach(request);
        }
    }

    /// As [`Worker::send_with`], under a name that is made elsewhere.
    #[inline]
    pub(crate) fn begin_send(
        &mut self,
        request: Request,
        to: (Rank, Tag),
        payload: Buffer,
        options: SendOptions,
    ) -> Result<(), Refused<Buffer>> {
        let begun = self.endpoint.send(request, to, payload, options);
        if self.endpoint.wireup.has_mail() {
            self.carry_mail();
        }
        begun
    }

    /// Makes a name for a request; `None` where too many are under way.
    #[inline]
    fn mint(&mut self) -> Option<Request> {
        self.endpoint.services.tag.requests.mint()
    }

    /// Returns the name of what has begun, or takes it back.
    #[inline]
    fn named<T>(&mut self, request: Request, begun: Result<(), Refused<T>>) -> Result<Request, Refused<T>> {
        match begun {
            Ok(()) => Ok(request),
            Err(refused) => {
                self.endpoint.services.tag.requests.release(request);
                Err(refused)
            }
        }
    }

    /// Receives a message into `buffer`. A message that is longer ends the request with an error that says what
    /// it was and has the buffer ([`OpError::Truncated`](crate::OpError::Truncated)).
    #[inline]
    pub fn recv(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: Buffer,
    ) -> Result<Request, Refused<Buffer>> {
        self.recv_with(Pattern::new(source, tag), buffer)
    }

    /// Receives a message of any context into `buffer`.
    #[inline]
    pub fn recv_with(&mut self, pattern: Pattern, buffer: Buffer) -> Result<Request, Refused<Buffer>> {
        let Some(request) = self.mint() else { return Err(Refused::new(CallError::TooMany(LIMIT), buffer)) };
        let begun = self.endpoint.recv(request, pattern, Some(buffer));
        self.named(request, begun).map_err(|Refused { why, given }| {
            let Some(buffer) = given else { unreachable!("a refusal hands back what it was given") };
            Refused::new(why, buffer)
        })
    }

    /// Receives a message in memory of the worker's: the vbuf that it came in, where it came in one, so that it is not
    /// copied. The memory is the application's from then on; [`Worker::give_back`] spares the worker making another.
    pub fn recv_lent(&mut self, pattern: Pattern) -> Result<Request, CallError> {
        let request = self.mint().ok_or(CallError::TooMany(LIMIT))?;
        let begun = self.endpoint.recv(request, pattern, None);
        Ok(self.named(request, begun)?)
    }

    /// Receives a message that was claimed (`MPI_Imrecv`). Where the call is refused the message stays claimed, and comes
    /// back with the buffer.
    pub fn recv_message(&mut self, message: Message, buffer: Buffer) -> Result<Request, Refused<(Message, Buffer)>> {
        let Some(request) = self.mint() else {
            return Err(Refused::new(CallError::TooMany(LIMIT), (message, buffer)));
        };
        let begun = self.endpoint.recv_message(request, message, buffer);
        self.named(request, begun)
    }

    /// Gives memory back that was lent, or any other that is not needed any more. The application's own is only dropped.
    pub fn give_back(&mut self, mut buffer: Buffer) {
        if buffer.is_users() {
            return;
        }
        buffer.reset();
        let pools = &mut self.endpoint.core.receives.pools;
        match pools.iter().position(|pool| pool.is_its_own(buffer.capacity())) {
            Some(lane) => {
                pools[lane].adopt();
                self.endpoint.core.give_receive_vbuf(lane, buffer);
                self.endpoint.settle();
            }
            None => drop(buffer),
        }
    }

    /// Whether a message that such a receive would take has come (`MPI_Iprobe`). Where none is there it looks once at what
    /// comes in, as [`Worker::progress`] does, so that who asks again and again will see one.
    pub fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        self.look_twice(|worker| worker.endpoint.peek(&pattern))
    }

    /// Waits until a message that such a receive would take has come (`MPI_Probe`).
    pub fn wait_probe(&mut self, pattern: Pattern) -> Result<Envelope, CallError> {
        self.wait_for(pattern, |worker| worker.endpoint.peek(&pattern))
    }

    /// Claims the message that such a receive would take, if one has come (`MPI_Improbe`). It looks as
    /// [`Worker::probe`] does.
    pub fn claim(&mut self, pattern: Pattern) -> Option<Message> {
        self.look_twice(|worker| worker.endpoint.claim(&pattern))
    }

    /// Waits until a message that such a receive would take has come, and claims it (`MPI_Mprobe`).
    pub fn wait_claim(&mut self, pattern: Pattern) -> Result<Message, CallError> {
        self.wait_for(pattern, |worker| worker.endpoint.claim(&pattern))
    }

    /// Takes an operation back, if it has met nothing yet. The request must still be waited for: it ends with
    /// [`Done::is_cancelled`](crate::Done::is_cancelled) where that was in time, and as if nobody had asked where it was
    /// not.
    pub fn cancel(&mut self, request: Request) {
        // In a forked child waiting for it says so.
        if !self.is_forked() {
            self.endpoint.cancel(request);
        }
    }

    /// Before and after what comes in. Nothing does where the worker is the parent's.
    fn look_twice<T>(&mut self, look: impl Fn(&mut Self) -> Option<T>) -> Option<T> {
        look(self).or_else(|| {
            if !self.is_forked() {
                self.progress();
            }
            look(self)
        })
    }

    fn wait_for<T>(&mut self, pattern: Pattern, look: impl Fn(&mut Self) -> Option<T>) -> Result<T, CallError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(found) = self.look_for(pattern, &look)? {
                return Ok(found);
            }
            self.progress_or_idle(&mut backoff, Awaited::Message(&pattern))?;
        }
    }

    /// Looks for a message that a probe waits for.
    ///
    /// # Errors
    /// It can never come.
    pub(crate) fn look_for<T>(
        &mut self,
        pattern: Pattern,
        look: impl Fn(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, CallError> {
        self.endpoint.check_source(&pattern)?;
        if let Some(found) = look(self) {
            return Ok(Some(found));
        }
        if let Some(error) = self.endpoint.cannot_come(pattern.source) {
            return Err(error.into());
        }
        // As a receive that is waited for: it may have been for the rank that has failed, and while it waits here this
        // rank sends itself nothing either.
        if matches!(pattern.source, Source::Any)
            && let Some(error) = self.reason_against_wildcards()
        {
            return Err(error.into());
        }
        Ok(None)
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
    pub fn receive_bytes_of(&self, rank: Rank) -> usize {
        self.endpoint.peers.get(rank).map_or(0, |peer| peer.lanes.iter().map(Lane::receive_bytes).sum())
    }

    /// Memory that messages take which nobody has asked for.
    pub fn unexpected_bytes(&self) -> usize {
        self.endpoint.services.tag.matching.unexpected_bytes()
    }

    /// Free bytes of the arena.
    pub fn free_bytes(&self) -> usize {
        self.endpoint.core.free_bytes()
    }

    /// The credits of each receive queue of a connection; nothing where there is none.
    pub fn credits_of(&self, rank: Rank) -> Vec<CreditAccount> {
        self.endpoint.credits_of(rank)
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

    /// Carries the texts of connections that are being made, over the job or what stands for it.
    pub(crate) fn carry_mail(&mut self) {
        while let Some((to, text)) = self.endpoint.wireup.next_mail() {
            let sent = match self.carrier() {
                Some(mail) => mail.send(to, &text).map_err(|error| error.to_string()),
                None => Err("there is no launcher that carries mail".into()),
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
                Some(Ok(Some((from, text)))) => self.endpoint.wireup.deliver_mail(from, text),
                Some(Ok(None)) | None => return,
                Some(Err(error)) => return self.endpoint.fail_connecting(&error.to_string()),
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
