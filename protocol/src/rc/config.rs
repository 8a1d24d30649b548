//! What two queue pairs agree on when they connect.

use super::congestion::Algorithm;
use crate::wire::{Bth, HeaderWords, Opcode};
use crate::{Access, Mtu, Nanos, Pkey, Psn, Qpn};

/// How two peers recover from loss. They must agree: [`Dialect::Rocinante`] is never assumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// Exactly as IBTA has it: go-back-N, timeouts by code.
    #[default]
    Verbs,
    /// Between peers of this stack: selective repeat, and timeouts that follow the round trip.
    Rocinante,
}

impl Dialect {
    /// What two peers speak, of whom each can do this much.
    #[must_use]
    pub const fn with(self, peer: Self) -> Self {
        match (self, peer) {
            (Self::Rocinante, Self::Rocinante) => Self::Rocinante,
            _ => Self::Verbs,
        }
    }
}

/// The attributes of a connected queue pair (`ibv_qp_attr`).
#[derive(Clone, Debug)]
pub struct Config {
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// The partition that both are in.
    pub pkey: Pkey,
    /// The path MTU, equal on both sides.
    pub mtu: Mtu,
    /// The first PSN that this side sends.
    pub sq_psn: Psn,
    /// The first PSN that this side expects.
    pub rq_psn: Psn,
    /// Work requests that the send queue holds.
    pub sq_depth: usize,
    /// Work requests that the receive queue holds.
    pub rq_depth: usize,
    /// Packets sent and not acknowledged, at most; below 2^23.
    pub window: u32,
    /// READ and atomic requests that this side keeps outstanding (initiator depth).
    pub max_rd_atomic: usize,
    /// READ and atomic requests that the peer may keep outstanding (responder resources).
    pub max_dest_rd_atomic: usize,
    /// What the peer may do with memory of this side through this queue pair.
    pub access: Access,
    /// How long an answer may take before the oldest packet is sent again; 0 means for ever.
    pub ack_timeout_ns: Nanos,
    /// Each further silence doubles the time up to this one. Equal to `ack_timeout_ns` for what IBTA describes.
    pub ack_timeout_max_ns: Nanos,
    /// Silences in a row before the connection fails with [`super::WcStatus::RetryExcErr`].
    pub retry_limit: u32,
    /// RNR NAKs in a row before it fails with [`super::WcStatus::RnrRetryExcErr`]; `None` means never.
    pub rnr_retry_limit: Option<u32>,
    /// What both peers have agreed on beyond IBTA.
    pub dialect: Dialect,
    /// Who decides how much may be in flight, and when.
    pub congestion: Algorithm,
    /// The link's speed in bits per second, for congestion control by rate.
    pub link_rate: u64,
    /// Receives come from a queue that other queue pairs share ([`super::Env::take_shared_receive`]).
    pub shared_receives: bool,
    /// Start no message before the peer has a receive for it, as its acknowledgements tell (IBTA 9.7.7.2).
    pub end_to_end_credits: bool,
    /// The timer code that this side sends in its RNR NAKs.
    pub min_rnr_timer: u8,
}

impl Config {
    /// The header of a packet to the peer.
    #[inline]
    pub(super) const fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        Bth { pkey: self.pkey, ..Bth::new(opcode, self.dest_qpn, psn) }
    }

    /// The same as words, to which the opcode's extensions are added.
    #[inline]
    pub(super) const fn words(&self, opcode: Opcode, psn: Psn) -> HeaderWords {
        HeaderWords::new(opcode, self.pkey, self.dest_qpn, psn)
    }
}

impl Default for Config {
    /// The dialect of verbs: timeout code 14 (67 ms), seven retries, endless RNR retries.
    fn default() -> Self {
        let ack_timeout_ns = super::ack_timeout_ns(14);
        Self {
            dest_qpn: Qpn::default(),
            pkey: Pkey::DEFAULT,
            mtu: Mtu::Mtu1024,
            sq_psn: Psn::default(),
            rq_psn: Psn::default(),
            sq_depth: 128,
            rq_depth: 512,
            window: 128,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC),
            ack_timeout_ns,
            ack_timeout_max_ns: ack_timeout_ns,
            retry_limit: 7,
            rnr_retry_limit: None,
            dialect: Dialect::Verbs,
            congestion: Algorithm::Unlimited,
            link_rate: 100_000_000_000,
            shared_receives: false,
            end_to_end_credits: true,
            min_rnr_timer: 12,
        }
    }
}
