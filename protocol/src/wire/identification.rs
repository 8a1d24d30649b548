//! The IPv4 identification as the ICRC sees it.
//!
//! The ICRC covers the identification, and a UDP socket neither shows it nor lets a sender choose it. Linux writes 0 where
//! fragmentation is forbidden and the socket is not connected, and counts up from there in the packets of one GSO send. A CRC is
//! affine: what an identification changes in it depends on the packet's length alone. So a sender corrects an ICRC that was computed
//! over identification 0 ([`change`]), and a receiver finds out which identification, if any, makes an ICRC right ([`find`]). Of
//! 65,536 damaged packets, 65,535 are still refused by that.

use super::icrc::{self, Register};
use super::{Malformed, bth, ipv4};

/// Where the header has it.
const AT: usize = 4;
/// Lengths in bits fit in so many bits: those of packets of 64 KiB do.
const LENGTH_BITS: usize = 20;
/// The polynomial of Ethernet's CRC-32, the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// x to the power 0, 1 and -1.
const ONE: u32 = 1 << 31;
const X: u32 = 1 << 30;
const X_INVERSE: u32 = (ONE ^ POLYNOMIAL) << 1 | 1;
/// x to the powers 2^0, 2^1, ..., and to -2^0, -2^1, ...
const POWERS: [u32; LENGTH_BITS] = squares_of(X);
const INVERSE_POWERS: [u32; LENGTH_BITS] = squares_of(X_INVERSE);

/// Returns what the ICRC of an IPv4 packet of this length, from the IP header to the ICRC, is to be XORed with as the identification
/// changes from 0 to `id`.
pub fn change(datagram_len: usize, id: u16) -> u32 {
    let [high, low] = id.to_be_bytes();
    times_power(u32::from_le_bytes([high, low, 0, 0]), bits_behind(datagram_len), &POWERS)
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
    let wrong = u32::from_le_bytes(register.finish(covered)) ^ u32::from_le_bytes(icrc);
    let [high, low, 0, 0] = times_power(wrong, bits_behind(datagram.len()), &INVERSE_POWERS).to_le_bytes() else {
        return Err(Malformed::Icrc);
    };
    let in_header = u16::from_be_bytes([datagram[AT], datagram[AT + 1]]);
    Ok(u16::from_be_bytes([high, low]) ^ in_header)
}

/// Covered bits from the identification on.
const fn bits_behind(datagram_len: usize) -> usize {
    debug_assert!(datagram_len >= ipv4::LEN);
    (datagram_len - icrc::LEN - AT) * 8
}

/// `value` times x to the power `exponent`, or to the power `-exponent`, as `powers` has it.
fn times_power(value: u32, exponent: usize, powers: &[u32; LENGTH_BITS]) -> u32 {
    let is_set = |&(bit, _): &(usize, &u32)| exponent >> bit & 1 != 0;
    powers.iter().enumerate().filter(is_set).fold(value, |product, (_, &power)| times(product, power))
}

/// The product of two polynomials, modulo that of the CRC.
const fn times(one: u32, mut other: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if one & bit != 0 {
            product ^= other;
        }
        bit >>= 1;
        other = if other & 1 == 0 { other >> 1 } else { other >> 1 ^ POLYNOMIAL };
    }
    product
}

const fn squares_of(base: u32) -> [u32; LENGTH_BITS] {
    let mut powers = [base; LENGTH_BITS];
    let mut at = 1;
    while at < LENGTH_BITS {
        powers[at] = times(powers[at - 1], powers[at - 1]);
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
