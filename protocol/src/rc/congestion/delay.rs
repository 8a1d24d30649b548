//! Delay-based control in the manner of Swift (Kumar et al., SIGCOMM 2020) and Timely (Mittal et al., SIGCOMM 2015).
//!
//! The shortest round trip seen is what the path takes without queues; what a round trip takes beyond it is spent in
//! queues. Below a target the window grows by a packet a round trip, above it shrinks by as much as the excess says. The
//! target rises as the window falls, so that many small flows find a common window. Packets are spaced over the round
//! trip, and a window below one packet is a packet every several round trips.

use super::CongestionControl;
use super::pacer::Pacer;
use crate::Nanos;

/// Queueing that is aimed at, however small the window is not.
const BASE_TARGET_NS: f64 = 8_000.0;
/// How much more a flow with a window of one packet may queue; it falls with the root of the window.
const FLOW_TARGET_NS: f64 = 30_000.0;
/// Packets that a round trip below the target adds.
const ADDITIVE: f64 = 1.0;
/// How strongly the excess shrinks the window, and the most that one round trip may take.
const BETA: f64 = 0.8;
const MAX_DECREASE: f64 = 0.5;
const MIN_WINDOW: f64 = 0.05;
/// What a packet is counted as for its spacing.
const PACKET_BITS: f64 = 8.0 * 4200.0;

/// The window of one queue pair.
#[derive(Clone, Debug)]
pub struct Delay {
    window: f64,
    most: f64,
    /// The shortest round trip seen lately, in nanoseconds.
    base: f64,
    rtt: f64,
    /// The window shrinks once a round trip, at most.
    shrunk_at: Nanos,
    pacer: Pacer,
}

impl Delay {
    /// Starts with the whole window that the connection allows; the first round trip corrects it.
    pub fn new(window: u32) -> Self {
        let most = f64::from(window);
        Self { window: most.min(32.0), most, base: f64::MAX, rtt: 0.0, shrunk_at: 0, pacer: Pacer::new(1e12) }
    }

    /// The window in packets, which may be a fraction of one.
    pub fn packets(&self) -> f64 {
        self.window
    }

    fn target(&self) -> f64 {
        let scaled = FLOW_TARGET_NS / self.window.max(0.1).sqrt();
        BASE_TARGET_NS + scaled.min(FLOW_TARGET_NS * 2.0)
    }

    fn shrink(&mut self, now: Nanos, share: f64) {
        let since = now.saturating_sub(self.shrunk_at) as f64;
        if since < self.rtt {
            return;
        }
        self.shrunk_at = now;
        self.set_window(self.window * (1.0 - share.min(MAX_DECREASE)));
    }

    fn set_window(&mut self, window: f64) {
        self.window = window.clamp(MIN_WINDOW, self.most);
        if self.rtt > 0.0 {
            // A little faster than the window over a round trip: the window is the limit, spacing only prevents bursts.
            let headroom = if self.window < 1.0 { 1.0 } else { 1.25 };
            self.pacer.set_rate(headroom * self.window * PACKET_BITS * 1e9 / self.rtt);
        }
    }
}

impl CongestionControl for Delay {
    #[inline]
    fn window(&self) -> u32 {
        (self.window as u32).max(1)
    }

    #[inline]
    fn release_at(&self) -> Nanos {
        self.pacer.release_at()
    }

    #[inline]
    fn on_sent(&mut self, now: Nanos, bytes: usize) {
        self.pacer.on_sent(now, bytes);
    }

    fn on_acknowledged(&mut self, now: Nanos, packets: u32, rtt: Option<Nanos>) {
        let Some(sample) = rtt.map(|rtt| rtt as f64) else {
            if self.rtt > 0.0 && self.rtt - self.base < self.target() {
                self.set_window(self.window + ADDITIVE * f64::from(packets) / self.window.max(1.0));
            }
            return;
        };
        self.base = self.base.min(sample);
        self.rtt = if self.rtt > 0.0 { 0.75 * self.rtt + 0.25 * sample } else { sample };
        let (queueing, target) = (sample - self.base, self.target());
        if queueing < target {
            self.set_window(self.window + ADDITIVE * f64::from(packets) / self.window.max(1.0));
        } else {
            self.shrink(now, BETA * (queueing - target) / queueing);
        }
    }

    /// A loss that no delay announced is the path's own: the delay decides.
    fn on_loss(&mut self, now: Nanos) {
        if self.rtt - self.base > self.target() {
            self.shrink(now, MAX_DECREASE);
        }
    }

    fn on_silence(&mut self, now: Nanos) {
        self.shrink(now, MAX_DECREASE);
    }

    /// Marks say what the delay says already.
    fn on_notification(&mut self, _: Nanos) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_without_queueing_and_shrinks_with_it() {
        let mut delay = Delay::new(256);
        let start = delay.packets();
        for round in 0..50 {
            delay.on_acknowledged(round * 20_000, 10, Some(20_000));
        }
        let grown = delay.packets();
        assert!(grown > start, "{grown}");
        for round in 50..100 {
            delay.on_acknowledged(round * 200_000, 10, Some(200_000));
        }
        assert!(delay.packets() < grown / 4.0, "{}", delay.packets());
    }

    #[test]
    fn the_window_keeps_its_bounds() {
        let mut delay = Delay::new(16);
        (0..1000).for_each(|at| delay.on_acknowledged(at * 10_000, 16, Some(10_000)));
        assert_eq!(delay.window(), 16);
        (1000..3000).for_each(|at| delay.on_silence(at * 1_000_000));
        assert_eq!(delay.window(), 1);
        assert!(delay.packets() >= MIN_WINDOW);
    }
}
