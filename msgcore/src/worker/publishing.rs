//! What a worker publishes for `roci stat`.

use std::time::Duration;

use roci_driver::link::Link;

use super::Worker;
use crate::config::Config;
use crate::published::{PublishedStats, StatsFacts, StatsWriter};

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
            StatsWriter::histogram(text, PublishedStats::SIZES, &self.endpoint.core.message_sizes);
            StatsWriter::histogram(text, PublishedStats::ROUND_TRIPS, &self.engine_stats().round_trips);
            let engine = &self.endpoint.core.engine;
            for port in 0..engine.port_count() {
                StatsWriter::counters(text, format_args!("port{port}"), engine.link_stats(port).iter());
            }
            self.report().iter().take(LINES).for_each(|line| StatsWriter::report(text, line));
        });
        self.published = Some(published);
    }
}
