//! The base transport header (IBTA 9.2).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Malformed, Opcode, take};
use crate::{Pkey, Psn, Qpn};

/// The header's length.
pub const LEN: usize = 12;
/// Where the destination's number stands in it.
pub(super) const DEST_QPN: usize = 5;

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const VERSION: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const RESERVED_6: u8 = 0x3f;
const ACK_REQ: u8 = 0x80;
const RESERVED_7: u8 = 0x7f;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BthView {
    opcode: u8,
    flags: u8,
    pkey: U16,
    congestion: u8,
    dest_qpn: [u8; 3],
    ack_req: u8,
    psn: [u8; 3],
}
const_assert_eq!(size_of::<BthView>(), LEN);
const_assert_eq!(std::mem::offset_of!(BthView, dest_qpn), DEST_QPN);

/// A base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// The receiver should raise a solicited event.
    pub solicited: bool,
    /// Path migration state; RoCE hardware sends 1 and Linux's rxe 0, and no receiver checks it.
    pub mig_req: bool,
    /// Zero bytes after the payload, 0 to 3.
    pub pad: u8,
    /// Partition key.
    pub pkey: Pkey,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Six reserved bits beside FECN and BECN, not covered by the ICRC.
    pub reserved_6: u8,
    /// The queue pair that the packet is for.
    pub dest_qpn: Qpn,
    /// The sender asks for an acknowledgement.
    pub ack_req: bool,
    /// Seven reserved bits beside AckReq, covered by the ICRC.
    pub reserved_7: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header with every flag clear, the default partition and MigReq set as RoCE hardware does.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            reserved_6: 0,
            dest_qpn,
            ack_req: false,
            reserved_7: 0,
            psn,
        }
    }

    /// Reads the header and returns what follows it. Refuses unknown opcodes and versions.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<BthView>(bytes)?;
        if view.flags & VERSION != 0 {
            return Err(Malformed::TransportVersion);
        }
        let header = Self {
            opcode: Opcode::from_wire(view.opcode).ok_or(Malformed::UnknownOpcode)?,
            solicited: view.flags & SOLICITED != 0,
            mig_req: view.flags & MIG_REQ != 0,
            pad: view.flags >> 4 & 3,
            pkey: Pkey(view.pkey.get()),
            fecn: view.congestion & FECN != 0,
            becn: view.congestion & BECN != 0,
            reserved_6: view.congestion & RESERVED_6,
            dest_qpn: Qpn::new(get_24(view.dest_qpn)),
            ack_req: view.ack_req & ACK_REQ != 0,
            reserved_7: view.ack_req & RESERVED_7,
            psn: Psn::new(get_24(view.psn)),
        };
        Ok((header, rest))
    }

    /// Writes the header to the front of `bytes`, which must hold 12.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let flag = |set: bool, mask: u8| if set { mask } else { 0 };
        let view = BthView {
            opcode: self.opcode as u8,
            flags: flag(self.solicited, SOLICITED) | flag(self.mig_req, MIG_REQ) | (self.pad & 3) << 4,
            pkey: self.pkey.0.into(),
            congestion: flag(self.fecn, FECN) | flag(self.becn, BECN) | self.reserved_6 & RESERVED_6,
            dest_qpn: put_24(self.dest_qpn.get()),
            ack_req: flag(self.ack_req, ACK_REQ) | self.reserved_7 & RESERVED_7,
            psn: put_24(self.psn.get()),
        };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}

/// A 24-bit big-endian number.
#[inline]
pub(super) const fn get_24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// A number's low 24 bits, big-endian.
#[inline]
pub(super) const fn put_24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}
