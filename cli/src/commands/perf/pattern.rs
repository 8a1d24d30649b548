//! What payloads hold, so that a receiver can tell a right one from a wrong one.

/// The bytes of every message of one size. At the start of each KiB stands the message's number, so that no part of
/// an earlier message passes for one of this.
pub(super) struct Pattern {
    bytes: Vec<u8>,
}

/// Bytes of a number ...
pub(super) const STAMP: usize = 8;
/// ... and how far it is from one to the next.
pub(super) const STRIDE: usize = 1024;

impl Pattern {
    pub(super) fn new(size: usize) -> Self {
        let byte = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0] ^ at as u8;
        Self { bytes: (0..size).map(byte).collect() }
    }

    /// Writes all of it.
    pub(super) fn fill(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes);
    }

    /// Writes a message's number into it.
    #[inline]
    pub(super) fn stamp(into: &mut [u8], number: u64) {
        for chunk in into.chunks_mut(STRIDE) {
            let len = chunk.len().min(STAMP);
            chunk[..len].copy_from_slice(&number.to_le_bytes()[..len]);
        }
    }

    /// Whether `bytes` is the message with this number.
    #[inline]
    pub(super) fn matches(&self, bytes: &[u8], number: u64) -> bool {
        let stamp = number.to_le_bytes();
        let is_right = |(chunk, expected): (&[u8], &[u8])| {
            let len = chunk.len().min(STAMP);
            chunk[..len] == stamp[..len] && chunk[len..] == expected[len..]
        };
        bytes.len() == self.bytes.len() && bytes.chunks(STRIDE).zip(self.bytes.chunks(STRIDE)).all(is_right)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn one_wrong_byte_or_another_number_is_noticed() {
        for size in [1, 7, 8, 9, 1000, 1025, 3000] {
            let pattern = Pattern::new(size);
            let mut bytes = vec![0; size];
            pattern.fill(&mut bytes);
            Pattern::stamp(&mut bytes, 5);
            assert!(pattern.matches(&bytes, 5));
            assert!(!pattern.matches(&bytes, 6));
            for part in (0..size).step_by(1024) {
                let mut stale = bytes.clone();
                Pattern::stamp(&mut stale[part..(part + 1024).min(size)], 4);
                assert!(!pattern.matches(&stale, 5), "a stale part at {part} of {size}");
            }
            for at in 0..size {
                bytes[at] ^= 0x10;
                assert!(!pattern.matches(&bytes, 5), "byte {at} of {size}");
                bytes[at] ^= 0x10;
            }
        }
    }
}
