//! What the ICRC of a packet changes by with its place in a train.
//!
//! The kernel counts the identification up within a train, from 0, and the ICRC covers it. Frames above a link have identification 0, so
//! the ICRC changes on the way out, and back on the way in.

use roci_protocol::wire::{bth, icrc, identification};

use crate::link::TRAIN;

/// Packets that the kernel cuts one message into (`UDP_MAX_SEGMENTS` of Linux before 6.8).
pub(super) const SEGMENTS: usize = TRAIN as usize;
/// Bits of a place.
const PLACE_BITS: usize = SEGMENTS.ilog2() as usize;
/// Packet lengths that are remembered.
const REMEMBERED: usize = 4;

/// The changes for packets of the lengths that came last.
pub(super) struct IcrcChanges([OfLength; REMEMBERED]);

#[derive(Clone, Copy)]
struct OfLength {
    datagram_len: usize,
    /// For the places 1, 2, 4, and so on: changes are added as bits are.
    by_bit: [u32; PLACE_BITS],
}

impl IcrcChanges {
    pub(super) const fn new() -> Self {
        Self([OfLength { datagram_len: 0, by_bit: [0; PLACE_BITS] }; REMEMBERED])
    }

    /// Changes the ICRC of a packet, BTH to ICRC, of an IPv4 datagram of this length, at this place in its train: once for the wire, and
    /// again to undo that. What stands in the place of an ICRC that was left out is not changed.
    #[inline]
    pub(super) fn apply(&mut self, datagram_len: usize, place: usize, packet: &mut [u8]) {
        if place == 0 || place >= SEGMENTS || packet.len() < bth::LEN + icrc::LEN || icrc::is_omitted(packet) {
            return;
        }
        let remembered = &mut self.0[datagram_len / 4 % REMEMBERED];
        if remembered.datagram_len != datagram_len {
            *remembered = OfLength::new(datagram_len);
        }
        if let Some(icrc) = packet.last_chunk_mut() {
            *icrc = (u32::from_le_bytes(*icrc) ^ remembered.at(place)).to_le_bytes();
        }
    }
}

impl OfLength {
    fn new(datagram_len: usize) -> Self {
        Self { datagram_len, by_bit: std::array::from_fn(|bit| identification::change(datagram_len, 1 << bit)) }
    }

    #[inline]
    fn at(&self, place: usize) -> u32 {
        let is_set = |bit: usize| 0_u32.wrapping_sub((place >> bit & 1) as u32);
        self.by_bit.iter().enumerate().fold(0, |sum, (bit, change)| sum ^ change & is_set(bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_changes_an_icrc_as_the_identification_does() {
        for len in [64, 1064, 4160] {
            let changes = OfLength::new(len);
            assert!((0..SEGMENTS).all(|place| changes.at(place) == identification::change(len, place as u16)));
        }
    }
}
