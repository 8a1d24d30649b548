//! The completion queue: how work requests end, in the order in which they end.

use std::collections::VecDeque;

use roci_protocol::in_place::push_in_place;
use roci_protocol::rc::{Operation, RcCompletion, WcStatus};
use roci_protocol::{Qpn, Rkey};

use crate::handles::QueuePair;
use crate::mem::Buffer;

/// How a work request ended (`ibv_wc`).
#[derive(Debug)]
pub struct WorkCompletion {
    /// Whose.
    pub qp: QueuePair,
    /// The poster's name for it.
    pub wr_id: u64,
    /// How.
    pub status: WcStatus,
    /// What it was.
    pub operation: Operation,
    /// Bytes received, read, written or sent; meaningful on success. The buffer of a receive keeps its length: the message is
    /// `buffer[..len]`.
    pub len: usize,
    /// Immediate data from the peer.
    pub imm: Option<u32>,
    /// The memory window that the peer's message ended.
    pub invalidated: Option<Rkey>,
    /// Who sent a datagram; its receive begins with [`roci_protocol::ud::GRH_LEN`] bytes of header.
    pub source_qpn: Option<Qpn>,
    /// The memory, handed back.
    pub buffer: Buffer,
}

/// The queue itself. Every posted work request has a place reserved, so it cannot overflow.
///
/// A place is a count: memory grows with the ends that wait to be polled for, by doubling, and is kept. An application reserves
/// for all that its peers may have in flight, and polls long before so much has ended.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<WorkCompletion>,
    capacity: usize,
    reserved: usize,
    /// Since it was empty last a receive has ended.
    has_receives: bool,
    armed: Option<Notify>,
    /// Sinks know the work requests of this queue.
    is_known_to_sinks: bool,
    /// What ends is offered to sinks: they know it, and no event was asked for.
    has_sink: bool,
}

/// Which completions raise an event (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// The next one.
    Any,
    /// The next one that the peer sent with the solicited event bit, or that failed (IBTA 9.2.3).
    Solicited,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            capacity,
            reserved: 0,
            has_receives: false,
            armed: None,
            is_known_to_sinks: true,
            has_sink: true,
        }
    }

    /// There are places for so many from here on, or for as many as before.
    pub(crate) fn grow(&mut self, capacity: usize) {
        self.capacity = self.capacity.max(capacity);
    }

    /// Whether a place is left.
    #[inline]
    pub(crate) fn has_place(&self) -> bool {
        self.reserved < self.capacity
    }

    /// Reserves a place for a work request; `false` where none is left.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        let free = self.has_place();
        self.reserved += usize::from(free);
        free
    }

    /// A reservation that is not needed: nothing was posted, or it ended without a completion.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.reserved -= 1;
    }

    /// Withdraws the request for an event, which was delivered or is no longer wanted.
    pub(crate) fn disarm(&mut self) {
        self.armed = None;
        self.has_sink = self.is_known_to_sinks;
    }

    /// Asks for one event.
    pub(crate) fn arm(&mut self, notify: Notify) {
        self.armed = Some(notify);
        self.has_sink = false;
    }

    /// Whether sinks know the work requests of this queue.
    pub(crate) fn set_known_to_sinks(&mut self, is_known: bool) {
        self.is_known_to_sinks = is_known;
        self.has_sink = is_known && self.armed.is_none();
    }

    /// Reports an end in the place that was reserved for it; `true` where somebody waits for the event, until
    /// [`Queue::disarm`].
    #[inline(always)]
    pub(crate) fn push(&mut self, qp: QueuePair, source_qpn: Option<Qpn>, done: RcCompletion<Buffer>) -> bool {
        if !done.signaled && done.status.is_success() {
            self.reserved -= 1;
            return false;
        }
        assert!(self.entries.len() < self.reserved, "every end has a place reserved");
        let RcCompletion { wr_id, status, operation, len, imm, invalidated, solicited, buffer, .. } = done;
        let len = len as usize;
        if is_receive(operation) {
            self.has_receives = true;
        }
        let entry = |imm, invalidated, source_qpn| WorkCompletion {
            qp,
            wr_id,
            status,
            operation,
            len,
            imm,
            invalidated,
            source_qpn,
            buffer,
        };
        // Mostly there is nothing more to tell, and nothing of it is copied.
        match (imm, invalidated, source_qpn) {
            (None, None, None) => push_in_place(&mut self.entries, || entry(None, None, None)),
            _ => push_in_place(&mut self.entries, || entry(imm, invalidated, source_qpn)),
        }
        match self.armed {
            None => false,
            Some(Notify::Any) => true,
            Some(Notify::Solicited) => solicited,
        }
    }

    /// Whether a message may be offered to a sink: no receive waits to be polled for, and no event was asked for.
    #[inline]
    pub(crate) fn offers_messages(&self) -> bool {
        !self.has_receives && self.has_sink
    }

    /// Whether memory may be offered to a sink: nothing waits to be polled for, and no event was asked for.
    #[inline]
    pub(crate) fn offers_memory(&self) -> bool {
        self.entries.is_empty() && self.has_sink
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check(&self) {
        let has_receives = self.entries.iter().any(|entry| is_receive(entry.operation));
        assert!(self.has_receives || !has_receives, "a receive is among the entries");
        assert_eq!(self.has_sink, self.is_known_to_sinks && self.armed.is_none(), "what ends is offered to sinks");
        let (entries, reserved, capacity) = (self.entries.len(), self.reserved, self.capacity);
        assert!(entries <= reserved && reserved <= capacity, "{entries} ends, {reserved} reserved of {capacity}");
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<WorkCompletion> {
        let entry = self.entries.pop_front()?;
        self.reserved -= 1;
        if self.entries.is_empty() {
            // What follows is put where this one was, which the caches still have, and not on and on around the ring.
            self.entries.clear();
            self.has_receives = false;
        }
        Some(entry)
    }
}

#[inline]
const fn is_receive(operation: Operation) -> bool {
    matches!(operation, Operation::Recv | Operation::RecvRdmaWithImm)
}
