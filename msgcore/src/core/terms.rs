//! The terms of a connection, which each end sends the other first, and whether those of a peer fit.

use arrayvec::ArrayVec;
use roci_driver::link::Link;
use roci_protocol::msg::{Capabilities, ConnectionTerms, Header, MAX_QUEUES, Message, QueueTerms};

use super::Core;
use super::breach::Breach;
use super::credits::Rule;
use super::peer::Peer;
use super::peer_id::PeerId;
use crate::receive_queues::{Kind, ReceiveQueue, ReceiveQueues};

/// What this end says of itself, and keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalTerms {
    /// The number that its peers know it by.
    pub(crate) rank: u32,
    pub(crate) capabilities: Capabilities,
    /// Credits owed that are returned without waiting for company, where the peer runs low ...
    pub(crate) notify: u16,
    /// ... which is when it has no more than these.
    pub(crate) preserve: u16,
}

/// What ends that are no ranks give for their rank.
pub(crate) const NO_RANK: u32 = u32::MAX;

impl LocalTerms {
    /// Returns the number that an end is known by: a rank, or that it is none.
    pub(crate) fn rank_of(id: PeerId) -> u32 {
        id.rank().map_or(NO_RANK, |rank| rank as u32)
    }
}

impl<L: Link> Core<L> {
    /// Sends our terms, or does so later where all vbufs are on their way to others.
    pub(crate) fn send_terms(&mut self, peer: &mut Peer) {
        if !self.has_send_room(peer, 0, 1, true) {
            return;
        }
        peer.connection.owes_terms = false;
        let missing = peer.lanes.iter_mut().map(|lane| lane.credits.missing()).collect();
        let mut bytes = [0; ConnectionTerms::LEN];
        connection_terms(&self.terms, &self.receives.queues, missing).emit(&mut bytes);
        self.post_vbuf(peer, 0, Header::new(Message::Terms), &bytes);
    }

    /// Takes the terms of a peer: from here on its credits count.
    ///
    /// # Errors
    /// They do not fit ours, or are none; nothing changes.
    pub(crate) fn accept_terms(&self, peer: &mut Peer, bytes: &[u8]) -> Result<(), Breach> {
        let terms = ConnectionTerms::parse(bytes)?;
        if terms.rank != LocalTerms::rank_of(peer.id) {
            return Err(Breach::OtherRank(terms.rank));
        }
        check_queues(&self.receives.queues, &terms)?;
        // Some are for control messages and announcements alone: nothing eager would ever leave.
        if terms.queues.iter().any(|queue| queue.credits < if queue.is_shared { 2 } else { 3 }) {
            return Err(Breach::TooFewCredits);
        }
        if peer.connection.stage().has_terms() {
            return Err(Breach::TermsTwice);
        }
        peer.connection.capabilities = terms.capabilities;
        for ((lane, theirs), ours) in peer.lanes.iter_mut().zip(&terms.queues).zip(&self.receives.queues) {
            let rule = Rule::of(ours.kind, theirs.reserve.into(), self.terms.notify, self.terms.preserve);
            lane.credits.open(theirs.credits, theirs.missing, rule);
        }
        Ok(())
    }
}

/// What we send a peer first; of the credits of each queue so many have no receive yet.
fn connection_terms(terms: &LocalTerms, queues: &ReceiveQueues, missing: ArrayVec<u16, MAX_QUEUES>) -> ConnectionTerms {
    let of_queue = |(queue, missing): (&ReceiveQueue, u16)| {
        let (is_shared, reserve) = match queue.kind {
            Kind::PerPeer { reserve, .. } => (false, reserve.min(255) as u8),
            Kind::Shared { .. } => (true, 0),
        };
        QueueTerms { is_shared, credits: queue.kind.granted(), missing, reserve, size: queue.size as u32 }
    };
    let queues = queues.iter().zip(missing).map(of_queue).collect();
    ConnectionTerms { rank: terms.rank, capabilities: terms.capabilities, queues }
}

/// Whether our queues and a peer's fit. Counts may differ.
fn check_queues(ours: &ReceiveQueues, theirs: &ConnectionTerms) -> Result<(), Breach> {
    if ours.len() != theirs.queues.len() {
        return Err(Breach::QueueCount { ours: ours.len(), theirs: theirs.queues.len() });
    }
    for (number, (ours, theirs)) in (1..).zip(ours.iter().zip(&theirs.queues)) {
        let is_shared_here = matches!(ours.kind, Kind::Shared { .. });
        if is_shared_here != theirs.is_shared {
            return Err(Breach::QueueKind { number, is_shared_here });
        }
        if ours.size != theirs.size as usize {
            return Err(Breach::QueueSize { number, ours: ours.size, theirs: theirs.size as usize });
        }
    }
    Ok(())
}
