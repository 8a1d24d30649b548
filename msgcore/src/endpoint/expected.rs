//! What needs no completion. An eager message whose receive is posted goes from the packet that it came in straight into the
//! receive's buffer; every other message fills a vbuf, and is dispatched ([`super::dispatch`]). The vbuf of a message that was sent
//! goes back to its pool as soon as it is acknowledged, and a put is over.

use roci_driver::{Buffer, Operation, Sink};
use roci_protocol::msg::{Coalesced, Header, WholeEager};

use super::sending::has_work;
use crate::core::lane::Lane;
use crate::core::peer::Peer;
use crate::core::peers::Peers;
use crate::core::ready::Ready;
use crate::core::stats::WorkerStats;
use crate::core::tx::{OneSidedWork, lane_and_slot};
use crate::core::vbuf::Pool;
use crate::services::rma::RmaService;
use crate::services::tag::TagService;

/// What takes expected messages, and vbufs back, while the engine polls: everything that they need but the engine.
pub(super) struct Expected<'a> {
    pub(super) peers: &'a mut Peers,
    pub(super) send_pools: &'a mut [Pool],
    pub(super) tag: &'a mut TagService,
    pub(super) rma: &'a mut RmaService,
    pub(super) ready: &'a mut Ready,
    pub(super) stats: &'a mut WorkerStats,
}

impl Sink for Expected<'_> {
    #[inline]
    fn take(&mut self, wr_id: u64, message: &[u8]) -> bool {
        let (lane, slot) = lane_and_slot(wr_id);
        let Some((header, payload)) = Header::parse_whole(message) else {
            return Coalesced::of(message).is_some_and(|messages| self.take_coalesced(lane, slot, messages));
        };
        let Some(peer) = self.peers.live_at_mut(slot) else { return false };
        if !(peer.is_next(lane, &header) && self.tag.take_expected(peer.id, header.label, payload)) {
            return false;
        }
        peer.advance_sequence();
        self.stats.rx_expected += 1;
        self.end_packet(lane, slot, &header);
        true
    }

    #[inline]
    fn take_back(&mut self, wr_id: u64, operation: Operation, vbuf: Buffer) -> Option<Buffer> {
        // Peers that wait for vbufs go on by turns, after one peer's have come back and before the next one's do.
        if self.ready.starved() > 0 {
            return Some(vbuf);
        }
        if operation != Operation::Send {
            return self.take_put_back(wr_id, vbuf);
        }
        let (lane, slot) = lane_and_slot(wr_id);
        let Some(peer) = self.peers.live_at_mut(slot) else { return Some(vbuf) };
        peer.lanes[lane].in_flight.end();
        self.send_pools[lane].give(vbuf);
        // There is room for what waits.
        self.ready.note_to_go_on(peer.id);
        None
    }
}

impl Expected<'_> {
    /// Takes the messages of a packet that has several. Those behind one that no receive waits for come in the vbuf that the packet is
    /// to fill, which the lane is left a note about.
    #[inline(never)]
    fn take_coalesced(&mut self, lane: usize, slot: usize, mut messages: Coalesced<'_>) -> bool {
        let Some(peer) = self.peers.live_at_mut(slot) else { return false };
        let Some(first) = messages.peek().filter(|first| peer.is_next(lane, first)) else { return false };
        let (mut taken, mut is_whole) = (0, true);
        for (header, payload) in messages.by_ref() {
            let is_next = header.sequence == peer.rx.expected_sequence && (taken == 0 || header.credits == 0);
            is_whole = is_next && self.tag.take_expected(peer.id, header.label, payload);
            if !is_whole {
                break;
            }
            peer.advance_sequence();
            taken += 1;
        }
        self.stats.rx_expected += u64::from(taken);
        if !(is_whole && messages.is_over()) {
            peer.lanes[lane].taken_of_packet = taken;
            return false;
        }
        self.end_packet(lane, slot, &first);
        true
    }

    /// All of a packet was taken, and its receive is still posted.
    #[inline]
    fn end_packet(&mut self, lane: usize, slot: usize, first: &WholeEager) {
        let Some(peer) = self.peers.live_at_mut(slot) else { return };
        let id = peer.id;
        let lane = peer.settle_packet(lane, first);
        // Credits that came may let something leave.
        if lane.credits.is_return_due() || (first.credits > 0 && has_work(self.tag, peer)) {
            self.ready.note_to_go_on(id);
        }
    }

    /// Takes the memory of a put back that is over, if the WRITE of this name was one.
    #[inline]
    fn take_put_back(&mut self, wr_id: u64, memory: Buffer) -> Option<Buffer> {
        match OneSidedWork::from_name(wr_id) {
            Some(OneSidedWork::Copied(slot)) => {
                let Some(peer) = self.peers.live_at_mut(slot) else { return Some(memory) };
                peer.lanes[0].in_flight.end();
                self.send_pools[0].give(memory);
                self.ready.note_to_go_on(peer.id);
            }
            Some(OneSidedWork::Named(key)) => {
                let Some(peer) = self.rma.target_of_lone_put(key).and_then(|id| self.peers.live_mut(id)) else {
                    return Some(memory);
                };
                peer.lanes[0].in_flight.end();
                peer.tx.transfers.end(memory.len());
                self.ready.note_to_go_on(peer.id);
                let (request, done) = self.rma.end_lone_put(key, memory);
                self.tag.requests.end(request, Ok(done));
            }
            Some(OneSidedWork::Served(_)) | None => return Some(memory),
        }
        None
    }
}

impl Peer {
    /// Whether an eager message that came on a lane is the peer's next, and neither it nor the credits that it brings are more
    /// than the peer may send.
    #[inline]
    fn is_next(&self, lane: usize, header: &WholeEager) -> bool {
        let lanes = &*self.lanes;
        let Some(lane) = lanes.get(lane) else { return false };
        header.sequence == self.rx.expected_sequence
            && self.rx.reorder.is_empty()
            && self.connection.stage().has_terms()
            && self.tx.control.is_empty()
            && lane.credits.may_use()
            && lanes.get(usize::from(header.queue)).is_some_and(|lane| lane.credits.may_regain(header.credits))
    }

    /// All messages of a packet have been acted upon, and its receive is still posted. Returns the lane that it came on.
    #[inline]
    fn settle_packet(&mut self, lane: usize, first: &WholeEager) -> &Lane {
        let lanes = &mut *self.lanes;
        let is_regained = first.credits == 0 || lanes[usize::from(first.queue)].credits.regain(first.credits);
        let lane = &mut lanes[lane];
        let is_used = lane.credits.used_at_once();
        debug_assert!(is_regained && is_used, "the caller has asked");
        lane
    }
}
