//! One message in a few words, for people.

use std::fmt;

use super::{CmMessage, IpCm, Mad, Rep, Req, ServiceId, SidrRep, SidrReq, TransportType, mtu_of};

impl fmt::Display for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tid={:#x}", self.message.name(), self.header.tid)?;
        match self.message.comm_ids() {
            Some((local, 0)) => write!(f, " local={local:#010x}")?,
            Some((local, remote)) => write!(f, " local={local:#010x} remote={remote:#010x}")?,
            None => {}
        }
        write_fields(f, &self.message)
    }
}

/// The fields of a message, each after a blank.
fn write_fields(f: &mut fmt::Formatter<'_>, message: &CmMessage) -> fmt::Result {
    match message {
        CmMessage::Req(req) => write_req(f, req),
        CmMessage::Mra(mra) => write!(f, " of={} service_timeout={}", mra.subject.name(), mra.service_timeout),
        CmMessage::Rej(rej) => write!(f, " of={} reason={}", rej.subject.name(), rej.reason),
        CmMessage::Rep(rep) => write_rep(f, rep),
        CmMessage::Dreq(dreq) => write!(f, " remote_qpn={}", dreq.remote_qpn),
        CmMessage::SidrReq(req) => write_sidr_req(f, req),
        CmMessage::SidrRep(rep) => write_sidr_rep(f, rep),
        CmMessage::Rtu(_) | CmMessage::Drep(_) | CmMessage::Other { .. } => Ok(()),
    }
}

fn write_req(f: &mut fmt::Formatter<'_>, req: &Req) -> fmt::Result {
    let path = &req.primary_path;
    write!(f, " service={} qpn={}", req.service_id, req.qpn)?;
    write!(f, " psn={} transport={}", req.starting_psn, req.transport.name())?;
    write!(f, " resources={} depth={}", req.responder_resources, req.initiator_depth)?;
    match mtu_of(req.path_mtu) {
        Some(mtu) => write!(f, " mtu={}", mtu.bytes())?,
        None => write!(f, " mtu_code={}", req.path_mtu)?,
    }
    write!(f, " retry={} rnr_retry={} ack_timeout={}", req.retry_count, req.rnr_retry_count, path.ack_timeout)?;
    write!(f, " cm_timeout={} cm_retries={}", req.remote_response_timeout, req.max_cm_retries)?;
    write_ip_cm(f, req.service_id, &req.private_data)
}

/// The IP addressing header, where the service is a port and the header is one.
fn write_ip_cm(f: &mut fmt::Formatter<'_>, service: ServiceId, private_data: &[u8]) -> fmt::Result {
    match (service.port(), IpCm::parse(private_data)) {
        (Some(_), Ok((ip, _))) => {
            write!(f, " ip[{} port={} > {}]", ip.source(), ip.source_port, ip.destination())
        }
        _ => Ok(()),
    }
}

fn write_rep(f: &mut fmt::Formatter<'_>, rep: &Rep) -> fmt::Result {
    write!(f, " qpn={} psn={}", rep.qpn, rep.starting_psn)?;
    write!(f, " resources={} depth={}", rep.responder_resources, rep.initiator_depth)?;
    write!(f, " rnr_retry={} ack_delay={}", rep.rnr_retry_count, rep.target_ack_delay)
}

fn write_sidr_req(f: &mut fmt::Formatter<'_>, req: &SidrReq) -> fmt::Result {
    write!(f, " request={:#010x} service={} pkey={}", req.request_id, req.service_id, req.pkey)?;
    write_ip_cm(f, req.service_id, &req.private_data)
}

fn write_sidr_rep(f: &mut fmt::Formatter<'_>, rep: &SidrRep) -> fmt::Result {
    write!(f, " request={:#010x} status={} service={}", rep.request_id, rep.status, rep.service_id)?;
    write!(f, " qpn={} qkey={:#010x}", rep.qpn, rep.qkey)
}

impl TransportType {
    /// The name that captures print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Rd => "rd",
            Self::Extended => "extended",
        }
    }
}
