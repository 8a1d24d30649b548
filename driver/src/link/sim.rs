//! Two ends of a wire in one process, under a clock that the test moves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

use super::{Batch, Full, Link, LinkState, LinkStats};

/// Frames that a direction holds before it is full.
const CAPACITY: usize = 256;

/// A clock that only moves when told.
#[derive(Clone, Default, Debug)]
pub struct Clock(Rc<Cell<Nanos>>);

impl Clock {
    /// Moves time forward.
    pub fn advance(&self, by: Nanos) {
        self.0.set(self.0.get() + by);
    }
}

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a simulated wire.
#[derive(Debug)]
pub struct SimLink {
    clock: Clock,
    mac: MacAddr,
    outgoing: Queue,
    incoming: Queue,
    is_up: Rc<Cell<bool>>,
    stats: LinkStats,
}

impl SimLink {
    /// The two ends of a wire that carries frames of up to `9216` bytes.
    pub fn pair(clock: &Clock) -> (Self, Self) {
        let (there, back) = (Queue::default(), Queue::default());
        let is_up = Rc::new(Cell::new(true));
        let end = |last, outgoing: &Queue, incoming: &Queue| Self {
            clock: clock.clone(),
            mac: MacAddr([2, 0, 0, 0, 0, last]),
            outgoing: outgoing.clone(),
            incoming: incoming.clone(),
            is_up: is_up.clone(),
            stats: LinkStats::default(),
        };
        (end(1, &there, &back), end(2, &back, &there))
    }

    /// A handle that cuts the wire.
    pub fn cutter(&self) -> impl Fn() + use<> {
        let is_up = self.is_up.clone();
        move || is_up.set(false)
    }
}

impl Link for SimLink {
    type Frame = Vec<u8>;

    fn now(&self) -> Nanos {
        self.clock.0.get()
    }

    fn max_frame(&self) -> usize {
        9216
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn receive(&mut self, batch: &mut Batch<Vec<u8>>) {
        let mut queue = self.incoming.borrow_mut();
        while let Some(frame) = (!batch.is_full()).then(|| queue.pop_front()).flatten() {
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += frame.len() as u64;
            batch.push(frame);
        }
    }

    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let mut queue = self.outgoing.borrow_mut();
        if queue.len() == CAPACITY {
            self.stats.tx_full += 1;
            return Err(Full);
        }
        let mut frame = vec![0; len];
        fill(&mut frame);
        self.stats.tx_frames += 1;
        self.stats.tx_bytes += len as u64;
        if self.is_up.get() {
            queue.push_back(frame);
        }
        Ok(())
    }

    fn flush(&mut self) {}

    fn maintain(&mut self, _now: Nanos) -> LinkState {
        if self.is_up.get() { LinkState::Up } else { LinkState::Down }
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }
}
