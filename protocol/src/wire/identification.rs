//! The IPv4 identification as the ICRC sees it.
//!
//! The ICRC covers the identification, and a UDP socket neither shows it nor lets a sender choose it. Linux writes 0 where
//! fragmentation is forbidden and the socket is not connected, and counts up from there in the packets of one GSO send. From a
//! connected socket it counts up with every send. A CRC is affine: what an identification changes in it depends on the packet's length
//! alone. So a sender corrects an ICRC that was computed over identification 0 ([`change`]), and a receiver finds out which
//! identification, if any, makes an ICRC right ([`find`], [`Finder`]). Of 65,536 damaged packets, 65,535 are still refused by that.

use roci_crc::polynomial::{ONE, POLYNOMIAL, product, product_by_bits};

use super::icrc::{self, Register};
use super::{Malformed, bth, ipv4};

/// Where the header has it.
const AT: usize = 4;
/// Lengths in bits fit in so many bits: those of packets of 64 KiB do.
const LENGTH_BITS: usize = 20;
/// x to the power 1 and -1.
const X: u32 = ONE >> 1;
const X_INVERSE: u32 = (ONE ^ POLYNOMIAL) << 1 | 1;
/// x to the powers 2^0, 2^1, ..., and to -2^0, -2^1, ...
const POWERS: [u32; LENGTH_BITS] = squares_of(X);
const INVERSE_POWERS: [u32; LENGTH_BITS] = squares_of(X_INVERSE);

/// Returns what the ICRC of an IPv4 packet of this length, from the IP header to the ICRC, is to be XORed with as the identification
/// changes from 0 to `id`.
pub fn change(datagram_len: usize, id: u16) -> u32 {
    Changer::of(datagram_len).change(id)
}

/// What identifications change in the ICRCs of packets of one length ([`change`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changer(u32);

impl Changer {
    /// For IPv4 packets of this length, from the IP header to the ICRC.
    pub fn of(datagram_len: usize) -> Self {
        Self(power(bits_behind(datagram_len), &POWERS))
    }

    /// Returns what the ICRC is to be XORed with as the identification changes from 0 to `id`.
    #[inline]
    pub fn change(self, id: u16) -> u32 {
        let [high, low] = id.to_be_bytes();
        product(u32::from_le_bytes([high, low, 0, 0]), self.0)
    }
}

/// Finds the identifications that ICRCs of packets of one length were made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finder(u32);

impl Finder {
    /// Finds none but the one that a packet shows.
    pub const NONE: Self = Self(0);

    /// For IPv4 packets of this length, from the IP header to the ICRC.
    pub fn of(datagram_len: usize) -> Self {
        Self(power(bits_behind(datagram_len), &INVERSE_POWERS))
    }

