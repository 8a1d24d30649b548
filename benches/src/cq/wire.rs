//! A wire between two engines of one thread that allocates nothing once it is there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

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

/// The memory of an Ethernet frame.
type FrameMemory = Box<[u8; MAX_FRAME]>;

/// Memory of frames that were received: the next ones are written there.
type Spare = Rc<RefCell<Vec<FrameMemory>>>;

/// An Ethernet frame, whose memory is used again: what moves is a pointer, as with a real port.
pub(crate) struct FrameBytes {
    /// It is there until the frame is dropped.
    memory: Option<FrameMemory>,
    len: usize,
    spare: Spare,
}

impl AsRef<[u8]> for FrameBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }
}

impl Drop for FrameBytes {
    #[inline]
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.spare.borrow_mut().push(memory);
        }
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
    spare: Spare,
}

impl WireEnd {
    pub(crate) fn pair(clock: &ManualClock) -> [Self; 2] {
        let [near, far] = [(); 2].map(|()| FrameQueue::new(RefCell::new(VecDeque::with_capacity(CAPACITY))));
        let memory = (0..2 * CAPACITY).map(|_| Box::new([0; MAX_FRAME])).collect();
        let spare = Spare::new(RefCell::new(memory));
        let half = |host, incoming: &FrameQueue, outgoing: &FrameQueue| Self {
            clock: clock.clone(),
            host,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            spare: spare.clone(),
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
        while !batch.is_full()
            && let Some(frame) = incoming.pop_front()
        {
            batch.push(frame);
        }
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.len() == CAPACITY {
            return Err(Full);
        }
        let mut memory = self.spare.borrow_mut().pop().ok_or(Full)?;
        fill(&mut memory[..len]);
        outgoing.push_back(FrameBytes { memory: Some(memory), len, spare: self.spare.clone() });
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
