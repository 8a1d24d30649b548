//! What lies between simulated stations: distance, a rate, queues, and what goes wrong with a network as a whole. What goes
//! wrong with single frames is [`Faulty`](crate::link::faulty::Faulty)'s.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_protocol::Nanos;

use super::Clock;

/// Bits of a second's worth of nanoseconds.
const BITS_NS: u64 = 8 * 1_000_000_000;

/// How a network carries frames. By default at once, in order, and with 256 that wait for a station at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetConfig {
    /// How long every frame is on its way, in nanoseconds.
    pub latency_ns: Nanos,
    /// How much longer a frame may be on its way, in nanoseconds; of two, the later one may so come first.
    pub jitter_ns: Nanos,
    /// Bits per second that a station receives; none is without limit.
    pub rate: Option<u64>,
    /// Frames that wait for a station at most, be it for the rate or until it receives them. Those on their way do not count.
    pub queue: usize,
    /// What the jitter follows from.
    pub seed: u64,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self { latency_ns: 0, jitter_ns: 0, rate: None, queue: 256, seed: 0 }
    }
}

/// A handle on a network, whichever of its stations it came from.
#[derive(Clone, Debug)]
pub struct Net(pub(super) Rc<Network>);

impl Net {
    /// Cuts the network in two: frames between `side` and all other stations are lost, until [`Net::heal`].
    pub fn part(&self, side: &[usize]) {
        for (number, station) in self.0.stations.iter().enumerate() {
            station.is_apart.set(side.contains(&number));
        }
    }

    /// Every station reaches every other again.
    pub fn heal(&self) {
        self.part(&[]);
    }

    /// Frames that found no place in a queue.
    pub fn missed(&self) -> u64 {
        self.0.stations.iter().map(SimStation::missed).sum()
    }

    /// Begins to note every frame that is sent, for [`Net::trace`].
    pub fn record(&self) {
        self.0.trace.set(Some(0));
    }

    /// A hash over every frame that was sent since [`Net::record`], from where and when: equal for two runs of one seed.
    pub fn trace(&self) -> Option<u64> {
        self.0.trace.get()
    }
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) stations: Vec<SimStation>,
    /// A wire has two ends, looks at no address, and its transmitter waits while it is full.
    is_wire: bool,
    clock: Clock,
    config: NetConfig,
    dice: RefCell<StdRng>,
    trace: Cell<Option<u64>>,
}

/// A link's end of the simulated network.
#[derive(Debug)]
pub(super) struct SimStation {
    /// Frames for it and when they arrive, the next one first; takes no memory before the first one comes.
    incoming: RefCell<VecDeque<(Nanos, Vec<u8>)>>,
    /// When the last bit of them has come, at the network's rate.
    busy_until: Cell<Nanos>,
    /// Frames for it that found no place.
    missed: Cell<u64>,
    /// The ends of a wire share this, the stations of a switch do not.
    is_up: Rc<Cell<bool>>,
    /// Which side it is on, where the network is cut in two.
    is_apart: Cell<bool>,
}

impl Network {
    pub(super) fn wire(clock: &Clock, config: NetConfig) -> Self {
        let is_up = Rc::new(Cell::new(true));
        Self::of([(); 2].map(|()| SimStation::new(is_up.clone())).into(), true, clock, config)
    }

    pub(super) fn switch(clock: &Clock, stations: usize, config: NetConfig) -> Self {
        let stations = (0..stations).map(|_| SimStation::new(Rc::new(Cell::new(true)))).collect();
        Self::of(stations, false, clock, config)
    }

    fn of(stations: Vec<SimStation>, is_wire: bool, clock: &Clock, config: NetConfig) -> Self {
        let dice = RefCell::new(StdRng::seed_from_u64(config.seed));
        Self { stations, is_wire, clock: clock.clone(), config, dice, trace: Cell::new(None) }
    }

