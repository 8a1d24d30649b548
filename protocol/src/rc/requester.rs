//! The requester: cuts work requests into packets, keeps the window, retransmits. Answers arrive in `completer`.
//!
//! PSNs are given out when a request is posted, so a position in the stream of packets is just a PSN. The
//! cursor is the next packet to send; a retransmission moves it back, and everything after follows (go-back-N).

mod at_once;
mod fetches;
mod retries;
mod rnr;
mod send_queue;
mod timers;
mod window;

use super::congestion::{CongestionControl as _, Controller};
use super::credits::Limit;
use super::quantum::HEADER_BYTES;
use super::recovery::Scoreboard;
use super::rtt::Rtt;
use super::{
    AtomicOperation, Config, Dialect, Env, Payload, Quantum, RcPostError, RcQueuePair, Rejected, SendOp, SendRequest,
    State, Stats, TxError, WcStatus,
};
use crate::wire::{AtomicEth, Extensions, Headers, Ieth, ImmDt, Opcode, Reth};
use crate::{Msn, Mtu, Nanos, Psn};
use fetches::Fetches;
use retries::Retries;
use rnr::RnrWait;
use send_queue::SendQueue;
use timers::SendTimers;
use window::SendWindow;

pub(super) use fetches::Fetch;
pub(super) use send_queue::{MAX_MESSAGE, MAX_SPAN, Wqe};

/// The sending half of a queue pair. Each part keeps what holds within it; what holds between them is kept here: the window moves
/// on together with the scoreboard and the READs in flight.
pub(super) struct Requester<B> {
    pub(super) queue: SendQueue<B>,
    pub(super) window: SendWindow,
    pub(super) fetches: Fetches,
    pub(super) retries: Retries,
    pub(super) rnr: RnrWait,
    timers: SendTimers,
    pub(super) credits: Limit,
    /// Nothing new is started.
    draining: bool,
    /// What is known of packets that are missing; only where selective repeat was agreed on.
    pub(super) scoreboard: Scoreboard,
    is_selective: bool,
    pub(super) rtt: Rtt,
    pub(super) congestion: Controller,
}

