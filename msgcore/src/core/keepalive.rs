//! Keepalive: a peer that something of ours depends on, and that has been silent for long, is asked for a sign of life.
//!
//! A reliable connection finds the end of its peer by what it sends and nobody acknowledges. A rank that only waits sends
//! nothing: of a pulled cable it would never hear. So now and then an empty RDMA WRITE goes to such a peer. It needs no
//! receive, no credit and no key (IBTA C9-88), the peer's transport acknowledges it and tells nobody, and where no
//! acknowledgement comes the connection's own retries end the peer by name.
//!
//! Nothing is noted when a message comes: whatever comes moves some counter of the connection, and those are compared.

use roci_driver::link::Link;
use roci_driver::{Rkey, SendWr};
use roci_protocol::Nanos;

use crate::core::peer::Endpoint;
use crate::worker::Worker;
use crate::{Rank, Source};

/// The name of the WRITE: no request has it.
const PROBE: u64 = u64::MAX;
/// Looks in the time that a peer may be silent.
const LOOKS: Nanos = 4;

/// When peers are looked at.
#[derive(Debug)]
pub(crate) struct Keepalive {
    /// How long they may be silent; `None` where nobody asks.
    silence: Option<Nanos>,
    pause: Nanos,
    next: Nanos,
}

/// What was last seen of a peer.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    traces: u64,
    since: Nanos,
}

impl Keepalive {
    /// For peers that may be silent for so many seconds; 0 for ever.
    pub(crate) fn new(seconds: u64) -> Self {
        let silence = (seconds > 0).then_some(seconds * 1_000_000_000);
        Self { silence, pause: silence.unwrap_or(0) / LOOKS, next: 0 }
    }
}

impl<L: Link> Worker<L> {
    /// Asks silent peers that something depends on for a sign of life. To be called seldom.
    pub(crate) fn keep_alive(&mut self) {
        let now = self.engine.now();
        let Some(silence) = self.keepalive.silence.filter(|_| now >= self.keepalive.next) else { return };
        self.keepalive.next = now + self.keepalive.pause;
        for rank in self.needed_peers() {
            if self.has_been_silent(rank, now, silence) {
                self.send_probe(rank);
            }
        }
    }

    /// The peers whose end would be that of something of ours.
    fn needed_peers(&self) -> Vec<Rank> {
        let mut is_needed = vec![false; self.size];
        for source in self.matching.posted_sources() {
            match source {
                Source::Any => return (0..self.size).collect(),
                Source::Rank(rank) => is_needed[rank] = true,
            }
        }
        self.requests.peers().for_each(|rank| is_needed[rank] = true);
        (0..self.size).filter(|&rank| is_needed[rank]).collect()
    }

    fn has_been_silent(&mut self, rank: Rank, now: Nanos, silence: Nanos) -> bool {
        let Some(endpoint) = self.endpoint(rank).filter(|endpoint| endpoint.is_open()) else { return false };
        let traces = endpoint.traces();
        // What is on its way already brings its own acknowledgement, or none.
        let is_asked = endpoint.lanes.iter().any(|lane| lane.in_flight > 0);
        let is_silent = traces == endpoint.heard.traces && !is_asked;
        if is_silent && now - endpoint.heard.since < silence {
            return false;
        }
        endpoint.heard = Heard { traces, since: now };
        is_silent
    }

    fn send_probe(&mut self, rank: Rank) {
        let Ok(nothing) = self.engine.buffer(0) else { return };
        let Some(lane) = self.endpoint(rank).and_then(|endpoint| endpoint.lanes.first_mut()) else { return };
        lane.in_flight += 1;
        let qp = lane.qp;
        self.stats.tx_keepalive += 1;
        if self.engine.post_send(qp, SendWr::write(PROBE, nothing, Rkey(0), 0)).is_err()
            && let Some(endpoint) = self.endpoint(rank)
        {
            // The queue pair has failed, and its completions will say so.
            endpoint.lanes[0].in_flight -= 1;
        }
    }
}

impl Endpoint {
    /// A number that nearly all that comes from the peer changes. Where it does not, the peer is asked in vain.
    fn traces(&self) -> u64 {
        let of_lane = |lane: &crate::core::peer::Lane| {
            let account = lane.credits.account();
            u64::from(account.available) << 32 | u64::from(account.kept) << 16 | lane.posted as u64 & 0xffff
        };
        let lanes = self.lanes.iter().map(of_lane);
        lanes.fold(u64::from(self.expected_sequence), |sum, lane| sum.rotate_left(7).wrapping_add(lane))
    }
}