    /// A wire's transmitter, where so many frames are queued, sees the far queue; a switch takes every frame, and loses those it has
    /// no room for.
    pub(super) fn is_full_for(&self, sender: usize, queued: usize) -> bool {
        self.is_wire && self.stations[1 - sender].waiting(self.clock.now()) + queued >= self.config.queue
    }

    pub(super) fn forward(&self, sender: usize, frame: Vec<u8>) {
        self.note(sender, &frame);
        if self.is_wire {
            return self.deliver(sender, 1 - sender, frame);
        }
        match self.destination(&frame) {
            // A switch sends nothing back to where it came from.
            Some(to) if to == sender => {}
            Some(to) => self.deliver(sender, to, frame),
            None => {
                let others = (0..self.stations.len()).filter(|&number| number != sender);
                others.for_each(|to| self.deliver(sender, to, frame.clone()));
            }
        }
    }

    fn note(&self, sender: usize, frame: &[u8]) {
        let Some(before) = self.trace.get() else { return };
        // No CRC-32: a frame that ends with one of its own leaves the same remainder whatever is in it.
        let mut hasher = DefaultHasher::new();
        (before, self.clock.now(), sender, frame).hash(&mut hasher);
        self.trace.set(Some(hasher.finish()));
    }

    fn deliver(&self, from: usize, to: usize, frame: Vec<u8>) {
        let (from, to) = (&self.stations[from], &self.stations[to]);
        if !to.is_up.get() || from.is_apart != to.is_apart {
            return;
        }
        let now = self.clock.now();
        let reaches = now + self.config.latency_ns + self.jitter();
        if to.waiting(now) + to.behind(reaches) >= self.config.queue {
            to.missed.set(to.missed.get() + 1);
            return;
        }
        let takes = self.config.rate.map_or(0, |rate| frame.len() as u64 * BITS_NS / rate);
        to.enqueue(reaches, takes, frame);
    }

    fn jitter(&self) -> Nanos {
        match self.config.jitter_ns {
            0 => 0,
            most => self.dice.borrow_mut().random_range(0..=most),
        }
    }

    /// The station whose address the frame begins with. The number is read off it, so that nothing is searched.
    fn destination(&self, frame: &[u8]) -> Option<usize> {
        let [2, 0, 0, 0, number @ ..] = *frame.first_chunk::<6>()? else { return None };
        let number = usize::from(u16::from_be_bytes(number)).checked_sub(1)?;
        (number < self.stations.len()).then_some(number)
    }
}

impl SimStation {
    fn new(is_up: Rc<Cell<bool>>) -> Self {
        let incoming = RefCell::default();
        Self { incoming, busy_until: Cell::new(0), missed: Cell::new(0), is_up, is_apart: Cell::new(false) }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.get()
    }

    /// A handle that takes the station's link down; a cable's two ends share one link.
    pub(super) fn cutter(&self) -> impl Fn() + use<> {
        let is_up = self.is_up.clone();
        move || is_up.set(false)
    }

    pub(super) fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// The next frame that has arrived.
    pub(super) fn take(&self, now: Nanos) -> Option<Vec<u8>> {
        self.incoming.borrow_mut().pop_front_if(|(at, _)| *at <= now).map(|(_, frame)| frame)
    }

    /// Frames that have arrived and were not received.
    fn waiting(&self, now: Nanos) -> usize {
        self.incoming.borrow().partition_point(|(at, _)| *at <= now)
    }

    /// Frames that are still on their way, or wait for the rate, when another one reaches the queue.
    fn behind(&self, reaches: Nanos) -> usize {
        let incoming = self.incoming.borrow();
        incoming.len() - incoming.partition_point(|(at, _)| *at <= reaches)
    }

    fn enqueue(&self, reaches: Nanos, takes: Nanos, frame: Vec<u8>) {
        let at = if takes == 0 { reaches } else { reaches.max(self.busy_until.get()) + takes };
        self.busy_until.set(at);
        let mut incoming = self.incoming.borrow_mut();
        let place = incoming.partition_point(|(other, _)| *other <= at);
        incoming.insert(place, (at, frame));
    }
}