impl<B> Requester<B> {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            queue: SendQueue::new(config),
            window: SendWindow::new(config),
            fetches: Fetches::new(config),
            retries: Retries::default(),
            rnr: RnrWait::new(config),
            timers: SendTimers::default(),
            credits: if config.end_to_end_credits { Limit::Until(Msn::default()) } else { Limit::Unlimited },
            draining: false,
            scoreboard: Scoreboard::new(config.sq_psn),
            is_selective: config.dialect == Dialect::Rocinante,
            rtt: Rtt::default(),
            congestion: Controller::new(config),
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        // In the middle of a message everything sent may be acknowledged, and yet the message has begun.
        self.window.is_empty() && self.queue.cursor_packet() == 0
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.timers.first(self.rnr.until())
    }

    /// The oldest packet that is not acknowledged is `una` now.
    #[inline]
    pub(super) fn advance_una(&mut self, una: Psn) {
        self.window.acknowledge(una);
        if self.is_selective {
            self.scoreboard.advance_to(una);
        }
        self.fetches.forget_before(una);
    }

    /// Whether congestion control lets the next packet go; where it does not, the time is kept.
    #[inline]
    pub(super) fn is_released(&mut self, now: Nanos) -> bool {
        let at = self.congestion.release_at();
        if at > now {
            self.timers.pace(at);
        }
        at <= now
    }

    /// Moves the cursor back to `psn`, which belongs to a request in the queue.
    pub(super) fn rewind(&mut self, psn: Psn) {
        assert!(!psn.before(self.window.una()), "what was acknowledged is never sent again");
        if psn.before(self.queue.cursor_psn()) {
            self.queue.rewind(psn);
            self.fetches.rewind(psn);
        }
    }

    /// What was acknowledged is not sent again, even if the cursor had gone back to it.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        self.queue.catch_up(self.window.una());
    }

    /// Asks again for a READ or an atomic whose responses from `psn` on are missing, once for each gap: `false` where
    /// that was done before.
    pub(super) fn reread(&mut self, psn: Psn) -> bool {
        if self.fetches.is_rereading() || !self.queue.has_passed(0) {
            return false;
        }
        self.rewind(psn);
        self.fetches.begin_rereading();
        true
    }

    /// The peer answered: the retry budgets are whole again and the timer starts anew.
    pub(super) fn progressed(&mut self, now: Nanos, config: &Config) {
        self.retries.restore();
        self.rnr.restore();
        self.fetches.end_rereading();
        match config.dialect {
            Dialect::Verbs => self.rnr.end(),
            // Answers to earlier READs do not make the peer ready for what follows them.
            Dialect::Rocinante => self.rnr.end_before(self.window.una()),
        }
        self.restart_timer(now, config);
    }

    pub(super) fn restart_timer(&mut self, now: Nanos, config: &Config) {
        let is_outstanding = !self.window.is_empty();
        self.timers.set_ack((is_outstanding && config.ack_timeout_ns > 0).then(|| now + self.rto(config)));
    }

    fn rto(&self, config: &Config) -> Nanos {
        let first = match config.dialect {
            Dialect::Verbs => config.ack_timeout_ns,
            Dialect::Rocinante => self.rtt.base_rto().map_or(config.ack_timeout_ns, |ns| ns.min(config.ack_timeout_ns)),
        };
        self.retries.timeout(first, self.window.una(), config)
    }

    /// Makes the peer answer: sends the oldest packet again, or the last one, whose answer covers all the others.
    fn go_back_after_silence(&mut self, now: Nanos, config: &Config) {
        let was_silent = self.retries.is_silent();
        match config.dialect {
            Dialect::Verbs => self.rewind(self.window.una()),
            Dialect::Rocinante => {
                let probe = self.probe(!was_silent);
                self.scoreboard.start_over(probe);
            }
        }
        if was_silent {
            self.congestion.on_silence(now);
        }
        self.retries.on_silence();
        self.fetches.end_rereading();
        self.restart_timer(now, config);
    }

    /// Completes everything: the oldest request with `status` if it was under way, the others as flushed.
    pub(super) fn flush<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        let mut status = if self.window.is_empty() { WcStatus::WrFlushErr } else { status };
        self.timers.clear();
        self.rnr.end();
        while !self.queue.is_empty() {
            let wqe = self.queue.pop();
            env.complete(wqe.request.ended(status));
            status = WcStatus::WrFlushErr;
        }
        let next = self.queue.next_psn();
        self.window.empty_at(next);
        self.scoreboard = Scoreboard::new(next);
        self.fetches.clear();
    }

    #[inline]
    fn may_send(&self, config: &Config) -> bool {
        let Some(wqe) = self.queue.at_cursor() else { return false };
        if self.rnr.is_waiting() {
            return false;
        }
        if self.retries.is_probing() && config.dialect == Dialect::Rocinante {
            // The probe is a repair: nothing new follows until the peer speaks.
            return false;
        }
        self.fits_window(wqe, config) && (self.queue.cursor_packet() > 0 || self.may_start(wqe))
    }

    /// Whether what is under the cursor, and its answers, find room in the window.
    #[inline]
    fn fits_window(&self, wqe: &Wqe<B>, config: &Config) -> bool {
        let cursor = wqe.first.plus(self.queue.cursor_packet());
        let in_flight = self.window.distance_to(cursor);
        let window = if self.retries.is_probing() { 1 } else { self.window_size() };
        in_flight < window && (!wqe.is_fetch() || self.fetch_fits(wqe, window - in_flight, in_flight == 0, config))
    }

    /// The same for a READ or an atomic, where so many packets find room. A READ waits for room for a whole part, or its parts
    /// would become smaller and smaller; alone in flight it waits for nothing.
    fn fetch_fits(&self, wqe: &Wqe<B>, room: u32, is_alone: bool, config: &Config) -> bool {
        let has_room = match config.dialect {
            // One request, whatever its length.
            Dialect::Verbs => true,
            Dialect::Rocinante => is_alone || self.part(wqe, config) <= room,
        };
        has_room && self.fetches.len() < config.max_rd_atomic
    }

    /// How many answers a READ or an atomic asks for next.
    fn part(&self, wqe: &Wqe<B>, config: &Config) -> u32 {
        let rest = wqe.packets - self.queue.cursor_packet();
        match config.dialect {
            Dialect::Verbs => rest,
            Dialect::Rocinante => rest.min(self.fetches.largest_part(self.window_size())),
        }
    }

    /// Packets that may be in flight.
    #[inline]
    fn window_size(&self) -> u32 {
        self.window.size(self.congestion.window())
    }

    /// Whether the message under the cursor may begin, or begin again.
    #[inline]
    fn may_start(&self, wqe: &Wqe<B>) -> bool {
        let is_new = !wqe.first.before(self.window.sent());
        let is_held_back =
            is_new && (self.draining || (wqe.request.op.takes_receive() && !self.credits.allows(wqe.ssn)));
        // What never reaches the wire is done when all before it is: completions keep their order.
        let waits = wqe.request.op.is_local() && self.queue.has_passed(0);
        let is_fenced = wqe.request.fence && !self.fetches.is_empty();
        !(is_held_back || waits || is_fenced)
    }

    /// Whether the cursor stands at a request that never reaches the wire.
    fn is_at_local(&self) -> bool {
        self.queue.at_cursor().is_some_and(|wqe| wqe.request.op.is_local())
    }

    /// Sends the packet under the cursor and moves on.
    fn send_one<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        config: &Config,
        stats: &mut Stats,
        env: &mut E,
    ) -> Result<usize, TxError> {
        let wqe = self.queue.at_cursor().expect("the caller has seen that it may be sent");
        let packet = self.queue.cursor_packet();
        let psn = wqe.first.plus(packet);
        let is_fetch = wqe.is_fetch();
        let count = if is_fetch { self.part(wqe, config) } else { 1 };
        let cut = Cut::new(wqe, packet, count, config.mtu);
        let mut headers = cut.headers(config, psn);
        headers.bth.ack_req = if cut.is_last {
            self.asks_at_end(&wqe.request, psn, now, config)
        } else {
            self.asks_within_message(psn, now)
        };
        env.transmit(&headers, cut.payload())?;
        if headers.bth.ack_req {
            self.window.ask(now);
        }
        stats.tx_requests += 1;
        let is_new = !psn.before(self.window.sent());
        let bytes = cut.wire_bytes();
        let answers = if is_fetch { self.answer_bytes(&cut, config) } else { 0 };
        self.congestion.on_sent(now, bytes + answers);
        if !is_new {
            stats.retransmitted_packets += 1;
            self.rtt.disturbed();
        } else if headers.bth.ack_req {
            self.rtt.sent(psn, now);
        }
        let next = psn.plus(count);
        if is_fetch {
            self.fetches.push(Fetch { first: psn, end: next }, cut.is_first);
        }
        if self.window.sent().before(next) {
            self.window.send_to(next);
        }
        self.queue.advance(next);
        Ok(bytes)
    }

    /// Whether the last packet of a message asks for an acknowledgement. Where it could wait, a peer of ours is
    /// still asked from time to time, and before more could not leave without it.
    #[inline]
    fn asks_at_end(&self, request: &SendRequest<B>, psn: Psn, now: Nanos, config: &Config) -> bool {
        request.ack_req
            || config.dialect == Dialect::Verbs
            || config.end_to_end_credits
            || self.window.wants_news(psn, self.window_size().min(config.sq_depth as u32), now)
    }

    /// Whether a packet that does not end its message asks for an acknowledgement.
    fn asks_within_message(&self, psn: Psn, now: Nanos) -> bool {
        self.window.asks_at(psn, self.window_size(), now) || self.retries.is_probing()
    }

    /// What a READ's answers take on the wire, where its requester spaces them.
    fn answer_bytes(&self, cut: &Cut<'_, B>, config: &Config) -> usize {
        let spaces = cut.wqe.is_fetch() && config.dialect == Dialect::Rocinante && self.congestion.spaces_answers();
        if spaces { cut.len } else { 0 }
    }

    /// Sends packets of a request again without moving the cursor: of a READ so many responses, of others one packet.
    pub(super) fn send_again<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        (index, packet, count): (usize, u32, u32),
        config: &Config,
        env: &mut E,
    ) -> Result<usize, TxError> {
        let wqe = &self.queue[index];
        let cut = Cut::new(wqe, packet, count, config.mtu);
        let mut headers = cut.headers(config, wqe.first.plus(packet));
        headers.bth.ack_req = true;
        env.transmit(&headers, cut.payload())?;
        let bytes = cut.wire_bytes();
        self.congestion.on_sent(now, bytes + self.answer_bytes(&cut, config));
        self.rtt.disturbed();
        Ok(bytes)
    }
}

