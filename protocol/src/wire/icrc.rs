//! The invariant CRC (IBTA 7.8.1 and annex A17): what no router may change.
//!
//! CRC-32 of Ethernet over eight 0xff bytes (in place of the InfiniBand link header), the IP and UDP headers
//! and the BTH with every field that a router may rewrite set to ones, and all the rest as sent. On the wire
//! it is little-endian. The eight bytes leave the raw register at `0xdebb20e3` (Linux rxe starts there too).

use super::{Malformed, bth, ethernet, ipv4, ipv6, udp};
use crate::Qpn;

/// Bytes on the wire.
pub const LEN: usize = 4;

/// The CRC of the eight leading 0xff bytes, as [`crc32fast`] wants it: the complement of the register.
const PREFIX: u32 = !0xdebb_20e3;
const MAX_MASKED: usize = ipv6::LEN + udp::LEN;

/// A CRC that has covered the IP and UDP headers; constant for one flow and one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(u32);

impl Register {
    /// A register that has covered nothing yet, and is that of no flow.
    pub(super) const NOTHING: Self = Self(PREFIX);

    /// Covers the IP and UDP headers at the front of `bytes`, masked.
    ///
    /// Errors when `bytes` starts with neither an IPv4 nor an IPv6 header, or is too short.
    #[inline]
    pub fn after_udp(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let ip_len = match bytes.first().map(|byte| byte >> 4) {
            Some(4) => ipv4::LEN,
            Some(6) => ipv6::LEN,
            Some(_) => return Err(Malformed::IpHeader),
            None => return Err(Malformed::Truncated),
        };
        let len = ip_len + udp::LEN;
        let mut masked = [0; MAX_MASKED];
        masked[..len].copy_from_slice(bytes.get(..len).ok_or(Malformed::Truncated)?);
        mask(&mut masked[..len], ip_len);
        Ok((Self(roci_crc::update_with_ones(PREFIX, &masked[..len], 0)), len))
    }

    /// Covers the transport packet, BTH to pad, and gives the four bytes of the wire.
    ///
    /// `packet` must hold at least a BTH.
    #[inline(always)]
    pub fn finish(self, packet: &[u8]) -> [u8; LEN] {
        let crc = if packet.len() <= roci_crc::MAX {
            roci_crc::update_with_ones(self.0, packet, MASK)
        } else {
            self.after_blocks(packet)
        };
        crc.to_le_bytes()
    }

    /// Covers a transport packet that is longer than [`roci_crc::MAX`]. Where the library does, it is quick with whole blocks alone, so the
    /// front takes what is too much for them: of a packet that is full, no more than the headers.
    #[inline(never)]
    fn after_blocks(self, packet: &[u8]) -> u32 {
        if let Some(crc) = roci_crc::update_long(self.0, packet, MASK) {
            return crc;
        }
        let beyond = packet.len() % BLOCK;
        let front = if beyond > RESERVED { beyond } else { beyond + SMALL_BLOCK };
        update(roci_crc::update_front(self.0, packet, front, MASK), &packet[front..])
    }

    /// The same for a packet in pieces: BTH and extension headers, the payload, and so many zero bytes of pad.
    ///
    /// `headers` must hold at least a BTH and is no longer than headers are.
    #[inline]
    pub fn finish_around(self, headers: &[u8], payload: &[u8], pad: usize) -> [u8; LEN] {
        let mut room = [0; MAX_HEADERS];
        room[..headers.len()].copy_from_slice(headers);
        let register = roci_crc::update_front(self.0, &room, headers.len(), MASK);
        let mut hasher = crc32fast::Hasher::new_with_initial(register);
        hasher.update(payload);
        hasher.update(&[0; 3][..pad]);
        hasher.finalize().to_le_bytes()
    }
}

