//! A path in a REQ (IBTA table 106: primary and alternate are alike).

use std::net::Ipv6Addr;

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

/// Bytes that a path takes.
pub const PATH_LEN: usize = 44;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PathView {
    local_lid: U16,
    remote_lid: U16,
    local_gid: [u8; 16],
    remote_gid: [u8; 16],
    flow_rate: U32,
    traffic_class: u8,
    hop_limit: u8,
    sl_subnet: u8,
    ack_timeout: u8,
}
const_assert_eq!(size_of::<PathView>(), PATH_LEN);

/// How packets get from the sender of a REQ to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The sender's LID; meaningless over Ethernet, and what Linux fills in there is 0xffff.
    pub local_lid: u16,
    /// The receiver's LID; likewise.
    pub remote_lid: u16,
    /// The sender: over RoCEv2 its IP address, see [`ip_of`](super::ip_of).
    pub local_gid: Ipv6Addr,
    /// The receiver.
    pub remote_gid: Ipv6Addr,
    /// The 20-bit flow label; Linux makes the connection's UDP source port of it.
    pub flow_label: u32,
    /// Six reserved bits behind the flow label.
    pub reserved_flow: u8,
    /// The rate's code, 6 bits.
    pub packet_rate: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Both ends lie in one subnet.
    pub subnet_local: bool,
    /// Three reserved bits behind it.
    pub reserved_subnet: u8,
    /// How long the sender waits for an acknowledgement: 4.096 us times 2 to the power of these 5 bits.
    pub ack_timeout: u8,
    /// Three bits behind it: reserved but for the first one of an alternate path.
    pub reserved_timeout: u8,
}

impl Default for Path {
    fn default() -> Self {
        Self::parse(&[0; PATH_LEN])
    }
}

impl Path {
    /// Reads the path.
    pub fn parse(bytes: &[u8; PATH_LEN]) -> Self {
        let view: &PathView = transmute_ref!(bytes);
        let flow_rate = view.flow_rate.get();
        Self {
            local_lid: view.local_lid.get(),
            remote_lid: view.remote_lid.get(),
            local_gid: view.local_gid.into(),
            remote_gid: view.remote_gid.into(),
            flow_label: flow_rate >> 12,
            reserved_flow: (flow_rate >> 6) as u8 & 0x3f,
            packet_rate: flow_rate as u8 & 0x3f,
            traffic_class: view.traffic_class,
            hop_limit: view.hop_limit,
            sl: view.sl_subnet >> 4,
            subnet_local: view.sl_subnet & 8 != 0,
            reserved_subnet: view.sl_subnet & 7,
            ack_timeout: view.ack_timeout >> 3,
            reserved_timeout: view.ack_timeout & 7,
        }
    }

    /// The path's bytes.
    pub fn emit(&self) -> [u8; PATH_LEN] {
        let (reserved, rate) = (u32::from(self.reserved_flow & 0x3f), u32::from(self.packet_rate & 0x3f));
        transmute!(PathView {
            local_lid: self.local_lid.into(),
            remote_lid: self.remote_lid.into(),
            local_gid: self.local_gid.octets(),
            remote_gid: self.remote_gid.octets(),
            flow_rate: (self.flow_label << 12 | reserved << 6 | rate).into(),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            sl_subnet: self.sl << 4 | u8::from(self.subnet_local) << 3 | self.reserved_subnet & 7,
            ack_timeout: self.ack_timeout << 3 | self.reserved_timeout & 7,
        })
    }
}
