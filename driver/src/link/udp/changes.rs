//! What the ICRC of a packet changes by with its place in a train.
//!
//! The kernel counts the identification up within a train, and the ICRC covers it. It begins with 0, but where the socket is
//! connected. Frames above a link have identification 0, so the ICRC changes on the way out, and back on the way in.

use roci_protocol::wire::identification::Changer;
use roci_protocol::wire::{bth, icrc, ipv4, udp};

use crate::link::TRAIN;

/// Packets that the kernel cuts one message into (`UDP_MAX_SEGMENTS` of Linux before 6.8).
pub(super) const SEGMENTS: usize = TRAIN as usize;
/// Packet lengths that are remembered.
const REMEMBERED: usize = 4;

/// The changes for packets of the lengths that came last.
pub(super) struct IcrcChanges([OfLength; REMEMBERED]);

#[derive(Clone, Copy)]
struct OfLength {
    datagram_len: usize,
    changer: Option<Changer>,
}

impl IcrcChanges {
    pub(super) const fn new() -> Self {
        Self([OfLength { datagram_len: 0, changer: None }; REMEMBERED])
    }

    /// Changes the ICRC of a packet, BTH to ICRC, of an IPv4 datagram of this length, at this place in its train: once for the wire, and
    /// again to undo that. What stands in the place of an ICRC that was left out is not changed.
    #[inline]
    pub(super) fn apply(&mut self, datagram_len: usize, place: usize, packet: &mut [u8]) {
        if place < SEGMENTS {
            self.change(datagram_len, place as u16, packet);
        }
    }

    /// Changes the ICRCs of a train, of which each is right for its packet's place, so that they are right where the first packet has this
    /// identification; and again to undo that. `packets` are those of IPv4, each of `segment` bytes but the last.
    #[inline]
    pub(super) fn move_on(&mut self, identification: u16, segment: usize, packets: &mut [u8]) {
        for (place, packet) in packets.chunks_mut(segment.max(1)).enumerate() {
            let place = place as u16;
            // Changes are added as bits are.
            let difference = identification.wrapping_add(place) ^ place;
            self.change(ipv4::LEN + udp::LEN + packet.len(), difference, packet);
        }
    }

    /// Changes the ICRC of a packet as its identification changes in these bits.
    #[inline]
    fn change(&mut self, datagram_len: usize, bits: u16, packet: &mut [u8]) {
        if bits == 0 || packet.len() < bth::LEN + icrc::LEN || icrc::is_omitted(packet) {
            return;
        }
        let changer = self.changer(datagram_len);
        if let Some(icrc) = packet.last_chunk_mut() {
            *icrc = (u32::from_le_bytes(*icrc) ^ changer.change(bits)).to_le_bytes();
        }
    }

    #[inline]
    fn changer(&mut self, datagram_len: usize) -> Changer {
        let remembered = &mut self.0[datagram_len / 4 % REMEMBERED];
        match remembered.changer {
            Some(changer) if remembered.datagram_len == datagram_len => changer,
            _ => {
                let changer = Changer::of(datagram_len);
                *remembered = OfLength { datagram_len, changer: Some(changer) };
                changer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use roci_protocol::wire::identification;

    use super::*;

    /// Packets of BTH, payload and ICRC, all as long as the first but the last, whose ICRCs are changed as for these identifications.
    fn train(lens: &[usize], id: impl Fn(usize) -> u16) -> Vec<u8> {
        let mut train = Vec::new();
        for (place, &len) in lens.iter().enumerate() {
            let icrc = 0x1234_5678 ^ identification::change(ipv4::LEN + udp::LEN + len, id(place));
            train.extend(std::iter::repeat_n(place as u8, len - icrc::LEN));
            train.extend(icrc.to_le_bytes());
        }
        train
    }

    #[test]
    fn a_place_changes_an_icrc_as_the_identification_does() {
        let mut changes = IcrcChanges::new();
        for len in [16, 36, 1036, 4132] {
            for place in 0..SEGMENTS {
                let mut packet = train(&[len], |_| 0);
                changes.apply(ipv4::LEN + udp::LEN + len, place, &mut packet);
                assert_eq!(packet, train(&[len], |_| place as u16));
                changes.apply(ipv4::LEN + udp::LEN + len, place, &mut packet);
                assert_eq!(packet, train(&[len], |_| 0));
            }
        }
    }

    #[test]
    fn a_train_moves_on_to_any_identification_and_back() {
        let mut changes = IcrcChanges::new();
        for lens in [&[64][..], &[64, 64, 64, 20], &[1040; SEGMENTS]] {
            for first in [0, 1, 63, 64, 40_000, u16::MAX - 3] {
                let by_place = train(lens, |place| place as u16);
                let mut bytes = by_place.clone();
                changes.move_on(first, lens[0], &mut bytes);
                assert_eq!(bytes, train(lens, |place| first.wrapping_add(place as u16)));
                changes.move_on(first, lens[0], &mut bytes);
                assert_eq!(bytes, by_place);
            }
        }
    }

    #[test]
    fn what_stands_in_the_place_of_an_icrc_stays() {
        let mut packet = vec![0; 40];
        packet[36..].copy_from_slice(&icrc::omitted(roci_protocol::Qpn::new(0)));
        let before = packet.clone();
        IcrcChanges::new().move_on(9, 40, &mut packet);
        assert_eq!(packet, before);
        let mut short = vec![0; 15];
        IcrcChanges::new().move_on(9, 15, &mut short);
        assert_eq!(short, [0; 15]);
    }
}
