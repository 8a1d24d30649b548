//! The requester: cuts work requests into packets, keeps the window, retransmits. Answers arrive in `completer`.
//!
//! PSNs are given out when a request is posted, so a position in the stream of packets is just a PSN. The
//! cursor is the next packet to send; a retransmission moves it back, and everything after follows (go-back-N).

mod at_once;

use std::collections::VecDeque;

use super::budget::HEADER_BYTES;
use super::congestion::{CongestionControl as _, Controller};
use super::credits::Limit;
use super::recovery::{Loss, SPAN};
use super::rtt::Rtt;
use super::{
    AtomicOperation, Budget, Config, Dialect, Env, Payload, RcPostError, RcQueuePair, Rejected, SendOp, SendRequest,
    State, Stats, TxError, WcStatus,
};
use crate::wire::{AtomicEth, Extensions, Headers, Ieth, ImmDt, Opcode, Reth};
use crate::{Msn, Mtu, Nanos, Psn};

/// The longest message (IBTA 9.7.8).
pub(super) const MAX_MESSAGE: u32 = 1 << 31;
/// What an atomic operates on.
const ATOMIC_LEN: u32 = 8;
/// PSNs that may be outstanding (IBTA 9.7.5.1: less than half of all).
pub(super) const MAX_SPAN: u32 = (1 << 23) - 1;
/// In a long message an acknowledgement is asked for every so many packets, a power of two; more often where the
/// window is small.
const ACK_EVERY: u32 = 32;
/// In any case after so long: a sender that is slowed down hears more often than its timeouts come.
const ACK_EVERY_NS: Nanos = 50_000;
/// A READ between two ends of ours is sent in parts of an eighth of the window, or of more where fewer READs may be in
/// flight: so the window, and with it congestion control, bounds its answers, and a lost one holds up little.
const PART_SHIFT: u32 = 3;
/// Acknowledgements that a window is worth, so that they move it on smoothly.
const ACKS_PER_WINDOW: u32 = 4;

/// A send work request and the PSNs that it owns.
pub(super) struct Wqe<B> {
    pub(super) request: SendRequest<B>,
    pub(super) first: Psn,
    pub(super) packets: u32,
    /// READ and atomic: response packets placed.
    pub(super) received: u32,
    /// Its number among the messages, from 1 on (IBTA 9.7.7.2: send sequence number).
    ssn: Msn,
}

impl<B> Wqe<B> {
    /// The first PSN after this request.
    pub(super) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    pub(super) fn is_fetch(&self) -> bool {
        self.request.op.is_fetch()
    }
}

/// A READ or an atomic as it was sent: the PSNs of its answers. A long READ is sent as several between two ends of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    pub(super) first: Psn,
    pub(super) end: Psn,
}

/// The next packet to send: which request, and which of its packets.
#[derive(Clone, Copy, Default)]
struct Cursor {
    index: usize,
    packet: u32,
}

