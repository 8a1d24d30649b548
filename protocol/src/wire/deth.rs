//! The datagram header (IBTA 9.3.2).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bth::{get_24, put_24};
use super::{Malformed, take};
use crate::Qpn;

/// The header's length.
pub const LEN: usize = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DethView {
    qkey: U32,
    reserved: u8,
    source_qpn: [u8; 3],
}
const_assert_eq!(size_of::<DethView>(), LEN);

/// Who sent a datagram, and the key that lets it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Must equal the receiving queue pair's key.
    pub qkey: u32,
    /// The sender's queue pair.
    pub source_qpn: Qpn,
    /// The reserved byte as carried; covered by the ICRC.
    pub reserved: u8,
}

impl Deth {
    /// Reads the header and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<DethView>(bytes)?;
        let header =
            Self { qkey: view.qkey.get(), source_qpn: Qpn::new(get_24(view.source_qpn)), reserved: view.reserved };
        Ok((header, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 8.
    pub fn emit(&self, bytes: &mut [u8]) {
        let view =
            DethView { qkey: self.qkey.into(), reserved: self.reserved, source_qpn: put_24(self.source_qpn.get()) };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}
