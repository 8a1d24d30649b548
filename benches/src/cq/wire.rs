//! A wire between two engines of one thread that allocates nothing once it is there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use arrayvec::ArrayVec;
use roci_driver::link::{Batch, Full, Link, LinkState, LinkStats};
use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

/// A full packet of the smallest path MTU, with every header.
const MAX_FRAME: usize = 384;
/// Frames that wait at most; then the transmitter waits.
const CAPACITY: usize = 128;

/// A clock that moves only when it is set.
#[derive(Clone, Default, Debug)]
pub(crate) struct ManualClock(Rc<Cell<Nanos>>);

impl ManualClock {
    pub(crate) fn advance(&self, by: Nanos) {
        self.0.set(self.0.get() + by);
    }
}

/// An Ethernet frame by value, without an allocation.
pub(crate) struct FrameBytes(ArrayVec<u8, MAX_FRAME>);

impl AsRef<[u8]> for FrameBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The frames on their way in one direction.
type FrameQueue = Rc<RefCell<VecDeque<FrameBytes>>>;

/// One end of the wire, as an engine's link.
pub(crate) struct WireEnd {
    clock: ManualClock,
    host: u8,
    incoming: FrameQueue,
    outgoing: FrameQueue,
}

impl WireEnd {
    pub(crate) fn pair(clock: &ManualClock) -> [Self; 2] {
        let [near, far] = [(); 2].map(|()| FrameQueue::new(RefCell::new(VecDeque::with_capacity(CAPACITY))));
        let half = |host, incoming: &FrameQueue, outgoing: &FrameQueue| Self {
            clock: clock.clone(),
            host,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
        };
        [half(1, &near, &far), half(2, &far, &near)]
    }
}

impl Link for WireEnd {
    type Frame = FrameBytes;

    #[inline]
    fn now(&self) -> Nanos {
        self.clock.0.get()
    }

    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn mac(&self) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, self.host])
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch<FrameBytes>) {
        let mut incoming = self.incoming.borrow_mut();
        while let Some(frame) = (!batch.is_full()).then(|| incoming.pop_front()).flatten() {
            batch.push(frame);
        }
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.len() == CAPACITY {
            return Err(Full);
        }
        let mut bytes = ArrayVec::from([0; MAX_FRAME]);
        bytes.truncate(len);
        fill(&mut bytes);
        outgoing.push_back(FrameBytes(bytes));
        Ok(())
    }

    fn flush(&mut self) {}

    #[inline]
    fn maintain(&mut self, _now: Nanos) -> LinkState {
        LinkState::Up
    }

    fn stats(&self) -> LinkStats {
        LinkStats::default()
    }
}
