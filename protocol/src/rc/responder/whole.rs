//! The fast path of receiving: a packet that is a whole SEND or RDMA WRITE, the next one, where nothing is kept
//! and its receive waits, and the acknowledgement of something that was sent. Whatever is unusual is parsed in full.

use super::super::{Env, Operation, RcQueuePair, WcStatus};
use super::{CurrentMessage, ReceiveResult, Responder};
use crate::wire::{Reth, WordBody, WordPacket};
use crate::{Access, Nanos, Psn};

/// What [`RcQueuePair::on_whole`] has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// A SEND or an RDMA WRITE: an acknowledgement may be owed, and nothing else has become possible.
    Message,
    /// The acknowledgement of something that was sent: more may leave, at another time.
    Acknowledgement,
}

impl<B> RcQueuePair<B> {
    /// Takes a packet, from BTH to ICRC, whose ICRC is right, as [`RcQueuePair::on_packet`] would, and returns what it was. None,
    /// and nothing has changed, where it is not of the common kinds: then it is to be parsed.
    #[inline]
    pub fn on_whole<E: Env<Buffer = B>>(&mut self, now: Nanos, transport: &[u8], env: &mut E) -> Option<Whole> {
        if !WordPacket::may_be(transport) {
            return None;
        }
        let pkey = self.config.pkey;
        let packet = WordPacket::parse(transport, pkey).filter(|_| pkey.hears(pkey))?;
        let is_taken = match packet.body {
            WordBody::Ack { msn, credit } => {
                let is_news = self.requester.window.contains(packet.psn) && self.state.accepts_responses();
                return is_news.then(|| {
                    self.requester.rtt.forget_peer_delay();
                    self.on_positive_ack(now, packet.psn, (msn, credit), env);
                    Whole::Acknowledgement
                });
            }
            WordBody::Send { imm, payload } => {
                self.is_next(packet.psn) && self.take_send(payload, imm, packet.solicited, env)
            }
            WordBody::Write { reth, imm, payload } => {
                self.is_next(packet.psn) && self.take_write(&reth, payload, (imm, packet.solicited), env)
            }
        };
        is_taken.then(|| {
            self.stats.rx_requests += 1;
            self.responder.executed_whole(now, packet.ack_req);
            Whole::Message
        })
    }

    /// Whether a packet with this PSN is the next one, between two messages, and nothing that came early waits behind it.
    #[inline]
    fn is_next(&self, psn: Psn) -> bool {
        let responder = &self.responder;
        psn == responder.expected
            && responder.held.is_empty()
            && matches!(responder.message, CurrentMessage::None)
            && self.state.accepts_requests()
    }

    #[inline]
    fn take_send<E: Env<Buffer = B>>(
        &mut self,
        payload: &[u8],
        imm: Option<u32>,
        solicited: bool,
        env: &mut E,
    ) -> bool {
        if payload.len() > self.config.mtu.bytes() {
            return false;
        }
        if imm.is_none() && self.responder.is_taken_from_packet(payload, env) {
            return true;
        }
        let Some(mut receive) = self.responder.take_receive(&self.config, env) else { return false };
        if payload.len() > receive.len as usize {
            self.responder.put_back(receive, &self.config, env);
            return false;
        }
        env.place(&mut receive.buffer, 0, payload);
        env.complete(whole(Operation::Recv, payload.len(), imm, solicited).completes(receive));
        true
    }

    #[inline]
    fn take_write<E: Env<Buffer = B>>(
        &mut self,
        reth: &Reth,
        payload: &[u8],
        (imm, solicited): (Option<u32>, bool),
        env: &mut E,
    ) -> bool {
        let fits = payload.len() <= self.config.mtu.bytes() && payload.len() == reth.len as usize;
        if !fits || !self.config.access.allows(Access::REMOTE_WRITE) {
            return false;
        }
        let receive = match imm {
            None => None,
            Some(_) => match self.responder.take_receive(&self.config, env) {
                None => return false,
                receive => receive,
            },
        };
        if env.place_remote(reth.rkey, reth.va, payload).is_err() {
            if let Some(receive) = receive {
                self.responder.put_back(receive, &self.config, env);
            }
            return false;
        }
        if let Some(receive) = receive {
            env.complete(whole(Operation::RecvRdmaWithImm, payload.len(), imm, solicited).completes(receive));
        }
        true
    }
}

impl<B> Responder<B> {
    /// Whether the environment takes a message before it fills the next receive, which is long enough for it.
    #[inline]
    fn is_taken_from_packet<E: Env<Buffer = B>>(&self, message: &[u8], env: &mut E) -> bool {
        let next = self.receives.front();
        next.is_some_and(|receive| message.len() <= receive.len as usize && env.offer(receive.wr_id, message))
    }

    #[inline]
    fn executed_whole(&mut self, now: Nanos, ack_req: bool) {
        self.msn = self.msn.next();
        self.executed();
        self.held.advance_to(self.expected);
        self.acknowledgement.settle(now);
        self.acknowledgement.owe_ack(ack_req, true);
    }
}

/// The result of a receive that a whole message has used.
#[inline]
fn whole(operation: Operation, len: usize, imm: Option<u32>, solicited: bool) -> ReceiveResult {
    ReceiveResult { status: WcStatus::Success, operation, len: len as u32, imm, invalidated: None, solicited }
}