impl<B> RcQueuePair<B> {
    /// Posts a work request to the send queue. Nothing is sent until [`RcQueuePair::pump_requests`].
    ///
    /// In the error state the request is taken and flushed at the next pump, as verbs does.
    pub fn post_send(&mut self, request: SendRequest<B>) -> Result<(), Rejected<SendRequest<B>>> {
        if !self.state.accepts_responses() && self.state != State::Error {
            return Err(Rejected { reason: RcPostError::State(self.state), request });
        }
        self.requester.queue.post(request, &self.config)
    }

    /// Whether [`RcQueuePair::pump_requests`] could do anything.
    #[inline]
    pub fn wants_pump(&self) -> bool {
        let requester = &self.requester;
        let is_settled = self.state == State::Rts
            && !requester.timers.is_paced()
            && (requester.timers.awaits_ack() || requester.window.is_empty());
        let repairs = self.is_selective() && !requester.nothing_is_missing();
        !is_settled || repairs || requester.may_send(&self.config)
    }

    /// Sends what the window, the link and a quantum allow, and takes what it sends from the quantum. The last packet
    /// may exceed it.
    ///
    /// What makes a silent peer speak is not paced: timeouts space it already, and one that passes while pacing holds it back
    /// would spend a retry on nothing.
    pub fn pump_requests<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        quantum: &mut Quantum,
        env: &mut E,
    ) -> Result<(), TxError> {
        if self.state == State::Error {
            self.requester.flush(WcStatus::WrFlushErr, env);
        }
        if !self.state.accepts_responses() {
            return Ok(());
        }
        self.requester.draining = self.state == State::Sqd;
        self.requester.timers.release();
        let mut outcome = self.send_repairs(now, quantum, env);
        while outcome.is_ok()
            && quantum.is_left()
            && self.requester.may_send(&self.config)
            && (self.requester.retries.is_probing() || self.requester.is_released(now))
        {
            if self.requester.is_at_local() {
                self.execute_local(env);
            } else {
                outcome =
                    self.requester.send_one(now, &self.config, &mut self.stats, env).map(|bytes| quantum.spend(bytes));
            }
        }
        let requester = &mut self.requester;
        if !requester.timers.awaits_ack() {
            requester.restart_timer(now, &self.config);
        }
        outcome
    }

    /// Executes the oldest request, which never reaches the wire.
    fn execute_local<E: Env<Buffer = B>>(&mut self, env: &mut E) {
        let Wqe { request, .. } = self.requester.queue.pop();
        let failed = match request.op {
            SendOp::BindWindow { .. } => WcStatus::MwBindErr,
            _ => WcStatus::LocQpOpErr,
        };
        let status = env.execute_local(request.op).map_or(failed, |()| WcStatus::Success);
        env.complete(request.ended(status));
        if !status.is_success() {
            self.fail(WcStatus::WrFlushErr, env);
        }
    }

    /// The time of [`RcQueuePair::deadline`] has come.
    pub fn on_timeout<E: Env<Buffer = B>>(&mut self, now: Nanos, env: &mut E) {
        self.responder.paced_until.take_if(|at| *at <= now);
        let requester = &mut self.requester;
        if requester.rnr.is_waiting() {
            if let Some(psn) = requester.rnr.take_expired(now) {
                if self.config.dialect == Dialect::Rocinante {
                    requester.scoreboard.start_over(psn);
                }
                requester.restart_timer(now, &self.config);
            }
        } else if requester.timers.is_overdue(now) {
            // A timeout that is shorter than the connection's only asks: it says nothing about the peer.
            let is_probe = requester.rto(&self.config) < self.config.ack_timeout_ns;
            if is_probe {
                self.stats.tail_loss_probes += 1;
            } else {
                self.stats.local_ack_timeout_err += 1;
            }
            if is_probe || requester.retries.spend(&self.config) {
                requester.go_back_after_silence(now, &self.config);
            } else {
                self.stats.retry_exceeded_err += 1;
                self.fail(WcStatus::RetryExcErr, env);
            }
        }
    }
}

