//! The side that connects: REQ out, REP in, RTU out (IBTA 12.9.5).

use rand::Rng;

use super::connections::{Connection, LastSaid, Miss, PeerIds};
use super::offer::{addressed, padded, req_of};
use super::patience::Patience;
use super::state::Input;
use super::{CmError, CmState, ConnId, ConnectRequest, ConnectionEvent, ConnectionManager, PrivateData, Route, Terms};
use crate::Nanos;
use crate::wire::cm::{CmMessage, Rej, RejReason, Rep, Req, Subject};

impl<R: Route> ConnectionManager<R> {
    /// Asks the peer at `route` for a connection. What comes is [`ConnectionEvent::Reply`], `Rejected` or `Unreachable`.
    pub fn connect(&mut self, now: Nanos, route: R, request: ConnectRequest<'_>) -> Result<ConnId, CmError> {
        let ConnectRequest { service, source_port, offer, private_data } = request;
        let private_data = addressed(route, service, source_port, private_data)?;
        let req = req_of(&self.config, route, service, &offer)?;
        self.has_room()?;
        let id = self.new_id();
        let tid = self.rng.random();
        let connection = Connection {
            route,
            state: CmState::Idle,
            service,
            tid,
            peer: None,
            offer: Some(offer),
            patience: Patience::ours(&self.config),
            due: None,
            said: LastSaid::Nothing,
            has_ended: false,
        };
        self.connections.insert(id, connection);
        self.step(now, id, Input::Connect);
        self.say_until_answered(now, id, tid, CmMessage::Req(Req { local_comm_id: id.0, private_data, ..req }));
        Ok(id)
    }

    /// Takes a reply: the queue pair can receive and send. The connection is then established; until this call the
    /// peer's repeated REPs are not answered.
    pub fn confirm(&mut self, now: Nanos, id: ConnId) -> Result<(), CmError> {
        self.may(id, Input::Confirm)?;
        self.step(now, id, Input::Confirm);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.said = LastSaid::Rtu;
            let route = connection.route;
            if let Some(rtu) = connection.last_said(id) {
                self.transmit_datagram(route, rtu);
            }
        }
        Ok(())
    }

    /// Refuses a reply. What is left is [`ConnectionEvent::TimewaitExit`].
    pub fn refuse(&mut self, now: Nanos, id: ConnId, reason: RejReason, private_data: &[u8]) -> Result<(), CmError> {
        self.may(id, Input::Refuse)?;
        let private_data = padded(private_data)?;
        self.step(now, id, Input::Refuse);
        self.stats.rejected += 1;
        self.end_silently(id);
        self.say_rej(id, Subject::Rep, reason, private_data);
        Ok(())
    }

    /// Gives up a connection whose REQ is not answered yet. What is left is [`ConnectionEvent::TimewaitExit`].
    pub fn abandon(&mut self, now: Nanos, id: ConnId) -> Result<(), CmError> {
        self.may(id, Input::Abandon)?;
        self.step(now, id, Input::Abandon);
        self.end_silently(id);
        self.say_timeout(id);
        Ok(())
    }

    pub(super) fn on_rep(&mut self, now: Nanos, route: R, tid: u64, rep: &Rep) {
        let (ours, theirs) = (rep.remote_comm_id, rep.local_comm_id);
        let found = self.connections.find_unnamed(route, ours).or_else(|_| self.connections.find(route, ours, theirs));
        match found {
            Ok(id) => self.on_known_rep(now, id, rep),
            Err(miss) => {
                self.count_miss(miss);
                if miss == Miss::Unknown {
                    self.refuse_unknown_rep(route, tid, rep);
                }
            }
        }
    }

    fn on_known_rep(&mut self, now: Nanos, id: ConnId, rep: &Rep) {
        let Some(connection) = self.connections.get(id) else { return };
        let (route, offer) = (connection.route, connection.offer);
        if self.may(id, Input::Rep).is_ok()
            && let Some(old) = self.connections.find_queue_pair(route, rep.ca_guid, rep.qpn)
        {
            self.refuse_stale_rep(now, id, old, rep);
            return;
        }
        if !self.take(now, id, Input::Rep) {
            return;
        }
        let peer = PeerIds { comm_id: rep.local_comm_id, ca_guid: rep.ca_guid, qpn: rep.qpn };
        self.connections.name_peer(id, peer);
        if let Some(offer) = offer {
            let private_data = PrivateData::copy_of(&rep.private_data);
            self.events.push_back(ConnectionEvent::Reply { id, remote: Terms::of_rep(rep, &offer), private_data });
        }
    }

    /// A queue pair that is in another connection was granted: that one was forgotten, and this one cannot be.
    fn refuse_stale_rep(&mut self, now: Nanos, id: ConnId, old: ConnId, rep: &Rep) {
        self.forgotten_by_peer(now, old);
        if !self.take(now, id, Input::Abandon) {
            return;
        }
        let reason = RejReason::STALE_CONN;
        self.say_rej_of_rep(id, rep, reason);
        let private_data = PrivateData::copy_of(&[]);
        self.stats.rejected += 1;
        self.end(id, &ConnectionEvent::Rejected { id, reason, private_data });
    }

    fn say_rej_of_rep(&mut self, id: ConnId, rep: &Rep, reason: RejReason) {
        let Some(connection) = self.connections.get(id) else { return };
        let tid = connection.tid;
        self.say(id, tid, CmMessage::Rej(rej_of_rep(rep, reason)));
    }

    /// As IBTA has it. Linux says nothing, and lets the peer repeat its REP until it tires.
    fn refuse_unknown_rep(&mut self, route: R, tid: u64, rep: &Rep) {
        self.transmit(route, tid, CmMessage::Rej(rej_of_rep(rep, RejReason::INVALID_COMM_ID)));
    }
}

fn rej_of_rep(rep: &Rep, reason: RejReason) -> Rej {
    Rej {
        local_comm_id: rep.remote_comm_id,
        remote_comm_id: rep.local_comm_id,
        subject: Subject::Rep,
        reason,
        ..Rej::default()
    }
}
