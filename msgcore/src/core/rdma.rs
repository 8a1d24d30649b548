//! Transfers by RDMA: READs, WRITEs and atomics are posted to the first lane of their peer, in order.

use roci_driver::link::Link;
use roci_driver::{AtomicOperation, Rkey, SendWr};

use super::Core;
use super::peer::Peer;
use super::transfer::{Direction, Transfer, rdma_atomic};

impl<L: Link> Core<L> {
    /// Whether both ends have RDMA.
    #[inline]
    pub(crate) fn has_rdma_with(&self, peer: &Peer) -> bool {
        self.terms.capabilities.rdma && peer.connection.capabilities.rdma
    }

    /// Posts the READs, WRITEs and atomics that wait, as far as they may go and up to the first that goes by message.
    pub(crate) fn post_transfers(&mut self, peer: &mut Peer) {
        let has_rdma = self.has_rdma_with(peer);
        while let Some(next) = peer.tx.transfers.waiting.front() {
            let (is_fenced, len) = (next.is_fenced, next.transfer.buffer.len());
            if !has_rdma || next.transfer.needs_message() || is_fenced && peer.tx.transfers.awaits_replies() {
                return;
            }
            if !self.post_by_rdma(peer, is_fenced, len) {
                return;
            }
        }
    }

    /// Posts a transfer that nothing waits before, if there is room; else it waits.
    #[inline]
    pub(crate) fn submit_transfer(&mut self, peer: &mut Peer, transfer: Transfer) {
        let may_go = peer.is_open() && self.has_rdma_with(peer) && peer.tx.transfers.is_clear();
        let goes = may_go && !transfer.needs_message() && peer.lanes[0].has_place_for_transfer();
        if goes && peer.tx.transfers.fits(transfer.buffer.len()) {
            self.post_rdma(peer, transfer, false);
        } else {
            peer.tx.transfers.push(transfer);
        }
    }

    /// Posts the next transfer; returns whether there was room for it.
    fn post_by_rdma(&mut self, peer: &mut Peer, is_fenced: bool, len: usize) -> bool {
        if !(peer.lanes[0].has_place_for_transfer() && peer.tx.transfers.fits(len)) {
            return false;
        }
        let next = peer.tx.transfers.take_next();
        next.is_some_and(|transfer| self.post_rdma(peer, transfer, is_fenced))
    }

    /// Posts a transfer, for which there is room; returns whether its queue pair lives.
    #[inline]
    pub(super) fn post_rdma(&mut self, peer: &mut Peer, transfer: Transfer, is_fenced: bool) -> bool {
        let Transfer { operation, buffer, rkey, va, direction, .. } = transfer;
        self.close_packet(peer);
        peer.lanes[0].in_flight.begin();
        peer.tx.transfers.begin(buffer.len());
        let work = match direction {
            Direction::Read => SendWr::read(operation, buffer, rkey, va),
            Direction::Write { then } => {
                // Sent on the same queue pair, so it is executed after the WRITE.
                if let Some(message) = then {
                    peer.queue_control(message);
                }
                SendWr::write(operation, buffer, rkey, va)
            }
            Direction::Atomic { op, .. } => match rdma_atomic(op) {
                Some(AtomicOperation::FetchAdd { add }) => SendWr::fetch_add(operation, buffer, rkey, va, add),
                Some(AtomicOperation::CompareSwap { compare, swap }) => {
                    SendWr::compare_swap(operation, buffer, rkey, va, compare, swap)
                }
                None => unreachable!("the caller has looked"),
            },
        };
        let work = if is_fenced { work.fenced() } else { work };
        let posted = self.engine.queue_send(peer.lanes[0].qp, work);
        if posted.is_err() {
            // The queue pair has failed: its completions will say so, and the end of the peer ends the operation.
            peer.lanes[0].in_flight.end();
        }
        posted.is_ok()
    }

    /// Writes bytes to a peer's memory out of a vbuf, at once; returns whether there was room for that, and nothing before it.
    #[inline]
    pub(crate) fn post_copied_put(
        &mut self,
        peer: &mut Peer,
        name: u64,
        bytes: &[u8],
        (rkey, va): (Rkey, u64),
    ) -> bool {
        let may_go = peer.is_open() && self.has_rdma_with(peer) && peer.tx.transfers.is_clear();
        if !(may_go && peer.lanes[0].has_place_for_transfer()) {
            return false;
        }
        if bytes.len() > self.send_pools[0].size() || !self.has_spare_vbuf(0) {
            return false;
        }
        let mut vbuf = self.send_pools[0].take(&self.engine).expect("there is a spare one");
        vbuf.set_len(bytes.len());
        vbuf.copy_from_slice(bytes);
        self.close_packet(peer);
        peer.lanes[0].in_flight.begin();
        if let Err(refused) = self.engine.queue_send(peer.lanes[0].qp, SendWr::write(name, vbuf, rkey, va)) {
            // The queue pair has failed, and its completions will say so.
            peer.lanes[0].in_flight.end();
            self.send_pools[0].give(refused.given.into_buffer());
        }
        true
    }
}
