//! Service identifier resolution (IBTA 12.11): which queue pair and key a datagram service has.
//!
//! Answers need no memory: a question asked again is answered again.

use std::collections::BTreeMap;
use std::fmt;

use rand::Rng;

use super::connections::Datagram;
use super::offer::{addressed, asker};
use super::patience::Patience;
use super::timers::Timer;
use super::{CmError, ConnectionEvent, ConnectionManager, ListenError, Route, SidrFailure};
use crate::wire::cm::{CmMessage, Mad, ServiceId, SidrRep, SidrReq};
use crate::{Nanos, Qpn};

/// Statuses of a SIDR_REP (IBTA table 120).
const STATUS_OK: u8 = 0;
const STATUS_UNSUPPORTED: u8 = 1;
const STATUS_REJECTED: u8 = 2;

/// The name of a question for a datagram service: its request identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SidrId(u32);

impl fmt::Debug for SidrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "question {:#010x}", self.0)
    }
}

/// A SIDR_REQ that is not answered yet.
struct SidrQuery<R> {
    route: R,
    service: ServiceId,
    patience: Patience,
    due: Option<Nanos>,
    sent: Datagram,
}

/// Datagram services of ours, and questions of ours for others'.
pub(super) struct Resolver<R> {
    services: BTreeMap<u64, (Qpn, u32)>,
    queries: BTreeMap<SidrId, SidrQuery<R>>,
}

impl<R> Resolver<R> {
    pub(super) fn new() -> Self {
        Self { services: BTreeMap::new(), queries: BTreeMap::new() }
    }

    /// Questions that are not answered.
    pub(super) fn len(&self) -> usize {
        self.queries.len()
    }
}

impl<R: Route> ConnectionManager<R> {
    /// Answers SIDR_REQs for `service` with this queue pair and key from now on.
    pub fn sidr_listen(&mut self, service: ServiceId, qpn: Qpn, qkey: u32) -> Result<(), ListenError> {
        if self.resolver.services.contains_key(&service.0) {
            return Err(ListenError::InUse);
        }
        if self.resolver.services.len() >= self.config.max_listeners {
            return Err(ListenError::TooManyListeners);
        }
        self.resolver.services.insert(service.0, (qpn, qkey));
        Ok(())
    }

    /// Refuses SIDR_REQs for `service` from now on. `false` if there was no such service.
    pub fn sidr_unlisten(&mut self, service: ServiceId) -> bool {
        self.resolver.services.remove(&service.0).is_some()
    }

    /// Asks the peer at `route` for the queue pair of a datagram service; private data of up to 180 bytes. What comes
    /// is [`ConnectionEvent::SidrResolved`] or [`ConnectionEvent::SidrFailed`].
    pub fn sidr_resolve(
        &mut self,
        now: Nanos,
        route: R,
        service: ServiceId,
        source_port: u16,
        private_data: &[u8],
    ) -> Result<SidrId, CmError> {
        let private_data = addressed(route, service, source_port, private_data)?;
        self.has_room()?;
        let id = self.new_question();
        let req =
            SidrReq { request_id: id.0, pkey: route.pkey(), service_id: service, private_data, ..SidrReq::default() };
        let sent = Mad::new(self.rng.random(), CmMessage::SidrReq(req)).emit();
        let patience = Patience::ours(&self.config);
        self.resolver.queries.insert(id, SidrQuery { route, service, patience, due: None, sent });
        self.ask(now, id);
        Ok(id)
    }

    /// Forgets a question. `false` if it is not open.
    pub fn sidr_abandon(&mut self, id: SidrId) -> bool {
        self.close(id).is_some()
    }

    fn new_question(&mut self) -> SidrId {
        loop {
            let id = SidrId(self.rng.random());
            if !self.resolver.queries.contains_key(&id) {
                return id;
            }
        }
    }

    fn ask(&mut self, now: Nanos, id: SidrId) {
        let Some(query) = self.resolver.queries.get_mut(&id) else { return };
        let due = Some(now.saturating_add(query.patience.wait()));
        self.timers.set(Timer::Query(id), query.due, due);
        query.due = due;
        let (route, datagram) = (query.route, query.sent);
        self.transmit_datagram(route, datagram);
    }

    fn close(&mut self, id: SidrId) -> Option<SidrQuery<R>> {
        let query = self.resolver.queries.remove(&id)?;
        self.timers.set(Timer::Query(id), query.due, None);
        Some(query)
    }

    pub(super) fn on_query_timer(&mut self, now: Nanos, id: SidrId) {
        let Some(query) = self.resolver.queries.get_mut(&id) else { return };
        query.due = None;
        if query.patience.spend() {
            self.stats.tx_retransmissions += 1;
            self.ask(now, id);
        } else {
            self.stats.sidr_exhausted += 1;
            self.close(id);
            self.events.push_back(ConnectionEvent::SidrFailed { id, failure: SidrFailure::Unreachable });
        }
    }

    pub(super) fn on_sidr_req(&mut self, route: R, tid: u64, req: &SidrReq) {
        let service_id = req.service_id;
        let (status, qpn, qkey) = match self.resolver.services.get(&service_id.0) {
            None => (STATUS_UNSUPPORTED, Qpn::default(), 0),
            Some(_) if asker(route, service_id, &req.private_data).is_err() => (STATUS_REJECTED, Qpn::default(), 0),
            Some(&(qpn, qkey)) => (STATUS_OK, qpn, qkey),
        };
        let counter = if status == STATUS_OK { &mut self.stats.sidr_answered } else { &mut self.stats.sidr_refused };
        *counter += 1;
        let rep = SidrRep { request_id: req.request_id, status, qpn, qkey, service_id, ..SidrRep::default() };
        self.transmit(route, tid, CmMessage::SidrRep(rep));
    }

    pub(super) fn on_sidr_rep(&mut self, route: R, rep: &SidrRep) {
        let id = SidrId(rep.request_id);
        match self.resolver.queries.get(&id) {
            None => self.stats.rx_unknown_connection += 1,
            Some(query) if query.route != route => self.stats.rx_foreign_route += 1,
            // A refusal need not repeat which service it refuses.
            Some(query) if rep.status == STATUS_OK && query.service != rep.service_id => {
                self.stats.rx_unknown_connection += 1;
            }
            Some(_) => {
                self.close(id);
                self.events.push_back(match rep.status {
                    STATUS_OK => ConnectionEvent::SidrResolved { id, qpn: rep.qpn, qkey: rep.qkey },
                    status => ConnectionEvent::SidrFailed { id, failure: SidrFailure::Refused(status) },
                });
            }
        }
    }
}
