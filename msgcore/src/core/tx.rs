//! What goes out: to each peer transfers first, because they cost nothing; then control messages, because they set
//! memory free; then matched messages in order, and parts of streams between them.

use roci_driver::link::Link;
use roci_driver::{PostError, SendWr};
use roci_protocol::msg::{self, Header, Message, Way};

use crate::Rank;
use crate::core::peer::{Direction, Endpoint, Outgoing, Transfer};
use crate::services::tag::select::{Conditions, Protocol, Reason, place, select};
use crate::worker::Worker;

/// The mark of work requests that carry a vbuf; they are named after lane and rank.
const VBUF: u64 = 1 << 63;

/// The name of a vbuf's work request, on either side.
#[inline]
pub(crate) fn name_of(lane: usize, rank: Rank) -> u64 {
    VBUF | (lane as u64) << 32 | rank as u64
}

/// The lane and rank behind a name.
#[inline]
pub(crate) fn place_of(name: u64) -> (usize, Rank) {
    ((name >> 32) as usize & 0xff, name as u32 as Rank)
}

/// Whether something may be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// Yes.
    Yes,
    /// A credit is missing: the peer will send one.
    NoCredit,
    /// A vbuf or a place in the send queue is missing: a completion brings it.
    NoBuffer,
}

impl<L: Link> Worker<L> {
    /// Sends what waits for a peer, as far as credits and buffers go.
    #[inline]
    pub(crate) fn advance(&mut self, to: Rank) {
        if self.endpoints[to].as_deref().is_some_and(|endpoint| endpoint.has_work() && endpoint.is_open()) {
            self.post_waiting(to);
        }
    }

    fn post_waiting(&mut self, to: Rank) {
        self.post_transfers(to);
        while self.post_control(to) {}
        // By turns: neither a long stream nor many messages may keep the other waiting.
        while self.post_message(to) | self.post_stream(to) {
            while self.post_control(to) {}
        }
    }

    /// The open endpoint of a peer.
    #[inline]
    pub(crate) fn endpoint(&mut self, rank: Rank) -> Option<&mut Endpoint> {
        self.endpoints.get_mut(rank)?.as_deref_mut().filter(|endpoint| endpoint.failure.is_none())
    }

