//! The send queue: work requests, the PSNs that they own, and the cursor among them.

use std::collections::VecDeque;
use std::ops::Index;

use crate::in_place::push_in_place;
use crate::rc::{Config, RcPostError, Rejected, SendOp, SendRequest};
use crate::{Msn, Psn};

/// The longest message (IBTA 9.7.8).
pub(in crate::rc) const MAX_MESSAGE: u32 = 1 << 31;
/// PSNs that may be outstanding (IBTA 9.7.5.1: less than half of all).
pub(in crate::rc) const MAX_SPAN: u32 = (1 << 23) - 1;
/// Requests that a queue has memory for when it is made: who speaks rarely has no more in flight.
const FIRST_PLACES: usize = 2;
/// What an atomic operates on.
const ATOMIC_LEN: u32 = 8;

/// A send work request and the PSNs that it owns.
pub(in crate::rc) struct Wqe<B> {
    pub(in crate::rc) request: SendRequest<B>,
    pub(in crate::rc) first: Psn,
    pub(in crate::rc) packets: u32,
    /// READ and atomic: response packets placed.
    pub(in crate::rc) received: u32,
    /// Its number among the messages, from 1 on (IBTA 9.7.7.2: send sequence number).
    pub(super) ssn: Msn,
}

impl<B> Wqe<B> {
    /// The first PSN after this request.
    #[inline]
    pub(in crate::rc) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    #[inline]
    pub(in crate::rc) fn is_fetch(&self) -> bool {
        self.request.op.is_fetch()
    }
}

/// The next packet to send: which request, and which of its packets.
#[derive(Clone, Copy, Default)]
struct Cursor {
    index: usize,
    packet: u32,
}

/// Work requests that are not complete, oldest first: the PSNs of each follow those of the one before, up to the next request
/// to be posted. The cursor stands at one of their packets, or behind the last.
///
/// The memory of the queue grows with its requests, by doubling, up to its depth, and the queue keeps what it has grown to: a
/// connection that has little in flight takes little, and a post allocates only where more are in flight than ever before.
pub(in crate::rc) struct SendQueue<B> {
    wqes: VecDeque<Wqe<B>>,
    depth: usize,
    cursor: Cursor,
    /// The PSN of the next request to be posted.
    next: Psn,
    /// PSNs of all requests in the queue: no two of them may be so far apart that their order is lost.
    span: u32,
    /// The number of the message posted last.
    ssn: Msn,
    /// The peer serves no READs and atomics.
    takes_no_fetch: bool,
}

impl<B> Index<usize> for SendQueue<B> {
    type Output = Wqe<B>;

    #[inline]
    fn index(&self, index: usize) -> &Wqe<B> {
        &self.wqes[index]
    }
}