    /// Returns the identification that changes an ICRC by `difference`, where one does, XORed with the one that the packet shows.
    #[inline]
    pub fn find(self, difference: u32) -> Option<u16> {
        match product(difference, self.0).to_le_bytes() {
            [high, low, 0, 0] if self != Self::NONE => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }
}

/// Returns the identification with which the ICRC at the end of an IPv4 datagram is right, whatever its header says.
///
/// # Errors
/// There is none, or this is no IPv4 datagram.
pub fn find(datagram: &[u8]) -> Result<u16, Malformed> {
    if datagram.first().is_some_and(|byte| byte >> 4 != 4) {
        return Err(Malformed::Icrc);
    }
    let (register, headers) = Register::after_udp(datagram)?;
    let packet = &datagram[headers..];
    let (covered, &icrc) = packet.split_last_chunk::<{ icrc::LEN }>().ok_or(Malformed::Truncated)?;
    if covered.len() < bth::LEN {
        return Err(Malformed::Truncated);
    }
    let difference = u32::from_le_bytes(register.finish(covered)) ^ u32::from_le_bytes(icrc);
    let found = Finder::of(datagram.len()).find(difference).ok_or(Malformed::Icrc)?;
    Ok(found ^ u16::from_be_bytes([datagram[AT], datagram[AT + 1]]))
}

/// Covered bits from the identification on.
const fn bits_behind(datagram_len: usize) -> usize {
    debug_assert!(datagram_len >= ipv4::LEN);
    (datagram_len - icrc::LEN - AT) * 8
}

/// x to the power `exponent`, or to the power `-exponent`, as `powers` has it.
fn power(exponent: usize, powers: &[u32; LENGTH_BITS]) -> u32 {
    let is_set = |&(bit, _): &(usize, &u32)| exponent >> bit & 1 != 0;
    powers.iter().enumerate().filter(is_set).fold(ONE, |sum, (_, &power)| product(sum, power))
}

const fn squares_of(base: u32) -> [u32; LENGTH_BITS] {
    let mut powers = [base; LENGTH_BITS];
    let mut at = 1;
    while at < LENGTH_BITS {
        powers[at] = product_by_bits(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Bth, Flow, Headers, Ip, MacAddr, Opcode, ethernet};
    use crate::{Psn, Qpn};

    /// A datagram with identification 0.
    fn datagram(payload: &[u8]) -> Vec<u8> {
        let ip = Ip::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("one version");
        let mut flow = Flow::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), None, ip, 0xc000);
        let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(1)));
        let mut bytes = vec![0; flow.frame_len(&headers, payload.len())];
        flow.emit(&mut bytes, &headers, payload.len(), |filled| filled.copy_from_slice(payload));
        bytes.split_off(ethernet::LEN)
    }

    fn set_id(datagram: &mut [u8], id: u16) {
        datagram[AT..AT + 2].copy_from_slice(&id.to_be_bytes());
    }

    fn add(datagram: &mut [u8], change: u32) {
        let end = datagram.len();
        let icrc = datagram.last_chunk_mut::<4>().expect("there is one");
        *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
        assert_eq!(datagram.len(), end);
    }

    proptest! {
        #[test]
        fn an_icrc_is_corrected_for_any_identification_and_gives_it_away(payload in prop::collection::vec(any::<u8>(), 0..5000), id: u16, shown: u16) {
            let mut datagram = datagram(&payload);
            let len = datagram.len();
            add(&mut datagram, change(len, id));
            set_id(&mut datagram, id);
            prop_assert_eq!(icrc::verify(&datagram), Ok(()));
            // A socket does not show it.
            set_id(&mut datagram, shown);
            prop_assert_eq!(find(&datagram), Ok(id));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = find(&bytes);
        }
    }

    /// One of 65,536 damages is as an identification would be. Those of up to 32 bits in a row that leave the identification alone
    /// never are.
    #[test]
    fn a_damaged_packet_has_no_identification() {
        let good = datagram(&[7; 600]);
        assert_eq!(find(&good), Ok(0));
        let mut found = 0;
        for bit in 160..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            found += usize::from(find(&bad).is_ok());
        }
        // The UDP checksum, and the BTH's byte that no ICRC covers.
        assert_eq!(found, 16 + 8);
    }

    #[test]
    fn about_one_of_65536_random_damages_is_not_seen() {
        let good = datagram(&[7; 64]);
        let seen = (0..300_000_u32).filter(|&number| {
            let mut bad = good.clone();
            add(&mut bad, number.wrapping_mul(0x9e37_79b9) | 1);
            find(&bad).is_err()
        });
        let missed = 300_000 - seen.count();
        assert!(missed < 20, "{missed} of 300000, and 5 are expected");
    }

    #[test]
    fn what_is_no_ipv4_datagram_has_none() {
        assert_eq!(find(&[]), Err(Malformed::Truncated));
        assert_eq!(find(&[0x45; 43]), Err(Malformed::Truncated));
        assert_eq!(find(&[0x60; 90]), Err(Malformed::Icrc));
    }
}
