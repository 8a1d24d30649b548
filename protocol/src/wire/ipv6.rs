//! The IPv6 header, without extension headers.

use std::net::Ipv6Addr;

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::udp::PROTOCOL_UDP;
use super::{Malformed, take};

/// The header's length.
pub const LEN: usize = 40;
const VERSION: u32 = 6;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv6View {
    version_class_flow: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}
const_assert_eq!(size_of::<Ipv6View>(), LEN);

/// An IPv6 header that carries UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6 {
    /// DSCP (high 6 bits) and ECN (low 2 bits).
    pub traffic_class: u8,
    /// The 20-bit flow label.
    pub flow_label: u32,
    /// Bytes after the header.
    pub payload_len: u16,
    /// Hop limit.
    pub hop_limit: u8,
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// Reads the header; the rest is cut to the length that it announces.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<Ipv6View>(bytes)?;
        let word = view.version_class_flow.get();
        if word >> 28 != VERSION {
            return Err(Malformed::IpHeader);
        }
        if view.next_header != PROTOCOL_UDP {
            return Err(Malformed::NotUdp);
        }
        let payload = rest.get(..usize::from(view.payload_len.get())).ok_or(Malformed::IpLength)?;
        let header = Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_len: view.payload_len.get(),
            hop_limit: view.hop_limit,
            source: view.source.into(),
            destination: view.destination.into(),
        };
        Ok((header, payload))
    }

    /// Writes the header to the front of `bytes`, which must hold 40.
    pub fn emit(&self, bytes: &mut [u8]) {
        let word = VERSION << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        let view = Ipv6View {
            version_class_flow: word.into(),
            payload_len: self.payload_len.into(),
            next_header: PROTOCOL_UDP,
            hop_limit: self.hop_limit,
            source: self.source.octets(),
            destination: self.destination.octets(),
        };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}
