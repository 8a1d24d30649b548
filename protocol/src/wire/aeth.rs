//! The acknowledgement header (IBTA 9.3.5): positive, RNR and negative acknowledgements, credits, MSN.

use static_assertions::const_assert_eq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bth::{get_24, put_24};
use super::{Malformed, take};
use crate::Msn;

/// The header's length.
pub const LEN: usize = 4;
/// The credit code that means "no limit".
pub const CREDIT_UNLIMITED: u8 = 31;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AethView {
    syndrome: u8,
    msn: [u8; 3],
}
const_assert_eq!(size_of::<AethView>(), LEN);

/// Why a responder refused (IBTA 9.7.5.2.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing before this one; the only one that the requester recovers from.
    PsnSequence = 0,
    /// The request does not make sense.
    InvalidRequest = 1,
    /// Key, bounds or rights do not allow the access.
    RemoteAccess = 2,
    /// The responder failed for a reason of its own.
    RemoteOperational = 3,
    /// Reliable datagram only.
    InvalidRdRequest = 4,
}

/// The meaning of an AETH's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Acknowledged; the code says how many receives are posted.
    Ack {
        /// Credit code, 0 to 31.
        credit: u8,
    },
    /// Receiver not ready: try again after the coded time.
    Rnr {
        /// Timer code, 0 to 31 (IBTA table 45).
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// A value that IBTA reserves; carried so that a capture can be printed.
    Reserved(u8),
}

impl Syndrome {
    /// Decodes the byte.
    #[inline]
    pub const fn from_wire(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Self::Ack { credit: value },
            1 => Self::Rnr { timer: value },
            3 => match value {
                0 => Self::Nak(NakCode::PsnSequence),
                1 => Self::Nak(NakCode::InvalidRequest),
                2 => Self::Nak(NakCode::RemoteAccess),
                3 => Self::Nak(NakCode::RemoteOperational),
                4 => Self::Nak(NakCode::InvalidRdRequest),
                _ => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    /// Encodes the byte.
    #[inline]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Ack { credit } => credit & 0x1f,
            Self::Rnr { timer } => 0x20 | timer & 0x1f,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// An acknowledgement header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// The verdict.
    pub syndrome: Syndrome,
    /// Messages that the responder completed.
    pub msn: Msn,
}

impl Aeth {
    /// Reads the header and returns what follows it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<AethView>(bytes)?;
        Ok((Self { syndrome: Syndrome::from_wire(view.syndrome), msn: Msn::new(get_24(view.msn)) }, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 4.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = AethView { syndrome: self.syndrome.to_wire(), msn: put_24(self.msn.get()) };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::Syndrome;

    #[test]
    fn every_syndrome_byte_round_trips() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_wire(byte).to_wire(), byte);
        }
    }
}
