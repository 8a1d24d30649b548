//! The RDMA extended transport header (IBTA 9.3.3).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Malformed, take};
use crate::Rkey;

/// The header's length.
pub const LEN: usize = 16;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RethView {
    va: U64,
    rkey: U32,
    len: U32,
}
const_assert_eq!(size_of::<RethView>(), LEN);

/// Where an RDMA operation reads or writes at the responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reth {
    /// Address within the region.
    pub va: u64,
    /// The region's key.
    pub rkey: Rkey,
    /// Bytes of the whole operation, without pad.
    pub len: u32,
}

impl Reth {
    /// Reads the header and returns what follows it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<RethView>(bytes)?;
        Ok((Self { va: view.va.get(), rkey: Rkey(view.rkey.get()), len: view.len.get() }, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 16.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = RethView { va: self.va.into(), rkey: self.rkey.0.into(), len: self.len.into() };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}
