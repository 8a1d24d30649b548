//! The end of a peer: whatever needs it ends with a named error, and everything else goes on. It is noticed by a work request
//! that fails (`dispatch.rs`), by the link, by keepalives (`keepalive.rs`), and by the launcher (`worker/departures.rs`).

use std::mem;

use roci_driver::WcStatus;
use roci_driver::link::Link;

use super::Endpoint;
use super::dispatch::breach_of;
use crate::core::completion::OpError;
use crate::core::peer::{PeerId, PeerTx};

/// Something that happened to the endpoint as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointEvent {
    /// A peer can be talked to.
    Connected {
        /// Which.
        peer: PeerId,
    },
    /// A peer has denied a one-sided operation that went by message: the key does not allow it, or is not valid any more. Where the
    /// application waits for the operation that has ended with [`OpError::Denied`], too.
    Denied {
        /// Which.
        peer: PeerId,
    },
    /// A peer is gone; all that needed it has ended with this error.
    PeerGone {
        /// Which.
        peer: PeerId,
        /// Why.
        error: OpError,
    },
}

/// Events that wait to be polled; more are lost, and counted.
const EVENT_LIMIT: usize = 4096;

impl<L: Link> Endpoint<L> {
    /// Returns what has happened to the endpoint as a whole.
    pub(crate) fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    pub(super) fn emit(&mut self, event: EndpointEvent) {
        if self.events.len() < EVENT_LIMIT {
            self.events.push_back(event);
        } else {
            self.core.stats.events_lost += 1;
        }
    }

    /// A peer is gone, whether anything was done with it or not.
    pub(crate) fn lose_peer(&mut self, id: PeerId, error: OpError) {
        self.peers.entry(id);
        self.fail_peer(id, error);
    }

    /// A peer is gone: whatever needs it ends with `error`.
    pub(crate) fn fail_peer(&mut self, id: PeerId, error: OpError) {
        let Some(peer) = self.peers.live_mut(id) else { return };
        let error = peer.connection.mismatch.take().map_or(error, |mismatch| breach_of(id, mismatch.breach));
        tracing::info!("{id} is gone: {error}");
        // What was sent before has left, as far as its queue pair lets it.
        self.core.close_packet(peer);
        let was_open = peer.is_open();
        peer.failure = Some(error.clone());
        let lanes: Vec<_> = peer.lanes.iter().map(|lane| lane.qp).collect();
        peer.tx = PeerTx::default();
        let reorder = mem::take(&mut peer.rx.reorder);
        let unposted: Vec<_> = peer.lanes.iter_mut().map(|lane| mem::take(&mut lane.unposted)).collect();
        self.core.stats.peers_gone += 1;
        self.wireup.note_parted(!lanes.is_empty());
        self.peers.note_gone(id, was_open);
        self.abandon_wireup(id, &error);
        for qp in lanes {
            self.core.engine.fail_qp(qp, WcStatus::WrFlushErr);
        }
        self.services.on_peer_down(&mut self.core, id, &error);
        for arrived in reorder {
            self.core.give_receive_vbuf(arrived.lane, arrived.vbuf);
        }
        for (lane, vbufs) in unposted.into_iter().enumerate() {
            for vbuf in vbufs {
                self.core.give_receive_vbuf(lane, vbuf);
            }
        }
        // What was wrong with the peer may have taken the last shared receive with it.
        self.core.post_shared();
        self.emit(EndpointEvent::PeerGone { peer: id, error });
        if self.peers.is_deserted() {
            // They were posted while there was somebody, and who only tests them must see it. Later ones are meant for
            // messages of this end to itself.
            for request in self.services.tag.matching.drain_posted(self.peers.oneself()) {
                self.services.tag.fail_receive(request, OpError::NobodyLeft);
            }
        }
        self.retire_unknown(id);
        self.settle();
    }
}
