//! The end: DREQ and DREP (IBTA 12.9.7), and a peer's REJ.

use rand::Rng;

use super::connections::Miss;
use super::offer::padded;
use super::patience::Patience;
use super::state::{Input, Transition};
use super::{CmError, CmState, ConnId, ConnectionEvent, ConnectionManager, Ending, PrivateData, Route};
use crate::Nanos;
use crate::wire::cm::{CmMessage, Drep, Dreq, Rej, RejReason, Subject};

impl<R: Route> ConnectionManager<R> {
    /// Ends a connection that is open, or granted by us; private data of up to 220 bytes. What comes is
    /// [`ConnectionEvent::Disconnected`], whether the peer answers or not.
    pub fn disconnect(&mut self, now: Nanos, id: ConnId, private_data: &[u8]) -> Result<(), CmError> {
        self.may(id, Input::Disconnect)?;
        let private_data = padded(private_data)?;
        self.step(now, id, Input::Disconnect);
        self.say_dreq(now, id, private_data);
        Ok(())
    }

    /// Sends a DREQ, in a transaction of its own, until it is answered.
    pub(super) fn say_dreq(&mut self, now: Nanos, id: ConnId, private_data: [u8; 220]) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(peer) = connection.peer else { return };
        connection.patience = Patience::ours(&self.config);
        let dreq = Dreq {
            local_comm_id: id.0,
            remote_comm_id: peer.comm_id,
            remote_qpn: peer.qpn,
            private_data,
            ..Dreq::default()
        };
        let tid = self.rng.random();
        self.say_until_answered(now, id, tid, CmMessage::Dreq(dreq));
    }

    /// A DREQ is answered even if the connection is unknown: the peer missed our DREP, and should end too.
    pub(super) fn on_dreq(&mut self, now: Nanos, route: R, tid: u64, dreq: &Dreq) {
        match self.connections.find(route, dreq.remote_comm_id, dreq.local_comm_id) {
            Ok(id) => self.on_known_dreq(now, id, tid, dreq),
            Err(miss) => {
                self.count_miss(miss);
                if miss == Miss::Unknown {
                    self.answer_dreq(route, tid, dreq);
                }
            }
        }
    }

    fn on_known_dreq(&mut self, now: Nanos, id: ConnId, tid: u64, dreq: &Dreq) {
        let Some(connection) = self.connections.get(id) else { return };
        let (route, offer) = (connection.route, connection.offer);
        if offer.is_some_and(|offer| offer.qpn != dreq.remote_qpn) {
            self.stats.rx_wrong_qpn += 1;
            return;
        }
        match self.step(now, id, Input::Dreq) {
            Transition::To(_) => {
                self.end(id, &ConnectionEvent::Disconnected { id, ending: Ending::ByPeer });
                self.answer_dreq(route, tid, dreq);
            }
            Transition::Repeat => {
                self.stats.rx_duplicate += 1;
                self.answer_dreq(route, tid, dreq);
            }
            _ => self.stats.rx_wrong_state += 1,
        }
    }

    fn answer_dreq(&mut self, route: R, tid: u64, dreq: &Dreq) {
        let (local_comm_id, remote_comm_id) = (dreq.remote_comm_id, dreq.local_comm_id);
        self.transmit(route, tid, CmMessage::Drep(Drep { local_comm_id, remote_comm_id, ..Drep::default() }));
    }

    pub(super) fn on_drep(&mut self, now: Nanos, route: R, drep: &Drep) {
        let found = self.connections.find(route, drep.remote_comm_id, drep.local_comm_id);
        if let Some(id) = self.take_found(now, found, Input::Drep) {
            self.end(id, &ConnectionEvent::Disconnected { id, ending: Ending::Confirmed });
        }
    }

    pub(super) fn on_rej(&mut self, now: Nanos, route: R, rej: &Rej) {
        let found = self.find_rejected(route, rej);
        let before = found.map_or(CmState::Idle, |id| self.state(id));
        let Some(id) = self.take_found(now, found, Input::Rej) else { return };
        self.stats.rejected += 1;
        let reason = rej.reason;
        let event = match before {
            CmState::Established | CmState::DreqSent => {
                ConnectionEvent::Disconnected { id, ending: Ending::Rejected(reason) }
            }
            _ => ConnectionEvent::Rejected { id, reason, private_data: PrivateData::copy_of(&rej.private_data) },
        };
        self.end(id, &event);
    }

    /// A refused REQ has only our name. A peer that gave up may not know our name and gives its own, and its adapter's
    /// in the additional information.
    fn find_rejected(&self, route: R, rej: &Rej) -> Result<ConnId, Miss> {
        let (ours, theirs) = (rej.remote_comm_id, rej.local_comm_id);
        if rej.subject == Subject::Req {
            return self.connections.find_unnamed(route, ours);
        }
        let found = self.connections.find(route, ours, theirs);
        if found.is_ok() || rej.reason != RejReason::TIMEOUT || rej.info_len < 8 {
            return found;
        }
        let [a, b, c, d, e, f, g, h, ..] = rej.info;
        let ca_guid = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        self.connections.find_theirs(route, ca_guid, theirs).ok_or(Miss::Unknown)
    }
}
