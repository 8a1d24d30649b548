//! How often and how fast a message is sent again.

use super::CmConfig;
use super::config::coded_ns;
use crate::Nanos;

/// The repetitions that a message has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    retries: u64,
    interval: Nanos,
    longest: Nanos,
}

impl Patience {
    /// For messages whose pace we set.
    pub(super) fn ours(config: &CmConfig) -> Self {
        let longest = config.interval_ns.max(1);
        Self {
            retries: config.max_retries.min(15).into(),
            interval: config.first_interval_ns.clamp(1, longest),
            longest,
        }
    }

    /// For a REP: the REQ says how soon its sender answers and how often it wants to be asked (IBTA 12.7.22, 12.7.27).
    pub(super) fn asked_for(config: &CmConfig, response_timeout: u8, max_cm_retries: u8) -> Self {
        let ours = Self::ours(config);
        let longest = ours.longest.min(coded_ns(response_timeout)).max(ours.interval);
        Self { retries: ours.retries.min(max_cm_retries.into()), longest, ..ours }
    }

    /// The same, with repetitions for at least so long from now on, which come as slowly as our own. The first ones come sooner.
    pub(super) fn lasting(self, config: &CmConfig, at_least: Nanos) -> Self {
        let longest = self.longest.max(config.interval_ns);
        let sooner = u64::from((longest / self.interval).ilog2()) + 1;
        Self { retries: self.retries.max(at_least / longest + sooner), longest, ..self }
    }

    /// How long to wait for the answer to what was just sent.
    pub(super) fn wait(&self) -> Nanos {
        self.interval
    }

    /// Spends a repetition. `false` if there is none left.
    pub(super) fn spend(&mut self) -> bool {
        let Some(left) = self.retries.checked_sub(1) else { return false };
        self.retries = left;
        self.interval = self.interval.saturating_mul(2).min(self.longest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end() {
        let config = CmConfig { first_interval_ns: 10, interval_ns: 35, max_retries: 3, ..CmConfig::new(0, 0) };
        let mut patience = Patience::ours(&config);
        let mut waits = vec![patience.wait()];
        while patience.spend() {
            waits.push(patience.wait());
        }
        assert_eq!(waits, [10, 20, 35, 35]);
    }

    #[test]
    fn a_peer_may_ask_for_less_and_not_for_more() {
        let config = CmConfig::new(0, 0);
        let hasty = Patience::asked_for(&config, 0, 0);
        assert_eq!((hasty.retries, hasty.longest), (0, config.first_interval_ns));
        let lazy = Patience::asked_for(&config, 31, 15);
        assert_eq!((lazy.retries, lazy.longest), (15, config.interval_ns));
    }

    #[test]
    fn it_may_last_longer_and_not_shorter() {
        let config = CmConfig { first_interval_ns: 10, interval_ns: 40, max_retries: 3, ..CmConfig::new(0, 0) };
        for (at_least, waits) in [(0, 4), (100, 6), (1_000, 29)] {
            let mut patience = Patience::ours(&config).lasting(&config, at_least);
            let (mut count, mut waited) = (1, patience.wait());
            while patience.spend() {
                (count, waited) = (count + 1, waited + patience.wait());
            }
            assert!(count == waits && waited >= at_least, "{count} times in {waited}");
        }
        let hasty = Patience::asked_for(&CmConfig::new(0, 0), 0, 15).lasting(&CmConfig::new(0, 0), 600_000_000_000);
        assert!(hasty.retries < 200, "the peer does not set the pace: {}", hasty.retries);
    }
}