/// More than BTH and extension headers of any packet take.
const MAX_HEADERS: usize = 64;
/// Bytes that the library folds at once, on any processor; and where it does so with few.
const BLOCK: usize = 256;
const SMALL_BLOCK: usize = 64;
/// Where the BTH has the byte that is masked (`resv8a`, which carries FECN and BECN).
const RESERVED: usize = 4;
/// The same in the packet's first 16 bytes, as a little-endian number.
const MASK: u128 = 0xff << (8 * RESERVED);

/// What stands in an ICRC's place between two peers of this stack that have agreed to leave it out. It names the queue
/// pair a second time, so that a packet whose number is damaged is not taken for another connection's of that kind.
#[inline]
pub const fn omitted(destination: Qpn) -> [u8; LEN] {
    (OMITTED ^ destination.get()).to_be_bytes()
}

/// Whether a transport packet, BTH to ICRC, ends with what stands in an ICRC's place.
#[inline]
pub fn is_omitted(transport: &[u8]) -> bool {
    let named = transport.get(bth::DEST_QPN..).and_then(<[u8]>::first_chunk);
    named.is_some_and(|&[high, middle, low]| {
        transport.ends_with(&omitted(Qpn::new(u32::from_be_bytes([0, high, middle, low]))))
    })
}

/// "noCK", before the queue pair's number goes in.
const OMITTED: u32 = u32::from_be_bytes(*b"noCK");

/// Whether the ICRC at the end of `datagram`, which starts at the IP header and ends with IP's length, is right.
#[inline]
pub fn verify(datagram: &[u8]) -> Result<(), Malformed> {
    let (register, headers) = Register::after_udp(datagram)?;
    let packet = &datagram[headers..];
    if packet.len() < bth::LEN + LEN {
        return Err(Malformed::Truncated);
    }
    let (covered, icrc) = packet.split_at(packet.len() - LEN);
    if register.finish(covered) == icrc { Ok(()) } else { Err(Malformed::Icrc) }
}

/// Whether the ICRC of a whole Ethernet frame is right.
pub fn verify_frame(frame: &[u8]) -> Result<(), Malformed> {
    let (_, rest) = ethernet::Ethernet::parse(frame)?;
    verify(rest)
}

/// Masks an IP header of this length and the UDP header's checksum behind it.
fn mask(headers: &mut [u8], ip_len: usize) {
    if ip_len == ipv4::LEN {
        mask_ipv4(headers);
    } else {
        mask_ipv6(headers);
    }
    headers[ip_len + 6..].fill(0xff);
}

fn mask_ipv4(header: &mut [u8]) {
    header[1] = 0xff; // DSCP and ECN
    header[8] = 0xff; // TTL
    header[10..12].fill(0xff); // header checksum
}

fn mask_ipv6(header: &mut [u8]) {
    header[0] |= 0x0f; // traffic class ...
    header[1..4].fill(0xff); // ... and flow label
    header[7] = 0xff; // hop limit
}

#[inline]
fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_eight_bytes_of_ones() {
        assert_eq!(update(0, &[0xff; 8]), PREFIX);
    }

    /// A congestion notification captured from a ConnectX-4 Lx.
    #[test]
    fn a_hardware_cnp_verifies() {
        let mut datagram = Vec::new();
        datagram.extend([0x45, 0xc2, 0, 60, 0x71, 0x8c, 0x40, 0, 64, 17, 0, 0, 10, 0, 17, 1, 10, 0, 18, 1]);
        datagram.extend([0, 0, 0x12, 0xb7, 0, 40, 0, 0]);
        datagram.extend([0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
        datagram.extend([0; 16]);
        datagram.extend([0x82, 0xfd, 0x00, 0x2a]);
        assert_eq!(verify(&datagram), Ok(()));
    }

    #[test]
    fn short_and_foreign_bytes_are_refused() {
        assert_eq!(verify(&[]), Err(Malformed::Truncated));
        assert_eq!(verify(&[0x45; 27]), Err(Malformed::Truncated));
        assert_eq!(verify(&[0x45; 43]), Err(Malformed::Truncated));
        assert_eq!(verify(&[0x15; 64]), Err(Malformed::IpHeader));
    }
}
