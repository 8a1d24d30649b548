//! Which protocol carries a message: one pure function of its length, the credits, what can be registered, what the
//! peer can do, and the configuration. It is called when a message leaves (`send_queue.rs`).

use std::fmt;

use roci_protocol::msg::{Capabilities, RendezvousProtocol};

use crate::core::stats::WorkerStats;
use crate::core::transfer::TRANSFER_LIMIT;

/// The longest message that one READ or WRITE carries.
pub const MAX_TRANSFER: usize = TRANSFER_LIMIT;

/// How a message travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// In one vbuf or a series of them, at once; copied at both ends, and kept at the receiver until somebody asks.
    Eager,
    /// By rendezvous.
    Rendezvous(RendezvousProtocol),
}

/// Why it travels so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is short.
    Short,
    /// It is short, and the peer has too few receives left for it.
    NoCredit,
    /// It is short, and takes more send buffers or places in the send queue than are free.
    NoBuffers,
    /// It is long, and this is what the configuration wants for long ones.
    Long,
    /// It is longer than short, and not worth a registration.
    Medium,
    /// It is very long: it goes in pieces, so that others get between.
    VeryLong,
    /// Its memory cannot be registered, for want of keys.
    Unregistered,
    /// It would go in pieces, and cannot be cut.
    CannotBeCut,
    /// One of the two ends has no RDMA.
    NoRdma,
    /// The peer is a process of this host, which may read it where it lies: RGET without the READ.
    SameHost,
}

/// What a rendezvous is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rendezvous {
    /// RGET, which needs the fewest messages; in pieces where very long, unless the peer may read them where they lie.
    #[default]
    Auto,
    /// This, wherever it can be.
    Always(RendezvousProtocol),
}

/// The configuration's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The longest eager message.
    pub eager: usize,
    /// Rendezvous shorter than this are streamed in vbufs.
    pub r3: usize,
    /// Rendezvous of at least this length go in pieces.
    pub pipeline: usize,
    /// What the others are.
    pub rendezvous: Rendezvous,
    /// What this end can do.
    pub ours: Capabilities,
}

/// The message's part, and the moment's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// Its length in bytes.
    pub len: usize,
    /// Vbufs that it would take.
    pub vbufs: usize,
    /// Vbufs that the peer's credits allow to an eager message.
    pub credits: usize,
    /// Whether it finds the send buffers and the places in the send queue that it would take.
    pub has_buffers: bool,
    /// Whether a key is left to register its memory with.
    pub can_register: bool,
    /// Whether it can be cut in pieces: not where it is a list, or its front is skipped.
    pub can_be_cut: bool,
    /// Whether the peer may read it in this process's memory.
    pub is_readable: bool,
    /// What the peer can do.
    pub peer: Capabilities,
}

/// The protocol for a message, and why.
#[inline]
pub fn select(rules: &Rules, conditions: &Conditions) -> (Protocol, Reason) {
    let &Conditions { len, vbufs, credits, has_buffers, .. } = conditions;
    if len > rules.eager {
        rendezvous(rules, conditions)
    } else if vbufs > credits {
        (Protocol::Rendezvous(RendezvousProtocol::R3), Reason::NoCredit)
    } else if !has_buffers {
        (Protocol::Rendezvous(RendezvousProtocol::R3), Reason::NoBuffers)
    } else {
        (Protocol::Eager, Reason::Short)
    }
}

fn rendezvous(rules: &Rules, conditions: &Conditions) -> (Protocol, Reason) {
    let &Conditions { len, can_register, can_be_cut, is_readable, peer, .. } = conditions;
    let (protocol, reason) = match rules.rendezvous {
        _ if !(rules.ours.rdma && peer.rdma) => (RendezvousProtocol::R3, Reason::NoRdma),
        Rendezvous::Always(RendezvousProtocol::Rget) | Rendezvous::Auto if !can_register && len < rules.pipeline => {
            (RendezvousProtocol::R3, Reason::Unregistered)
        }
        Rendezvous::Always(protocol) => (protocol, Reason::Long),
        Rendezvous::Auto if is_readable && can_register && len <= MAX_TRANSFER => {
            (RendezvousProtocol::Rget, Reason::SameHost)
        }
        Rendezvous::Auto if len >= rules.pipeline => (RendezvousProtocol::Pipeline, Reason::VeryLong),
        Rendezvous::Auto if len < rules.r3 => (RendezvousProtocol::R3, Reason::Medium),
        Rendezvous::Auto => (RendezvousProtocol::Rget, Reason::Long),
    };
    // Only RGET needs the sender's memory registered; and one READ or WRITE has only so many packets.
    let (protocol, reason) = match protocol {
        RendezvousProtocol::Rget | RendezvousProtocol::Rput if len > MAX_TRANSFER => {
            (RendezvousProtocol::Pipeline, Reason::VeryLong)
        }
        RendezvousProtocol::Rget if !can_register => (RendezvousProtocol::Pipeline, Reason::Unregistered),
        protocol => (protocol, reason),
    };
    let (protocol, reason) = match protocol {
        RendezvousProtocol::Pipeline if !can_be_cut && can_register && len <= MAX_TRANSFER => {
            (RendezvousProtocol::Rget, Reason::CannotBeCut)
        }
        RendezvousProtocol::Pipeline if !can_be_cut => (RendezvousProtocol::R3, Reason::CannotBeCut),
        protocol => (protocol, reason),
    };
    (Protocol::Rendezvous(protocol), reason)
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eager => "EAGER",
            Self::Rendezvous(RendezvousProtocol::R3) => "R3",
            Self::Rendezvous(RendezvousProtocol::Rget) => "RGET",
            Self::Rendezvous(RendezvousProtocol::Rput) => "RPUT",
            Self::Rendezvous(RendezvousProtocol::Pipeline) => "PIPELINE",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "not longer than ROCI_EAGER_THRESHOLD",
            Self::NoCredit => "short, but the peer has too few receives left",
            Self::NoBuffers => "short, but too few send buffers are free (ROCI_VBUF_MAX)",
            Self::Long => "longer than ROCI_EAGER_THRESHOLD (ROCI_RNDV_PROTOCOL)",
            Self::Medium => "shorter than ROCI_R3_THRESHOLD",
            Self::VeryLong => "at least ROCI_PIPELINE_THRESHOLD",
            Self::Unregistered => "no key is left to register it with (ROCI_NDREG_ENTRIES)",
            Self::CannotBeCut => "at least ROCI_PIPELINE_THRESHOLD, but a list, or a buffer whose front is skipped",
            Self::NoRdma => "RDMA is off at this rank or at its peer (ROCI_RDMA)",
            Self::SameHost => "long, and the peer may read it in this process's memory (ROCI_CMA)",
        })
    }
}

