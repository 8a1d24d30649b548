//! The terms that two ends meet on: what a queue pair offers, and how it is connected on what was agreed.

use roci_protocol::cm::{Offer, Terms};
use roci_protocol::rc::{self, Dialect};
use roci_protocol::{Mtu, Psn, Qpn};

use super::Engine;
use crate::cm::{Beyond, CmCallError, CmRoute};
use crate::engine::poll::ECN;
use crate::handles::QueuePair;
use crate::link::Link;
use crate::qp::{QpParams, UnconnectedQp};

/// Endless RNR retries, as three bits say it.
const RNR_FOR_EVER: u8 = 7;
/// Retries fit three bits.
const MAX_RETRIES: u32 = 7;

impl<L: Link> Engine<L> {
    /// Connects a queue pair on terms that came in band.
    pub(super) fn join(
        &mut self,
        qp: UnconnectedQp,
        way: CmRoute,
        terms: Terms,
        beyond: Beyond,
        params: &QpParams,
    ) -> Result<QueuePair, CmCallError> {
        // A REP has no word for the MTU: the one in the REQ is what both use.
        let Some(mtu) = terms.mtu.filter(|&mtu| mtu <= qp.mtu) else {
            self.discard_qp(qp);
            return Err(CmCallError::PathMtu);
        };
        let rnr_retry_limit = (terms.rnr_retry_count < RNR_FOR_EVER).then_some(terms.rnr_retry_count.into());
        let config = rc::Config {
            dest_qpn: terms.qpn,
            mtu,
            sq_psn: terms.starting_psn,
            rq_psn: qp.psn,
            max_rd_atomic: params.max_rd_atomic.min(terms.responder_resources.into()),
            max_dest_rd_atomic: params.max_rd_atomic.min(terms.initiator_depth.into()),
            dialect: beyond.dialect,
            rnr_retry_limit,
            retry_limit: retry_limit(beyond.dialect, params, terms),
            end_to_end_credits: params.end_to_end_credits && terms.end_to_end_credits,
            ..params.base(qp.shared.is_some())
        };
        let params = QpParams { icrc: beyond.icrc, ..params.clone() };
        Ok(self.establish(qp, way.mac, way.theirs, config, &params)?)
    }
}

/// What a REQ says of a queue pair.
pub(super) fn offer(qp: &UnconnectedQp, params: &QpParams) -> Result<Offer, CmCallError> {
    params.check()?;
    Ok(Offer {
        qpn: qp.qp.0,
        starting_psn: qp.psn,
        mtu: qp.mtu.min(params.mtu).min(Mtu::Mtu4096),
        srq: qp.shared.is_some(),
        ..basic_offer(params, None)
    })
}

/// How the passive side behaves, by what the REQ says (IBTA 12.7): its packets have the traffic class that the peer asks for,
/// so that acknowledgements and READ responses travel as the requests do, and it waits for as long as the peer may take.
pub(super) fn as_asked(params: &QpParams, terms: Terms) -> QpParams {
    let asked = rc::ack_timeout_ns(terms.ack_timeout);
    // Who may be marked is for this side's congestion control to say.
    let traffic_class = terms.traffic_class & !ECN;
    let ack_timeout_ns = if params.ack_timeout_ns == 0 || asked == 0 { 0 } else { params.ack_timeout_ns.max(asked) };
    QpParams {
        ack_timeout_ns,
        ack_timeout_max_ns: params.ack_timeout_max_ns.max(ack_timeout_ns),
        traffic_class: if traffic_class == 0 { params.traffic_class } else { traffic_class },
        flow_label: if terms.flow_label == 0 { params.flow_label } else { terms.flow_label },
        ..params.clone()
    }
}

/// Waits before the peer is given up. A REQ has three bits for that: between two ends of this stack's own dialect the
/// most that they can say means as many as each end wants.
fn retry_limit(dialect: Dialect, params: &QpParams, terms: Terms) -> u32 {
    match u32::from(terms.retry_count) {
        MAX_RETRIES if dialect == Dialect::Rocinante => params.retry_limit.max(MAX_RETRIES),
        asked => asked,
    }
}

/// What an offer says of the queue pair's behaviour.
pub(super) fn basic_offer(params: &QpParams, terms: Option<Terms>) -> Offer {
    let depth = params.max_rd_atomic.min(u8::MAX.into()) as u8;
    Offer {
        qpn: Qpn::default(),
        starting_psn: Psn::default(),
        responder_resources: depth,
        initiator_depth: depth,
        retry_count: params.retry_limit.min(MAX_RETRIES) as u8,
        rnr_retry_count: params.rnr_retry_limit.map_or(RNR_FOR_EVER, |limit| limit.min(6) as u8),
        srq: false,
        end_to_end_credits: params.end_to_end_credits,
        mtu: params.mtu.min(Mtu::Mtu4096),
        ack_timeout: rc::ack_timeout_code(params.ack_timeout_ns),
        flow_label: terms.map_or(params.flow_label, |terms| terms.flow_label),
        traffic_class: params.traffic_class,
        hop_limit: 64,
    }
}
