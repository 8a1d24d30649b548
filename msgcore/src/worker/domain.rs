//! A domain: several endpoints of a process that share an engine, its ports, keys and memory, and progress.

use std::mem;
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use thiserror::Error;

use super::closing::{CloseError, PendingClose};
use super::live_link::LiveLink;
use super::local_means::local_means;
use super::others::{EndpointId, OtherEndpoint};
use super::ports::queue_pair_params;
use super::report::Awaited;
use super::wireup_error::WireupError;
use super::{Dropped, Worker};
use crate::backoff::Backoff;
use crate::config::{Config, Demand};
use crate::core::completion::OpError;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::locality::LocalMeans;
use crate::endpoint::parked::{Premises, ReportRoom};
use crate::endpoint::{Identity, Neighbourhood};
use crate::services::tag::requests::Requests;

/// Endpoints of a domain: each is looked at in each call that makes progress.
const ENDPOINTS: usize = 64;

/// What makes the local means of an endpoint at an address.
type LocalMeansOf<L> = fn(&Config, &EndpointAddress) -> Option<LocalMeans<L>>;

/// Several endpoints on one engine (libfabric's `fi_domain`): each has an address, peers, tags and completions of its own, as if it were
/// alone, and is used as a [`Worker`]. They share the port, so one queue of a NIC is enough for all of them. They share the
/// arena and its registrations, so each sends what another has received without a copy. And they share keys: what one exposes,
/// the peers of all reach.
///
/// ```no_run
/// use roci_msgcore::{Config, Domain, EndpointAddress, Source, Tag, TagMatch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut domain = Domain::open_alone(&Config::load(None)?)?;
/// let control = domain.at_hand();
/// let data = domain.open_endpoint()?;
/// println!("{} {}", domain.endpoint(control)?.address(), domain.endpoint(data)?.address());
/// // A message to one endpoint is none of the other's, whatever its tag.
/// let worker = domain.endpoint(data)?;
/// let receive = worker.recv(Source::Any, TagMatch::Any, worker.buffer(64)?)?;
/// let message = worker.wait(receive)?;
/// domain.close()?;
/// # Ok(())
/// # }
/// ```
///
/// Every call of any endpoint that makes progress does so for all of them; [`Domain::progress`] is one that belongs to none.
/// Short messages arrive fastest at the endpoint that was used last: those for the others take a step more.
///
/// Endpoints of one domain reach each other as they reach other processes of the host: over a UDP socket, or a local port.
pub struct Domain<L: Link = LiveLink> {
    worker: Worker<L>,
    config: Config,
    local_means: LocalMeansOf<L>,
    /// The incarnation of the first endpoint, which is random. The others' are those behind it.
    incarnation: u64,
    /// Endpoints that were ever opened.
    opened: u32,
    /// What endpoints have left that were closed.
    spares: Vec<Premises>,
}

