//! Flushing: what was sent reaches its peers before this rank goes on, or goes.

use std::thread;
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use thiserror::Error;

use super::Worker;
use super::report::Awaited;
use crate::PeerId;
use crate::backoff::Backoff;
use crate::core::in_flight::QueueMark;
use crate::core::peer::{Peer, WaitingMark};
use crate::core::refused::CallError;
use crate::endpoint::Endpoint;
use crate::services::tag::TagService;

/// Why not all has reached its peers.
#[derive(Error)]
#[non_exhaustive]
pub enum FlushError {
    /// There is no such peer, or it is gone.
    #[error(transparent)]
    Peer(#[from] CallError),
    /// These peers have not acknowledged all of it in time.
    #[error("not all that was sent has reached {} after {waited:?}", .peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Timeout {
        /// Who.
        peers: Vec<PeerId>,
        /// How long this rank has waited.
        waited: Duration,
    },
}

/// How far a flush to one peer is. What the peer asks for meanwhile is no part of it: it may never end.
struct Flushing {
    peer: PeerId,
    until: Until,
}

/// A flush that is under way.
pub(crate) struct PendingFlush {
    to: Option<PeerId>,
    open: Vec<Flushing>,
    since: Instant,
    timeout: Duration,
}

enum Until {
    /// All operations are work requests, or messages that wait: a put is behind its memory, what follows it behind the put, and a short
    /// message that had to be announced behind its receive.
    Begun,
    /// What waited then has left.
    Sent(WaitingMark),
    /// What had left is acknowledged, on each lane.
    Acknowledged(Vec<QueueMark>),
}

impl Flushing {
    fn begin(peer: &Peer) -> Self {
        Self { peer: peer.id, until: Until::Begun }
    }

    /// Whether it is over.
    fn is_over(&mut self, peer: &Peer, tag: &TagService) -> bool {
        if matches!(self.until, Until::Begun) {
            if !peer.has_begun_all() || tag.has_work(peer.id) || tag.has_unfetched(peer.id) {
                return false;
            }
            self.until = Until::Sent(peer.mark_of_waiting());
        }
        if let Until::Sent(mark) = &self.until {
            if !peer.has_sent(mark) {
                return false;
            }
            self.until = Until::Acknowledged(peer.lanes.iter().map(|lane| lane.in_flight.mark()).collect());
        }
        let Until::Acknowledged(marks) = &self.until else { return false };
        peer.lanes.iter().zip(marks).all(|(lane, mark)| lane.in_flight.has_passed(*mark))
    }
}

impl<L: Link> Worker<L> {
    /// Waits until all that was sent to a rank so far, or to every rank that is not gone, is in that rank's memory, for `timeout` at
    /// most. Of a long message, which moves once a receive waits for it, that is the announcement. So it is of a short one for which the
    /// peer had no credit, but where its send is over already, because it was injected or detached: that one must meet its receive.
    /// A [`DedicatedWorker`](crate::DedicatedWorker) does not tell them apart, and waits for each.
    /// A rank that aborts or exits after that loses no short message whose send is over.
    ///
    /// # Errors
    /// The rank is gone, or there is none; or it took longer.
    pub fn flush(&mut self, to: Option<PeerId>, timeout: Duration) -> Result<(), FlushError> {
        let (mut flush, mut backoff) = (self.begin_flush(to, timeout), Backoff::new(self.limits));
        loop {
            if let Some(end) = self.poll_flush(&mut flush) {
                return end;
            }
            self.progress_or_idle(&mut backoff, Awaited::Rest).map_err(CallError::from)?;
        }
    }

    /// Begins a flush.
    pub(crate) fn begin_flush(&self, to: Option<PeerId>, timeout: Duration) -> PendingFlush {
        let asked = self.endpoint.peers.iter().filter(|peer| to.is_none_or(|id| id == peer.id));
        let open = asked.filter(|peer| !self.has_flushed(peer)).map(Flushing::begin).collect();
        PendingFlush { to, open, since: Instant::now(), timeout }
    }

    /// Returns how a flush has ended, if it has.
    pub(crate) fn poll_flush(&mut self, flush: &mut PendingFlush) -> Option<Result<(), FlushError>> {
        if let Some(peer) = flush.to.filter(|&peer| peer != self.endpoint.peers.oneself())
            && let Err(why) = self.endpoint.peer_or_error(peer)
        {
            return Some(Err(why.into()));
        }
        let Endpoint { peers, services, .. } = &self.endpoint;
        flush.open.retain_mut(|flushing| {
            let peer = peers.get(flushing.peer).filter(|peer| peer.failure.is_none());
            peer.is_some_and(|peer| !flushing.is_over(peer, &services.tag))
        });
        let waited = flush.since.elapsed();
        if flush.open.is_empty() {
            Some(Ok(()))
        } else if waited >= flush.timeout {
            let peers = flush.open.drain(..).map(|flushing| flushing.peer).collect();
            Some(Err(FlushError::Timeout { peers, waited }))
        } else {
            None
        }
    }

    /// Whether all that was sent to a peer is in its memory, as far as is known without waiting; what the peer has asked for and is
    /// on its way counts, too, which [`Worker::flush`] does not wait for. So it is where the peer is gone, or there is none.
    #[inline]
    pub fn is_flushed(&self, to: impl Into<PeerId>) -> bool {
        self.endpoint.peers.get(to.into()).is_none_or(|peer| self.has_flushed(peer))
    }

    /// The same of all peers.
    pub fn is_flushed_to_all(&self) -> bool {
        self.endpoint.peers.iter().all(|peer| self.has_flushed(peer))
    }

    fn has_flushed(&self, peer: &Peer) -> bool {
        self.is_quiet(peer) && (peer.failure.is_some() || !self.endpoint.services.tag.has_unfetched(peer.id))
    }
}

/// A worker that is dropped, and neither closed nor aborted, lingers until what was sent has reached its peers: as long as
/// `linger_ms` says. One that was assembled from ports, whose peers the same thread may poll, does not.
impl<L: Link> Drop for Worker<L> {
    fn drop(&mut self) {
        if thread::panicking() || self.is_forked() {
            return;
        }
        // What was sent leaves, though nothing may wait until it has arrived.
        self.ring_doorbell();
        if let Some(linger) = self.linger.take() {
            self.flush_all(linger);
        }
    }
}
