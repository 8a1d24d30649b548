//! The UDP header.

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Malformed, take};

/// The header's length.
pub const LEN: usize = 8;
/// IP's number for UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// The destination port of RoCEv2 (IBTA annex A17).
pub const ROCE_PORT: u16 = 4791;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UdpView {
    source: U16,
    destination: U16,
    len: U16,
    checksum: U16,
}
const_assert_eq!(size_of::<UdpView>(), LEN);

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp {
    /// Source port: entropy for ECMP and RSS, never checked by a receiver.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Bytes after the header.
    pub payload_len: u16,
    /// Checksum as carried; 0 means none, which is what RoCEv2 senders write.
    pub checksum: u16,
}

impl Udp {
    /// Reads the header; `bytes` must be exactly what IP delivered.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<UdpView>(bytes)?;
        if usize::from(view.len.get()) != bytes.len() {
            return Err(Malformed::UdpLength);
        }
        let header = Self {
            source: view.source.get(),
            destination: view.destination.get(),
            payload_len: rest.len() as u16,
            checksum: view.checksum.get(),
        };
        Ok((header, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 8.
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = UdpView {
            source: self.source.into(),
            destination: self.destination.into(),
            len: (self.payload_len + LEN as u16).into(),
            checksum: self.checksum.into(),
        };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}
