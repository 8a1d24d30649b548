//! Wire-up: how ranks come to be connected.
//!
//! At the start or at the first message (`wireup`); by the client of each pair of ranks, which is the higher one, or by
//! whoever comes first (`connect`); out of band over the launcher, or in band by RDMA-CM (`connect_method`). All of it
//! ends in the same handshake: see `stage`.

mod greeting;
mod in_band;
mod method;
mod out_of_band;
mod stage;

use std::collections::BTreeMap;
use std::time::Duration;

use roci_driver::QueuePair;
use roci_driver::link::Link;
use roci_protocol::Nanos;
use roci_protocol::msg::{self, ClearToSend};

use crate::Rank;
use crate::config::{Config, ConnectMethod, Initiative};
use crate::core::peer::Lane;
use crate::core::rx::protocol_error;
use crate::core::tx::name_of;
use crate::endpoint::failure::WorkerEvent;
use crate::receive_queues::Kind;
use crate::services::tag::request::OpError;
use crate::worker::ports::Ports;
use crate::worker::{CallError, Worker};

pub(crate) use method::LanePlan;
pub(crate) use stage::Stage;

use in_band::InBand;
use method::{Method, MethodEvent, Refusal, Site};
use out_of_band::OutOfBand;
use stage::Step;

/// Bytes of the receive that a clear-to-send comes in.
const GREETING_LEN: usize = msg::LEN + ClearToSend::LEN;

/// Why the terms of a peer do not fit.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) what: String,
    /// The worker's calls of progress when that was found.
    since: u32,
}

/// How this worker comes by connections.
pub(crate) struct Wireup<L: Link> {
    method: Box<dyn Method<L>>,
    pub(crate) plans: Vec<LanePlan>,
    initiative: Initiative,
    is_shared_port: bool,
    patience: Nanos,
    /// Connections that are being made, and when they must be.
    under_way: BTreeMap<Rank, Nanos>,
}

impl<L: Link> Wireup<L> {
    /// How long peers may take to answer.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_nanos(self.patience)
    }

    /// Something is being waited for.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        !self.under_way.is_empty()
    }
}

/// The method that the configuration names.
pub(crate) fn open<L: Link>(
    config: &Config,
    ports: &mut Ports<L>,
    plans: Vec<LanePlan>,
    cq: roci_driver::CompletionQueue,
) -> Result<Wireup<L>, String> {
    let hosts = ports.hosts.clone();
    let is_shared_port = ports.is_shared;
    let mut site = Site {
        rank: ports.rank,
        engine: &mut ports.engine,
        pd: ports.pd,
        cq,
        mail: None,
        lanes: &plans,
        is_shared_port,
    };
    let method: Box<dyn Method<L>> = match config.connect_method {
        ConnectMethod::OutOfBand => Box::new(OutOfBand::new(config)),
        ConnectMethod::RdmaCm => Box::new(InBand::new(hosts, &mut site)?),
    };
    let patience = config.connect_timeout_s * 1_000_000_000;
    let initiative = config.connect;
    Ok(Wireup { method, plans, initiative, is_shared_port, patience, under_way: BTreeMap::new() })
}

impl<L: Link> Worker<L> {
    /// Begins to connect to a peer, which the first message would do too. [`WorkerEvent::Connected`] tells when it is
    /// done.
    pub fn connect(&mut self, rank: Rank) -> Result<(), CallError> {
        self.endpoint_or_error(rank)?;
        self.ensure_connecting(rank);
        Ok(())
    }

    /// Whether messages to a peer leave at once. Does not make progress: see [`Worker::progress`].
    pub fn is_connected(&self, rank: Rank) -> bool {
        self.endpoints.get(rank).and_then(Option::as_deref).is_some_and(|peer| peer.is_open() && peer.failure.is_none())
    }

