//! The fold itself, for processors that multiply without carries.

use super::FRONT;
use super::polynomial::{ONE, times_x};
use super::processor::Feature;
use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_extract_epi32, _mm_loadu_si128, _mm_or_si128,
    _mm_set_epi64x, _mm_setr_epi32, _mm_shuffle_epi8, _mm_srli_si128, _mm_xor_si128,
};

/// Bytes of a step.
pub(super) const STEP: usize = 16;
/// What moves the polynomial of a step on by so many steps.
pub(super) const BY_A_STEP: Powers = by_steps(1);
pub(super) const BY_TWO_STEPS: Powers = by_steps(2);
pub(super) const BY_THREE_STEPS: Powers = by_steps(3);
const BY_FOUR_STEPS: Powers = by_steps(4);
/// x^64 modulo the polynomial, reflected.
const BY_A_WORD: i64 = power_of_x(64);
/// The polynomial and the quotient of x^64 by it (Barrett), reflected.
const BARRETT: [i64; 2] = [0x0001_db71_0641, 0x0001_f701_1641];

/// Two powers of x modulo the polynomial, reflected: for the low and the high half of a step.
pub(super) type Powers = [i64; 2];

pub(super) const fn by_steps(count: u32) -> Powers {
    let bits = count * 128;
    [power_of_x(bits + 32), power_of_x(bits - 32)]
}

/// A power of x modulo the polynomial, reflected.
const fn power_of_x(exponent: u32) -> i64 {
    let mut power = ONE;
    let mut at = 0;
    while at < exponent {
        power = times_x(power);
        at += 1;
    }
    (power as i64) << 1
}

/// Continues `crc` over the first `len` of `bytes`; `None` where the processor cannot, where they are no whole words of four bytes
/// or none, or where `bytes` are fewer than [`FRONT`].
#[inline(always)]
pub(super) fn update(crc: u32, bytes: &[u8], len: usize, ones: u128) -> Option<u32> {
    let is_fit = bytes.len() >= FRONT && len > 0 && len.is_multiple_of(4);
    if !is_fit || !is_possible() {
        return None;
    }
    // SAFETY: the processor has what the function is compiled for.
    Some(!unsafe { fold(!crc, bytes, len, ones) })
}

/// The product of two polynomials; `None` where the processor cannot.
#[inline]
pub(super) fn product(one: u32, other: u32) -> Option<u32> {
    // SAFETY: the processor has what the function is compiled for.
    is_possible().then(|| unsafe { multiplied(one, other) })
}

