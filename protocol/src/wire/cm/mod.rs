//! The communication manager's messages (IBTA volume 1, chapter 12): how two sides of a connection meet and part.
//!
//! Every message is the 232 bytes behind a [`MadHeader`] in a datagram to queue pair 1. Any 232 bytes are some value
//! of a message, reserved bits included, so reading one cannot fail; whether the value makes sense is for the
//! communication manager to judge. A message that is all zeros is its `Default`, to be filled in.

mod disconnect;
mod gid;
mod ip_cm;
mod mra;
mod path;
mod pretty;
mod rej;
mod rep;
mod req;
mod rtu;
mod service;
mod sidr;
mod subject;

pub use disconnect::{Drep, Dreq};
pub use gid::{gid_of, ip_of};
pub use ip_cm::{IP_CM_LEN, IpCm, IpCmError};
pub use mra::Mra;
pub use path::{PATH_LEN, Path};
pub use rej::{Rej, RejReason};
pub use rep::Rep;
pub use req::{Req, TransportType, mtu_code, mtu_of};
pub use rtu::Rtu;
pub use service::{PortSpace, ServiceId};
pub use sidr::{SidrRep, SidrReq};
pub use subject::Subject;

use super::mad::{self, MadBody, MadError, MadHeader};
use super::{Packet, Transport};

/// A connection is asked for.
pub const ATTR_REQ: u16 = 0x10;
/// A message was received, its answer will take time.
pub const ATTR_MRA: u16 = 0x11;
/// A connection is refused.
pub const ATTR_REJ: u16 = 0x12;
/// A connection is granted.
pub const ATTR_REP: u16 = 0x13;
/// The grant was received.
pub const ATTR_RTU: u16 = 0x14;
/// The end is asked for.
pub const ATTR_DREQ: u16 = 0x15;
/// The end is confirmed.
pub const ATTR_DREP: u16 = 0x16;
/// A service's datagram queue pair is asked for.
pub const ATTR_SIDR_REQ: u16 = 0x17;
/// A service's datagram queue pair is named.
pub const ATTR_SIDR_REP: u16 = 0x18;
/// An alternate path is proposed.
pub const ATTR_LAP: u16 = 0x19;
/// An alternate path is answered.
pub const ATTR_APR: u16 = 0x1a;

/// A message of the communication manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmMessage {
    /// A connection is asked for.
    Req(Req),
    /// A message was received, its answer will take time.
    Mra(Mra),
    /// A connection is refused.
    Rej(Rej),
    /// A connection is granted.
    Rep(Rep),
    /// The grant was received.
    Rtu(Rtu),
    /// The end is asked for.
    Dreq(Dreq),
    /// The end is confirmed.
    Drep(Drep),
    /// A service's datagram queue pair is asked for.
    SidrReq(SidrReq),
    /// A service's datagram queue pair is named.
    SidrRep(SidrRep),
    /// LAP or APR, which RoCE has no use for: only named.
    Other {
        /// [`ATTR_LAP`] or [`ATTR_APR`].
        attr_id: u16,
        /// The message as carried.
        body: MadBody,
    },
}

impl CmMessage {
    /// Reads the message of attribute `attr_id`.
    pub fn parse(attr_id: u16, body: &MadBody) -> Result<Self, MadError> {
        Ok(match attr_id {
            ATTR_REQ => Self::Req(Req::parse(body)),
            ATTR_MRA => Self::Mra(Mra::parse(body)),
            ATTR_REJ => Self::Rej(Rej::parse(body)),
            ATTR_REP => Self::Rep(Rep::parse(body)),
            ATTR_RTU => Self::Rtu(Rtu::parse(body)),
            ATTR_DREQ => Self::Dreq(Dreq::parse(body)),
            ATTR_DREP => Self::Drep(Drep::parse(body)),
            ATTR_SIDR_REQ => Self::SidrReq(SidrReq::parse(body)),
            ATTR_SIDR_REP => Self::SidrRep(SidrRep::parse(body)),
            ATTR_LAP | ATTR_APR => Self::Other { attr_id, body: *body },
            _ => return Err(MadError::UnknownAttribute),
        })
    }

    /// The message's bytes.
    pub fn emit(&self) -> MadBody {
        match self {
            Self::Req(message) => message.emit(),
            Self::Mra(message) => message.emit(),
            Self::Rej(message) => message.emit(),
            Self::Rep(message) => message.emit(),
            Self::Rtu(message) => message.emit(),
            Self::Dreq(message) => message.emit(),
            Self::Drep(message) => message.emit(),
            Self::SidrReq(message) => message.emit(),
            Self::SidrRep(message) => message.emit(),
            Self::Other { body, .. } => *body,
        }
    }