/// One packet's share of a request.
struct Cut<'a, B> {
    wqe: &'a Wqe<B>,
    is_first: bool,
    is_last: bool,
    offset: usize,
    /// Bytes that the packet carries, or that a READ asks for.
    len: usize,
}

impl<'a, B> Cut<'a, B> {
    /// Packet `packet` of a request; a READ asks for at most `count` responses.
    fn new(wqe: &'a Wqe<B>, packet: u32, count: u32, mtu: Mtu) -> Self {
        let offset = (packet as usize) << mtu.shift();
        let rest = wqe.request.len as usize - offset;
        Self {
            wqe,
            is_first: packet == 0,
            is_last: wqe.is_fetch() || packet + 1 == wqe.packets,
            offset,
            len: match wqe.request.op {
                SendOp::Read { .. } => rest.min((count as usize) << mtu.shift()),
                _ => rest.min(mtu.bytes()),
            },
        }
    }

    fn payload(&self) -> Payload<'a, B> {
        if self.wqe.is_fetch() {
            Payload::None
        } else {
            Payload::Local { buffer: &self.wqe.request.buffer, offset: self.offset, len: self.len }
        }
    }

    /// About what the packet takes on the wire: congestion control counts it.
    fn wire_bytes(&self) -> usize {
        HEADER_BYTES + if self.wqe.is_fetch() { 0 } else { self.len }
    }

    fn headers(&self, config: &Config, psn: Psn) -> Headers {
        let request = &self.wqe.request;
        let opcode = self.opcode();
        let mut bth = config.bth(opcode, psn);
        bth.solicited = request.solicited && self.is_last;
        let mut ext = Extensions::default();
        match request.op {
            SendOp::Send { imm } => ext.imm = imm.filter(|_| self.is_last).map(ImmDt),
            SendOp::Write { remote, imm } => {
                ext.imm = imm.filter(|_| self.is_last).map(ImmDt);
                let reth = Reth { va: remote.va, rkey: remote.rkey, len: request.len };
                ext.reth = self.is_first.then_some(reth);
            }
            SendOp::SendInvalidate { rkey } => ext.ieth = self.is_last.then_some(Ieth(rkey)),
            SendOp::Atomic { remote, operation } => {
                let (swap_or_add, compare) = match operation {
                    AtomicOperation::CompareSwap { compare, swap } => (swap, compare),
                    AtomicOperation::FetchAdd { add } => (add, 0),
                };
                ext.atomic = Some(AtomicEth { va: remote.va, rkey: remote.rkey, swap_or_add, compare });
            }
            SendOp::BindWindow { .. } | SendOp::LocalInvalidate { .. } => unreachable!("it never reaches the wire"),
            SendOp::Read { remote } => {
                let va = remote.va.wrapping_add(self.offset as u64);
                ext.reth = Some(Reth { va, rkey: remote.rkey, len: self.len as u32 });
            }
        }
        Headers { bth, ext }
    }

    fn opcode(&self) -> Opcode {
        match (self.wqe.request.op, self.is_first, self.is_last) {
            (SendOp::Read { .. }, ..) => Opcode::RcReadRequest,
            (SendOp::Atomic { operation: AtomicOperation::CompareSwap { .. }, .. }, ..) => Opcode::RcCompareSwap,
            (SendOp::Atomic { operation: AtomicOperation::FetchAdd { .. }, .. }, ..) => Opcode::RcFetchAdd,
            (SendOp::SendInvalidate { .. }, true, true) => Opcode::RcSendOnlyInvalidate,
            (SendOp::SendInvalidate { .. }, false, true) => Opcode::RcSendLastInvalidate,
            (SendOp::Send { imm: None }, true, true) => Opcode::RcSendOnly,
            (SendOp::Send { imm: Some(_) }, true, true) => Opcode::RcSendOnlyImm,
            (SendOp::Send { .. } | SendOp::SendInvalidate { .. }, true, false) => Opcode::RcSendFirst,
            (SendOp::Send { .. } | SendOp::SendInvalidate { .. }, false, false) => Opcode::RcSendMiddle,
            (SendOp::Send { imm: None }, false, true) => Opcode::RcSendLast,
            (SendOp::Send { imm: Some(_) }, false, true) => Opcode::RcSendLastImm,
            (SendOp::Write { imm: None, .. }, true, true) => Opcode::RcWriteOnly,
            (SendOp::Write { imm: Some(_), .. }, true, true) => Opcode::RcWriteOnlyImm,
            (SendOp::Write { .. }, true, false) => Opcode::RcWriteFirst,
            (SendOp::Write { .. }, false, false) => Opcode::RcWriteMiddle,
            (SendOp::Write { imm: None, .. }, false, true) => Opcode::RcWriteLast,
            (SendOp::Write { imm: Some(_), .. }, false, true) => Opcode::RcWriteLastImm,
            (SendOp::BindWindow { .. } | SendOp::LocalInvalidate { .. }, ..) => {
                unreachable!("it never reaches the wire")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_long_ago_is_not_taken_for_the_future_after_half_of_all_psns() {
        let mut requester = Requester::<()>::new(&Config { dialect: Dialect::Rocinante, ..Config::default() });
        for _ in 0..3 {
            let end = requester.window.una().plus(1 << 22);
            requester.window.send_to(end);
            requester.scoreboard.executed_before(end);
            requester.advance_una(end);
            assert!(requester.nothing_is_missing(), "at {end:?}");
        }
    }
}
