//! What each side's queue pair brings into a connection.

use std::net::IpAddr;

use super::{CmConfig, CmError, Route};
use crate::wire::cm::{IP_CM_LEN, IpCm, Path, Rep, Req, ServiceId, TransportType, gid_of, mtu_code, mtu_of};
use crate::{Mtu, Psn, Qpn};

/// Linux's value for a LID where there are none.
const NO_LID: u16 = 0xffff;

/// Our side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Our queue pair.
    pub qpn: Qpn,
    /// The PSN at which the peer shall start to send: the one that our responder expects first.
    pub starting_psn: Psn,
    /// READs and atomics that we serve at a time.
    pub responder_resources: u8,
    /// READs and atomics that we start at a time.
    pub initiator_depth: u8,
    /// REQ only: how often the peer sends again after a timeout or sequence error, up to 7.
    pub retry_count: u8,
    /// How often the peer sends again after "receiver not ready", up to 7, which has no end.
    pub rnr_retry_count: u8,
    /// Our queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// We honour end-to-end credits.
    pub end_to_end_credits: bool,
    /// REQ only: the path's MTU.
    pub mtu: Mtu,
    /// REQ only: the code of how long the peer waits for an acknowledgement.
    pub ack_timeout: u8,
    /// REQ only: the 20-bit flow label.
    pub flow_label: u32,
    /// REQ only: DSCP and ECN.
    pub traffic_class: u8,
    /// REQ only: hop limit.
    pub hop_limit: u8,
}

/// The peer's side of a connection: what our queue pair is to be set to.
///
/// What a REP does not say (MTU, retries, path) is as we offered it in the REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The PSN at which we shall start to send.
    pub starting_psn: Psn,
    /// READs and atomics that the peer serves at a time: our limit on those we start.
    pub responder_resources: u8,
    /// READs and atomics that the peer starts at a time: what we should serve.
    pub initiator_depth: u8,
    /// The path's MTU; `None` for a code that IBTA does not have.
    pub mtu: Option<Mtu>,
    /// How often we send again after a timeout or sequence error.
    pub retry_count: u8,
    /// How often we send again after "receiver not ready"; 7 has no end.
    pub rnr_retry_count: u8,
    /// The code of how long we wait for an acknowledgement.
    pub ack_timeout: u8,
    /// The peer's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// The peer honours end-to-end credits.
    pub end_to_end_credits: bool,
    /// The flow label.
    pub flow_label: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Terms {
    /// What a REQ says.
    pub(super) fn of_req(req: &Req) -> Self {
        let path = &req.primary_path;
        Self {
            qpn: req.qpn,
            starting_psn: req.starting_psn,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            mtu: mtu_of(req.path_mtu),
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: path.ack_timeout,
            srq: req.srq,
            end_to_end_credits: req.end_to_end_flow_control,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
        }
    }

    /// What a REP says, and what our `offer` that it answers said.
    pub(super) fn of_rep(rep: &Rep, offer: &Offer) -> Self {
        Self {
            qpn: rep.qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            mtu: Some(offer.mtu),
            retry_count: offer.retry_count,
            rnr_retry_count: rep.rnr_retry_count,
            ack_timeout: sum_of_codes(offer.ack_timeout, rep.target_ack_delay),
            srq: rep.srq,
            end_to_end_credits: rep.end_to_end_flow_control,
            flow_label: offer.flow_label,
            traffic_class: offer.traffic_class,
            hop_limit: offer.hop_limit,
        }
    }
}

/// A code for the sum of two coded times: the next one if they are alike, else the longer one, as the shorter is then
/// less than half of it.
fn sum_of_codes(a: u8, b: u8) -> u8 {
    let (short, long) = (a.min(b), a.max(b));
    (long + u8::from(short + 1 >= long)).min(31)
}

/// The REQ of `offer`, its private data and its name of the connection left open.
pub(super) fn req_of<R: Route>(config: &CmConfig, route: R, service: ServiceId, offer: &Offer) -> Result<Req, CmError> {
    Ok(Req {
        service_id: service,
        ca_guid: config.ca_guid,
        qpn: offer.qpn,
        responder_resources: offer.responder_resources,
        initiator_depth: offer.initiator_depth,
        remote_response_timeout: config.response_timeout.min(31),
        transport: TransportType::Rc,
        end_to_end_flow_control: offer.end_to_end_credits,
        starting_psn: offer.starting_psn,
        local_response_timeout: config.response_timeout.min(31),
        retry_count: offer.retry_count.min(7),
        pkey: route.pkey(),
        path_mtu: mtu_code(offer.mtu).ok_or(CmError::Mtu)?,
        rnr_retry_count: offer.rnr_retry_count.min(7),
        max_cm_retries: config.max_retries.min(15),
        srq: offer.srq,
        primary_path: path_of(route, offer),
        ..Req::default()
    })
}

