//! Counters of an engine.

use roci_protocol::wire::Malformed;
use roci_protocol::{Histogram, Nanos, rc, ud};

use super::identifications::IcrcCheck;

/// Counters of an engine; `rx_frames` is always `rx_delivered` and all drops together.
#[derive(Clone, Debug, Default)]
pub struct EngineStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Packets that reached a queue pair.
    pub rx_delivered: u64,
    /// Packets of those without an ICRC, as their connection has agreed.
    pub rx_unchecked: u64,
    /// Packets for a queue pair that does not exist.
    pub rx_unknown_qpn: u64,
    /// Packets for a queue pair from or to another address than its connection's.
    pub rx_wrong_address: u64,
    /// Frames of a neighbour's that are no RoCEv2 packets: ARP, neighbour discovery, pings.
    pub rx_neighbour: u64,
    /// Packets to the management queue pair that are no management datagrams.
    pub rx_bad_management: u64,
    /// Management datagrams that the link had no room for; they are sent again.
    pub tx_management_lost: u64,
    /// Connections whose peer was found at another station than before.
    pub peers_followed: u64,
    /// Connections that ended because their peer's host refused a packet: no process has the port any more.
    pub peers_refused: u64,
    /// Packets whose ICRC is right for another IPv4 identification than the link could show, and any other peer's stack may have
    /// written.
    pub rx_other_identification: u64,
    /// Events that the application did not poll in time.
    pub events_lost: u64,
    /// Frames that are no RoCEv2 packets, by reason.
    pub(super) malformed: [u64; Malformed::ALL.len()],
    /// The counters of all datagram queue pairs, past and present.
    pub datagrams: ud::Stats,
    /// The counters of all queue pairs, past and present.
    pub queue_pairs: rc::Stats,
    /// Those of past ones alone: only an end touches them.
    pub(super) ended: Box<rc::Stats>,
    /// Round trips of packets that asked for an acknowledgement, in nanoseconds, without what the peer says that it waited.
    pub round_trips: Histogram,
}

impl EngineStats {
    /// Counts a round trip of so many nanoseconds, if one was measured.
    #[inline]
    pub(super) fn note_round_trip(&mut self, ns: Option<Nanos>) {
        if let Some(ns) = ns {
            self.round_trips.note(ns);
        }
    }

    /// Frames dropped as malformed for this reason.
    pub fn malformed(&self, reason: Malformed) -> u64 {
        self.malformed[reason as usize]
    }

    /// Counts a packet that was taken though its ICRC says less than it could.
    #[inline]
    pub(super) fn note_check(&mut self, check: IcrcCheck) {
        match check {
            IcrcCheck::Right => {}
            IcrcCheck::Possible => self.rx_other_identification += 1,
            IcrcCheck::LeftOut => self.rx_unchecked += 1,
        }
    }

    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [
            ("rx_frames", self.rx_frames),
            ("rx_delivered", self.rx_delivered),
            ("rx_unchecked", self.rx_unchecked),
            ("rx_unknown_qpn", self.rx_unknown_qpn),
            ("rx_wrong_address", self.rx_wrong_address),
            ("rx_neighbour", self.rx_neighbour),
            ("rx_bad_management", self.rx_bad_management),
            ("tx_management_lost", self.tx_management_lost),
            ("peers_followed", self.peers_followed),
            ("peers_refused", self.peers_refused),
            ("rx_other_identification", self.rx_other_identification),
            ("events_lost", self.events_lost),
        ];
        let malformed = Malformed::ALL.map(|reason| (reason.name(), self.malformed(reason)));
        own.into_iter().chain(malformed).chain(self.datagrams.iter()).chain(self.queue_pairs.iter())
    }

    /// Whether every frame is accounted for exactly once.
    pub fn is_balanced(&self) -> bool {
        let refused = self.rx_unknown_qpn + self.rx_wrong_address + self.rx_bad_management;
        let dropped = self.malformed.iter().sum::<u64>() + refused;
        self.rx_frames == self.rx_delivered + self.rx_neighbour + dropped
    }
}
