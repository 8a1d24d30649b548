//! Memory for a message that is to come, with gaps for the headers of its packets: the kernel puts each where its frame is to be, as
//! long as it is foreseen how long they are.

/// The longest message.
pub(super) const MESSAGE: usize = 65_535;
/// The shortest packets that are worth pieces of their own. A train of 62 KiB takes 2.9 us to receive and 0.6 us to be moved apart in
/// packets of 8 KiB, and 2.7 us in pieces; of 1 KiB 2.8 and 1.0, and 4.7 us in pieces; of 2 KiB it is the same.
pub(super) const LEAST_PIECE: usize = 4096;
/// Pieces of a room at most.
pub(super) const PIECES: usize = MESSAGE.div_ceil(LEAST_PIECE);

/// Room for a message, whose first packet begins where it does.
pub(super) struct RxRoom<'a> {
    bytes: &'a mut [u8],
    /// How long each gap is.
    headers: usize,
    spread: usize,
}

impl<'a> RxRoom<'a> {
    /// With gaps between packets of `spread` bytes; without any where that is 0.
    #[inline]
    pub(super) fn new(bytes: &'a mut [u8], headers: usize, spread: usize) -> Self {
        debug_assert!(bytes.len() >= MESSAGE + PIECES * headers);
        debug_assert!(spread == 0 || spread >= LEAST_PIECE);
        Self { bytes, headers, spread }
    }

    /// How many bytes there are before each gap; 0 where there is none.
    #[inline]
    pub(super) const fn spread(&self) -> usize {
        self.spread
    }

    /// All of it in one piece.
    #[inline]
    pub(super) fn together(self) -> &'a mut [u8] {
        &mut self.bytes[..MESSAGE]
    }

    /// What is between the gaps: the longest message has room in all pieces together.
    #[inline]
    pub(super) fn pieces(self) -> impl Iterator<Item = &'a mut [u8]> {
        let Self { mut bytes, headers, spread } = self;
        let mut left = MESSAGE;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let len = if spread == 0 { left } else { left.min(spread) };
            let (piece, rest) = std::mem::take(&mut bytes).split_at_mut(len);
            left -= len;
            if left > 0 {
                bytes = &mut rest[headers..];
            }
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_long_as_packets_and_hold_the_longest_message() {
        for (spread, count) in [(0, 1), (LEAST_PIECE, PIECES), (8_208, 8), (MESSAGE, 1), (MESSAGE - 1, 2)] {
            let mut bytes = vec![0; MESSAGE + PIECES * 42];
            let start = bytes.as_ptr().addr();
            let pieces: Vec<_> = RxRoom::new(&mut bytes, 42, spread).pieces().collect();
            assert_eq!(pieces.len(), count, "{spread}");
            assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), MESSAGE, "{spread}");
            for (place, piece) in pieces.iter().enumerate() {
                assert_eq!(piece.as_ptr().addr() - start, place * (spread + 42), "{spread}");
            }
        }
    }
}
