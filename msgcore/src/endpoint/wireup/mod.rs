//! Wire-up: how peers come to be connected.
//!
//! At the start or at the first message (`wireup`); by the client of each pair, which is the higher slot, or by whichever
//! comes first (`connect`); out of band over texts that somebody else carries, or in band by RDMA-CM (`connect_method`). All
//! of it ends in the same handshake: see [`Stage`].

mod in_band;
mod method;
pub(crate) mod out_of_band;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use roci_driver::link::Link;
use roci_driver::{Engine, QueuePair};
use roci_protocol::Nanos;
use roci_protocol::cm::ListenError;
use roci_protocol::msg::{self, ConnectionTerms, Message};
use thiserror::Error;

use super::dispatch::breach_of;
use super::failure::EndpointEvent;
use super::{Endpoint, advance, go_on};
use crate::config::{Config, ConnectMethod, Initiative};
use crate::core::breach::Breach;
use crate::core::completion::OpError;
use crate::core::lane::Lane;
use crate::core::no_connection::NoConnection;
use crate::core::peer::{Arrived, Mismatch, Peer, PeerId};
use crate::core::refused::CallError;
use crate::core::stage::{Stage, Step};
use crate::core::tx::name_of;
use crate::receive_queues::Kind;

pub(crate) use method::LanePlan;

use in_band::InBand;
use method::{Method, MethodEvent, Refusal, Site};
use out_of_band::OutOfBand;

/// Bytes of the receive that a peer's terms come in.
const TERMS_LEN: usize = msg::LEN + ConnectionTerms::LEN;
/// Polls after which an acknowledgement of ours has left for certain.
const PARTING_POLLS: u32 = 16;

/// Why connections cannot be made as the configuration wants them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NoWireup {
    /// RDMA-CM cannot listen.
    #[error("cannot listen for connections: {0}")]
    Listen(#[from] ListenError),
    /// Of several engines on a port one alone receives management datagrams.
    #[error("ROCI_CONNECT_METHOD=rdma_cm is for ports of one worker: set ROCI_QUEUES=1, or take oob")]
    SharedPort,
}

/// How an endpoint comes by connections.
pub(crate) struct Wireup<L: Link> {
    method: Box<dyn Method<L>>,
    plans: Vec<LanePlan>,
    initiative: Initiative,
    is_shared_port: bool,
    patience: Nanos,
    /// Connections that are being made, and when they must be.
    under_way: BTreeMap<PeerId, Nanos>,
    /// Texts that are to be carried to peers, and that were carried from them.
    outbox: VecDeque<(PeerId, String)>,
    inbox: VecDeque<(PeerId, String)>,
}

impl<L: Link> Wireup<L> {
    /// The method that the configuration names, for ends at these hosts.
    pub(super) fn open(
        config: &Config,
        engine: &mut Engine<L>,
        oneself: PeerId,
        hosts: Vec<IpAddr>,
        is_shared_port: bool,
        plans: Vec<LanePlan>,
    ) -> Result<Self, NoWireup> {
        let method: Box<dyn Method<L>> = match config.connect_method {
            ConnectMethod::OutOfBand => Box::new(OutOfBand::new(config)),
            ConnectMethod::RdmaCm => Box::new(InBand::new(hosts, engine, oneself)?),
        };
        Ok(Self {
            method,
            plans,
            initiative: config.connect,
            is_shared_port,
            patience: config.connect_timeout_s * 1_000_000_000,
            under_way: BTreeMap::new(),
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
        })
    }

    /// How long peers may take to answer.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_nanos(self.patience)
    }

    /// Something is being waited for.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a text is to be carried to a peer.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns the next text that is to be carried, and the peer that it is for.
    pub(crate) fn next_mail(&mut self) -> Option<(PeerId, String)> {
        self.outbox.pop_front()
    }

    /// A text has come from a peer. It is looked at by [`Endpoint::tend_wireup`].
    pub(crate) fn deliver_mail(&mut self, from: PeerId, text: String) {
        self.inbox.push_back((from, text));
    }
}

