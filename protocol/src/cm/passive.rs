//! The side that is connected to: REQ in, REP or REJ out, RTU or a first packet in (IBTA 12.9.6).

use super::connections::{Connection, LastSaid, PeerIds};
use super::offer::{BadAddressing, IpPrivateData, asker, padded, rep_of};
use super::patience::Patience;
use super::state::{Input, Transition};
use super::{
    CmConfig, CmError, CmState, ConnId, ConnectionEvent, ConnectionManager, Ending, Offer, PrivateData, Route, Terms,
};
use crate::Nanos;
use crate::wire::cm::{CmMessage, Rej, RejReason, Rep, Req, Rtu, Subject, TransportType, mtu_of};

impl<R: Route> ConnectionManager<R> {
    /// Grants a request; private data of up to 196 bytes. The queue pair must be ready to receive: the peer's packets
    /// may come before its RTU, see [`ConnectionManager::on_communication_established`].
    pub fn accept(&mut self, now: Nanos, id: ConnId, offer: Offer, private_data: &[u8]) -> Result<(), CmError> {
        self.may(id, Input::Accept)?;
        let rep = rep_of(&self.config, &offer, private_data)?;
        self.step(now, id, Input::Accept);
        let Some(connection) = self.connections.get_mut(id) else { return Ok(()) };
        connection.offer = Some(offer);
        let remote_comm_id = connection.peer.map_or(0, |peer| peer.comm_id);
        let tid = connection.tid;
        self.say_until_answered(now, id, tid, CmMessage::Rep(Rep { local_comm_id: id.0, remote_comm_id, ..rep }));
        Ok(())
    }

    /// Refuses a request; private data of up to 148 bytes. What is left is [`ConnectionEvent::TimewaitExit`], at once:
    /// nothing is kept of whom we refuse, so a peer that misses the refusal and asks again is a new request.
    pub fn reject(&mut self, now: Nanos, id: ConnId, reason: RejReason, private_data: &[u8]) -> Result<(), CmError> {
        self.may(id, Input::Reject)?;
        let private_data = padded(private_data)?;
        self.step(now, id, Input::Reject);
        self.stats.rejected += 1;
        self.end_silently(id);
        self.say_rej(id, Subject::Req, reason, private_data);
        self.step(now, id, Input::Timeout);
        Ok(())
    }

    /// The queue pair has received its first packet, so the peer has the REP: as good as an RTU (IBTA 12.9.6,
    /// `IB_EVENT_COMM_EST`). It may be said of any connection at any time.
    pub fn on_communication_established(&mut self, now: Nanos, id: ConnId) {
        self.step(now, id, Input::Data);
    }

    pub(super) fn on_rtu(&mut self, now: Nanos, route: R, rtu: &Rtu) {
        let found = self.connections.find(route, rtu.remote_comm_id, rtu.local_comm_id);
        self.take_found(now, found, Input::Rtu);
    }

    pub(super) fn on_req(&mut self, now: Nanos, route: R, tid: u64, req: &Req) {
        match self.connections.find_queue_pair(route, req.ca_guid, req.qpn) {
            Some(id) if self.is_asked_by(id, req) => self.on_req_again(now, id, route, tid, req),
            Some(id) => {
                self.forgotten_by_peer(now, id);
                self.refuse_req(route, tid, req, RejReason::STALE_CONN);
            }
            None => self.on_new_req(now, route, tid, req),
        }
    }

    fn is_asked_by(&self, id: ConnId, req: &Req) -> bool {
        let peer = self.connections.get(id).and_then(|connection| connection.peer);
        peer.is_some_and(|peer| peer.comm_id == req.local_comm_id)
    }

    /// The REQ of a connection that there is. One that is over without our having refused it is not to begin again.
    fn on_req_again(&mut self, now: Nanos, id: ConnId, route: R, tid: u64, req: &Req) {
        let connection = self.connections.get(id);
        let is_over =
            connection.is_some_and(|it| it.state == CmState::Timewait && matches!(it.said, LastSaid::Nothing));
        if is_over {
            self.stats.rx_duplicate += 1;
            self.refuse_req(route, tid, req, RejReason::STALE_CONN);
        } else {
            self.take(now, id, Input::Req);
        }
    }

