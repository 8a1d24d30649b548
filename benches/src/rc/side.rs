//! One of the two queue pairs, with its world.

use roci_protocol::rc::{Config, Quantum, RcCompletion, RcQueuePair, RecvRequest, SendOp, SendRequest, State};
use roci_protocol::wire::Packet;
use roci_protocol::{Nanos, Qpn};

use super::wire::Wire;
use super::world::PairEnv;

/// A queue pair, and the little of an engine that it needs.
pub(super) struct QpSide<W> {
    qp: RcQueuePair<Vec<u8>>,
    world: PairEnv<W>,
}

impl<W: Wire> QpSide<W> {
    /// Ready to send, with the attributes that a verbs peer gets.
    pub(super) fn new(wire: W) -> Self {
        let mut qp = RcQueuePair::new(Config { dest_qpn: Qpn::new(7), ..Config::default() });
        for state in [State::Rtr, State::Rts] {
            qp.modify(state).expect("the way from Init to Rts is in the table");
        }
        Self { qp, world: PairEnv::new(wire) }
    }

    /// Posts a request, and sends it.
    #[inline]
    pub(super) fn send(&mut self, now: Nanos, op: SendOp, buffer: Vec<u8>) {
        let len = buffer.len() as u32;
        let request =
            SendRequest { wr_id: 1, op, buffer, len, signaled: true, solicited: false, fence: false, ack_req: true };
        if self.qp.is_clear_for(now, &request) {
            self.qp.send_at_once(now, request, &mut self.world).expect("the wire has room");
            return;
        }
        self.qp.post_send(request).expect("the queue has room");
        self.qp.pump_requests(now, &mut Quantum::new(64 << 10), &mut self.world).expect("the wire has room");
    }

    #[inline]
    pub(super) fn post_receive(&mut self, buffer: Vec<u8>) {
        let len = buffer.len() as u32;
        self.qp.post_recv(RecvRequest { wr_id: 2, buffer, len }).expect("the queue has room");
    }

    /// Sends the acknowledgement, or the READ's response.
    #[inline]
    pub(super) fn reply(&mut self, now: Nanos) {
        debug_assert!(self.qp.owes_acknowledgement(1) || self.qp.owes_responses());
        let outcome = if self.qp.owes_responses() {
            self.qp.pump_responses(now, &mut Quantum::new(64 << 10), &mut self.world)
        } else {
            self.qp.pump_acknowledgement(now, &mut self.world)
        };
        outcome.expect("the wire has room");
    }

    /// Takes what the peer has sent.
    #[inline]
    pub(super) fn hear(&mut self, now: Nanos, peer: &mut Self) {
        let transport = peer.world.wire.take().expect("the peer has spoken");
        if self.qp.on_whole(now, transport, &mut self.world).is_none() {
            let packet = Packet::parse(transport).expect("the peer makes no mistake");
            self.qp.on_packet(now, &packet, &mut self.world);
        }
    }

    /// The work request that was completed last, which must have succeeded.
    #[inline]
    pub(super) fn take_completion(&mut self) -> Option<RcCompletion<Vec<u8>>> {
        self.world.take_completion()
    }
}

#[cfg(test)]
impl<W> QpSide<W> {
    pub(super) fn stats(&self) -> &roci_protocol::rc::Stats {
        self.qp.stats()
    }

    pub(super) fn region(&self) -> &[u8] {
        self.world.region()
    }
}
