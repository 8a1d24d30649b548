//! The management datagram's header (IBTA 13.4.2), as the communication manager's class uses it.

use static_assertions::const_assert_eq;
use thiserror::Error;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header's length.
pub const HEADER_LEN: usize = 24;
/// A management datagram's length, always.
pub const LEN: usize = 256;
/// What follows the header.
pub const BODY_LEN: usize = LEN - HEADER_LEN;
/// The bytes that follow the header.
pub type MadBody = [u8; BODY_LEN];

/// The queue pair that management datagrams go to and come from.
pub const QPN: u32 = 1;
/// That queue pair's well-known key.
pub const QKEY: u32 = 0x8001_0000;
/// The method of every message of the communication manager.
pub const METHOD_SEND: u8 = 3;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 7;
const CLASS_VERSION: u8 = 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MadView {
    base_version: u8,
    mgmt_class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    tid: U64,
    attr_id: U16,
    reserved: U16,
    attr_mod: U32,
}
const_assert_eq!(size_of::<MadView>(), HEADER_LEN);

/// Why a datagram to queue pair 1 is not a message of the communication manager.
///
/// Counted under [`MadError::name`], as [`Malformed`](super::Malformed) is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum MadError {
    /// Not 256 bytes.
    #[error("a management datagram that is not 256 bytes long")]
    Length,
    /// The base version is not 1.
    #[error("management datagram of a base version other than 1")]
    Version,
    /// Another management class than communication management.
    #[error("management class is not communication management (0x07)")]
    NotCm,
    /// The class version is not 2.
    #[error("communication management of a class version other than 2")]
    ClassVersion,
    /// Another method than Send.
    #[error("communication management method is not Send (0x03)")]
    Method,
    /// An attribute that the class does not have.
    #[error("unknown communication management attribute")]
    UnknownAttribute,
}

impl MadError {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 6] =
        [Self::Length, Self::Version, Self::NotCm, Self::ClassVersion, Self::Method, Self::UnknownAttribute];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length => "rx_mad_length",
            Self::Version => "rx_mad_version",
            Self::NotCm => "rx_mad_not_cm",
            Self::ClassVersion => "rx_mad_class_version",
            Self::Method => "rx_mad_method",
            Self::UnknownAttribute => "rx_mad_unknown_attribute",
        }
    }
}

/// A management datagram's header, of the communication manager's class in its only version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MadHeader {
    /// What to do with the attribute; [`METHOD_SEND`] here.
    pub method: u8,
    /// 0 in a Send.
    pub status: u16,
    /// The class's own field; the communication manager has no use for it.
    pub class_specific: u16,
    /// Transaction: an answer carries its request's.
    pub tid: u64,
    /// Which message follows.
    pub attr_id: u16,
    /// The reserved field as carried.
    pub reserved: u16,
    /// The attribute's modifier: 0, or flags of the vendor's extensions that Linux puts here (ECE).
    pub attr_mod: u32,
}

impl MadHeader {
    /// Reads the header of a datagram and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &MadBody), MadError> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| MadError::Length)?;
        let (view, rest) = MadView::ref_from_prefix(bytes).map_err(|_| MadError::Length)?;
        let body = rest.try_into().map_err(|_| MadError::Length)?;
        view.check()?;
        Ok((view.header(), body))
    }

    /// Writes the header to the front of `bytes`, which must hold 24.
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = MadView {
            base_version: BASE_VERSION,
            mgmt_class: CLASS_CM,
            class_version: CLASS_VERSION,
            method: self.method,
            status: self.status.into(),
            class_specific: self.class_specific.into(),
            tid: self.tid.into(),
            attr_id: self.attr_id.into(),
            reserved: self.reserved.into(),
            attr_mod: self.attr_mod.into(),
        };
        bytes[..HEADER_LEN].copy_from_slice(view.as_bytes());
    }
}

impl MadView {
    const fn check(&self) -> Result<(), MadError> {
        match (self.base_version, self.mgmt_class, self.class_version) {
            (BASE_VERSION, CLASS_CM, CLASS_VERSION) => Ok(()),
            (BASE_VERSION, CLASS_CM, _) => Err(MadError::ClassVersion),
            (BASE_VERSION, _, _) => Err(MadError::NotCm),
            _ => Err(MadError::Version),
        }
    }

    fn header(&self) -> MadHeader {
        MadHeader {
            method: self.method,
            status: self.status.get(),
            class_specific: self.class_specific.get(),
            tid: self.tid.get(),
            attr_id: self.attr_id.get(),
            reserved: self.reserved.get(),
            attr_mod: self.attr_mod.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram() -> [u8; LEN] {
        let mut bytes = [0; LEN];
        MadHeader { method: METHOD_SEND, tid: 7, attr_id: 0x10, ..MadHeader::default() }.emit(&mut bytes);
        bytes
    }

    #[test]
    fn each_wrong_field_has_its_own_name() {
        assert!(MadHeader::parse(&datagram()).is_ok());
        for (at, reason) in [(0, MadError::Version), (1, MadError::NotCm), (2, MadError::ClassVersion)] {
            let mut bytes = datagram();
            bytes[at] ^= 0x10;
            assert_eq!(MadHeader::parse(&bytes), Err(reason));
        }
    }

    #[test]
    fn only_256_bytes_are_a_datagram() {
        let long = [&datagram()[..], &[0]].concat();
        assert_eq!(MadHeader::parse(&long), Err(MadError::Length));
        for len in 0..LEN {
            assert_eq!(MadHeader::parse(&long[..len]), Err(MadError::Length));
        }
    }

    #[test]
    fn every_reason_has_a_counter_of_its_own() {
        let mut names = MadError::ALL.map(MadError::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(MadError::ALL.into_iter().enumerate().all(|(index, reason)| index == reason as usize));
    }
}