    pub(crate) fn ensure_connecting(&mut self, rank: Rank) {
        let Some(endpoint) = self.endpoint(rank).filter(|endpoint| endpoint.stage == Stage::Idle) else { return };
        endpoint.stage = Stage::Idle.on(Step::Ask).expect("it is in the table");
        let deadline = self.engine.now() + self.wireup.patience;
        self.wireup.under_way.insert(rank, deadline);
        // The lower rank serves: it asks to be asked.
        let serves = self.wireup.initiative == Initiative::ClientServer && self.rank < rank;
        let begun =
            self.with_method(|method, site| if serves { method.knock(site, rank) } else { method.ask(site, rank) });
        if let Err(why) = begun {
            self.fail_peer(rank, OpError::NotConnected { rank, why });
        }
    }

    /// Looks after connections that are being made; returns whether anything happened.
    #[cold]
    pub(crate) fn tend_wireup(&mut self) -> bool {
        let mut happened = false;
        loop {
            match self.with_method(|method, site| method.poll(site)) {
                Ok(Some(event)) => self.on_method_event(event),
                Ok(None) => break,
                // The launcher is gone: whoever waits for a connection will not get one.
                Err(why) => {
                    self.fail_overdue(Nanos::MAX, &why);
                    break;
                }
            }
            happened = true;
        }
        self.part_from_misfits();
        self.fail_overdue(self.engine.now(), "it did not answer in time (ROCI_CONNECT_TIMEOUT_S)");
        happened
    }

    fn fail_overdue(&mut self, now: Nanos, why: &str) {
        let overdue = self.wireup.under_way.iter().filter(|&(_, &deadline)| deadline <= now).map(|(&rank, _)| rank);
        for rank in overdue.collect::<Vec<_>>() {
            self.fail_peer(rank, OpError::NotConnected { rank, why: why.into() });
        }
    }

    fn on_method_event(&mut self, event: MethodEvent) {
        match event {
            MethodEvent::Asked(peer) => self.on_asked(peer),
            MethodEvent::Knocked(peer) => {
                // It may have been connected meanwhile, by an attempt that crossed the knock.
                if peer < self.size && peer != self.rank {
                    self.ask_if_idle(peer);
                }
            }
            MethodEvent::Granted(peer, qps) => {
                if let Err(why) = self.raise_lanes(peer, qps) {
                    return self.turn_away(peer, why);
                }
                if let Err(why) = self.with_method(|method, site| method.confirm(site, peer)) {
                    return self.fail_peer(peer, OpError::NotConnected { rank: peer, why });
                }
                self.greet(peer);
            }
            MethodEvent::Established(peer) => self.greet(peer),
            MethodEvent::Gone(peer, why) => {
                if self.endpoint(peer).is_some_and(|endpoint| endpoint.stage != Stage::Idle) {
                    self.fail_peer(peer, OpError::GivenUp { rank: peer, why });
                }
            }
            // Theirs goes on, and comes.
            MethodEvent::Refused(_, Refusal::Crossed) => {}
            MethodEvent::Refused(peer, Refusal::Because(why)) => {
                if self.endpoint(peer).is_some_and(|endpoint| endpoint.stage.is_under_way()) {
                    self.fail_peer(peer, OpError::NotConnected { rank: peer, why });
                }
            }
        }
    }

    /// A peer that serves wants to be asked.
    fn ask_if_idle(&mut self, peer: Rank) {
        match self.endpoint_or_error(peer) {
            Ok(_) => self.ensure_connecting(peer),
            Err(why) => {
                let why = Refusal::Because(why.to_string());
                self.with_method(|method, site| method.refuse(site, peer, &why));
            }
        }
    }

