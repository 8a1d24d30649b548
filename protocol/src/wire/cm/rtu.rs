//! RTU: the grant was received, the connection is ready to use (IBTA chapter 12, table 111).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use crate::wire::mad::{BODY_LEN, MadBody};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RtuView {
    local_comm_id: U32,
    remote_comm_id: U32,
    private_data: [u8; 224],
}
const_assert_eq!(size_of::<RtuView>(), BODY_LEN);

/// The grant was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// The receiver's name of the connection.
    pub remote_comm_id: u32,
    /// For the passive side's application.
    pub private_data: [u8; 224],
}

impl Default for Rtu {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Rtu {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &RtuView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(RtuView {
            local_comm_id: self.local_comm_id.into(),
            remote_comm_id: self.remote_comm_id.into(),
            private_data: self.private_data,
        })
    }
}
