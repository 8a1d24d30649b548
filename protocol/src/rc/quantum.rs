//! What a queue pair may send before others get their turn.

use crate::Mtu;

/// About what the headers of a packet take on the wire.
pub(super) const HEADER_BYTES: usize = 80;

/// Bytes that may be sent in one turn, as in deficit round robin. The packet that exhausts a quantum may exceed it:
/// the excess is taken from the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantum(isize);

impl Quantum {
    /// No limit.
    pub const UNLIMITED: Self = Self(isize::MAX);

    /// So many bytes.
    pub const fn new(bytes: isize) -> Self {
        Self(bytes)
    }

    /// So many packets of a READ's or WRITE's, which are full.
    pub const fn of_packets(packets: usize, mtu: Mtu) -> Self {
        Self((packets * (HEADER_BYTES + mtu.bytes())).cast_signed())
    }

    /// What is left; negative where the last packet exceeded it.
    pub const fn left(self) -> isize {
        self.0
    }

    /// Whether another packet may be sent.
    #[inline]
    pub const fn is_left(self) -> bool {
        self.0 > 0
    }

    #[inline]
    pub(super) const fn spend(&mut self, bytes: usize) {
        self.0 -= bytes.cast_signed();
    }

    /// Half of what is left, for the first of two.
    #[must_use]
    pub const fn half(self) -> Self {
        Self(self.0 / 2 + self.0 % 2)
    }

    /// What is left for the second of two, of whom the first has left `rest` of its half.
    #[must_use]
    pub const fn after_half(self, rest: Self) -> Self {
        Self(self.0 - self.half().0 + rest.0)
    }
}
