//! Delay-based control in the manner of Swift (Kumar et al., SIGCOMM 2020) and Timely (Mittal et al., SIGCOMM 2015).
//!
//! The shortest round trip seen is what the path takes without queues; what a round trip takes beyond it is spent in
//! queues. Below a target the window grows by a packet a round trip, above it shrinks by as much as the excess says. The
//! target rises as the window falls, so that many small flows find a common window. Packets are spaced over the round
//! trip, and a window below one packet is a packet every several round trips.
//!
//! What differs from Swift: its operators configure the path's own delay, and it starts at full speed. Here the delay
//! is learnt, so a connection starts with a few packets and doubles every round trip until the first excess. A sender
//! that starts late cannot learn it from a standing queue, so senders step back now and then. The shortest round trip
//! is that of the last two spells, each of which has seen the path without this sender's own queue: a path that becomes
//! longer looks like a queue at first, and is known after some tens of milliseconds. Everything that divides happens
//! once a round trip, where one was measured.

use super::CongestionControl;
use super::pacer::Pacer;
use crate::{Mtu, Nanos};

/// Queueing that is aimed at, however large the window is.
const BASE_TARGET_NS: f64 = 8_000.0;
/// How much more a flow with a window of one packet may queue; it falls with the root of the window.
const FLOW_TARGET_NS: f64 = 30_000.0;
/// The most that the target rises for a small window.
const MAX_FLOW_TARGET_NS: f64 = 2.0 * FLOW_TARGET_NS;
/// Packets that a round trip below the target adds.
const ADDITIVE: f64 = 1.0;
/// How strongly the excess shrinks the window, and the most that one round trip may take.
const BETA: f64 = 0.8;
const MAX_DECREASE: f64 = 0.5;
/// What a connection may send before its first round trip.
const START_BYTES: usize = 16 << 10;
/// A round trip that is so little longer than the shortest counts as one without queues.
const QUEUELESS_NS: f64 = BASE_TARGET_NS / 2.0;
/// After so many round trips with queues a sender slows down, to a part of its window, for some round trips.
const SLOW_EVERY_ROUNDS: u32 = 50;
/// However few round trips they were: a sender that is slowed to a trickle measures few.
const SLOW_EVERY_NS: Nanos = 10_000_000;
/// The first time it does so soon after its start.
const FIRST_SLOW: u32 = SLOW_EVERY_ROUNDS - 4;
/// What was the shortest round trip is forgotten after two times this long.
const SPELL_NS: Nanos = 10_000_000;
const SLOW_SHARE: f64 = 0.25;
const SLOW_ROUNDS: f64 = 2.0;
const MIN_WINDOW: f64 = 0.05;
/// How much faster than the window over the round trip packets leave: the window is the limit, spacing prevents bursts.
const HEADROOM: f64 = 1.25;
/// Below so many packets spacing is the limit: it knows fractions of a packet.
const SMALL_WINDOW: f64 = 8.0;
/// What a packet takes beside its payload, about.
const HEADER_BYTES: usize = 80;

/// The window of one queue pair.
#[derive(Clone, Debug)]
pub struct Delay {
    window: f64,
    most: f64,
    /// Bits of a full packet.
    packet_bits: f64,
    spells: Spells,
    rtt: f64,
    queueing: Queueing,
    /// Slowed down to see the path without queues: the window to return to, and when.
    slowed: Option<(f64, Nanos)>,
    /// The last round trip stayed below the target: the window grows.
    grows: bool,
    /// What an acknowledged packet adds to the window.
    gain: f64,
    /// No excess was seen yet.
    is_starting: bool,
    /// The window shrinks once a round trip, at most.
    shrunk_at: Nanos,
    pacer: Pacer,
}

/// The shortest round trip of the present spell and of the one before. A spell ends after [`SPELL_NS`], once the path has
/// been seen in it without this sender's queue.
#[derive(Clone, Copy, Debug)]
struct Spells {
    shortest: f64,
    shortest_before: f64,
    /// None before the first round trip.
    began_at: Option<Nanos>,
    has_looked: bool,
}

impl Default for Spells {
    fn default() -> Self {
        Self { shortest: f64::MAX, shortest_before: f64::MAX, began_at: None, has_looked: false }
    }
}

