//! DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015): the sender's half.
//!
//! Switches mark packets, the receiver answers marks with notifications, and each notification cuts the rate by an
//! estimate of how congested the path is. Time and bytes without a notification bring the rate back: first halfway to
//! where it was, five times, then beyond it. Gain, periods and steps are the paper's for its 40 Gb/s, where a rise adds
//! 40 Mb/s; here it adds the same part of the line, or eight senders on a slower one would overrun it together.

use super::CongestionControl;
use super::pacer::Pacer;
use crate::Nanos;

/// Weight of a notification in the estimate.
const GAIN: f64 = 1.0 / 256.0;
/// The estimate fades, and the rate rises, every so often.
const PERIOD_NS: Nanos = 55_000;
/// The rate also rises after so many bytes.
const PERIOD_BYTES: u64 = 10 << 20;
/// Rises that only recover what a cut took.
const FAST_RECOVERY: u32 = 5;
/// What a rise adds, and what it adds once both time and bytes have risen often, as parts of the line's rate.
const ADDITIVE: f64 = 1e-3;
const HYPER: f64 = 1e-2;
/// An estimate below this is none: it need not fade further.
const FADED: f64 = 1e-3;
/// So near the line's rate nothing is left to win back.
const WHOLE: f64 = 1e-4;
const MIN_RATE: f64 = 10e6;

/// The rate of one queue pair.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    line_rate: f64,
    current: f64,
    target: f64,
    /// The estimate of congestion, between 0 and 1.
    alpha: f64,
    pacer: Pacer,
    /// When the estimate fades, and when the rate rises, next.
    fades_at: Nanos,
    rises_at: Nanos,
    bytes: u64,
    /// Rises by time and by bytes since the last cut.
    rises: [u32; 2],
    /// Below the line's rate: there is something to win back.
    is_cut: bool,
}

impl Dcqcn {
    /// Starts at the rate of the line.
    pub fn new(bits_per_second: u64) -> Self {
        let line_rate = bits_per_second as f64;
        Self {
            line_rate,
            current: line_rate,
            target: line_rate,
            alpha: 1.0,
            pacer: Pacer::new(line_rate),
            fades_at: Nanos::MAX,
            rises_at: Nanos::MAX,
            bytes: 0,
            rises: [0; 2],
            is_cut: false,
        }
    }

    /// The rate in bits per second.
    pub fn rate(&self) -> f64 {
        self.current
    }

    #[inline]
    fn keep_time(&mut self, now: Nanos) {
        if self.is_cut && self.fades_at.min(self.rises_at) <= now {
            self.fade(now);
            while self.is_cut && self.rises_at <= now {
                self.rises_at += PERIOD_NS;
                self.rises[0] += 1;
                self.rise();
            }
        }
    }

    /// Lets the estimate fade up to `now`, however long that was not done.
    fn fade(&mut self, now: Nanos) {
        while self.fades_at <= now && self.alpha > FADED {
            self.alpha *= 1.0 - GAIN;
            self.fades_at += PERIOD_NS;
        }
        if self.fades_at <= now {
            self.fades_at = now + PERIOD_NS;
        }
    }

    fn rise(&mut self) {
        let [by_time, by_bytes] = self.rises;
        if by_time.min(by_bytes) > FAST_RECOVERY {
            self.target += HYPER * self.line_rate;
        } else if by_time.max(by_bytes) > FAST_RECOVERY {
            self.target += ADDITIVE * self.line_rate;
        }
        self.target = self.target.min(self.line_rate);
        self.current = f64::midpoint(self.current, self.target);
        if self.line_rate - self.current < WHOLE * self.line_rate {
            // The estimate goes on fading: the next cut catches up with that.
            self.current = self.line_rate;
            self.is_cut = false;
        }
        self.pacer.set_rate(self.current);
    }

    fn cut(&mut self, now: Nanos) {
        self.keep_time(now);
        self.fade(now);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(MIN_RATE.min(self.line_rate));
        self.alpha = (1.0 - GAIN) * self.alpha + GAIN;
        self.pacer.set_rate(self.current);
        self.is_cut = true;
        (self.fades_at, self.rises_at) = (now + PERIOD_NS, now + PERIOD_NS);
        (self.bytes, self.rises) = (0, [0; 2]);
    }
}

