//! The reliable connection (IBTA volume 1, 9.7) as a pure state machine.
//!
//! An [`RcQueuePair`] has two independent halves: the *requester* sends requests and completes them as the peer
//! acknowledges, the *responder* executes the peer's requests exactly once and in order. Neither holds a byte
//! of payload, a clock or a socket: whatever they want done goes through the [`Env`] that each call is given,
//! which is a type parameter, so that a packet costs no allocation and no indirect call.
//!
//! Loss recovery is go-back-N, as towards any verbs peer, or selective repeat between two of our own
//! ([`Dialect`]). One thing differs from a NIC: after a timeout only
//! the oldest packet is sent again, and the rest follows once the peer has answered. A peer whose
//! application is busy computing then finds one packet, not a window of copies.
//!
//! The caller's part of the bargain: call [`RcQueuePair::on_packet`] for every packet whose ICRC was right, unless the fast path
//! has taken it ([`RcQueuePair::on_whole`]; [`RcQueuePair::send_at_once`] is its other end),
//! [`RcQueuePair::on_timeout`] once [`RcQueuePair::deadline`] has passed, and [`RcQueuePair::pump_requests`] and
//! [`RcQueuePair::pump_replies`] when the link can send.

mod check;
mod completer;
mod config;
pub mod congestion;
mod credits;
mod env;
mod quantum;
mod recovery;
mod requester;
mod resources;
mod responder;
mod rtt;
mod state;
mod stats;
mod status;
#[cfg(test)]
mod tests;
mod timer_codes;

pub use config::{Config, Dialect};
pub use env::{
    AtomicOperation, Denied, Env, Operation, Payload, RcCompletion, RecvRequest, Remote, SendOp, SendRequest, TxError,
};
pub use quantum::Quantum;
pub use recovery::Held;
pub use responder::Whole;
pub use state::{IllegalTransition, State};
pub use stats::Stats;
pub use status::WcStatus;
pub use timer_codes::{ack_timeout_code, ack_timeout_ns, rnr_timer_ns};

use crate::wire::{Opcode, Packet, Transport};
use crate::{Nanos, Psn};
use congestion::CongestionControl as _;
use requester::Requester;
use responder::Responder;

/// A reliable connection's queue pair; `B` is the caller's token for a piece of memory.
pub struct RcQueuePair<B> {
    state: State,
    config: Config,
    requester: Requester<B>,
    responder: Responder<B>,
    stats: Stats,
    /// The packet that is looked at came early and was kept: it cannot end the connection.
    looks_at_held: bool,
}

/// A work request that could not be posted, handed back.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<R> {
    /// Why.
    pub reason: RcPostError,
    /// What the caller posted.
    pub request: R,
}

/// Why a work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RcPostError {
    /// The queue is full: poll for completions and post again.
    #[error("the queue is full: poll for completions first")]
    QueueFull,
    /// The queue pair is in a state that takes no such request.
    #[error("the queue pair is in state {0:?}")]
    State(State),
    /// Longer than a message may be: 2^31 bytes (IBTA 9.7.8), or 2^23 packets.
    #[error("a message holds at most 2^31 bytes and 2^23 packets")]
    TooLong,
    /// The request's length exceeds its buffer.
    #[error("the buffer is shorter than the request")]
    ShortBuffer,
    /// An atomic takes a buffer of 8 bytes; binding and ending a memory window take none.
    #[error("the operation takes a buffer of {0} bytes")]
    BufferLength(u32),
    /// The connection was made without READs and atomics in flight (`max_rd_atomic` is 0 on one side).
    #[error("the connection allows no READs and no atomics")]
    NoFetch,
    /// Receives of this queue pair come from a shared queue.
    #[error("the queue pair takes its receives from a shared queue: post them there")]
    SharedReceives,
}

impl<B> RcQueuePair<B> {
    /// A queue pair in state [`State::Init`]: receives may be posted, nothing is sent or accepted.
    pub fn new(config: Config) -> Self {
        Self {
            state: State::Init,
            requester: Requester::new(&config),
            responder: Responder::new(&config),
            stats: Stats::default(),
            looks_at_held: false,
            config,
        }
    }

    /// Moves to `next`, as `ibv_modify_qp` does. For the way into [`State::Error`] see [`RcQueuePair::fail`].
    ///
    /// [`State::Reset`] forgets everything but the counters: work requests are dropped without completions (IBTA 10.3.1.1),
    /// and PSNs begin anew.
    pub fn modify(&mut self, next: State) -> Result<(), IllegalTransition> {
        self.state = self.state.to(next)?;
        if next == State::Reset {
            self.requester = Requester::new(&self.config);
            self.responder = Responder::new(&self.config);
        }
        Ok(())
    }

    /// The present state.
    pub fn state(&self) -> State {
        self.state
    }

