//! One peer: its connection, its credits, and what waits to be sent to it.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use roci_driver::{Buffer, QueuePair, Rkey};
use roci_protocol::msg::{Capabilities, Label, MAX_QUEUES, Message, Mode};

use crate::core::credit::Credits;
use crate::core::keepalive::Heard;
use crate::core::rx::Arrived;
use crate::endpoint::wireup::{Misfit, Stage};
use crate::services::tag::cancels::Cancels;
use crate::services::tag::request::{OpError, Request};

/// Operations that may wait for one peer.
pub(crate) const OUTGOING_LIMIT: usize = 1 << 16;
/// Work requests that a lane's send queue holds.
pub(crate) const SEND_QUEUE: usize = 256;

/// Bytes of READs and WRITEs under way to one peer: with the smallest packets half of what a send queue can number.
pub(crate) const TRANSFER_LIMIT: usize = 1 << 30;

/// The worker's view of a peer.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) stage: Stage,
    /// Our terms wait for a vbuf.
    pub(crate) owes_greeting: bool,
    /// A queue pair for each receive queue, once it is connected.
    pub(crate) lanes: ArrayVec<Lane, MAX_QUEUES>,
    /// What the peer can do, once its terms are known.
    pub(crate) capabilities: Capabilities,
    /// The place of the next matched message, of ours and of the peer's.
    pub(crate) next_sequence: u16,
    pub(crate) expected_sequence: u16,
    /// Matched messages that wait for the connection, for a credit, a vbuf, or a place in the send queue; in order.
    pub(crate) outgoing: VecDeque<Outgoing>,
    /// Control messages: they overtake, because they set memory free. Of an honest peer there are never more than operations.
    pub(crate) control: VecDeque<Control>,
    /// Messages that it was asked to give back, or will be.
    pub(crate) cancels: Cancels,
    /// R3: payloads on their way.
    pub(crate) streams: VecDeque<Stream>,
    /// READs and WRITEs to be posted; they cost no credit.
    pub(crate) transfers: VecDeque<Transfer>,
    /// The lane whose credits are given back next.
    pub(crate) next_return: usize,
    /// Bytes of READs and WRITEs posted and not complete.
    pub(crate) transferring: usize,
    /// What has come on one lane before something earlier on another.
    pub(crate) parked: Vec<Arrived>,
    /// What was last seen of it, for who waits.
    pub(crate) heard: Heard,
    /// Why its terms do not fit: it is given up soon.
    pub(crate) misfit: Option<Misfit>,
    /// Why the peer is gone.
    pub(crate) failure: Option<OpError>,
}

/// One queue pair to a peer, and the receives that it draws on.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) qp: QueuePair,
    pub(crate) credits: Credits,
    /// Its receives are shared by all peers.
    pub(crate) is_shared: bool,
    /// Bytes of payload that a vbuf of this lane holds.
    pub(crate) payload: usize,
    /// Work requests posted and not complete.
    pub(crate) in_flight: usize,
    /// Receives posted.
    pub(crate) posted: usize,
    /// Receives used up and not posted again: those that wait to be posted together, and those that lack a vbuf.
    pub(crate) unposted: Vec<Buffer>,
    pub(crate) missing: usize,
    /// The eager message of the peer's whose vbufs have not all come: they come in one go.
    pub(crate) series: Option<u64>,
}

/// A matched message that waits to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) request: Request,
    pub(crate) label: Label,
    pub(crate) mode: Mode,
    pub(crate) payload: Buffer,
}

/// A control message that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) message: Message,
    /// Of [`Message::Cancel`]: the place in the sequence.
    pub(crate) sequence: u16,
}

/// R3: what is left to send of a payload.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) request: Request,
    pub(crate) reply: u64,
    pub(crate) label: Label,
    pub(crate) payload: Buffer,
    pub(crate) sent: usize,
}