/// Why a domain did not do what was asked of it.
#[derive(Error)]
#[non_exhaustive]
pub enum DomainError {
    /// A rank of a job has peers of its own.
    #[error("the worker is a rank of a job: open a worker alone")]
    Rank,
    /// There are as many as there may be.
    #[error("a domain has {ENDPOINTS} endpoints at most: close one of them first")]
    TooMany,
    /// All services behind the configured one are in use.
    #[error("no service is left for another endpoint behind {0} (ROCI_SERVICE)")]
    NoService(u16),
    /// It was closed, or is another domain's.
    #[error("the domain has no such endpoint")]
    NoEndpoint,
    /// A domain has one endpoint at least.
    #[error("it is the domain's last endpoint: close the domain")]
    LastEndpoint,
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] WireupError),
    /// The thread of a dedicated worker has ended, or this process was forked from its own.
    #[error(transparent)]
    Engine(#[from] OpError),
    /// It was closed, and not in order.
    #[error(transparent)]
    Close(#[from] CloseError),
}

impl Domain {
    /// Opens a domain with one endpoint, on the network device that the configuration names, as [`Worker::open_alone`] does.
    ///
    /// # Errors
    /// The device does not work, or joins two processes only.
    pub fn open_alone(config: &Config) -> Result<Self, DomainError> {
        let config = config.for_strangers();
        Ok(Self::live(Worker::open_alone(&config)?, &config))
    }

    /// A domain around a worker of either kind, whose further endpoints have local ports as the first has.
    pub(crate) fn live(worker: Worker, config: &Config) -> Self {
        Self { local_means: live_means, ..Self::around(worker, config) }
    }
}

impl<L: Link> Domain<L> {
    /// A domain whose first endpoint is this worker, which was made with this configuration. Its further endpoints have no local ports.
    ///
    /// # Errors
    /// The worker is a rank.
    pub fn of(worker: Worker<L>, config: &Config) -> Result<Self, DomainError> {
        let is_rank = !worker.endpoint.peers.may_strangers_come();
        if is_rank { Err(DomainError::Rank) } else { Ok(Self::around(worker, config)) }
    }

    /// The same around a worker of either kind. A rank stays alone in its domain.
    pub(crate) fn around(worker: Worker<L>, config: &Config) -> Self {
        let local_means: LocalMeansOf<L> = |_, _| None;
        let incarnation = worker.address().incarnation;
        Self { worker, config: config.clone(), local_means, incarnation, opened: 1, spares: Vec::new() }
    }

    /// Opens another endpoint, with the configuration of the first.
    ///
    /// # Errors
    /// There are too many, or there is no memory left.
    pub fn open_endpoint(&mut self) -> Result<EndpointId, DomainError> {
        if !self.worker.endpoint.peers.may_strangers_come() {
            return Err(DomainError::Rank);
        }
        let address = self.next_address()?;
        let Self { worker, config, spares, .. } = self;
        let spare = spares.pop();
        if spare.is_none() {
            Demand::of(config, config.peers + 1, worker.free_bytes()).check().map_err(WireupError::from)?;
        }
        let identity = Identity {
            neighbourhood: Neighbourhood::Strangers(address),
            is_shared_port: true,
            local: (self.local_means)(config, &address),
            params: queue_pair_params(config),
            requests: Requests::numbered(address.incarnation as u32),
        };
        let state = worker.endpoint.open_beside(config, identity, spare).map_err(|(why, premises)| {
            spares.push(*premises);
            WireupError::from(why)
        })?;
        let id = EndpointId::opened_after(self.opened);
        worker.others.parked.push(OtherEndpoint { id, state, published: None });
        self.opened += 1;
        self.endpoint(id)?;
        if let Err(error) = self.worker.endpoint.provide(&self.config) {
            self.remove(id)?;
            return Err(WireupError::from(error).into());
        }
        self.worker.publish(&self.config);
        Ok(id)
    }

    /// Returns the names of all endpoints, in the order in which they were opened.
    pub fn endpoints(&self) -> Vec<EndpointId> {
        let others = self.worker.others.parked.iter().map(|other| other.id);
        let mut ids: Vec<_> = others.chain([self.at_hand()]).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the name of the endpoint that was used last, or is the only one.
    pub fn at_hand(&self) -> EndpointId {
        self.worker.others.at_hand
    }

    /// Returns an endpoint, for any call of a worker's.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn endpoint(&mut self, id: EndpointId) -> Result<&mut Worker<L>, DomainError> {
        if id != self.at_hand() {
            let others = &mut self.worker.others.parked;
            let at = others.iter().position(|other| other.id == id).ok_or(DomainError::NoEndpoint)?;
            // The application may compute next.
            self.worker.ring_doorbell();
            self.worker.take_in_hand(at);
        }
        Ok(&mut self.worker)
    }

    /// Returns an endpoint that is there.
    #[inline]
    pub(crate) fn take(&mut self, id: EndpointId) -> &mut Worker<L> {
        if id == self.at_hand() { &mut self.worker } else { self.endpoint(id).expect("it is open") }
    }

    /// Returns the endpoint that was used last.
    pub(crate) fn worker(&self) -> &Worker<L> {
        &self.worker
    }

    /// Whether another thread is to learn something of an endpoint, and can.
    #[inline]
    pub(crate) fn has_reports(&self, id: EndpointId, room: ReportRoom) -> bool {
        id == self.at_hand()
            || self.worker.others.parked.iter().any(|other| other.id == id && other.state.has_reports(room))
    }

    /// Makes progress for all endpoints; returns whether anything happened.
    pub fn progress(&mut self) -> bool {
        self.worker.progress()
    }

    /// Closes an endpoint as [`Worker::close`] does, and returns what it gave up. Its peers see it go. What it has exposed stays, until
    /// another endpoint withdraws it.
    ///
    /// # Errors
    /// There is none of this name, or no other; or it could not end in order, and is gone all the same.
    pub fn close_endpoint(&mut self, id: EndpointId) -> Result<Dropped, DomainError> {
        self.endpoint(id)?;
        self.check_not_last()?;
        let outcome = self.worker.close_at_hand();
        self.remove(id)?;
        Ok(outcome?)
    }

    /// Ends an endpoint at once, as [`Worker::abort`] does, and returns what it gave up.
    ///
    /// # Errors
    /// There is none of this name, or no other.
    pub fn abort_endpoint(&mut self, id: EndpointId) -> Result<Dropped, DomainError> {
        let dropped = self.endpoint(id)?.give_up();
        self.remove(id)?;
        Ok(dropped)
    }

    /// Closes all endpoints, and returns what they gave up together.
    ///
    /// # Errors
    /// One of them could not end in order. All are gone all the same.
    pub fn close(mut self) -> Result<Dropped, CloseError> {
        if self.worker.others.parked.is_empty() || self.worker.is_forked() {
            return self.worker.close();
        }
        let (mut dropped, mut failure) = (Dropped::default(), None);
        let mut note = |outcome: Result<Dropped, CloseError>| match outcome {
            Ok(its) => dropped.add(its),
            Err(CloseError { why, dropped: its }) => {
                dropped.add(its);
                failure.get_or_insert(why);
            }
        };
        // All at once: a peer that does not answer is waited for once.
        let open: Vec<_> = self.endpoints().into_iter().map(|id| (id, self.take(id).begin_closing())).collect();
        for (id, mut close) in open {
            note(self.take(id).go_on_closing(&mut close));
        }
        self.worker.depart();
        match failure {
            None => Ok(dropped),
            Some(why) => Err(CloseError { why, dropped }),
        }
    }

    /// Ends all endpoints at once, and returns what they gave up together.
    pub fn abort(mut self) -> Dropped {
        let mut dropped = Dropped::default();
        while !self.worker.others.parked.is_empty() {
            dropped.add(self.worker.give_up());
            self.remove(self.at_hand()).expect("there are others");
        }
        dropped.add(self.worker.abort());
        dropped
    }

    /// Takes an endpoint out of the domain, with all that it has under way. What it has of the engine is the next one's.
    ///
    /// # Errors
    /// There is none of this name, or no other.
    pub(crate) fn remove(&mut self, id: EndpointId) -> Result<(), DomainError> {
        self.endpoint(id)?;
        self.check_not_last()?;
        if !self.worker.is_forked() {
            self.worker.endpoint.dismantle();
            self.worker.keep_farewells();
        }
        self.worker.take_in_hand(0);
        let removed = self.worker.others.parked.swap_remove(0);
        assert_eq!(removed.id, id, "it was at hand");
        self.spares.push(removed.state.into_premises());
        Ok(())
    }

    fn check_not_last(&self) -> Result<(), DomainError> {
        if self.worker.others.parked.is_empty() { Err(DomainError::LastEndpoint) } else { Ok(()) }
    }

    /// Returns the address of the next endpoint: the first service behind the configured one that no other has.
    fn next_address(&self) -> Result<EndpointAddress, DomainError> {
        if self.worker.others.parked.len() + 1 >= ENDPOINTS {
            return Err(DomainError::TooMany);
        }
        let own = self.worker.address();
        let others = self.worker.others.parked.iter().map(|other| other.state.wireup.book.own());
        let taken: Vec<_> = others.chain([own]).map(|address| address.service).collect();
        let mut services = self.config.service..=u16::MAX;
        let service = services.find(|service| !taken.contains(service));
        let service = service.ok_or(DomainError::NoService(self.config.service))?;
        let incarnation = self.incarnation.wrapping_add(u64::from(self.opened));
        Ok(EndpointAddress { service, incarnation, ..own })
    }
}

/// What it takes to have local ports beside the device that the first endpoint is on.
fn live_means(config: &Config, own: &EndpointAddress) -> Option<LocalMeans<LiveLink>> {
    local_means(config, &config.device_of(0).ok()?, own, None)
}

impl<L: Link> Worker<L> {
    /// Closes the endpoint at hand, which is to be removed next.
    fn close_at_hand(&mut self) -> Result<Dropped, CloseError> {
        if self.is_forked() {
            return Err(OpError::Forked.into());
        }
        let mut close = self.begin_closing();
        self.go_on_closing(&mut close)
    }

    fn go_on_closing(&mut self, close: &mut PendingClose) -> Result<Dropped, CloseError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            let happened = self.progress();
            if let Some(end) = self.poll_closing(close) {
                return end;
            }
            if happened {
                backoff.reset();
                continue;
            }
            let idle = backoff.idle();
            self.report_if_due(&mut backoff, Awaited::Rest);
            self.look_after(idle)?;
        }
    }

    /// Takes the other endpoint at this index in hand. The one that was is there from now on.
    fn take_in_hand(&mut self, at: usize) {
        let mut parked = mem::take(&mut self.others.parked);
        self.exchange(&mut parked[at]);
        mem::swap(&mut parked[at].id, &mut self.others.at_hand);
        self.others.parked = parked;
    }

    /// Lingers for all endpoints of the domain together.
    pub(super) fn flush_all(&mut self, linger: Duration) {
        let since = Instant::now();
        for at in 0..=self.others.parked.len() {
            self.endpoint.discard_dropped();
            if let Err(error) = self.flush(None, linger.saturating_sub(since.elapsed())) {
                tracing::warn!("rank {} ends without a close: {error}", self.rank);
            }
            if at < self.others.parked.len() {
                self.take_in_hand(at);
            }
        }
    }
}
