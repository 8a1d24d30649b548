//! REQ: a connection is asked for (IBTA chapter 12, table 106).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::path::{PATH_LEN, Path};
use super::service::ServiceId;
use crate::wire::bth::{get_24, put_24};
use crate::wire::mad::{BODY_LEN, MadBody};
use crate::{Mtu, Pkey, Psn, Qpn};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReqView {
    local_comm_id: U32,
    reserved_4: u8,
    vendor_id: [u8; 3],
    service_id: U64,
    ca_guid: U64,
    reserved_24: U32,
    qkey: U32,
    qpn: [u8; 3],
    responder_resources: u8,
    local_eecn: [u8; 3],
    initiator_depth: u8,
    remote_eecn: [u8; 3],
    timeout_transport_flow: u8,
    starting_psn: [u8; 3],
    timeout_retry: u8,
    pkey: U16,
    mtu_rdc_rnr: u8,
    retries_srq_extended: u8,
    primary_path: [u8; PATH_LEN],
    alternate_path: [u8; PATH_LEN],
    private_data: [u8; 92],
}
const_assert_eq!(size_of::<ReqView>(), BODY_LEN);

/// The transport service that a connection is asked for with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TransportType {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// [`Req::extended_transport`] says which.
    Extended = 3,
}

impl TransportType {
    /// Decodes the low two bits.
    const fn from_wire(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }
}

/// A connection is asked for.
///
/// Timeouts are codes: 4.096 us times 2 to the power of the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// Reserved byte 4.
    pub reserved_4: u8,
    /// Whose extensions the sender knows (Linux's ECE), 24 bits; 0 for none.
    pub vendor_id: u32,
    /// Who should answer.
    pub service_id: ServiceId,
    /// The sender's adapter.
    pub ca_guid: u64,
    /// Reserved bytes 24 to 27.
    pub reserved_24: u32,
    /// Reliable datagram only.
    pub qkey: u32,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the sender serves at a time: the receiver's limit on those it starts.
    pub responder_resources: u8,
    /// Reliable datagram only, 24 bits.
    pub local_eecn: u32,
    /// READs and atomics that the sender wants to start at a time.
    pub initiator_depth: u8,
    /// Reliable datagram only, 24 bits.
    pub remote_eecn: u32,
    /// How soon the receiver should answer, 5 bits.
    pub remote_response_timeout: u8,
    /// The transport service.
    pub transport: TransportType,
    /// The sender honours end-to-end credits.
    pub end_to_end_flow_control: bool,
    /// The PSN at which the receiver of this message shall start to send.
    pub starting_psn: Psn,
    /// How soon the sender answers, 5 bits.
    pub local_response_timeout: u8,
    /// How often the receiver's queue pair sends again after a timeout or a sequence error, 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: Pkey,
    /// The path MTU's code, 4 bits: see [`mtu_of`].
    pub path_mtu: u8,
    /// Reliable datagram only.
    pub rdc_exists: bool,
    /// How often the receiver's queue pair sends again after "receiver not ready", 3 bits; 7 has no end.
    pub rnr_retry_count: u8,
    /// How often a message of the communication manager is sent again, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// The transport service where [`TransportType::Extended`] leaves it open, 3 bits.
    pub extended_transport: u8,
    /// The path that the connection takes.
    pub primary_path: Path,
    /// The path that it may move to, as carried: [`Path::parse`] reads it. All zeros for none.
    pub alternate_path: [u8; PATH_LEN],
    /// For the passive side's application; it starts with an [`IpCm`](super::IpCm) header if the service is a port.
    pub private_data: [u8; 92],
}

