//! The end of a worker: what is still under way arrives, or is taken back and counted.
//!
//! As long as any rank is outside of its [`Worker::close`] it may still post a receive, so a first barrier only keeps
//! serving. Once all are inside, what has met no receive never will: it is taken back in the way of `MPI_Cancel`, which
//! says for certain whether it was met. What was met moves on to its end. A second barrier keeps serving those who need
//! an answer still.

use std::fmt::{self, Display, Formatter};
use std::mem;
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use thiserror::Error;

use crate::backoff::{Backoff, SUSPICIOUS};
use crate::core::completion::OpError;
use crate::core::lane::Lane;
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;
use crate::services::tag::operation::TagOperation;
use crate::worker::report::Awaited;
use crate::worker::{Dropped, Worker};

/// How long a rank waits for its peers to confirm that their connections have ended.
const FAREWELL: Duration = Duration::from_millis(200);

/// Why a worker could not end in order, and what it gave up.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("{why}; given up: {dropped}")]
pub struct CloseError {
    /// Why.
    #[source]
    pub why: OpError,
    /// What was given up.
    pub dropped: Dropped,
}

/// An endpoint that is being closed.
pub(crate) struct PendingClose {
    /// What was under way then.
    sends: Vec<Request>,
    /// How long its peers may be silent.
    patience: Duration,
    /// What they had done when they were last looked at.
    traffic: u64,
    last: Instant,
}

impl From<OpError> for CloseError {
    /// Nothing is known of what was given up: its worker is gone.
    fn from(why: OpError) -> Self {
        Self { why, dropped: Dropped::default() }
    }
}

impl<L: Link> Worker<L> {
    /// Waits until every rank closes, and ends the worker. Until then its peers receive whatever was sent to them; what
    /// was not received by then is given up, and counted at one of the two ends.
    ///
    /// A worker alone waits for no peer. A send that has met no receive is taken back: wait for it before.
    ///
    /// # Errors
    /// A rank has failed, or does not answer. The worker is gone all the same.
    pub fn close(mut self) -> Result<Dropped, CloseError> {
        self.linger = None;
        self.endpoint.discard_dropped();
        let sends = self.hold_sends();
        let outcome = self.end_in_order(&sends);
        let dropped = Dropped { sends: self.lost_sends(&sends), ..self.dropped() };
        outcome.map(|()| dropped).map_err(|why| CloseError { why, dropped })
    }

    /// Begins to end the endpoint at hand as [`Worker::close`] does.
    pub(crate) fn begin_closing(&mut self) -> PendingClose {
        self.endpoint.discard_dropped();
        let sends = self.hold_sends();
        for &send in &sends {
            self.cancel(send);
        }
        let (patience, traffic) = (self.endpoint.wireup.patience(), self.traffic());
        PendingClose { sends, patience, traffic, last: Instant::now() }
    }

    /// Returns what the endpoint at hand gave up, once nothing of it is under way any more; or why that has not come about, once its own
    /// peers have been silent for long.
    pub(crate) fn poll_closing(&mut self, close: &mut PendingClose) -> Option<Result<Dropped, CloseError>> {
        let is_drained = self.is_drained();
        if !is_drained {
            if close.last.elapsed() <= close.patience {
                return None;
            }
            let before = mem::replace(&mut close.traffic, self.traffic());
            if before != close.traffic {
                close.last = Instant::now();
                return None;
            }
        }
        let dropped = Dropped { sends: self.lost_sends(&close.sends), ..self.dropped() };
        Some(if is_drained { Ok(dropped) } else { Err(CloseError { why: self.silence(close.patience), dropped }) })
    }

    /// Returns a number that everything changes by which a peer of the endpoint at hand gives a sign of life.
    fn traffic(&self) -> u64 {
        let of_lane = |lane: &Lane| {
            let stats = self.endpoint.core.engine.qp_stats(lane.qp).unwrap_or_default();
            stats.rx_requests + stats.tx_read_responses + u64::from(lane.in_flight.ended())
        };
        self.endpoint.peers.iter().flat_map(|peer| &peer.lanes).map(of_lane).fold(0, u64::wrapping_add)
    }

    /// Returns what the endpoint at hand gives up that ends now.
    pub(crate) fn give_up(&mut self) -> Dropped {
        self.endpoint.discard_dropped();
        self.dropped()
    }

    /// Ends the worker without waiting for any rank: what was sent and has not arrived may be lost ([`Worker::flush`]). Peers
    /// see it go. Says what it gave up.
    pub fn abort(mut self) -> Dropped {
        self.linger = None;
        self.give_up()
    }

    fn dropped(&self) -> Dropped {
        Dropped {
            sends: self.endpoint.services.tag.requests.sends(PeerId::NONE).len(),
            receives: self.endpoint.services.tag.matching.posted_len(),
            unexpected: self.endpoint.services.tag.matching.unexpected_len(),
            claimed: self.endpoint.services.tag.claims.len(),
            payloads: self.endpoint.services.stream.payloads_under_way(),
            operations: self.endpoint.services.tag.requests.elsewhere(),
        }
    }

