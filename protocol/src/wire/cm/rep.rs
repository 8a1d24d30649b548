//! REP: a connection is granted (IBTA chapter 12, table 110).

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use crate::wire::bth::{get_24, put_24};
use crate::wire::mad::{BODY_LEN, MadBody};
use crate::{Psn, Qpn};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RepView {
    local_comm_id: U32,
    remote_comm_id: U32,
    qkey: U32,
    qpn: [u8; 3],
    vendor_id_high: u8,
    local_eecn: [u8; 3],
    vendor_id_middle: u8,
    starting_psn: [u8; 3],
    vendor_id_low: u8,
    responder_resources: u8,
    initiator_depth: u8,
    delay_failover_flow: u8,
    rnr_srq: u8,
    ca_guid: U64,
    private_data: [u8; 196],
}
const_assert_eq!(size_of::<RepView>(), BODY_LEN);

/// A connection is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// The receiver's name of the connection.
    pub remote_comm_id: u32,
    /// Reliable datagram only.
    pub qkey: u32,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// Reliable datagram only, 24 bits.
    pub local_eecn: u32,
    /// The PSN at which the receiver of this message shall start to send.
    pub starting_psn: Psn,
    /// Whose extensions the sender knows (Linux's ECE), 24 bits in bytes 15, 19 and 23; 0 for none.
    pub vendor_id: u32,
    /// READs and atomics that the sender serves at a time: the receiver's limit on those it starts.
    pub responder_resources: u8,
    /// READs and atomics that the sender starts at a time.
    pub initiator_depth: u8,
    /// How long the sender may take to acknowledge: 4.096 us times 2 to the power of these 5 bits.
    pub target_ack_delay: u8,
    /// What became of the alternate path, 2 bits: 0 accepted, 1 not supported, 2 refused.
    pub failover_accepted: u8,
    /// The sender honours end-to-end credits.
    pub end_to_end_flow_control: bool,
    /// How often the receiver's queue pair sends again after "receiver not ready", 3 bits; 7 has no end.
    pub rnr_retry_count: u8,
    /// The sender's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// Four reserved bits behind it.
    pub reserved_srq: u8,
    /// The sender's adapter.
    pub ca_guid: u64,
    /// For the active side's application.
    pub private_data: [u8; 196],
}

impl Default for Rep {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Rep {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &RepView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            qkey: view.qkey.get(),
            qpn: Qpn::new(get_24(view.qpn)),
            local_eecn: get_24(view.local_eecn),
            starting_psn: Psn::new(get_24(view.starting_psn)),
            vendor_id: get_24([view.vendor_id_high, view.vendor_id_middle, view.vendor_id_low]),
            responder_resources: view.responder_resources,
            initiator_depth: view.initiator_depth,
            target_ack_delay: view.delay_failover_flow >> 3,
            failover_accepted: view.delay_failover_flow >> 1 & 3,
            end_to_end_flow_control: view.delay_failover_flow & 1 != 0,
            rnr_retry_count: view.rnr_srq >> 5,
            srq: view.rnr_srq & 0x10 != 0,
            reserved_srq: view.rnr_srq & 0x0f,
            ca_guid: view.ca_guid.get(),
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        let [vendor_id_high, vendor_id_middle, vendor_id_low] = put_24(self.vendor_id);
        let (flow, srq) = (u8::from(self.end_to_end_flow_control), u8::from(self.srq) << 4);
        transmute!(RepView {
            local_comm_id: self.local_comm_id.into(),
            remote_comm_id: self.remote_comm_id.into(),
            qkey: self.qkey.into(),
            qpn: put_24(self.qpn.get()),
            vendor_id_high,
            local_eecn: put_24(self.local_eecn),
            vendor_id_middle,
            starting_psn: put_24(self.starting_psn.get()),
            vendor_id_low,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            delay_failover_flow: self.target_ack_delay << 3 | (self.failover_accepted & 3) << 1 | flow,
            rnr_srq: self.rnr_retry_count << 5 | srq | self.reserved_srq & 0x0f,
            ca_guid: self.ca_guid.into(),
            private_data: self.private_data,
        })
    }
}