impl Spells {
    /// Takes a round trip; returns the shortest of late.
    fn measure(&mut self, now: Nanos, sample: f64) -> f64 {
        let began_at = *self.began_at.get_or_insert(now);
        if self.has_looked && now.saturating_sub(began_at) >= SPELL_NS {
            let (shortest_before, began_at) = (self.shortest, Some(now));
            *self = Self { shortest: f64::MAX, shortest_before, began_at, has_looked: false };
        }
        self.shortest = self.shortest.min(sample);
        self.base()
    }

    /// The shortest round trip of late, in nanoseconds.
    fn base(&self) -> f64 {
        self.shortest.min(self.shortest_before)
    }
}

/// Round trips since one was about as short as the shortest, and when that was.
#[derive(Clone, Copy, Debug, Default)]
struct Queueing {
    rounds: u32,
    queueless_at: Nanos,
}

impl Queueing {
    /// Takes a round trip with so much queueing; returns whether it counts as one without.
    fn measure(&mut self, now: Nanos, queueing: f64) -> bool {
        self.rounds += 1;
        let is_queueless = queueing < QUEUELESS_NS;
        if is_queueless {
            self.restart(now);
        }
        is_queueless
    }

    /// Whether a sender is to slow down.
    fn is_long(&self, now: Nanos) -> bool {
        self.rounds >= SLOW_EVERY_ROUNDS || now.saturating_sub(self.queueless_at) >= SLOW_EVERY_NS
    }

    fn restart(&mut self, now: Nanos) {
        *self = Self { rounds: 0, queueless_at: now };
    }

    /// The start has ended: a sender slows down soon.
    fn skip_to_first(&mut self) {
        self.rounds = FIRST_SLOW;
    }
}

impl Delay {
    /// Starts with a few packets, unspaced until a round trip has been measured.
    pub fn new(window: u32, mtu: Mtu) -> Self {
        let most = f64::from(window);
        Self {
            window: most.min((START_BYTES / mtu.bytes()) as f64),
            most,
            packet_bits: 8.0 * (mtu.bytes() + HEADER_BYTES) as f64,
            spells: Spells::default(),
            rtt: 0.0,
            queueing: Queueing::default(),
            slowed: None,
            grows: true,
            gain: 1.0,
            is_starting: true,
            shrunk_at: 0,
            pacer: Pacer::new(1e12),
        }
    }

    /// The window in packets, which may be a fraction of one.
    pub fn packets(&self) -> f64 {
        self.window
    }

    fn target(&self) -> f64 {
        BASE_TARGET_NS + (FLOW_TARGET_NS / self.window.sqrt()).min(MAX_FLOW_TARGET_NS)
    }

    /// A round trip was measured.
    fn measure(&mut self, now: Nanos, sample: f64) {
        let base = self.spells.measure(now, sample);
        self.rtt = if self.rtt > 0.0 { 0.75 * self.rtt + 0.25 * sample } else { sample };
        let queueing = sample - base;
        if self.looks_for_base(now, queueing) {
            self.grows = false;
        } else {
            self.steer(now, queueing);
        }
    }

    fn steer(&mut self, now: Nanos, queueing: f64) {
        let target = if self.is_starting { BASE_TARGET_NS } else { self.target() };
        self.grows = queueing < target;
        if self.grows {
            self.follow_window();
        } else {
            self.shrink(now, BETA * (queueing - target) / queueing);
        }
    }

    /// Whether it is time to slow down and measure the path without a queue, as LEDBAT++ does. A sender that starts
    /// late takes a standing queue for the path's own delay, and would keep it standing; so now and then a sender whose
    /// round trips all include a queue slows down.
    fn looks_for_base(&mut self, now: Nanos, queueing: f64) -> bool {
        if let Some((window, until)) = self.slowed {
            if now >= until {
                self.slowed = None;
                self.spells.has_looked = true;
                self.set_window(window);
            }
            return true;
        }
        if self.queueing.measure(now, queueing) {
            self.spells.has_looked = true;
        }
        if !self.queueing.is_long(now) {
            return false;
        }
        self.step_back(now, self.window);
        true
    }

    /// Slows down for a while, to go on with `window` afterwards.
    fn step_back(&mut self, now: Nanos, window: f64) {
        self.queueing.restart(now);
        self.slowed = Some((window, now + (SLOW_ROUNDS * self.rtt) as Nanos));
        self.set_window(self.window * SLOW_SHARE);
    }