    /// The attribute that announces the message.
    pub const fn attr_id(&self) -> u16 {
        match self {
            Self::Req(_) => ATTR_REQ,
            Self::Mra(_) => ATTR_MRA,
            Self::Rej(_) => ATTR_REJ,
            Self::Rep(_) => ATTR_REP,
            Self::Rtu(_) => ATTR_RTU,
            Self::Dreq(_) => ATTR_DREQ,
            Self::Drep(_) => ATTR_DREP,
            Self::SidrReq(_) => ATTR_SIDR_REQ,
            Self::SidrRep(_) => ATTR_SIDR_REP,
            Self::Other { attr_id, .. } => *attr_id,
        }
    }

    /// The sender's and the receiver's name of the connection, in messages about one: 0 where there is none yet.
    pub const fn comm_ids(&self) -> Option<(u32, u32)> {
        match self {
            Self::Req(message) => Some((message.local_comm_id, 0)),
            Self::Mra(message) => Some((message.local_comm_id, message.remote_comm_id)),
            Self::Rej(message) => Some((message.local_comm_id, message.remote_comm_id)),
            Self::Rep(message) => Some((message.local_comm_id, message.remote_comm_id)),
            Self::Rtu(message) => Some((message.local_comm_id, message.remote_comm_id)),
            Self::Dreq(message) => Some((message.local_comm_id, message.remote_comm_id)),
            Self::Drep(message) => Some((message.local_comm_id, message.remote_comm_id)),
            Self::SidrReq(_) | Self::SidrRep(_) | Self::Other { .. } => None,
        }
    }

    /// IBTA's name of the message.
    pub const fn name(&self) -> &'static str {
        match self.attr_id() {
            ATTR_REQ => "REQ",
            ATTR_MRA => "MRA",
            ATTR_REJ => "REJ",
            ATTR_REP => "REP",
            ATTR_RTU => "RTU",
            ATTR_DREQ => "DREQ",
            ATTR_DREP => "DREP",
            ATTR_SIDR_REQ => "SIDR_REQ",
            ATTR_SIDR_REP => "SIDR_REP",
            ATTR_LAP => "LAP",
            ATTR_APR => "APR",
            _ => "UNKNOWN",
        }
    }
}

/// A management datagram of the communication manager: header and message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad {
    /// The header; its attribute is the message's, whatever it says when it is emitted.
    pub header: MadHeader,
    /// What it carries.
    pub message: CmMessage,
}

impl Mad {
    /// A datagram to send in transaction `tid`.
    pub fn new(tid: u64, message: CmMessage) -> Self {
        let attr_id = message.attr_id();
        Self { header: MadHeader { method: mad::METHOD_SEND, tid, attr_id, ..MadHeader::default() }, message }
    }

    /// Reads a whole datagram: the payload of a packet to queue pair 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, MadError> {
        let (header, body) = MadHeader::parse(bytes)?;
        if header.method != mad::METHOD_SEND {
            return Err(MadError::Method);
        }
        Ok(Self { header, message: CmMessage::parse(header.attr_id, body)? })
    }

    /// The datagram in `packet`, if that is a datagram to queue pair 1.
    pub fn of_packet(packet: &Packet<'_>) -> Option<Result<Self, MadError>> {
        let bth = &packet.headers.bth;
        let is_management = bth.opcode.transport() == Transport::Ud && bth.dest_qpn.get() == mad::QPN;
        is_management.then(|| Self::parse(packet.payload))
    }

    /// The datagram's bytes.
    pub fn emit(&self) -> [u8; mad::LEN] {
        let mut bytes = [0; mad::LEN];
        MadHeader { attr_id: self.message.attr_id(), ..self.header }.emit(&mut bytes);
        bytes[mad::HEADER_LEN..].copy_from_slice(&self.message.emit());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_every_message_survives() {
        for attr_id in ATTR_REQ..=ATTR_APR {
            for bit in 0..mad::BODY_LEN * 8 {
                let mut body = [0; mad::BODY_LEN];
                body[bit / 8] = 1 << (bit % 8);
                for body in [body, body.map(|byte| !byte)] {
                    let message = CmMessage::parse(attr_id, &body).expect("a known attribute");
                    assert_eq!(message.attr_id(), attr_id);
                    assert_eq!(message.emit(), body, "{}: bit {bit}", message.name());
                }
            }
        }
    }

    #[test]
    fn unknown_attributes_and_methods_are_refused_by_name() {
        let good = Mad::new(7, CmMessage::Rtu(Rtu::default()));
        assert_eq!(Mad::parse(&good.emit()), Ok(good));
        let mut bytes = good.emit();
        bytes[17] = 0x0f;
        assert_eq!(Mad::parse(&bytes), Err(MadError::UnknownAttribute));
        bytes[3] = 0x81;
        assert_eq!(Mad::parse(&bytes), Err(MadError::Method));
    }
}
