//! The IPv4 header as RoCEv2 uses it: no options, never fragmented.

use std::net::Ipv4Addr;

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::udp::PROTOCOL_UDP;
use super::{Malformed, take};

/// The header's length without options.
pub const LEN: usize = 20;
/// Where the source address is.
pub(super) const SOURCE: usize = 12;
/// The "do not fragment" bit of [`Ipv4::flags_fragment`].
pub const DONT_FRAGMENT: u16 = 0x4000;
const VERSION_AND_WORDS: u8 = 0x45;
const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv4View {
    version_words: u8,
    tos: u8,
    total_len: U16,
    id: U16,
    flags_fragment: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}
const_assert_eq!(size_of::<Ipv4View>(), LEN);

/// An IPv4 header that carries UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4 {
    /// DSCP (high 6 bits) and ECN (low 2 bits).
    pub tos: u8,
    /// Bytes after the header.
    pub payload_len: u16,
    /// Identification; covered by the ICRC, so a sender keeps it constant.
    pub id: u16,
    /// Flags and fragment offset; only "do not fragment" may be set.
    pub flags_fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// Reads the header; the rest is cut to the length that it announces.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<Ipv4View>(bytes)?;
        let header = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        if view.version_words != VERSION_AND_WORDS {
            return Err(Malformed::IpHeader);
        }
        if checksum(header) != 0 {
            return Err(Malformed::IpChecksum);
        }
        if view.flags_fragment.get() & MORE_FRAGMENTS_AND_OFFSET != 0 {
            return Err(Malformed::IpFragment);
        }
        if view.protocol != PROTOCOL_UDP {
            return Err(Malformed::NotUdp);
        }
        let payload_len = usize::from(view.total_len.get()).checked_sub(LEN).ok_or(Malformed::IpLength)?;
        let payload = rest.get(..payload_len).ok_or(Malformed::IpLength)?;
        let header = Self {
            tos: view.tos,
            payload_len: payload_len as u16,
            id: view.id.get(),
            flags_fragment: view.flags_fragment.get(),
            ttl: view.ttl,
            source: view.source.into(),
            destination: view.destination.into(),
        };
        Ok((header, payload))
    }

    /// Writes the header with its checksum to the front of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter than 20, or the payload longer than IPv4 can say (65,515 bytes).
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = Ipv4View {
            version_words: VERSION_AND_WORDS,
            tos: self.tos,
            total_len: (self.payload_len + LEN as u16).into(),
            id: self.id.into(),
            flags_fragment: self.flags_fragment.into(),
            ttl: self.ttl,
            protocol: PROTOCOL_UDP,
            checksum: 0.into(),
            source: self.source.octets(),
            destination: self.destination.octets(),
        };
        let header: &mut [u8; LEN] = bytes.first_chunk_mut().expect("the caller has made room");
        header.copy_from_slice(view.as_bytes());
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The Internet checksum (RFC 1071) of a header; zero where the header's own checksum is right.
#[inline]
pub(super) fn checksum(header: &[u8; LEN]) -> u16 {
    // A sum of longer words folds to the same (RFC 1071, 2 (C)).
    let (words, _) = header.as_chunks::<4>();
    !fold(words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum())
}

/// Adds the carries of 16 bits until none is left: the sum of five words of 32 bits has at most 35.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + sum) as u16
}
