//! Links: ports that carry Ethernet frames.
//!
//! A [`Link`] is a type parameter of the engine, never a trait object. The back-ends are [`dpdk`], which drives
//! a real port, and [`sim`], a wire or a switch in one process under virtual time. [`faulty`] and [`pcap`] are links
//! around a link: one injects faults, the other writes what passes to a file.

pub mod dpdk;
pub mod faulty;
pub mod pcap;
pub mod sim;

use arrayvec::ArrayVec;
use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

/// Frames that one call receives at most.
pub const BURST: usize = 32;

/// Frames that an engine keeps because they came early: links must have buffers for them to spare.
pub const HELD_FRAMES: usize = 512;

/// Received frames.
pub type Batch<F> = ArrayVec<F, BURST>;

/// The link takes no frame now: back-pressure, not an error. Try again after the next poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Whether frames can cross.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// The peer is there.
    Up,
    /// Frames sent now are lost.
    Down,
}

/// Counters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames handed to the device.
    pub tx_frames: u64,
    /// Bytes handed to the device.
    pub tx_bytes: u64,
    /// Times that the link was full.
    pub tx_full: u64,
    /// Frames discarded because the link was down.
    pub tx_link_down: u64,
    /// Frames received in several segments, which this stack does not take.
    pub rx_fragmented: u64,
    /// Frames lost because the queue towards this port was full: a simulated switch counts them.
    pub rx_missed: u64,
    /// Frames lost, duplicated, held back or corrupted on purpose.
    pub injected_faults: u64,
}

/// A port that sends and receives whole Ethernet frames.
pub trait Link {
    /// A received frame: memory that nobody else writes.
    type Frame: AsRef<[u8]>;

    /// The time; monotonic, cheap.
    fn now(&self) -> Nanos;

    /// The longest frame that crosses.
    fn max_frame(&self) -> usize;

    /// The port's station address.
    fn mac(&self) -> MacAddr;

    /// Appends the frames that have arrived to `batch`, as many as fit.
    fn receive(&mut self, batch: &mut Batch<Self::Frame>);

    /// Queues one frame of `len` bytes, which `fill` writes. Nothing is called where the link is full.
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full>;

    /// Hands the queued frames to the device; what it does not take stays queued.
    fn flush(&mut self);

    /// Housekeeping off the data path: call it between bursts, as often as every poll. Returns the link's state.
    fn maintain(&mut self, now: Nanos) -> LinkState;

    /// The counters.
    fn stats(&self) -> LinkStats;
}
