//! Shapes that Rust shares with C, and values that C has as macros.
//!
//! The build script compiles this file too, and has the C compiler compare every shape and every value with the headers
//! that are installed: a release of DPDK that moves a field does not build.

use core::ffi::{c_char, c_void};

/// A packet buffer. DPDK writes fields that are not named here as well.
#[repr(C, align(64))]
pub struct rte_mbuf {
    /// The start of the segment's memory, which its head room comes first in.
    pub buf_addr: *mut c_void,
    _buf_iova: u64,
    /// Where the segment's data begins, in bytes from `buf_addr` on.
    pub data_off: u16,
    _refcnt: u16,
    /// Segments of the packet; only the first one knows.
    pub nb_segs: u16,
    _port: u16,
    /// What a device has found, in `RTE_MBUF_F_RX_` bits.
    pub ol_flags: u64,
    _packet_type: u32,
    /// Bytes of all segments; only the first one knows.
    pub pkt_len: u32,
    /// Bytes of this segment.
    pub data_len: u16,
    _up_to_buf_len: [u8; 12],
    /// Bytes of the segment's memory, head room and all.
    pub buf_len: u16,
    _pool: u64,
    /// The packet's next segment, or null.
    pub next: *mut rte_mbuf,
    _up_to_end: [u8; 56],
}

/// What all segments in one piece of foreign memory share.
#[repr(C)]
pub struct rte_mbuf_ext_shared_info {
    /// Called with the payload and `fcb_opaque` when the memory has no user any more.
    pub free_cb: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    /// For `free_cb`.
    pub fcb_opaque: *mut c_void,
    /// Users; changed by `roci_ext_refcnt_update` alone.
    pub refcnt: u16,
}

/// A MAC address.
#[repr(C, align(2))]
#[derive(Clone, Copy, Default)]
pub struct rte_ether_addr {
    /// In the order of the wire.
    pub addr_bytes: [u8; 6],
}

/// A pool of packet buffers, known by its address.
#[repr(C)]
pub struct rte_mempool {
    _opaque: [u8; 0],
}

/// A device on a bus, known by its address.
#[repr(C)]
pub struct rte_device {
    _opaque: [u8; 0],
}

/// What a port can do.
#[repr(C)]
pub struct roci_port_info {
    /// The driver's name, which lives as long as the driver; may be null.
    pub driver: *const c_char,
    /// The device that does the port's transfers; may be null.
    pub device: *mut rte_device,
    /// Pairs of a receive queue and a transmit queue.
    pub max_queues: u16,
    /// The longest payload of Ethernet, in bytes.
    pub max_mtu: u16,
    /// Segments of a frame that can be sent; 0 where the driver does not say.
    pub max_segments: u16,
    /// Whether frames of several segments are sent at all.
    pub sends_chains: bool,
    /// Whether the device verifies the IPv4 checksums of what it receives.
    pub checks_ip: bool,
    /// Whether the device verifies the UDP checksums of what it receives.
    pub checks_udp: bool,
    /// Whether received frames are spread over queues by their addresses.
    pub spreads_by_address: bool,
    /// Whether received frames are spread over queues by their UDP ports.
    pub spreads_by_port: bool,
}

/// What a port is asked for; all zeroes are defaults.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct roci_port_conf {
    /// The longest payload of Ethernet, in bytes; 0 leaves it to the driver.
    pub mtu: u16,
    /// To send frames of several segments: without this some drivers take the first one for the frame.
    pub sends_chains: bool,
    /// To verify the IPv4 checksums of what comes in.
    pub checks_ip: bool,
    /// To verify the UDP checksums of what comes in.
    pub checks_udp: bool,
    /// To spread what comes in over the queues, by all of addresses and UDP ports that the device can.
    pub spreads: bool,
}

/// Ports that every build of DPDK has room for in a process.
pub const ROCI_MAX_PORTS: usize = 32;
/// Bytes before the data of a fresh packet buffer.
pub const RTE_PKTMBUF_HEADROOM: usize = 128;
/// The bits of `ol_flags` that tell of a received frame's IPv4 checksum.
pub const RTE_MBUF_F_RX_IP_CKSUM_MASK: u64 = 0x90;
/// The IPv4 checksum is wrong.
pub const RTE_MBUF_F_RX_IP_CKSUM_BAD: u64 = 0x10;
/// The bits of `ol_flags` that tell of a received frame's UDP checksum.
pub const RTE_MBUF_F_RX_L4_CKSUM_MASK: u64 = 0x108;
/// The UDP checksum is wrong.
pub const RTE_MBUF_F_RX_L4_CKSUM_BAD: u64 = 0x8;
