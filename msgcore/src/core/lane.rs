//! A lane: one queue pair to a peer, and the receives that it draws on.

use roci_driver::{Buffer, QueuePair};
use roci_protocol::msg::{self, Message};

use super::credits::Credits;
use super::in_flight::InFlight;
use crate::receive_queues::{Kind, ReceiveQueue};

/// Work requests that a lane's send queue holds.
pub(crate) const SEND_QUEUE: usize = 256;

/// Places of the send queue that transfers leave to messages.
const TRANSFER_RESERVE: usize = 16;

/// One queue pair to a peer.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) qp: QueuePair,
    pub(crate) credits: Credits,
    /// Its receives are shared by all peers.
    pub(crate) is_shared: bool,
    /// Bytes of payload that a vbuf of this lane holds.
    pub(crate) payload: usize,
    /// Work requests posted and not complete.
    pub(crate) in_flight: InFlight,
    /// Of the next packet on it, which has several messages, so many have met their receives already.
    pub(crate) taken_of_packet: u16,
    /// Receives posted.
    pub(crate) posted: usize,
    /// Receives used up and not posted again: those that wait to be posted together, and those that lack a vbuf.
    pub(crate) unposted: Vec<Buffer>,
    pub(crate) missing: usize,
    /// Receives that are not made while their credits are withheld: messages without a receive have their vbufs.
    pub(crate) kept_with_messages: usize,
    /// The eager message of the peer's whose vbufs have not all come: they come in one go.
    pub(crate) series: Option<u64>,
}

impl Lane {
    /// A lane over this queue pair, with receives as this queue has them.
    pub(crate) fn new(qp: QueuePair, queue: &ReceiveQueue) -> Self {
        Self {
            qp,
            credits: Credits::new(queue.kind.granted()),
            is_shared: matches!(queue.kind, Kind::Shared { .. }),
            payload: queue.size - msg::LEN,
            in_flight: InFlight::default(),
            taken_of_packet: 0,
            posted: 0,
            unposted: Vec::new(),
            missing: 0,
            kept_with_messages: 0,
            series: None,
        }
    }

    /// Whether a work request may be posted.
    pub(crate) fn has_place(&self) -> bool {
        self.places() > 0
    }

    /// Whether a READ, WRITE or atomic may be posted.
    #[inline]
    pub(crate) fn has_place_for_transfer(&self) -> bool {
        self.places() > TRANSFER_RESERVE
    }

    /// Returns how many work requests may be posted.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        SEND_QUEUE - self.in_flight.count()
    }

    /// Whether a message costs a credit here: where each peer has receives of its own, whatever uses one up but for those
    /// that have a reserve; where they are shared, only what may have to be stored.
    #[inline]
    pub(crate) fn charges(&self, message: &Message) -> bool {
        match message {
            Message::Eager { .. } | Message::Fragment { .. } | Message::RequestToSend { .. } => true,
            Message::Credit | Message::Terms => false,
            Message::Cancel { .. }
            | Message::ClearToSend { .. }
            | Message::Data { .. }
            | Message::Written { .. }
            | Message::Finished { .. }
            | Message::Matched { .. }
            | Message::Cancelled { .. }
            | Message::StreamOffer
            | Message::Put { .. }
            | Message::Get { .. }
            | Message::Got { .. }
            | Message::Atomic { .. }
            | Message::Executed { .. }
            | Message::Firehose { .. }
            | Message::FindKey { .. }
            | Message::KeyFound { .. }
            | Message::KeyGone { .. }
            | Message::Active { .. } => !self.is_shared,
        }
    }

    /// Whether a control message may go, or a part of a stream: neither is ever stored, so its credit always comes back.
    pub(crate) fn admits_control(&self) -> bool {
        self.is_shared || self.credits.for_control() > 0
    }

    /// Whether something may go that the peer acts upon at once, and that more may follow: it leaves a credit to control messages.
    #[inline]
    pub(crate) fn admits_requests(&self) -> bool {
        self.is_shared || self.credits.for_requests() > 0
    }

    /// Returns the bytes of the receives that are this peer's alone.
    pub(crate) fn receive_bytes(&self) -> usize {
        let count = self.posted + self.unposted.len();
        if self.is_shared { 0 } else { count * (self.payload + msg::LEN) }
    }
}

/// The receive queue for a message, by what a vbuf of each holds: the first that holds it, or the last; and how many vbufs
/// it takes there.
#[inline]
pub(crate) fn lane_for(len: usize, mut payloads: impl ExactSizeIterator<Item = usize> + Clone) -> (usize, usize) {
    let last = payloads.len() - 1;
    match payloads.clone().position(|payload| len <= payload) {
        Some(queue) => (queue, 1),
        None => (last, payloads.nth(last).map_or(1, |payload| len.div_ceil(payload))),
    }
}
