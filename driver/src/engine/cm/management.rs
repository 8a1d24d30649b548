//! The management queue pair: the connection manager, and what goes on between it and the application.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::Rng;
use roci_protocol::Psn;
use roci_protocol::cm::{CmConfig, ConnId, ConnectionManager, ListenError};
use roci_protocol::wire::cm::ServiceId;

use crate::cm::{CmConnection, CmEvent, CmRoute};
use crate::handles::{CmChannel, QueuePair};

/// Events that wait to be polled.
const MAX_EVENTS: usize = 256;

/// The connection manager, the connections and attempts that it knows, and the events of them.
pub(in crate::engine) struct Management {
    pub(super) machine: ConnectionManager<CmRoute>,
    pub(super) attempts: BTreeMap<ConnId, CmConnection>,
    /// Where requests for each service go. Those of a channel that was closed may still be on their way.
    listeners: BTreeMap<ServiceId, CmChannel>,
    /// Channels that are open beside the default one, and how many were ever made.
    channels: BTreeSet<CmChannel>,
    channels_made: u32,
    events: VecDeque<(CmChannel, CmEvent)>,
    next_port: u16,
    next_psn: Psn,
}

impl Management {
    pub(in crate::engine) fn new(entropy: &mut impl Rng) -> Self {
        Self {
            machine: ConnectionManager::new(CmConfig::new(entropy.random(), entropy.random())),
            attempts: BTreeMap::new(),
            listeners: BTreeMap::new(),
            channels: BTreeSet::new(),
            channels_made: 0,
            events: VecDeque::new(),
            next_port: entropy.random(),
            next_psn: Psn::new(entropy.random()),
        }
    }

    /// Listens for requests of a service, which go to a channel.
    pub(super) fn listen(&mut self, channel: CmChannel, service: ServiceId) -> Result<(), ListenError> {
        self.machine.listen(service)?;
        self.listeners.insert(service, channel);
        Ok(())
    }

    /// Listens no more; `false` where it did not.
    pub(super) fn unlisten(&mut self, service: ServiceId) -> bool {
        self.listeners.remove(&service);
        self.machine.unlisten(service)
    }

    /// Opens a channel.
    pub(super) fn create_channel(&mut self) -> CmChannel {
        self.channels_made += 1;
        let channel = CmChannel(self.channels_made);
        self.channels.insert(channel);
        channel
    }

    /// Closes a channel: requests for its services are refused, and its events are dropped, now and later. Returns its connections, and
    /// the queue pairs that only a dropped event would have named.
    pub(super) fn close_channel(&mut self, channel: CmChannel) -> (Vec<ConnId>, Vec<QueuePair>) {
        self.channels.remove(&channel);
        for (&service, _) in self.listeners.iter().filter(|(_, its)| **its == channel) {
            self.machine.unlisten(service);
        }
        let mut unnamed = Vec::new();
        self.events.retain(|(its, event)| {
            if let CmEvent::Replied { qp, .. } = event
                && *its == channel
            {
                unnamed.push(*qp);
            }
            *its != channel
        });
        let ours = self.attempts.iter().filter(|(_, attempt)| attempt.channel == channel);
        (ours.map(|(&id, _)| id).collect(), unnamed)
    }

    /// Whether somebody polls a channel.
    pub(super) fn is_open(&self, channel: CmChannel) -> bool {
        channel == CmChannel::default() || self.channels.contains(&channel)
    }

    /// The channel that requests for a service go to.
    pub(super) fn channel_of_service(&self, service: ServiceId) -> CmChannel {
        self.listeners.get(&service).copied().unwrap_or_default()
    }

    /// The channel of a connection.
    pub(super) fn channel_of(&self, id: ConnId) -> CmChannel {
        self.attempts.get(&id).map(|attempt| attempt.channel).unwrap_or_default()
    }

    /// Whether another event may be queued. Where the application does not poll, the manager's own limit stops new
    /// connections.
    pub(super) fn takes_event(&self) -> bool {
        self.events.len() < MAX_EVENTS
    }

    /// Queues what the application is to know: one event, if any, unless its channel was closed.
    pub(super) fn report(&mut self, channel: CmChannel, event: impl IntoIterator<Item = CmEvent>) {
        debug_assert!(self.takes_event(), "there is room for an event before it is made");
        if self.is_open(channel) {
            self.events.extend(event.into_iter().map(|event| (channel, event)));
        }
    }

    /// The next event of a channel.
    pub(super) fn next_event(&mut self, channel: CmChannel) -> Option<CmEvent> {
        let at = self.events.iter().position(|(its, _)| *its == channel)?;
        self.events.remove(at).map(|(_, event)| event)
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
        self.attempts.iter().find(|(_, attempt)| attempt.half.qp() == Some(qp)).map(|(&id, _)| id)
    }

    /// The queue pair of a connection.
    pub(super) fn qp_of(&self, id: ConnId) -> Option<QueuePair> {
        self.attempts.get(&id)?.half.qp()
    }
}
