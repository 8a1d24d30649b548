//! Time: repetitions, the end of patience, the end of TIMEWAIT, and peers that ask for more of it.

use std::collections::BTreeSet;

use super::config::coded_ns;
use super::state::{Input, Transition};
use super::{CmState, ConnId, ConnectionEvent, ConnectionManager, Ending, Route, SidrId};
use crate::Nanos;
use crate::wire::cm::{Mra, Subject};

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// A connection's.
    Connection(ConnId),
    /// A question's for a datagram service.
    Query(SidrId),
}

/// Every timer that is set, the earliest first.
#[derive(Default)]
pub(super) struct Timers(BTreeSet<(Nanos, Timer)>);

impl Timers {
    /// Moves a timer from `old` to `new`; `None` is unset.
    pub(super) fn set(&mut self, timer: Timer, old: Option<Nanos>, new: Option<Nanos>) {
        if let Some(old) = old {
            self.0.remove(&(old, timer));
        }
        if let Some(new) = new {
            self.0.insert((new, timer));
        }
    }

    fn earliest(&self) -> Option<Nanos> {
        self.0.first().map(|&(due, _)| due)
    }

    /// Takes out a timer that strikes by `now`.
    fn pop(&mut self, now: Nanos) -> Option<Timer> {
        let due = self.earliest()?;
        if due <= now { self.0.pop_first().map(|(_, timer)| timer) } else { None }
    }
}

impl<R: Route> ConnectionManager<R> {
    /// When [`ConnectionManager::on_timer`] wants to be called, if nothing happens before.
    pub fn deadline(&self) -> Option<Nanos> {
        self.timers.earliest()
    }

    /// Does what is due by `now`.
    pub fn on_timer(&mut self, now: Nanos) {
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Connection(id) => self.on_connection_timer(now, id),
                Timer::Query(id) => self.on_query_timer(now, id),
            }
        }
    }

    pub(super) fn set_timer(&mut self, id: ConnId, due: Option<Nanos>) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.timers.set(Timer::Connection(id), connection.due, due);
            connection.due = due;
        }
    }

    fn on_connection_timer(&mut self, now: Nanos, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.due = None;
        let (state, route) = (connection.state, connection.route);
        if state == CmState::Timewait {
            self.step(now, id, Input::Timeout);
        } else if !connection.patience.spend() {
            self.exhausted(now, id, state);
        } else if self.step(now, id, Input::Timeout) == Transition::Repeat
            && let Some(datagram) = self.connections.get(id).and_then(|connection| connection.last_said(id))
        {
            self.stats.tx_retransmissions += 1;
            self.transmit_datagram(route, datagram);
            self.wait_for_answer(now, id, 0);
        }
    }

    /// Ends an exchange that the peer did not answer; `before` is the state in which the last message was sent.
    fn exhausted(&mut self, now: Nanos, id: ConnId, before: CmState) {
        self.step(now, id, Input::Exhausted);
        let counter = match before {
            CmState::DreqSent => {
                self.stats.dreq_exhausted += 1;
                self.end(id, &ConnectionEvent::Disconnected { id, ending: Ending::Unanswered });
                return;
            }
            CmState::RepSent | CmState::MraRepRcvd => &mut self.stats.rep_exhausted,
            _ => &mut self.stats.req_exhausted,
        };
        *counter += 1;
        self.say_timeout(id);
        self.end(id, &ConnectionEvent::Unreachable { id });
    }

    /// The peer asks for time. It gets it once for each message, and only so much.
    pub(super) fn on_mra(&mut self, now: Nanos, route: R, mra: &Mra) {
        let (ours, theirs) = (mra.remote_comm_id, mra.local_comm_id);
        let (found, input) = match mra.subject {
            Subject::Req => (self.connections.find_unnamed(route, ours), Input::MraOfReq),
            Subject::Rep => (self.connections.find(route, ours, theirs), Input::MraOfRep),
            Subject::Other | Subject::Reserved => {
                self.stats.rx_alternate_path += 1;
                return;
            }
        };
        if let Some(id) = self.take_found(now, found, input) {
            let asked = coded_ns(mra.service_timeout);
            self.wait_for_answer(now, id, asked.min(self.config.max_service_wait_ns));
        }
    }
}
