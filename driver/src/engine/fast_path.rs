//! The fast path: a message of one packet that leaves in the call that posts it, and one that fills the receive that waits for
//! it. The queue pair says which these are (`rc::RcQueuePair::send_at_once`, `rc::RcQueuePair::on_whole`); everything else goes
//! by the queue, and by `poll`.

use roci_protocol::Nanos;
use roci_protocol::rc::State;

use super::env::EngineEnv;
use super::poll::{ACK_COALESCE, RxPacket};
use super::{Engine, scene, settled};
use crate::handles::QueuePair;
use crate::link::Link;
use crate::wr::SendWr;

impl<L: Link> Engine<L> {
    /// Whether a work request can leave in the call that posts it; where it cannot, whoever posts it says why, or queues it.
    #[inline]
    pub(super) fn is_clear_for(&self, qp: QueuePair, wr: &SendWr) -> bool {
        !self.is_forked()
            && self.qps.get(qp.0).is_some_and(|slot| {
                self.cqs[slot.cq.0].has_place() && slot.rc.is_clear_for(self.ports[slot.port].link.now(), &wr.0)
            })
    }

    /// Sends a work request that is clear to go. It comes back, and nothing has changed, where the link is full.
    #[inline]
    pub(super) fn send_at_once(&mut self, qp: QueuePair, wr: SendWr) -> Result<(), SendWr> {
        let Some(slot) = self.qps.get_mut(qp.0) else { return Err(wr) };
        let mut scene = scene!(self, slot, &[]);
        let now = scene.link.now();
        slot.rc.send_at_once(now, wr.0, &mut scene).map_err(SendWr)?;
        scene.cq.reserve();
        scene.link.flush();
        settled!(self, slot);
        Ok(())
    }

    /// Takes a packet that is a whole message, or an acknowledgement; `false`, and nothing has changed, where it is to be
    /// parsed.
    #[inline]
    pub(super) fn on_whole(&mut self, now: Nanos, packet: &RxPacket<'_>) -> bool {
        let Some(slot) = self.qps.get_mut(packet.qp.0) else { return false };
        let mut scene = scene!(self, slot, packet.transport);
        if !slot.rc.on_whole(now, packet.transport, &mut scene) {
            return false;
        }
        self.stats.rx_delivered += 1;
        self.stats.rx_unchecked += u64::from(packet.is_unchecked);
        settled!(self, slot);
        let rc = &slot.rc;
        let is_urgent = rc.wants_pump() || rc.owes_responses() || rc.owes_acknowledgement(ACK_COALESCE);
        self.is_urgent |= is_urgent;
        if !slot.is_listed && (is_urgent || rc.owes_acknowledgement(1)) {
            slot.is_listed = true;
            self.listed.push_back(packet.qp);
        }
        if let Some(srq) = packet.shared {
            self.look_at_stock(srq);
        }
        true
    }
}