    /// A peer asks. Where both have asked the lower rank's request goes on.
    fn on_asked(&mut self, peer: Rank) {
        let refusal = match self.endpoint_or_error(peer).map(|endpoint| endpoint.stage) {
            Ok(Stage::Idle) => None,
            Ok(Stage::Asking) if self.wireup.initiative == Initiative::PeerToPeer && self.rank < peer => {
                Some(Refusal::Crossed)
            }
            Ok(Stage::Asking) => None,
            Ok(_) => Some(Refusal::Because(format!("rank {} is connected to it already", self.rank))),
            Err(why) => Some(Refusal::Because(why.to_string())),
        };
        if let Some(refusal) = refusal {
            self.stats.connections_refused += 1;
            return self.with_method(|method, site| method.refuse(site, peer, &refusal));
        }
        self.with_method(|method, site| method.forget(site, peer));
        self.step(peer, Step::Answer);
        let deadline = self.engine.now() + self.wireup.patience;
        self.wireup.under_way.entry(peer).or_insert(deadline);
        let outcome = self.with_method(|method, site| method.prepare(site, peer)).and_then(|qps| {
            self.raise_lanes(peer, qps)?;
            self.with_method(|method, site| method.accept(site, peer))
        });
        match outcome {
            Ok(true) => self.greet(peer),
            Ok(false) => {}
            Err(why) => self.turn_away(peer, why),
        }
    }

    /// There is no connection, and the peer is told why.
    fn turn_away(&mut self, peer: Rank, why: String) {
        self.with_method(|method, site| method.refuse(site, peer, &Refusal::Because(why.clone())));
        self.fail_peer(peer, OpError::NotConnected { rank: peer, why });
    }

    /// Queue pairs have come: their receives are posted, first the small one for the peer's clear-to-send.
    fn raise_lanes(&mut self, peer: Rank, qps: Vec<QueuePair>) -> Result<(), String> {
        let queues = self.queues.clone();
        let endpoint = self.endpoint(peer).filter(|endpoint| endpoint.lanes.is_empty());
        let endpoint = endpoint.ok_or("it is connected already, or gone")?;
        endpoint.lanes = qps.iter().zip(&queues).map(|(&qp, queue)| Lane::new(qp, queue)).collect();
        for (lane, &qp) in qps.iter().enumerate() {
            self.places.insert(qp, (peer, lane));
        }
        if let (Some(Kind::PerPeer { .. }), Some(&qp)) = (self.queues.get(0).map(|queue| queue.kind), qps.first()) {
            let short = |_| format!("rank {} has no memory for a first message: raise its ROCI_ARENA_SIZE", self.rank);
            let small = self.engine.buffer(GREETING_LEN).map_err(short)?;
            // A queue pair that refuses has failed, and its completions say so.
            drop(self.engine.post_recv(qp, name_of(0, peer), small));
            if let Some(endpoint) = self.endpoint(peer) {
                endpoint.lanes[0].posted = 1;
            }
        }
        self.post_own(peer)
    }

    fn step(&mut self, peer: Rank, step: Step) {
        let Some(endpoint) = self.endpoint(peer) else { return };
        match endpoint.stage.on(step) {
            Ok(stage) => endpoint.stage = stage,
            Err(illegal) => return self.fail_peer(peer, protocol_error(peer, illegal.to_string())),
        }
        if endpoint.is_open() {
            self.wireup.under_way.remove(&peer);
            self.peers_known += 1;
            self.tell(WorkerEvent::Connected { rank: peer });
            self.advance(peer);
        }
    }

    /// A peer is given up, and with it an attempt to connect to it. It is told, and again should it still ask.
    pub(crate) fn abandon_wireup(&mut self, peer: Rank, why: &OpError) {
        self.wireup.under_way.remove(&peer);
        self.with_method(|method, site| {
            method.part(site, peer, &why.to_string());
            method.forget(site, peer);
        });
    }

    fn with_method<R>(&mut self, action: impl FnOnce(&mut dyn Method<L>, &mut Site<'_, L>) -> R) -> R {
        let mail: Option<&mut dyn roci_launcher::Mail> = match (&mut self.mail, &mut self.job) {
            (Some(mail), _) => Some(&mut **mail),
            (None, Some(job)) => Some(job),
            (None, None) => None,
        };
        let Wireup { method, plans, is_shared_port, .. } = &mut self.wireup;
        let mut site = Site {
            rank: self.rank,
            engine: &mut self.engine,
            pd: self.pd,
            cq: self.cq,
            mail,
            lanes: plans,
            is_shared_port: *is_shared_port,
        };
        action(&mut **method, &mut site)
    }
}
