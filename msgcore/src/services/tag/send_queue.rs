//! What waits to be sent to one peer: matched messages in order, and payloads that go in fragments.

use std::collections::VecDeque;

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{Label, Mode};

use super::TagService;
use super::cancels::Cancels;
use super::matching::entries::Entries;
use super::select::{Conditions, Protocol, select};
use crate::core::Core;
use crate::core::lane::lane_for;
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;

/// Messages that may wait for one peer, or for their receives there.
pub(crate) const OUTGOING_LIMIT: usize = 1 << 16;

/// What waits to be sent to one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerSendQueue {
    /// Matched messages that wait for the connection, for a credit, a vbuf, or a place in the send queue; in order.
    pub(super) outgoing: Entries<Outgoing>,
    /// R3: payloads on their way.
    pub(super) fragments: VecDeque<Fragments>,
    /// Messages that it was asked to give back, or will be.
    pub(super) cancels: Cancels,
    /// Messages announced to the peer that have met no receive there, as far as is known here.
    pub(super) announced: usize,
    /// Messages announced by the peer that have met no receive here.
    pub(super) announced_here: usize,
}

/// A matched message that waits to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) request: Request,
    pub(crate) label: Label,
    pub(crate) mode: Mode,
    pub(crate) payload: Buffer,
}

/// R3: what is left to send of a payload.
#[derive(Debug)]
pub(crate) struct Fragments {
    pub(super) request: Request,
    pub(super) reply: u64,
    pub(super) label: Label,
    pub(super) payload: Buffer,
    pub(super) sent: usize,
}

impl PeerSendQueue {
    /// Whether another message may be accepted: each that waits may have to be announced, and how many are is limited.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.outgoing.len() + self.announced < OUTGOING_LIMIT
    }

    /// A message that was announced has met its receive, or was taken back.
    pub(super) fn note_announced_over(&mut self) {
        assert!(self.announced > 0, "what is over was announced");
        self.announced -= 1;
    }

    /// Whether something waits.
    #[inline]
    fn has_work(&self) -> bool {
        !(self.outgoing.len() == 0 && self.fragments.is_empty())
    }
}

impl TagService {
    /// There are peers in so many slots from here on.
    pub(crate) fn make_room(&mut self, slots: usize) {
        if self.queues.len() < slots {
            self.queues.resize_with(slots, PeerSendQueue::default);
        }
    }

    /// Whether something waits to be sent to a peer.
    #[inline]
    pub(crate) fn has_work(&self, peer: PeerId) -> bool {
        self.queues[peer.slot()].has_work()
    }

    /// Whether a short message had to be announced to a peer, which has no receive for it yet, and its send is over for the application:
    /// it was injected or detached.
    pub(crate) fn has_unfetched(&self, peer: PeerId) -> bool {
        self.queues[peer.slot()].announced > 0 && self.requests.has_unfetched(peer, self.rules.eager)
    }

    /// Returns how many messages wait to be sent to a peer.
    pub(crate) fn outgoing_len(&self, peer: PeerId) -> usize {
        self.queues[peer.slot()].outgoing.len()
    }

    /// Returns the lane on which a message of this length can leave at once in a single vbuf, if it is eager: nothing waits
    /// before it, and it joins others that leave, or there are a credit, a place and a vbuf for it. It is what [`select`] would say,
    /// without the detour.
    #[inline]
    pub(super) fn short_lane<L: Link>(&self, core: &Core<L>, peer: &Peer, len: usize, mode: Mode) -> Option<usize> {
        let queue = &self.queues[peer.id.slot()];
        // Where a cancel is open the place in the sequence must be looked at.
        if !peer.is_open() || peer.tx.has_work() || queue.has_work() || queue.cancels.is_any_open() {
            return None;
        }
        let lane = peer.lanes.iter().position(|lane| len <= lane.payload)?;
        let it = &peer.lanes[lane];
        let has_room = it.credits.for_eager() > 0 && it.has_place() && core.has_spare_vbuf(lane);
        (has_room || peer.joins_packet(len, mode)).then_some(lane)
    }

    /// Returns the lane of a message, and how many vbufs it takes if it is eager: none where it joins others.
    fn lane_and_vbufs(&self, peer: &Peer, len: usize, mode: Mode) -> (usize, usize) {
        let (lane, vbufs) = lane_for(len, peer.lanes.iter().map(|lane| lane.payload));
        let joins = len <= self.rules.eager && peer.joins_packet(len, mode);
        (lane, if joins { 0 } else { vbufs })
    }

    /// Sends the oldest matched message, where there is one and it may go; returns whether it did.
    pub(crate) fn post_message<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer) -> bool {
        let queue = &self.queues[peer.id.slot()];
        let Some(first) = queue.outgoing.next(None) else { return false };
        let next = queue.outgoing.get(first).expect("it is in the list");
        if !queue.cancels.admits(peer.tx.next_sequence) {
            core.stats.cancel_stalls += 1;
            return false;
        }
        let (len, can_be_cut, is_list) = (next.payload.len(), next.payload.can_be_cut(), next.payload.is_list());
        let (lane, vbufs) = self.lane_and_vbufs(peer, len, next.mode);
        let credits = usize::from(peer.lanes[lane].credits.for_eager());
        let places = peer.lanes[lane].places();
        let may_request = peer.lanes[0].credits.for_requests() > 0;
        // A series goes whole or not at all: one that finds no room now must not wait for others to leave some.
        let is_series = vbufs > 1 && len <= self.rules.eager;
        let has_buffers = !is_series || (vbufs <= places && core.provide_vbufs(peer, lane, vbufs));
        let conditions = Conditions {
            len,
            vbufs,
            credits,
            has_buffers,
            can_register: core.can_register(),
            can_be_cut,
            is_readable: peer.cma.reads_ours && !is_list,
            peer: peer.connection.capabilities,
        };
        let (protocol, reason) = select(&self.rules, &conditions);
        let (lane, vbufs, admitted) = match protocol {
            Protocol::Eager => (lane, vbufs, true),
            Protocol::Rendezvous(_) => (0, 1, may_request),
        };
        if vbufs > 0 && !core.has_send_room(peer, lane, vbufs, admitted) {
            return false;
        }
        let outgoing = self.queues[peer.id.slot()].outgoing.remove(first).expect("it was just there");
        core.message_sizes.note(len as u64);
        core.stats.chose(protocol, reason);
        tracing::trace!("{}: a message of {len} B goes as {protocol}: {reason}", peer.id);
        match protocol {
            Protocol::Eager => self.send_eager(core, peer, lane, outgoing),
            Protocol::Rendezvous(rendezvous) => self.announce(core, peer, (rendezvous, reason), outgoing),
        }
        true
    }
}