    fn post_control(&mut self, to: Rank) -> bool {
        let Some(endpoint) = self.endpoint(to) else { return false };
        let Some(&next) = endpoint.control.front() else { return false };
        let admitted = endpoint.lanes[0].admits_control();
        if !self.has_room(to, 0, 1, admitted) {
            return false;
        }
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.control.pop_front();
        }
        self.post_vbuf(to, 0, Header { sequence: next.sequence, ..Header::new(next.message) }, &[]);
        true
    }

    fn post_message(&mut self, to: Rank) -> bool {
        let Some(endpoint) = self.endpoint(to) else { return false };
        let Some(next) = endpoint.outgoing.front() else { return false };
        if !endpoint.cancels.admits(endpoint.next_sequence) {
            self.stats.cancel_stalls += 1;
            return false;
        }
        let (len, is_lent) = (next.payload.len(), next.payload.has_skipped_front());
        let (lane, vbufs) = place(len, endpoint.lanes.iter().map(|lane| lane.payload));
        let credits = usize::from(endpoint.lanes[lane].credits.for_eager());
        let places = endpoint.lanes[lane].places();
        let may_request = endpoint.lanes[0].credits.for_requests() > 0;
        let peer = endpoint.capabilities;
        let can_register = self.can_register();
        // A series goes whole or not at all: one that finds no room now must not wait for others to leave some.
        let is_series = vbufs > 1 && len <= self.rules.eager;
        let has_room = !is_series || (vbufs <= places && self.send_pools[lane].provide(&self.engine, vbufs));
        let credits = if has_room { credits } else { 0 };
        let (mut protocol, mut reason) = select(&self.rules, &Conditions { len, vbufs, credits, can_register, peer });
        if protocol == Protocol::Rendezvous(Way::Pipeline) && is_lent {
            // It cannot be cut in pieces.
            (protocol, reason) = (Protocol::Rendezvous(Way::R3), Reason::Unregistered);
        }
        let (lane, vbufs, admitted) = match protocol {
            Protocol::Eager => (lane, vbufs, true),
            Protocol::Rendezvous(_) => (0, 1, may_request),
        };
        if !self.has_room(to, lane, vbufs, admitted) {
            return false;
        }
        let Some(outgoing) = self.endpoint(to).and_then(|endpoint| endpoint.outgoing.pop_front()) else { return false };
        self.stats.chose(protocol, reason);
        match protocol {
            Protocol::Eager => self.send_eager(to, lane, outgoing),
            Protocol::Rendezvous(way) => self.request(to, way, outgoing),
        }
        true
    }

    /// The place of the next matched message.
    pub(crate) fn next_sequence(&mut self, to: Rank) -> u16 {
        self.endpoint(to).map_or(0, |endpoint| {
            let sequence = endpoint.next_sequence;
            endpoint.next_sequence = sequence.wrapping_add(1);
            sequence
        })
    }

    /// Whether so many vbufs can be sent on a lane now; counts why not.
    pub(crate) fn has_room(&mut self, to: Rank, lane: usize, vbufs: usize, is_admitted: bool) -> bool {
        match self.room(to, lane, vbufs, is_admitted) {
            Room::Yes => return true,
            Room::NoCredit => self.stats.credit_stalls += 1,
            Room::NoBuffer => self.stats.buffer_stalls += 1,
        }
        false
    }

    fn room(&mut self, to: Rank, lane: usize, vbufs: usize, is_admitted: bool) -> Room {
        let Some(endpoint) = self.endpoints[to].as_deref() else { return Room::NoBuffer };
        if !is_admitted {
            return Room::NoCredit;
        }
        if endpoint.lanes[lane].in_flight + vbufs > crate::core::peer::SEND_QUEUE {
            return Room::NoBuffer;
        }
        if !self.send_pools[lane].provide(&self.engine, vbufs) {
            self.vbufs_are_exhausted = true;
            return Room::NoBuffer;
        }
        Room::Yes
    }

    /// Sends a header and a payload that fits behind it. The caller has seen to a credit, a vbuf and a place in the queue.
    #[inline]
    pub(crate) fn post_vbuf(&mut self, to: Rank, lane_index: usize, header: Header, payload: &[u8]) {
        let vbuf = self.send_pools[lane_index].take(&self.engine);
        let (Some(endpoint), Some(mut vbuf)) = (self.endpoints[to].as_deref_mut(), vbuf) else {
            unreachable!("the caller has seen to a peer and a vbuf");
        };
        let (queue, credits) = endpoint.owed();
        let lane = &mut endpoint.lanes[lane_index];
        if lane.charges(&header.message) {
            lane.credits.spend();
        }
        vbuf.set_len(msg::LEN + payload.len());
        Header { credits, queue, ..header }.emit(&mut vbuf);
        vbuf[msg::LEN..].copy_from_slice(payload);
        lane.in_flight += 1;
        if let Err(refused) = self.engine.post_send(lane.qp, SendWr::send(name_of(lane_index, to), vbuf)) {
            // The queue pair has failed, and its completions will say so.
            debug_assert!(matches!(refused.reason, PostError::QueuePair(_)), "there is a place: {}", refused.reason);
            lane.in_flight -= 1;
            self.send_pools[lane_index].give(refused.request.into_buffer());
        }
    }

    /// Gives credits back in messages of their own.
    #[inline]
    pub(crate) fn return_credits(&mut self, to: Rank) {
        let Some(endpoint) = self.endpoints[to].as_deref() else { return };
        if endpoint.lanes.iter().any(|lane| lane.credits.is_return_due()) {
            self.post_no_ops(to);
        }
    }

    #[cold]
    fn post_no_ops(&mut self, to: Rank) {
        let Some(endpoint) = self.endpoint(to).filter(|endpoint| endpoint.is_open()) else { return };
        for index in 0..endpoint.lanes.len() {
            if self.endpoint(to).is_some_and(|endpoint| endpoint.lanes[index].credits.is_return_due()) {
                self.post_no_op(to, index);
            }
        }
    }

    /// A completed send tries again where this one cannot go.
    fn post_no_op(&mut self, to: Rank, lane: usize) {
        if !self.has_room(to, lane, 1, true) {
            return;
        }
        let Some(endpoint) = self.endpoint(to) else { return };
        // The queue that is in need rides on its own no-op: the reserve is counted so.
        endpoint.next_return = lane;
        self.stats.tx_credit += 1;
        self.post_vbuf(to, lane, Header::new(Message::Credit), &[]);
    }

    fn post_transfers(&mut self, to: Rank) {
        while let Some(endpoint) = self.endpoint(to).filter(|endpoint| endpoint.may_transfer()) {
            let Some(Transfer { request, buffer, rkey, va, direction }) = endpoint.transfers.pop_front() else {
                return;
            };
            let name = request.to_wire();
            let (qp, len) = (endpoint.lanes[0].qp, buffer.len() as u64);
            endpoint.lanes[0].in_flight += 1;
            endpoint.transferring += buffer.len();
            let work = match direction {
                Direction::Read => SendWr::read(name, buffer, rkey, va),
                Direction::Write { reply } => {
                    // Sent on the same queue pair, so it is executed after the WRITE.
                    endpoint.say(Message::Written { reply, len });
                    SendWr::write(name, buffer, rkey, va)
                }
            };
            if self.engine.post_send(qp, work).is_err() {
                // The queue pair has failed: its completions will say so, and the end of the peer ends the request.
                if let Some(endpoint) = self.endpoint(to) {
                    endpoint.lanes[0].in_flight -= 1;
                }
                return;
            }
        }
    }

    /// Work requests of a lane have ended: there is room for others, maybe other peers'.
    #[inline]
    pub(crate) fn on_send_slot(&mut self, rank: Rank, lane: usize) {
        let Some(endpoint) = self.endpoints[rank].as_deref_mut() else { return };
        endpoint.lanes[lane].in_flight -= 1;
        self.go_on(rank);
        self.wake_the_starved();
    }

    /// Buffers are shared: whoever found none may go on now.
    pub(crate) fn wake_the_starved(&mut self) {
        if std::mem::take(&mut self.vbufs_are_exhausted) {
            (0..self.size).for_each(|rank| self.go_on(rank));
        }
    }

    /// Sends what waits for a peer, and the credits that it is owed.
    #[inline]
    pub(crate) fn go_on(&mut self, rank: Rank) {
        if self.endpoints[rank].as_deref().is_some_and(|endpoint| endpoint.owes_greeting) {
            self.send_greeting(rank);
        }
        self.advance(rank);
        self.return_credits(rank);
    }

    /// Queues a message of the application.
    #[inline]
    pub(crate) fn enqueue(&mut self, to: Rank, outgoing: Outgoing) {
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.outgoing.push_back(outgoing);
        }
        self.advance(to);
    }
}