impl Default for Req {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Req {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &ReqView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            reserved_4: view.reserved_4,
            vendor_id: get_24(view.vendor_id),
            service_id: ServiceId(view.service_id.get()),
            ca_guid: view.ca_guid.get(),
            reserved_24: view.reserved_24.get(),
            qkey: view.qkey.get(),
            qpn: Qpn::new(get_24(view.qpn)),
            responder_resources: view.responder_resources,
            local_eecn: get_24(view.local_eecn),
            initiator_depth: view.initiator_depth,
            remote_eecn: get_24(view.remote_eecn),
            remote_response_timeout: view.timeout_transport_flow >> 3,
            transport: TransportType::from_wire(view.timeout_transport_flow >> 1),
            end_to_end_flow_control: view.timeout_transport_flow & 1 != 0,
            starting_psn: Psn::new(get_24(view.starting_psn)),
            local_response_timeout: view.timeout_retry >> 3,
            retry_count: view.timeout_retry & 7,
            pkey: Pkey(view.pkey.get()),
            path_mtu: view.mtu_rdc_rnr >> 4,
            rdc_exists: view.mtu_rdc_rnr & 8 != 0,
            rnr_retry_count: view.mtu_rdc_rnr & 7,
            max_cm_retries: view.retries_srq_extended >> 4,
            srq: view.retries_srq_extended & 8 != 0,
            extended_transport: view.retries_srq_extended & 7,
            primary_path: Path::parse(&view.primary_path),
            alternate_path: view.alternate_path,
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        let flow = u8::from(self.end_to_end_flow_control);
        let (rdc, srq) = (u8::from(self.rdc_exists) << 3, u8::from(self.srq) << 3);
        transmute!(ReqView {
            local_comm_id: self.local_comm_id.into(),
            reserved_4: self.reserved_4,
            vendor_id: put_24(self.vendor_id),
            service_id: self.service_id.0.into(),
            ca_guid: self.ca_guid.into(),
            reserved_24: self.reserved_24.into(),
            qkey: self.qkey.into(),
            qpn: put_24(self.qpn.get()),
            responder_resources: self.responder_resources,
            local_eecn: put_24(self.local_eecn),
            initiator_depth: self.initiator_depth,
            remote_eecn: put_24(self.remote_eecn),
            timeout_transport_flow: self.remote_response_timeout << 3 | (self.transport as u8) << 1 | flow,
            starting_psn: put_24(self.starting_psn.get()),
            timeout_retry: self.local_response_timeout << 3 | self.retry_count & 7,
            pkey: self.pkey.0.into(),
            mtu_rdc_rnr: self.path_mtu << 4 | rdc | self.rnr_retry_count & 7,
            retries_srq_extended: self.max_cm_retries << 4 | srq | self.extended_transport & 7,
            primary_path: self.primary_path.emit(),
            alternate_path: self.alternate_path,
            private_data: self.private_data,
        })
    }
}

/// The MTU that a code names: 1 for 256 bytes to 5 for 4096.
pub fn mtu_of(code: u8) -> Option<Mtu> {
    Mtu::ALL.into_iter().find(|&mtu| mtu_code(mtu) == Some(code))
}

/// The code of an MTU, which IBTA's five have.
pub const fn mtu_code(mtu: Mtu) -> Option<u8> {
    match mtu {
        Mtu::Mtu8192 => None,
        _ => Some(mtu as u8 + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_are_those_of_ibta() {
        let names = [0, 1, 2, 3, 4, 5, 6, 15].map(|code| mtu_of(code).map(Mtu::bytes));
        assert_eq!(names, [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), None, None]);
    }

    #[test]
    fn fields_lie_where_table_106_puts_them() {
        let body = Req {
            local_comm_id: 0x0102_0304,
            qpn: Qpn::new(0x0a_0b0c),
            remote_response_timeout: 20,
            transport: TransportType::Uc,
            end_to_end_flow_control: true,
            local_response_timeout: 31,
            retry_count: 5,
            path_mtu: 3,
            rnr_retry_count: 6,
            max_cm_retries: 15,
            srq: true,
            private_data: [0xee; 92],
            ..Req::default()
        }
        .emit();
        assert_eq!(body[..4], [1, 2, 3, 4]);
        assert_eq!(body[32..35], [0x0a, 0x0b, 0x0c]);
        assert_eq!((body[43], body[47], body[50], body[51]), (0xa3, 0xfd, 0x36, 0xf8));
        assert_eq!((body[139], body[140]), (0, 0xee));
    }
}