/// Whether the processor has what [`fold`] is compiled for.
#[inline]
pub(super) fn is_possible() -> bool {
    static CAN: Feature = Feature::new();
    CAN.is_there(|| is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1"))
}

/// Indices for a shuffle that moves bytes: those from `16 - n` on move them up by `n`, those from `16 + n` on move them down
/// by `n`. An index with its highest bit set makes a zero.
static MOVES: [u8; 3 * STEP] = {
    let mut moves = [0x80; 3 * STEP];
    let mut at = 0;
    while at < STEP {
        moves[STEP + at] = at as u8;
        at += 1;
    }
    moves
};

/// The register behind the first `len` of `bytes`: whole words, of at least [`FRONT`] bytes.
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn fold(register: u32, bytes: &[u8], len: usize, ones: u128) -> u32 {
    let (mut sum, steps) = begun(register, bytes, len, ones);
    // Steps are moved on all at once, and not one after the other: the sum waits for one product, and not for one of each.
    let (groups, rest) = steps.as_chunks::<4>();
    for [one, two, three, four] in groups {
        let early = _mm_xor_si128(moved_on(load(one), BY_THREE_STEPS), moved_on(load(two), BY_TWO_STEPS));
        let late = _mm_xor_si128(moved_on(load(three), BY_A_STEP), load(four));
        sum = _mm_xor_si128(moved_on(sum, BY_FOUR_STEPS), _mm_xor_si128(early, late));
    }
    reduced(match rest {
        [one, two, three] => {
            let early = _mm_xor_si128(moved_on(load(one), BY_TWO_STEPS), moved_on(load(two), BY_A_STEP));
            _mm_xor_si128(moved_on(sum, BY_THREE_STEPS), _mm_xor_si128(early, load(three)))
        }
        [one, two] => {
            let late = _mm_xor_si128(moved_on(load(one), BY_A_STEP), load(two));
            _mm_xor_si128(moved_on(sum, BY_TWO_STEPS), late)
        }
        [one] => _mm_xor_si128(moved_on(sum, BY_A_STEP), load(one)),
        _ => sum,
    })
}

/// The sum behind the first two of the steps that `len` of `bytes` are, or the first where there is one, and those that follow.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
pub(super) fn begun(register: u32, bytes: &[u8], len: usize, ones: u128) -> (__m128i, &[[u8; STEP]]) {
    // The first step has what is too much for whole steps, at its end: zeros in front of it do not count.
    let first = (len - 1) % STEP + 1;
    let ones = load(&ones.to_le_bytes());
    let front = _mm_or_si128(load(bytes), ones);
    let front = _mm_xor_si128(front, _mm_cvtsi32_si128(register.cast_signed()));
    let sum = _mm_shuffle_epi8(front, load(&MOVES[first..]));
    let (steps, _) = bytes[first..len].as_chunks::<STEP>();
    let Some((second, steps)) = steps.split_first() else { return (sum, &[]) };
    let ones = _mm_shuffle_epi8(ones, load(&MOVES[STEP + first..]));
    (_mm_xor_si128(moved_on(sum, BY_A_STEP), _mm_or_si128(load(second), ones)), steps)
}

/// The product of two polynomials.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn multiplied(one: u32, other: u32) -> u32 {
    // Reflected, a product of two words ends one bit before the end of two.
    let other = _mm_set_epi64x(0, i64::from(other) << 1);
    remainder(_mm_clmulepi64_si128::<0x00>(_mm_cvtsi32_si128(one.cast_signed()), other))
}

/// The first 16 of `bytes`.
#[inline]
#[target_feature(enable = "sse4.1")]
fn load(bytes: &[u8]) -> __m128i {
    let bytes: &[u8; STEP] = bytes.first_chunk().expect("a whole step");
    // SAFETY: 16 bytes are read, which `bytes` has; they need not be aligned.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// A polynomial with as many steps behind it as the powers say.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
pub(super) fn moved_on(sum: __m128i, by: Powers) -> __m128i {
    let by = pair(by);
    _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(sum, by), _mm_clmulepi64_si128::<0x11>(sum, by))
}

/// Both powers in one register.
#[inline]
#[target_feature(enable = "sse4.1")]
pub(super) fn pair(by: Powers) -> __m128i {
    _mm_set_epi64x(by[1], by[0])
}

/// The remainder of 128 bits by the polynomial.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
pub(super) fn reduced(sum: __m128i) -> u32 {
    let low_words = _mm_setr_epi32(!0, 0, !0, 0);
    let by_a_step = _mm_set_epi64x(BY_A_STEP[1], BY_A_STEP[0]);
    let sum = _mm_xor_si128(_mm_srli_si128::<8>(sum), _mm_clmulepi64_si128::<0x10>(sum, by_a_step));
    let moved = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(sum, low_words), _mm_set_epi64x(0, BY_A_WORD));
    remainder(_mm_xor_si128(_mm_srli_si128::<4>(sum), moved))
}

/// The remainder of 64 bits by the polynomial.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn remainder(sum: __m128i) -> u32 {
    let low_words = _mm_setr_epi32(!0, 0, !0, 0);
    let barrett = _mm_set_epi64x(BARRETT[1], BARRETT[0]);
    let quotient = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(sum, low_words), barrett);
    let product = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(quotient, low_words), barrett);
    _mm_extract_epi32::<1>(_mm_xor_si128(sum, product)).cast_unsigned()
}
