//! Keepalive: a peer that something of ours depends on, and that has been silent for long, is asked for a sign of life.
//!
//! A reliable connection finds the end of its peer by what it sends and is not acknowledged. A rank that only waits sends
//! nothing: of a pulled cable it would never hear. So now and then an empty RDMA WRITE goes to such a peer. It needs no
//! receive, no credit and no key (IBTA C9-88), the peer's transport acknowledges it and reports nothing, and where no
//! acknowledgement comes the connection's own retries end the peer by name.
//!
//! Nothing is noted when a message comes: whatever comes moves some counter of the connection, and those are compared.

use roci_driver::link::Link;
use roci_driver::{Rkey, SendWr};
use roci_protocol::Nanos;

use super::Endpoint;
use crate::Source;
use crate::core::Core;
use crate::core::peer::{LastActivity, Peer, PeerId};

/// The name of the WRITE: no operation has it.
const PROBE: u64 = u64::MAX;
/// Looks in the time that a peer may be silent.
const LOOKS: Nanos = 4;

/// When peers are looked at.
#[derive(Debug)]
pub(crate) struct Keepalive {
    /// How long they may be silent; `None` where nothing asks.
    silence: Option<Nanos>,
    pause: Nanos,
    next: Nanos,
    /// Whose change of a number the application waits for.
    waits_for: Option<Source>,
}

impl Keepalive {
    /// For peers that may be silent for so many seconds; 0 for ever.
    pub(crate) fn new(seconds: u64) -> Self {
        let silence = (seconds > 0).then_some(seconds * 1_000_000_000);
        Self { silence, pause: silence.unwrap_or(0) / LOOKS, next: 0, waits_for: None }
    }
}

impl<L: Link> Endpoint<L> {
    /// Asks silent peers that something depends on for a sign of life. To be called seldom.
    pub(crate) fn keep_alive(&mut self) {
        let now = self.core.engine.now();
        let Some(silence) = self.keepalive.silence.filter(|_| now >= self.keepalive.next) else { return };
        self.keepalive.next = now + self.keepalive.pause;
        for id in self.needed_peers() {
            let Some(peer) = self.peers.live_mut(id).filter(|peer| peer.is_open()) else { continue };
            if peer.has_been_silent(now, silence) {
                send_probe(&mut self.core, peer);
            }
        }
    }

    /// The application waits for a change of a number by such a source, or does not any more.
    pub(crate) fn note_waits_for(&mut self, source: Option<Source>) {
        self.keepalive.waits_for = source;
    }

    /// The peers whose end would be that of something of ours.
    fn needed_peers(&self) -> Vec<PeerId> {
        let mut is_needed = vec![false; self.peers.slots()];
        for source in self.services.tag.matching.posted_sources().chain(self.keepalive.waits_for) {
            match source {
                Source::Any => return self.peers.ids().collect(),
                Source::Peer(id) => is_needed[id.slot()] = true,
            }
        }
        self.services.tag.requests.peers().for_each(|id| is_needed[id.slot()] = true);
        self.services.stream.slots().for_each(|slot| is_needed[slot] = true);
        self.peers.ids().filter(|&id| is_needed[id.slot()]).collect()
    }
}

fn send_probe<L: Link>(core: &mut Core<L>, peer: &mut Peer) {
    let Ok(nothing) = core.engine.buffer(0) else { return };
    let Some(lane) = peer.lanes.first_mut() else { return };
    core.stats.tx_keepalive += 1;
    lane.in_flight.begin();
    if core.engine.post_send(lane.qp, SendWr::write(PROBE, nothing, Rkey(0), 0)).is_err() {
        // The queue pair has failed, and its completions will say so.
        lane.in_flight.end();
    }
}

impl Peer {
    fn has_been_silent(&mut self, now: Nanos, silence: Nanos) -> bool {
        let traces = self.traces();
        // What is on its way already brings its own acknowledgement, or none.
        let is_asked = self.lanes.iter().any(|lane| lane.in_flight.count() > 0);
        let is_silent = traces == self.last_activity.traces && !is_asked;
        if is_silent && now - self.last_activity.since < silence {
            return false;
        }
        self.last_activity = LastActivity { traces, since: now };
        is_silent
    }

    /// A number that nearly all that comes from the peer changes. Where it does not, the peer is asked in vain.
    fn traces(&self) -> u64 {
        let of_lane = |lane: &crate::core::lane::Lane| {
            let account = lane.credits.account();
            u64::from(account.available) << 32 | u64::from(account.kept) << 16 | lane.posted as u64 & 0xffff
        };
        let lanes = self.lanes.iter().map(of_lane);
        lanes.fold(u64::from(self.rx.expected_sequence), |sum, lane| sum.rotate_left(7).wrapping_add(lane))
    }
}
