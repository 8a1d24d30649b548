//! The atomic request and result headers (IBTA 9.3.4 and 9.5.3).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Malformed, take};
use crate::Rkey;

/// The request header's length.
pub const REQUEST_LEN: usize = 28;
/// The result header's length.
pub const ACK_LEN: usize = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AtomicEthView {
    va: U64,
    rkey: U32,
    swap_or_add: U64,
    compare: U64,
}
const_assert_eq!(size_of::<AtomicEthView>(), REQUEST_LEN);

/// An atomic request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Address of the 8-byte operand within the region.
    pub va: u64,
    /// The region's key.
    pub rkey: Rkey,
    /// The value to swap in, or to add.
    pub swap_or_add: u64,
    /// The value to compare with; ignored by FETCH_ADD.
    pub compare: u64,
}

impl AtomicEth {
    /// Reads the header and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<AtomicEthView>(bytes)?;
        let header = Self {
            va: view.va.get(),
            rkey: Rkey(view.rkey.get()),
            swap_or_add: view.swap_or_add.get(),
            compare: view.compare.get(),
        };
        Ok((header, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 28.
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = AtomicEthView {
            va: self.va.into(),
            rkey: self.rkey.0.into(),
            swap_or_add: self.swap_or_add.into(),
            compare: self.compare.into(),
        };
        bytes[..REQUEST_LEN].copy_from_slice(view.as_bytes());
    }
}

/// The value that an atomic operation found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicAckEth {
    /// The operand before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Reads the header and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (value, rest) = take::<U64>(bytes)?;
        Ok((Self { original: value.get() }, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 8.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..ACK_LEN].copy_from_slice(&self.original.to_be_bytes());
    }
}
