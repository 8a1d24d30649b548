//! CRC-32 of Ethernet over a packet whose header has bits that count as ones.
//!
//! A packet of 8 to 256 bytes is covered in one fold of 16 bytes a step (Gopal et al., *Fast CRC Computation for Generic
//! Polynomials Using PCLMULQDQ Instruction*, Intel 2009), without a copy and without a tail: the register that the packet
//! begins with is XORed into its first four bytes, and from there on it is zero, so zeros in front of the packet do not count.
//! Where the processor has no carry-less multiplication, [`crc32fast`] covers it. A longer packet is covered in steps of 64 bytes where the
//! processor multiplies vectors of that length ([`update_long`]).
//!
//! It is a crate of its own because folds are the only unsafe calls that the wire formats need.

#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // functions that ask for processor features
mod fold;
pub mod polynomial;
#[cfg(target_arch = "x86_64")]
mod processor;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // functions that ask for processor features
mod wide;

/// The longest packet that [`update_with_ones`] covers.
pub const MAX: usize = 256;

/// Bytes of a packet's front in which bits may count as ones.
pub const FRONT: usize = 16;

/// Continues `crc` over `bytes`, of which the bits that are set in `ones` count as set. As with [`crc32fast`], `crc` is the
/// finished CRC of what stands before.
///
/// # Panics
/// When there are more than [`MAX`] bytes.
#[inline(always)]
pub fn update_with_ones(crc: u32, bytes: &[u8], ones: u128) -> u32 {
    update_front(crc, bytes, bytes.len(), ones)
}

/// The same over the first `len` of `bytes`. Where those are few, it is quicker if others stand behind them.
///
/// # Panics
/// When they are more than there are, or than [`MAX`].
#[inline(always)]
pub fn update_front(crc: u32, bytes: &[u8], len: usize, ones: u128) -> u32 {
    assert!(len <= MAX, "{len} bytes are more than a short packet has");
    #[cfg(target_arch = "x86_64")]
    if let Some(folded) = fold::update(crc, bytes, len, ones) {
        return folded;
    }
    update_a_copy(crc, &bytes[..len], ones)
}

/// The same over more bytes than that; `None` where the processor has no wide vectors to multiply, or where they are few, or no whole
/// words of four bytes.
#[inline]
pub fn update_long(crc: u32, bytes: &[u8], ones: u128) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    return wide::update(crc, bytes, ones);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (crc, bytes, ones);
        None
    }
}

/// The same by the library, for any processor and any length.
#[cold]
fn update_a_copy(crc: u32, bytes: &[u8], ones: u128) -> u32 {
    let mut copy = [0; MAX];
    let copy = &mut copy[..bytes.len()];
    copy.copy_from_slice(bytes);
    copy.iter_mut().zip(ones.to_le_bytes()).for_each(|(byte, ones)| *byte |= ones);
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(copy);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_packet_changes_nothing() {
        assert_eq!(update_with_ones(0x1234_5678, &[], u128::MAX), 0x1234_5678);
    }

    #[test]
    fn the_check_value_of_the_polynomial_comes_out() {
        assert_eq!(update_with_ones(0, b"123456789", 0), 0xcbf4_3926);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn whole_words_are_folded_where_the_processor_can() {
        let can = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1");
        let is_folded = |room: usize, len| fold::update(0, &[0; MAX][..room], len, 0).is_some();
        let alone: Vec<_> = (0..=MAX).filter(|&len| is_folded(len, len)).collect();
        assert!(!can || alone.into_iter().eq((FRONT..=MAX).step_by(4)));
        let with_others: Vec<_> = (0..=MAX).filter(|&len| is_folded(MAX, len)).collect();
        assert!(!can || with_others.into_iter().eq((4..=MAX).step_by(4)));
    }

    /// The library's CRC, with bits of the front that count as ones.
    fn by_the_library(crc: u32, bytes: &[u8], ones: u128) -> u32 {
        let (front, rest) = bytes.split_at(FRONT);
        let mut hasher = crc32fast::Hasher::new_with_initial(update_a_copy(crc, front, ones));
        hasher.update(rest);
        hasher.finalize()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn long_packets_are_folded_where_the_processor_has_wide_vectors() {
        let can = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq");
        let is_folded = |len: usize| update_long(0, &[0; 2048][..len], 0).is_some();
        let folded: Vec<_> = (0..=2048).filter(|&len| is_folded(len)).collect();
        assert!(if can { folded.into_iter().eq((wide::LEAST..=2048).step_by(4)) } else { folded.is_empty() });
    }

    proptest! {
        #[test]
        fn the_wide_fold_is_the_librarys_crc_at_every_length(crc: u32, bytes in prop::array::uniform32(any::<u8>()), ones: u128) {
            const LONGEST: usize = 9236;
            let long: Vec<u8> = bytes.iter().cycle().enumerate().map(|(at, byte)| byte ^ (at ^ at >> 8) as u8).take(LONGEST).collect();
            // All that differ by a block, by a group of blocks, and packets of every MTU.
            for len in (512..1100).step_by(4).chain([2076, 4108, 4112, 8204, 8220, LONGEST - 64]) {
                // At any alignment.
                let bytes = &long[len / 4 % 64..][..len];
                if let Some(folded) = update_long(crc, bytes, ones) {
                    prop_assert_eq!(folded, by_the_library(crc, bytes, ones), "{} bytes", len);
                }
            }
        }

        #[test]
        fn the_fold_is_the_librarys_crc_at_every_length(crc: u32, bytes in prop::array::uniform32(any::<u8>()), ones: u128) {
            let long: Vec<u8> = bytes.iter().cycle().enumerate().map(|(at, byte)| byte ^ at as u8).take(MAX).collect();
            for len in 0..=MAX {
                for ones in [0, 0xff << 32, ones] {
                    let bytes = &long[..len];
                    let expected = update_a_copy(crc, bytes, ones);
                    prop_assert_eq!(update_with_ones(crc, bytes, ones), expected, "{} bytes", len);
                    prop_assert_eq!(update_front(crc, &long, len, ones), expected, "{} bytes, and others", len);
                }
            }
        }
    }
}
