//! One peer: its connection, its credits, and what waits to be sent to it.

use std::collections::VecDeque;

use roci_driver::{Buffer, QueuePair};

use crate::Tag;
use crate::credit::Credits;
use crate::matching::Remote;
use crate::request::{OpError, Request};

/// Operations that may wait for one peer.
pub(crate) const OUTGOING_LIMIT: usize = 1 << 16;

/// The worker's view of a peer.
pub(crate) struct Endpoint {
    pub(crate) qp: QueuePair,
    pub(crate) credits: Credits,
    /// Work requests posted and not complete.
    pub(crate) in_flight: usize,
    /// Sends that wait for a credit, a buffer, or a place in the send queue; they go in order.
    pub(crate) outgoing: VecDeque<Outgoing>,
    /// Transfers that the peer has yet to hear the end of; they overtake, because they set memory free.
    pub(crate) finished: VecDeque<u64>,
    /// Payloads to be fetched; they cost no credit.
    pub(crate) fetches: VecDeque<Fetch>,
    /// Why the peer is gone.
    pub(crate) failure: Option<OpError>,
}

/// A message that waits to be sent.
pub(crate) struct Outgoing {
    pub(crate) request: Request,
    pub(crate) tag: Tag,
    pub(crate) payload: Buffer,
}

/// A payload to be fetched.
pub(crate) struct Fetch {
    pub(crate) request: Request,
    pub(crate) buffer: Buffer,
    pub(crate) remote: Remote,
}

impl Endpoint {
    pub(crate) fn new(qp: QueuePair, credits: u16) -> Self {
        Self {
            qp,
            credits: Credits::new(credits),
            in_flight: 0,
            outgoing: VecDeque::new(),
            finished: VecDeque::new(),
            fetches: VecDeque::new(),
            failure: None,
        }
    }

    /// Whether nothing of ours is under way to the peer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.failure.is_some() || (self.in_flight == 0 && !self.has_work())
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_work(&self) -> bool {
        !(self.outgoing.is_empty() && self.finished.is_empty() && self.fetches.is_empty())
    }
}