impl<L: Link> Endpoint<L> {
    /// Begins to connect to a peer, which the first message would do too.
    pub(crate) fn connect(&mut self, id: PeerId) -> Result<(), CallError> {
        self.peer_or_error(id)?;
        self.ensure_connecting(id);
        Ok(())
    }

    /// Whether messages to a peer leave at once.
    pub(crate) fn is_connected(&self, id: PeerId) -> bool {
        self.peers.get(id).is_some_and(|peer| peer.is_open() && peer.failure.is_none())
    }

    /// Begins to connect to a peer, where nothing has begun it yet.
    pub(crate) fn ensure_connecting(&mut self, id: PeerId) {
        let Some(peer) = self.peers.live_mut(id) else { return };
        if peer.connection.stage() != Stage::Idle {
            return;
        }
        peer.connection.step(Step::Ask).expect("it is in the table");
        let deadline = self.core.engine.now() + self.wireup.patience;
        self.wireup.under_way.insert(id, deadline);
        // The lower slot serves: it asks to be asked.
        let serves = self.wireup.initiative == Initiative::ClientServer && self.peers.oneself() < id;
        let begun = self.with_method(|method, site| if serves { method.knock(site, id) } else { method.ask(site, id) });
        if let Err(why) = begun {
            self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
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
                Err(why) => {
                    self.fail_connecting(&why);
                    break;
                }
            }
            happened = true;
        }
        self.fail_mismatched();
        self.fail_overdue(self.core.engine.now(), &NoConnection::Overdue);
        happened
    }

    /// No connection that is being made can be made any more.
    pub(crate) fn fail_connecting(&mut self, why: &NoConnection) {
        self.fail_overdue(Nanos::MAX, why);
    }

    /// A text could not be carried to a peer: a connection that is being made to it is not.
    pub(crate) fn fail_mail(&mut self, id: PeerId, why: NoConnection) {
        if self.wireup.under_way.contains_key(&id) {
            self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
        }
    }

    fn fail_overdue(&mut self, now: Nanos, why: &NoConnection) {
        let overdue = self.wireup.under_way.iter().filter(|&(_, &deadline)| deadline <= now).map(|(&id, _)| id);
        for id in overdue.collect::<Vec<_>>() {
            self.fail_peer(id, OpError::NotConnected { peer: id, why: why.clone().into() });
        }
    }

    fn on_method_event(&mut self, event: MethodEvent) {
        match event {
            MethodEvent::Asked(id) => self.on_asked(id),
            MethodEvent::Knocked(id) => {
                // It may have been connected meanwhile, by an attempt that crossed the knock.
                if self.peers.has(id) && id != self.peers.oneself() {
                    self.ask_if_idle(id);
                }
            }
            MethodEvent::Granted(id, qps) => {
                if let Err(why) = self.raise_lanes(id, qps) {
                    return self.turn_away(id, why);
                }
                if let Err(why) = self.with_method(|method, site| method.confirm(site, id)) {
                    return self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
                }
                self.on_established(id);
            }
            MethodEvent::Established(id) => self.on_established(id),
            MethodEvent::Gone(id, why) => {
                if self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage() != Stage::Idle) {
                    self.fail_peer(id, OpError::GivenUp { peer: id, why });
                }
            }
            // Theirs goes on, and comes.
            MethodEvent::Refused(_, Refusal::Crossed) => {}
            MethodEvent::Refused(id, Refusal::Because(why)) => {
                if self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage().is_under_way()) {
                    self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
                }
            }
        }
    }

    /// A peer that serves wants to be asked.
    fn ask_if_idle(&mut self, id: PeerId) {
        match self.peer_or_error(id) {
            Ok(_) => self.ensure_connecting(id),
            Err(why) => {
                let why = Refusal::Because(NoConnection::Refused(why.to_string()));
                self.with_method(|method, site| method.refuse(site, id, &why));
            }
        }
    }

    /// A peer asks. Where both have asked the lower slot's request goes on.
    fn on_asked(&mut self, id: PeerId) {
        let oneself = self.peers.oneself();
        let is_peer_to_peer = self.wireup.initiative == Initiative::PeerToPeer;
        let refusal = match self.peer_or_error(id).map(|peer| peer.connection.stage()) {
            Ok(Stage::Idle) => None,
            Ok(Stage::Asking) if is_peer_to_peer && oneself < id => Some(Refusal::Crossed),
            Ok(Stage::Asking) => None,
            Ok(_) => Some(Refusal::Because(NoConnection::Connected { from: id, to: oneself })),
            Err(why) => Some(Refusal::Because(NoConnection::Refused(why.to_string()))),
        };
        if let Some(refusal) = refusal {
            self.core.stats.connections_refused += 1;
            return self.with_method(|method, site| method.refuse(site, id, &refusal));
        }
        self.with_method(|method, site| method.forget(site, id));
        self.step(id, Step::Answer);
        let deadline = self.core.engine.now() + self.wireup.patience;
        self.wireup.under_way.entry(id).or_insert(deadline);
        let outcome = self.with_method(|method, site| method.prepare(site, id)).and_then(|qps| {
            self.raise_lanes(id, qps)?;
            self.with_method(|method, site| method.accept(site, id))
        });
        match outcome {
            Ok(true) => self.on_established(id),
            Ok(false) => {}
            Err(why) => self.turn_away(id, why),
        }
    }

    /// There is no connection, and the peer gets the reason.
    fn turn_away(&mut self, id: PeerId, why: NoConnection) {
        self.with_method(|method, site| method.refuse(site, id, &Refusal::Because(why.clone())));
        self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
    }

    /// Queue pairs have come: their receives are posted, first the small one for the peer's terms.
    fn raise_lanes(&mut self, id: PeerId, qps: Vec<QueuePair>) -> Result<(), NoConnection> {
        let oneself = self.peers.oneself();
        let Self { core, peers, .. } = self;
        if !peers.live_mut(id).is_some_and(|peer| peer.lanes.is_empty()) {
            return Err(NoConnection::Gone);
        }
        for (lane, &qp) in qps.iter().enumerate() {
            peers.bind(qp, id, lane);
        }
        let peer = peers.entry(id);
        peer.lanes = qps.iter().zip(&core.receives.queues).map(|(&qp, queue)| Lane::new(qp, queue)).collect();
        let first = core.receives.queues.get(0).map(|queue| queue.kind);
        if let (Some(Kind::PerPeer { .. }), Some(&qp)) = (first, qps.first()) {
            let small = core.engine.buffer(TERMS_LEN).map_err(|_| NoConnection::NoMemory(oneself))?;
            // A queue pair that refuses has failed, and its completions say so.
            drop(core.engine.post_recv(qp, name_of(0, id), small));
            peer.lanes[0].posted = 1;
        }
        core.post_own(peer).map_err(|why| NoConnection::NoReceives { peer: oneself, why })
    }

    /// The queue pairs are up at both ends: our terms go out.
    fn on_established(&mut self, id: PeerId) {
        let Some(peer) = self.peers.live_mut(id).filter(|peer| !peer.lanes.is_empty()) else { return };
        peer.connection.owes_terms = true;
        self.step(id, Step::Up);
        if let Some(peer) = self.peers.live_mut(id) {
            self.core.send_terms(peer);
        }
    }

    /// A vbuf has left for a peer: the first one holds our terms.
    #[inline]
    pub(super) fn on_terms_sent(&mut self, id: PeerId) {
        let waits = |peer: &mut Peer| matches!(peer.connection.stage(), Stage::Greeting | Stage::Welcomed);
        if self.peers.live_mut(id).is_some_and(waits) {
            self.step(id, Step::Sent);
        }
    }

    /// The first message of a peer must be its terms.
    #[cold]
    pub(super) fn on_terms(&mut self, id: PeerId, arrived: Arrived) {
        let Arrived { lane, header, vbuf } = arrived;
        let Some(peer) = self.peers.live_mut(id) else { return self.core.give_receive_vbuf(lane, vbuf) };
        let outcome = match header.message {
            _ if peer.connection.stage().has_terms() => {
                self.core.give_receive_vbuf(lane, vbuf);
                return self.fail_peer(id, breach_of(id, Breach::TermsTwice));
            }
            Message::Terms if lane > 0 => Err(Breach::TermsLane),
            Message::Terms => self.core.accept_terms(peer, &vbuf),
            _ => Err(Breach::NoTerms),
        };
        // The small receive is not posted again, nor is one that terms have no right to.
        self.core.give_receive_vbuf(lane, vbuf);
        match outcome {
            Ok(()) => self.step(id, Step::Terms),
            Err(breach) => self.note_mismatch(id, breach),
        }
        let Self { core, services, peers, .. } = self;
        if let Some(peer) = peers.live_mut(id) {
            go_on(core, services, peer);
        }
    }

    /// The terms of a peer do not fit. It finds that out by ours, and they must reach it first; or by itself, and then it
    /// must see that its own have arrived.
    fn note_mismatch(&mut self, id: PeerId, breach: Breach) {
        let since = self.calls;
        if let Some(peer) = self.peers.live_mut(id) {
            peer.connection.mismatch.get_or_insert(Mismatch { breach, since });
        }
    }

    /// Peers whose terms do not fit are given up once they can know it.
    fn fail_mismatched(&mut self) {
        let calls = self.calls;
        let is_over = |peer: &Peer| {
            let polls = peer.connection.mismatch.map(|mismatch| calls.wrapping_sub(mismatch.since));
            peer.connection.stage() == Stage::Greeted && polls.is_some_and(|polls| polls > PARTING_POLLS)
        };
        let ids = self.wireup.under_way.keys().copied();
        let over = |id: &PeerId| self.peers.get(*id).is_some_and(is_over);
        for id in ids.filter(over).collect::<Vec<_>>() {
            // The mismatch says why.
            self.fail_peer(id, OpError::NobodyLeft);
        }
    }

    fn step(&mut self, id: PeerId, step: Step) {
        let Some(peer) = self.peers.live_mut(id) else { return };
        match peer.connection.step(step) {
            Ok(Stage::Open) => {
                self.wireup.under_way.remove(&id);
                self.peers.note_connected();
                self.emit(EndpointEvent::Connected { peer: id });
                let Self { core, services, peers, .. } = self;
                if let Some(peer) = peers.live_mut(id) {
                    advance(core, services, peer);
                }
            }
            Ok(_) => {}
            Err(breach) => self.fail_peer(id, breach_of(id, breach)),
        }
    }

    /// A peer is given up, and with it an attempt to connect to it. It gets the reason, and again should it still ask.
    pub(crate) fn abandon_wireup(&mut self, id: PeerId, why: &OpError) {
        self.wireup.under_way.remove(&id);
        self.with_method(|method, site| {
            method.part(site, id, &why.to_string());
            method.forget(site, id);
        });
    }

    fn with_method<R>(&mut self, action: impl FnOnce(&mut dyn Method<L>, &mut Site<'_, L>) -> R) -> R {
        let Wireup { method, plans, is_shared_port, outbox, inbox, .. } = &mut self.wireup;
        let mut site = Site {
            oneself: self.peers.oneself(),
            engine: &mut self.core.engine,
            pd: self.core.pd,
            cq: self.core.cq,
            outbox,
            inbox,
            lanes: plans,
            is_shared_port: *is_shared_port,
        };
        action(&mut **method, &mut site)
    }
}
