//! MRA: a message was received, its answer will take time (IBTA chapter 12, table 107).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::subject::Subject;
use crate::wire::mad::{BODY_LEN, MadBody};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MraView {
    local_comm_id: U32,
    remote_comm_id: U32,
    subject: u8,
    service_timeout: u8,
    private_data: [u8; 222],
}
const_assert_eq!(size_of::<MraView>(), BODY_LEN);

/// A message was received, its answer will take time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// The receiver's name of the connection.
    pub remote_comm_id: u32,
    /// The message that was received.
    pub subject: Subject,
    /// Six reserved bits behind it.
    pub reserved_8: u8,
    /// How long the answer may take: 4.096 us times 2 to the power of these 5 bits.
    pub service_timeout: u8,
    /// Three reserved bits behind it.
    pub reserved_9: u8,
    /// For the other side.
    pub private_data: [u8; 222],
}

impl Default for Mra {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Mra {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &MraView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            subject: Subject::from_wire(view.subject),
            reserved_8: view.subject & 0x3f,
            service_timeout: view.service_timeout >> 3,
            reserved_9: view.service_timeout & 7,
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(MraView {
            local_comm_id: self.local_comm_id.into(),
            remote_comm_id: self.remote_comm_id.into(),
            subject: self.subject.to_wire() | self.reserved_8 & 0x3f,
            service_timeout: self.service_timeout << 3 | self.reserved_9 & 7,
            private_data: self.private_data,
        })
    }
}
