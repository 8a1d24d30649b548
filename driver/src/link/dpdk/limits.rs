//! How much a port holds, and how many ports there may be.

/// Ports that DPDK can have at a time.
pub(super) const PORTS_MAX: usize = dpdk_sys::ROCI_MAX_PORTS;
/// Descriptors of a queue, as a power of two. A NIC's must hold what arrives while its loop does something else.
const DEVICE_LOG: u8 = 9;
/// Those of a ring in memory, whose sender waits where it is full. What both processes write and read in turn stays in their caches
/// then. Of 128, 256 and 512, 256 moves the most in packets of 8 KiB, 4 KiB and 1 KiB together: 128 are half of the bare frames, and 512
/// are less of 8 KiB (docs/experiments.md).
const MEMORY_LOG: u8 = 8;

/// How many frames the rings of a port hold, and so how many packet buffers it needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RingSize(u8);

impl RingSize {
    /// That of a device's rings.
    pub(super) const DEVICE: Self = Self(DEVICE_LOG);
    /// That of rings in memory that two processes share.
    pub(super) const MEMORY: Self = Self(MEMORY_LOG);

    /// Descriptors of a ring.
    pub(super) const fn descriptors(self) -> u16 {
        1 << self.0
    }

    /// The same, as a power of two.
    pub(super) const fn log2(self) -> u8 {
        self.0
    }

    /// Packet buffers that a thread keeps for itself.
    pub(super) const fn cache(self) -> u32 {
        self.descriptors() as u32 / 2
    }
}
/// Head, payload and tail of a frame whose payload stays where it is; a payload of 8 KiB may touch three pages.
pub const SEGMENTS: u16 = 5;
/// Packet buffers that a link takes from its pool at once, for its next frames.
pub(super) const AHEAD: usize = 32;
/// Frames queued and not yet taken by the device.
pub(super) const TX_QUEUE: usize = 64;
