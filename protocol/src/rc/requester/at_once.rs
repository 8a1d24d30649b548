//! The fast path of sending: a SEND or an RDMA WRITE of one packet, where nothing stands before it and nothing
//! is missing, leaves in the call that posts it. Whatever is unusual goes by the queue.

use super::super::congestion::CongestionControl as _;
use super::super::quantum::HEADER_BYTES;
use super::super::{Config, Env, Payload, RcQueuePair, SendOp, SendRequest, State, TxError};
use super::Requester;
use crate::Nanos;
use crate::wire::{HeaderWords, Opcode, Reth};

impl<B> RcQueuePair<B> {
    /// Whether [`RcQueuePair::send_at_once`] may be called: the request is one packet, all that was posted before it has left,
    /// and nothing of that has to leave again first.
    #[inline]
    pub fn is_clear_for(&self, now: Nanos, request: &SendRequest<B>) -> bool {
        if !matches!(request.op, SendOp::Send { .. } | SendOp::Write { .. }) {
            return false;
        }
        let requester = &self.requester;
        let waits_for_credit = request.op.takes_receive() && !requester.credits.allows(requester.queue.next_ssn());
        let is_fenced = request.fence && !requester.fetches.is_empty();
        self.state == State::Rts
            && request.len as usize <= self.config.mtu.bytes()
            && requester.is_undisturbed()
            && requester.has_place()
            && (!self.is_selective() || requester.nothing_is_missing())
            && !waits_for_credit
            && !is_fenced
            && requester.congestion.release_at() <= now
    }

    /// Sends a request that [is clear to go](RcQueuePair::is_clear_for), as [`RcQueuePair::post_send`] and
    /// [`RcQueuePair::pump_requests`] would. It comes back, and nothing has changed, where the link is full: then they are to be
    /// called.
    ///
    /// Returns whether a timer was started. The caller has seen that the buffer is as long as the request says.
    #[inline]
    pub fn send_at_once<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        request: SendRequest<B>,
        env: &mut E,
    ) -> Result<bool, SendRequest<B>> {
        debug_assert!(self.is_clear_for(now, &request), "the caller has asked");
        let ack_req = self.requester.asks_at_end(&request, self.requester.queue.next_psn(), now, &self.config);
        let headers = self.words_of(&request, ack_req);
        let payload = Payload::Local { buffer: &request.buffer, offset: 0, len: request.len as usize };
        match env.transmit_words(&headers, payload) {
            Ok(()) => self.stats.tx_requests += 1,
            Err(TxError::Busy | TxError::Denied) => return Err(request),
        }
        Ok(self.requester.sent_at_once(now, request, ack_req, &self.config))
    }

    #[inline]
    fn words_of(&self, request: &SendRequest<B>, ack_req: bool) -> HeaderWords {
        let psn = self.requester.queue.next_psn();
        let words = |opcode| self.config.words(opcode, psn).asking(ack_req).solicited(request.solicited);
        match request.op {
            SendOp::Write { remote, imm } => {
                let reth = Reth { va: remote.va, rkey: remote.rkey, len: request.len };
                match imm {
                    None => words(Opcode::RcWriteOnly).with_reth(reth),
                    Some(imm) => words(Opcode::RcWriteOnlyImm).with_reth(reth).with_imm(imm),
                }
            }
            SendOp::Send { imm: Some(imm) } => words(Opcode::RcSendOnlyImm).with_imm(imm),
            _ => words(Opcode::RcSendOnly),
        }
    }
}

impl<B> Requester<B> {
    /// Whether the cursor stands behind all that was posted, and no answer is waited for before it may go on.
    #[inline]
    fn is_undisturbed(&self) -> bool {
        self.queue.is_at_end() && !self.draining && !self.retries.is_probing() && !self.rnr.is_waiting()
    }

    /// Whether the queue takes another request, and the window another packet.
    #[inline]
    fn has_place(&self) -> bool {
        let in_flight = self.window.distance_to(self.queue.next_psn());
        self.queue.has_room() && in_flight < self.window_size()
    }

    /// A request of one packet has left. Returns whether a timer was started for it.
    #[inline]
    fn sent_at_once(&mut self, now: Nanos, request: SendRequest<B>, ack_req: bool, config: &Config) -> bool {
        let first = self.queue.next_psn();
        debug_assert_eq!(self.window.sent(), first, "all before it has left");
        debug_assert!(!self.timers.is_paced(), "nothing that is held back stands before it");
        self.congestion.on_sent(now, HEADER_BYTES + request.len as usize);
        if ack_req {
            self.window.ask(now);
            self.rtt.sent(first, now);
        }
        self.queue.post_sent(request);
        self.window.send_to(self.queue.next_psn());
        let starts_timer = !self.timers.awaits_ack();
        if starts_timer {
            self.restart_timer(now, config);
        }
        starts_timer
    }
}
