//! The configuration of a connection manager.

use crate::Nanos;

/// Who this host is, how patient it is, and where its tables end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// The adapter's name in REQ and REP. A peer distinguishes our connections from others' by it and the queue pair.
    pub ca_guid: u64,
    /// Randomness, from which communication and transaction identifiers are derived: an attacker who cannot see our
    /// messages must not be able to guess them. It must differ in every run.
    pub seed: u64,
    /// How soon we answer, and expect an answer, as REQs announce it: 4.096 us times 2 to the power of this code.
    pub response_timeout: u8,
    /// How long our queue pairs may take to acknowledge, as REPs announce it: the same kind of code.
    pub ack_delay: u8,
    /// The time that MRAs ask for while the application has not decided: the same kind of code.
    pub service_timeout: u8,
    /// How long to wait before a message is sent a second time. The wait then doubles.
    pub first_interval_ns: Nanos,
    /// The longest wait between two sendings of a message.
    pub interval_ns: Nanos,
    /// How often a message is sent again, at most 15. Towards a peer that connects, its REQ may ask for less. More is for
    /// [`ConnectionManager::be_patient`](super::ConnectionManager::be_patient) to say.
    pub max_retries: u8,
    /// The most time that a peer's MRA can ask for.
    pub max_service_wait_ns: Nanos,
    /// How long names stay reserved after a connection: twice a packet's life, and the time of an acknowledgement.
    pub timewait_ns: Nanos,
    /// Connections, those in [`CmState::Timewait`](super::CmState::Timewait) included, and questions for datagram services.
    pub max_connections: usize,
    /// How many of them are kept for our own; at most half.
    pub reserved_connections: usize,
    /// Undecided requests of one listener.
    pub max_pending_requests: usize,
    /// Services that are listened on, of connections and of datagrams each.
    pub max_listeners: usize,
    /// Datagrams that wait for [`poll_transmit`](super::ConnectionManager::poll_transmit).
    pub max_queued_datagrams: usize,
    /// Events that wait for [`poll_event`](super::ConnectionManager::poll_event): from there on nothing new begins.
    pub max_queued_events: usize,
}

impl CmConfig {
    /// What Linux does by default (`CMA_CM_RESPONSE_TIMEOUT`, `CMA_MAX_CM_RETRIES`, `CMA_CM_MRA_SETTING`), but that
    /// the first repetitions come sooner.
    pub const fn new(ca_guid: u64, seed: u64) -> Self {
        Self {
            ca_guid,
            seed,
            response_timeout: 20,
            ack_delay: 15,
            service_timeout: 24,
            first_interval_ns: 250_000_000,
            interval_ns: coded_ns(20),
            max_retries: 15,
            max_service_wait_ns: coded_ns(24),
            timewait_ns: coded_ns(19),
            max_connections: 4096,
            reserved_connections: 512,
            max_pending_requests: 128,
            max_listeners: 1024,
            max_queued_datagrams: 4096,
            max_queued_events: 4096,
        }
    }
}

/// The time of a code: 4.096 us times 2 to the power of its low five bits (IBTA 12.7).
pub(super) const fn coded_ns(code: u8) -> Nanos {
    4096 << (code & 31)
}
