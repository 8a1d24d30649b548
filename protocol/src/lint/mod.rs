//! The lint: does what crosses a wire keep to IBTA?
//!
//! A peer checks little of what it receives: a message number that stands still, credits that are never advertised or a
//! wrong partition key do no harm to a lenient one. The lint looks at every frame of both directions, in the order in
//! which it was sent, and reports each rule that a frame breaks. It has no I/O and no clock, and it shares no state
//! machine with the connection that it judges.
//!
//! It knows a connection from its beginning where somebody says so ([`Lint::open`]) or where RDMA-CM's REQ and REP crossed
//! the wire before. Of others it finds out who belongs together, and it judges only what follows from what it has seen.
//! It knows IBTA alone: what two ends of this stack agree on beyond it (selective repeat, no ICRC) breaks its rules.

mod answers;
mod connections;
mod datagram;
mod part;
mod ports;
mod requests;
mod rule;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

use crate::wire::{Frame, Malformed};
use crate::{Mtu, Nanos, Pkey, Psn, Qpn};

pub use rule::Rule;

use connections::TrackedConnections;
use ports::UdpPorts;

/// Looks at frames, one after the other.
pub struct Lint {
    /// Those that packets may have.
    pkeys: Vec<Pkey>,
    /// Frames seen so far.
    frames: u64,
    ports: UdpPorts,
    connections: TrackedConnections,
}

/// A queue pair, by the address of its port and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct End {
    /// The port's address.
    pub ip: IpAddr,
    /// The queue pair's number.
    pub qpn: Qpn,
}

/// Two queue pairs that are about to talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Who.
    pub ends: [End; 2],
    /// The first PSN that each of them sends.
    pub first_psns: [Psn; 2],
    /// The path MTU.
    pub mtu: Mtu,
}

/// A frame broke a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// Which frame: the first one has number 0.
    pub frame: u64,
    /// What the rule asks for.
    pub expected: String,
    /// What the frame has.
    pub seen: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, frame, expected, seen } = self;
        write!(f, "frame {frame} breaks {rule}: expected {expected}, seen {seen}")
    }
}

/// Of the default partition's full members.
impl Default for Lint {
    fn default() -> Self {
        Self::with_pkeys([Pkey::DEFAULT])
    }
}

impl Lint {
    /// Of members of other partitions: a packet may have any of `pkeys`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn with_pkeys(pkeys: impl Into<Vec<Pkey>>) -> Self {
        let pkeys = pkeys.into();
        assert!(!pkeys.is_empty(), "every packet has a P_Key");
        Self { pkeys, frames: 0, ports: UdpPorts::default(), connections: TrackedConnections::default() }
    }

    /// Two queue pairs are connected: both have sent nothing yet and executed nothing.
    pub fn open(&mut self, opening: &Opening) {
        self.connections.open(opening);
    }

    /// Announces that a queue pair has `count` more receives. The lint judges the credits only of queue pairs with such
    /// an announcement.
    pub fn post_receives(&mut self, end: End, count: u32) {
        self.connections.post_receives(end, count);
    }

    /// A queue pair takes its receives from a shared queue.
    pub fn share_receives(&mut self, end: End) {
        self.connections.share_receives(end);
    }

    /// Looks at the next frame, an Ethernet frame that was sent at the time `at`, and returns the rules that it breaks. Of
    /// frames that are no RoCEv2 packets nothing is said.
    pub fn look(&mut self, at: Nanos, bytes: &[u8]) -> Vec<Finding> {
        let mut report = FrameReport { frame: self.frames, findings: Vec::new() };
        self.frames += 1;
        match Frame::parse(bytes) {
            Ok(frame) => {
                datagram::check(bytes, &frame, &self.pkeys, &mut report);
                self.ports.check(&frame, &mut report);
                // What a damaged frame says counts for nothing.
                if frame.verify_icrc().is_ok() {
                    self.connections.check(at, &frame, &mut report);
                }
            }
            Err(reason) => datagram::check_malformed(bytes, reason, &mut report),
        }
        report.findings
    }
}

/// The findings in one frame.
struct FrameReport {
    frame: u64,
    findings: Vec<Finding>,
}

impl FrameReport {
    fn broken(&mut self, rule: Rule, expected: impl Into<String>, seen: impl Into<String>) {
        let (expected, seen) = (expected.into(), seen.into());
        self.findings.push(Finding { rule, frame: self.frame, expected, seen });
    }
}

/// Whether a frame that could not be parsed is another protocol's.
fn is_foreign(reason: Malformed) -> bool {
    matches!(reason, Malformed::NotIp | Malformed::NotUdp | Malformed::NotRoce)
}
