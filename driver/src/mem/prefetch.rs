//! Bytes that are read soon.

/// What is fetched ahead at most: the processor waits for no more lines at once.
const MOST: usize = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Has the processor fetch the first of these bytes, while it does something else. A copy that begins in memory that no cache has waits for
/// each handful of lines; the payload of a packet behind another one is there in time.
#[inline]
pub(crate) fn fetch_ahead(bytes: &[u8]) {
    for line in bytes[..bytes.len().min(MOST)].chunks(LINE) {
        fetch(line);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch(line: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it reads nothing: the processor takes it for a hint, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn fetch(_line: &[u8]) {}
