//! The end of a peer: whatever needs it ends with a named error, and everything else goes on.

use roci_driver::WcStatus;
use roci_driver::link::Link;

use crate::Rank;
use crate::core::rx::protocol_error;
use crate::services::tag::cancels::Cancels;
use crate::services::tag::eager::Body;
use crate::services::tag::request::{OpError, Operation, Request};
use crate::worker::Worker;

/// Something that happened to the worker as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerEvent {
    /// A peer can be talked to.
    Connected {
        /// Which.
        rank: Rank,
    },
    /// A peer is gone; all that needed it has ended with this error.
    PeerGone {
        /// Which.
        rank: Rank,
        /// Why.
        error: OpError,
    },
}

/// Events that wait to be polled; more are lost, and counted.
const EVENT_LIMIT: usize = 4096;

impl<L: Link> Worker<L> {
    /// What has happened to the worker as a whole.
    pub fn poll_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    pub(crate) fn tell(&mut self, event: WorkerEvent) {
        if self.events.len() < EVENT_LIMIT {
            self.events.push_back(event);
        } else {
            self.stats.events_lost += 1;
        }
    }

    /// A peer is gone: whatever needs it ends with `error`.
    pub(crate) fn fail_peer(&mut self, rank: Rank, error: OpError) {
        let Some(endpoint) = self.endpoint(rank) else { return };
        let error = endpoint.misfit.take().map_or(error, |misfit| protocol_error(rank, misfit.what));
        let was_open = endpoint.is_open();
        endpoint.failure = Some(error.clone());
        let lanes: Vec<_> = endpoint.lanes.iter().map(|lane| lane.qp).collect();
        endpoint.outgoing.clear();
        endpoint.control.clear();
        endpoint.cancels = Cancels::default();
        endpoint.streams.clear();
        endpoint.transfers.clear();
        let parked = std::mem::take(&mut endpoint.parked);
        let unposted: Vec<_> = endpoint.lanes.iter_mut().map(|lane| std::mem::take(&mut lane.unposted)).collect();
        self.stats.peers_gone += 1;
        self.peers_gone += 1;
        self.peers_known += usize::from(!was_open);
        self.abandon_wireup(rank, &error);
        for qp in lanes {
            self.engine.fail_qp(qp, WcStatus::WrFlushErr);
        }
        for request in self.requests.depending_on(rank) {
            self.abandon(request, &error);
        }
        self.lose_messages(rank, &error);
        for arrived in parked {
            self.give_receive_vbuf(arrived.lane, arrived.vbuf);
        }
        for (lane, vbufs) in unposted.into_iter().enumerate() {
            for vbuf in vbufs {
                self.give_receive_vbuf(lane, vbuf);
            }
        }
        // What was wrong with the peer may have taken the last shared receive with it.
        self.post_shared();
        self.release_withheld();
        self.tell(WorkerEvent::PeerGone { rank, error });
        if self.has_nobody_left() {
            // They were posted while there was somebody, and who only tests them must hear of it. Later ones are meant for
            // messages of this rank to itself.
            for request in self.matching.drain_posted(self.rank) {
                self.requests.end(request, Err(OpError::NobodyLeft));
            }
        }
    }

    /// There were peers, and all of them are gone.
    pub(crate) fn has_nobody_left(&self) -> bool {
        self.size > 1 && self.peers_gone == self.size - 1
    }

    fn abandon(&mut self, request: Request, error: &OpError) {
        match self.requests.replace(request, Operation::Ended(Err(error.clone()))) {
            Some(Operation::Exposed(exposed)) => drop(self.deregister(exposed.region)),
            Some(Operation::Opened(opened)) => drop(self.deregister(opened.region)),
            Some(Operation::Piped(pipe)) => self.abandon_pipe(*pipe),
            // The send was over before; only whether it could be taken back will never be known.
            Some(Operation::Withdrawing { done, .. }) => drop(self.requests.end(request, Ok(done))),
            _ => {}
        }
        self.requests.settle(request);
    }

    /// Receives that wait for this peer alone end; payloads that waited with it are lost; what it sent in full stays.
    fn lose_messages(&mut self, rank: Rank, error: &OpError) {
        let series = &self.series;
        let is_lost = |body: &Body| match body {
            Body::Series { id, .. } => series.get(&(rank, *id)).is_none_or(|series| !series.is_complete()),
            Body::Remote(_) => true,
            Body::Whole { .. } | Body::Local { .. } => false,
        };
        let orphans = self.matching.forget(rank, is_lost);
        for request in orphans {
            self.requests.end(request, Err(error.clone()));
        }
        let of_peer = self.series.range((rank, 0)..=(rank, u64::MAX));
        let lost: Vec<_> = of_peer.filter(|(_, series)| !series.is_complete()).map(|(&(_, id), _)| id).collect();
        for id in lost {
            self.discard_series(rank, id);
            self.series.remove(&(rank, id));
        }
    }

    /// Why a message that was claimed can no longer be received: its sender has gone, and the rest of it with it.
    pub(crate) fn loss_of(&self, source: Rank, body: &Body) -> Option<OpError> {
        let failure = self.endpoints[source].as_deref()?.failure.as_ref()?;
        let is_lost = match body {
            Body::Series { id, .. } => !self.series.contains_key(&(source, *id)),
            Body::Remote(_) => true,
            Body::Whole { .. } | Body::Local { .. } => false,
        };
        is_lost.then(|| failure.clone())
    }
}