/// A READ or WRITE to be posted.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) request: Request,
    pub(crate) buffer: Buffer,
    pub(crate) rkey: Rkey,
    pub(crate) va: u64,
    pub(crate) direction: Direction,
}

/// Which way a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From the peer.
    Read,
    /// To the peer, which is then told under its name for the operation.
    Write {
        /// That name.
        reply: u64,
    },
}

impl Endpoint {
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Idle,
            owes_greeting: false,
            lanes: ArrayVec::new(),
            capabilities: Capabilities::default(),
            next_sequence: 0,
            expected_sequence: 0,
            outgoing: VecDeque::new(),
            control: VecDeque::new(),
            cancels: Cancels::default(),
            streams: VecDeque::new(),
            transfers: VecDeque::new(),
            next_return: 0,
            transferring: 0,
            parked: Vec::new(),
            heard: Heard::default(),
            misfit: None,
            failure: None,
        }
    }

    /// Messages may be sent.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether nothing of ours is under way to the peer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.failure.is_some() || !(self.has_work() || self.lanes.iter().any(|lane| lane.in_flight > 0))
    }

    /// Whether something waits to be sent.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.outgoing.is_empty() && self.control.is_empty() && self.streams.is_empty() && self.transfers.is_empty())
    }

    /// The lane on which a message of this length can leave at once in a single vbuf, if it is eager: nothing waits before
    /// it, and there are a credit and a place for it. It is what [`crate::services::tag::select`] would say, without the detour.
    #[inline]
    pub(crate) fn short_way(&self, len: usize) -> Option<usize> {
        // Where a question is open the place in the sequence must be looked at.
        if !self.is_open() || self.has_work() || self.cancels.is_any_open() {
            return None;
        }
        let lane = self.lanes.iter().position(|lane| len <= lane.payload)?;
        let it = &self.lanes[lane];
        (it.credits.for_eager() > 0 && it.has_place()).then_some(lane)
    }

    /// The credits that ride on the next message: those of the queue that is in need, or of the next that owes any.
    #[inline]
    pub(crate) fn owed(&mut self) -> (u8, u16) {
        let count = self.lanes.len();
        let mut index = self.next_return.min(count - 1);
        if count > 1 {
            let owes = |lane: &usize| self.lanes[*lane].credits.owed() > 0;
            index = (0..count).map(|step| (index + step) % count).find(owes).unwrap_or(index);
            self.next_return = (index + 1) % count;
        }
        (index as u8, self.lanes[index].credits.take_owed())
    }

    /// Whether the next READ or WRITE may be posted.
    pub(crate) fn may_transfer(&self) -> bool {
        let next = self.transfers.front().map_or(0, |transfer| transfer.buffer.len());
        self.lanes[0].has_place() && (self.transferring == 0 || self.transferring + next <= TRANSFER_LIMIT)
    }

    /// A READ or WRITE has ended.
    pub(crate) fn note_transferred(&mut self, len: usize) {
        self.transferring -= len;
    }

    /// Sends a control message as soon as that is possible.
    pub(crate) fn say(&mut self, message: Message) {
        self.control.push_back(Control { message, sequence: self.next_sequence });
    }
}

impl Lane {
    pub(crate) fn has_place(&self) -> bool {
        self.places() > 0
    }

    /// Work requests that may be posted.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        SEND_QUEUE - self.in_flight
    }

    /// Whether a message costs a credit here: where each peer has receives of its own, whatever uses one up but for those
    /// that have a reserve; where they are shared, only what may have to be kept.
    #[inline]
    pub(crate) fn charges(&self, message: &Message) -> bool {
        match message {
            Message::Eager { .. } | Message::Fragment { .. } | Message::Request { .. } => true,
            Message::Credit | Message::ClearToSend => false,
            _ => !self.is_shared,
        }
    }

    /// Whether a control message may go, or a part of a stream: neither is ever kept, so its credit always comes back.
    pub(crate) fn admits_control(&self) -> bool {
        self.is_shared || self.credits.for_control() > 0
    }
}
