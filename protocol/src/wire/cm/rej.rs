//! REJ: a connection is refused (IBTA chapter 12, tables 108 and 109).

use std::fmt;

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::subject::Subject;
use crate::wire::mad::{BODY_LEN, MadBody};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RejView {
    local_comm_id: U32,
    remote_comm_id: U32,
    subject: u8,
    info_len: u8,
    reason: U16,
    info: [u8; 72],
    private_data: [u8; 148],
}
const_assert_eq!(size_of::<RejView>(), BODY_LEN);

/// Why a connection is refused (IBTA table 109; the names are those of Linux's `ib_cm_rej_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RejReason(pub u16);

macro_rules! reasons {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        #[allow(missing_docs)] // the names are IBTA's own
        impl RejReason {
            $(pub const $name: Self = Self($code);)*

            /// The reason's name, if IBTA gave it one.
            pub const fn name(self) -> Option<&'static str> {
                match self { $(Self::$name => Some($text),)* _ => None }
            }
        }
    };
}

reasons! {
    NO_QP = 1, "no_qp";
    NO_EEC = 2, "no_eec";
    NO_RESOURCES = 3, "no_resources";
    TIMEOUT = 4, "timeout";
    UNSUPPORTED = 5, "unsupported";
    INVALID_COMM_ID = 6, "invalid_comm_id";
    INVALID_COMM_INSTANCE = 7, "invalid_comm_instance";
    INVALID_SERVICE_ID = 8, "invalid_service_id";
    INVALID_TRANSPORT_TYPE = 9, "invalid_transport_type";
    STALE_CONN = 10, "stale_conn";
    RDC_NOT_EXIST = 11, "rdc_not_exist";
    INVALID_GID = 12, "invalid_gid";
    INVALID_LID = 13, "invalid_lid";
    INVALID_SL = 14, "invalid_sl";
    INVALID_TRAFFIC_CLASS = 15, "invalid_traffic_class";
    INVALID_HOP_LIMIT = 16, "invalid_hop_limit";
    INVALID_PACKET_RATE = 17, "invalid_packet_rate";
    INVALID_ALT_GID = 18, "invalid_alt_gid";
    INVALID_ALT_LID = 19, "invalid_alt_lid";
    INVALID_ALT_SL = 20, "invalid_alt_sl";
    INVALID_ALT_TRAFFIC_CLASS = 21, "invalid_alt_traffic_class";
    INVALID_ALT_HOP_LIMIT = 22, "invalid_alt_hop_limit";
    INVALID_ALT_PACKET_RATE = 23, "invalid_alt_packet_rate";
    PORT_CM_REDIRECT = 24, "port_cm_redirect";
    PORT_REDIRECT = 25, "port_redirect";
    INVALID_MTU = 26, "invalid_mtu";
    INSUFFICIENT_RESP_RESOURCES = 27, "insufficient_resp_resources";
    CONSUMER_DEFINED = 28, "consumer_defined";
    INVALID_RNR_RETRY = 29, "invalid_rnr_retry";
    DUPLICATE_LOCAL_COMM_ID = 30, "duplicate_local_comm_id";
    INVALID_CLASS_VERSION = 31, "invalid_class_version";
    INVALID_FLOW_LABEL = 32, "invalid_flow_label";
    INVALID_ALT_FLOW_LABEL = 33, "invalid_alt_flow_label";
    VENDOR_OPTION_NOT_SUPPORTED = 35, "vendor_option_not_supported";
}

impl fmt::Debug for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// A connection is refused, or given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's name of the connection; 0 if it never gave it one.
    pub local_comm_id: u32,
    /// The receiver's name of the connection.
    pub remote_comm_id: u32,
    /// The message that is refused.
    pub subject: Subject,
    /// Six reserved bits behind it.
    pub reserved_8: u8,
    /// How many bytes of [`Rej::info`] count, 7 bits.
    pub info_len: u8,
    /// The reserved bit behind it.
    pub reserved_9: bool,
    /// Why.
    pub reason: RejReason,
    /// What the reason leaves open, such as the value that would have been accepted.
    pub info: [u8; 72],
    /// For the other side; it counts if the reason is [`RejReason::CONSUMER_DEFINED`].
    pub private_data: [u8; 148],
}

impl Default for Rej {
    fn default() -> Self {
        Self::parse(&[0; BODY_LEN])
    }
}

impl Rej {
    /// Reads the message.
    pub fn parse(body: &MadBody) -> Self {
        let view: &RejView = transmute_ref!(body);
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            subject: Subject::from_wire(view.subject),
            reserved_8: view.subject & 0x3f,
            info_len: view.info_len >> 1,
            reserved_9: view.info_len & 1 != 0,
            reason: RejReason(view.reason.get()),
            info: view.info,
            private_data: view.private_data,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        transmute!(RejView {
            local_comm_id: self.local_comm_id.into(),
            remote_comm_id: self.remote_comm_id.into(),
            subject: self.subject.to_wire() | self.reserved_8 & 0x3f,
            info_len: self.info_len << 1 | u8::from(self.reserved_9),
            reason: self.reason.0.into(),
            info: self.info,
            private_data: self.private_data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_print_their_name_or_their_number() {
        assert_eq!(RejReason(8).to_string(), "invalid_service_id");
        assert_eq!(RejReason(28), RejReason::CONSUMER_DEFINED);
        assert_eq!(RejReason(34).to_string(), "reason 34");
    }
}
