//! What a worker publishes for `roci stat`.

use std::time::Duration;

use roci_driver::link::Link;
use roci_protocol::rc;

use super::Worker;
use crate::config::Config;
use crate::core::peer::{Peer, PeerId};
use crate::published::{OF_QUEUE_PAIRS, PeerFigures, PublishedStats, StatsFacts, StatsWriter, choose};

/// Lines of the report that are published: who looks wants to see what does not move, and not all of it.
const LINES: usize = 40;

impl<L: Link> Worker<L> {
    /// Publishes counters from now on, as often as the configuration says.
    pub(super) fn publish(&mut self, config: &Config) {
        if config.stats_ms == 0 {
            return;
        }
        let device = if config.eal.is_empty() { config.device.clone() } else { "--eal".into() };
        let facts = StatsFacts { rank: self.rank, size: self.size, device };
        self.published = StatsWriter::open(&facts, Duration::from_millis(config.stats_ms)).map(Box::new);
    }

    /// Writes the counters, if it is time.
    #[inline]
    pub(super) fn publish_if_due(&mut self) {
        if self.published.as_ref().is_some_and(|published| published.is_due()) {
            self.publish_now();
        }
    }

    #[cold]
    fn publish_now(&mut self) {
        if self.is_forked() {
            // They are the parent's.
            return;
        }
        let Some(mut published) = self.published.take() else { return };
        published.write(|text| {
            StatsWriter::counters(text, "worker", self.stats().iter());
            StatsWriter::counters(text, "engine", self.engine_stats().iter());
            StatsWriter::counters(text, PublishedStats::REGISTRATION, self.registration_stats().iter());
            StatsWriter::histogram(text, PublishedStats::SIZES, &self.endpoint.core.message_sizes);
            StatsWriter::histogram(text, PublishedStats::ROUND_TRIPS, &self.engine_stats().round_trips);
            let engine = &self.endpoint.core.engine;
            for port in 0..engine.port_count() {
                StatsWriter::counters(text, format_args!("port{port}"), engine.link_stats(port).iter());
            }
            self.publish_peers(text);
            self.report().iter().take(LINES).for_each(|line| StatsWriter::report(text, line));
        });
        self.published = Some(published);
    }

    /// Writes the figures of the peers that wait first, and how many others there are.
    fn publish_peers(&self, text: &mut String) {
        let mut peers: Vec<_> = self.endpoint.peers.iter().map(|peer| self.figures_of(peer)).collect();
        let all = choose(&mut peers);
        StatsWriter::counters(text, PublishedStats::PEERS, all.iter());
        for figures in peers {
            let scope = figures.scope();
            StatsWriter::counters(text, &scope, figures.iter());
            if !figures.is_gone {
                StatsWriter::counters(text, &scope, self.queue_pair_counters(figures.id));
            }
        }
    }

    fn figures_of(&self, peer: &Peer) -> PeerFigures {
        let accounts = || peer.lanes.iter().map(|lane| lane.credits.account());
        let in_flight: usize = peer.lanes.iter().map(|lane| lane.in_flight.count()).sum();
        let queued = self.endpoint.services.tag.outgoing_len(peer.id) + peer.tx.control.len() + peer.tx.payloads.len();
        PeerFigures {
            id: peer.id,
            is_connected: peer.is_open() && peer.failure.is_none(),
            is_gone: peer.failure.is_some(),
            credits: accounts().map(|account| u64::from(account.available)).sum(),
            credits_granted: accounts().map(|account| u64::from(account.granted)).sum(),
            in_flight: in_flight as u64,
            queued: queued as u64,
        }
    }

    /// The counters of all queue pairs to a peer together.
    fn queue_pair_counters(&self, id: PeerId) -> impl Iterator<Item = (&'static str, u64)> {
        let mut sum = rc::Stats::default();
        let lanes = self.endpoint.peers.get(id).map_or(&[][..], |peer| &peer.lanes);
        lanes.iter().filter_map(|lane| self.endpoint.core.engine.qp_stats(lane.qp)).for_each(|stats| sum.add(&stats));
        sum.iter().filter(|(name, _)| OF_QUEUE_PAIRS.contains(name))
    }
}
