//! SIDR_REQ and SIDR_REP: a service's datagram queue pair (IBTA chapter 12, tables 119 and 120).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::service::ServiceId;
use crate::wire::bth::{get_24, put_24};
use crate::wire::mad::{BODY_LEN, MadBody};
use crate::{Pkey, Qpn};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SidrReqView {
    request_id: U32,
    pkey: U16,
    reserved_6: U16,
    service_id: U64,
    private_data: [u8; 216],
}
const_assert_eq!(size_of::<SidrReqView>(), BODY_LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SidrRepView {
    request_id: U32,
    status: u8,
    info_len: u8,
    reserved_6: U16,
    qpn: [u8; 3],
    reserved_11: u8,
    service_id: U64,
    qkey: U32,
    info: [u8; 72],
    private_data: [u8; 136],
}
const_assert_eq!(size_of::<SidrRepView>(), BODY_LEN);

/// A service's datagram queue pair is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// The sender's name of the question.
    pub request_id: u32,
    /// Partition key.
    pub pkey: Pkey,
    /// Reserved bytes 6 and 7.
    pub reserved_6: u16,
    /// Who should answer.
    pub service_id: ServiceId,
    /// For the application that serves; it starts with an [`IpCm`](super::IpCm) header if the service is a port.
    pub private_data: [u8; 216],
}

impl Default for SidrReq {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl SidrReq {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &SidrReqView = transmute_ref!(body);
        Self {
            request_id: view.request_id.get(),
            pkey: Pkey(view.pkey.get()),
            reserved_6: view.reserved_6.get(),
            service_id: ServiceId(view.service_id.get()),
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(SidrReqView {
            request_id: self.request_id.into(),
            pkey: self.pkey.0.into(),
            reserved_6: self.reserved_6.into(),
            service_id: self.service_id.0.into(),
            private_data: self.private_data,
        })
    }
}

/// A service's datagram queue pair is named, or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The receiver's name of the question.
    pub request_id: u32,
    /// 0 if the queue pair is named.
    pub status: u8,
    /// How many bytes of [`SidrRep::info`] count.
    pub info_len: u8,
    /// Reserved bytes 6 and 7.
    pub reserved_6: u16,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// Reserved byte 11.
    pub reserved_11: u8,
    /// Who answers.
    pub service_id: ServiceId,
    /// The key that lets datagrams in.
    pub qkey: u32,
    /// What the status leaves open.
    pub info: [u8; 72],
    /// For the application that asked.
    pub private_data: [u8; 136],
}

impl Default for SidrRep {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl SidrRep {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &SidrRepView = transmute_ref!(body);
        Self {
            request_id: view.request_id.get(),
            status: view.status,
            info_len: view.info_len,
            reserved_6: view.reserved_6.get(),
            qpn: Qpn::new(get_24(view.qpn)),
            reserved_11: view.reserved_11,
            service_id: ServiceId(view.service_id.get()),
            qkey: view.qkey.get(),
            info: view.info,
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(SidrRepView {
            request_id: self.request_id.into(),
            status: self.status,
            info_len: self.info_len,
            reserved_6: self.reserved_6.into(),
            qpn: put_24(self.qpn.get()),
            reserved_11: self.reserved_11,
            service_id: self.service_id.0.into(),
            qkey: self.qkey.into(),
            info: self.info,
            private_data: self.private_data,
        })
    }
}
