//! A map of 256 packets beyond a point in the stream.

/// Packets that a map covers.
pub(super) const BITS: u32 = 256;
/// Its size on the wire.
pub(super) const LEN: usize = BITS as usize / 8;

/// Bit n stands for the packet n beyond the point; out of range means "not set".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bitmap([u64; BITS as usize / 64]);

impl Bitmap {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; BITS as usize / 64]
    }

    pub(super) fn get(&self, bit: u32) -> bool {
        bit < BITS && self.0[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    pub(super) fn set(&mut self, bit: u32) {
        if bit < BITS {
            self.0[bit as usize / 64] |= 1 << (bit % 64);
        }
    }

    pub(super) fn unset(&mut self, bit: u32) {
        if bit < BITS {
            self.0[bit as usize / 64] &= !(1 << (bit % 64));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of bits up to the last that is set.
    pub(super) fn span(&self) -> u32 {
        let last = self.0.iter().rposition(|&word| word != 0);
        last.map_or(0, |at| at as u32 * 64 + 64 - self.0[at].leading_zeros())
    }

    /// Moves the point on by `count` packets.
    pub(super) fn advance(&mut self, count: u32) {
        if self.is_empty() {
            return;
        }
        let (words, bits) = ((count / 64) as usize, count % 64);
        let old = self.0;
        let word = |at: usize| old.get(at).copied().unwrap_or(0);
        for (at, slot) in self.0.iter_mut().enumerate() {
            let low = word(at.saturating_add(words));
            let high = word(at.saturating_add(words).saturating_add(1));
            *slot = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
        }
    }

    /// The map as it is sent: bit n of byte n / 8 comes first.
    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a map; `None` where it has another length.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; LEN] = bytes.try_into().ok()?;
        let mut map = Self::default();
        for (word, chunk) in map.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(bits: &[u32]) -> Bitmap {
        let mut map = Bitmap::default();
        for &bit in bits {
            map.set(bit);
        }
        map
    }

    #[test]
    fn advancing_shifts_every_bit_and_forgets_what_lies_behind() {
        for count in [0, 1, 63, 64, 65, 130, 255, 256, 1000, u32::MAX] {
            let bits = [0, 1, 63, 64, 100, 191, 255];
            let mut map = with(&bits);
            map.advance(count);
            let due: Vec<_> = bits.iter().filter_map(|bit| bit.checked_sub(count)).collect();
            assert_eq!(map, with(&due), "by {count}");
        }
    }

    #[test]
    fn a_map_survives_the_wire() {
        let map = with(&[0, 7, 8, 64, 200, 255]);
        assert_eq!(Bitmap::from_bytes(&map.to_bytes()), Some(map));
        assert_eq!(map.to_bytes()[0], 0x81);
        assert_eq!(Bitmap::from_bytes(&[0; 31]), None);
    }

    #[test]
    fn the_span_ends_with_the_last_bit() {
        assert_eq!(
            [with(&[]), with(&[0]), with(&[63]), with(&[3, 64]), with(&[255])].map(|map| map.span()),
            [0, 1, 64, 65, 256]
        );
        let mut map = with(&[5]);
        map.unset(5);
        assert!(map.is_empty() && !map.get(5) && !map.get(9999));
    }
}
