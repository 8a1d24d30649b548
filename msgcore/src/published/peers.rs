//! What is published of each peer, and of all together.

use std::cmp::Reverse;

use crate::core::peer_id::PeerId;

/// Peers whose figures are published: those that wait before others.
pub(crate) const PUBLISHED_PEERS: usize = 32;

/// The peers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PeersFigures {
    /// Peers that something was done with.
    pub(crate) known: u64,
    /// Those of them that are connected.
    pub(crate) connected: u64,
    /// Those of them that are gone.
    pub(crate) gone: u64,
    /// Those of them whose own figures are not published: there are too many.
    pub(crate) left_out: u64,
}

impl PeersFigures {
    /// Those that may fall: all.
    pub(crate) const GAUGES: &[&str] = &["known", "connected", "gone", "left_out"];

    /// Every figure with its name.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { known, connected, gone, left_out } = self;
        Self::GAUGES.iter().copied().zip([known, connected, gone, left_out])
    }
}

/// One peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerFigures {
    pub(crate) id: PeerId,
    /// Messages may be sent to it.
    pub(crate) is_connected: bool,
    /// It failed, or was removed.
    pub(crate) is_gone: bool,
    /// Messages that it has receives for, and what it granted.
    pub(crate) credits: u64,
    pub(crate) credits_granted: u64,
    /// Work requests that it has not acknowledged.
    pub(crate) in_flight: u64,
    /// Messages that wait to leave.
    pub(crate) queued: u64,
}

/// The counters of a peer's queue pairs that are published, of those that each has.
pub(crate) const OF_QUEUE_PAIRS: [&str; 4] =
    ["retransmitted_packets", "local_ack_timeout_err", "rnr_nak", "out_of_buffer"];

impl PeerFigures {
    /// Those that may fall. The counters of its queue pairs, which only rise, are beside them.
    pub(crate) const GAUGES: &[&str] =
        &["connected", "gone", "credits", "credits_granted", "work_requests_in_flight", "messages_queued"];

    /// Returns the scope of its figures, which is one word.
    pub(crate) fn scope(&self) -> String {
        match self.id.rank() {
            Some(rank) => format!("peer{rank}"),
            None => format!("peer{}.{}", self.id.slot(), self.id.generation()),
        }
    }

    /// Every figure with its name.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { is_connected, is_gone, credits, credits_granted, in_flight, queued, .. } = self;
        let (connected, gone) = (is_connected.into(), is_gone.into());
        let values = [connected, gone, credits, credits_granted, in_flight, queued];
        Self::GAUGES.iter().copied().zip(values)
    }
}

/// Keeps the peers that are published, those that wait first; returns what is known of all.
pub(crate) fn choose(peers: &mut Vec<PeerFigures>) -> PeersFigures {
    let count = |is_one: fn(&PeerFigures) -> bool| peers.iter().filter(|peer| is_one(peer)).count() as u64;
    let (known, connected, gone) = (peers.len() as u64, count(|peer| peer.is_connected), count(|peer| peer.is_gone));
    peers.sort_by_key(|peer| (Reverse((peer.queued, peer.in_flight)), peer.id));
    peers.truncate(PUBLISHED_PEERS);
    PeersFigures { known, connected, gone, left_out: known - peers.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rank: usize) -> PeerFigures {
        let (is_connected, is_gone, credits, credits_granted) = (true, false, 3, 64);
        PeerFigures { id: rank.into(), is_connected, is_gone, credits, credits_granted, in_flight: 0, queued: 0 }
    }

    #[test]
    fn those_that_wait_are_published_first_and_the_others_are_counted() {
        let mut peers: Vec<_> = (0..PUBLISHED_PEERS + 5).map(figures).collect();
        peers[PUBLISHED_PEERS + 4].queued = 7;
        peers[PUBLISHED_PEERS + 3].in_flight = 1;
        (peers[0].is_connected, peers[0].is_gone) = (false, true);
        let all = choose(&mut peers);
        let known = PUBLISHED_PEERS as u64 + 5;
        assert_eq!(all, PeersFigures { known, connected: known - 1, gone: 1, left_out: 5 });
        assert_eq!(peers.len(), PUBLISHED_PEERS);
        assert!(
            peers[0].id == PUBLISHED_PEERS + 4 && peers[1].id == PUBLISHED_PEERS + 3 && peers[2].id == 0,
            "{peers:?}"
        );
    }

    #[test]
    fn a_peer_is_named_by_its_rank_or_by_its_slot_and_generation() {
        let stranger = PeerFigures { id: PeerId::new(2, 5), ..figures(0) };
        assert_eq!((figures(3).scope(), stranger.scope()), ("peer3".into(), "peer2.5".into()));
        let named: Vec<_> = figures(3).iter().collect();
        assert_eq!(named[2..4], [("credits", 3), ("credits_granted", 64)]);
        assert_eq!(named.len(), PeerFigures::GAUGES.len());
    }
}