impl<B> SendQueue<B> {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            wqes: VecDeque::with_capacity(config.sq_depth.min(FIRST_PLACES)),
            depth: config.sq_depth,
            cursor: Cursor::default(),
            next: config.sq_psn,
            span: 0,
            ssn: Msn::default(),
            takes_no_fetch: config.max_rd_atomic == 0,
        }
    }

    #[inline]
    pub(in crate::rc) fn len(&self) -> usize {
        self.wqes.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    #[inline]
    pub(in crate::rc) fn front(&self) -> Option<&Wqe<B>> {
        self.wqes.front()
    }

    /// The oldest request, which is there.
    #[inline]
    pub(in crate::rc) fn front_mut(&mut self) -> &mut Wqe<B> {
        &mut self.wqes[0]
    }

    #[inline]
    pub(in crate::rc) fn iter(&self) -> impl Iterator<Item = &Wqe<B>> {
        self.wqes.iter()
    }

    /// Which request owns `psn`, a packet that is not acknowledged.
    pub(in crate::rc) fn position_of(&self, psn: Psn) -> Option<usize> {
        self.wqes.iter().position(|wqe| psn.before(wqe.end()))
    }

    /// The oldest READ or atomic. Mostly it is the oldest request.
    #[inline]
    pub(in crate::rc) fn oldest_fetch(&self) -> Option<&Wqe<B>> {
        let front = self.wqes.front()?;
        if front.is_fetch() { Some(front) } else { self.wqes.iter().find(|wqe| wqe.is_fetch()) }
    }

    /// The PSN of the next request to be posted.
    #[inline]
    pub(in crate::rc) const fn next_psn(&self) -> Psn {
        self.next
    }

    /// The number of the next message to be posted.
    #[inline]
    pub(super) fn next_ssn(&self) -> Msn {
        self.ssn.next()
    }

    /// Whether one more request of one packet finds room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.wqes.len() < self.depth && self.span < MAX_SPAN
    }

    pub(super) fn post(&mut self, request: SendRequest<B>, config: &Config) -> Result<(), Rejected<SendRequest<B>>> {
        let reject = |reason, request| Err(Rejected { reason, request });
        if request.len > MAX_MESSAGE {
            return reject(RcPostError::TooLong, request);
        }
        if self.wqes.len() == self.depth {
            return reject(RcPostError::QueueFull, request);
        }
        let needed = match request.op {
            SendOp::Atomic { .. } => ATOMIC_LEN,
            SendOp::BindWindow { .. } | SendOp::LocalInvalidate { .. } => 0,
            _ => request.len,
        };
        if request.len != needed {
            return reject(RcPostError::BufferLength(needed), request);
        }
        if request.op.is_fetch() && self.takes_no_fetch {
            return reject(RcPostError::NoFetch, request);
        }
        let packets = request.op.packets(request.len, config.mtu);
        if self.span + packets > MAX_SPAN {
            let reason = if self.wqes.is_empty() { RcPostError::TooLong } else { RcPostError::QueueFull };
            return reject(reason, request);
        }
        if request.op.counts_as_message(config.dialect) {
            self.ssn = self.ssn.next();
        }
        self.push(request, packets);
        Ok(())
    }

    /// A message of one packet has left, and all that was posted before it: the cursor stands behind it.
    #[inline]
    pub(super) fn post_sent(&mut self, request: SendRequest<B>) {
        debug_assert!(self.is_at_end() && self.cursor.packet == 0, "all before it has left");
        self.ssn = self.ssn.next();
        self.push(request, 1);
        self.cursor = Cursor { index: self.wqes.len(), packet: 0 };
    }

    #[inline]
    fn push(&mut self, request: SendRequest<B>, packets: u32) {
        let first = self.next;
        self.span += packets;
        self.next = first.plus(packets);
        let ssn = self.ssn;
        push_in_place(&mut self.wqes, || Wqe { request, first, packets, received: 0, ssn });
    }

    /// Takes the oldest request out; every packet of it is acknowledged or answered.
    #[inline]
    pub(in crate::rc) fn pop(&mut self) -> Wqe<B> {
        let wqe = self.wqes.pop_front().expect("the caller looked at it");
        self.span -= wqe.packets;
        if self.wqes.is_empty() {
            // The next one takes the first place again: of a queue that is mostly empty, one of thousands, the caches
            // need not hold the whole ring.
            self.wqes.clear();
        }
        if self.cursor.index == 0 {
            self.cursor = Cursor::default();
        } else {
            self.cursor.index -= 1;
        }
        wqe
    }

    /// The request under the cursor.
    #[inline]
    pub(super) fn at_cursor(&self) -> Option<&Wqe<B>> {
        self.wqes.get(self.cursor.index)
    }

    /// Which packet of its request the cursor stands at.
    #[inline]
    pub(super) const fn cursor_packet(&self) -> u32 {
        self.cursor.packet
    }

    /// The PSN of the next packet to send.
    #[inline]
    pub(in crate::rc) fn cursor_psn(&self) -> Psn {
        self.at_cursor().map_or(self.next, |wqe| wqe.first.plus(self.cursor.packet))
    }

    /// Whether the cursor stands behind all that was posted.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.cursor.index == self.wqes.len()
    }

    /// Whether the cursor stands behind the request at `index`: a READ or an atomic there has been asked for since the last
    /// rewind.
    #[inline]
    pub(super) const fn has_passed(&self, index: usize) -> bool {
        index < self.cursor.index
    }

    /// Moves the cursor on to `next`, the PSN after those that were sent from where it stands.
    pub(super) fn advance(&mut self, next: Psn) {
        let wqe = &self.wqes[self.cursor.index];
        if next != wqe.end() {
            self.cursor.packet = next.since(wqe.first) as u32;
            return;
        }
        let index = self.cursor.index + 1;
        // A READ that was partly answered before a rewind continues where its responses stopped.
        let packet = self.wqes.get(index).map_or(0, |wqe| wqe.received);
        self.cursor = Cursor { index, packet };
    }

    /// Moves the cursor back to `psn`, which belongs to a request in the queue.
    pub(super) fn rewind(&mut self, psn: Psn) {
        let index =
            self.position_of(psn).expect("a PSN that was sent and not acknowledged has its request in the queue");
        let wqe = &self.wqes[index];
        let packet = if wqe.is_fetch() { wqe.received } else { psn.since(wqe.first) as u32 };
        self.cursor = Cursor { index, packet };
    }

    /// Moves the cursor on to `una`, the oldest packet not acknowledged, where it had gone back behind it.
    #[inline]
    pub(super) fn catch_up(&mut self, una: Psn) {
        if self.cursor_psn().before(una) {
            let front = &self.wqes[0];
            self.cursor = Cursor { index: 0, packet: una.since(front.first) as u32 };
        }
    }

    /// Asserts what holds between any two calls.
    pub(in crate::rc) fn check(&self) {
        let mut end = None;
        for wqe in &self.wqes {
            assert!(end.is_none_or(|end| end == wqe.first), "PSNs of requests follow each other");
            assert!(wqe.received <= wqe.packets, "more answers than were asked for");
            end = Some(wqe.end());
        }
        assert!(end.is_none_or(|end| end == self.next), "the last request ends at {:?}", self.next);
        assert_eq!(self.span, self.wqes.iter().map(|wqe| wqe.packets).sum::<u32>(), "the span is that of all requests");
        assert!(self.cursor.index <= self.wqes.len(), "the cursor is behind the end of the queue");
        assert!(!self.is_at_end() || self.cursor.packet == 0, "the cursor is within a request that is not there");
    }
}