impl CongestionControl for Dcqcn {
    #[inline]
    fn window(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn release_at(&self) -> Nanos {
        self.pacer.release_at()
    }

    #[inline]
    fn on_sent(&mut self, now: Nanos, bytes: usize) {
        self.pacer.on_sent(now, bytes);
        if self.is_cut {
            self.bytes += bytes as u64;
            if self.bytes >= PERIOD_BYTES {
                self.bytes = 0;
                self.rises[1] += 1;
                self.rise();
            }
            self.keep_time(now);
        }
    }

    #[inline]
    fn on_acknowledged(&mut self, now: Nanos, _: u32, _: Option<Nanos>) {
        self.keep_time(now);
    }

    /// DCQCN hears marks only: losses are for the network to prevent.
    fn on_loss(&mut self, _: Nanos) {}

    fn on_silence(&mut self, now: Nanos) {
        self.cut(now);
    }

    fn on_notification(&mut self, now: Nanos) {
        self.cut(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_cuts_and_time_recovers() {
        let mut dcqcn = Dcqcn::new(10_000_000_000);
        dcqcn.on_notification(0);
        assert!((dcqcn.rate() - 5e9).abs() < 1e6, "the first cut halves: {}", dcqcn.rate());
        dcqcn.on_acknowledged(PERIOD_NS * 5, 1, None);
        assert!(dcqcn.rate() > 9.8e9, "five periods bring most of it back: {}", dcqcn.rate());
        dcqcn.on_acknowledged(PERIOD_NS * 100_000, 1, None);
        assert!((dcqcn.rate() - 10e9).abs() < 1.0);
    }

    #[test]
    fn the_estimate_fades_while_the_rate_is_whole_and_idle_hours_cost_nothing() {
        let mut dcqcn = Dcqcn::new(10_000_000_000);
        dcqcn.on_notification(0);
        dcqcn.on_acknowledged(PERIOD_NS * 2_000, 1, None);
        assert!((dcqcn.rate() - 10e9).abs() < 1.0);
        dcqcn.on_notification(3_600_000_000_000);
        assert!(dcqcn.rate() > 9.9e9, "nothing was marked for an hour: {}", dcqcn.rate());
        dcqcn.on_notification(31_536_000_000_000_000);
        assert!(dcqcn.rate() > 9.9e9, "nor for a year: {}", dcqcn.rate());
    }

    #[test]
    fn endless_notifications_leave_a_trickle() {
        let mut dcqcn = Dcqcn::new(10_000_000_000);
        (0..1000).for_each(|at| dcqcn.on_notification(at));
        assert!((dcqcn.rate() - MIN_RATE).abs() < 1.0);
    }

    /// A byte takes a nanosecond.
    const LINE: u64 = 8_000_000_000;
    /// When the first notification arrives.
    const START: Nanos = 1_000_000;

    fn assert_rate(dcqcn: &Dcqcn, expected: f64) {
        assert!((dcqcn.rate() - expected).abs() < 0.1, "{} instead of {expected}", dcqcn.rate());
    }

    #[test]
    fn five_rises_go_halfway_back_and_later_ones_beyond() {
        let mut dcqcn = Dcqcn::new(LINE);
        (0..2).for_each(|_| dcqcn.on_notification(START));
        let (mut rate, mut target) = (2e9, 4e9);
        assert_rate(&dcqcn, rate);
        for round in 1..=7 {
            dcqcn.on_acknowledged(START + round * 55_000 - 1, 1, None);
            assert_rate(&dcqcn, rate);
            // A thousandth of the line's rate.
            target += if round > 5 { 8e6 } else { 0.0 };
            rate = f64::midpoint(rate, target);
            dcqcn.on_acknowledged(START + round * 55_000, 1, None);
            assert_rate(&dcqcn, rate);
        }
        let now = START + 7 * 55_000;
        for round in 1..=7 {
            dcqcn.on_sent(now, (10 << 20) - 1);
            assert_rate(&dcqcn, rate);
            // A hundredth once both time and bytes have risen more than five times.
            target += if round > 5 { 80e6 } else { 8e6 };
            rate = f64::midpoint(rate, target);
            dcqcn.on_sent(now, 1);
            assert_rate(&dcqcn, rate);
        }
    }

    #[test]
    fn the_rate_is_whole_once_it_is_near_the_line_s() {
        let mut dcqcn = Dcqcn::new(LINE);
        dcqcn.on_notification(START);
        dcqcn.on_acknowledged(START + 12 * 55_000, 1, None);
        assert_rate(&dcqcn, 8e9 - 4e9 / 4096.0);
        dcqcn.on_acknowledged(START + 13 * 55_000, 1, None);
        assert_rate(&dcqcn, 8e9);
    }

    #[test]
    fn a_cut_is_half_of_an_estimate_that_fades_every_period_and_grows_with_every_cut() {
        let gain = 1.0 / 256.0;
        let mut dcqcn = Dcqcn::new(LINE);
        dcqcn.on_notification(START);
        // The periods count from the cut, whenever somebody looks.
        dcqcn.on_acknowledged(START + 82_500, 1, None);
        dcqcn.on_acknowledged(START + 110_000, 1, None);
        assert_rate(&dcqcn, 7e9);
        let faded = (1.0 - gain) * (1.0 - gain);
        dcqcn.on_notification(START + 110_000);
        let rate = 7e9 * (1.0 - faded / 2.0);
        assert_rate(&dcqcn, rate);
        dcqcn.on_notification(START + 110_000);
        let grown = (1.0 - gain) * faded + gain;
        assert_rate(&dcqcn, rate * (1.0 - grown / 2.0));
    }

    #[test]
    fn packets_leave_at_the_rate_and_silence_cuts_it_too() {
        let mut dcqcn = Dcqcn::new(LINE);
        dcqcn.on_sent(START, 4000);
        assert_eq!(dcqcn.window(), u32::MAX, "the rate is the only limit");
        let first = dcqcn.release_at();
        dcqcn.on_sent(START, 4000);
        assert_eq!(dcqcn.release_at(), first + 4000);
        dcqcn.on_notification(START);
        dcqcn.on_sent(START, 4000);
        assert_eq!(dcqcn.release_at(), first + 4000 + 8000);
        dcqcn.on_silence(START);
        dcqcn.on_sent(START, 4000);
        assert_eq!(dcqcn.release_at(), first + 4000 + 8000 + 16_000);
    }
}