    /// A peer's queue pair is to be in a new connection: the one it is in is over, and the peer has to wait for that.
    pub(super) fn forgotten_by_peer(&mut self, now: Nanos, id: ConnId) {
        self.stats.stale_connections += 1;
        if let Transition::To(_) = self.step(now, id, Input::Stale) {
            self.end(id, &ConnectionEvent::Disconnected { id, ending: Ending::Stale });
            self.say_dreq(now, id, [0; 220]);
        }
    }

    fn on_new_req(&mut self, now: Nanos, route: R, tid: u64, req: &Req) {
        match self.admit(route, req) {
            Ok(asker) => {
                let id = self.begin_passive(now, route, tid, req);
                self.events.push_back(ConnectionEvent::Request {
                    id,
                    service: req.service_id,
                    remote: Terms::of_req(req),
                    source: asker.source,
                    destination: route.local_ip(),
                    private_data: PrivateData::copy_of(asker.private_data),
                });
            }
            Err(Some(reason)) => self.refuse_req(route, tid, req, reason),
            Err(None) => self.stats.req_events_full += 1,
        }
    }

    /// Whether the application gets to see a REQ; if not, the reason to refuse it with, or none to stay silent.
    fn admit<'a>(&mut self, route: R, req: &'a Req) -> Result<IpPrivateData<'a>, Option<RejReason>> {
        if req.transport != TransportType::Rc {
            self.stats.req_wrong_transport += 1;
            return Err(Some(RejReason::INVALID_TRANSPORT_TYPE));
        }
        if !route.pkey().hears(req.pkey) {
            self.stats.req_wrong_partition += 1;
            return Err(Some(RejReason::UNSUPPORTED));
        }
        if !self.listeners.contains(req.service_id) {
            self.stats.req_no_service += 1;
            return Err(Some(RejReason::INVALID_SERVICE_ID));
        }
        // A REP has no word for another MTU.
        if mtu_of(req.path_mtu).is_none_or(|mtu| mtu > route.mtu()) {
            self.stats.req_wrong_mtu += 1;
            return Err(Some(RejReason::INVALID_MTU));
        }
        let asker = asker(route, req.service_id, &req.private_data).map_err(|why| Some(self.refusal_of(why)))?;
        if self.listeners.pending(req.service_id) >= self.config.max_pending_requests {
            self.stats.req_backlog_full += 1;
            return Err(Some(RejReason::NO_RESOURCES));
        }
        match self.has_room_for(route) {
            Ok(()) => Ok(asker),
            Err(CmError::EventsFull) => Err(None),
            Err(_) => {
                self.stats.req_no_resources += 1;
                Err(Some(RejReason::NO_RESOURCES))
            }
        }
    }

    /// Whether a peer may have another connection here: an address has no more of them than are left for others, and some
    /// places are for our own connects.
    fn has_room_for(&self, route: R) -> Result<(), CmError> {
        self.has_room()?;
        let CmConfig { max_connections, reserved_connections, .. } = self.config;
        let for_others = max_connections - reserved_connections.min(max_connections / 2);
        let left = for_others.saturating_sub(self.len());
        if self.connections.with(route.remote_ip()) < left { Ok(()) } else { Err(CmError::TooManyConnections) }
    }

    fn refusal_of(&mut self, why: BadAddressing) -> RejReason {
        match why {
            BadAddressing::Malformed => {
                self.stats.req_bad_addressing += 1;
                RejReason::UNSUPPORTED
            }
            BadAddressing::Others => {
                self.stats.req_wrong_address += 1;
                RejReason::INVALID_GID
            }
        }
    }

    fn begin_passive(&mut self, now: Nanos, route: R, tid: u64, req: &Req) -> ConnId {
        let id = self.new_id();
        let connection = Connection {
            route,
            state: CmState::Idle,
            service: req.service_id,
            tid,
            peer: Some(PeerIds { comm_id: req.local_comm_id, ca_guid: req.ca_guid, qpn: req.qpn }),
            offer: None,
            patience: Patience::asked_for(&self.config, req.local_response_timeout, req.max_cm_retries),
            due: None,
            said: LastSaid::Nothing,
            has_ended: false,
        };
        self.connections.insert(id, connection);
        self.listeners.asked(req.service_id);
        self.step(now, id, Input::Req);
        id
    }

    /// Refuses a REQ without remembering it.
    fn refuse_req(&mut self, route: R, tid: u64, req: &Req, reason: RejReason) {
        let rej = Rej { remote_comm_id: req.local_comm_id, subject: Subject::Req, reason, ..Rej::default() };
        self.transmit(route, tid, CmMessage::Rej(rej));
    }
}
