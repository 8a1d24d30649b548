//! Frames of which a host or a router says that they have not arrived (ICMP): the peer's process has ended, and its host refuses
//! what is sent to it, or a path carries shorter packets.
//!
//! Such a message is as easily forged as any. So it counts only where it quotes a packet that a connection waits to be acknowledged:
//! who cannot see the traffic would have to guess the number of the peer's queue pair and the PSN.

use roci_protocol::Nanos;
use roci_protocol::rc::WcStatus;
use roci_protocol::wire::Bth;

use super::Engine;
use crate::handles::QueuePair;
use crate::link::udp::station;
use crate::link::{FailedFrame, FrameFailure, Link};

impl<L: Link> Engine<L> {
    /// Looks at the frames that have failed, from the first on.
    #[cold]
    pub(super) fn on_failed_frames(&mut self, port: usize, now: Nanos, first: FailedFrame) {
        let mut next = Some(first);
        while let Some(failed) = next {
            if let Some(qp) = self.connection_of_failed(port, &failed) {
                match failed.failure {
                    FrameFailure::Refused => {
                        self.stats.peers_refused += 1;
                        self.fail_qp(qp, WcStatus::RetryExcErr);
                    }
                    FrameFailure::TooLong(bytes) => self.ports[port].link.shorten_packets(now, bytes),
                }
            }
            next = self.ports[port].link.take_failed();
        }
    }

    /// The connection that waits for a failed frame to be acknowledged.
    fn connection_of_failed(&self, port: usize, failed: &FailedFrame) -> Option<QueuePair> {
        let (bth, _) = Bth::parse(&failed.quote).ok()?;
        let is_its = |slot: &&crate::qp::ConnectedQp| {
            slot.port == port
                && slot.flow.destination_ip() == failed.ip
                && station::udp_port_of(slot.flow.destination_mac()) == station::udp_port_of(failed.station)
                && slot.rc.config().dest_qpn == bth.dest_qpn
                && slot.rc.is_unacknowledged(bth.psn)
        };
        self.qps.iter().find(is_its).map(|slot| slot.qp)
    }
}
