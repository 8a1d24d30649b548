//! How much a port holds, and how many ports there may be.

/// Ports that DPDK can have at a time.
pub(super) const PORTS_MAX: usize = dpdk_sys::ROCI_MAX_PORTS;
/// Descriptors of a queue.
pub(super) const DESCRIPTORS: u16 = 512;
/// Head, payload and tail of a frame whose payload stays where it is; a payload of 8 KiB may touch three pages.
pub const SEGMENTS: u16 = 5;
/// Frames queued and not yet taken by the device.
pub(super) const TX_QUEUE: usize = 64;
