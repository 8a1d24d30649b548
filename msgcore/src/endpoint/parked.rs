//! A domain: several endpoints on one engine, with its ports, keys, memory and send buffers. An [`Endpoint`] is one of them that is
//! together with what they share. Each other one is a [`ParkedEndpoint`], which takes the place of the first when something is to be
//! done for it. So no call and no hot path asks which endpoint it is for.

use std::collections::VecDeque;
use std::mem;

use roci_driver::link::Link;
use roci_driver::{CompletionQueue, Engine};

use super::Endpoint;
use super::failure::EndpointEvent;
use super::keepalive::Keepalive;
use super::strangers::LeavingPeers;
use super::wireup::Wireup;
use crate::core::OwnCore;
use crate::core::completion::OpError;
use crate::core::peer::PeerId;
use crate::core::peers::Peers;
use crate::core::receive_buffers::ReceiveBuffers;
use crate::services::Services;

/// Everything of an endpoint but what its domain shares.
pub(crate) struct ParkedEndpoint<L: Link> {
    pub(crate) core: OwnCore,
    pub(super) peers: Peers,
    pub(crate) services: Services,
    pub(crate) wireup: Wireup<L>,
    pub(super) keepalive: Keepalive,
    pub(super) events: VecDeque<EndpointEvent>,
    pub(super) leaving: LeavingPeers,
}

/// What another thread can be notified of: there is room for it.
#[derive(Clone, Copy)]
pub(crate) struct ReportRoom {
    pub(crate) for_ended: bool,
    pub(crate) for_events: bool,
}

/// What an endpoint has of the engine for as long as that lives. One that is closed leaves it to the next.
pub(crate) struct Premises {
    /// Where its work requests complete.
    pub(crate) cq: CompletionQueue,
    pub(crate) receives: ReceiveBuffers,
    /// Numbers of local ports that are closed.
    pub(crate) free_ports: Vec<usize>,
}

impl<L: Link> ParkedEndpoint<L> {
    /// Returns what is left for another endpoint once this one is dismantled.
    pub(crate) fn into_premises(mut self) -> Premises {
        let OwnCore { cq, receives, .. } = self.core;
        Premises { cq, receives, free_ports: self.wireup.locality.attached.take_free() }
    }

    /// Whether operations have ended, or something has happened, that another thread was not notified of and can be.
    pub(crate) fn has_reports(&self, room: ReportRoom) -> bool {
        room.for_ended && self.services.tag.requests.has_ended() || room.for_events && !self.events.is_empty()
    }

    /// Whether something is to be done for this endpoint, which does not poll itself: a look costs less than taking its place.
    pub(crate) fn is_due(&self, engine: &Engine<L>) -> bool {
        let Self { core: OwnCore { cq, ready, .. }, services, wireup, .. } = self;
        engine.has_completions(*cq)
            || ready.is_due()
            || ready.are_to_go_on()
            || services.am.local_len() > 0
            || !services.tag.copies.is_empty()
            || wireup.is_urgent()
    }
}

impl<L: Link> Endpoint<L> {
    /// Takes the place of another endpoint of the domain, which takes this one's. The calls that make progress are counted for all.
    pub(crate) fn exchange(&mut self, other: &mut ParkedEndpoint<L>) {
        let Self { core, peers, services, wireup, keepalive, events, leaving, calls: _ } = self;
        core.exchange(&mut other.core);
        mem::swap(peers, &mut other.peers);
        mem::swap(services, &mut other.services);
        mem::swap(wireup, &mut other.wireup);
        mem::swap(keepalive, &mut other.keepalive);
        mem::swap(events, &mut other.events);
        mem::swap(leaving, &mut other.leaving);
    }

    /// Ends all that this endpoint has under way and all that it has of the engine, but for its receives: it is of no use from here on.
    pub(crate) fn dismantle(&mut self) {
        for id in self.peers.ids().collect::<Vec<_>>() {
            self.fail_peer(id, OpError::PeerRemoved { peer: id });
        }
        // What was under way completes at once.
        self.on_completions();
        for id in self.peers.ids().collect::<Vec<_>>() {
            self.release(id);
        }
        self.on_completions();
        self.services.close(&mut self.core);
        self.wireup.close(&mut self.core.engine);
    }

    /// Destroys the queue pairs of a peer that has failed, and closes its port.
    fn release(&mut self, id: PeerId) {
        let Self { core, peers, services, wireup, .. } = self;
        services.tag.discard_all_of(core, id);
        let Some(peer) = peers.get(id) else { return };
        peer.lanes.iter().for_each(|lane| core.engine.destroy_qp(lane.qp));
        wireup.locality.release_port(core, id);
        services.on_slot_released(core, id);
    }
}
