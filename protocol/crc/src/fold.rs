//! The fold itself, for processors that multiply without carries.

use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_extract_epi32, _mm_loadu_si128, _mm_or_si128,
    _mm_set_epi64x, _mm_setr_epi32, _mm_shuffle_epi8, _mm_srli_si128, _mm_xor_si128,
};
use std::sync::atomic::{AtomicU8, Ordering};

use super::FRONT;
use super::polynomial::{ONE, times_x};

/// Bytes of a step.
const STEP: usize = 16;
/// What moves the polynomial of a step on by so many steps.
const BY_A_STEP: Powers = by_steps(1);
const BY_TWO: Powers = by_steps(2);
const BY_THREE: Powers = by_steps(3);
const BY_FOUR: Powers = by_steps(4);
/// x^64 modulo the polynomial, reflected.
const BY_A_WORD: i64 = power_of_x(64);
/// The polynomial and the quotient of x^64 by it (Barrett), reflected.
const BARRETT: [i64; 2] = [0x0001_db71_0641, 0x0001_f701_1641];

/// Two powers of x modulo the polynomial, reflected: for the low and the high half of a step.
type Powers = [i64; 2];

const fn by_steps(count: u32) -> Powers {
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
    if !is_fit || !can_fold() {
        return None;
    }
    // SAFETY: the processor has what the function is compiled for.
    Some(!unsafe { fold(!crc, bytes, len, ones) })
}

/// The product of two polynomials; `None` where the processor cannot.
#[inline]
pub(super) fn product(one: u32, other: u32) -> Option<u32> {
    // SAFETY: the processor has what the function is compiled for.
    can_fold().then(|| unsafe { multiplied(one, other) })
}

/// Whether the processor has what [`fold`] is compiled for. The answer is remembered, as one byte that is looked at for each
/// packet.
#[inline]
fn can_fold() -> bool {
    const YES: u8 = 1;
    const NO: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn find_out() -> bool {
        let can = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1");
        ANSWER.store(if can { YES } else { NO }, Ordering::Relaxed);
        can
    }
    match ANSWER.load(Ordering::Relaxed) {
        YES => true,
        NO => false,
        _ => find_out(),
    }
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
    // The first step has what is too much for whole steps, at its end: zeros in front of it do not count.
    let first = (len - 1) % STEP + 1;
    let ones = load(&ones.to_le_bytes());
    let front = _mm_or_si128(load(bytes), ones);
    let front = _mm_xor_si128(front, _mm_cvtsi32_si128(register.cast_signed()));
    let mut sum = _mm_shuffle_epi8(front, load(&MOVES[first..]));
    let (steps, _) = bytes[first..len].as_chunks::<STEP>();
    let Some((second, steps)) = steps.split_first() else { return reduced(sum) };
    let ones = _mm_shuffle_epi8(ones, load(&MOVES[STEP + first..]));
    sum = _mm_xor_si128(moved_on(sum, BY_A_STEP), _mm_or_si128(load(second), ones));
    // Steps are moved on all at once, and not one after the other: the sum waits for one product, and not for one of each.
    let (groups, rest) = steps.as_chunks::<4>();
    for [one, two, three, four] in groups {
        let early = _mm_xor_si128(moved_on(load(one), BY_THREE), moved_on(load(two), BY_TWO));
        let late = _mm_xor_si128(moved_on(load(three), BY_A_STEP), load(four));
        sum = _mm_xor_si128(moved_on(sum, BY_FOUR), _mm_xor_si128(early, late));
    }
    reduced(match rest {
        [one, two, three] => {
            let early = _mm_xor_si128(moved_on(load(one), BY_TWO), moved_on(load(two), BY_A_STEP));
            _mm_xor_si128(moved_on(sum, BY_THREE), _mm_xor_si128(early, load(three)))
        }
        [one, two] => {
            let late = _mm_xor_si128(moved_on(load(one), BY_A_STEP), load(two));
            _mm_xor_si128(moved_on(sum, BY_TWO), late)
        }
        [one] => _mm_xor_si128(moved_on(sum, BY_A_STEP), load(one)),
        _ => sum,
    })
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
fn moved_on(sum: __m128i, by: Powers) -> __m128i {
    let by = _mm_set_epi64x(by[1], by[0]);
    _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(sum, by), _mm_clmulepi64_si128::<0x11>(sum, by))
}

/// The remainder of 128 bits by the polynomial.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn reduced(sum: __m128i) -> u32 {
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
