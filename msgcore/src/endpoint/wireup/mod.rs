//! Wire-up: how peers come to be connected.
//!
//! At the start or at the first message (`wireup`); by the client of each pair, which is the higher slot, or by whichever
//! comes first (`connect`); out of band over texts that somebody else carries, or in band by RDMA-CM (`connect_method`). All
//! of it ends in the same handshake: see [`Stage`].

mod absent;
mod answer;
mod handshake;
mod in_band;
mod lane_request;
mod method;
pub(crate) mod out_of_band;

use std::collections::BTreeMap;
use std::time::Duration;

use roci_driver::Engine;
use roci_driver::link::Link;
use roci_protocol::Nanos;
use roci_protocol::cm::ListenError;
use thiserror::Error;

use super::Endpoint;
use super::address_book::AddressBook;
use super::locality::Locality;
use crate::config::{Config, ConnectMethod, Initiative};
use crate::core::completion::OpError;
use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;
use crate::core::refused::CallError;
use crate::core::stage::{Stage, Step};

pub(crate) use super::address_book::PeerSession;
pub(super) use method::AskedOver;
pub(crate) use method::{LanePlan, Meant, OutgoingText};

use in_band::InBand;
use method::{Arrivals, Method, MethodEvent, Refusal, Site, Texts};
use out_of_band::OutOfBand;

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

/// Peers that have queue pairs.
#[derive(Debug)]
struct ConnectionCount {
    count: usize,
    /// How many may where they are no ranks.
    limit: usize,
}

impl ConnectionCount {
    fn add(&mut self, id: PeerId) -> Result<(), NoConnection> {
        if id.rank().is_none() && self.count >= self.limit {
            return Err(NoConnection::TooManyConnected(self.count));
        }
        self.count += 1;
        Ok(())
    }
}

/// Looks at connections that are being made, since the last news of any, until looks are seldom: tens of milliseconds of an application
/// that does nothing else.
const EAGER_LOOKS: u32 = 1 << 16;

/// How an endpoint comes by connections.
pub(crate) struct Wireup<L: Link> {
    method: Box<dyn Method<L>>,
    plans: Vec<LanePlan>,
    initiative: Initiative,
    is_shared_port: bool,
    pub(super) locality: Locality<L>,
    patience: Nanos,
    pub(crate) book: AddressBook,
    arrivals: Arrivals,
    connections: ConnectionCount,
    /// Connections that are being made, and when they must be.
    under_way: BTreeMap<PeerId, Nanos>,
    /// Looks for their news that every call of the application's takes; later ones are seldom, for a peer may compute.
    eager_looks: u32,
    texts: Texts,
}

impl<L: Link> Wireup<L> {
    /// The method that the configuration names, for ends at these addresses.
    pub(super) fn open(
        config: &Config,
        engine: &mut Engine<L>,
        book: AddressBook,
        (is_shared_port, locality): (bool, Locality<L>),
        plans: Vec<LanePlan>,
    ) -> Result<Self, NoWireup> {
        let method: Box<dyn Method<L>> = match config.connect_method {
            ConnectMethod::OutOfBand => Box::new(OutOfBand::new(config)),
            ConnectMethod::RdmaCm => Box::new(InBand::new(engine, book.own())?),
        };
        Ok(Self {
            method,
            plans,
            initiative: config.connect,
            is_shared_port,
            locality,
            patience: config.connect_timeout_s * 1_000_000_000,
            book,
            arrivals: Arrivals { limit: config.peers.div_ceil(2), admitted: Vec::new(), replaced: Vec::new() },
            connections: ConnectionCount { count: 0, limit: config.peers },
            under_way: BTreeMap::new(),
            eager_looks: EAGER_LOOKS,
            texts: Texts::default(),
        })
    }

    /// No peer finds this end any more.
    pub(super) fn close(&mut self, engine: &mut Engine<L>) {
        self.method.close(engine);
    }

