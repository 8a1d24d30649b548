//! Copies of memory that others may read and write at the same time: the application, on any of its threads, and devices.
//!
//! No reference to such memory is ever made, and it is accessed by relaxed atomic loads and stores alone, in words where it is
//! aligned. What comes of a race is any mix of the bytes before and after, and nothing else.
//!
//! Rust has no word for accesses of different sizes to the same bytes at the same time, nor for a look at bytes that nothing has
//! ever written. Here both mean what they mean for memory that is shared with another process: what the machine does.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Copies what is at `from` into `into`.
///
/// # Safety
/// `into.len()` bytes from `from` on are mapped and readable, and `into` is no part of them.
pub(super) unsafe fn load(from: *const u8, into: &mut [u8]) {
    let (head, words) = into.split_at_mut(bytes_before_word(from).min(into.len()));
    // SAFETY: as the caller promises.
    unsafe { load_bytes(from, head) };
    // SAFETY: the head is a part of the range.
    let mut at = unsafe { from.add(head.len()) };
    let (words, tail) = words.as_chunks_mut::<WORD>();
    for word in words {
        // SAFETY: the word is in the range and aligned, because the head ends where words begin.
        *word = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Ordering::Relaxed).to_ne_bytes();
        // SAFETY: the next one begins in the range, or at its end.
        at = unsafe { at.add(WORD) };
    }
    // SAFETY: what is left of the range.
    unsafe { load_bytes(at, tail) };
}

/// Copies `from` to what is at `into`.
///
/// # Safety
/// `from.len()` bytes from `into` on are mapped and writable, and `from` is no part of them.
pub(super) unsafe fn store(into: *mut u8, from: &[u8]) {
    let (head, words) = from.split_at(bytes_before_word(into).min(from.len()));
    // SAFETY: as the caller promises.
    unsafe { store_bytes(into, head) };
    // SAFETY: the head is a part of the range.
    let mut at = unsafe { into.add(head.len()) };
    let (words, tail) = words.as_chunks::<WORD>();
    for word in words {
        // SAFETY: the word is in the range and aligned, because the head ends where words begin.
        unsafe { AtomicU64::from_ptr(at.cast()) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        // SAFETY: the next one begins in the range, or at its end.
        at = unsafe { at.add(WORD) };
    }
    // SAFETY: what is left of the range.
    unsafe { store_bytes(at, tail) };
}

/// A number that an atomic operation changes in memory, in this host's byte order: `u32` or `u64`.
pub trait Number: Copy + sealed::RawNumber {}

impl Number for u32 {}
impl Number for u64 {}

pub(super) mod sealed {
    /// What memory is asked for a number.
    pub trait RawNumber: Sized {
        /// Its bytes.
        type Bytes: for<'a> TryFrom<&'a [u8]> + AsRef<[u8]>;

        fn from_bytes(bytes: Self::Bytes) -> Self;
        fn to_bytes(self) -> Self::Bytes;

        /// Replaces the number at `at` by what `change` makes of it, as one step for all that access it by atomic instructions.
        /// Returns what it was; `None`, and nothing has changed, where it is not aligned.
        ///
        /// # Safety
        /// Its bytes from `at` on are mapped, readable and writable.
        unsafe fn update(at: *mut u8, change: impl Fn(Self) -> Self) -> Option<Self>;
    }
}

macro_rules! raw_number {
    ($number:ty, $atomic:ty) => {
        impl sealed::RawNumber for $number {
            type Bytes = [u8; size_of::<$number>()];

            #[inline]
            fn from_bytes(bytes: Self::Bytes) -> Self {
                Self::from_ne_bytes(bytes)
            }

            #[inline]
            fn to_bytes(self) -> Self::Bytes {
                self.to_ne_bytes()
            }

            unsafe fn update(at: *mut u8, change: impl Fn(Self) -> Self) -> Option<Self> {
                let number: *mut Self = at.cast();
                // SAFETY: as the caller promises, and it is aligned.
                let number = number.is_aligned().then(|| unsafe { <$atomic>::from_ptr(number) })?;
                let mut before = number.load(Ordering::Relaxed);
                while let Err(other) =
                    number.compare_exchange_weak(before, change(before), Ordering::SeqCst, Ordering::Relaxed)
                {
                    before = other;
                }
                Some(before)
            }
        }
    };
}

raw_number!(u32, AtomicU32);
raw_number!(u64, AtomicU64);

/// How many bytes lie before the first word.
fn bytes_before_word(at: *const u8) -> usize {
    at.addr().next_multiple_of(WORD) - at.addr()
}

/// # Safety
/// That of [`load`].
unsafe fn load_bytes(from: *const u8, into: &mut [u8]) {
    for (at, byte) in into.iter_mut().enumerate() {
        // SAFETY: it is in the range, and a byte is always aligned.
        *byte = unsafe { AtomicU8::from_ptr(from.add(at).cast_mut()) }.load(Ordering::Relaxed);
    }
}

/// # Safety
/// That of [`store`].
unsafe fn store_bytes(into: *mut u8, from: &[u8]) {
    for (at, &byte) in from.iter().enumerate() {
        // SAFETY: it is in the range, and a byte is always aligned.
        unsafe { AtomicU8::from_ptr(into.add(at)) }.store(byte, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::RawNumber as _;
    use super::*;

    #[test]
    fn copies_of_any_length_at_any_alignment_touch_no_other_byte() {
        let source: Vec<u8> = (0..64).map(|at| at * 3 + 1).collect();
        for from in 0..9 {
            for len in 0..40 {
                let mut loaded = [0xee; 50];
                // SAFETY: the range lies in `source`.
                unsafe { load(source.as_ptr().add(from), &mut loaded[..len]) };
                assert_eq!(loaded[..len], source[from..from + len]);
                assert!(loaded[len..].iter().all(|&byte| byte == 0xee));
                let mut stored = [0xee; 64];
                // SAFETY: the range lies in `stored`.
                unsafe { store(stored.as_mut_ptr().add(from), &source[..len]) };
                assert_eq!(stored[from..from + len], source[..len]);
                assert!(stored[..from].iter().chain(&stored[from + len..]).all(|&byte| byte == 0xee));
            }
        }
    }

    #[test]
    fn a_number_is_changed_in_one_step_where_it_is_aligned() {
        let mut numbers = [5_u64, 7];
        let at = numbers.as_mut_ptr().cast::<u8>();
        // SAFETY: all of it lies in `numbers`.
        let (before, unaligned) =
            unsafe { (u64::update(at.add(8), |number| number * 10), u64::update(at.add(1), |_| 0)) };
        assert_eq!((before, unaligned, numbers), (Some(7), None, [5, 70]));
    }
}
