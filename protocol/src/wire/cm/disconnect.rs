//! DREQ and DREP: the end is asked for and confirmed (IBTA chapter 12, tables 112 and 113).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use crate::Qpn;
use crate::wire::bth::{get_24, put_24};
use crate::wire::mad::{BODY_LEN, MadBody};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DreqView {
    local_comm_id: U32,
    remote_comm_id: U32,
    remote_qpn: [u8; 3],
    reserved_11: u8,
    private_data: [u8; 220],
}
const_assert_eq!(size_of::<DreqView>(), BODY_LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DrepView {
    local_comm_id: U32,
    remote_comm_id: U32,
    private_data: [u8; 224],
}
const_assert_eq!(size_of::<DrepView>(), BODY_LEN);

/// The end is asked for, by either side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// The receiver's name of the connection.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Reserved byte 11.
    pub reserved_11: u8,
    /// For the other side.
    pub private_data: [u8; 220],
}

impl Default for Dreq {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Dreq {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &DreqView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            remote_qpn: Qpn::new(get_24(view.remote_qpn)),
            reserved_11: view.reserved_11,
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(DreqView {
            local_comm_id: self.local_comm_id.into(),
            remote_comm_id: self.remote_comm_id.into(),
            remote_qpn: put_24(self.remote_qpn.get()),
            reserved_11: self.reserved_11,
            private_data: self.private_data,
        })
    }
}

/// The end is confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// The receiver's name of the connection.
    pub remote_comm_id: u32,
    /// For the other side.
    pub private_data: [u8; 224],
}

impl Default for Drep {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Drep {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &DrepView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(DrepView {
            local_comm_id: self.local_comm_id.into(),
            remote_comm_id: self.remote_comm_id.into(),
            private_data: self.private_data,
        })
    }
}