pub(super) struct Requester<B> {
    pub(super) queue: VecDeque<Wqe<B>>,
    depth: usize,
    /// The peer serves no READs and atomics.
    takes_no_fetch: bool,
    cursor: Cursor,
    /// The PSN of the next request to be posted.
    next: Psn,
    /// PSNs of all requests in the queue: no two of them may be so far apart that their order is lost.
    span: u32,
    /// The oldest PSN not acknowledged.
    pub(super) una: Psn,
    /// The first PSN never sent.
    pub(super) sent: Psn,
    /// READs and atomics sent and not complete, in order.
    pub(super) fetches: VecDeque<Fetch>,
    /// Packets that may be in flight, whatever congestion control allows; with selective repeat none that could not be kept
    /// or reported.
    most: u32,
    /// A READ is sent in parts of the window's size shifted by so much.
    part_shift: u32,
    /// After a timeout: only the oldest packet goes out until the peer answers.
    probing: bool,
    /// A READ was asked for again: later responses of the first stream are stale, not a new gap.
    pub(super) rereading: bool,
    /// Where a READ was asked for from its middle on, last: its answers begin with FIRST there, even if the cursor has gone
    /// back once more before they came.
    pub(super) reread_from: Psn,
    /// The number of the message posted last.
    ssn: Msn,
    pub(super) credits: Limit,
    /// Nothing new is started.
    pub(super) draining: bool,
    retries: u32,
    /// Timeouts since a packet of the peer arrived.
    backoff: u32,
    rnr_retries: u32,
    /// What is known of packets that are missing; only where selective repeat was agreed on.
    pub(super) loss: Loss,
    is_selective: bool,
    pub(super) rtt: Rtt,
    /// How long the peer says that it waited with the acknowledgement that is looked at.
    pub(super) peer_delay: Nanos,
    pub(super) congestion: Controller,
    /// When an acknowledgement was asked for last.
    asked_at: Nanos,
    /// Pacing holds a packet back until then.
    paced_until: Option<Nanos>,
    timer: Option<Nanos>,
    rnr_until: Option<Nanos>,
    /// The packet that the peer was not ready for.
    rnr_psn: Psn,
}