    /// How long peers may take to answer.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_nanos(self.patience)
    }

    /// Something is being waited for.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        !self.under_way.is_empty() && self.eager_looks > 0 || self.locality.is_urgent()
    }

    /// Returns how many strangers have come since this was last asked, and whose places they have taken; `None` where none has.
    /// They must be connected in time.
    pub(super) fn take_arrivals(&mut self, now: Nanos) -> Option<(usize, Vec<PeerId>)> {
        if self.arrivals.admitted.is_empty() && self.arrivals.replaced.is_empty() {
            return None;
        }
        let deadline = now + self.patience;
        let admitted = std::mem::take(&mut self.arrivals.admitted);
        self.eager_looks = EAGER_LOOKS;
        self.under_way.extend(admitted.iter().map(|&id| (id, deadline)));
        Some((admitted.len(), std::mem::take(&mut self.arrivals.replaced)))
    }

    /// A peer is gone, which had queue pairs or not.
    pub(super) fn note_parted(&mut self, had_lanes: bool) {
        self.connections.count -= usize::from(had_lanes);
    }

    /// Whether a text is to be carried to a peer.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        !self.texts.outbox.is_empty()
    }

    /// Returns the next text that is to be carried.
    pub(crate) fn next_mail(&mut self) -> Option<OutgoingText> {
        self.texts.outbox.pop_front()
    }

    /// A text has come from a peer. It is looked at by [`Endpoint::tend_wireup`].
    pub(crate) fn deliver_mail(&mut self, from: PeerId, text: String) {
        self.texts.inbox.push_back((from, text));
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
        id == self.peers.oneself() || self.peers.get(id).is_some_and(|peer| peer.is_open() && peer.failure.is_none())
    }

    /// Begins to connect to a peer, where nothing has begun it yet.
    pub(crate) fn ensure_connecting(&mut self, id: PeerId) {
        let Some(peer) = self.peers.live_mut(id) else { return };
        if peer.connection.stage() != Stage::Idle {
            return;
        }
        peer.connection.step(Step::Ask).expect("it is in the table");
        let deadline = self.core.engine.now() + self.wireup.patience;
        self.wireup.eager_looks = EAGER_LOOKS;
        self.wireup.under_way.insert(id, deadline);
        if !self.meet(id) {
            self.begin_wireup(id);
        }
    }

    /// Asks a peer, or asks to be asked, over the port that it is behind.
    pub(super) fn begin_wireup(&mut self, id: PeerId) {
        // The lower rank serves: it asks to be asked.
        let serves = !self.is_peer_to_peer(id) && self.peers.oneself() < id;
        let begun = self.with_method(|method, site| if serves { method.knock(site, id) } else { method.ask(site, id) });
        if let Err(why) = begun {
            self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
        }
    }

    /// Whether either end may ask the other. Peers that are no ranks have nothing else to say it by.
    fn is_peer_to_peer(&self, id: PeerId) -> bool {
        self.wireup.initiative == Initiative::PeerToPeer || id.rank().is_none()
    }

    /// Whether our request goes on where both have asked: that of the lower rank, or of the lower address.
    fn goes_first(&self, id: PeerId) -> bool {
        match id.rank() {
            Some(_) => self.peers.oneself() < id,
            None => self.wireup.book.address(id).is_some_and(|theirs| self.wireup.book.own() < theirs),
        }
    }

    /// Looks after connections that are being made; returns whether anything happened.
    #[cold]
    pub(crate) fn tend_wireup(&mut self) -> bool {
        let mut happened = self.tend_locality();
        self.wireup.eager_looks = self.wireup.eager_looks.saturating_sub(1);
        loop {
            let polled = self.with_method(|method, site| method.poll(site));
            self.welcome_strangers();
            match polled {
                Ok(Some(event)) => self.on_method_event(event),
                Ok(None) => break,
                Err(why) => {
                    self.fail_connecting(&why);
                    break;
                }
            }
            happened = true;
        }
        if happened {
            self.wireup.eager_looks = EAGER_LOOKS;
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
            MethodEvent::Asked(id, over) => self.on_asked_over(id, over),
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
            MethodEvent::Refused(id, Refusal::NoLocalPort) => self.go_on_without_port(id),
            MethodEvent::Refused(id, Refusal::Because(why)) => {
                let is_under_way = self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage().is_under_way());
                if is_under_way || self.wireup.book.is_unknown(id) && !self.is_connected(id) {
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

    /// A peer asks over a port, which must be the one that it is behind here, too.
    pub(super) fn on_asked_over(&mut self, id: PeerId, over: AskedOver) {
        match over {
            AskedOver::Local if self.wireup.locality.has_port(id) => self.on_asked(id),
            AskedOver::Local if self.wireup.locality.is_opening(id) => self.wireup.locality.note_early(id),
            AskedOver::Local => self.with_method(|method, site| method.refuse(site, id, &Refusal::NoLocalPort)),
            AskedOver::Network => {
                let stage = self.peers.live_mut(id).map(|peer| peer.connection.stage());
                let ours_goes_on = stage == Some(Stage::Asking) && self.is_peer_to_peer(id) && self.goes_first(id);
                if stage.is_some_and(|stage| stage <= Stage::Asking) && !ours_goes_on {
                    self.forgo_port(id);
                }
                self.on_asked(id);
            }
        }
    }

    /// A peer asks. Where both have asked the lower slot's request goes on.
    pub(super) fn on_asked(&mut self, id: PeerId) {
        let oneself = self.peers.oneself();
        let stage = self.peer_or_error(id).map(|peer| peer.connection.stage());
        let refusal = match stage {
            Ok(Stage::Idle) => None,
            Ok(Stage::Asking) if self.is_peer_to_peer(id) && self.goes_first(id) => Some(Refusal::Crossed),
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
        if let Err(why) = outcome {
            self.turn_away(id, why);
        }
    }

    /// There is no connection, and the peer gets the reason.
    fn turn_away(&mut self, id: PeerId, why: NoConnection) {
        self.with_method(|method, site| method.refuse(site, id, &Refusal::Because(why.clone())));
        self.fail_peer(id, OpError::NotConnected { peer: id, why: why.into() });
    }

    /// A peer is given up, and with it an attempt to connect to it. It gets the reason, and again should it still ask.
    pub(crate) fn abandon_wireup(&mut self, id: PeerId, why: &OpError) {
        self.wireup.under_way.remove(&id);
        self.wireup.locality.give_up(id);
        self.with_method(|method, site| {
            method.part(site, id, &why.to_string());
            method.forget(site, id);
        });
    }

    pub(super) fn with_method<R>(&mut self, action: impl FnOnce(&mut dyn Method<L>, &mut Site<'_, L>) -> R) -> R {
        let Wireup { method, plans, is_shared_port, locality, patience, texts, book, arrivals, .. } = &mut self.wireup;
        let mut site = Site {
            peers: &mut self.peers,
            book,
            arrivals,
            engine: &mut self.core.engine,
            pd: self.core.pd,
            cq: self.core.cq,
            texts,
            lanes: plans,
            is_shared_port: *is_shared_port,
            attached: &locality.attached,
            patience: Duration::from_nanos(*patience),
        };
        action(&mut **method, &mut site)
    }
}