    fn shrink(&mut self, now: Nanos, share: f64) {
        if self.is_starting {
            self.is_starting = false;
            self.queueing.skip_to_first();
        }
        let since = now.saturating_sub(self.shrunk_at) as f64;
        if since < self.rtt {
            return;
        }
        self.shrunk_at = now;
        self.set_window(self.window * (1.0 - share.min(MAX_DECREASE)));
    }

    fn set_window(&mut self, window: f64) {
        self.window = window.clamp(MIN_WINDOW, self.most);
        self.follow_window();
    }

    /// Spacing and growth follow from the window.
    fn follow_window(&mut self) {
        self.gain = if self.is_starting { 1.0 } else { ADDITIVE / self.window.max(1.0) };
        if self.rtt > 0.0 {
            let is_small = self.window < SMALL_WINDOW && !self.is_starting;
            let headroom = if is_small { 1.0 } else { HEADROOM };
            self.pacer.set_rate(headroom * self.window * self.packet_bits * 1e9 / self.rtt);
        }
    }
}

impl CongestionControl for Delay {
    #[inline]
    fn window(&self) -> u32 {
        self.window as u32 + 1
    }

    #[inline]
    fn release_at(&self) -> Nanos {
        self.pacer.release_at()
    }

    #[inline]
    fn on_sent(&mut self, now: Nanos, bytes: usize) {
        self.pacer.on_sent(now, bytes);
    }

    #[inline]
    fn on_acknowledged(&mut self, now: Nanos, packets: u32, rtt: Option<Nanos>) {
        if let Some(sample) = rtt {
            self.measure(now, sample as f64);
        }
        if self.grows {
            self.window = (self.window + self.gain * f64::from(packets)).min(self.most);
        }
    }

    /// A loss that no delay announced is the path's own: the delay decides. At the start it may as well be a buffer that
    /// has been full all the time: the sender steps back and looks.
    fn on_loss(&mut self, now: Nanos) {
        if self.is_starting {
            self.is_starting = false;
            match &mut self.slowed {
                // It has stepped back and looks: half of what it comes from is what it returns to.
                Some((window, _)) => *window *= 1.0 - MAX_DECREASE,
                None => self.step_back(now, self.window * (1.0 - MAX_DECREASE)),
            }
        }
        if self.slowed.is_none() && self.rtt - self.spells.base() > self.target() {
            self.shrink(now, MAX_DECREASE);
        }
    }

