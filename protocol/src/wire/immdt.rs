//! Immediate data (IBTA 9.3.6).

use zerocopy::byteorder::network_endian::U32;

use super::{Malformed, take};

/// The header's length.
pub const LEN: usize = 4;

/// Four bytes that a SEND or WRITE hands to the receiver's completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Reads the header and returns what follows it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (value, rest) = take::<U32>(bytes)?;
        Ok((Self(value.get()), rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 4.
    #[inline]
    pub fn emit(self, bytes: &mut [u8]) {
        bytes[..LEN].copy_from_slice(&self.0.to_be_bytes());
    }
}