impl WorkerStats {
    /// A protocol was chosen for a message. Which one a rendezvous takes may change yet.
    #[inline]
    pub(crate) fn chose(&mut self, protocol: Protocol, reason: Reason) {
        self.tx_eager += u64::from(protocol == Protocol::Eager);
        match reason {
            Reason::NoCredit => self.fallback_credit += 1,
            Reason::NoBuffers => self.fallback_buffer += 1,
            Reason::Unregistered => self.fallback_registration += 1,
            Reason::NoRdma => self.fallback_peer += 1,
            Reason::Short
            | Reason::Long
            | Reason::Medium
            | Reason::VeryLong
            | Reason::CannotBeCut
            | Reason::SameHost => {}
        }
    }

    /// The protocol of a rendezvous is certain.
    pub(crate) fn goes(&mut self, protocol: RendezvousProtocol) {
        match protocol {
            RendezvousProtocol::R3 => self.tx_r3 += 1,
            RendezvousProtocol::Rget => self.tx_rget += 1,
            RendezvousProtocol::Rput => self.tx_rput += 1,
            RendezvousProtocol::Pipeline => self.tx_pipeline += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RDMA: Capabilities = Capabilities { rdma: true };
    const RULES: Rules = Rules { eager: 100, r3: 1000, pipeline: 10_000, rendezvous: Rendezvous::Auto, ours: RDMA };

    fn of(len: usize) -> Conditions {
        Conditions {
            len,
            vbufs: len.div_ceil(50).max(1),
            credits: 2,
            has_buffers: true,
            can_register: true,
            can_be_cut: true,
            is_readable: false,
            peer: RDMA,
        }
    }

    #[track_caller]
    fn check(rules: &Rules, conditions: &Conditions, protocol: Protocol, reason: Reason) {
        assert_eq!(select(rules, conditions), (protocol, reason), "{conditions:?}");
    }

    #[test]
    fn length_decides_where_all_is_well() {
        use Protocol::{Eager, Rendezvous};
        for (len, protocol, reason) in [
            (0, Eager, Reason::Short),
            (100, Eager, Reason::Short),
            (101, Rendezvous(RendezvousProtocol::R3), Reason::Medium),
            (999, Rendezvous(RendezvousProtocol::R3), Reason::Medium),
            (1000, Rendezvous(RendezvousProtocol::Rget), Reason::Long),
            (9999, Rendezvous(RendezvousProtocol::Rget), Reason::Long),
            (10_000, Rendezvous(RendezvousProtocol::Pipeline), Reason::VeryLong),
        ] {
            check(&RULES, &of(len), protocol, reason);
        }
    }

    #[test]
    fn without_credits_an_eager_message_becomes_r3() {
        let r3 = Protocol::Rendezvous(RendezvousProtocol::R3);
        check(&RULES, &Conditions { credits: 1, ..of(51) }, r3, Reason::NoCredit);
        check(&RULES, &Conditions { credits: 1, ..of(50) }, Protocol::Eager, Reason::Short);
        check(&RULES, &Conditions { credits: 0, ..of(0) }, r3, Reason::NoCredit);
        check(&RULES, &Conditions { has_buffers: false, ..of(51) }, r3, Reason::NoBuffers);
        check(&RULES, &Conditions { credits: 1, has_buffers: false, ..of(51) }, r3, Reason::NoCredit);
    }

    #[test]
    fn what_cannot_be_registered_is_streamed_or_goes_in_pieces() {
        let (r3, pipeline) =
            (Protocol::Rendezvous(RendezvousProtocol::R3), Protocol::Rendezvous(RendezvousProtocol::Pipeline));
        let rget = Rules { rendezvous: Rendezvous::Always(RendezvousProtocol::Rget), ..RULES };
        for rules in [RULES, rget] {
            check(&rules, &Conditions { can_register: false, ..of(5000) }, r3, Reason::Unregistered);
        }
        check(&RULES, &Conditions { can_register: false, ..of(10_000) }, pipeline, Reason::VeryLong);
        check(&rget, &Conditions { can_register: false, ..of(10_000) }, pipeline, Reason::Unregistered);
        // The receiver's memory is registered for RPUT, not the sender's.
        let rput = Rules { rendezvous: Rendezvous::Always(RendezvousProtocol::Rput), ..RULES };
        let protocol = Protocol::Rendezvous(RendezvousProtocol::Rput);
        check(&rput, &Conditions { can_register: false, ..of(5000) }, protocol, Reason::Long);
    }

    #[test]
    fn what_cannot_be_cut_is_fetched_whole_or_streamed() {
        let (r3, rget) = (Protocol::Rendezvous(RendezvousProtocol::R3), Protocol::Rendezvous(RendezvousProtocol::Rget));
        let uncut = |len| Conditions { can_be_cut: false, ..of(len) };
        let pipeline = Rules { rendezvous: Rendezvous::Always(RendezvousProtocol::Pipeline), ..RULES };
        for rules in [RULES, pipeline] {
            check(&rules, &uncut(10_000), rget, Reason::CannotBeCut);
            check(&rules, &uncut(MAX_TRANSFER), rget, Reason::CannotBeCut);
            check(&rules, &uncut(MAX_TRANSFER + 1), r3, Reason::CannotBeCut);
            check(&rules, &Conditions { can_register: false, ..uncut(10_000) }, r3, Reason::CannotBeCut);
        }
        check(&RULES, &uncut(9_999), rget, Reason::Long);
        check(&RULES, &uncut(100), Protocol::Eager, Reason::Short);
        let rput = Rules { rendezvous: Rendezvous::Always(RendezvousProtocol::Rput), ..RULES };
        check(&rput, &uncut(10_000), Protocol::Rendezvous(RendezvousProtocol::Rput), Reason::Long);
    }

    #[test]
    fn what_a_process_of_this_host_may_read_is_not_sent() {
        let rget = Protocol::Rendezvous(RendezvousProtocol::Rget);
        let readable = |len| Conditions { is_readable: true, ..of(len) };
        for len in [101, 1000, 10_000, MAX_TRANSFER] {
            check(&RULES, &readable(len), rget, Reason::SameHost);
            check(&RULES, &Conditions { can_be_cut: false, ..readable(len) }, rget, Reason::SameHost);
        }
        check(&RULES, &readable(100), Protocol::Eager, Reason::Short);
        let (r3, pipeline) =
            (Protocol::Rendezvous(RendezvousProtocol::R3), Protocol::Rendezvous(RendezvousProtocol::Pipeline));
        check(&RULES, &readable(MAX_TRANSFER + 1), pipeline, Reason::VeryLong);
        // The kernel may refuse it, and then it is fetched.
        check(&RULES, &Conditions { can_register: false, ..readable(5000) }, r3, Reason::Unregistered);
        check(&RULES, &Conditions { can_register: false, ..readable(50_000) }, pipeline, Reason::VeryLong);
        let none = Capabilities { rdma: false };
        check(&RULES, &Conditions { peer: none, ..readable(5000) }, r3, Reason::NoRdma);
        let forced = Rules { rendezvous: Rendezvous::Always(RendezvousProtocol::Pipeline), ..RULES };
        check(&forced, &readable(5000), pipeline, Reason::Long);
    }

    #[test]
    fn without_rdma_at_either_end_everything_long_is_streamed() {
        let none = Capabilities { rdma: false };
        let r3 = Protocol::Rendezvous(RendezvousProtocol::R3);
        for rendezvous in [
            Rendezvous::Auto,
            Rendezvous::Always(RendezvousProtocol::Rget),
            Rendezvous::Always(RendezvousProtocol::Pipeline),
        ] {
            let rules = Rules { rendezvous, ..RULES };
            check(&rules, &Conditions { peer: none, ..of(50_000) }, r3, Reason::NoRdma);
            check(&Rules { ours: none, ..rules }, &of(50_000), r3, Reason::NoRdma);
        }
    }

    #[test]
    fn one_protocol_can_be_forced_on_every_rendezvous() {
        for protocol in
            [RendezvousProtocol::R3, RendezvousProtocol::Rget, RendezvousProtocol::Rput, RendezvousProtocol::Pipeline]
        {
            let rules = Rules { rendezvous: Rendezvous::Always(protocol), ..RULES };
            for len in [101, 1000, 50_000] {
                check(&rules, &of(len), Protocol::Rendezvous(protocol), Reason::Long);
            }
            check(&rules, &of(100), Protocol::Eager, Reason::Short);
        }
    }
}
