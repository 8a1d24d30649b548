//! The communication manager (IBTA volume 1, chapter 12): how connections are made and ended, as a pure state machine.
//!
//! A [`ConnectionManager`] takes the application's calls, management datagrams of queue pair 1 and the time; what it
//! wants done lies in two queues: datagrams to send and [`ConnectionEvent`]s. It knows no queue pair: the application sets
//! its own to the [`Terms`] that it receives, and states in an [`Offer`] what it brings.
//!
//! ```text
//! active                                                  passive
//! connect()                  -- REQ, until answered -->   Event::Request
//! Event::Reply               <-- REP, until answered --   accept()             queue pair: ready to receive
//! confirm()                  -- RTU -->                   Event::Established   queue pair: ready to send
//! disconnect(), either side  -- DREQ, until answered -->  Event::Disconnected
//! Event::Disconnected        <-- DREP --
//! ```
//!
//! Towards Linux it behaves as `drivers/infiniband/core/cm.c` and `cma.c` do: services that are ports carry an
//! addressing header in front of the private data; answers carry the transaction of what they answer; a queue pair
//! that asks for a connection while it has one is refused as stale, and its old connection ended. It differs where
//! IBTA is kinder: a REQ seen again after the REP has the REP repeated at once, an unknown REP is refused and not left
//! to its retries, and a side that gives up notifies the other.
//!
//! Everything is bounded. Messages that find the send queue full are lost as others are on the wire. REQs that find the
//! event queue full are dropped, and asked again; calls that would begin something then return
//! [`CmError::EventsFull`]. What has begun may still add its few events, at most four for each connection.
//!
//! The caller's part of the bargain: [`ConnectionManager::on_timer`] once [`ConnectionManager::deadline`] has passed,
//! and both queues emptied after every call. Non-goals: alternate paths, peer-to-peer connecting, RD, UC and XRC.

mod active;
mod config;
mod connections;
mod ending;
mod error;
mod event;
mod listeners;
mod offer;
mod passive;
mod patience;
mod route;
mod sidr;
mod state;
mod stats;
mod steps;
#[cfg(test)]
mod tests;
mod timers;

pub use config::CmConfig;
pub use connections::ConnId;
pub use error::{CmError, ListenError};
pub use event::{ConnectionEvent, Ending, PrivateData, SidrFailure};
pub use offer::{Offer, Terms};
pub use route::Route;
pub use sidr::SidrId;
pub use state::CmState;
pub use stats::CmStats;

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Nanos;
use crate::wire::cm::{CmMessage, Mad, ServiceId};
use connections::{Connections, Datagram};
use listeners::Listeners;
use sidr::Resolver;
use timers::Timers;

/// A host's communication manager; `R` is the caller's token for a peer and the way to it.
pub struct ConnectionManager<R> {
    config: CmConfig,
    rng: StdRng,
    listeners: Listeners,
    connections: Connections<R>,
    resolver: Resolver<R>,
    timers: Timers,
    datagrams: VecDeque<(R, Datagram)>,
    events: VecDeque<ConnectionEvent>,
    stats: CmStats,
}

/// What [`ConnectionManager::connect`] asks for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// The service to connect to.
    pub service: ServiceId,
    /// The port to connect from, sent to the peer if the service is a port.
    pub source_port: u16,
    /// What our queue pair brings.
    pub offer: Offer,
    /// For the peer's application: up to 56 bytes if the service is a port, else 92.
    pub private_data: &'a [u8],
}

impl<R: Route> ConnectionManager<R> {
    /// A manager without listeners and connections.
    pub fn new(config: CmConfig) -> Self {
        Self {
            rng: StdRng::seed_from_u64(config.seed),
            config,
            listeners: Listeners::default(),
            connections: Connections::new(),
            resolver: Resolver::new(),
            timers: Timers::default(),
            datagrams: VecDeque::new(),
            events: VecDeque::new(),
            stats: CmStats::default(),
        }
    }

    /// Takes REQs for `service` from now on.
    pub fn listen(&mut self, service: ServiceId) -> Result<(), ListenError> {
        self.listeners.add(service, self.config.max_listeners)
    }

