//! The invalidate header (IBTA 9.3.7): the key that a SEND WITH INVALIDATE takes away.

use zerocopy::byteorder::network_endian::U32;

use super::{Malformed, take};
use crate::Rkey;

/// The header's length.
pub const LEN: usize = 4;

/// The key to invalidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ieth(pub Rkey);

impl Ieth {
    /// Reads the header and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (value, rest) = take::<U32>(bytes)?;
        Ok((Self(Rkey(value.get())), rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 4.
    pub fn emit(self, bytes: &mut [u8]) {
        bytes[..LEN].copy_from_slice(&self.0.0.to_be_bytes());
    }
}
