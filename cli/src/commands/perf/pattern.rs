//! What payloads hold, so that a receiver can tell a right one from a wrong one.

/// The bytes of every message of one size; the first eight, as far as there are, are its number.
pub(super) struct Pattern {
    bytes: Vec<u8>,
}

const STAMP: usize = 8;

impl Pattern {
    pub(super) fn new(size: usize) -> Self {
        let byte = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0] ^ at as u8;
        Self { bytes: (0..size).map(byte).collect() }
    }

    /// Writes all of it.
    pub(super) fn fill(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes);
    }

    /// Writes a message's number over its start.
    #[inline]
    pub(super) fn stamp(into: &mut [u8], number: u64) {
        let len = into.len().min(STAMP);
        into[..len].copy_from_slice(&number.to_le_bytes()[..len]);
    }

    /// Whether `bytes` is the message with this number.
    #[inline]
    pub(super) fn matches(&self, bytes: &[u8], number: u64) -> bool {
        let len = self.bytes.len().min(STAMP);
        bytes.len() == self.bytes.len()
            && bytes[..len] == number.to_le_bytes()[..len]
            && bytes[len..] == self.bytes[len..]
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn one_wrong_byte_or_another_number_is_noticed() {
        for size in [1, 7, 8, 9, 1000] {
            let pattern = Pattern::new(size);
            let mut bytes = vec![0; size];
            pattern.fill(&mut bytes);
            Pattern::stamp(&mut bytes, 5);
            assert!(pattern.matches(&bytes, 5));
            assert!(!pattern.matches(&bytes, 6));
            for at in 0..size {
                bytes[at] ^= 0x10;
                assert!(!pattern.matches(&bytes, 5), "byte {at} of {size}");
                bytes[at] ^= 0x10;
            }
        }
    }
}
