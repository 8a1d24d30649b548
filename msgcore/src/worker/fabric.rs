//! Queue pairs to all ranks of a job, connected all at once over its launcher.

use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_driver::{Address, CompletionQueue, Engine, PdId, QueuePair};
use roci_launcher::{Job, JobError, Reminder};

use super::ports::{LiveLink, Ports, addresses_of, host_of, queue_pair_params};
use super::wireup_error::WireupError;
use crate::Rank;
use crate::config::Config;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::locality::LocalMeans;
use crate::endpoint::wireup::out_of_band::station_of;

/// Polls between two looks at the launcher's answer, which are system calls.
const POLLS_PER_LOOK: u32 = 256;
/// Polls in a row that find nothing before the processor is given to others.
const YIELD_AFTER: u32 = 1024;

/// Connected queue pairs, one to each peer: what a benchmark of verbs uses.
pub struct Fabric<L: Link = LiveLink> {
    /// This rank.
    pub rank: Rank,
    /// How many ranks there are.
    pub size: usize,
    /// The poll loop.
    pub engine: Engine<L>,
    /// The domain of all queue pairs.
    pub pd: PdId,
    /// Where all work requests end.
    pub cq: CompletionQueue,
    /// The queue pair to each rank; none to itself.
    pub queue_pairs: Vec<Option<QueuePair>>,
    /// The job.
    pub job: Option<Job>,
    is_shared: bool,
    addresses: Vec<EndpointAddress>,
    local: Option<LocalMeans<L>>,
}

impl Fabric {
    /// Connects this rank of `job` to all others.
    pub fn connect(config: &Config, job: Job) -> Result<Self, WireupError> {
        let Ports { rank, size, mut engine, pd, is_shared, addresses, local, job, .. } = Ports::open(config, job)?;
        let peers: Vec<Rank> = (0..size).filter(|&peer| peer != rank).collect();
        let params = queue_pair_params(config);
        let cq = engine.create_cq(peers.len() * (params.sq_depth + params.rq_depth));
        let queue_pairs = vec![None; size];
        let mut fabric = Self { rank, size, engine, pd, cq, queue_pairs, job, is_shared, addresses, local };
        let mut unconnected = Vec::new();
        for (index, &peer) in peers.iter().enumerate() {
            let mut qp = fabric.engine.create_qp(if is_shared { 0 } else { index }, pd, cq)?;
            fabric.engine.fit_path(&mut qp, fabric.addresses[peer].ip);
            let address = fabric.engine.address_of(&qp, &params);
            fabric.job()?.put(&format!("address/{rank}/{peer}"), &address.to_string())?;
            unconnected.push(qp);
        }
        let patience = Duration::from_secs(config.connect_timeout_s);
        fabric.meet_in_time(patience, "publish their addresses")?;
        for (&peer, qp) in peers.iter().zip(unconnected) {
            let text = fabric.job()?.get(&format!("address/{peer}/{rank}"))?;
            let mut address: Address = text.parse().map_err(|error| WireupError::Address(peer, error))?;
            if is_shared && config.gateway.is_some() {
                address.mac = station_of(&mut fabric.engine, &address, patience)
                    .map_err(|why| WireupError::Unreachable(address.ip, why))?;
            }
            fabric.queue_pairs[peer] = Some(fabric.engine.connect(qp, &address, &params)?);
        }
        // What is sent to a peer whose queue pair is not up is lost, and comes again only after a timeout.
        fabric.meet_in_time(patience, "connect")?;
        Ok(fabric)
    }

    fn job(&mut self) -> Result<&mut Job, JobError> {
        self.job.as_mut().ok_or(JobError::Gone)
    }

