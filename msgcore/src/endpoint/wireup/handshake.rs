//! The handshake that every method ends in: receives are posted, and each end sends its terms. See [`Stage`].

use roci_driver::QueuePair;
use roci_driver::link::Link;
use roci_protocol::msg::{self, ConnectionTerms, Message};

use crate::core::breach::Breach;
use crate::core::completion::OpError;
use crate::core::lane::Lane;
use crate::core::no_connection::NoConnection;
use crate::core::peer::{Arrived, Mismatch, Peer, PeerId};
use crate::core::stage::{Stage, Step};
use crate::core::tx::name_of;
use crate::endpoint::Endpoint;
use crate::endpoint::dispatch::breach_of;
use crate::endpoint::failure::EndpointEvent;
use crate::endpoint::sending::{advance, go_on};
use crate::receive_queues::Kind;

/// Bytes of the receive that a peer's terms come in.
const TERMS_LEN: usize = msg::LEN + ConnectionTerms::LEN;
/// Polls after which an acknowledgement of ours has left for certain.
const PARTING_POLLS: u32 = 16;

impl<L: Link> Endpoint<L> {
    /// Queue pairs have come: their receives are posted, first the small one for the peer's terms.
    pub(super) fn raise_lanes(&mut self, id: PeerId, qps: Vec<QueuePair>) -> Result<(), NoConnection> {
        debug_assert_eq!(qps.len(), self.wireup.plans.len(), "there is a queue pair for each lane");
        let oneself = self.peers.oneself();
        let Self { core, peers, .. } = self;
        let is_waited_for = peers.live_mut(id).is_some_and(|peer| peer.lanes.is_empty());
        let admitted = if is_waited_for { self.wireup.connections.add(id) } else { Err(NoConnection::Gone) };
        if let Err(why) = admitted {
            // No peer has them, so nothing else would end them.
            for qp in qps {
                core.engine.destroy_qp(qp);
            }
            return Err(why);
        }
        for (lane, &qp) in qps.iter().enumerate() {
            peers.bind(qp, id, lane);
            // A name takes memory for each peer, and only the log needs it.
            if tracing::enabled!(target: "roci_driver", tracing::Level::DEBUG) {
                core.engine.label_qp(qp, &id.to_string());
            }
        }
        let peer = peers.entry(id);
        peer.lanes = qps.iter().zip(&core.receives.queues).map(|(&qp, queue)| Lane::new(qp, queue)).collect();
        let first = core.receives.queues.get(0).map(|queue| queue.kind);
        if let (Some(Kind::PerPeer { .. }), Some(&qp)) = (first, qps.first()) {
            let small = core.engine.buffer(TERMS_LEN).map_err(|_| NoConnection::NoMemory(oneself))?;
            // A queue pair that refuses has failed, and its completions say so.
            peer.lanes[0].posted = usize::from(core.engine.post_recv(qp, name_of(0, id), small).is_ok());
        }
        core.post_own(peer).map_err(|why| NoConnection::NoReceives { peer: oneself, why })
    }

    /// The queue pairs are up at both ends: our terms go out.
    pub(super) fn on_established(&mut self, id: PeerId) {
        let Some(peer) = self.peers.live_mut(id).filter(|peer| !peer.lanes.is_empty()) else { return };
        peer.connection.owes_terms = true;
        self.step(id, Step::Up);
        if let Some(peer) = self.peers.live_mut(id) {
            self.core.send_terms(peer);
        }
    }

    /// A vbuf has left for a peer: the first one holds our terms.
    #[inline]
    pub(in crate::endpoint) fn on_terms_sent(&mut self, id: PeerId) {
        let waits = |peer: &mut Peer| matches!(peer.connection.stage(), Stage::Greeting | Stage::Welcomed);
        if self.peers.live_mut(id).is_some_and(waits) {
            self.step(id, Step::Sent);
        }
    }

    /// The first message of a peer must be its terms.
    #[cold]
    pub(in crate::endpoint) fn on_terms(&mut self, id: PeerId, arrived: Arrived) {
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
        let is_answered = |peer: &mut Peer| matches!(peer.connection.stage(), Stage::Answering | Stage::EarlyTerms);
        if self.wireup.method.is_established_by_terms() && self.peers.live_mut(id).is_some_and(is_answered) {
            self.on_established(id);
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
    pub(super) fn fail_mismatched(&mut self) {
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

    pub(super) fn step(&mut self, id: PeerId, step: Step) {
        let Some(peer) = self.peers.live_mut(id) else { return };
        match peer.connection.step(step) {
            Ok(Stage::Open) => {
                tracing::info!("{id} is connected, over {} queue pairs", peer.lanes.len());
                self.wireup.under_way.remove(&id);
                self.peers.note_connected(id);
                self.emit(EndpointEvent::Connected { peer: id });
                let Self { core, services, peers, .. } = self;
                if let Some(peer) = peers.live_mut(id) {
                    advance(core, services, peer);
                }
                self.offer_memory(id);
            }
            Ok(_) => {}
            Err(breach) => self.fail_peer(id, breach_of(id, breach)),
        }
    }
}