    /// The sends to peers that are under way, but for those that the application has taken back itself. How they end is
    /// kept, even where they are detached.
    fn hold_sends(&mut self) -> Vec<Request> {
        let mut sends = self.endpoint.services.tag.requests.sends(self.endpoint.peers.oneself());
        sends.retain(|&request| self.endpoint.services.tag.requests.hold(request));
        sends
    }

    /// Sends that have not ended, and those that ended otherwise than they should have.
    fn lost_sends(&self, held: &[Request]) -> usize {
        let is_lost = |request: &&Request| match self.endpoint.services.tag.requests.get(**request) {
            Some(TagOperation::Ended(outcome)) => outcome.as_ref().map_or(true, |done| done.is_cancelled),
            _ => false,
        };
        self.dropped().sends + held.iter().filter(is_lost).count()
    }

    fn end_in_order(&mut self, sends: &[Request]) -> Result<(), OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        let are_all_here = self.barrier();
        for &send in sends {
            self.cancel(send);
        }
        // Of a job that has failed the ranks that are left may still answer.
        let patience = if are_all_here.is_ok() { self.endpoint.wireup.patience() } else { SUSPICIOUS };
        let drained = self.drain(patience);
        are_all_here.and(drained)?;
        // Peers may still need an acknowledgement of ours: the barrier keeps polling until none does.
        self.barrier()?;
        self.leave();
        Ok(())
    }

    /// Ends the engine's connections. Nothing is waited for when the worker is dropped then.
    pub(super) fn depart(mut self) {
        self.linger = None;
        if !self.is_forked() {
            self.leave();
        }
    }

    /// Ends the connections that RDMA-CM has made. Both ends do so at about the same time, so a peer whose answer does not come soon has
    /// ended them too, and its answer is lost.
    fn leave(&mut self) {
        self.endpoint.core.engine.cm_disconnect_all();
        let since = Instant::now();
        while self.endpoint.core.engine.cm_disconnecting() > 0 && since.elapsed() < FAREWELL {
            if self.endpoint.core.engine.poll() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Waits until nothing of ours is under way. All peers make progress, so that nothing happens for so long has a reason.
    fn drain(&mut self, patience: Duration) -> Result<(), OpError> {
        let mut backoff = Backoff::new(self.limits);
        let mut last = Instant::now();
        while !self.is_drained() {
            if self.progress() {
                backoff.reset();
                last = Instant::now();
                continue;
            }
            if last.elapsed() > patience {
                return Err(self.silence(patience));
            }
            let idle = backoff.idle();
            self.report_if_due(&mut backoff, Awaited::Rest);
            self.look_after(idle)?;
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        self.endpoint.services.am.local_len() == 0
            && self.endpoint.peers.iter().all(|peer| self.is_quiet(peer))
            && self.endpoint.services.tag.requests.sends(self.endpoint.peers.oneself()).is_empty()
    }

    /// Whether nothing of ours is under way to a peer.
    pub(super) fn is_quiet(&self, peer: &Peer) -> bool {
        peer.failure.is_some() || (peer.is_quiet() && !self.endpoint.services.tag.has_work(peer.id))
    }

    /// Says for whom there has been no answer.
    fn silence(&self, patience: Duration) -> OpError {
        let busy = self.endpoint.peers.iter().filter(|peer| !self.is_quiet(peer));
        let mut silent: Vec<_> = busy.map(|peer| peer.id).collect();
        let sends = self.endpoint.services.tag.requests.sends(self.endpoint.peers.oneself());
        silent.extend(sends.iter().filter_map(|&send| self.endpoint.services.tag.requests.get(send)?.depends_on()));
        silent.sort_unstable();
        silent.dedup();
        OpError::Silent { peers: silent, sends: sends.len(), seconds: patience.as_secs() }
    }
}

impl Dropped {
    /// Adds what another endpoint gave up.
    pub(super) fn add(&mut self, other: Self) {
        let Self { sends, receives, unexpected, claimed, payloads, operations } = other;
        self.sends += sends;
        self.receives += receives;
        self.unexpected += unexpected;
        self.claimed += claimed;
        self.payloads += payloads;
        self.operations += operations;
    }
}

impl Display for Dropped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { sends, receives, unexpected, claimed, payloads, operations } = *self;
        let kinds = [
            (sends, "send"),
            (receives, "receive"),
            (unexpected, "unexpected message"),
            (claimed, "claimed message"),
            (payloads, "payload"),
            (operations, "one-sided operation"),
        ];
        let show = |(count, name)| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
        let some: Vec<_> = kinds.into_iter().filter(|(count, _)| *count > 0).map(show).collect();
        f.write_str(if some.is_empty() { "nothing" } else { "" })?;
        f.write_str(&some.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_said_in_words() {
        let nothing = Dropped::default();
        assert_eq!(nothing.to_string(), "nothing");
        assert_eq!(Dropped { sends: 2, ..nothing }.to_string(), "2 sends");
        let all = Dropped { sends: 1, receives: 2, unexpected: 3, claimed: 1, payloads: 0, operations: 2 };
        assert_eq!(
            all.to_string(),
            "1 send, 2 receives, 3 unexpected messages, 1 claimed message, 2 one-sided operations"
        );
        let error = CloseError::from(OpError::NobodyLeft);
        assert_eq!(error.to_string(), "no peer is left that could send this message; given up: nothing");
    }
}