impl<B> Requester<B> {
    pub(super) fn new(config: &Config) -> Self {
        assert!(config.window > 0 && config.window < 1 << 23, "IBTA allows 2^23 packets in flight");
        Self {
            queue: VecDeque::with_capacity(config.sq_depth),
            depth: config.sq_depth,
            takes_no_fetch: config.max_rd_atomic == 0,
            cursor: Cursor::default(),
            next: config.sq_psn,
            span: 0,
            una: config.sq_psn,
            sent: config.sq_psn,
            fetches: VecDeque::with_capacity(config.max_rd_atomic),
            most: if config.dialect == Dialect::Rocinante { config.window.min(SPAN) } else { config.window },
            part_shift: config.max_rd_atomic.max(1).ilog2().min(PART_SHIFT),
            probing: false,
            rereading: false,
            reread_from: config.sq_psn,
            ssn: Msn::default(),
            credits: if config.end_to_end_credits { Limit::Until(Msn::default()) } else { Limit::Unlimited },
            draining: false,
            retries: 0,
            backoff: 0,
            rnr_retries: 0,
            loss: Loss::new(config.sq_psn),
            is_selective: config.dialect == Dialect::Rocinante,
            rtt: Rtt::default(),
            peer_delay: 0,
            congestion: Controller::new(config),
            asked_at: 0,
            paced_until: None,
            timer: None,
            rnr_until: None,
            rnr_psn: config.sq_psn,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_drained(&self) -> bool {
        // In the middle of a message everything sent may be acknowledged, and yet the message has begun.
        self.una == self.sent && self.cursor.packet == 0
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        match (self.rnr_until.or(self.timer), self.paced_until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn post(&mut self, request: SendRequest<B>, config: &Config) -> Result<(), Rejected<SendRequest<B>>> {
        let reject = |reason, request| Err(Rejected { reason, request });
        if request.len > MAX_MESSAGE {
            return reject(RcPostError::TooLong, request);
        }
        if self.queue.len() == self.depth {
            return reject(RcPostError::QueueFull, request);
        }
        let needed = match request.op {
            SendOp::Atomic { .. } => ATOMIC_LEN,
            SendOp::BindWindow { .. } | SendOp::LocalInvalidate { .. } => 0,
            _ => request.len,
        };
        if request.len != needed {
            return reject(RcPostError::BufferLength(needed), request);
        }
        if request.op.is_fetch() && self.takes_no_fetch {
            return reject(RcPostError::NoFetch, request);
        }
        let packets = request.op.packets(request.len, config.mtu);
        if self.span + packets > MAX_SPAN {
            let reason = if self.queue.is_empty() { RcPostError::TooLong } else { RcPostError::QueueFull };
            return reject(reason, request);
        }
        self.span += packets;
        let first = self.next;
        self.next = first.plus(packets);
        if request.op.counts_as_message(config.dialect) {
            self.ssn = self.ssn.next();
        }
        self.queue.push_back(Wqe { request, first, packets, received: 0, ssn: self.ssn });
        Ok(())
    }

    /// The PSN of the next request to be posted.
    pub(super) const fn next_psn(&self) -> Psn {
        self.next
    }

    /// The PSN of the next packet to send.
    pub(super) fn cursor_psn(&self) -> Psn {
        self.queue.get(self.cursor.index).map_or(self.next, |wqe| wqe.first.plus(self.cursor.packet))
    }

    /// The oldest packet that is not acknowledged is `una` now.
    #[inline]
    pub(super) fn advance_una(&mut self, una: Psn) {
        assert!(!una.before(self.una), "what was acknowledged stays acknowledged");
        if self.is_selective {
            self.loss.advance_to(una);
        }
        self.una = una;
        if !self.fetches.is_empty() {
            self.forget_answered();
        }
    }

    /// READs and atomics that are answered in full are not in flight any more.
    fn forget_answered(&mut self) {
        while self.fetches.front().is_some_and(|fetch| !self.una.before(fetch.end)) {
            self.fetches.pop_front();
        }
    }

    /// The oldest READ or atomic. Mostly it is the oldest request.
    #[inline]
    pub(super) fn oldest_fetch(&self) -> Option<&Wqe<B>> {
        let front = self.queue.front()?;
        if front.is_fetch() { Some(front) } else { self.queue.iter().find(|wqe| wqe.is_fetch()) }
    }

    pub(super) fn is_probing(&self) -> bool {
        self.probing
    }

    /// Whether an RNR NAK's time has not passed.
    pub(super) fn is_waiting_for_receiver(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// Whether `psn` waits until an RNR NAK's time has passed.
    pub(super) fn waits_to_send(&self, psn: Psn) -> bool {
        self.rnr_until.is_some() && self.rnr_psn == psn
    }

    /// Whether congestion control lets the next packet go; where it does not, the time is kept.
    #[inline]
    pub(super) fn is_released(&mut self, now: Nanos) -> bool {
        let at = self.congestion.release_at();
        if at > now {
            self.paced_until = Some(at);
        }
        at <= now
    }

    /// Moves the cursor back to `psn`, which belongs to a request in the queue.
    pub(super) fn rewind(&mut self, psn: Psn) {
        assert!(!psn.before(self.una), "what was acknowledged is never sent again");
        if !psn.before(self.cursor_psn()) {
            return;
        }
        let found = self.queue.iter().position(|wqe| psn.before(wqe.end()));
        let index = found.expect("a PSN that was sent and not acknowledged has its request in the queue");
        let wqe = &self.queue[index];
        let packet = if wqe.is_fetch() { wqe.received } else { psn.since(wqe.first) as u32 };
        self.cursor = Cursor { index, packet };
        while self.fetches.back().is_some_and(|fetch| psn.before(fetch.end)) {
            self.fetches.pop_back();
        }
    }

    /// What was acknowledged is not sent again, even if the cursor had gone back to it.
    pub(super) fn catch_up(&mut self) {
        if self.cursor_psn().before(self.una) {
            let front = &self.queue[0];
            self.cursor = Cursor { index: 0, packet: self.una.since(front.first) as u32 };
        }
    }

    /// Whether the READ or atomic at `index` has been asked for since the last rewind.
    pub(super) fn is_requested(&self, index: usize) -> bool {
        index < self.cursor.index
    }

    /// Takes the oldest request out; every packet of it is acknowledged or answered.
    pub(super) fn pop(&mut self) -> Wqe<B> {
        let wqe = self.queue.pop_front().expect("the caller looked at it");
        self.span -= wqe.packets;
        if self.queue.is_empty() {
            // The next one takes the first place again: of a queue that is mostly empty, one of thousands, the caches
            // need not hold the whole ring.
            self.queue.clear();
        }
        if self.cursor.index == 0 {
            self.cursor = Cursor::default();
        } else {
            self.cursor.index -= 1;
        }
        wqe
    }

    /// The peer answered: the retry budgets are whole again and the timer starts anew.
    pub(super) fn progressed(&mut self, now: Nanos, config: &Config) {
        self.retries = 0;
        self.backoff = 0;
        self.rnr_retries = 0;
        self.probing = false;
        self.rereading = false;
        // Answers to earlier READs do not make the peer ready for what follows them.
        if config.dialect == Dialect::Verbs || self.rnr_psn.before(self.una) {
            self.rnr_until = None;
        }
        self.restart_timer(now, config);
    }

    pub(super) fn restart_timer(&mut self, now: Nanos, config: &Config) {
        let outstanding = self.una.before(self.sent);
        self.timer = (outstanding && config.ack_timeout_ns > 0).then(|| now + self.rto(config));
    }

    fn rto(&self, config: &Config) -> Nanos {
        let first = match config.dialect {
            Dialect::Verbs => config.ack_timeout_ns,
            Dialect::Rocinante => self.rtt.base_rto().map_or(config.ack_timeout_ns, |ns| ns.min(config.ack_timeout_ns)),
        };
        let doubled = first.saturating_mul(1 << self.backoff.min(20));
        let timeout = doubled.min(config.ack_timeout_max_ns.max(config.ack_timeout_ns));
        if self.backoff == 0 { timeout } else { timeout + self.jitter(timeout) }
    }

    /// Up to a quarter more, by chance (IBTA 9.7.6.1.3 allows up to four times the time): timeouts of one length fall into
    /// step with whatever else is periodic, such as a path that fails now and then.
    fn jitter(&self, timeout: Nanos) -> Nanos {
        const GOLDEN: u32 = 0x9e37_79b9;
        let dice = (self.una.get() ^ self.retries << 24 ^ self.backoff << 16).wrapping_mul(GOLDEN) >> 24;
        (timeout >> 10) * Nanos::from(dice)
    }

    /// An answer of the peer arrived, with progress or without: a probe did its work.
    pub(super) fn on_answer(&mut self) {
        self.probing = false;
    }

    /// The peer answered without progress: the timeouts start over, the RNR retries do not.
    pub(super) fn on_rnr_nak(&mut self) {
        self.retries = 0;
        self.backoff = 0;
        self.probing = false;
    }

    /// Makes the peer answer: sends the oldest packet again, or the last one, whose answer covers all the others.
    fn go_back_after_silence(&mut self, now: Nanos, config: &Config) {
        match config.dialect {
            Dialect::Verbs => self.rewind(self.una),
            Dialect::Rocinante => {
                let probe = self.probe(self.backoff == 0);
                self.loss.start_over(probe);
            }
        }
        if self.backoff > 0 {
            self.congestion.on_silence(now);
        }
        self.backoff += 1;
        self.probing = true;
        self.rereading = false;
        self.restart_timer(now, config);
    }

    /// Spends one retry; `false` where none is left.
    pub(super) fn spend_retry(&mut self, config: &Config) -> bool {
        self.retries += 1;
        self.retries <= config.retry_limit
    }

    /// Spends one RNR retry and waits until `until`; `false` where none is left.
    pub(super) fn spend_rnr_retry(&mut self, psn: Psn, until: Nanos, config: &Config) -> bool {
        self.rnr_retries += 1;
        self.rnr_psn = psn;
        self.rnr_until = Some(until);
        config.rnr_retry_limit.is_none_or(|limit| self.rnr_retries <= limit)
    }

    /// Completes everything: the oldest request with `status` if it was under way, the others as flushed.
    pub(super) fn flush<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        let mut status = if self.una == self.sent { WcStatus::WrFlushErr } else { status };
        self.timer = None;
        self.rnr_until = None;
        while !self.queue.is_empty() {
            let wqe = self.pop();
            env.complete(wqe.request.ended(status));
            status = WcStatus::WrFlushErr;
        }
        self.cursor = Cursor::default();
        self.una = self.next;
        self.sent = self.next;
        self.loss = Loss::new(self.next);
        self.fetches.clear();
        self.paced_until = None;
    }

    #[inline]
    fn may_send(&self, config: &Config) -> bool {
        let Some(wqe) = self.queue.get(self.cursor.index) else { return false };
        if self.rnr_until.is_some() {
            return false;
        }
        if self.probing && config.dialect == Dialect::Rocinante {
            // The probe is a repair: nothing new follows until the peer speaks.
            return false;
        }
        self.fits_window(wqe, config) && (self.cursor.packet > 0 || self.may_start(wqe))
    }

    /// Whether what is under the cursor, and its answers, find room in the window.
    #[inline]
    fn fits_window(&self, wqe: &Wqe<B>, config: &Config) -> bool {
        let cursor = wqe.first.plus(self.cursor.packet);
        let in_flight = cursor.since(self.una) as u32;
        let window = if self.probing { 1 } else { self.window() };
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
        let rest = wqe.packets - self.cursor.packet;
        match config.dialect {
            Dialect::Verbs => rest,
            Dialect::Rocinante => rest.min((self.window() >> self.part_shift).max(1)),
        }
    }

    /// Packets that may be in flight.
    #[inline]
    fn window(&self) -> u32 {
        self.most.min(self.congestion.window())
    }

    /// Whether the message under the cursor may begin, or begin again.
    #[inline]
    fn may_start(&self, wqe: &Wqe<B>) -> bool {
        let is_new = !wqe.first.before(self.sent);
        let is_held_back =
            is_new && (self.draining || (wqe.request.op.takes_receive() && !self.credits.allows(wqe.ssn)));
        // What never reaches the wire is done when all before it is: completions keep their order.
        let waits = wqe.request.op.is_local() && self.cursor.index > 0;
        let is_fenced = wqe.request.fence && !self.fetches.is_empty();
        !(is_held_back || waits || is_fenced)
    }

    /// Whether the cursor stands at a request that never reaches the wire.
    fn is_at_local(&self) -> bool {
        self.queue.get(self.cursor.index).is_some_and(|wqe| wqe.request.op.is_local())
    }

    /// Sends the packet under the cursor and moves on.
    fn send_one<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        config: &Config,
        stats: &mut Stats,
        env: &mut E,
    ) -> Result<usize, TxError> {
        let wqe = &self.queue[self.cursor.index];
        let psn = wqe.first.plus(self.cursor.packet);
        let is_fetch = wqe.is_fetch();
        let count = if is_fetch { self.part(wqe, config) } else { 1 };
        let cut = Cut::new(wqe, self.cursor.packet, count, config.mtu);
        let mut headers = cut.headers(config, psn);
        headers.bth.ack_req = cut.is_last || self.asks_within_message(psn, now);
        env.transmit(&headers, cut.payload())?;
        if headers.bth.ack_req {
            self.asked_at = now;
        }
        stats.tx_requests += 1;
        let is_new = !psn.before(self.sent);
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
            self.fetches.push_back(Fetch { first: psn, end: next });
            if !cut.is_first {
                self.reread_from = psn;
            }
        }
        if self.sent.before(next) {
            self.sent = next;
        }
        self.advance(next);
        Ok(bytes)
    }

    /// Whether a packet that does not end its message asks for an acknowledgement.
    fn asks_within_message(&self, psn: Psn, now: Nanos) -> bool {
        let window = self.window();
        let fills_window = psn.since(self.una) as u32 + 1 >= window;
        let is_periodic = (psn.get() + 1).trailing_zeros() >= ack_interval(window);
        let is_late = now.saturating_sub(self.asked_at) >= ACK_EVERY_NS;
        is_periodic || fills_window || is_late || self.probing
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

    fn advance(&mut self, next: Psn) {
        let wqe = &self.queue[self.cursor.index];
        if next != wqe.end() {
            self.cursor.packet = next.since(wqe.first) as u32;
            return;
        }
        let index = self.cursor.index + 1;
        // A READ that was partly answered before a rewind continues where its responses stopped.
        let packet = self.queue.get(index).map_or(0, |wqe| wqe.received);
        self.cursor = Cursor { index, packet };
    }
}

/// The power of two of packets after which an acknowledgement is asked for.
#[inline]
fn ack_interval(window: u32) -> u32 {
    (window / ACKS_PER_WINDOW).clamp(1, ACK_EVERY).ilog2()
}

impl<B> RcQueuePair<B> {
    /// Posts a work request to the send queue. Nothing is sent until [`RcQueuePair::pump_requests`].
    ///
    /// In the error state the request is taken and flushed at the next pump, as verbs does.
    pub fn post_send(&mut self, request: SendRequest<B>) -> Result<(), Rejected<SendRequest<B>>> {
        if !self.state.accepts_responses() && self.state != State::Error {
            return Err(Rejected { reason: RcPostError::State(self.state), request });
        }
        self.requester.post(request, &self.config)
    }

    /// Whether [`RcQueuePair::pump_requests`] could do anything.
    #[inline]
    pub fn wants_pump(&self) -> bool {
        let requester = &self.requester;
        let is_settled = self.state == State::Rts
            && requester.paced_until.is_none()
            && (requester.timer.is_some() || !requester.una.before(requester.sent));
        let repairs = self.is_selective() && !requester.nothing_is_missing();
        !is_settled || repairs || requester.may_send(&self.config)
    }

    /// Sends what the window, the link and a budget of bytes allow, and takes what it sends from the budget. The last packet
    /// may exceed it.
    ///
    /// What makes a silent peer speak is not paced: timeouts space it already, and one that passes while pacing holds it back
    /// would spend a retry on nothing.
    pub fn pump_requests<E: Env<Buffer = B>>(
        &mut self,
        now: Nanos,
        budget: &mut Budget,
        env: &mut E,
    ) -> Result<(), TxError> {
        if self.state == State::Error {
            self.requester.flush(WcStatus::WrFlushErr, env);
        }
        if !self.state.accepts_responses() {
            return Ok(());
        }
        self.requester.draining = self.state == State::Sqd;
        self.requester.paced_until = None;
        let mut outcome = self.send_repairs(now, budget, env);
        while outcome.is_ok()
            && budget.is_left()
            && self.requester.may_send(&self.config)
            && (self.requester.probing || self.requester.is_released(now))
        {
            if self.requester.is_at_local() {
                self.execute_local(env);
            } else {
                outcome =
                    self.requester.send_one(now, &self.config, &mut self.stats, env).map(|bytes| budget.spend(bytes));
            }
        }
        let requester = &mut self.requester;
        if requester.timer.is_none() {
            requester.restart_timer(now, &self.config);
        }
        outcome
    }

    /// Executes the oldest request, which never reaches the wire.
    fn execute_local<E: Env<Buffer = B>>(&mut self, env: &mut E) {
        let Wqe { request, .. } = self.requester.pop();
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
        if let Some(until) = requester.rnr_until {
            if until <= now {
                requester.rnr_until = None;
                if self.config.dialect == Dialect::Rocinante {
                    requester.loss.start_over(requester.rnr_psn);
                }
                requester.restart_timer(now, &self.config);
            }
        } else if requester.timer.is_some_and(|at| at <= now) {
            // A timeout that is shorter than the connection's only asks: it says nothing about the peer.
            let is_probe = requester.rto(&self.config) < self.config.ack_timeout_ns;
            if is_probe {
                self.stats.tail_loss_probes += 1;
            } else {
                self.stats.local_ack_timeout_err += 1;
            }
            if is_probe || requester.spend_retry(&self.config) {
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
