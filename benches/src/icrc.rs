//! A payload, its place in a packet, and the ICRC over both: the ways to copy and to cover.
//!
//! The stack copies a packet's payload whole and covers it afterwards, while it is in the first cache (`Flow::emit`),
//! or covers it where it lies and copies nothing (`Flow::emit_around`). Copying and covering by turns, a block at a
//! time, is here alone, to see what it would buy.

use crc32fast::Hasher;
use roci_protocol::wire::icrc::{LEN, Register};
use roci_protocol::wire::{Frame, bth, ipv4, udp};

use crate::wire::OneFrame;

/// What is copied and covered at once, where that goes by turns: far less than the first cache, and far more than the
/// CRC takes to start.
const BLOCK: usize = 512;

/// A payload and a packet for it, of an IPv4 flow.
#[derive(Debug)]
pub struct IcrcPayload {
    /// Has covered the headers below the packet.
    register: Register,
    /// The same for [`IcrcPayload::copy_by_blocks`]: a register does not show its state.
    below: u32,
    base: [u8; bth::LEN],
    packet: Vec<u8>,
    bytes: Vec<u8>,
}

impl IcrcPayload {
    /// So many bytes, a multiple of four: nothing is padded.
    pub fn new(len: usize) -> Self {
        assert!(len.is_multiple_of(4), "{len} bytes need a pad");
        let whole = OneFrame::new(len);
        let frame = Frame::parse(whole.bytes()).expect("a frame of ours");
        let (register, _) = Register::after_udp(frame.datagram).expect("a datagram of ours");
        let mut packet = frame.transport()[..bth::LEN + len].to_vec();
        let base = *packet.first_chunk().expect("it has a BTH");
        packet[bth::LEN..].fill(0);
        Self { register, below: below(frame.datagram), base, packet, bytes: frame.packet.payload.to_vec() }
    }

    /// The floor: nothing is covered.
    #[inline]
    pub fn copy(&mut self) {
        self.packet[bth::LEN..].copy_from_slice(&self.bytes);
    }

    /// Copies, and covers the copy in a second pass, as `Flow::emit` does.
    #[inline]
    pub fn copy_then_cover(&mut self) -> [u8; LEN] {
        self.copy();
        self.register.finish(&self.packet)
    }

    /// Copies and covers by turns. What is covered is the copy: the payload may change meanwhile.
    #[inline]
    pub fn copy_by_blocks(&mut self) -> [u8; LEN] {
        let mut hasher = Hasher::new_with_initial(self.below);
        let mut base = self.base;
        base[RESERVED] = 0xff;
        hasher.update(&base);
        let room = self.packet[bth::LEN..].chunks_mut(BLOCK);
        for (into, from) in room.zip(self.bytes.chunks(BLOCK)) {
            into.copy_from_slice(from);
            hasher.update(into);
        }
        hasher.finalize().to_le_bytes()
    }

    /// Covers the payload where it is, as `Flow::emit_around` does.
    #[inline]
    pub fn cover_in_place(&self) -> [u8; LEN] {
        self.register.finish_around(&self.base, &self.bytes, 0)
    }
}

/// Where the BTH has the byte that is masked.
const RESERVED: usize = 4;
/// Where the IPv4 and UDP headers have theirs: DSCP and ECN, TTL, and both checksums.
const MASKED: [usize; 6] = [1, 8, 10, 11, ipv4::LEN + 6, ipv4::LEN + 7];
/// Ones in place of the link header.
const LINK: usize = 8;

/// The CRC of all below the packet.
fn below(datagram: &[u8]) -> u32 {
    let mut masked = [0xff; LINK + ipv4::LEN + udp::LEN];
    let headers = &mut masked[LINK..];
    headers.copy_from_slice(&datagram[..ipv4::LEN + udp::LEN]);
    for at in MASKED {
        headers[at] = 0xff;
    }
    crc32fast::hash(&masked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leads_to_the_frames_icrc() {
        for len in [64, 508, 512, 1024, 4096, 8192] {
            let frame = OneFrame::new(len);
            let due = frame.bytes().last_chunk::<LEN>().expect("it ends with an ICRC");
            let mut payload = IcrcPayload::new(len);
            assert_eq!(payload.cover_in_place(), *due, "length {len}");
            for way in [IcrcPayload::copy_then_cover, IcrcPayload::copy_by_blocks] {
                payload.packet[bth::LEN..].fill(0);
                assert_eq!(way(&mut payload), *due, "length {len}");
                assert_eq!(payload.packet[bth::LEN..], payload.bytes);
            }
        }
    }
}
