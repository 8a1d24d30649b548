//! The fold of long packets, in steps of 64 bytes, for processors that multiply four pairs of words at once.
//!
//! Four sums take a block each by turns, so that none waits for its product. In front of them go zeros, which do not count, until
//! what is left is whole blocks.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32,
    _mm512_loadu_si512, _mm512_maskz_broadcast_i32x4, _mm512_maskz_loadu_epi64, _mm512_or_si512,
    _mm512_ternarylogic_epi64,
};

use super::fold::{self, BY_A_STEP, BY_THREE_STEPS, BY_TWO_STEPS, Powers, STEP, by_steps, moved_on, pair, reduced};
use super::processor::Feature;

/// Bytes of a block, and steps of it.
const BLOCK: usize = 64;
const STEPS: usize = BLOCK / STEP;
/// Sums that take turns.
const SUMS: usize = 4;
/// What moves the polynomial of a block on by so many blocks.
const BY_A_BLOCK: Powers = by_steps(STEPS as u32);
const BY_TWO: Powers = by_steps(2 * STEPS as u32);
const BY_THREE: Powers = by_steps(3 * STEPS as u32);
const BY_FOUR: Powers = by_steps(4 * STEPS as u32);
/// The fewest bytes that this is quicker for.
pub(super) const LEAST: usize = 2 * SUMS * BLOCK;

/// Continues `crc` over `bytes`; `None` where the processor cannot, or where they are few, or no whole words of four bytes.
#[inline]
pub(super) fn update(crc: u32, bytes: &[u8], ones: u128) -> Option<u32> {
    static CAN: Feature = Feature::new();
    let is_fit = bytes.len() >= LEAST && bytes.len().is_multiple_of(4);
    let has_all =
        || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq") && fold::is_possible();
    if !is_fit || !CAN.is_there(has_all) {
        return None;
    }
    // SAFETY: the processor has what the function is compiled for.
    Some(!unsafe { fold(!crc, bytes, ones) })
}

/// The register behind `bytes`: whole words, of at least [`LEAST`] bytes.
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.1")]
fn fold(register: u32, bytes: &[u8], ones: u128) -> u32 {
    let (sum, steps) = fold::begun(register, bytes, bytes.len(), ones);
    let (front, blocks) = steps.split_at(steps.len() % STEPS);
    let (blocks, _) = blocks.as_chunks::<STEPS>();
    let (first, blocks) = blocks.split_first_chunk::<{ SUMS - 1 }>().expect("there are twice as many at least");
    let mut sums = [begun(sum, front), load(&first[0]), load(&first[1]), load(&first[2])];
    let (groups, rest) = blocks.as_chunks::<SUMS>();
    for group in groups {
        for (sum, block) in sums.iter_mut().zip(group) {
            *sum = followed_by(*sum, BY_FOUR, load(block));
        }
    }
    let [one, two, three, four] = sums;
    let mut sum = followed_by(one, BY_THREE, followed_by(two, BY_TWO, followed_by(three, BY_A_BLOCK, four)));
    for block in rest {
        sum = followed_by(sum, BY_A_BLOCK, load(block));
    }
    reduced(in_one_step(sum))
}

/// A block that ends with a sum and the steps behind it, of which there are too few for one of their own.
#[inline]
#[target_feature(enable = "avx512f")]
fn begun(sum: __m128i, front: &[[u8; STEP]]) -> __m512i {
    let before = STEPS - front.len();
    // Words of 8 bytes for the one, of 4 for the other.
    let (of_front, of_sum) = (0xff << (2 * before), 0xf << (4 * (before - 1)));
    let start = front.as_ptr().wrapping_sub(before);
    // SAFETY: of the block that begins `before` steps in front of them the steps of `front` alone are read: the others are masked out.
    let front = unsafe { _mm512_maskz_loadu_epi64(of_front as u8, start.cast()) };
    _mm512_or_si512(front, _mm512_maskz_broadcast_i32x4(of_sum as u16, sum))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[[u8; STEP]; STEPS]) -> __m512i {
    // SAFETY: 64 bytes are read, which a block has; they need not be aligned.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

/// A polynomial that is moved on by as many blocks as the powers say, and another one.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.1")]
fn followed_by(sum: __m512i, by: Powers, other: __m512i) -> __m512i {
    const XOR: i32 = 0x96;
    let by = _mm512_broadcast_i32x4(pair(by));
    let (low, high) = (_mm512_clmulepi64_epi128::<0x00>(sum, by), _mm512_clmulepi64_epi128::<0x11>(sum, by));
    _mm512_ternarylogic_epi64::<XOR>(low, high, other)
}

/// The sum of a block's four steps, as one.
#[inline]
#[target_feature(enable = "avx512f,pclmulqdq,sse4.1")]
fn in_one_step(sum: __m512i) -> __m128i {
    let one = moved_on(_mm512_extracti32x4_epi32::<0>(sum), BY_THREE_STEPS);
    let two = moved_on(_mm512_extracti32x4_epi32::<1>(sum), BY_TWO_STEPS);
    let three = moved_on(_mm512_extracti32x4_epi32::<2>(sum), BY_A_STEP);
    _mm_xor_si128(_mm_xor_si128(one, two), _mm_xor_si128(three, _mm512_extracti32x4_epi32::<3>(sum)))
}