    /// Waits until every rank has done so, and polls meanwhile: a peer whose port has to ask again for its link needs this end's
    /// engine for it.
    fn meet_in_time(&mut self, patience: Duration, to: &str) -> Result<(), JobError> {
        let (rank, deadline, mut reminder) = (self.rank, Instant::now() + patience, Reminder::start());
        self.serve_until_all_are_here(|job| {
            if let Some(waited) = reminder.due() {
                let (waited, absent) = (waited.as_secs(), job.absent()?);
                tracing::warn!("rank {rank} has waited {waited} s for its peers to {to}{absent}");
            }
            if Instant::now() < deadline { Ok(()) } else { Err(JobError::Timeout(patience.as_secs())) }
        })
    }
}

impl<L: Link> Fabric<L> {
    /// Returns where a rank is.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn address_of(&self, rank: Rank) -> EndpointAddress {
        self.addresses[rank]
    }

    /// Whether the port leads to a network, and not to one peer alone.
    pub const fn is_on_network(&self) -> bool {
        self.is_shared
    }

    /// Waits until every rank has called this, and serves the peers meanwhile. Who is missing the launcher says, and no
    /// port: a peer that hears first that all are here may have closed its ports before this rank hears it. So a rank that
    /// is done says goodbye by this call, and whatever happens to its ports then is no failure.
    pub fn barrier(&mut self) -> Result<(), JobError> {
        self.serve_until_all_are_here(|_| Ok(()))
    }

    /// The barrier, with a look at the job between polls, which may end it.
    fn serve_until_all_are_here(
        &mut self,
        mut look: impl FnMut(&mut Job) -> Result<(), JobError>,
    ) -> Result<(), JobError> {
        let Some(job) = &mut self.job else { return Ok(()) };
        job.start_barrier()?;
        let mut idle_polls = 0u32;
        loop {
            for _ in 0..POLLS_PER_LOOK {
                idle_polls = if self.engine.poll() > 0 { 0 } else { idle_polls.saturating_add(1) };
                if idle_polls > YIELD_AFTER {
                    // Who is missing may wait for this very processor.
                    std::thread::yield_now();
                }
            }
            if job.poll_barrier()? {
                return Ok(());
            }
            look(job)?;
        }
    }

    /// Gives up the queue pairs and keeps the ports.
    pub fn into_ports(self) -> Ports<L> {
        let Self { rank, size, mut engine, pd, queue_pairs, job, is_shared, addresses, local, .. } = self;
        queue_pairs.into_iter().flatten().for_each(|qp| engine.destroy_qp(qp));
        let (is_alone, mail) = (false, None);
        Ports { rank, size, engine, pd, is_shared, addresses, is_alone, local, job, mail }
    }
}

impl<L: Link> Fabric<L> {
    /// Two ranks without a job, whose engines' first ports see each other: for tests and simulations.
    ///
    /// # Panics
    /// When the engines' ports do not fit each other.
    pub fn pair(mut engines: [Engine<L>; 2], config: &Config) -> [Self; 2] {
        let params = queue_pair_params(config);
        let ends = engines.each_mut().map(|engine| {
            let pd = engine.alloc_pd();
            let cq = engine.create_cq(params.sq_depth + params.rq_depth);
            let qp = engine.create_qp(0, pd, cq).expect("the engine has room");
            let address = engine.address_of(&qp, &params);
            (pd, cq, qp, address)
        });
        let addresses = ends.each_ref().map(|(.., address)| *address);
        let mut rank = 0;
        let mut ends = ends.into_iter();
        engines.map(|mut engine| {
            let (pd, cq, qp, _) = ends.next().expect("two ends");
            let qp = engine.connect(qp, &addresses[1 - rank], &params).expect("one IP version");
            let mut queue_pairs = vec![None; 2];
            queue_pairs[1 - rank] = Some(qp);
            rank += 1;
            let hosts: Vec<_> = addresses.iter().map(host_of).collect();
            let endpoints = addresses_of(config.service, &hosts);
            Self {
                rank: rank - 1,
                size: 2,
                engine,
                pd,
                cq,
                queue_pairs,
                job: None,
                is_shared: true,
                addresses: endpoints,
                local: None,
            }
        })
    }
}