fn path_of<R: Route>(route: R, offer: &Offer) -> Path {
    Path {
        local_lid: NO_LID,
        remote_lid: NO_LID,
        local_gid: gid_of(route.local_ip()),
        remote_gid: gid_of(route.remote_ip()),
        flow_label: offer.flow_label & 0xf_ffff,
        traffic_class: offer.traffic_class,
        hop_limit: offer.hop_limit,
        ack_timeout: offer.ack_timeout.min(31),
        ..Path::default()
    }
}

/// The REP of `offer`, the names of the connection left open.
pub(super) fn rep_of(config: &CmConfig, offer: &Offer, data: &[u8]) -> Result<Rep, CmError> {
    Ok(Rep {
        qpn: offer.qpn,
        starting_psn: offer.starting_psn,
        responder_resources: offer.responder_resources,
        initiator_depth: offer.initiator_depth,
        target_ack_delay: config.ack_delay.min(31),
        end_to_end_flow_control: offer.end_to_end_credits,
        rnr_retry_count: offer.rnr_retry_count.min(7),
        srq: offer.srq,
        ca_guid: config.ca_guid,
        private_data: padded(data)?,
        ..Rep::default()
    })
}

/// Private data for a message with room for `N` bytes.
pub(super) fn padded<const N: usize>(data: &[u8]) -> Result<[u8; N], CmError> {
    let mut bytes = [0; N];
    let room = bytes.get_mut(..data.len()).ok_or(CmError::PrivateData { len: data.len(), limit: N })?;
    room.copy_from_slice(data);
    Ok(bytes)
}

/// Private data for a message to `service`: behind an addressing header, if that is a port.
pub(super) fn addressed<const N: usize, R: Route>(
    route: R,
    service: ServiceId,
    source_port: u16,
    data: &[u8],
) -> Result<[u8; N], CmError> {
    let header = IpCm::between(route.local_ip(), source_port, route.remote_ip()).ok_or(CmError::IpVersion)?;
    if service.port().is_none() {
        return padded(data);
    }
    let limit = N - IP_CM_LEN;
    let mut bytes = [0; N];
    let room = bytes[IP_CM_LEN..].get_mut(..data.len()).ok_or(CmError::PrivateData { len: data.len(), limit })?;
    room.copy_from_slice(data);
    header.emit(&mut bytes);
    Ok(bytes)
}

/// Private data of a REQ, and the source address from the IP addressing header in front of it.
pub(super) struct IpPrivateData<'a> {
    /// Who asks.
    pub(super) source: Option<(IpAddr, u16)>,
    /// Private data for the application.
    pub(super) private_data: &'a [u8],
}

/// Why a peer's addressing header was not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadAddressing {
    /// There is none.
    Malformed,
    /// It names others than the packet that carried it.
    Others,
}

/// Who asks for `service`, and the application's private data: reads and checks the addressing header, if that is a
/// port.
pub(super) fn asker<R: Route>(
    route: R,
    service: ServiceId,
    private_data: &[u8],
) -> Result<IpPrivateData<'_>, BadAddressing> {
    if service.port().is_none() {
        return Ok(IpPrivateData { source: None, private_data });
    }
    let (header, private_data) = IpCm::parse(private_data).map_err(|_| BadAddressing::Malformed)?;
    if (header.source(), header.destination()) != (route.remote_ip(), route.local_ip()) {
        return Err(BadAddressing::Others);
    }
    Ok(IpPrivateData { source: Some((header.source(), header.source_port)), private_data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_times_add_up_to_the_next_code() {
        let sums =
            [(19, 15), (15, 15), (14, 15), (13, 15), (0, 0), (31, 31), (15, 20)].map(|(a, b)| sum_of_codes(a, b));
        assert_eq!(sums, [19, 16, 16, 15, 1, 31, 20]);
    }

    #[test]
    fn private_data_has_its_limit() {
        assert_eq!(padded::<3>(&[1, 2]), Ok([1, 2, 0]));
        assert_eq!(padded::<3>(&[0; 4]), Err(CmError::PrivateData { len: 4, limit: 3 }));
    }
}