    fn on_silence(&mut self, now: Nanos) {
        self.slowed = None;
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
        let mut delay = Delay::new(256, Mtu::Mtu4096);
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
    fn a_queue_that_stands_makes_it_step_back_and_look() {
        let mut delay = Delay::new(256, Mtu::Mtu4096);
        delay.on_acknowledged(0, 1, Some(20_000));
        let mut least = f64::MAX;
        for round in 1..=u64::from(SLOW_EVERY_ROUNDS) + 3 {
            delay.on_acknowledged(round * 26_000, 1, Some(26_000));
            least = least.min(delay.packets());
        }
        assert!(least * 3.0 < delay.packets(), "down to {least} and back to {}", delay.packets());
    }

    #[test]
    fn a_path_that_becomes_longer_is_known_after_a_while() {
        let mut delay = Delay::new(256, Mtu::Mtu4096);
        (0..1000).for_each(|at| delay.on_acknowledged(at * 20_000, 8, Some(20_000)));
        let grown = delay.packets();
        let mut now = 20_000_000;
        while now < 120_000_000 {
            // Below a window of one packet there is a round trip to measure only now and then.
            now += (100_000.0 / delay.packets().min(1.0)) as Nanos;
            delay.on_acknowledged(now, delay.packets().max(1.0) as u32, Some(100_000));
        }
        assert!(delay.packets() > grown / 2.0, "{grown} before, {} after", delay.packets());
    }

    #[test]
    fn a_loss_ends_the_start_and_later_ones_need_a_queue_to_count() {
        let mut delay = Delay::new(256, Mtu::Mtu4096);
        (0..4).for_each(|at| delay.on_acknowledged(at * 20_000, 8, Some(20_000)));
        let started = delay.packets();
        delay.on_loss(80_000);
        assert!(delay.packets() < started / 3.0);
        delay.on_acknowledged(200_000, 8, Some(20_000));
        let window = delay.packets();
        assert!((window - started / 2.0).abs() < 1.0, "{started}, then {window}");
        delay.on_loss(300_000);
        assert!((delay.packets() - window).abs() < 1e-9);
    }

    #[test]
    fn the_window_keeps_its_bounds() {
        let mut delay = Delay::new(16, Mtu::Mtu4096);
        (0..1000).for_each(|at| delay.on_acknowledged(at * 10_000, 16, Some(10_000)));
        assert_eq!(delay.window(), 17);
        (1000..3000).for_each(|at| delay.on_silence(at * 1_000_000));
        assert_eq!(delay.window(), 1);
        assert!(delay.packets() >= MIN_WINDOW);
    }

    /// What the path takes without queues in the tests that follow.
    const BASE: Nanos = 20_000;

    fn assert_window(delay: &Delay, expected: f64) {
        assert!((delay.packets() - expected).abs() < 1e-9, "{} instead of {expected}", delay.packets());
    }

    /// A connection that has measured a round trip without queues.
    fn measured(mtu: Mtu) -> Delay {
        let mut delay = Delay::new(256, mtu);
        delay.on_acknowledged(1_000_000, 0, Some(BASE));
        delay
    }

    #[test]
    fn the_window_doubles_at_first_and_shrinks_once_a_round_trip_by_as_much_as_the_excess_says() {
        let mut delay = measured(Mtu::Mtu4096);
        assert_window(&delay, 4.0);
        delay.on_acknowledged(1_020_000, 4, Some(BASE));
        assert_window(&delay, 8.0);
        delay.on_acknowledged(1_040_000, 8, Some(BASE));
        assert_window(&delay, 16.0);
        delay.on_acknowledged(1_100_000, 16, Some(60_000));
        assert_window(&delay, 8.0);
        // The smoothed round trip goes from 30 us over 32.5 us to 34.375 us.
        delay.on_acknowledged(1_132_499, 8, Some(40_000));
        assert_window(&delay, 8.0);
        delay.on_acknowledged(1_134_375, 8, Some(40_000));
        let target = 8_000.0 + 30_000.0 / 8_f64.sqrt();
        let shrunk = 8.0 * (1.0 - 0.8 * (20_000.0 - target) / 20_000.0);
        assert_window(&delay, shrunk);
        delay.on_acknowledged(1_200_000, 8, Some(BASE));
        assert_window(&delay, shrunk + 8.0 / shrunk);
    }

    #[test]
    fn the_target_of_the_smallest_window_is_bounded() {
        let mut delay = measured(Mtu::Mtu4096);
        (11..20).for_each(|at| delay.on_silence(at * 100_000));
        assert_window(&delay, MIN_WINDOW);
        delay.on_acknowledged(2_000_000, 1, Some(BASE + 68_000));
        assert_window(&delay, MIN_WINDOW);
        delay.on_acknowledged(2_100_000, 1, Some(BASE + 67_999));
        assert_window(&delay, MIN_WINDOW + 1.0);
    }

    #[test]
    fn it_steps_back_in_the_fiftieth_round_that_queues_for_two_round_trips() {
        let mut delay = measured(Mtu::Mtu4096);
        (1..50).for_each(|round| delay.on_acknowledged(1_000_000 + round * BASE, 0, Some(BASE + 4_000)));
        assert_window(&delay, 4.0);
        delay.on_acknowledged(2_000_000, 0, Some(BASE + 4_000));
        assert_window(&delay, 1.0);
        delay.on_acknowledged(2_047_900, 1, Some(BASE));
        assert_window(&delay, 1.0);
        delay.on_acknowledged(2_048_000, 1, Some(BASE));
        assert_window(&delay, 4.0);
        // A little less is no queue.
        (0..200).for_each(|round| delay.on_acknowledged(2_100_000 + round * BASE, 0, Some(BASE + 3_999)));
        assert_window(&delay, 4.0);
    }

    #[test]
    fn it_steps_back_after_ten_milliseconds_however_few_rounds_they_were() {
        let mut delay = measured(Mtu::Mtu4096);
        delay.on_acknowledged(10_999_999, 0, Some(BASE + 4_000));
        assert_window(&delay, 4.0);
        delay.on_acknowledged(11_000_000, 0, Some(BASE + 4_000));
        assert_window(&delay, 1.0);
    }

    #[test]
    fn it_steps_back_in_the_fourth_round_after_its_start() {
        let mut delay = measured(Mtu::Mtu4096);
        delay.on_acknowledged(1_100_000, 0, Some(BASE + 40_000));
        assert_window(&delay, 2.0);
        (2..5).for_each(|at| delay.on_acknowledged(1_000_000 + at * 100_000, 0, Some(BASE + 4_000)));
        assert_window(&delay, 2.0);
        delay.on_acknowledged(1_500_000, 0, Some(BASE + 4_000));
        assert_window(&delay, 0.5);
    }

    #[test]
    fn the_shortest_round_trip_is_forgotten_after_two_spells_that_saw_the_path() {
        let mut spells = Spells::default();
        let mut shortest = |now, has_looked, sample| {
            spells.has_looked |= has_looked;
            spells.measure(now, sample) as Nanos
        };
        assert_eq!(shortest(1, false, 20.0), 20);
        assert_eq!(shortest(SPELL_NS, false, 30.0), 20);
        assert_eq!(shortest(2 * SPELL_NS, false, 30.0), 20, "the path was not measured without a queue");
        assert_eq!(shortest(3 * SPELL_NS, true, 30.0), 20, "the second spell begins");
        assert_eq!(shortest(4 * SPELL_NS - 1, true, 30.0), 20);
        assert_eq!(shortest(4 * SPELL_NS, true, 40.0), 30, "the third");
    }

    /// By how much a packet delays the next, where the sender is late.
    fn spacing(delay: &mut Delay, now: Nanos, bytes: usize) -> Nanos {
        delay.on_sent(now, bytes);
        delay.release_at() + 5_000 - now
    }

    #[test]
    fn packets_are_spaced_over_the_round_trip() {
        let mut delay = measured(Mtu::Mtu4096);
        // A quarter faster than the four packets that the window allows.
        assert!(spacing(&mut delay, 1_000_000, 4096 + HEADER_BYTES).abs_diff(4_000) <= 1);
        delay.on_silence(1_100_000);
        // Two packets a round trip: so few are spaced exactly.
        assert!(spacing(&mut delay, 1_100_000, 4096 + HEADER_BYTES).abs_diff(10_000) <= 1);
        let mut delay = measured(Mtu::Mtu1024);
        delay.on_silence(1_100_000);
        assert_window(&delay, 8.0);
        assert!(spacing(&mut delay, 1_100_000, 1024 + HEADER_BYTES).abs_diff(2_000) <= 1);
    }

    #[test]
    fn a_loss_counts_where_the_queue_is_above_the_target() {
        // The target of four packets is 23 us, which the smoothed round trip reaches, and passes by 1 ns.
        for (sample, expected) in [(112_000, 4.0), (112_004, 2.0)] {
            let mut delay = measured(Mtu::Mtu4096);
            delay.on_acknowledged(1_020_000, 4, Some(BASE));
            delay.on_acknowledged(1_100_000, 0, Some(sample));
            assert_window(&delay, 4.0);
            delay.on_loss(1_200_000);
            assert_window(&delay, expected);
        }
    }

    #[test]
    fn a_loss_while_it_looks_halves_what_it_returns_to() {
        let mut delay = measured(Mtu::Mtu4096);
        (1..=50).for_each(|round| delay.on_acknowledged(1_000_000 + round * BASE, 0, Some(BASE + 4_000)));
        delay.on_loss(2_010_000);
        delay.on_acknowledged(2_100_000, 0, Some(BASE));
        assert_window(&delay, 2.0);
    }

    #[test]
    fn the_first_spell_begins_with_the_first_round_trip_whatever_the_clock_says() {
        let shortest_from = |start: Nanos| {
            let mut spells = Spells::default();
            spells.measure(start + 1, 20.0);
            spells.has_looked = true;
            spells.measure(start + 2, 30.0);
            spells.has_looked = true;
            spells.measure(start + SPELL_NS + 2, 30.0) as Nanos
        };
        assert_eq!([0, 1_000_000_000].map(shortest_from), [20, 20]);
    }
}
