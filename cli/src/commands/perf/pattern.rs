//! What payloads hold, so that a receiver can tell a right one from a wrong one.

/// The bytes of every message of one size. Each KiB begins with its stamp, of the message's number and of where it lies,
/// so that no part of an earlier message, nor another part of this one, passes for it. All else is the same in each KiB:
/// what is compared stays in the nearest cache, and takes no room there from the messages.
pub(super) struct BytePattern {
    size: usize,
    block: [u8; STRIDE],
}

/// Bytes of a stamp ...
const STAMP: usize = 8;
/// ... and how far it is from one to the next.
const STRIDE: usize = 1024;
/// Bits of a stamp before where it lies: no test has so many messages.
const NUMBER_BITS: u32 = 40;

impl BytePattern {
    pub(super) fn new(size: usize) -> Self {
        let byte = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0] ^ at as u8;
        Self { size, block: std::array::from_fn(byte) }
    }

    /// Writes all of it.
    pub(super) fn fill(&self, into: &mut [u8]) {
        for chunk in into.chunks_mut(STRIDE) {
            chunk.copy_from_slice(&self.block[..chunk.len()]);
        }
    }

    /// The stamps of the message with this number, that has `size` bytes: each with where it begins and how long it is.
    #[inline]
    pub(super) fn stamps(number: u64, size: usize) -> impl Iterator<Item = (usize, [u8; STAMP], usize)> {
        let stamp = move |at: usize| (at, stamp(number, at / STRIDE), STAMP.min(size - at));
        (0..size).step_by(STRIDE).map(stamp)
    }

    /// Writes a message's stamps into it.
    #[inline]
    pub(super) fn stamp(into: &mut [u8], number: u64) {
        for (index, chunk) in into.chunks_mut(STRIDE).enumerate() {
            let len = chunk.len().min(STAMP);
            chunk[..len].copy_from_slice(&stamp(number, index)[..len]);
        }
    }

    /// One byte of the message with this number.
    pub(super) fn byte(&self, number: u64, at: usize) -> u8 {
        let within = at % STRIDE;
        if within < STAMP { stamp(number, at / STRIDE)[within] } else { self.block[within] }
    }

    /// Whether `bytes` is the message with this number.
    #[inline]
    pub(super) fn matches(&self, bytes: &[u8], number: u64) -> bool {
        let is_right = |(index, chunk): (usize, &[u8])| {
            let len = chunk.len().min(STAMP);
            chunk[..len] == stamp(number, index)[..len] && chunk[len..] == self.block[len..chunk.len()]
        };
        bytes.len() == self.size && bytes.chunks(STRIDE).enumerate().all(is_right)
    }
}

/// The first is the number alone.
#[inline]
fn stamp(number: u64, index: usize) -> [u8; STAMP] {
    (number ^ ((index as u64) << NUMBER_BITS)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::BytePattern;

    #[test]
    fn one_wrong_byte_or_another_number_is_noticed() {
        for size in [1, 7, 8, 9, 1000, 1025, 3000] {
            let pattern = BytePattern::new(size);
            let mut bytes = vec![0; size];
            pattern.fill(&mut bytes);
            BytePattern::stamp(&mut bytes, 5);
            assert!(pattern.matches(&bytes, 5));
            assert!(!pattern.matches(&bytes, 6));
            for part in (0..size).step_by(1024) {
                let mut stale = bytes.clone();
                BytePattern::stamp(&mut stale[part..(part + 1024).min(size)], 4);
                assert!(!pattern.matches(&stale, 5), "a stale part at {part} of {size}");
            }
            if size > 2 * 1024 {
                bytes[..2048].rotate_left(1024);
                assert!(!pattern.matches(&bytes, 5), "two parts changed places");
                bytes[..2048].rotate_left(1024);
            }
            for at in 0..size {
                assert_eq!(bytes[at], pattern.byte(5, at));
                bytes[at] ^= 0x10;
                assert!(!pattern.matches(&bytes, 5), "byte {at} of {size}");
                bytes[at] ^= 0x10;
            }
        }
    }
}