    /// What the queue pair was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The round trip that was measured since the last call, in nanoseconds, if one was.
    #[inline]
    pub fn take_round_trip(&mut self) -> Option<Nanos> {
        self.requester.rtt.take_uncounted()
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// When [`RcQueuePair::on_timeout`] wants to be called, if nothing happens before.
    pub fn deadline(&self) -> Option<Nanos> {
        let own = self.requester.deadline();
        match self.responder.paced_until {
            None => own,
            Some(paced) => Some(own.map_or(paced, |own| own.min(paced))),
        }
    }

    /// Receives posted and not yet taken by a message.
    pub fn receives_posted(&self) -> usize {
        self.responder.receives_posted()
    }

    /// Whether nothing that was sent is still unanswered: in [`State::Sqd`] the send queue has drained.
    pub fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }

    /// Whether the packet with this PSN was sent, and is not acknowledged yet.
    pub fn is_unacknowledged(&self, psn: Psn) -> bool {
        !psn.before(self.requester.window.una()) && psn.before(self.requester.window.sent())
    }

    /// Work requests posted to the send queue and not yet completed.
    pub fn sends_outstanding(&self) -> usize {
        self.requester.queue.len()
    }

    /// Takes a packet for this queue pair, already parsed and with its ICRC verified. Returns whether it was of use: what
    /// is stale, repeated or out of place is not.
    #[inline]
    pub fn on_packet<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        self.take(now, packet, env)
    }

    /// Takes a packet that was kept, as [`RcQueuePair::take_held`] asked for. It may be a forgery that came before the
    /// genuine one, so it cannot end the connection: one that would is forgotten, and asked for again.
    pub fn on_held_packet<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) {
        self.looks_at_held = true;
        let is_of_use = self.take(now, packet, env);
        self.stats.rx_held_executed += u64::from(is_of_use);
        self.looks_at_held = false;
    }

    fn take<E: Env<Buffer = B>>(&mut self, now: Nanos, packet: &Packet<'_>, env: &mut E) -> bool {
        let headers = &packet.headers;
        let transport = headers.bth.opcode.transport();
        if transport != Transport::Rc && transport != Transport::Cnp {
            self.stats.rx_wrong_transport += 1;
        } else if !self.config.pkey.hears(headers.bth.pkey) {
            self.stats.rx_bad_pkey += 1;
        } else if transport == Transport::Cnp {
            self.on_notification(now, headers.bth.psn);
        } else if is_response(headers.bth.opcode) {
            if self.state.accepts_responses() {
                return self.on_response(now, packet, env);
            }
            self.stats.rx_wrong_state += 1;
        } else if self.state.accepts_requests() {
            return self.on_request(now, packet, env);
        } else {
            self.stats.rx_wrong_state += 1;
        }
        false
    }

    /// A congestion notification. NICs send PSN 0 in it; this stack sends the PSN of the packet that was marked, so
    /// that an attacker who cannot see the traffic has to guess it.
    fn on_notification(&mut self, now: Nanos, psn: Psn) {
        let is_recent = |end: Psn| (1..=RECENT).contains(&end.since(psn));
        let is_from_nic = self.config.dialect == Dialect::Verbs && psn.get() == 0;
        if is_from_nic || is_recent(self.requester.window.sent()) || is_recent(self.responder.expected) {
            self.stats.rp_cnp_handled += 1;
            self.requester.congestion.on_notification(now);
        } else {
            self.stats.rp_cnp_ignored += 1;
        }
    }

    /// The packet that was taken last had been marked on its way (IP's ECN field says "congestion experienced"): its sender
    /// is to be notified.
    pub fn on_congestion_mark(&mut self, now: Nanos, psn: Psn) {
        self.stats.np_ecn_marked_roce_packets += 1;
        self.responder.owe_notification(now, psn);
    }

    /// Goes to the error state: the oldest send completes with `status` where it had begun, all other work
    /// requests are flushed in order (IBTA 10.3.1.5).
    pub fn fail<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        if self.state == State::Error {
            // What was posted since has not been flushed.
            self.requester.flush(WcStatus::WrFlushErr, env);
            self.responder.flush(WcStatus::WrFlushErr, env);
            return;
        }
        self.state = State::Error;
        self.requester.flush(status, env);
        self.responder.resources.drop_all();
        if status == WcStatus::LocQpOpErr {
            // The fault is ours: the peer gets a NAK, instead of being left to its timeouts.
            self.responder.owe_operational_error();
        }
        self.responder.flush(WcStatus::WrFlushErr, env);
    }

    /// The responder met an error of the peer's making: its own message in progress completes with `status`.
    fn fail_responder<E: Env<Buffer = B>>(&mut self, status: WcStatus, env: &mut E) {
        self.state = State::Error;
        self.responder.flush(status, env);
        self.requester.flush(WcStatus::WrFlushErr, env);
    }
}

/// How far back a packet may lie that late news is about: a mark, or a receive that was posted after it.
const RECENT: i32 = 1 << 16;

/// Whether a packet answers a request of the side that receives it.
pub(crate) const fn is_response(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::RcAck
            | Opcode::RcAtomicAck
            | Opcode::RcReadResponseFirst
            | Opcode::RcReadResponseMiddle
            | Opcode::RcReadResponseLast
            | Opcode::RcReadResponseOnly
    )
}
