//! What every move of a connection has in common, and the messages that go with it.

use super::connections::{LastSaid, Miss};
use super::state::{Input, Transition};
use super::{CmError, CmState, ConnId, ConnectionEvent, ConnectionManager, Route};
use crate::Nanos;
use crate::wire::cm::{CmMessage, Mad, Mra, Rej, RejReason, Subject};

impl<R: Route> ConnectionManager<R> {
    /// Does what the table says about the connection's state, timer and message to repeat.
    pub(super) fn step(&mut self, now: Nanos, id: ConnId, input: Input) -> Transition {
        let Some(connection) = self.connections.get_mut(id) else { return Transition::Illegal };
        let outcome = connection.state.on(input);
        let Transition::To(next) = outcome else { return outcome };
        if connection.state == CmState::ReqRcvd {
            self.listeners.decided(connection.service);
        }
        connection.state = next;
        match next {
            CmState::RepRcvd | CmState::Established | CmState::Timewait => connection.said = LastSaid::Nothing,
            _ => {}
        }
        self.enter(now, id, next);
        outcome
    }

    fn enter(&mut self, now: Nanos, id: ConnId, state: CmState) {
        match state {
            CmState::RepRcvd => self.set_timer(id, None),
            CmState::Established => {
                self.set_timer(id, None);
                self.stats.established += 1;
                self.events.push_back(ConnectionEvent::Established { id });
            }
            CmState::Timewait => self.set_timer(id, Some(now.saturating_add(self.config.timewait_ns))),
            CmState::Idle => {
                self.set_timer(id, None);
                self.connections.remove(id);
                self.events.push_back(ConnectionEvent::TimewaitExit { id });
            }
            _ => {}
        }
    }

    /// Whether the application may make this call now.
    pub(super) fn may(&self, id: ConnId, input: Input) -> Result<(), CmError> {
        let connection = self.connections.get(id).ok_or(CmError::UnknownConnection)?;
        match connection.state.on(input) {
            Transition::To(_) => Ok(()),
            _ => Err(CmError::WrongState(connection.state)),
        }
    }

    /// A message about a connection. `true` if it moved it; all other outcomes are dealt with.
    pub(super) fn take(&mut self, now: Nanos, id: ConnId, input: Input) -> bool {
        match self.step(now, id, input) {
            Transition::To(_) => return true,
            Transition::Illegal => {
                self.stats.rx_wrong_state += 1;
                return false;
            }
            Transition::Repeat => self.say_again(id),
            Transition::Wait => self.ask_for_time(id),
            Transition::Ignore => {}
        }
        self.stats.rx_duplicate += 1;
        false
    }

    /// A message whose names were looked up.
    pub(super) fn take_found(&mut self, now: Nanos, found: Result<ConnId, Miss>, input: Input) -> Option<ConnId> {
        match found {
            Ok(id) => self.take(now, id, input).then_some(id),
            Err(miss) => {
                self.count_miss(miss);
                None
            }
        }
    }

    pub(super) fn count_miss(&mut self, miss: Miss) {
        match miss {
            Miss::Unknown => self.stats.rx_unknown_connection += 1,
            Miss::Foreign => self.stats.rx_foreign_route += 1,
        }
    }

    /// Reports to the application, once, that a connection is over.
    pub(super) fn end(&mut self, id: ConnId, event: &ConnectionEvent) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.has_ended
        {
            connection.has_ended = true;
            self.events.push_back(*event);
        }
    }

    /// The application ended it and needs no event.
    pub(super) fn end_silently(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.has_ended = true;
        }
    }

    /// Sends a message and keeps it, to be said again if the peer does.
    pub(super) fn say(&mut self, id: ConnId, tid: u64, message: CmMessage) {
        if let Some(connection) = self.connections.get_mut(id) {
            let datagram = Mad::new(tid, message).emit();
            connection.said = LastSaid::Message(Box::new(datagram));
            let route = connection.route;
            self.transmit_datagram(route, datagram);
        }
    }

    /// Sends a message until it is answered, or patience ends.
    pub(super) fn say_until_answered(&mut self, now: Nanos, id: ConnId, tid: u64, message: CmMessage) {
        self.say(id, tid, message);
        self.wait_for_answer(now, id, 0);
    }

    /// Sets the timer to the present wait, and `extra` that the peer asked for.
    pub(super) fn wait_for_answer(&mut self, now: Nanos, id: ConnId, extra: Nanos) {
        if let Some(connection) = self.connections.get(id) {
            let due = now.saturating_add(connection.patience.wait()).saturating_add(extra);
            self.set_timer(id, Some(due));
        }
    }

    fn say_again(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get(id)
            && let Some(datagram) = connection.last_said(id)
        {
            self.stats.tx_repeated += 1;
            self.transmit_datagram(connection.route, datagram);
        }
    }

    /// The peer asks again and the application has not decided.
    fn ask_for_time(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return };
        let mra = Mra {
            local_comm_id: id.0,
            remote_comm_id: connection.peer.map_or(0, |peer| peer.comm_id),
            subject: Subject::Req,
            service_timeout: self.config.service_timeout.min(31),
            ..Mra::default()
        };
        self.transmit(connection.route, connection.tid, CmMessage::Mra(mra));
    }

    /// Refuses in the connection's name, and keeps the REJ to say it again.
    pub(super) fn say_rej(&mut self, id: ConnId, subject: Subject, reason: RejReason, private_data: [u8; 148]) {
        let Some(connection) = self.connections.get(id) else { return };
        let tid = connection.tid;
        let rej = Rej {
            // A refused REQ's connection never had a name of ours that the peer should know.
            local_comm_id: if subject == Subject::Req { 0 } else { id.0 },
            remote_comm_id: connection.peer.map_or(0, |peer| peer.comm_id),
            subject,
            reason,
            private_data,
            ..Rej::default()
        };
        self.say(id, tid, CmMessage::Rej(rej));
    }

    /// Gives up, and says so. The peer may not know our name of the connection: the additional information is the
    /// adapter's, so that it can find it by its own (IBTA table 109).
    pub(super) fn say_timeout(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return };
        let (route, tid, peer) = (connection.route, connection.tid, connection.peer);
        let mut info = [0; 72];
        info[..8].copy_from_slice(&self.config.ca_guid.to_be_bytes());
        let rej = Rej {
            local_comm_id: id.0,
            remote_comm_id: peer.map_or(0, |peer| peer.comm_id),
            subject: Subject::Other,
            reason: RejReason::TIMEOUT,
            info_len: 8,
            info,
            ..Rej::default()
        };
        match peer {
            // Should a REP come late, it is said again.
            None => self.say(id, tid, CmMessage::Rej(rej)),
            Some(_) => self.transmit(route, tid, CmMessage::Rej(rej)),
        }
    }
}