    /// Asks a peer that does not answer a REQ or a REP for at least so long: its application may not look before. Linux gives up after
    /// 55 seconds, and so does who does not call this.
    pub fn be_patient(&mut self, id: ConnId, at_least: Nanos) {
        if let Some(connection) = self.connections.get_mut(id)
            && matches!(connection.state, CmState::ReqSent | CmState::RepSent)
        {
            connection.patience = connection.patience.lasting(&self.config, at_least);
        }
    }

    /// Refuses REQs for `service` from now on; those that the application knows stay. `false` if there was no listener.
    pub fn unlisten(&mut self, service: ServiceId) -> bool {
        self.listeners.remove(service)
    }

    /// Takes the payload of a packet to queue pair 1, which came from `route`.
    pub fn on_mad(&mut self, now: Nanos, route: R, bytes: &[u8]) {
        match Mad::parse(bytes) {
            Ok(mad) => self.on_message(now, route, &mad),
            Err(reason) => self.stats.count(reason),
        }
    }

    fn on_message(&mut self, now: Nanos, route: R, mad: &Mad) {
        self.stats.rx_messages += 1;
        let tid = mad.header.tid;
        match &mad.message {
            CmMessage::Req(req) => self.on_req(now, route, tid, req),
            CmMessage::Rep(rep) => self.on_rep(now, route, tid, rep),
            CmMessage::Rtu(rtu) => self.on_rtu(now, route, rtu),
            CmMessage::Rej(rej) => self.on_rej(now, route, rej),
            CmMessage::Mra(mra) => self.on_mra(now, route, mra),
            CmMessage::Dreq(dreq) => self.on_dreq(now, route, tid, dreq),
            CmMessage::Drep(drep) => self.on_drep(now, route, drep),
            CmMessage::SidrReq(req) => self.on_sidr_req(route, tid, req),
            CmMessage::SidrRep(rep) => self.on_sidr_rep(route, rep),
            CmMessage::Other { .. } => self.stats.rx_alternate_path += 1,
        }
    }

    /// The next datagram to send to queue pair 1 of `R`'s peer.
    pub fn poll_transmit(&mut self) -> Option<(R, Datagram)> {
        self.datagrams.pop_front()
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// How far a connection has come; [`CmState::Idle`] if there is none of that name.
    pub fn state(&self, id: ConnId) -> CmState {
        self.connections.get(id).map_or(CmState::Idle, |connection| connection.state)
    }

    /// The way to a connection's peer.
    pub fn route(&self, id: ConnId) -> Option<R> {
        self.connections.get(id).map(|connection| connection.route)
    }

    /// Connections, those in [`CmState::Timewait`] included, and unanswered questions for datagram services.
    pub fn len(&self) -> usize {
        self.connections.len() + self.resolver.len()
    }

    /// Whether there are none of them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters.
    pub fn stats(&self) -> &CmStats {
        &self.stats
    }

    /// Whether something new may begin.
    fn has_room(&self) -> Result<(), CmError> {
        if self.len() >= self.config.max_connections {
            Err(CmError::TooManyConnections)
        } else if self.events.len() >= self.config.max_queued_events {
            Err(CmError::EventsFull)
        } else {
            Ok(())
        }
    }

    /// A name that no connection has. Zero means "none yet" in messages.
    fn new_id(&mut self) -> ConnId {
        loop {
            let id = ConnId(self.rng.random());
            if id.0 != 0 && !self.connections.contains(id) {
                return id;
            }
        }
    }

    /// Queues a message.
    fn transmit(&mut self, route: R, tid: u64, message: CmMessage) {
        self.transmit_datagram(route, Mad::new(tid, message).emit());
    }

    fn transmit_datagram(&mut self, route: R, datagram: Datagram) {
        if self.datagrams.len() >= self.config.max_queued_datagrams {
            self.stats.tx_queue_full += 1;
        } else {
            self.stats.tx_messages += 1;
            self.datagrams.push_back((route, datagram));
        }
    }
}
