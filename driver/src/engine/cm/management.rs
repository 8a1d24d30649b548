//! The management queue pair: the connection manager, and what goes on between it and the application.

use std::collections::{BTreeMap, VecDeque};

use rand::Rng;
use roci_protocol::Psn;
use roci_protocol::cm::{CmConfig, ConnId, ConnectionManager};

use crate::cm::{CmConnection, CmEvent, CmRoute, Half};
use crate::handles::QueuePair;

/// Events that wait to be polled.
const MAX_EVENTS: usize = 256;

/// The connection manager, the connections and attempts that it knows, and the events of them.
pub(in crate::engine) struct Management {
    pub(super) machine: ConnectionManager<CmRoute>,
    pub(super) attempts: BTreeMap<ConnId, CmConnection>,
    events: VecDeque<CmEvent>,
    next_port: u16,
    next_psn: Psn,
}

impl Management {
    pub(in crate::engine) fn new(entropy: &mut impl Rng) -> Self {
        Self {
            machine: ConnectionManager::new(CmConfig::new(entropy.random(), entropy.random())),
            attempts: BTreeMap::new(),
            events: VecDeque::new(),
            next_port: entropy.random(),
            next_psn: Psn::new(entropy.random()),
        }
    }

    /// Whether another event may be queued. Where the application does not poll, the manager's own limit stops new
    /// connections.
    pub(super) fn takes_event(&self) -> bool {
        self.events.len() < MAX_EVENTS
    }

    /// Queues what the application is to know: one event, if any.
    pub(super) fn report(&mut self, event: impl IntoIterator<Item = CmEvent>) {
        debug_assert!(self.takes_event(), "there is room for an event before it is made");
        self.events.extend(event);
    }

    /// The next event.
    pub(super) fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// A port to connect from: it only has to differ from one connection to the next.
    pub(super) fn ephemeral_port(&mut self) -> u16 {
        self.next_port = self.next_port.wrapping_add(1) | 0xc000;
        self.next_port
    }

    /// The PSN of the datagram that leaves now.
    pub(super) fn next_psn(&mut self) -> Psn {
        let psn = self.next_psn;
        self.next_psn = psn.plus(1);
        psn
    }

    /// The connection of a queue pair.
    pub(super) fn connection_of(&self, qp: QueuePair) -> Option<ConnId> {
        let is_its = |attempt: &CmConnection| matches!(attempt.half, Half::Connected(its) if its == qp);
        self.attempts.iter().find(|(_, attempt)| is_its(attempt)).map(|(&id, _)| id)
    }

    /// The queue pair of a connection.
    pub(super) fn qp_of(&self, id: ConnId) -> Option<QueuePair> {
        match self.attempts.get(&id)?.half {
            Half::Connected(qp) => Some(qp),
            _ => None,
        }
    }
}
