//! The fast path of receiving: a packet that is a whole SEND or RDMA WRITE, the next one, where nothing is kept
//! and its receive waits, and the acknowledgement of something that was sent. Whatever is unusual is parsed in full.

use super::super::{Completion, Env, Operation, RcQueuePair, WcStatus};
use super::{CurrentMessage, Owed, Responder};
use crate::wire::{Reth, WordBody, WordPacket};
use crate::{Access, Nanos, Psn};

impl<B> RcQueuePair<B> {
    /// Takes a packet, from BTH to ICRC, whose ICRC is right, as [`RcQueuePair::on_packet`] would. `false`, and nothing has
    /// changed, where it is not of the common kinds: then it is to be parsed.
    #[inline]
    pub fn on_whole<E: Env<Buffer = B>>(&mut self, now: Nanos, transport: &[u8], env: &mut E) -> bool {
        let pkey = self.config.pkey;
        let Some(packet) = WordPacket::parse(transport, pkey).filter(|_| pkey.hears(pkey)) else { return false };
        match packet.body {
            WordBody::Ack { msn, credit } => {
                let is_news = self.requester.is_unacknowledged(packet.psn) && self.state.accepts_responses();
                if is_news {
                    self.requester.peer_delay = 0;
                    self.on_positive_ack(now, packet.psn, (msn, credit), env);
                }
                is_news
            }
            WordBody::Send { imm, payload } => {
                self.is_next(packet.psn) && self.take_send(payload, imm, packet.solicited, env) && {
                    self.executed_whole(now, packet.ack_req);
                    true
                }
            }
            WordBody::Write { reth, imm, payload } => {
                self.is_next(packet.psn) && self.take_write(&reth, payload, (imm, packet.solicited), env) && {
                    self.executed_whole(now, packet.ack_req);
                    true
                }
            }
        }
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
        let Some(mut receive) = self.responder.take_receive(&self.config, env) else { return false };
        if payload.len() > receive.len as usize {
            self.responder.put_back(receive, &self.config, env);
            return false;
        }
        env.place(&mut receive.buffer, 0, payload);
        env.complete(Completion {
            wr_id: receive.wr_id,
            status: WcStatus::Success,
            operation: Operation::Recv,
            len: payload.len() as u32,
            imm,
            invalidated: None,
            solicited,
            signaled: true,
            buffer: receive.buffer,
        });
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
            env.complete(Completion {
                wr_id: receive.wr_id,
                status: WcStatus::Success,
                operation: Operation::RecvRdmaWithImm,
                len: reth.len,
                imm,
                invalidated: None,
                solicited,
                signaled: true,
                buffer: receive.buffer,
            });
        }
        true
    }

    /// The next packet was a whole message, and was executed.
    #[inline]
    fn executed_whole(&mut self, now: Nanos, ack_req: bool) {
        self.stats.rx_requests += 1;
        self.responder.executed_whole(now, ack_req);
    }
}

impl<B> Responder<B> {
    /// A packet was executed: an acknowledgement is owed where its sender asks for one, or where something is owed already.
    #[inline]
    pub(in crate::rc) fn owe_ack(&mut self, is_asked_for: bool) {
        if is_asked_for || self.owed != Owed::Nothing {
            self.owed = Owed::Ack;
        }
    }

    #[inline]
    fn executed_whole(&mut self, now: Nanos, ack_req: bool) {
        self.msn = self.msn.next();
        self.executed();
        self.held.advance_to(self.expected);
        self.nak_sent = false;
        self.executed_at = now;
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        self.owe_ack(ack_req);
    }
}
